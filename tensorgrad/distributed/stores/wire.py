"""The protocol of `TCPStore`: length-prefixed lists of bytes, and a mutual proof of the job's secret.

Nothing that arrives is ever unpickled. A frame is a 4-byte length and a body; a body is a 2-byte count, then for each
part a 4-byte length and its bytes. All numbers are big-endian and bounded.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import struct

__all__ = [
    "HELLO", "MAX_FRAME", "NONCE", "PROOF", "hello", "integer", "opened", "pack", "proof", "receive_exactly", "sealed",
    "secret", "socket_timeout", "unpack",
]  # fmt: skip

MAX_FRAME = 64 << 20  # bytes
MAGIC = b"TGS1"
NONCE = 16  # bytes
PROOF = 32  # bytes: SHA-256
HELLO = len(MAGIC) + NONCE
SECRET = "TENSORGRAD_JOB_SECRET"
LARGEST = 2**63 - 1  # no number in a message is larger
LONGEST = 20 * 86400.0  # seconds; the system counts milliseconds in 32 bits, which end after 24.8 days


def integer(digits: bytes) -> int:
    """A number in a message. Raises: ValueError if it is not one, or does not fit into 64 bits.

    >>> from tensorgrad.distributed.stores.wire import integer
    >>> integer(b"-12")
    -12
    """
    number = int(digits) if len(digits) <= 20 else LARGEST + 1
    if not -LARGEST <= number <= LARGEST:
        raise ValueError("a number does not fit into 64 bits")
    return number


def socket_timeout(seconds: float) -> float | None:
    """What `settimeout` is given for a wait of so many seconds: None, no limit, if the system cannot count them.

    >>> from tensorgrad.distributed.stores.wire import socket_timeout
    >>> socket_timeout(60.0), socket_timeout(30 * 86400.0)
    (60.0, None)
    """
    return seconds if seconds < LONGEST else None


def secret() -> bytes:
    """The job's secret, which the launcher puts into the environment; empty if there is none."""
    return os.environ.get(SECRET, "").encode()


def hello(nonce: bytes) -> bytes:
    """What a server says first."""
    return MAGIC + nonce


def proof(key: bytes, side: bytes, server_nonce: bytes, client_nonce: bytes) -> bytes:
    """Shows that one side has the secret, for this connection only."""
    return hmac.new(key, side + server_nonce + client_nonce, hashlib.sha256).digest()


def sealed(data: bytes) -> bytes:
    """Data that `opened` accepts, in processes that have this job's secret."""
    key = secret()
    return _seal(key, data) + data if key else data


def _seal(key: bytes, data: bytes) -> bytes:
    """The proof of the secret for data: another one than any proof of the handshake, which a stranger may ask for."""
    made = hmac.new(key, b"data", hashlib.sha256)
    made.update(data)
    return made.digest()


def opened(data: bytes) -> bytes:
    """What was `sealed`. Raises: ValueError if it is not by a process that has this job's secret, if there is one.

    >>> from tensorgrad.distributed.stores.wire import opened, sealed
    >>> opened(sealed(b"a"))
    b'a'
    """
    key = secret()
    if key:
        given, data = data[:PROOF], data[PROOF:]
        if not hmac.compare_digest(given, _seal(key, data)):
            raise ValueError(f"the sender does not have the job's secret ({SECRET})")
    return data


def pack(parts: list[bytes]) -> bytes:
    """A frame. Raises: ValueError if it would be too long, or has too many parts.

    >>> from tensorgrad.distributed.stores.wire import pack, unpack
    >>> unpack(pack([b"set", b"a", b"1"])[4:])
    [b'set', b'a', b'1']
    """
    if len(parts) > 0xFFFF:
        raise ValueError(f"a store takes at most {0xFFFF} parts in one message, got {len(parts)}")
    body = struct.pack(">H", len(parts)) + b"".join(struct.pack(">I", len(part)) + part for part in parts)
    if len(body) > MAX_FRAME:
        raise ValueError(f"a store takes at most {MAX_FRAME} bytes in one message, got {len(body)}")
    return struct.pack(">I", len(body)) + body


def unpack(body: bytes) -> list[bytes]:
    """The parts of a body. Raises: ValueError if it is malformed."""
    try:
        (count,) = struct.unpack_from(">H", body)
        parts, place = [], 2
        for _ in range(count):
            (length,) = struct.unpack_from(">I", body, place)
            part = body[place + 4 : place + 4 + length]
            if len(part) != length:
                raise ValueError("a part is longer than its message")
            parts.append(part)
            place += 4 + length
    except struct.error:
        raise ValueError("a message is too short") from None
    if place != len(body):
        raise ValueError("a message is longer than its parts")
    return parts


def receive_exactly(connection: socket.socket, length: int) -> bytes:
    """Reads this many bytes. Raises: ConnectionError if the other side closes before that."""
    data = bytearray()
    while len(data) < length:
        more = connection.recv(min(length - len(data), 1 << 20))
        if not more:
            raise ConnectionError("the connection was closed")
        data += more
    return bytes(data)
