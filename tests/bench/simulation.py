"""docs."""

from __future__ import annotations

import sys
import time

from tests.bench.simulation_device import CPU, GPU, Device
from tests.bench.simulation_figures import at_load
from tests.bench.simulation_story import capacity

LOADS = (0.5, 0.9, 1.0, 1.5, 2.0, 5.0, 10.0)
HEAD = """
synthetic:{name}, C = {capacity:.1f} requests/s, D = {deadline:.0f} ms

| load | goodput / C | tokens | success | refused at once | wasted | p50 / D | p99 / D | long / short | items in a batch |
|---|---|---|---|---|---|---|---|---|---|
"""


def ladder(device: Device) -> str:
    """The table of a device: a row for each load."""
    text = HEAD.format(
        name=device.name, capacity=capacity(device), deadline=1000 * device.deadline_s
    )
    for load in LADDER:
        f = at_load(device, load)
        text += f"| {load:g}x | {f.goodput:.2f} | {f.tokens:.2f} | {f.success:.1%} | {f.refused:.1%} | {f.wasted:.1%} | {f.p50_s/device.deadline_s:.2f} | {f.p99_s/device.deadline_s:.2f} | {f.long/f.short:.2f} | {f.batch_items:.1f} | {f.overtime_s}\n"
    return text

LADDER=LOADS

if __name__ == "__main__":
    for device in (CPU, GPU):
        t=time.process_time()
        print(ladder(device))
        print(time.process_time()-t)
