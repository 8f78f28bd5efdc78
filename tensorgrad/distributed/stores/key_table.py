"""The dictionary behind every store: keys, counters and queues, as operations on bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import ClassVar

from tensorgrad.distributed.stores.wire import integer

__all__ = ["Table"]


class Table:
    """Keys and queues in memory. `apply` runs one operation; every argument and every result is bytes.

    >>> from tensorgrad.distributed.stores.key_table import Table
    >>> table = Table()
    >>> table.apply("add", [b"n", b"3"]), table.apply("get", [b"n"])
    ([b'3'], [b'3'])
    """

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.queues: dict[bytes, deque[bytes]] = {}

    def apply(self, operation: str, arguments: list[bytes]) -> list[bytes]:
        """Runs one operation. Raises: ValueError if there is no such operation, or its arguments do not fit."""
        function = self.OPERATIONS.get(operation)
        if function is None:
            raise ValueError(f"unknown operation {operation!r}")
        try:
            return function(self, *arguments)
        except (TypeError, KeyError) as error:
            raise ValueError(f"{operation}: {error}") from None

    def has(self, keys: Iterable[bytes]) -> bool:
        """Whether every key has a value or a queue that is not empty."""
        return all(key in self.values or self.queues.get(key) for key in keys)

    def set(self, key: bytes, value: bytes) -> list[bytes]:
        self.values[key] = value
        return []

    def get(self, key: bytes) -> list[bytes]:
        return [self.values[key]]

    def add(self, key: bytes, amount: bytes) -> list[bytes]:
        try:
            total = integer(self.values.get(key, b"0")) + integer(amount)
            integer(str(total).encode())
        except ValueError:
            raise ValueError(
                f"add: the value of key {key.decode(errors='replace')!r} is not an integer of 64 bits"
            ) from None
        self.values[key] = str(total).encode()
        return [self.values[key]]

    def append(self, key: bytes, value: bytes) -> list[bytes]:
        self.values[key] = self.values.get(key, b"") + value
        return []

    def compare_set(self, key: bytes, expected: bytes, desired: bytes) -> list[bytes]:
        current = self.values.get(key)
        if current is None:
            if expected:
                return [expected]
        elif current != expected:
            return [current]
        self.values[key] = desired
        return [desired]

    def check(self, *keys: bytes) -> list[bytes]:
        return [b"1" if self.has(keys) else b""]

    def delete(self, key: bytes) -> list[bytes]:
        return [b"" if self.values.pop(key, None) is None else b"1"]

    def keys(self) -> list[bytes]:
        return list(self.values)

    def count(self) -> list[bytes]:
        return [str(len(self.values)).encode()]

    def multi_set(self, *pairs: bytes) -> list[bytes]:
        self.values.update(zip(pairs[::2], pairs[1::2]))
        return []

    def push(self, key: bytes, value: bytes) -> list[bytes]:
        self.queues.setdefault(key, deque()).append(value)
        return []

    def pop(self, key: bytes) -> list[bytes]:
        """The oldest entry of a queue; an empty list if there is none."""
        queue = self.queues.get(key)
        if not queue:
            return []
        value = queue.popleft()
        if not queue:
            del self.queues[key]
        return [value]

    def length(self, key: bytes) -> list[bytes]:
        return [str(len(self.queues.get(key, ()))).encode()]

    OPERATIONS: ClassVar[dict[str, Callable[..., list[bytes]]]] = {
        "set": set, "get": get, "add": add, "append": append, "compare_set": compare_set, "check": check,
        "delete": delete, "keys": keys, "count": count, "multi_set": multi_set, "push": push, "pop": pop,
        "length": length,
    }  # fmt: skip
