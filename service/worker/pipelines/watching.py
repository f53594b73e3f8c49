"""video-classification: the frames that the model looks at, decoded here from the film's bytes.

Laws
- The frames are those of the stock pipeline: from the beginning, every n-th.
- A number of frames that the model was not proved to take is refused by its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from service.tasks import Task
from service.tasks.video_classification import MAX_FRAMES
from service.worker.films import read_frames
from service.worker.interface import CannotLoad, Foreign, Unsuitable
from service.worker.pipelines.pieces import Pieces
from service.worker.pipelines.rows import row_of
from service.worker.pipelines.shaped import Shaped
from service.worker.pipelines.warmup import tried
from service.worker.wire import Load


class Watching(Shaped):
    """A model that classifies films."""

    def __init__(self, load: Load, task: Task, pipe: Foreign) -> None:
        super().__init__(load, task, pipe)
        self.batchable = True
        own = getattr(pipe.model.config, "num_frames", None)
        if not isinstance(own, int) or own > MAX_FRAMES:
            raise CannotLoad("wrong_task", "The model does not say how many frames it looks at.")
        self._own_frames = own
        self._any_number = True

    def warm_up(self) -> None:
        """Find out whether another number of frames will do, then as any medium."""
        if self._own_frames > 1:
            self._any_number = self._takes(self._own_frames // 2)
        super().warm_up()

    def _takes(self, count: int) -> bool:
        frames = [np.zeros((32, 32, 3), np.uint8)] * count
        row = row_of(self._processed(frames))
        with torch.inference_mode():
            return tried(lambda: self.forward([Pieces((row,), {})])) is not None

    def preprocessed(self, value: Foreign, given: Mapping[str, Any]) -> list[Foreign]:
        """What the stock preprocess makes of the film's bytes.

        Raises:
            Unsuitable: no film that is known, too short, too large, or too many frames asked for.
        """
        count = int(given.get("num_frames", self._own_frames))
        every = int(given.get("frame_sampling_rate", 1))
        if count != self._own_frames and not self._any_number:
            message = f"send {self._own_frames}: this model takes no other number"
            raise Unsuitable(message, pointer="/parameters/num_frames")
        if count * every > MAX_FRAMES:
            most = MAX_FRAMES // count
            raise Unsuitable(
                f"send an integer from 1 to {most}", pointer="/parameters/frame_sampling_rate"
            )
        wanted = np.linspace(0, count * every - 1, num=count, dtype=np.int64)
        return [self._processed(list(read_frames(value, wanted.tolist())))]

    def _processed(self, frames: list[Foreign]) -> Foreign:
        made = self._preparing.image_processor(frames, return_tensors="pt")
        return made.to(self.pipe.dtype)
