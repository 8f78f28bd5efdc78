"""Ports whose number must be known before anyone listens on them, as that of MASTER_PORT."""

from __future__ import annotations

import socket
import sys

__all__ = ["ReservedPort"]


class ReservedPort:
    """A port that the system gives to nobody else until `close` is called, though a program that names it may listen.

    A port that is merely looked for may be taken before it is used. On Linux a socket that is bound with SO_REUSEADDR
    and does not listen reserves it, and servers, which set that option, can still be bound to it. Other systems allow
    only one socket per port: there nothing is reserved.

    >>> import socket
    >>> from tensorgrad.system.ports import ReservedPort
    >>> with ReservedPort() as port, socket.create_server(("127.0.0.1", port.number)) as server:
    ...     server.getsockname()[1] == port.number
    True
    """

    def __init__(self) -> None:
        both = socket.has_dualstack_ipv6()
        self._socket = socket.socket(socket.AF_INET6 if both else socket.AF_INET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if both:
            self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self._socket.bind(("", 0))
        self.number: int = self._socket.getsockname()[1]
        if sys.platform != "linux":
            self.close()

    def close(self) -> None:
        """Gives the port back."""
        self._socket.close()

    def __enter__(self) -> ReservedPort:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
