"""fill-mask, equal to the stock pipeline and batched across requests.

Preparing does what the stock pipeline does inside its call: tokenise, look for the mask, resolve
``targets`` (here with a vocabulary that is read once), all before the item can join a batch.

Laws
- One mask: a flat list. More: a list for each mask, and the sequences keep the special tokens.
- A target that is no token of the vocabulary stands for its first piece; the same token twice
  counts once; ``top_k`` is cut to the number of targets.
- Writing out alternatives has a cost of its own, about 45 us and 1.5 us per token of the text for
  each. What is beyond the default is counted in units, and what is beyond
  :data:`MAX_WRITTEN` is refused: the full vocabulary for a long text would take minutes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForMaskedLM, FillMaskPipeline

from service.tasks.fill_mask import FILL_MASK
from service.worker.interface import Answer, CannotLoad, Foreign, PreparedInput, Unsuitable
from service.worker.pipelines.gathering import AtMasks, Gathering, is_equal, masked_rows
from service.worker.pipelines.loading import load_model
from service.worker.pipelines.stock import Payload, StockPipeline, too_long
from service.worker.pipelines.writing import DEFAULT_TOP_K, Writer, is_plain, is_same
from service.worker.wire import Load

MAX_WRITTEN = 2_000_000
"""Most of (alternatives x (tokens + 32)), about two seconds and 8 MB of answer."""

_TOKENS_OF_ONE = 32
"""The fixed cost of one alternative in tokens, by the two figures above."""

_NOTABLE_S = 0.01
"""Writing time that is worth counting in units."""


class FillMask(StockPipeline):
    """The fill-mask pipeline."""

    def __init__(self, load: Load, pipe: Foreign) -> None:
        super().__init__(load, FILL_MASK, pipe)
        tokenizer = self.prepare_tokenizer
        self.mask_token = tokenizer.mask_token
        self._mask_id = tokenizer.mask_token_id
        self._vocabulary: dict[str, int] = tokenizer.get_vocab()
        self._write_s = 0.0
        self._gathering: Gathering | None = None
        self._writer: Writer | None = None

    @classmethod
    def from_load(cls, load: Load, folder: Path) -> FillMask:
        """Load from the folder and warm up.

        Raises:
            CannotLoad: the model does not fit, or see :func:`load_model`.
        """
        loaded = load_model(load, folder, AutoModelForMaskedLM)
        if loaded.tokenizer.mask_token_id is None:
            raise CannotLoad("wrong_task", "The model's tokenizer has no mask token.")
        pipe = FillMaskPipeline(
            model=loaded.model,
            tokenizer=loaded.tokenizer,
            task=FILL_MASK.name,
            device=loaded.device,
        )
        pipeline = cls(load, pipe)
        pipeline.warm_up()
        return pipeline

    def text(self, template: str) -> str:
        """The example with this model's own mask token."""
        return template.replace("{mask}", self.mask_token)

    def learn(self, outputs: Foreign) -> None:
        """The size of the output vocabulary, and what writing one alternative costs."""
        self.vocab_size = int(outputs["logits"].shape[-1])
        top_k = min(100, self.vocab_size)
        started = perf_counter()
        self.pipe.postprocess(outputs, top_k=top_k)
        weight = top_k * (outputs["input_ids"].shape[1] + _TOKENS_OF_ONE)
        self._write_s = (perf_counter() - started) / weight

    def quicken(self) -> str:
        """Take the masked rows only, if the model's head allows it."""
        texts = (FILL_MASK.example, FILL_MASK.canary, f"{FILL_MASK.example} {{mask}}")
        payloads = [self.prepare(self.text(text), b"", {}).payload for text in texts]
        groups = [payloads] if self.batchable else [[payload] for payload in payloads]
        try:
            gathering = Gathering(self.pipe.model)
        except ValueError:
            return super().quicken()
        for group in groups:
            if not is_equal(self.pipe.forward, gathering, self.padded(group), self._mask_id):
                gathering.remove()
                return super().quicken()
        self._gathering = gathering
        self._writer = self._proved_writer(groups)
        return "gathered"

    def _proved_writer(self, groups: Sequence[Sequence[Payload]]) -> Writer | None:
        """What writes many answers at once, if it writes what the stock pipeline does."""
        try:
            writer = Writer(self.pipe.tokenizer)
        except ValueError:
            return None
        for group in groups:
            outputs = self.forward(group)
            together = writer.write(outputs["logits"], group)
            if not is_same(together, super().written(outputs, group)):
                return None
        return writer

    def infer(self, inputs: Foreign) -> Foreign:
        """The scores of the masked positions only, where that was proved."""
        if self._gathering is None:
            return super().infer(inputs)
        with self._gathering.at(masked_rows(inputs["input_ids"], self._mask_id)):
            return super().infer(inputs)

    def written(self, outputs: Foreign, payloads: Sequence[Payload]) -> list[Answer]:
        """The plain ones together, the others as the stock pipeline does."""
        plain = [index for index, payload in enumerate(payloads) if is_plain(payload)]
        if self._writer is None or not plain:
            return super().written(outputs, payloads)
        scores = outputs["logits"][plain] if len(plain) < len(payloads) else outputs["logits"]
        own = dict(
            zip(plain, self._writer.write(scores, [payloads[n] for n in plain]), strict=True)
        )
        return [
            own[index] if index in own else self.written_one(outputs, index, payload)
            for index, payload in enumerate(payloads)
        ]

    def own_rows(self, outputs: Foreign, index: int, payload: Payload) -> dict[str, Any]:
        """What the stock postprocess gets."""
        rows = super().own_rows(outputs, index, payload)
        if self._gathering is not None:
            rows["logits"] = AtMasks(rows["logits"][0])
        return rows

    def prepare(self, inputs: str, media: bytes, parameters: Mapping[str, Any]) -> PreparedInput:
        """Tokenise, and check length, mask and targets.

        Raises:
            Unsuitable: too long, no mask, no known target, or too much to write.
        """
        del media
        encoded = self.prepare_tokenizer(inputs, return_tensors="pt")
        tensors: dict[str, torch.Tensor] = dict(encoded)
        ids = tensors["input_ids"]
        length = int(ids.shape[1])
        if length > self.max_tokens:
            raise too_long(length, self.max_tokens)
        masks = int((ids == self._mask_id).sum())
        if not masks:
            raise Unsuitable(f"send a text with at least one mask, written as {self.mask_token}")
        post = self._post(parameters)
        units = length + self._writing_units(post, masks, length)
        payload = Payload(tensors, length, post)
        return PreparedInput(units, payload.nbytes, payload)

    def _post(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        post: dict[str, Any] = {}
        if "top_k" in parameters:
            post["top_k"] = parameters["top_k"]
            if self.vocab_size and not 1 <= post["top_k"] <= self.vocab_size:
                raise Unsuitable(
                    f"send an integer from 1 to {self.vocab_size} (the vocabulary)",
                    pointer="/parameters/top_k",
                )
        if "targets" in parameters:
            post["target_ids"] = self._target_ids(parameters["targets"])
        return post

    def _target_ids(self, targets: list[str]) -> np.ndarray[Any, np.dtype[np.int64]]:
        found: list[int] = []
        for target in targets:
            token = self._vocabulary.get(target)
            if token is None:
                pieces = self.prepare_tokenizer(
                    target,
                    add_special_tokens=False,
                    return_attention_mask=False,
                    return_token_type_ids=False,
                    max_length=1,
                    truncation=True,
                )["input_ids"]
                if not pieces:
                    continue  # nothing is left of it, as for a control character
                token = pieces[0]
            if not self.vocab_size or token < self.vocab_size:
                found.append(token)
        if not found:
            raise Unsuitable("send words that the model knows", pointer="/parameters/targets")
        return np.array(list(set(found)))

    def _writing_units(self, post: Mapping[str, Any], masks: int, length: int) -> int:
        per_mask = int(post.get("top_k", DEFAULT_TOP_K))
        if "target_ids" in post:
            per_mask = min(per_mask, len(post["target_ids"]))
        each = length + _TOKENS_OF_ONE
        if per_mask > DEFAULT_TOP_K and masks * per_mask * each > MAX_WRITTEN:
            most = max(DEFAULT_TOP_K, MAX_WRITTEN // (masks * each))
            raise Unsuitable(
                f"for this text send an integer from 1 to {most}, or fewer masks",
                limit=most,
                pointer="/parameters/top_k",
            )
        beyond_s = self._write_s * each * (masks * per_mask - DEFAULT_TOP_K)
        if beyond_s < _NOTABLE_S or not self.cost_unit_s:
            return 0
        return round(beyond_s / self.cost_unit_s)
