"""What handlers of a rendezvous have in common: PyTorch's module of this name.

The agent of this package meets others by `connection.py`. Handlers are for programs that call them by themselves.
"""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from tensorgrad.distributed.stores.store import Store

__all__ = [
    "RendezvousClosedError", "RendezvousConnectionError", "RendezvousError", "RendezvousGracefulExitError",
    "RendezvousHandler", "RendezvousHandlerCreator", "RendezvousHandlerRegistry", "RendezvousInfo",
    "RendezvousParameters", "RendezvousStateError", "RendezvousStoreInfo", "RendezvousTimeoutError",
    "rendezvous_handler_registry",
]  # fmt: skip


class RendezvousError(Exception):
    """Machines could not be brought together.

    >>> from tensorgrad.distributed.elastic.rendezvous import RendezvousError, RendezvousTimeoutError
    >>> issubclass(RendezvousTimeoutError, RendezvousError)
    True
    """


class RendezvousClosedError(RendezvousError):
    """The job has ended."""


class RendezvousTimeoutError(RendezvousError):
    """Not enough machines came in time."""


class RendezvousConnectionError(RendezvousError):
    """The store cannot be reached, or its port is taken."""


class RendezvousStateError(RendezvousError):
    """What the machines know of each other contradicts itself."""


class RendezvousGracefulExitError(RendezvousError):
    """This machine is not needed."""


@dataclass
class RendezvousStoreInfo:
    """Where the ranks' store is: the variables MASTER_ADDR and MASTER_PORT."""

    MASTER_ADDR_KEY: ClassVar[str] = "MASTER_ADDR"
    MASTER_PORT_KEY: ClassVar[str] = "MASTER_PORT"
    master_addr: str
    master_port: int

    @staticmethod
    def build(rank: int, store: Store, local_addr: str | None, server_port: int | None = None) -> RendezvousStoreInfo:
        """Rank 0 chooses a port, and tells the others by a store.

        Args:
            rank: of this machine.
            store: what all machines share.
            local_addr: how others reach this machine; its name if None.
            server_port: the port; a free one if None.

        >>> import tensorgrad.distributed as dist
        >>> from tensorgrad.distributed.elastic.rendezvous import RendezvousStoreInfo
        >>> RendezvousStoreInfo.build(0, dist.HashStore(), "node1", 29500)
        RendezvousStoreInfo(master_addr='node1', master_port=29500)
        """
        if rank == 0:
            if server_port is None:
                with socket.create_server(("", 0)) as server:
                    server_port = server.getsockname()[1]
            store.set(RendezvousStoreInfo.MASTER_ADDR_KEY, local_addr or socket.getfqdn())
            store.set(RendezvousStoreInfo.MASTER_PORT_KEY, str(server_port))
        address = store.get(RendezvousStoreInfo.MASTER_ADDR_KEY).decode()
        return RendezvousStoreInfo(address, int(store.get(RendezvousStoreInfo.MASTER_PORT_KEY)))


@dataclass(frozen=True)
class RendezvousInfo:
    """What a rendezvous has brought: the store, this machine's rank, their number, and where the ranks' store is."""

    store: Store
    rank: int
    world_size: int
    bootstrap_store_info: RendezvousStoreInfo | None


class RendezvousHandler(ABC):
    """One way to bring machines together."""

    @abstractmethod
    def get_backend(self) -> str:
        """Returns its name."""

    @property
    def use_agent_store(self) -> bool:
        """Whether ranks may use its store."""
        return False

    @abstractmethod
    def next_rendezvous(self) -> RendezvousInfo:
        """Waits for the others. Raises: RendezvousError if they do not come."""

    @abstractmethod
    def is_closed(self) -> bool:
        """Returns whether the job has ended."""

    @abstractmethod
    def set_closed(self) -> None:
        """Ends the job."""

    @abstractmethod
    def num_nodes_waiting(self) -> int:
        """Returns how many machines have come too late, and wait for the next rendezvous."""

    @abstractmethod
    def get_run_id(self) -> str:
        """Returns the name of the job."""

    @abstractmethod
    def shutdown(self) -> bool:
        """Gives up what it holds. Returns whether that went well."""


class RendezvousParameters:
    """What a handler is made of.

    Args:
        backend: the name of the handler.
        endpoint: where machines meet, as `host:port`.
        run_id: the name of the job.
        min_nodes, max_nodes: how many machines take part.
        local_addr: how others reach this machine.
        kwargs: more for the handler.

    Raises:
        ValueError: there is no name, or the numbers do not fit.

    >>> from tensorgrad.distributed.elastic.rendezvous import RendezvousParameters
    >>> RendezvousParameters("static", "localhost:29500", "job1", 1, 1, rank="0").get_as_int("rank")
    0
    """

    def __init__(
        self,
        backend: str,
        endpoint: str,
        run_id: str,
        min_nodes: int,
        max_nodes: int,
        local_addr: str | None = None,
        **kwargs: Any,
    ) -> None:
        if not backend:
            raise ValueError("The rendezvous backend name must be a non-empty string.")
        if min_nodes < 1:
            raise ValueError(f"The minimum number of rendezvous nodes ({min_nodes}) must be greater than zero.")
        if max_nodes < min_nodes:
            raise ValueError(
                f"The maximum number of rendezvous nodes ({max_nodes}) must be greater than or equal to the minimum "
                f"number of rendezvous nodes ({min_nodes})."
            )
        self.backend, self.endpoint, self.run_id = backend, endpoint, run_id
        self.min_nodes, self.max_nodes = min_nodes, max_nodes
        self.config, self.local_addr = kwargs, local_addr

    def get(self, key: str, default: Any = None) -> Any:
        """Returns a value of `kwargs`."""
        return self.config.get(key, default)

    def get_as_bool(self, key: str, default: bool | None = None) -> bool | None:
        """Returns a value of `kwargs` as a bool. Raises: ValueError if it is none."""
        value = self.get(key, default)
        if value is None or isinstance(value, bool):
            return value
        text = str(value).lower() if isinstance(value, str | int) else ""
        if text in ("1", "true", "t", "yes", "y"):
            return True
        if text in ("0", "false", "f", "no", "n"):
            return False
        raise ValueError(f"The rendezvous configuration option '{key}' does not represent a valid boolean value.")

    def get_as_int(self, key: str, default: int | None = None) -> int | None:
        """Returns a value of `kwargs` as an integer. Raises: ValueError if it is none."""
        value = self.get(key, default)
        try:
            return value if value is None else int(value)
        except ValueError as error:
            raise ValueError(
                f"The rendezvous configuration option '{key}' does not represent a valid integer value."
            ) from error


RendezvousHandlerCreator = Callable[[RendezvousParameters], RendezvousHandler]


class RendezvousHandlerRegistry:
    """Handlers by name."""

    def __init__(self) -> None:
        self._registry: dict[str, RendezvousHandlerCreator] = {}

    def register(self, backend: str, creator: RendezvousHandlerCreator) -> None:
        """Adds a handler. Raises: ValueError if there is another one of that name."""
        if not backend:
            raise ValueError("The rendezvous backend name must be a non-empty string.")
        known = self._registry.get(backend, creator)
        if known != creator:
            raise ValueError(
                f"The rendezvous backend '{backend}' cannot be registered with '{creator}' as it is already registered "
                f"with '{known}'."
            )
        self._registry[backend] = creator

    def create_handler(self, params: RendezvousParameters) -> RendezvousHandler:
        """Returns a handler.

        Raises:
            ValueError: there is none of that name.
            RuntimeError: it has another name.
        """
        if params.backend not in self._registry:
            raise ValueError(
                f"The rendezvous backend '{params.backend}' is not registered. Did you forget to call `register`?"
            )
        handler = self._registry[params.backend](params)
        if handler.get_backend() != params.backend:
            raise RuntimeError(
                f"The rendezvous backend '{handler.get_backend()}' does not match the requested backend "
                f"'{params.backend}'."
            )
        return handler


rendezvous_handler_registry = RendezvousHandlerRegistry()
