"""synthetic: loads no model and sleeps as a known service model says.

For tests, benchmarks and rehearsals: text in, tokens are words, the answer is
``{"tokens": n, "batch": k}``. It goes through the same worker, wire, queue and batching as a real
pipeline. The service models stand in ``worker/synthetic.py``.
"""

from __future__ import annotations

from service.tasks.base import Task
from service.tasks.schemas import COUNT, members

SYNTHETIC = TASK = Task(
    name="synthetic",
    media="text",
    example="one two three four five six seven eight",
    canary="one two three four",
    unit="words",
    answer=members(tokens=COUNT, batch=COUNT),
)
