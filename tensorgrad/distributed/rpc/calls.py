"""What programs call to have functions run by other processes."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import urlparse

from tensorgrad.distributed.rendezvous import rendezvous
from tensorgrad.distributed.rpc.agent import Agent, Reply, WorkerInfo, address_towards
from tensorgrad.distributed.rpc.options import (
    THREADS,
    BackendType,
    RpcBackendOptions,
    TensorPipeRpcBackendOptions,
)
from tensorgrad.distributed.stores.store import PrefixStore

__all__ = ["get_worker_info", "init_rpc", "is_available", "rpc_async", "rpc_sync", "shutdown"]

UNSET = -1.0  # a timeout: that of the options
_starts = itertools.count()


class _State:
    """The agent of this process, while there is one, and what must live as long."""

    agent: Agent | None = None
    found: Any = None  # the iterator of the rendezvous, which has the store


STATE = _State()


def _forget() -> None:
    """In a child: the threads that answer calls are its parent's, and it has not called `init_rpc`."""
    STATE.agent = STATE.found = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def is_available() -> bool:
    """Returns whether processes can call each other's functions.

    >>> torch.distributed.rpc.is_available()
    True
    """
    return True


def agent() -> Agent:
    """Returns the agent of this process. Raises: RuntimeError before `init_rpc`."""
    if STATE.agent is None:
        raise RuntimeError("RPC has not been initialized. Call torch.distributed.rpc.init_rpc first.")
    return STATE.agent


def init_rpc(
    name: str,
    backend: BackendType | None = None,
    rank: int = -1,
    world_size: int | None = None,
    rpc_backend_options: RpcBackendOptions | None = None,
) -> None:
    """Lets this process call functions of the others of the job, and them its own. All have to call it.

    Args:
        name: of this process; another one for each.
        backend: accepted for compatibility.
        rank: of this process; by default from the environment.
        world_size: how many processes there are; by default from the environment.
        rpc_backend_options: settings.

    Raises:
        TypeError: If the backend or the options are something else.
        RuntimeError: If it was called before, or two processes have the same name.

    >>> import os
    >>> os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    >>> torch.distributed.rpc.init_rpc("alone", rank=0, world_size=1)
    >>> torch.distributed.rpc.rpc_sync("alone", torch.add, args=(torch.ones(2), 3))
    tensor([4., 4.])
    >>> torch.distributed.rpc.shutdown()
    """
    if backend is not None and not isinstance(backend, BackendType):
        raise TypeError("Argument backend must be a member of BackendType")
    if rpc_backend_options is not None and not isinstance(rpc_backend_options, RpcBackendOptions):
        raise TypeError("Argument rpc_backend_options must be an instance of RpcBackendOptions")
    if STATE.agent is not None:
        raise RuntimeError("RPC is already initialized")
    options = rpc_backend_options or TensorPipeRpcBackendOptions()
    STATE.found = rendezvous(options.init_method, rank, -1 if world_size is None else world_size)
    store, rank, size = next(STATE.found)
    url = urlparse(options.init_method)
    host = url.hostname or os.environ.get("MASTER_ADDR", "127.0.0.1")
    STATE.agent = Agent(
        name,
        rank,
        size,
        PrefixStore(f"rpc_prefix_{next(_starts)}", store),
        getattr(options, "num_worker_threads", THREADS),
        options.rpc_timeout or None,
        address_towards(host, url.port or 1),
    )


def shutdown(graceful: bool = True, timeout: float = 0) -> None:
    """Ends remote calls of this process.

    Args:
        graceful: whether it waits until all processes have called this, and serves their calls meanwhile.
        timeout: how many seconds it waits at most; 0 for half an hour.

    Raises:
        RuntimeError: before `init_rpc`.
    """
    found = agent()
    try:
        found.leave(graceful, timedelta(seconds=timeout) if timeout else None)
    finally:
        STATE.agent = STATE.found = None


def get_worker_info(worker_name: str | None = None) -> WorkerInfo:
    """Returns name and rank of a process of the job; by default of this one.

    Raises:
        RuntimeError: before `init_rpc`.
        ValueError: If there is no such process.
    """
    return agent().info if worker_name is None else agent().worker(worker_name)


def rpc_async(
    to: Any, func: Callable, args: Any = None, kwargs: dict[str, Any] | None = None, timeout: float = UNSET
) -> Reply:
    """Has another process run a function, and returns a future of the result.

    Args:
        to: the process: its name, its rank or its `WorkerInfo`.
        func: a function that the other process can import.
        args, kwargs: its arguments.
        timeout: for how many seconds `wait()` waits at most; 0 for any time.

    Raises:
        RuntimeError: before `init_rpc`.
        ValueError: If there is no such process.
    """
    found = agent()
    if not callable(func):
        raise TypeError("function should be callable.")
    seconds = found.seconds if timeout == UNSET else (timeout or None)
    return found.call(to, func, tuple(args or ()), dict(kwargs or {}), seconds)


def rpc_sync(
    to: Any, func: Callable, args: Any = None, kwargs: dict[str, Any] | None = None, timeout: float = UNSET
) -> Any:
    """Has another process run a function, and returns the result: `rpc_async(...).wait()`.

    Raises:
        Exception: what the function raised, with a text that says where.
        RuntimeError: after too long.
    """
    return rpc_async(to, func, args, kwargs, timeout).wait()
