"""The clients of chaos: each deed of a schedule that is a client's, acted out.

Laws
- Every input holds a word that is in no other request; every request has an id of its own.
- A client that stays waits for its answer and then, with its side closed, for the end of the
  connection: whatever else the server says is written down.
- A request stands in the books from the moment on at which its whole head has been sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from tests.e2e.chaos_books import ANYBODY, MARK, TOO_LONG, Request
from tests.e2e.chaos_connection import Connection
from tests.e2e.chaos_schedule import KILLING, Deed, Kind, Schedule
from tests.e2e.chaos_shapes import ODD, Ending, Shape, Shapes
from tests.e2e.load import Answer

LIMIT_S = 60.0
"""No client waits so long unless something hangs: every deadline is a few seconds."""

MAX_BODY_BYTES, RECEIVE_S = 65_536, 0.7
"""As the server is told."""

SLOW = "deadline_too_short"
"""What a long text is told while workers are slow: it would be late even alone."""

TRIES, AGAIN_S = 6, 0.2
"""How often, and how soon, who brings a deadly fault comes again."""

NOT_NOW = frozenset({"queue_full", "overloaded", "model_loading", "circuit_open"})

DEAF_S = 0.7
"""How long somebody who reads nothing stays."""

PAUSE_S = 0.005
"""Between two portions of whoever sends slowly."""

CHUNKS = MAX_BODY_BYTES // 4096
CHUNK = b"1000\r\n" + b"a" * 4096 + b"\r\n"


class Clients:
    """Every client of one round.

    Args:
        port: of the server.
        schedule: whose deeds they are.
        masked: whether the model wants a mask in each input.

    Attributes:
        requests: every request whose head has been sent.
        faults: what clients saw that fits no request.
    """

    def __init__(self, port: int, schedule: Schedule, *, masked: bool = False) -> None:
        self.requests: list[Request] = []
        self.faults: list[str] = []
        self._port = port
        self._draining = schedule.kind is Kind.DRAIN
        self._shapes = Shapes(schedule, masked=masked)
        self._acts: dict[str, Callable[[Deed], Awaitable[None]]] = {
            "plain": self._plain, "probe": self._one, "fault": self._one, "hasty": self._one,
            "poison": self._one, "bad": self._one, "leave": self._leave, "odd": self._odd,
            "huge": self._huge, "dribble": self._dribble, "stall": self._stall,
            "slow_head": self._slow_head, "deaf": self._deaf, "burst": self._burst,
        }  # fmt: skip

    def knows(self, what: str) -> bool:
        """Whether this is a client's deed."""
        return what in self._acts

    async def act(self, deed: Deed) -> None:
        """Do it, and see it through to the end."""
        try:
            async with asyncio.timeout(LIMIT_S):
                await self._acts[deed.what](deed)
        except TimeoutError:
            self.faults.append(f"{deed} had no end within {LIMIT_S:.0f} s")
        except OSError as error:
            if not self._draining:  # whoever comes too late finds nobody
                self.faults.append(f"{deed}: {type(error).__name__}")

    def _note(self, shape: Shape, *, stays: bool = True, sure: bool = True) -> Request:
        """A request stands in the books now."""
        request = Request(
            id=shape.id,
            what=shape.what,
            words=shape.words,
            token=shape.token,
            is_list=shape.is_list,
            ends=ANYBODY | shape.ends | ({"draining"} if self._draining else set()),
            stays=stays,
            sure=sure and not self._draining,
        )
        self.requests.append(request)
        return request

    # ------------------------------------------------------------------ clients that stay

    async def _take(
        self,
        connection: Connection,
        requests: Sequence[Request],
        answered: asyncio.Event | None = None,
    ) -> None:
        """Wait for the answers of these requests, and for the end."""
        for place, request in enumerate(requests):
            answer = await connection.answer()
            if answered is not None:
                answered.set()
            if answer is None:
                if _was_held_up(connection):
                    for lost in requests[place:]:
                        lost.stays = lost.sure = False
                return
            request.answers.append(answer)
            if answer.headers.get("connection") == "close":
                for later in requests[place + 1 :]:  # it says that no answer follows
                    later.stays = False
        more = await connection.rest()
        if more:
            requests[-1].trouble = f"more than its answer came: {more[:200]!r}"

    async def _one(self, deed: Deed) -> None:
        """One request; a deadly one is sent again until it is let in."""
        tries = TRIES if deed.what == "poison" or deed.args.get("fault") in KILLING else 1
        for place in range(tries):
            request = await self._ask(self._shapes.single(deed, place))
            if request.code not in NOT_NOW:
                return
            await asyncio.sleep(AGAIN_S)

    async def _ask(self, shape: Shape) -> Request:
        async with Connection(self._port) as connection:
            connection.send(shape.wire())
            request = self._note(shape)
            await self._take(connection, [request])
            return request

    async def _plain(self, deed: Deed) -> None:
        match deed.args["form"]:
            case "list":
                shape = self._shapes.shape(deed, items=2 + deed.number % 3)
                await self._ask(shape.that_ends(shape.ends | TOO_LONG))
            case "text":
                shape = self._shapes.shape(deed)
                text = self._shapes.text(f"{shape.token}0", shape.words[0])
                await self._ask(shape.with_body(text.encode(), "text/plain"))
            case "keep":
                await self._keep(deed)
            case "pipeline":
                shapes = [self._shapes.shape(deed, place, items=place % 2) for place in range(4)]
                async with Connection(self._port) as connection:
                    connection.send(b"".join(shape.wire() for shape in shapes))
                    await self._take(connection, [self._note(shape) for shape in shapes])
            case _:
                await self._ask(self._shapes.shape(deed))

    async def _keep(self, deed: Deed) -> None:
        """One request after another on one connection."""
        async with Connection(self._port) as connection:
            for place in range(4):
                shape = self._shapes.shape(deed, place)
                connection.send(shape.wire())
                request = self._note(shape)
                answer = await connection.answer()
                if answer is None:
                    if place == 0 and _was_held_up(connection):
                        request.stays = request.sure = False
                    return
                request.answers.append(answer)
                if answer.headers.get("connection") == "close":
                    break
            more = await connection.rest()
            if more:
                request.trouble = f"more than its answer came: {more[:200]!r}"

    async def _burst(self, deed: Deed) -> None:
        shapes = [self._shapes.shape(deed, place) for place in range(deed.args["requests"])]
        await asyncio.gather(*map(self._ask, shapes))

    async def _huge(self, deed: Deed) -> None:
        which = deed.args["which"]
        shape = self._shapes.shape(deed)
        too_large: Ending = {"payload_too_large", "request_timeout"}
        if which == "items":
            await self._ask(self._shapes.shape(deed, items=100).that_ends(too_large))
        elif which == "words":
            text = self._shapes.text(f"{shape.token}0", 1200)
            await self._ask(shape.with_json({"inputs": text}).that_ends({"invalid_input", SLOW}))
        elif which == "fits":
            text = self._shapes.text(f"{shape.token}0", 400)
            shape = shape.with_json({"inputs": text}, words=(400,))
            await self._ask(shape.that_ends({"ok", SLOW}))
        else:
            await self._flood(shape.that_ends(too_large), which)

    async def _flood(self, shape: Shape, which: str) -> None:
        """A body that is too large.

        It is announced, sent, comes in chunks while nobody says to stop, or without looking: there
        the end of the connection may take the answer with it.
        """
        length = {"declared": 10**9, "sent": MAX_BODY_BYTES + 1}.get(which)
        async with Connection(self._port) as connection:
            connection.send(shape.head(length))
            request = self._note(shape, stays=which != "flood")
            if which == "flood":
                connection.send(CHUNK * (8 * CHUNKS))
            elif which == "sent":
                connection.send(b"a" * (MAX_BODY_BYTES + 1))
            portions = [CHUNK] * (2 * CHUNKS) if which == "chunks" else []
            await self._take_early(connection, request, portions)

    async def _take_early(
        self, connection: Connection, request: Request, portions: Iterable[bytes]
    ) -> None:
        """Send slowly, and take the answer whenever it comes: the server need not wait for all."""
        answered = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(connection.send_slowly(portions, PAUSE_S, answered))
            await self._take(connection, [request], answered)

    async def _dribble(self, deed: Deed) -> None:
        """One byte at a time, mostly in time."""
        shape = self._shapes.shape(deed).with_words(3)
        body = self._shapes.text(f"{shape.token}0", 3).encode()
        shape = shape.with_body(body, "text/plain").that_ends({"ok", "request_timeout"})
        head = shape.head(len(body))
        async with Connection(self._port) as connection:
            if deed.args["part"] == "head":
                await self._dribble_head(connection, shape, head, body)
            else:
                connection.send(head)
                portions = (bytes([byte]) for byte in body)
                await self._take_early(connection, self._note(shape), portions)

    async def _dribble_head(
        self, connection: Connection, shape: Shape, head: bytes, body: bytes
    ) -> None:
        """On a busy machine its head may be late: then it never became a request."""
        begun = asyncio.get_running_loop().time()
        for byte in head[:-1]:
            connection.send(bytes([byte]))
            await asyncio.sleep(PAUSE_S / 5)
        if asyncio.get_running_loop().time() - begun > RECEIVE_S / 2:
            return
        connection.send(head[-1:] + body)
        request = self._note(shape)
        await self._take(connection, [request])
        if asyncio.get_running_loop().time() - begun > RECEIVE_S:
            told = {answer.headers.get("x-request-id") for answer in request.answers}
            if request.code == "request_timeout" and told != {request.id}:
                self.requests.remove(request)
            elif request.code is None:
                request.stays = request.sure = False

    async def _stall(self, deed: Deed) -> None:
        shape = self._shapes.shape(deed).that_ends({"request_timeout"})
        async with Connection(self._port) as connection:
            connection.send(shape.head(len(shape.body)) + shape.body[: deed.args["after"]])
            await self._take(connection, [self._note(shape)])

    # ------------------------------------------------------------------ clients that do not

    async def _leave(self, deed: Deed) -> None:
        shape = self._shapes.shape(deed)
        when, how = deed.args["when"], deed.args["how"]
        if when == "due":
            shape = shape.with_header("X-Rehearse-Fault", "slow=200", {"ok"})
        half = len(shape.body) // 2
        body = {"head": b"", "half": shape.body[:half]}.get(when, shape.body)
        async with Connection(self._port) as connection:
            connection.send(shape.head(len(shape.body)) + body)
            self._note(shape, stays=False, sure=how == "fin" and not _was_held_up(connection))
            if when == "due":
                await asyncio.sleep(0.1)
            if how == "rst":
                connection.reset()

    async def _deaf(self, deed: Deed) -> None:
        """Ask for much and read nothing."""
        async with Connection(self._port, small=True) as connection:
            shapes = [self._shapes.shape(deed, place) for place in range(2)]
            page = f"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n\r\n".encode()
            pages = page * int(deed.args["pages"])
            connection.send(shapes[0].wire() + pages + shapes[1].wire())
            first, _ = (self._note(shape, stays=False, sure=False) for shape in shapes)
            until = asyncio.get_running_loop().time() + DEAF_S
            # A reset takes with it what a busy server has not read yet; who answers has read.
            first.sure = await connection.begins(DEAF_S) and not self._draining
            await asyncio.sleep(until - asyncio.get_running_loop().time())
            connection.reset()

    # ------------------------------------------------------------------ what is no prediction

    async def _odd(self, deed: Deed) -> None:
        wire, status = ODD[deed.args["which"]]
        async with Connection(self._port) as connection:
            connection.send(wire)
            self._stranger(deed, await connection.answer(), {status}, connection)
            await connection.rest()

    async def _slow_head(self, deed: Deed) -> None:
        async with Connection(self._port) as connection:
            connection.send(b"POST / HTTP/1.1\r\n"[: deed.args["after"]])
            answer = await connection.answer()
            if deed.args["after"]:
                self._stranger(deed, answer, {408}, connection)
            elif answer is not None:
                self.faults.append(f"{deed}: an answer to nothing: {answer}")

    def _stranger(
        self, deed: Deed, answer: Answer | None, statuses: set[int], connection: Connection
    ) -> None:
        """An answer to what is in no book."""
        if answer is None:
            if not self._draining and not _was_held_up(connection):
                self.faults.append(f"{deed} got no answer")
        elif answer.status not in statuses | ({503} if self._draining else set()):
            self.faults.append(f"{deed} got {answer.status} {answer.body[:200]!r}")
        elif MARK.encode() in answer.body:
            self.faults.append(f"{deed}: the answer holds an input")


def _was_held_up(connection: Connection) -> bool:
    """Whether its first byte may have come too late, on a busy machine: then nobody answers it."""
    return connection.silent_s > RECEIVE_S / 2
