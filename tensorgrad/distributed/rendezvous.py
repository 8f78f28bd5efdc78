"""How the processes of a job find each other: `env://`, `tcp://` and `file://`."""

from __future__ import annotations

import numbers
import os
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlparse

from tensorgrad.distributed.constants import default_pg_timeout
from tensorgrad.distributed.errors import DistNetworkError, DistStoreError, ranks_named
from tensorgrad.distributed.stores.file_store import FileStore
from tensorgrad.distributed.stores.store import PrefixStore, Store
from tensorgrad.distributed.stores.tcp_store import TCPStore

__all__ = ["register_rendezvous_handler", "rendezvous"]

Found = Iterator[tuple[Store, int, int]]
_HANDLERS: dict[str, Callable[..., Found]] = {}


def register_rendezvous_handler(scheme: str, handler: Callable[..., Found]) -> None:
    """Adds a way for processes to find each other.

    Args:
        scheme: what the URL begins with.
        handler: a generator function of the URL (and `timeout=`) that yields (store, rank, world_size).

    Raises:
        RuntimeError: the scheme is taken.

    >>> import tensorgrad.distributed as dist
    >>> def handler(url, **options):
    ...     yield dist.HashStore(), 0, 1
    >>> dist.register_rendezvous_handler("alone", handler)
    >>> next(dist.rendezvous("alone://"))[1:]
    (0, 1)
    """
    if scheme in _HANDLERS:
        raise RuntimeError(f"Rendezvous handler for {scheme}:// already registered")
    _HANDLERS[scheme] = handler


def rendezvous(url: str, rank: int = -1, world_size: int = -1, **kwargs: Any) -> Found:
    """Finds the other processes of the job.

    Args:
        url: `env://` (from the variables RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), `tcp://host:port` or
            `file:///path`, perhaps with `?rank=0&world_size=2`.
        rank, world_size: of this process, if not in the URL.
        kwargs: `timeout`, a timedelta.

    Returns:
        An iterator; its first item is (store, rank, world_size).

    Raises:
        RuntimeError: no handler for the URL.
        ValueError: rank, world size or address are missing.

    >>> import tensorgrad.distributed as dist
    >>> store, rank, size = next(dist.rendezvous("tcp://127.0.0.1:0?rank=0&world_size=1"))
    >>> rank, size
    (0, 1)
    """
    if not isinstance(url, (str, bytes)):
        raise RuntimeError(f"`url` must be a string. {type(url)}: {url}")
    if not isinstance(rank, numbers.Integral):
        raise RuntimeError(f"`rank` must be an integer. {rank}")
    if not isinstance(world_size, numbers.Integral):
        raise RuntimeError(f"`world_size` must be an integer. {world_size}")
    url = url.decode() if isinstance(url, bytes) else url
    parts = urlparse(url)
    query = dict(parse_qsl(parts.query))
    if rank != -1 or world_size != -1:
        if "rank" in query or "world_size" in query:
            raise AssertionError(f"The url: {url} has node-specific arguments(rank, world_size) already.")
        given = {"rank": rank, "world_size": world_size}
        query.update({name: str(value) for name, value in given.items() if value != -1})
        url = parts._replace(query="&".join(f"{name}={value}" for name, value in query.items())).geturl()
    if parts.scheme not in _HANDLERS:
        raise RuntimeError(f"No rendezvous handler for {parts.scheme}://")
    return _HANDLERS[parts.scheme](url, **kwargs)


def _error(scheme: str, message: str) -> ValueError:
    return ValueError(f"Error initializing torch.distributed using {scheme}:// rendezvous: {message}")


def _numbers(url: str, scheme: str) -> tuple[int, int]:
    """Rank and world size of a URL."""
    query = dict(parse_qsl(urlparse(url).query))
    if "rank" not in query:
        raise _error(scheme, "rank parameter missing")
    if "world_size" not in query:
        raise _error(scheme, "world size parameter missing")
    return int(query["rank"]), int(query["world_size"])


def _tcp_store(host: str, port: int, rank: int, size: int, timeout: timedelta) -> Store:
    check_rank(rank, size)  # before the others take this process for one of them
    if not 0 <= port < 2**16:
        raise ValueError(f"port must have value from 0 to 65535 but was {port}.")
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":  # the launcher runs the server
        attempt = os.environ.get("TENSORGRAD_ROUND") or os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        return PrefixStore(f"worker/attempt_{attempt}", TCPStore(host, port, size, False, timeout))
    try:
        store = TCPStore(host, port, size, rank == 0, timeout, wait_for_workers=False, multi_tenant=True)
        agree_on_size(store, rank, size)
        store.set(f"init/rank{rank}", "")
    except DistNetworkError as error:
        raise DistNetworkError(f"{error} (rank {rank} of {size})") from None
    if rank == 0:
        _wait_for_ranks(store, size, timeout)
    return store


def _wait_for_ranks(store: Store, size: int, timeout: timedelta) -> None:
    try:
        store.wait([f"init/rank{rank}" for rank in range(size)], timeout)
    except DistStoreError:
        missing = [rank for rank in range(size) if not store.check([f"init/rank{rank}"])]
        raise DistStoreError(
            f"Timed out after {round(timeout.total_seconds())} seconds waiting for clients. "
            f"{size - len(missing)}/{size} clients joined; missing: {ranks_named(missing)}"
        ) from None


def agree_on_size(store: Store, rank: int, size: int) -> None:
    """Raises: ValueError if the first process that came was told another world size."""
    first_size, first_rank = store.compare_set("init/size", "", f"{size} {rank}").decode().split()
    if int(first_size) != size:
        raise ValueError(f"rank {rank} was told a world size of {size}, but rank {first_rank} was told {first_size}")


def check_rank(rank: int, size: int) -> None:
    """Raises: ValueError if there is no such rank."""
    if not 0 <= rank < size:
        raise ValueError(f"rank {rank} is not in the interval [0, {size - 1}] of a world of {size}")


def _tcp(url: str, timeout: timedelta = default_pg_timeout, **options: Any) -> Found:
    parts = urlparse(url)
    if parts.port is None:
        raise _error("tcp", "port number missing")
    if parts.hostname is None:
        raise AssertionError("hostname cannot be None")
    rank, size = _numbers(url, "tcp")
    yield _tcp_store(parts.hostname, parts.port, rank, size, timeout), rank, size
    raise RuntimeError("Unable to perform re-rendezvous using tcp:// method")


def _env(url: str, timeout: timedelta = default_pg_timeout, **options: Any) -> Found:
    query = dict(parse_qsl(urlparse(url).query))

    def variable(name: str) -> str:
        value = os.environ.get(name)
        if not value:
            raise _error("env", f"environment variable {name} expected, but not set")
        return value

    rank = int(query["rank"] if "rank" in query else variable("RANK"))
    size = int(query["world_size"] if "world_size" in query else variable("WORLD_SIZE"))
    host, port = variable("MASTER_ADDR"), int(variable("MASTER_PORT"))
    yield _tcp_store(host, port, rank, size, timeout), rank, size
    raise RuntimeError("Unable to perform re-rendezvous using env:// method")


def _file(url: str, **options: Any) -> Found:
    parts = urlparse(url)
    path = parts.path
    if sys.platform == "win32":
        import urllib.request

        path = os.path.normpath(urllib.request.url2pathname(parts.netloc + parts.path)) if path else path
    if not path:
        raise _error("file", "path missing")
    rank, size = _numbers(url, "file")
    store = FileStore(path, size)
    agree_on_size(store, rank, size)
    yield store, rank, size
    raise RuntimeError("Unable to perform rerendezvous using file:// method")


register_rendezvous_handler("tcp", _tcp)
register_rendezvous_handler("env", _env)
register_rendezvous_handler("file", _file)
