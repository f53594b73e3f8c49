"""The intake: an arrival is decided at once, and takes all its places or none.

The order of the decision stands in ``core/admission``; this room collects the values for it.

Laws
- No await between looking and taking: a burst of N + k gives exactly k refusals.
- A client's own deadline starts at its headers; the server's default starts when the body is
  complete. A client can only tighten what ``max_deadline_ms`` allows, a proxy whatever would hold.
- Inputs are remembered only as keyed hashes (suspects and poisoned inputs).
- Where load alone would refuse a client that holds little, whoever holds most makes room
  (``core/shares``), in the same step; a request that is refused all the same displaces nobody.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from hashlib import blake2b
from itertools import count

from service.core import admission
from service.core.admission import Ask, Line, Size
from service.core.errors import FieldError, Problem, Refused, Stage, problem
from service.core.item import Item
from service.core.queue import BoundedQueue
from service.core.shares import Held, Measure
from service.core.suspects import Suspects
from service.dispatcher.crew import Crew
from service.dispatcher.pool import Pool
from service.dispatcher.slots import ticket_of
from service.dispatcher.tickets import Ticket

_NOTHING = Held()
_DISPLACED = "Others had to be given their share of the queue."


class Intake:
    """Admission, with the values of the moment.

    Args:
        queue: where admitted items take their places.
        pool: the workers' seats.
        crew: who prepares items, and who knows when a worker comes back.
        suspects: inputs that were running when a worker was killed.
        clock: the one clock.
        on_end: called once at the end of each ticket.
        on_out: called once when a ticket has ended and none of its items runs any more.
    """

    def __init__(
        self,
        *,
        queue: BoundedQueue,
        pool: Pool,
        crew: Crew,
        suspects: Suspects,
        clock: Callable[[], float],
        on_end: Callable[[Ticket], None],
        on_out: Callable[[Ticket], None],
    ) -> None:
        self.refusing = False
        self._queue = queue
        self._pool = pool
        self._crew = crew
        self._suspects = suspects
        self._clock = clock
        self._on_end = on_end
        self._on_out = on_out
        self._ids = count(1)
        self._secret = os.urandom(16)

    def gate(self) -> Problem | None:
        """Asked with the body unread: would any request be refused now?"""
        now = self._clock()
        rests = self._pool.rests(now)
        return self._unavailable(now, rests) or admission.gate(self._line(rests, 1, 0))

    def admit(self, ask: Ask) -> Ticket:
        """Give a parsed request its places.

        Raises:
            Refused: with the first reason in the order of ``core/admission``.
        """
        now = self._clock()
        rests = self._pool.rests(now)
        refusal = self._unavailable(now, rests)
        plan = self._pool.plan
        if refusal is not None or plan is None:
            raise Refused(refusal or problem("model_loading"))
        parts = ask.parts()
        prints = [self._fingerprint(text, media, ask.parameters) for text, media, _ in parts]
        for index, fingerprint in enumerate(prints):
            if self._suspects.is_poisoned(fingerprint, now):
                raise Refused(_poisoned(ask, index))

        # A text that is too long for the model costs nothing: it is told so before any batch.
        most = float(plan.limits.max_tokens)
        steps = ask.steps * plan.step_units
        units = [ask.times * min(plan.cost.units(size), most) + steps for _, _, size in parts]
        if len(units) == 1:  # alone it has no padding and is one batch
            own_s = plan.cost.batch_s(units[0])
        else:
            own_s = plan.cost.line_s(sum(units), len(units), self._pool.batch_budget())
        allowance = plan.limits.deadline_s + (2 * own_s if ask.is_list else 0.0)
        deadline, allowed_s = admission.due(ask, allowance, plan.limits.max_deadline_s)
        if deadline <= now:  # it waited elsewhere for longer than its client does
            raise Refused(problem("deadline_exceeded", stage=Stage.RECEIVE))
        own = Size(
            items=len(ask.inputs),
            own_s=own_s,
            remaining_s=deadline - now,
            named=ask.timeout_s is not None,
            is_list=ask.is_list,
            measured=plan.cost.measured,
        )
        line = self._line(rests, len(ask.inputs), ask.nbytes)
        line, leaving = self._with_share(line, rests, ask, sum(units))
        refusal = admission.decide(line, own)
        if refusal is not None:
            raise Refused(refusal)
        for item in leaving:
            again_s = admission.retry_after(line.wait_s, line.wait_cap_s, line.spread)
            ticket_of(item).refuse(problem("queue_full", _DISPLACED, retry_after_s=again_s))

        loop = asyncio.get_running_loop()
        ticket = Ticket(ask, deadline - now, allowed_s, loop, self._on_end, self._on_out)
        share = ask.nbytes // len(ask.inputs)
        ticket.items = [
            Item(
                id=next(self._ids),
                owner=ticket,
                index=index,
                inputs=text,
                parameters=ask.parameters,
                nbytes=share,
                units=units[index],
                deadline=deadline,
                arrived=now,
                media=media,
                size=size,
                fingerprint=prints[index],
                alone=self._suspects.is_suspect(prints[index], now),
                rehearse=ask.rehearse,
                client=ask.client,
            )
            for index, (text, media, size) in enumerate(parts)
        ]
        self._queue.put(ticket.items)
        return ticket

    def predicted_wait_s(self, now: float) -> float:
        """Predicted wait of whoever arrives now, 0 while no worker is ready."""
        return self._wait_s(self._pool.rests(now))

    def has_claim(self, client: str) -> bool:
        """Whether others may have to make room for one more item of this client."""
        return self._queue.shares.has_claim(client)

    def _with_share(
        self, line: Line, rests: list[float], ask: Ask, units: float
    ) -> tuple[Line, list[Item]]:
        """The line as it is once others have made room, and who has to go for it."""
        if admission.gate(line) is None or not self.has_claim(ask.client):
            return line, []
        queue, size = self._queue, Held(len(ask.inputs), ask.nbytes, units)

        def lacking(freed: Held) -> Measure | None:
            lacks = queue.lacks(size.items - freed.items, size.nbytes - freed.nbytes)
            if lacks is None and self._wait_s(rests, freed) > line.wait_cap_s:
                return Measure.UNITS
            return lacks

        found = queue.claim(ask.client, size, lacking, _may_go)
        if found is None:
            return line, []
        leaving, freed = found
        return line._replace(has_room=True, wait_s=self._wait_s(rests, freed)), leaving

    def _wait_s(self, rests: list[float], freed: Held = _NOTHING) -> float:
        plan = self._pool.plan
        if plan is None or not rests:
            return 0.0
        oldest = self._queue.oldest()
        if oldest is None:
            return min(rests)
        units, items = self._queue.units - freed.units, len(self._queue) - freed.items
        line_s = plan.cost.line_s(units, items, self._pool.batch_budget())
        prepare_s = plan.cost.prepare_s(oldest.weight)
        return admission.predicted_wait(rests, line_s, prepare_s)

    def _unavailable(self, now: float, rests: list[float]) -> Problem | None:
        circuit = self._pool.circuit
        return admission.available(
            draining=self.refusing,
            ready=bool(rests),
            circuit_open=circuit.open,
            reload_s=0.0 if rests else self._crew.reload_left_s(now),
            probe_s=circuit.retry_after_s(now) if circuit.open else 0.0,
        )

    def _line(self, rests: list[float], items: int, nbytes: int) -> Line:
        plan = self._pool.plan
        return Line(
            not len(self._queue) and self._pool.any_idle,
            self._queue.has_room(items, nbytes),
            self._wait_s(rests),
            plan.limits.wait_cap_s if plan else 0.0,
            1.0 + random.random(),  # noqa: S311  spreads retries, nothing is secret
        )

    def _fingerprint(self, text: str, media: bytes, parameters: bytes) -> bytes:
        digest = blake2b(text.encode(), key=self._secret, digest_size=16)
        digest.update(parameters)
        digest.update(media)
        return digest.digest()


def _may_go(owner: object) -> bool:
    return isinstance(owner, Ticket) and not owner.running


def _poisoned(ask: Ask, index: int) -> Problem:
    refusal = problem("poisoned_input")
    if not ask.is_list:
        return refusal
    return problem("poisoned_input", errors=(FieldError(f"/inputs/{index}", refusal.detail),))
