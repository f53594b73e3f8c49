"""The connection's guard: uvicorn's httptools protocol with every wait and every buffer bounded.

The only place that knows uvicorn's internals. ``parsing`` turns bytes into requests, ``connection``
decides which bytes are parsed and whom the ``door`` turns away, ``ending`` how a connection ends,
``head`` holds what they need of a head, ``limits`` makes the class of a server.
"""

from __future__ import annotations

from service.http.protocol.connection import GuardedProtocol
from service.http.protocol.limits import ConnectionLimits, make_protocol

__all__ = ["ConnectionLimits", "GuardedProtocol", "make_protocol"]
