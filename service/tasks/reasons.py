"""Why a task of transformers is not served: one sentence each, shown to whoever asks for it."""

from __future__ import annotations

_IMAGES = "its input is an image; tasks with images come with a later release"

REASONS: dict[str, str] = {
    "any-to-any": "its inputs and answers may be text, image and sound; that comes with them",
    "decision": "its input is a request format of its own and its pipeline cannot batch yet",
    "depth-estimation": _IMAGES,
    "document-question-answering": _IMAGES,
    "image-feature-extraction": _IMAGES,
    "image-segmentation": _IMAGES,
    "image-text-to-text": _IMAGES,
    "keypoint-matching": _IMAGES,
    "mask-generation": _IMAGES,
    "object-detection": _IMAGES,
    "question-answering": "transformers has no such pipeline since its version 5",
    "summarization": "transformers has no such pipeline since its version 5; see text-generation",
    "text2text-generation": "transformers has no such pipeline since its version 5",
    "translation": "transformers has no such pipeline since its version 5; see text-generation",
    "zero-shot-image-classification": _IMAGES,
    "zero-shot-object-detection": _IMAGES,
}
"""By the task's name. What stands in ``TASKS`` does not stand here."""
