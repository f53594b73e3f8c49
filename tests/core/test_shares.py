"""Shares of the queue: nobody holds all places while another is refused, and nobody is robbed."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from service.core.item import Item, ItemState
from service.core.queue import BoundedQueue
from service.core.shares import Held, Measure
from tests.core.items import new_item

ROOMY = 10**9


class Request:
    """An owner of items."""

    def __init__(self, client: str, sizes: list[tuple[int, int]]) -> None:
        self.client = client
        self.items = [
            new_item(owner=self, client=client, nbytes=nbytes, units=float(units))
            for nbytes, units in sizes
        ]

    @property
    def held(self) -> Held:
        return Held(
            len(self.items),
            sum(item.nbytes for item in self.items),
            sum(item.units for item in self.items),
        )

    @property
    def runs(self) -> bool:
        return any(item.state is ItemState.RUNNING for item in self.items)


def of_one(client: str, count: int = 1, *, nbytes: int = 1, units: int = 1) -> Request:
    """A request of so many equal items."""
    return Request(client, [(nbytes, units)] * count)


class Line:
    """A queue and its claims, by places and bytes alone unless ``most_units`` says more."""

    def __init__(self, limit: int, bytes_limit: int = ROOMY, most_units: float = ROOMY) -> None:
        self.queue = BoundedQueue(limit, bytes_limit)
        self.most_units = most_units

    def lacks(self, ask: Held, freed: Held = Held()) -> Measure | None:  # noqa: B008 - a constant
        missing = self.queue.lacks(ask.items - freed.items, ask.nbytes - freed.nbytes)
        if missing is None and self.queue.units - freed.units + ask.units > self.most_units:
            return Measure.UNITS
        return missing

    def claim(self, request: Request) -> tuple[list[Request], Held] | None:
        """Who would have to leave for it."""

        def lacking(freed: Held) -> Measure | None:
            return self.lacks(request.held, freed)

        def may_go(owner: object) -> bool:
            return isinstance(owner, Request) and not owner.runs

        found = self.queue.claim(request.client, request.held, lacking, may_go)
        if found is None:
            return None
        owners = [item.owner for item in found[0]]
        return [owner for owner in owners if isinstance(owner, Request)], found[1]

    def leave(self, request: Request) -> None:
        for item in request.items:
            if item in self.queue:
                self.queue.withdraw(item, 0.0)

    def offer(self, request: Request) -> list[Request] | None:
        """Let it in, if need be in the place of others; ``None``: refused."""
        found = self.claim(request)
        if found is None:
            return None
        for gone in found[0]:
            self.leave(gone)
        self.queue.put(request.items)
        return found[0]


def test_a_client_alone_may_fill_the_queue() -> None:
    """Nobody is held to a share that nobody else wants; beyond the limit it is refused."""
    line = Line(8)
    assert [line.offer(of_one("a")) for _ in range(8)] == [[]] * 8
    assert line.offer(of_one("a")) is None
    assert not line.queue.shares.has_claim("a")
    assert line.queue.shares.of("a") == Held(8, 8, 8.0)


def test_the_newest_makes_room() -> None:
    """Whoever comes to a queue that another has filled takes the place of its newest request."""
    line = Line(4)
    held = [of_one("hog") for _ in range(4)]
    for request in held:
        line.offer(request)
    assert line.queue.shares.has_claim("late")
    assert line.offer(of_one("late")) == [held[3]]
    assert line.offer(of_one("late")) == [held[2]]
    assert not line.queue.shares.has_claim("late")
    assert line.offer(of_one("late")) is None
    assert line.offer(of_one("hog")) is None
    assert line.offer(of_one("third")) is not None


def test_one_place_more_is_no_claim() -> None:
    """Whoever would hold as much as the other has no claim: an odd place stays where it is."""
    line = Line(5)
    for client in ("a", "b", "a", "b", "a"):
        line.offer(of_one(client))
    assert not line.queue.shares.has_claim("b")
    assert line.offer(of_one("b")) is None
    assert line.queue.shares.has_claim("c")


def test_whoever_holds_most_makes_room() -> None:
    """Small ones keep what they have while somebody holds more."""
    line = Line(6)
    for client in ("a", "hog", "hog", "b", "hog", "a"):
        line.offer(of_one(client))
    gone = line.offer(of_one("c"))
    assert gone is not None
    assert [one.client for one in gone] == ["hog"]


def test_a_request_leaves_whole_and_only_while_none_of_it_runs() -> None:
    """Of lists all items go together; one that is running in part stays, an older one goes."""
    line = Line(9)
    first, second, third = (of_one("hog", 3) for _ in range(3))
    for request in (first, second, third):
        line.offer(request)
    running = third.items[0]
    line.queue.prepared(running, 1.0, "")
    line.queue.start(running, 1.0)
    line.offer(of_one("x"))
    assert line.offer(of_one("y")) == [second]
    assert len(line.queue) == 7
    assert all(item in line.queue for item in (*first.items, *third.items[1:]))


def test_what_runs_out_decides_who_gives() -> None:
    """Bytes are given by whoever holds most bytes, time by whoever holds most work."""
    line = Line(100, bytes_limit=100, most_units=100.0)
    line.offer(of_one("many", 30, nbytes=1, units=1))
    heavy, long = of_one("heavy", nbytes=60, units=1), of_one("long", nbytes=1, units=60)
    line.offer(heavy)
    line.offer(long)
    assert line.claim(of_one("new", nbytes=20, units=1)) == ([heavy], heavy.held)
    assert line.claim(of_one("new", nbytes=1, units=20)) == ([long], long.held)


def test_a_claim_that_cannot_be_met_takes_nothing() -> None:
    """When all that may go would not be enough, everybody stays."""
    line = Line(4)
    running = of_one("hog", 2)
    line.offer(running)
    line.offer(of_one("hog"))
    line.offer(of_one("b"))
    line.queue.prepared(running.items[0], 1.0, "")
    line.queue.start(running.items[0], 1.0)
    line.offer(of_one("c"))
    before = list(line.queue)
    assert line.offer(of_one("d", 2)) is None
    assert list(line.queue) == before


def test_nobody_in_particular_is_one_client() -> None:
    """Where clients cannot be told apart nobody has a claim on anybody."""
    line = Line(3)
    for _ in range(3):
        line.offer(of_one(""))
    assert not line.queue.shares.has_claim("")
    assert line.offer(of_one("")) is None


@given(
    limit=st.integers(2, 24),
    hogs=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    orders=st.data(),
)
def test_equal_claims_end_in_equal_shares(
    limit: int, hogs: list[int], orders: st.DataObject
) -> None:
    """However clients that want everything take turns, in the end all hold the same, to one."""
    line = Line(limit)
    clients = [f"c{number}" for number in range(len(hogs) + 1)]
    for _ in range(limit):
        line.offer(of_one("c0"))
    for _ in range(limit * len(clients)):
        line.offer(of_one(orders.draw(st.sampled_from(clients))))
    for _ in range(limit):
        for client in clients:
            line.offer(of_one(client))
    shares = [line.queue.shares.of(client).items for client in clients]
    assert sum(shares) == limit
    assert max(shares) - min(shares) <= 1


class ShareMachine(RuleBasedStateMachine):
    """Any sequence of arrivals, claims, preparations and departures, against plain sums."""

    clients = st.sampled_from(["", "a", "b", "c", "d"])

    @initialize(
        limit=st.integers(1, 16),
        bytes_limit=st.sampled_from([40, 200, ROOMY]),
        most_units=st.sampled_from([40, 200, ROOMY]),
    )
    def begin(self, limit: int, bytes_limit: int, most_units: int) -> None:
        self.line = Line(limit, bytes_limit, float(most_units))
        self.queue = self.line.queue
        self.inside: list[Request] = []

    def waiting(self, *states: ItemState) -> list[Item]:
        return [item for item in self.queue if item.state in states]

    def total(self) -> dict[str, Held]:
        total: dict[str, Held] = {}
        for item in self.queue:
            held = Held(1, item.nbytes, item.units)
            total[item.client] = total.get(item.client, Held()).plus(held)
        return total

    def can_give(self, client: str, gone: list[Request]) -> bool:
        """Whether any request of this client may leave yet."""
        owners = [item.owner for item in self.queue if item.client == client]
        return any(isinstance(o, Request) and not o.runs and o not in gone for o in owners)

    @rule(
        client=clients,
        sizes=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30)), min_size=1, max_size=6),
    )
    def arrive(self, client: str, sizes: list[tuple[int, int]]) -> None:
        request = Request(client, sizes)
        before, room = self.total(), self.line.lacks(request.held) is None
        stands = list(self.queue)
        mine = before.get(client, Held()).plus(request.held)
        found = self.line.claim(request)
        assert list(self.queue) == stands, "a claim alone moves nobody"
        if found is None:
            assert not room
            return
        leaving, freed = found
        assert bool(leaving) != room, "nobody leaves without need"
        holds = dict(before)
        taken = Held()
        for one in leaving:
            lacking = self.line.lacks(request.held, taken)
            assert lacking is not None, "more than was needed"
            assert one.client != client
            assert not one.runs
            assert holds[one.client][lacking] > mine[lacking], "it held no more than the claimant"
            richer = [
                name
                for name, held in holds.items()
                if name != client
                and held[lacking] > holds[one.client][lacking]
                and self.can_give(name, leaving[: leaving.index(one)])
            ]
            assert not richer, "somebody else held more"
            theirs = [item for item in one.items if item in self.queue]
            given = Held(len(theirs), sum(i.nbytes for i in theirs), sum(i.units for i in theirs))
            holds[one.client] = holds[one.client].less(given)
            taken = taken.plus(given)
        assert taken == freed
        assert self.line.lacks(request.held, taken) is None
        for one in leaving:
            self.line.leave(one)
        self.queue.put(request.items)

    @precondition(lambda self: self.waiting(ItemState.PREPARING))
    @rule(data=st.data(), units=st.integers(1, 60))
    def prepare(self, data: st.DataObject, units: int) -> None:
        item = data.draw(st.sampled_from(self.waiting(ItemState.PREPARING)))
        self.queue.prepared(item, float(units), "")

    @precondition(lambda self: self.waiting(ItemState.WAITING))
    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        self.queue.start(data.draw(st.sampled_from(self.waiting(ItemState.WAITING))), 1.0)

    @precondition(lambda self: len(self.queue) > 0)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        self.queue.withdraw(data.draw(st.sampled_from(list(self.queue))), 1.0)

    @rule(client=clients)
    def one_more_place(self, client: str) -> None:
        """Refused for want of places alone means that nobody else holds more."""
        line = Line(self.queue.limit)
        line.queue = self.queue
        held = Counter(item.client for item in self.queue)
        more = [name for name in held if name != client and held[name] > held[client] + 1]
        assert bool(more) == self.queue.shares.has_claim(client)
        if line.lacks(Held(1)) is not Measure.ITEMS:
            return
        met = line.claim(of_one(client, nbytes=0, units=0)) is not None
        assert met == any(self.can_give(name, []) for name in more)

    @invariant()
    def what_each_holds_is_the_sum(self) -> None:
        total, shares = self.total(), self.queue.shares
        assert len(shares) == len(total)
        assert {name: shares.of(name) for name in total} == total
        assert shares.top == max((held.items for held in total.values()), default=0)
        assert shares.of("nobody") == Held()


TestShareMachine = ShareMachine.TestCase
