"""Who counts as one client, how many connections it may have, and its share at the gate."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from service.core.errors import problem
from service.http.peers import NOBODY, Peers, is_loopback, peer_of
from service.http.protocol import ConnectionLimits
from tests.front.http_served import FULL, Serve, dropped, ended, refused
from tests.front.http_stage import Client, Served, Stage, ask, eventually
from tests.front.http_wire import Wire, wire


@pytest.mark.parametrize(
    "host, peer",
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("no address", "no address"),
        ("no:address", "no:address"),
        ("", NOBODY),
    ],
)
def test_peer(host: str, peer: str) -> None:
    """An IPv4 address is one peer, a /64 of IPv6 is one, and IPv4 in IPv6 is IPv4."""
    assert peer_of(host) == peer


@pytest.mark.parametrize(
    "host, here",
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("::ffff:127.0.0.1", True),
     ("192.0.2.7", False), ("2001:db8::1", False), ("", False), ("no address", False)],
)  # fmt: skip
def test_loopback(host: str, here: bool) -> None:
    """This machine is told from others by the form of its address."""
    assert is_loopback(peer_of(host)) is here


def test_peers_are_forgotten() -> None:
    """Whoever has no connection any more takes no memory."""
    peers = Peers()
    assert [peers.enter(peer) for peer in ("a", "a", "b")] == [1, 2, 1]
    peers.leave("a")
    assert peers.enter("a") == 2
    for peer in ("a", "a", "b"):
        peers.leave(peer)
    assert len(peers) == 0


def most_of(peer: str, **settings: Any) -> int:
    """The bound of one peer under these settings."""
    stage = Stage(max_connections=100, **settings)
    return ConnectionLimits.of(stage.settings).most_of(peer)


def test_bound_of_a_peer() -> None:
    """By itself half of all, but not for this machine; as set for everybody; none with a proxy."""
    assert most_of("192.0.2.7") == most_of("2001:db8::/64") == 50
    assert most_of("127.0.0.1") == most_of(peer_of("::1")) == most_of(NOBODY) == 100
    assert most_of("127.0.0.1", max_connections_per_client=7) == 7
    assert most_of("192.0.2.7", max_connections_per_client=7) == 7
    assert most_of("192.0.2.7", behind_proxy=True) == 100
    assert ConnectionLimits(1.0, 1, 1).most_of("192.0.2.7") == 1


def hold_open(stack: ExitStack, served: Served, count: int) -> list[Wire]:
    """So many idle connections."""
    wires = [stack.enter_context(wire(served.address)) for _ in range(count)]
    eventually(lambda: len(served.connections()) >= count, "not all were accepted")
    return wires


def test_connections_of_one_client(serve: Serve) -> None:
    """One over its bound is told so and closed; others come in, and so does it with room again."""
    stage, served = serve(max_connections=20, max_connections_per_client=3)
    with ExitStack() as stack:
        first, *_ = hold_open(stack, served, 3)
        with wire(served.address) as fourth:
            [answer] = fourth.rest()
            refused(answer, 503, "queue_full")
        assert dropped(stage) == {"too_many": 1}
        with wire(served.address, "127.0.0.2") as other:
            assert other.post(b"hello").status == 200
        eventually(lambda: len(served.connections()) == 3, "refused ones are still there")
        first.socket.close()
        eventually(lambda: len(served.connections()) == 2, "its end was not noticed")
        with wire(served.address) as again:
            assert again.post(b"hello").status == 200
    eventually(lambda: not served.connections(), "connections are left")
    assert len(stage_peers(served)) == 0


def stage_peers(served: Served) -> Peers:
    """The counts behind the server's protocol class."""
    with wire(served.address):
        eventually(lambda: bool(served.connections()), "not accepted")
        peers = served.connections()[0].peers
    eventually(lambda: not served.connections(), "still open")
    return peers


# ---------------------------------------------------------------- shares at the gate


def test_a_claim_passes_a_full_gate(serve: Serve) -> None:
    """Whoever has a claim to a share is let in although it is full, at the door and inside."""
    stage, served = serve()
    stage.dispatcher.gate_says = FULL
    with wire(served.address) as client:
        refused(client.post(b"hello"), 503, "queue_full")
        stage.dispatcher.entitled = {"127.0.0.1"}
        assert client.post(b"hello").status == 200
        assert client.post(b"hello", "Expect: 100-continue").status == 200
        with wire(served.address, "127.0.0.2") as other:
            refused(other.post(b"hello"), 503, "queue_full")
    assert [one.client for one in stage.dispatcher.asks] == ["127.0.0.1"] * 2
    ended(stage, {"queue_full": 2, "ok": 2})


@pytest.mark.parametrize("code", ["draining", "model_loading", "circuit_open"])
def test_a_claim_is_no_way_round_anything_else(serve: Serve, code: str) -> None:
    """A share is of the queue: who is refused for another reason is refused."""
    stage, served = serve()
    stage.dispatcher.gate_says = problem(code, retry_after_s=1.0)
    stage.dispatcher.entitled = {"127.0.0.1"}
    with wire(served.address) as client:
        refused(client.post(b"hello"), 503, code)


def test_behind_a_proxy_addresses_are_nobody(serve: Serve) -> None:
    """With ``behind_proxy`` no address is a client, and forwarded ones never are."""
    for settings, seen in (({"behind_proxy": True}, NOBODY), ({}, "127.0.0.1")):
        stage, served = serve(**settings)
        with wire(served.address) as client:
            client.post(b"hello", "X-Forwarded-For: 192.0.2.7", "Forwarded: for=192.0.2.7")
        assert [one.client for one in stage.dispatcher.asks] == [seen]


def test_a_key_is_the_client(tmp_path: Path) -> None:
    """With keys the client is its key, whatever address it comes from, and no key can be read."""
    keys = tmp_path / "keys"
    digest = hashlib.sha256(b"second-secret").hexdigest()
    keys.write_text(f"first-secret\nsha256:{digest.upper()}\n")
    stage = Stage(api_keys_file=str(keys))
    for key in ("first-secret", "second-secret", "first-secret"):
        assert ask(stage.app, '{"inputs": "x"}', headers=[bearer(key)]).status == 200
    one, two, again = (asked.client for asked in stage.dispatcher.asks)
    assert one == again != two
    assert "secret" not in one + two
    stage.dispatcher.gate_says = FULL
    stage.dispatcher.entitled = {one}
    first = ask(stage.app, '{"inputs": "x"}', headers=[bearer("first-secret")])
    second = ask(stage.app, '{"inputs": "x"}', headers=[bearer("second-secret")])
    assert (first.status, second.status) == (200, 503)


def bearer(key: str) -> tuple[str, str]:
    """The header that carries a key."""
    return "Authorization", f"Bearer {key}"


def test_a_digest_is_no_key(tmp_path: Path) -> None:
    """Whoever reads a file of digests cannot use them; a broken digest is no start."""
    keys = tmp_path / "keys"
    line = f"sha256:{hashlib.sha256(b'secret').hexdigest()}"
    keys.write_text(line)
    stage = Stage(api_keys_file=str(keys))
    for key in (line, line.removeprefix("sha256:"), "Secret", "secret\x00"):
        assert ask(stage.app, '{"inputs": "x"}', headers=[bearer(key)]).status == 401
    assert ask(stage.app, '{"inputs": "x"}', headers=[bearer("secret")]).status == 200
    keys.write_text("sha256:beef")
    with pytest.raises(ValueError, match="64 hexadecimal"):
        Stage(api_keys_file=str(keys))


def test_a_changed_file_is_told(tmp_path: Path) -> None:
    """Keys that are read again, or cannot be, are an event without any key in it."""
    keys = tmp_path / "keys"
    keys.write_text("secret-one\n")
    stage = Stage(api_keys_file=str(keys))
    keys.write_text("secret-one\nsecret-two-two\n")
    assert ask(stage.app, '{"inputs": "x"}', headers=[bearer("secret-two-two")]).status == 200
    keys.write_text("sha256:beef\n")
    for _ in range(3):
        assert ask(stage.app, '{"inputs": "x"}', headers=[bearer("secret-one")]).status == 200
    assert [line["keys"] for line in stage.lines("keys.read")] == [2]
    assert len(stage.lines("keys.unusable")) == 1
    assert "secret" not in stage.log_text


def test_without_an_address_nobody_is_known() -> None:
    """A Unix socket's clients, and those of a server that tells no addresses, are one."""
    stage = Stage()
    assert ask(stage.app, '{"inputs": "x"}').status == 200
    client = Client(stage.app, headers=[("Content-Type", "text/plain")])
    client._scope["client"] = None
    client.send(b"x")
    assert asyncio.run(client.run()).status == 200
    assert [one.client for one in stage.dispatcher.asks] == [NOBODY, NOBODY]
