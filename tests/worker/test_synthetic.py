"""The synthetic pipelines take the times of their service models, and know their own costs."""

from __future__ import annotations

import statistics

import pytest

from service.worker.interface import CannotLoad, PreparedInput, Unsuitable
from service.worker.synthetic import MODELS, SyntheticPipeline
from service.worker.wire import Load


def pipeline(name: str, seed: int = 1) -> tuple[SyntheticPipeline, list[float]]:
    """A pipeline and the list of what it sleeps."""
    slept: list[float] = []
    return SyntheticPipeline(name, MODELS[name], seed=seed, sleep=slept.append), slept


def prepared(pipe: SyntheticPipeline, words: int) -> PreparedInput:
    """A text of so many words."""
    return pipe.prepare("word " * words, b"", {})


@pytest.mark.parametrize(
    "name,padded,seconds",
    [
        ("synthetic:cpu", 1, 0.0055),
        ("synthetic:cpu", 1000, 0.505),
        ("synthetic:gpu", 128, 4 * (0.015 + 128 * 2e-6)),
        ("synthetic:gpu", 2048, 4 * (0.015 + 2048 * 2e-6)),
        ("synthetic:gpu", 4096, 4 * (0.015 + 2048 * 2e-6 + 2048 * 8e-6)),
    ],
)
def test_service_times(name: str, padded: int, seconds: float) -> None:
    """A batch takes S(P) of its padded size."""
    assert MODELS[name].seconds(padded) == pytest.approx(seconds)


def test_padded_size_counts() -> None:
    """P is the number of items times the longest of them."""
    pipe, slept = pipeline("synthetic:cpu")
    for _ in range(400):
        pipe.run([prepared(pipe, 1), prepared(pipe, 100), prepared(pipe, 7)])
    assert statistics.median(slept) == pytest.approx(0.005 + 0.0005 * 300, rel=0.02)


def test_noise_is_the_simulations() -> None:
    """Times spread by 8 %, and one batch in 200 takes twice as long."""
    pipe, slept = pipeline("synthetic:cpu")
    item = prepared(pipe, 10)
    for _ in range(20_000):
        pipe.run([item])
    ratios = [seconds / 0.01 for seconds in slept]
    assert statistics.median(ratios) == pytest.approx(1.0, abs=0.01)
    low, high = statistics.quantiles(ratios, n=100)[15], statistics.quantiles(ratios, n=100)[83]
    assert (high - low) / 2 == pytest.approx(0.08, abs=0.005)
    assert sum(ratio > 1.5 for ratio in ratios) / len(ratios) == pytest.approx(0.005, abs=0.002)


def test_seed_repeats() -> None:
    """The same seed sleeps the same, another one does not."""
    runs = []
    for seed in (1, 1, 2):
        pipe, slept = pipeline("synthetic:gpu", seed)
        pipe.run([prepared(pipe, 3)])
        runs.append(slept)
    assert runs[0] == runs[1] != runs[2]


def test_answer_has_own_words_and_batch() -> None:
    """Each item gets its own number of words, all the size of their batch."""
    pipe, _ = pipeline("synthetic:cpu")
    answers = pipe.run([prepared(pipe, 2), prepared(pipe, 5)])
    assert answers == [{"tokens": 2, "batch": 2}, {"tokens": 5, "batch": 2}]
    assert pipe.canary()["batch"] == 1


def test_facts_fit_the_model() -> None:
    """The fitted line is the CPU-like model itself, and close to the GPU-like one in its middle."""
    cpu = pipeline("synthetic:cpu")[0].facts
    assert (cpu.cost_fixed_s, cpu.cost_unit_s) == pytest.approx((0.005, 0.0005))
    gpu = pipeline("synthetic:gpu")[0].facts
    for padded in (128, 7000):
        line = gpu.cost_fixed_s + gpu.cost_unit_s * padded
        assert line == pytest.approx(MODELS["synthetic:gpu"].seconds(padded), rel=0.1)
    assert gpu.batchable
    assert gpu.typical_units == 8


def test_length_is_limited() -> None:
    """One word more than the limit is refused with both numbers; white space is one word."""
    pipe, _ = pipeline("synthetic:cpu")
    assert prepared(pipe, 512).units == 512
    with pytest.raises(Unsuitable) as caught:
        prepared(pipe, 513)
    assert caught.value.limit == 512
    assert "513" in caught.value.message
    assert "512" in caught.value.message
    assert pipe.prepare("\u3000", b"", {}).units == 1


def test_unknown_model_is_refused() -> None:
    """Another name says which there are."""
    with pytest.raises(CannotLoad) as caught:
        SyntheticPipeline.from_load(Load("synthetic:tpu", "synthetic"))
    assert caught.value.reason == "model_not_found"
    assert "synthetic:cpu" in caught.value.message
