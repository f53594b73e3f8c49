"""Prepared items, kept until they are run: a cache, never state.

Laws
- Bounded in bytes; the least recently used goes first. A miss costs a second preparation, nothing
  else.
- Two threads use it: the prepare thread puts and drops, the model thread gets.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from threading import Lock

from service.worker.interface import PreparedInput

CACHE_BYTES = 64 * 1024 * 1024
"""A text item takes 1 to 20 KiB, so that this holds far more than a full queue."""


class PreparedCache:
    """Prepared items by id."""

    def __init__(self, max_bytes: int = CACHE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._items: OrderedDict[int, PreparedInput] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        return self._bytes

    def put(self, item_id: int, item: PreparedInput) -> None:
        """Keep one item; one that is larger than the whole cache is not kept."""
        with self._lock:
            self._drop(item_id)
            if item.nbytes > self._max_bytes:
                return
            self._items[item_id] = item
            self._bytes += item.nbytes
            while self._bytes > self._max_bytes:
                _, oldest = self._items.popitem(last=False)
                self._bytes -= oldest.nbytes

    def get(self, item_id: int) -> PreparedInput | None:
        """The item, ``None`` on a miss."""
        with self._lock:
            item = self._items.get(item_id)
            if item is not None:
                self._items.move_to_end(item_id)
            return item

    def drop(self, item_ids: Iterable[int]) -> None:
        """Forget items; unknown ids are fine."""
        with self._lock:
            for item_id in item_ids:
                self._drop(item_id)

    def _drop(self, item_id: int) -> None:
        item = self._items.pop(item_id, None)
        if item is not None:
            self._bytes -= item.nbytes
