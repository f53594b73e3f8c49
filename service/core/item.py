"""An item: one input on its way through queue and model.

::

            admitted            prepared             picked             answered
    (new) ───────────▶ PREPARING ───────▶ WAITING ───────▶ RUNNING ───────▶ DONE
                           │                 │                               ▲
                           └──── leaves ─────┴───────────────────────────────┘

PREPARING and WAITING count in the queue's depth; only WAITING items are picked. An item keeps its
place in the order of arrival. A RUNNING item whose client left stays RUNNING until its batch
returns: it still keeps a worker busy.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ItemState(StrEnum):
    """Where an item is."""

    PREPARING = "preparing"
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"


LEGAL: frozenset[tuple[ItemState, ItemState]] = frozenset(
    {
        (ItemState.PREPARING, ItemState.WAITING),
        (ItemState.PREPARING, ItemState.DONE),
        (ItemState.WAITING, ItemState.RUNNING),
        (ItemState.WAITING, ItemState.DONE),
        (ItemState.RUNNING, ItemState.DONE),
    }
)
"""Every legal step; anything else is a bug and raises."""


@dataclass(slots=True, eq=False)
class Item:
    """One input.

    Attributes:
        id: unique for the life of the front, rising in the order of arrival.
        owner: the request that the item belongs to (opaque to the core).
        index: its position in the request.
        inputs: the text, empty for media tasks.
        parameters: JSON bytes, checked.
        nbytes: what it counts against ``queue_bytes``.
        media: the bytes of a media task.
        size: what its cost is guessed from; 0 stands for the characters of the text.
        units: size in tokens; an estimate from characters until it is prepared.
        deadline: absolute, in seconds of the one clock.
        arrived: when it took its place.
        key: batch key, known once prepared.
        fingerprint: keyed hash of input and parameters (suspects, poisoned inputs).
        alone: run it by itself (suspect).
        rehearse: the fault to act out, empty for none.
        abandoned: its client has its answer or is gone; the model's work is wasted.
        client: whose share of the queue it takes, empty if nobody knows.
    """

    id: int
    owner: object
    index: int
    inputs: str
    parameters: bytes
    nbytes: int
    units: float
    deadline: float
    arrived: float
    media: bytes = b""
    size: int = 0
    key: str = ""
    fingerprint: bytes = b""
    alone: bool = False
    rehearse: str = ""
    abandoned: bool = False
    client: str = ""
    state: ItemState = ItemState.PREPARING
    started: float = 0.0
    """When it was picked into a batch for the first time (seconds of the one clock)."""

    @property
    def weight(self) -> int:
        """What its cost is guessed from before it is prepared: of a text its characters."""
        return self.size or len(self.inputs)

    def move(self, to: ItemState) -> None:
        """Take one step.

        Raises:
            ValueError: the step is not legal; the state is unchanged.
        """
        if (self.state, to) not in LEGAL:
            raise ValueError(f"item cannot go from {self.state} to {to}")
        self.state = to
