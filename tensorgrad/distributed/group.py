"""`ProcessGroup`, and the groups that this process belongs to."""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any

from tensorgrad.distributed.backend import Backend, BackendConfig
from tensorgrad.distributed.debug_level import DebugLevel, get_debug_level
from tensorgrad.distributed.errors import DistBackendError
from tensorgrad.distributed.mpi.communicator import MPICommunicator
from tensorgrad.distributed.nccl.communicator import NCCLCommunicator
from tensorgrad.distributed.nccl.communicator import available as nccl_available
from tensorgrad.distributed.single import SingleCommunicator
from tensorgrad.distributed.stores import signs
from tensorgrad.distributed.stores.store import PrefixStore, Store
from tensorgrad.storage import STORAGES
from tensorgrad.system.clock import SYSTEM

__all__ = [
    "GroupMember", "ProcessGroup", "get_global_rank", "get_group_rank", "get_process_group_ranks", "group",
]  # fmt: skip


class ProcessGroup:
    """Some of the job's processes, which can communicate with each other. Made by `init_process_group`, `new_group`.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> world = dist.group.WORLD
    >>> world.rank(), world.size(), world.name()
    (0, 1, 'gloo')
    >>> dist.destroy_process_group()
    """

    bound_device_id = None
    clock = SYSTEM  # by which its operations wait

    def __init__(
        self,
        communicator: MPICommunicator | SingleCommunicator,
        ranks: list[int],
        store: Store,
        backend: str,
        timeout: timedelta,
        group_name: str,
        group_desc: str,
    ) -> None:
        self.communicator, self.ranks, self.store = communicator, ranks, store
        self.backend, self.timeout = backend, timeout
        self.group_name, self.group_desc = group_name, group_desc
        self.gpus = self._communicator_of_gpus()
        self.sequence = 0  # how many collectives there were
        self.checked = len(ranks) > 1 and get_debug_level() is DebugLevel.DETAIL
        self.monitored = 0  # how many monitored barriers there were
        self.shares_memory: bool | None = None  # whether all members do; None: not asked yet
        self._error: BaseException | None = None
        self._abandoned: list[Any] = []  # requests that failed: MPI may still write to their arrays

    def rank(self) -> int:
        """Returns this process's rank within the group.

        >>> import tensorgrad.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.group.WORLD.rank()
        0
        >>> dist.destroy_process_group()
        """
        return self.communicator.rank

    def size(self) -> int:
        """Returns the number of processes in the group.

        >>> import tensorgrad.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.group.WORLD.size()
        1
        >>> dist.destroy_process_group()
        """
        return self.communicator.size

    def name(self) -> str:
        """Returns the name of the backend.

        >>> import tensorgrad.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.group.WORLD.name()
        'gloo'
        >>> dist.destroy_process_group()
        """
        return self.backend

    def get_group_store(self) -> Store:
        """Returns the store that the members share.

        >>> import tensorgrad.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.group.WORLD.get_group_store().set("a", "1")
        >>> dist.destroy_process_group()
        """
        return self.store

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets how long operations of this group may take.

        >>> import tensorgrad.distributed as dist
        >>> from datetime import timedelta
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.group.WORLD.set_timeout(timedelta(seconds=10))
        >>> dist.destroy_process_group()
        """
        self.timeout = timeout

    _set_default_timeout = set_timeout

    def _communicator_of_gpus(self) -> Any:
        """What moves tensors on GPUs, if they stay there; None if they are copied through the host."""
        if BackendConfig(self.backend).get_device_backend_map().get("cuda") != Backend.NCCL:
            return None
        if self.backend == Backend.UNDEFINED and not nccl_available():
            return None
        if self.communicator.size == 1:
            return self.communicator
        return NCCLCommunicator(PrefixStore(f"group{self.group_name}", self.store), self.rank(), self.size())

    def communicates_from(self, array: Any) -> bool:
        """Whether an array is on a device from which it is sent without a copy on the host."""
        return self.gpus is not None and STORAGES[array.__class__].device_type == "cuda"

    def communicator_of(self, arrays: list[Any]) -> Any:
        """What moves these arrays. Raises: RuntimeError if only some of them are on a GPU."""
        if self.gpus is None or not arrays:
            return self.communicator
        on_gpu = {self.communicates_from(array) for array in arrays}
        if len(on_gpu) > 1:
            raise RuntimeError("all tensors of an operation must be on the GPU, or all of them on the CPU")
        return self.gpus if on_gpu == {True} else self.communicator

    def together(self) -> AbstractContextManager[None]:
        """Messages that begin in this context may wait for each other."""
        return self.gpus.together() if isinstance(self.gpus, NCCLCommunicator) else nullcontext()

    def check_usable(self) -> None:
        """Raises: DistBackendError if an earlier operation failed: the members are no longer in step."""
        if self._error is not None:
            raise DistBackendError(f"an earlier operation of this process group failed: {self._error}")

    def _fail(self, error: BaseException, requests: list[Any]) -> None:
        self._error = self._error or error
        self._abandoned.append(requests)
        if isinstance(self.communicator, MPICommunicator):
            self.communicator.world.failed = True
        if isinstance(self.gpus, NCCLCommunicator):
            self.gpus.abort()

    def free(self) -> None:
        """Gives up the connections to the other members."""
        self.communicator.free()
        if self.gpus is not None:
            self.gpus.free()

    def _missing(self) -> list[int]:
        return [self.ranks[place] for place in self.communicator.missing()]

    def _waits(self, number: int) -> None:
        signs.present(self.store, self.group_name, number, self.ranks[self.rank()])

    def _absent(self, number: int) -> str:
        return signs.absent(
            self.store, self.group_name, number, [r for r in self.ranks if r != self.ranks[self.rank()]]
        )


class _WorldMeta(type):
    """Makes `WORLD` an attribute of the classes `group` and `GroupMember`: the default group, or None."""

    _default: ProcessGroup | None = None

    @property
    def WORLD(cls) -> ProcessGroup | None:
        return _WorldMeta._default

    @WORLD.setter
    def WORLD(cls, value: ProcessGroup | None) -> None:
        _WorldMeta._default = value


class group(metaclass=_WorldMeta):
    """`group.WORLD` is the default group, of all processes; None before `init_process_group`.

    >>> import tensorgrad.distributed as dist
    >>> dist.group.WORLD is None
    True
    """


class GroupMember(metaclass=_WorldMeta):
    """`GroupMember.WORLD` is the default group; `NON_GROUP_MEMBER` is what others get for a group.

    >>> import tensorgrad.distributed as dist
    >>> dist.GroupMember.NON_GROUP_MEMBER
    -100
    """

    NON_GROUP_MEMBER = -100


def default_group() -> ProcessGroup:
    """The group of all processes. Raises: ValueError before `init_process_group`."""
    world = GroupMember.WORLD
    if world is None:
        raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")
    return world


def or_default(group: Any) -> ProcessGroup:
    """The group that is meant; None is the default one."""
    if group is None or group is GroupMember.WORLD:
        return default_group()
    return group


def not_in_group(group: Any) -> bool:
    """Whether a group is the mark of those that are not its members."""
    return isinstance(group, int) and group == GroupMember.NON_GROUP_MEMBER


def warn_not_in_group(name: str) -> None:
    """Warns that an operation was called outside of its group, as PyTorch does."""
    rank = -1 if GroupMember.WORLD is None else GroupMember.WORLD.rank()
    warnings.warn(f"Running {name} on global rank {rank} which does not belong to the given group.", stacklevel=4)


def _members(group: Any) -> list[int]:
    if not isinstance(group, ProcessGroup) or group.communicator is None:
        raise ValueError(f"Group {group} is not registered, please create group with torch.distributed.new_group API")
    return group.ranks


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """Returns the rank within a group of the process with this global rank.

    Raises:
        ValueError: it is not a member.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> dist.get_group_rank(dist.new_group([0]), 0)
    0
    >>> dist.destroy_process_group()
    """
    if group is GroupMember.WORLD:
        return global_rank
    ranks = _members(group)
    if global_rank not in ranks:
        raise ValueError(f"Global rank {global_rank} is not part of group {group}")
    return ranks.index(global_rank)


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """Returns the global rank of the process with this rank within a group.

    Raises:
        ValueError: the group has no such rank.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> dist.get_global_rank(dist.new_group([0]), 0)
    0
    >>> dist.destroy_process_group()
    """
    if group is GroupMember.WORLD:
        return group_rank
    ranks = _members(group)
    if not 0 <= group_rank < len(ranks):
        raise ValueError(f"Group rank {group_rank} is not part of group {group}")
    return ranks[group_rank]


def get_process_group_ranks(group: ProcessGroup | None) -> list[int]:
    """Returns the global ranks of a group's members, in the order of their ranks within the group.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> dist.get_process_group_ranks(None)
    [0]
    >>> dist.destroy_process_group()
    """
    return list(_members(or_default(group)))


def canonical_rank(group: ProcessGroup, global_rank: int | None, group_rank: int | None) -> int:
    """The rank within a group of which exactly one form is given. Raises: ValueError otherwise."""
    if group_rank is not None:
        if global_rank is not None:
            raise ValueError("Can't specify both group_rank and global_rank")
        return group_rank
    if global_rank is None:
        raise ValueError("Must specify global_rank or group_rank")
    return get_group_rank(group, global_rank)
