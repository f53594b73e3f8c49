"""Why a task of transformers is not served: one sentence each, shown to whoever asks for it."""

from __future__ import annotations

REASONS: dict[str, str] = {
    "any-to-any": "its inputs and answers may be text, image, sound or film; see "
    "image-text-to-text for texts with images",
    "decision": "its input is a request format of its own and its pipeline cannot batch yet",
    "mask-generation": "the last step of its pipeline needs torchvision, which has to be built for "
    "the very torch that is installed",
    "question-answering": "transformers has no such pipeline since its version 5",
    "summarization": "transformers has no such pipeline since its version 5; see text-generation",
    "text2text-generation": "transformers has no such pipeline since its version 5",
    "translation": "transformers has no such pipeline since its version 5; see text-generation",
}
"""By the task's name. What stands in ``TASKS`` does not stand here."""
