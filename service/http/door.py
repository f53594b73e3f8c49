"""The door: a prediction that the gate would refuse is answered from its head alone.

Under ten times the load nine of ten requests are refused, and what a refusal costs the front is
what the others lose. A task, its queue of messages and the checks of a general server are most of
that cost (measured: 210 us by the long way, of which 90 are spent before any of our own code runs).
So the protocol asks here as soon as a head is complete, in the same step of the loop, and writes
the answer itself.

Laws
- It only ever refuses, and only what the gate would refuse at that moment, in the gate's order;
  ``None`` lets the request in, where everything is asked again. So nothing rests on the door but
  the cost.
- It answers the ordinary case alone: a POST of a known path, with a length that is within bounds.
  Whatever is odd about a request is looked at inside.
- A refusal here is counted, logged and worded exactly as inside (``access``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from service.http import identity
from service.http.access import Access
from service.http.body import is_more
from service.http.context import HttpContext
from service.http.gate import Gate
from service.http.problems import Rendered

_POST = b"POST"
_LENGTH = b"content-length"


class Door:
    """Decides on heads.

    Args:
        context: of the server.
        access: counts and words what is refused here.
        gate: says who is refused.
        predictions: the paths at which predictions are served.
    """

    def __init__(
        self, context: HttpContext, access: Access, gate: Gate, predictions: Iterable[str]
    ) -> None:
        self._context = context
        self._access = access
        self._gate = gate
        self._most_bytes = context.settings.max_body_bytes
        self._targets = frozenset(path.encode() for path in predictions)

    def refusal(
        self,
        method: bytes,
        target: bytes,
        headers: Sequence[tuple[bytes, bytes]],
        peer: str = "",
    ) -> Rendered | None:
        """The whole answer to a request that is refused unread, ``None`` to let it in.

        Args:
            method: as sent.
            target: of the request line, as sent.
            headers: names in lower case.
            peer: who sent it, by address.
        """
        if method != _POST or target not in self._targets:
            return None
        try:
            full = self._gate.full()
        except Exception:  # noqa: BLE001
            # A bug of ours: let in, it shows again inside, where it becomes an answer.
            return None
        if full is None or self._context.going_away:
            return None
        call = self._access.enter(headers, prediction=True, peer=peer)
        length = call.headers.get(_LENGTH)
        if length is None or is_more(length, self._most_bytes):
            return None
        refusal = self._gate.barred(call) or self._gate.not_now(call, full)
        if refusal is None:
            return None
        status, sent, body = self._access.refused(call, refusal, path=target.decode("latin-1"))
        self._access.leave(call, "POST")
        sent.append((identity.REQUEST_ID, call.request_id.encode()))
        return status, sent, body
