"""What the worker itself uses of the machine, once a second.

The front cannot know the device's memory, and the worker must not be asked: it may be busy for a
whole batch. So a small thread of its own tells it.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

import psutil

from service.worker.interface import DeviceBytes
from service.worker.wire import Sample

SAMPLE_S = 1.0


def sample_until(
    stopped: Event,
    send: Callable[[Sample], None],
    device_bytes: Callable[[], DeviceBytes],
    every_s: float = SAMPLE_S,
) -> None:
    """Send a sample each ``every_s`` seconds; the sampler thread's whole life."""
    process = psutil.Process()
    while not stopped.wait(every_s):
        times = process.cpu_times()
        device = device_bytes()
        send(
            Sample(
                rss_bytes=process.memory_info().rss,
                cpu_s=times.user + times.system,
                device_allocated_bytes=device.allocated,
                device_reserved_bytes=device.reserved,
                device_total_bytes=device.total,
            )
        )
