"""Worker processes: start, feed, watch, kill, restart.

``process`` is one process from exec to exit; ``supervisor`` starts one after another and stands
behind the ``Worker`` protocol; ``orders`` is what they are told to load. The dispatcher never sees
any of them.
"""

from __future__ import annotations

from service.supervisor.orders import Orders, worker_count
from service.supervisor.supervisor import Supervisor, worker_factory

__all__ = ["Orders", "Supervisor", "worker_count", "worker_factory"]
