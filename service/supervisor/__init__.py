"""Worker processes: start, feed, watch, kill, restart.

``process`` is one process from exec to exit; ``supervisor`` starts one after another and stands
behind the ``Worker`` protocol; the dispatcher never sees either.
"""

from __future__ import annotations

from service.supervisor.supervisor import Supervisor, worker_count, worker_factory

__all__ = ["Supervisor", "worker_count", "worker_factory"]
