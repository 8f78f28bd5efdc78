"""The handlers that are registered from the start."""

from __future__ import annotations

from typing import NoReturn

from tensorgrad.distributed.elastic.rendezvous.api import (
    RendezvousHandler,
    RendezvousParameters,
    rendezvous_handler_registry,
)
from tensorgrad.distributed.elastic.rendezvous.static_tcp_rendezvous import create_rdzv_handler

__all__ = ["get_rendezvous_handler"]


def _only_with_an_agent(params: RendezvousParameters) -> NoReturn:
    raise NotImplementedError(
        f"a handler of the rendezvous {params.backend!r} is not included: start the job by "
        "torch.distributed.launcher.elastic_launch or python -m tensorgrad.distributed.run, which meet by c10d"
    )


def get_rendezvous_handler(params: RendezvousParameters) -> RendezvousHandler:
    """Returns a handler of the registry.

    Args:
        params: what it is made of; its backend is "static", or what a program has registered.

    Raises:
        NotImplementedError: the backend is "c10d" or "etcd".
        ValueError: there is no handler of that name.

    >>> from tensorgrad.distributed.elastic.rendezvous import RendezvousParameters
    >>> from tensorgrad.distributed.elastic.rendezvous.registry import get_rendezvous_handler
    >>> get_rendezvous_handler(RendezvousParameters("static", "localhost:29500", "job1", 1, 1, rank=0)).get_run_id()
    'job1'
    """
    return rendezvous_handler_registry.create_handler(params)


rendezvous_handler_registry.register("static", create_rdzv_handler)
for _backend in ("c10d", "etcd", "etcd-v2"):
    rendezvous_handler_registry.register(_backend, _only_with_an_agent)
