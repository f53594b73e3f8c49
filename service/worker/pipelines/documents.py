"""document-question-answering: what its words and its picture must be before the stock steps run.

Laws
- Words come with the request; no program is started to read them.
- What a tokenizer would panic over (a question that leaves no room for the document) is told first,
  and so is a question that leaves a model which writes its answer no room to write.
- Of models that read the picture and write, the stock pipeline knows Donut alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from service.tasks import Task
from service.worker.interface import CannotLoad, Foreign, Unsuitable
from service.worker.pipelines.shaped import Shaped
from service.worker.wire import Load

_MOST_STRIDE = 256
"""The stock pipeline's own default, or half of a piece if that is less."""

_PROMPT = "<s_docvqa><s_question>{}</s_question><s_answer>"
"""As the stock pipeline asks a model that writes."""


def classes_that_write(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """The auto class of a model that reads the picture and writes, if the folder has one.

    The library's list of models for documents leaves them out; its pipeline takes them by the name
    of their architecture.

    Args:
        raw: the model's ``config.json``.

    Raises:
        CannotLoad: it is another model of that kind than the pipeline knows.
    """
    if raw.get("model_type") != "vision-encoder-decoder":
        return ()
    encoder = raw.get("encoder")
    if not isinstance(encoder, dict) or encoder.get("model_type") != "donut-swin":
        message = "Of models that read a picture and write, only Donut can be asked of documents."
        raise CannotLoad("wrong_task", message)
    return ("AutoModelForImageTextToText",)


class Documents(Shaped):
    """A model that reads words, or one that reads the picture itself."""

    def __init__(self, load: Load, task: Task, pipe: Foreign) -> None:
        for part in (pipe.image_processor, pipe.feature_extractor):
            if hasattr(part, "apply_ocr"):
                part.apply_ocr = False
        super().__init__(load, task, pipe)
        self._reads_pictures = pipe.model_type.value == "vision_encoder_decoder"
        if self._reads_pictures:  # it generates
            self.batchable = False

    def preprocessed(self, value: Foreign, given: Mapping[str, Any]) -> list[Foreign]:
        """As the stock pipeline.

        Raises:
            Unsuitable: words or picture are missing, or the question is too long.
        """
        if self._reads_pictures:
            if "image" not in value:
                raise Unsuitable("send 'image' too; this model reads the picture")
            self._check_length(value["question"])
            value = {name: part for name, part in value.items() if name != "word_boxes"}
            return super().preprocessed(value, given)
        if "word_boxes" not in value:
            raise Unsuitable("send 'word_boxes' too; this model reads words, not the picture")
        self._check_room(value["question"], given)
        if self.pipe.image_processor is None and self.pipe.feature_extractor is None:
            value = {name: part for name, part in value.items() if name != "image"}
        return super().preprocessed(value, given)

    def _check_length(self, question: str) -> None:
        prompt = _PROMPT.format(question)
        tokens = len(self._preparing.tokenizer(prompt, add_special_tokens=False)["input_ids"])
        written = getattr(self.pipe.model.generation_config, "max_length", None)
        most = min(self.max_tokens, written) if isinstance(written, int) else self.max_tokens
        if tokens >= most:
            raise Unsuitable(
                f"the question has {tokens} tokens with what stands around it, this model takes "
                f"{most - 1}",
                limit=most - 1,
            )

    def _check_room(self, question: str, given: Mapping[str, Any]) -> None:
        tokenizer = self._preparing.tokenizer
        piece = min(given.get("max_seq_len") or self.max_tokens, self.max_tokens)
        tokenizer.model_max_length = self.max_tokens
        tokens = len(tokenizer.tokenize(question))
        room = piece - tokens - tokenizer.num_special_tokens_to_add(pair=True)
        stride = given.get("doc_stride")
        if stride is not None and stride >= room > 0:
            message = f"for this question send an integer from 0 to {room - 1}"
            raise Unsuitable(message, limit=room - 1, pointer="/parameters/doc_stride")
        if room < 1 or (stride is None and min(piece // 2, _MOST_STRIDE) >= room):
            raise Unsuitable(
                f"the question has {tokens} tokens, too many beside a document: this model takes "
                f"{piece} together",
                limit=piece,
            )
