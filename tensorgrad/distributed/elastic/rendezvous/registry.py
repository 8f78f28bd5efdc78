"""The handlers that are registered from the start."""

from __future__ import annotations

from typing import NoReturn

from tensorgrad.distributed.elastic.rendezvous.api import (
    RendezvousHandler,
    RendezvousParameters,
    rendezvous_handler_registry,
)
from tensorgrad.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend
from tensorgrad.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler
from tensorgrad.distributed.elastic.rendezvous.static_tcp_rendezvous import create_rdzv_handler

__all__ = ["get_rendezvous_handler"]


def _refuse(params: RendezvousParameters) -> NoReturn:
    raise NotImplementedError(
        f"a handler of the rendezvous {params.backend!r} is not included: use 'c10d', whose store needs no server of "
        "its own"
    )


def _c10d(params: RendezvousParameters) -> RendezvousHandler:
    backend, store = create_backend(params)
    return create_handler(store, backend, params)


def get_rendezvous_handler(params: RendezvousParameters) -> RendezvousHandler:
    """Returns a handler of the registry.

    Args:
        params: what it is made of; its backend is "static", "c10d", or what a program has registered.

    Raises:
        NotImplementedError: the backend is "etcd".
        ValueError: there is no handler of that name.

    >>> from tensorgrad.distributed.elastic.rendezvous import RendezvousParameters
    >>> from tensorgrad.distributed.elastic.rendezvous.registry import get_rendezvous_handler
    >>> get_rendezvous_handler(RendezvousParameters("static", "localhost:29500", "job1", 1, 1, rank=0)).get_run_id()
    'job1'
    """
    return rendezvous_handler_registry.create_handler(params)


rendezvous_handler_registry.register("static", create_rdzv_handler)
rendezvous_handler_registry.register("c10d", _c10d)
for _backend in ("etcd", "etcd-v2"):
    rendezvous_handler_registry.register(_backend, _refuse)
