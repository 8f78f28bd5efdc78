"""The handler "static": the ranks of the machines are known, and the one of rank 0 has the store."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tensorgrad.distributed.elastic.rendezvous.api import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
)
from tensorgrad.distributed.elastic.rendezvous.connection import split_endpoint
from tensorgrad.distributed.stores.store import PrefixStore
from tensorgrad.distributed.stores.tcp_store import TCPStore

__all__ = ["StaticTCPRendezvous", "create_rdzv_handler"]


class StaticTCPRendezvous(RendezvousHandler):
    """Brings machines together whose ranks are known.

    Args:
        master_addr, master_port: where the store is.
        rank: of this machine.
        world_size: how many machines there are.
        run_id: the name of the job.
        timeout: seconds to wait for the machine of rank 0.

    >>> from tensorgrad.distributed.elastic.rendezvous.static_tcp_rendezvous import StaticTCPRendezvous
    >>> handler = StaticTCPRendezvous("127.0.0.1", 0, rank=0, world_size=1, run_id="job1", timeout=10)
    >>> handler.next_rendezvous().world_size
    1
    """

    def __init__(
        self, master_addr: str, master_port: int, rank: int, world_size: int, run_id: str, timeout: int
    ) -> None:
        self.master_addr, self.master_port = master_addr, master_port
        self.rank, self.world_size, self.run_id = rank, world_size, run_id
        self.timeout = timedelta(seconds=timeout)
        self._store: TCPStore | None = None

    def get_backend(self) -> str:
        """Returns "static"."""
        return "static"

    @property
    def use_agent_store(self) -> bool:
        """Whether ranks may use its store."""
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """Connects to the store, which rank 0 serves."""
        if self._store is None:
            self._store = TCPStore(self.master_addr, self.master_port, None, self.rank == 0, self.timeout)
            self.master_port = self._store.port
        where = RendezvousStoreInfo(self.master_addr, self.master_port)
        return RendezvousInfo(PrefixStore(self.run_id, self._store), self.rank, self.world_size, where)

    def is_closed(self) -> bool:
        """Returns False: it cannot be closed."""
        return False

    def set_closed(self) -> None:
        """Does nothing."""

    def num_nodes_waiting(self) -> int:
        """Returns 0: nobody comes late."""
        return 0

    def get_run_id(self) -> str:
        """Returns the name of the job."""
        return self.run_id

    def shutdown(self) -> bool:
        """Returns True: the store lives as long as this object."""
        return True


def create_rdzv_handler(params: RendezvousParameters) -> Any:
    """Returns the handler that parameters describe. Raises: ValueError if the rank is missing."""
    if "rank" not in params.config:
        raise ValueError("rank is absent in RendezvousParameters.Try add --node-rank to the cmd request")
    host, port = split_endpoint(params.endpoint, -1) if ":" in params.endpoint else (params.endpoint, -1)
    if not params.endpoint.strip() or port == -1:
        raise ValueError("endpoint is absent or has no port in RendezvousParameters: expected host:port")
    if params.min_nodes != params.max_nodes:
        raise ValueError(
            f"min_nodes: {params.min_nodes} is not equal to max_nodes: {params.max_nodes}: the static rendezvous needs "
            "a fixed number"
        )
    timeout = int(params.config.get("timeout", 900))
    return StaticTCPRendezvous(host, port, int(params.config["rank"]), params.max_nodes, params.run_id, timeout)
