"""fill-mask: the stock pipeline's answers, alone and in any batch; what does not fit is named."""

from __future__ import annotations

import itertools
import json
import math
import random
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest
import torch
from transformers import AutoTokenizer, FillMaskPipeline

from service.worker.interface import Mismatch, PreparedInput
from service.worker.pipelines.fill_mask import MAX_WRITTEN, FillMask
from service.worker.wire import (
    Facts,
    Fault,
    Load,
    Prepare,
    Prepared,
    Probe,
    Probed,
    Result,
    Run,
    Unfit,
    WireItem,
)
from tests.worker.line import PACKAGED, Line, inside

TEXT = (
    "the old harbour wall was built of grey stone and it still stands every winter when waves "
    "strike at night Paris is a capital city in France where unbelievable antidisestablishment "
    "people read 1234 books , and so on ."
)
WORDS = TEXT.split()

ids = itertools.count(1)
Case = tuple[str, dict[str, Any]]


def text_of(words: int, masks: int = 1, seed: int = 0) -> str:
    """A text of so many words, its masks somewhere in it."""
    chance = random.Random(f"{words} {masks} {seed}")
    chosen = [chance.choice(WORDS) for _ in range(words)]
    for place in sorted(chance.sample(range(words + 1), masks), reverse=True):
        chosen.insert(place, "[MASK]")
    return " ".join(chosen)


CASES: list[Case] = [
    ("Paris is the [MASK] of France.", {}),
    ("[MASK]", {}),
    ("a [MASK]", {"top_k": 1}),
    ("Paris [MASK] the [MASK].", {"top_k": 2}),
    ("[MASK] [MASK] [MASK]", {"top_k": 3}),
    ("The [MASK] barked.", {"targets": ["dog"]}),
    ("The [MASK] barked.", {"targets": ["cat", "dog", "man", "dog"]}),
    ("The [MASK] barked.", {"targets": ["antidisestablishment", "dog"]}),
    ("The [MASK] barked.", {"targets": ["Dog", "DOG", "ünknown", "🙂"]}),
    ("The [MASK] barked.", {"targets": ["cat", "dog", "man"], "top_k": 2}),
    ("The [MASK] barked.", {"targets": ["cat", "dog"], "top_k": 50}),
    ("Two [MASK] and [MASK].", {"targets": ["cats", "dogs", "men"], "top_k": 2}),
    ("The [MASK] [PAD] padded [SEP] and [CLS] text", {"top_k": 2}),
    ("naïve café 東京 🙂 [MASK] \u200b\t\n x", {"top_k": 4}),
    ("The capital of Italy is [MASK]", {"top_k": 1000}),
    *[(text_of(words), {}) for words in (1, 2, 3, 5, 9, 17, 33, 65, 129, 180)],
    *[(text_of(words, masks=2), {"top_k": 3}) for words in (4, 40)],
]


def wire(case: Case) -> WireItem:
    """A case as an item with a new id."""
    text, parameters = case
    return WireItem(next(ids), text, msgspec.json.encode(parameters))


def run(line: Line, cases: Sequence[Case], *, prepared: bool = True) -> list[Any]:
    """The answers of one batch."""
    batch = [wire(case) for case in cases]
    if prepared:
        for item in batch:
            answer = line.ask(Prepare(item))
            assert isinstance(answer, Prepared), answer
            assert (answer.id, answer.key) == (item.id, "")
    number = next(ids)
    result = line.ask(Run(number, batch))
    assert isinstance(result, Result), result
    assert result.batch == number
    return [json.loads(output) for output in result.outputs]


def same(answer: Any, expected: Any) -> None:
    """Equal in shape and content, scores within 1e-4 (and near ties in either order)."""
    assert len(answer) == len(expected)
    if isinstance(expected[0], list):
        for inner, expected_inner in zip(answer, expected, strict=True):
            same(inner, expected_inner)
        return
    scores = [row.pop("score") for row in answer]
    expected = [dict(row) for row in expected]
    expected_scores = [row.pop("score") for row in expected]
    assert scores == pytest.approx(expected_scores, abs=1e-4)
    for row, other, score in zip(answer, expected, expected_scores, strict=True):
        if row != other:
            twin = next(s for r, s in zip(expected, expected_scores, strict=True) if r == row)
            assert math.isclose(twin, score, abs_tol=1e-6)


@pytest.mark.parametrize("number", range(len(CASES)))
def test_alone_as_the_stock_pipeline(real: tuple[Line, Facts], stock: Any, number: int) -> None:
    """One input alone gives what ``pipe(text, **parameters)`` gives."""
    text, parameters = CASES[number]
    [answer] = run(real[0], [CASES[number]])
    same(answer, stock(text, **parameters))


def test_list_as_the_stock_pipeline(real: tuple[Line, Facts], stock: Any) -> None:
    """A list in one batch gives what ``pipe(list)`` gives."""
    texts = [text_of(words, seed=7) for words in (3, 30, 11)]
    answers = run(real[0], [(text, {}) for text in texts])
    for answer, expected in zip(answers, stock(texts), strict=True):
        same(answer, expected)


def test_list_of_one_is_the_inner_answer(real: tuple[Line, Facts], stock: Any) -> None:
    """A batch of one has the inner answer: the stock pipeline unwraps it, the front wraps it."""
    [answer] = run(real[0], [("a [MASK]", {})])
    same(answer, stock(["a [MASK]"]))


@pytest.mark.parametrize("seed", range(4))
def test_mixed_batches_as_alone(real: tuple[Line, Facts], stock: Any, seed: int) -> None:
    """Lengths, masks and parameters mixed in one batch leave each answer as it is alone."""
    cases = random.Random(seed).sample(CASES, 8)
    for (text, parameters), answer in zip(cases, run(real[0], cases), strict=True):
        same(answer, stock(text, **parameters))


def test_neighbours_do_not_show(real: tuple[Line, Facts]) -> None:
    """The same input beside a one-word and a 180-word neighbour gives the same text and tokens."""
    case: Case = ("Paris [MASK] the [MASK].", {"top_k": 2})
    answers = [
        run(real[0], [case, (text_of(words, seed=3), {"top_k": 1})])[0] for words in (1, 60, 180)
    ]
    for answer in answers[1:]:
        same(answer, answers[0])


def test_one_mask_flat_two_masks_nested(real: tuple[Line, Facts]) -> None:
    """One mask: a flat list without special tokens. Two: lists whose sequences keep them."""
    one, two = run(real[0], [("a [MASK]", {"top_k": 2}), ("a [MASK] [MASK]", {"top_k": 2})])
    assert [set(row) for row in one] == [{"score", "token", "token_str", "sequence"}] * 2
    assert "[CLS]" not in one[0]["sequence"]
    assert [len(inner) for inner in two] == [2, 2]
    assert all("[CLS]" in row["sequence"] for inner in two for row in inner)


def test_unprepared_items_run_too(real: tuple[Line, Facts], stock: Any) -> None:
    """Items that were never prepared give the same answers."""
    for (text, parameters), answer in zip(
        CASES[:8], run(real[0], CASES[:8], prepared=False), strict=True
    ):
        same(answer, stock(text, **parameters))


def test_facts(real: tuple[Line, Facts]) -> None:
    """The packaged model's facts, its cost a usable line."""
    facts = real[1]
    assert (facts.task, facts.model) == ("fill-mask", "fill-mask-small")
    assert (facts.mask_token, facts.max_tokens, facts.vocab_size) == ("[MASK]", 512, 10000)
    assert facts.batchable
    assert (facts.torch_threads, facts.workers, facts.path) == (1, 1, "gathered")
    assert facts.typical_units == 9
    assert 0.1 < facts.units_per_char < 0.5
    assert facts.prepare_s_per_char > 0
    assert facts.cost_fixed_s >= 0
    assert facts.cost_unit_s > 0


def unfit(line: Line, text: str, parameters: dict[str, Any] | None = None) -> Unfit:
    """The refusal of one input."""
    answer = line.ask(Prepare(wire((text, parameters or {}))))
    assert isinstance(answer, Unfit), answer
    assert answer.code == "invalid_input"
    assert answer.trace is None
    return answer


def test_too_long_names_both_numbers(real: tuple[Line, Facts]) -> None:
    """Exactly the limit is taken, one token more is refused with limit and actual length."""
    line = real[0]
    fitting = line.ask(Prepare(wire(("the " * 509 + "[MASK]", {}))))
    assert fitting.units == 512
    refusal = unfit(line, "the " * 510 + "[MASK]")
    assert refusal.limit == 512
    assert "513" in refusal.message
    assert "512" in refusal.message
    assert isinstance(line.ask(Run(next(ids), [wire(("the " * 509 + "[MASK]", {}))])), Result)


@pytest.mark.parametrize("text", ["There is no mask here.", "[mask]", "[MASK", "<mask>"])
def test_no_mask_names_the_mask(real: tuple[Line, Facts], text: str) -> None:
    """A text without a mask is told how the mask is written."""
    assert "[MASK]" in unfit(real[0], text).message


@pytest.mark.parametrize("targets", [["\u200b"], ["\x00", "\u200e"]])
def test_targets_of_nothing_are_refused(real: tuple[Line, Facts], stock: Any, targets: Any) -> None:
    """Targets of which the tokenizer leaves nothing are refused; the stock pipeline raises."""
    refusal = unfit(real[0], "a [MASK]", {"targets": targets})
    assert refusal.pointer == "/parameters/targets"
    with pytest.raises(ValueError, match="target"):
        stock("a [MASK]", targets=targets)


@pytest.mark.parametrize("top_k", [10001, 0, -1])
def test_top_k_outside_the_vocabulary(real: tuple[Line, Facts], top_k: int) -> None:
    """A top_k that the front let pass is refused before it can join a batch."""
    refusal = unfit(real[0], "a [MASK]", {"top_k": top_k})
    assert refusal.pointer == "/parameters/top_k"
    assert "10000" in refusal.message


def test_whole_vocabulary(real: tuple[Line, Facts], stock: Any) -> None:
    """The largest top_k gives the whole vocabulary, and its writing is counted as work."""
    line = real[0]
    item = wire(("a [MASK]", {"top_k": 10000}))
    prepared = line.ask(Prepare(item))
    assert prepared.units > 4 * 10
    result = line.ask(Run(next(ids), [item]))
    same(json.loads(result.outputs[0]), stock("a [MASK]", top_k=10000))


def test_endless_writing_is_refused(real: tuple[Line, Facts]) -> None:
    """The vocabulary for each of many masks would take minutes; the answer says how much may be."""
    refusal = unfit(real[0], "[MASK] " * 100, {"top_k": 10000})
    assert refusal.pointer == "/parameters/top_k"
    assert refusal.limit == MAX_WRITTEN // (100 * (102 + 32))
    assert str(refusal.limit) in refusal.message
    fits = wire(("[MASK] " * 100, {"top_k": refusal.limit}))
    assert isinstance(real[0].ask(Prepare(fits)), Prepared)
    assert isinstance(real[0].ask(Prepare(wire(("[MASK] " * 500, {})))), Prepared)


def test_misfit_in_a_batch_is_named(real: tuple[Line, Facts]) -> None:
    """An unprepared item that does not fit is the FAULT's own; the others run without it."""
    line = real[0]
    batch = [wire(("a [MASK]", {})), wire(("no mask", {})), wire(("b [MASK]", {}))]
    fault = line.ask(Run(1, batch))
    assert isinstance(fault, Fault), fault
    assert (fault.kind, fault.index) == ("input", 1)
    assert "[MASK]" in fault.message
    assert isinstance(line.ask(Run(2, [batch[0], batch[2]])), Result)


@pytest.mark.parametrize("kind", ["raise", "oom", "nan"])
def test_rehearsed_faults(real: tuple[Line, Facts], kind: str) -> None:
    """Rehearsed faults go through the real pipeline, and the next canary is good."""
    line = real[0]
    marked = WireItem(next(ids), "SECRET-7731 [MASK]", rehearse=kind)
    answer = line.ask(Run(5, [wire(("a [MASK]", {})), marked]))
    if kind == "nan":
        assert [bool(output) for output in answer.outputs] == [True, False]
    else:
        assert answer.kind == ("oom" if kind == "oom" else "error")
        assert "SECRET" not in str(answer)
    assert line.ask(Probe(6)) == Probed(6, ok=True)


def test_interleaved_preparing_as_alone(real: tuple[Line, Facts], stock: Any) -> None:
    """Items from 16 threads at once, half with targets that truncate, keep their lengths."""
    line = real[0]
    kinds: list[Case] = [
        (text_of(150, seed=1), {}),
        ("a [MASK]", {"targets": ["antidisestablishment", "unheardofword"]}),
        (text_of(20, seed=2), {"targets": ["dogs", "unheardofword"]}),
        (text_of(3, seed=3), {"top_k": 2}),
    ]
    lengths = [len(stock.tokenizer(text)["input_ids"]) for text, _ in kinds]
    expected: dict[int, int] = {}
    batches: list[list[Prepare]] = []
    for thread in range(16):
        cases = [(thread + number) % 4 for number in range(60)]
        batch = [wire(kinds[case]) for case in cases]
        expected |= {item.id: lengths[case] for item, case in zip(batch, cases, strict=True)}
        batches.append([Prepare(item) for item in batch])

    def send(batch: list[Prepare]) -> None:
        for frame in batch:
            line.send(frame)

    threads = [threading.Thread(target=send, args=(batch,)) for batch in batches]
    for sender in threads:
        sender.start()
    found: dict[int, int] = {}
    while len(found) < len(expected):
        answer = line.next()
        assert isinstance(answer, Prepared), answer
        found[answer.id] = answer.units
    for sender in threads:
        sender.join()
    assert found == expected


@pytest.fixture
def pipe(stock: Any) -> Iterator[Any]:
    """A stock pipeline of its own, with the shared model, whose hooks are undone."""
    hooks = dict(stock.model._forward_hooks)
    tokenizer = AutoTokenizer.from_pretrained(PACKAGED)
    yield FillMaskPipeline(
        model=stock.model, tokenizer=tokenizer, task="fill-mask", device=torch.device("cpu")
    )
    stock.model._forward_hooks.clear()
    stock.model._forward_hooks.update(hooks)


@pytest.fixture
def line(pipe: Any) -> Iterator[Line]:
    """A line to a runner inside this process, whose model a test can reach."""
    pipeline = FillMask(Load(PACKAGED, "fill-mask"), pipe)
    pipeline.warm_up()
    with inside(lambda _: pipeline) as line:
        line.load("x", "fill-mask")
        yield line


def unmeasured(pipe: Any) -> FillMask:
    """A pipeline of ours round it, without the time that a warm-up takes."""
    pipeline = FillMask(Load(PACKAGED, "fill-mask"), pipe)
    pipeline.max_tokens = 512
    return pipeline


def prepare(pipeline: FillMask, *texts: str) -> list[PreparedInput]:
    """Prepared inputs."""
    return [pipeline.prepare(text, b"", {}) for text in texts]


def test_without_pad_token_one_by_one(stock: Any, pipe: Any) -> None:
    """A tokenizer that cannot pad makes items run one at a time, with the same answers."""
    pipe.tokenizer.pad_token = None
    pipeline = unmeasured(pipe)
    assert not pipeline.batchable
    texts = ["a [MASK]", text_of(20)]
    for text, answer in zip(texts, pipeline.run(prepare(pipeline, *texts)), strict=True):
        same(json.loads(msgspec.json.encode(answer)), stock(text))


def test_without_attention_mask_one_by_one(pipe: Any) -> None:
    """Padding that no mask hides would change answers, so that such items do not share a batch."""
    pipe.tokenizer.model_input_names = ["input_ids"]
    assert not FillMask(Load(PACKAGED, "fill-mask"), pipe).batchable


def test_padding_side_of_the_tokenizer_does_not_matter(stock: Any, pipe: Any) -> None:
    """Padding on the left would shift the positions of short inputs; it is never done."""
    pipe.tokenizer.padding_side = "left"
    pipeline = unmeasured(pipe)
    texts = ["a [MASK]", text_of(20)]
    for text, answer in zip(texts, pipeline.run(prepare(pipeline, *texts)), strict=True):
        same(json.loads(msgspec.json.encode(answer)), stock(text))


def test_scores_that_are_no_numbers_are_the_items_own(pipe: Any, line: Line) -> None:
    """Where the model's scores for one item are NaN, only that item is without an answer."""
    bad = pipe.tokenizer.convert_tokens_to_ids("bad")

    def spoil(_: Any, __: Any, kwargs: Any, output: Any) -> Any:
        output["logits"][(kwargs["input_ids"] == bad).any(dim=1)] = math.nan
        return output

    pipe.model.register_forward_hook(spoil, with_kwargs=True)
    batch = [wire((text, {})) for text in ("a [MASK]", "a bad [MASK]", "b [MASK]")]
    result = line.ask(Run(1, batch))
    assert [bool(output) for output in result.outputs] == [True, False, True]


def test_rows_are_counted(pipe: Any) -> None:
    """A model that gives another number of rows than it got inputs is not listened to."""
    pipeline = unmeasured(pipe)

    def lose(_: Any, __: Any, output: Any) -> Any:
        output["logits"] = output["logits"][:-1]
        return output

    pipe.model.register_forward_hook(lose)
    with pytest.raises(Mismatch) as caught:
        pipeline.run(prepare(pipeline, "a [MASK]", "b [MASK]", "c [MASK]"))
    assert caught.value.message == "the pipeline gave 2 answers for 3 items"


def test_real_shortage_of_memory_is_told(pipe: Any, line: Line) -> None:
    """What torch raises when the CPU's memory is out is told as such, and the next batch runs."""

    def allocate(*_: Any) -> None:
        torch.empty(2**50, dtype=torch.uint8)

    hook = pipe.model.register_forward_hook(allocate)
    fault = line.ask(Run(1, [wire(("a [MASK]", {}))]))
    hook.remove()
    assert isinstance(fault, Fault), fault
    assert fault.kind == "oom"
    assert isinstance(line.ask(Run(2, [wire(("a [MASK]", {}))])), Result)
