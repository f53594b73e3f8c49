"""The dispatcher: where asyncio, time and core meet.

It is driven by events on the loop (an arrival, a frame, a timer) and never waits itself: each event
is carried out in one step with no await between. So there is no task that could die and leave the
queue unserved, and in virtual time the whole of it runs as it does for real.

The rooms behind it: ``intake`` (admit), ``tickets`` (a request until its end), ``crew`` (the
workers' lives, preparing), ``pool`` (what each worker runs next), ``returns`` (what comes back) and
``circuit`` (the breaker's timer and canaries). All decisions are the core's.

Laws
- ``now`` comes from one clock.
- Every request that is admitted ends exactly once; its places come back at once.
- The time between two events is accounted (``core/fill``) at every event.
"""

from __future__ import annotations

from service.core.admission import Ask
from service.dispatcher.dispatcher import Dispatcher
from service.dispatcher.tickets import Reply, Ticket

__all__ = ["Ask", "Dispatcher", "Reply", "Ticket"]
