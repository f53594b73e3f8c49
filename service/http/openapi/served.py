"""What is being served, as far as the description of the API depends on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from service.settings import Settings
from service.tasks import Task
from service.tasks.parameter import Json


@dataclass(frozen=True, slots=True)
class Served:
    """The values behind one description.

    Attributes:
        settings, task, version: of this server.
        facts: the model's integer facts, empty before it is ready.
        mask: the model's mask token, empty where there is none.
        example: an input that works; ``None`` before the model is ready.
        chars: most characters of a request of one input, ``None`` before the model is ready.
    """

    settings: Settings
    task: Task
    version: str
    facts: Mapping[str, int]
    mask: str
    example: Json
    chars: int | None

    @property
    def keyed(self) -> bool:
        """Whether predictions need an API key."""
        return bool(self.settings.api_keys_file)

    @property
    def items(self) -> int:
        """Most inputs of one request."""
        return min(self.settings.max_items, self.settings.queue_limit)
