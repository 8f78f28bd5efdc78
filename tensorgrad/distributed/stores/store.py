"""Stores: small key-value tables through which the processes of a job find each other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from tensorgrad.distributed.errors import DistStoreError, QueueEmptyError
from tensorgrad.distributed.stores.key_table import Table
from tensorgrad.system import forks
from tensorgrad.system.clock import SYSTEM, Clock

__all__ = ["HashStore", "PrefixStore", "Store"]

DEFAULT_TIMEOUT = timedelta(seconds=300)


def as_bytes(value: Any, where: str) -> bytes:
    """A value as bytes. Raises: TypeError if it is neither str nor bytes."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    raise TypeError(f"{where}: expected a str or bytes, got {type(value).__name__}")


class Store:
    """Base class of the key-value stores.

    Keys are strings. Values are strings or bytes, and are returned as bytes. Methods that wait for a key end after
    the store's timeout, 300 seconds by default.

    A subclass implements `_call` (run one operation) and `_wait` (wait for keys), or overrides the public methods.

    >>> import tensorgrad.distributed as dist
    >>> isinstance(dist.HashStore(), dist.Store)
    True
    """

    _timeout = DEFAULT_TIMEOUT

    def _call(self, operation: str, *arguments: bytes) -> list[bytes]:
        raise NotImplementedError(f"{type(self).__name__} does not implement {operation}")

    def _wait(self, keys: list[str], timeout: timedelta) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not implement wait")

    @property
    def timeout(self) -> timedelta:
        """How long `get` and `wait` wait by default.

        >>> import tensorgrad.distributed as dist
        >>> dist.HashStore().timeout
        datetime.timedelta(seconds=300)
        """
        return self._timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets how long `get` and `wait` wait by default.

        >>> import tensorgrad.distributed as dist
        >>> from datetime import timedelta
        >>> dist.HashStore().set_timeout(timedelta(seconds=10))
        """
        if not isinstance(timeout, timedelta):
            raise TypeError(f"set_timeout(): expected a timedelta, got {type(timeout).__name__}")
        self._timeout = timeout

    def set(self, key: str, value: str | bytes) -> None:
        """Stores a value under a key, replacing what was there.

        >>> import tensorgrad.distributed as dist
        >>> store = dist.HashStore()
        >>> store.set("name", "value")
        >>> store.get("name")
        b'value'
        """
        self._call("set", key.encode(), as_bytes(value, "set()"))

    def get(self, key: str) -> bytes:
        """Returns the value of a key, waiting until it is set.

        Raises:
            DistStoreError: the key was not set within the store's timeout.

        >>> import tensorgrad.distributed as dist
        >>> store = dist.HashStore()
        >>> store.set("name", b"value")
        >>> store.get("name")
        b'value'
        """
        while True:
            self.wait([key])
            try:
                return self._call("get", key.encode())[0]
            except ValueError:  # deleted in between
                continue

    def add(self, key: str, value: int) -> int:
        """Adds an integer to a counter, which starts at 0, and returns the sum.

        Raises:
            ValueError: the present value is not an integer.

        >>> import tensorgrad.distributed as dist
        >>> store = dist.HashStore()
        >>> store.add("workers", 1), store.add("workers", 2)
        (1, 3)
        """
        return int(self._call("add", key.encode(), str(int(value)).encode())[0])

    def append(self, key: str, value: str | bytes) -> None:
        """Adds bytes to the end of a value.

        >>> import tensorgrad.distributed as dist
        >>> store = dist.HashStore()
        >>> store.append("log", "a"); store.append("log", "b")
        >>> store.get("log")
        b'ab'
        """
        self._call("append", key.encode(), as_bytes(value, "append()"))

    def check(self, keys: Sequence[str]) -> bool:
        """Returns whether all keys are set, without waiting.

        >>> import tensorgrad.distributed as dist
        >>> dist.HashStore().check(["missing"])
        False
        """
        return bool(self._call("check", *(key.encode() for key in keys))[0])

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        """Sets a key if it has the expected value; an empty expected value stands for a key that is not set.

        Returns:
            The value of the key afterwards (the expected value, if the key is not set).

        >>> import tensorgrad.distributed as dist
        >>> store = dist.HashStore()
        >>> store.compare_set("leader", "", "rank 0"), store.compare_set("leader", "", "rank 1")
        (b'rank 0', b'rank 0')
        """
        expected, desired = as_bytes(expected_value, "compare_set()"), as_bytes(desired_value, "compare_set()")
        return self._call("compare_set", key.encode(), expected, desired)[0]

    def delete_key(self, key: str) -> bool:
        """Deletes a key, and returns whether it was set.

        >>> import tensorgrad.distributed as dist
        >>> dist.HashStore().delete_key("missing")
        False
        """
        return bool(self._call("delete", key.encode())[0])

    def num_keys(self) -> int:
        """Returns how many keys are set. A `TCPStore` uses one more of its own.

        >>> import tensorgrad.distributed as dist
        >>> dist.HashStore().num_keys()
        0
        """
        return int(self._call("count")[0])

    def list_keys(self) -> list[str]:
        """Returns the keys that are set.

        >>> import tensorgrad.distributed as dist
        >>> dist.HashStore().list_keys()
        []
        """
        return [key.decode() for key in self._call("keys")]

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """Returns the values of several keys, waiting for each.

        >>> import tensorgrad.distributed as dist
        >>> store = dist.HashStore()
        >>> store.multi_set(["a", "b"], ["1", "2"])
        >>> store.multi_get(["a", "b"])
        [b'1', b'2']
        """
        return [self.get(key) for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Sets several keys.

        >>> import tensorgrad.distributed as dist
        >>> dist.HashStore().multi_set(["a", "b"], ["1", "2"])
        """
        if len(keys) != len(values):
            raise ValueError(f"multi_set(): {len(keys)} keys but {len(values)} values")
        pairs = [part for key, value in zip(keys, values) for part in (key.encode(), as_bytes(value, "multi_set()"))]
        self._call("multi_set", *pairs)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Waits until all keys are set.

        Args:
            keys: the keys to wait for.
            timeout: how long to wait; by default the store's timeout.

        Raises:
            DistStoreError: a key was not set in time.

        >>> import tensorgrad.distributed as dist
        >>> store = dist.HashStore()
        >>> store.set("ready", "1")
        >>> store.wait(["ready"])
        """
        if isinstance(keys, str):
            raise TypeError("wait(): expected a list of keys, got a str")
        if timeout is not None and not isinstance(timeout, timedelta):
            raise TypeError(f"wait(): expected a timedelta, got {type(timeout).__name__}")
        self._wait(list(keys), self.timeout if timeout is None else timeout)

    def barrier(self, key: str, world_size: int, timeout: timedelta | None = None) -> None:
        """Waits until `world_size` callers have arrived at this key.

        >>> import tensorgrad.distributed as dist
        >>> dist.HashStore().barrier("start", 1)
        """
        if self.add(key, 1) % world_size == 0:
            self.set(f"{key}/all", "1")
        self.wait([f"{key}/all"], timeout)

    def queue_push(self, key: str, value: str | bytes) -> None:
        """Adds an entry to the end of a queue.

        >>> import tensorgrad.distributed as dist
        >>> dist.HashStore().queue_push("jobs", "first")
        """
        self._call("push", key.encode(), as_bytes(value, "queue_push()"))

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """Removes and returns the first entry of a queue.

        Args:
            key: the queue.
            block: whether to wait for an entry.

        Raises:
            QueueEmptyError: there is no entry, and `block` is false.
            DistStoreError: there was no entry within the store's timeout.

        >>> import tensorgrad.distributed as dist
        >>> store = dist.HashStore()
        >>> store.queue_push("jobs", "first")
        >>> store.queue_pop("jobs")
        b'first'
        """
        while not (found := self._call("pop", key.encode())):
            if not block:
                raise QueueEmptyError("queue is empty")
            self.wait([key])
        return found[0]

    def queue_len(self, key: str) -> int:
        """Returns the number of entries of a queue.

        >>> import tensorgrad.distributed as dist
        >>> dist.HashStore().queue_len("jobs")
        0
        """
        return int(self._call("length", key.encode())[0])

    def has_extended_api(self) -> bool:
        """Returns whether `append`, `multi_get` and `multi_set` work: they always do.

        >>> import tensorgrad.distributed as dist
        >>> dist.HashStore().has_extended_api()
        True
        """
        return True

    def clone(self) -> Store:
        """Returns a store with the same contents, for use in another thread.

        >>> import tensorgrad.distributed as dist
        >>> store = dist.HashStore()
        >>> store.clone().set("a", "1")
        >>> store.get("a")
        b'1'
        """
        return self


def wait_until(ready: Callable[[], bool], timeout: timedelta, clock: Clock = SYSTEM) -> bool:
    """Calls a function in growing intervals, up to 50 ms, until it returns true or the time is over."""
    end, pause = clock.now() + timeout.total_seconds(), 1e-3
    while not ready():
        left = end - clock.now()
        if left <= 0:
            return False
        clock.sleep(min(pause, left))
        pause = min(pause * 1.5, 0.05)
    return True


class HashStore(Store):
    """A store within one process, shared by its threads.

    >>> import tensorgrad.distributed as dist
    >>> store = dist.HashStore()
    >>> store.set("first_key", "first_value")
    >>> store.get("first_key")
    b'first_value'
    """

    def __init__(self) -> None:
        self._table = Table()
        self._changed = threading.Condition(forks.lock())

    def _call(self, operation: str, *arguments: bytes) -> list[bytes]:
        with self._changed:
            result = self._table.apply(operation, list(arguments))
            self._changed.notify_all()
            return result

    def _wait(self, keys: list[str], timeout: timedelta) -> None:
        names = [key.encode() for key in keys]
        with self._changed:
            if not self._changed.wait_for(lambda: self._table.has(names), timeout.total_seconds()):
                raise DistStoreError("Wait timeout")


class PrefixStore(Store):
    """A view of another store in which every key begins with a prefix.

    Args:
        prefix: what is put before every key, followed by `/`.
        store: the store that holds the values.

    >>> import tensorgrad.distributed as dist
    >>> whole = dist.HashStore()
    >>> part = dist.PrefixStore("group1", whole)
    >>> part.set("a", "1")
    >>> whole.get("group1/a")
    b'1'
    """

    def __init__(self, prefix: str, store: Store) -> None:
        if not isinstance(store, Store):
            raise TypeError(f"PrefixStore(): expected a Store, got {type(store).__name__}")
        self.prefix, self._store = str(prefix), store

    def _name(self, key: str) -> str:
        return f"{self.prefix}/{key}"

    @property
    def underlying_store(self) -> Store:
        """The store that holds the values.

        >>> import tensorgrad.distributed as dist
        >>> dist.PrefixStore("a", dist.HashStore()).underlying_store
        <tensorgrad.distributed.stores.store.HashStore object at ...>
        """
        return self._store

    @property
    def _underlying_non_prefix_store(self) -> Store:
        store = self._store
        while isinstance(store, PrefixStore):
            store = store._store
        return store

    @property
    def timeout(self) -> timedelta:
        return self._store.timeout

    def set_timeout(self, timeout: timedelta) -> None:
        self._store.set_timeout(timeout)

    def set(self, key: str, value: str | bytes) -> None:
        self._store.set(self._name(key), value)

    def get(self, key: str) -> bytes:
        return self._store.get(self._name(key))

    def add(self, key: str, value: int) -> int:
        return self._store.add(self._name(key), value)

    def append(self, key: str, value: str | bytes) -> None:
        self._store.append(self._name(key), value)

    def check(self, keys: Sequence[str]) -> bool:
        return self._store.check([self._name(key) for key in keys])

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        return self._store.compare_set(self._name(key), expected_value, desired_value)

    def delete_key(self, key: str) -> bool:
        return self._store.delete_key(self._name(key))

    def num_keys(self) -> int:
        return self._store.num_keys()

    def list_keys(self) -> list[str]:
        start = f"{self.prefix}/"
        return [key[len(start) :] for key in self._store.list_keys() if key.startswith(start)]

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        return self._store.multi_get([self._name(key) for key in keys])

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        self._store.multi_set([self._name(key) for key in keys], values)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        names = [self._name(key) for key in keys]
        if timeout is None:  # stores written in Python may not take the second argument
            self._store.wait(names)
        else:
            self._store.wait(names, timeout)

    def queue_push(self, key: str, value: str | bytes) -> None:
        self._store.queue_push(self._name(key), value)

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        return self._store.queue_pop(self._name(key), block)

    def queue_len(self, key: str) -> int:
        return self._store.queue_len(self._name(key))

    def has_extended_api(self) -> bool:
        return self._store.has_extended_api()

    def clone(self) -> Store:
        return PrefixStore(self.prefix, self._store.clone())
