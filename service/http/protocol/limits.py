"""The bounds of a connection, and the protocol class that keeps them."""

from __future__ import annotations

import resource
from dataclasses import dataclass

from service.http.door import Door
from service.http.peers import NOBODY, Peers, is_loopback
from service.http.protocol.connection import GuardedProtocol
from service.metrics import Metrics
from service.settings import Settings
from service.settings.values import number

SHARE_OF_DESCRIPTORS = 0.8
"""The rest is for the model's files, the log, the workers' sockets."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What one connection, and all of them, may take.

    Attributes:
        receive_timeout_s: for a head, and again for a body.
        max_body_bytes: also the most that is thrown away behind an early answer.
        max_connections: open at once; more are told so and closed.
        max_per_peer: of one peer, ``None`` for ``auto``.
        behind_proxy: whether peers are told apart at all.
    """

    receive_timeout_s: float
    max_body_bytes: int
    max_connections: int
    max_per_peer: int | None = None
    behind_proxy: bool = False

    @classmethod
    def of(cls, settings: Settings) -> ConnectionLimits:
        """The limits in force; ``auto`` looks at the descriptor limit as it is now."""
        most = number(settings.max_connections)
        if most is None:
            soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            most = max(1, int(soft * SHARE_OF_DESCRIPTORS))
        return cls(
            settings.receive_timeout_s,
            settings.max_body_bytes,
            most,
            number(settings.max_connections_per_client),
            settings.behind_proxy,
        )

    def most_of(self, peer: str) -> int:
        """Most connections of one peer.

        By ``auto`` half of all, so that no other machine can take the place of everybody. This
        machine itself may take all: a proxy or whoever runs the server sits there.
        """
        if self.behind_proxy or peer == NOBODY:
            return self.max_connections
        if self.max_per_peer is not None:
            return self.max_per_peer
        return self.max_connections if is_loopback(peer) else max(1, self.max_connections // 2)


def make_protocol(
    settings: Settings, metrics: Metrics, door: Door | None = None
) -> type[GuardedProtocol]:
    """The protocol class of one server, for ``uvicorn.Config(http=…)``.

    Args:
        settings: of the server.
        metrics: where connections are counted.
        door: refuses requests from their heads; without one all are let in.
    """

    class BoundProtocol(GuardedProtocol):
        limits = ConnectionLimits.of(settings)

    BoundProtocol.metrics = metrics
    BoundProtocol.door = door
    BoundProtocol.peers = Peers()
    return BoundProtocol
