"""Making and ending groups of processes."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from zlib import crc32

from tensorgrad import cuda
from tensorgrad.distributed.backend import Backend, BackendConfig, check_available
from tensorgrad.distributed.constants import default_pg_timeout
from tensorgrad.distributed.errors import DistStoreError
from tensorgrad.distributed.group import (
    GroupMember,
    ProcessGroup,
    default_group,
    get_group_rank,
    get_process_group_ranks,
    not_in_group,
    or_default,
    warn_not_in_group,
)
from tensorgrad.distributed.mpi import library
from tensorgrad.distributed.mpi import world as mpi_world
from tensorgrad.distributed.mpi.communicator import MPICommunicator
from tensorgrad.distributed.mpi.world import MPIWorld
from tensorgrad.distributed.rendezvous import check_rank, rendezvous
from tensorgrad.distributed.single import SingleCommunicator
from tensorgrad.distributed.stores.store import PrefixStore, Store, wait_until
from tensorgrad.distributed.stores.tcp_store import TCPStore

__all__ = [
    "destroy_process_group", "get_backend", "get_backend_config", "get_node_local_rank", "get_pg_count", "get_rank",
    "get_world_size", "init_process_group", "is_initialized", "is_torchelastic_launched", "monitored_barrier",
    "new_group", "new_subgroups", "new_subgroups_by_enumeration", "split_group",
]  # fmt: skip


class _Groups:
    """The groups of this process by name, and how many there ever were in this world.

    All members must find the same name. Where all processes of the job make a group, its name is their number. Where
    only some do, it is what they have in common, and how often they had it before.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, ProcessGroup] = {}
        self.count = 0
        self.uses: Counter[str] = Counter()

    def next_name(self) -> str:
        self.count += 1
        return str(self.count - 1)

    def name_in_common(self, text: str) -> str:
        self.uses[text] += 1
        return f"{text} ({self.uses[text]})"


_GROUPS = _Groups()
_pg_map: dict[ProcessGroup, tuple[str, Store]] = {}  # PyTorch's name for the groups of this process: libraries read it


def named_group(name: str) -> ProcessGroup:
    """The group of this process with a name. Raises: RuntimeError if there is none."""
    world = GroupMember.WORLD
    if world is not None and name == world.group_name:
        return world
    if name not in _GROUPS.by_name:
        raise RuntimeError(f"Could not resolve the process group registered under the name {name}")
    return _GROUPS.by_name[name]


def group_of_ranks(ranks: list[Any]) -> ProcessGroup:
    """A group that has exactly these members; of several lists, the one with this process.

    Raises: ValueError if no such group was made.
    """
    world = default_group()
    if ranks and isinstance(ranks[0], list):
        ranks = next((line for line in ranks if world.rank() in line), [])
    for found in (world, *_GROUPS.by_name.values()):
        if found.ranks == ranks:
            return found
    raise ValueError(f"there is no group of the ranks {ranks}: make it by torch.distributed.new_group")


def _check_timeout(timeout: Any) -> None:
    if not isinstance(timeout, timedelta):
        raise TypeError(f"Expected timeout argument to be of type datetime.timedelta, got {timeout}")


def is_initialized() -> bool:
    """Returns whether the default process group exists.

    >>> rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    """
    return GroupMember.WORLD is not None


def is_torchelastic_launched() -> bool:
    """Returns whether a launcher like torchrun started this process: whether TORCHELASTIC_RUN_ID is set.

    >>> torch.distributed.is_torchelastic_launched() in (True, False)
    True
    """
    return os.environ.get("TORCHELASTIC_RUN_ID") is not None


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """Returns this process's rank on its machine, from the variable LOCAL_RANK.

    Args:
        fallback_rank: what to return if the variable is not set.

    Raises:
        RuntimeError: neither is given.

    >>> torch.distributed.get_node_local_rank(fallback_rank=0) >= 0
    True
    """
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is not None:
        return int(fallback_rank)
    raise RuntimeError(
        "LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow `get_node_local_rank` to work, "
        "assuming you are not running in a multi-device context and want the code to run locally instead."
    )


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Store | None = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Makes the default process group, of all processes of the job. Every process must call it.

    Processes find each other by `init_method` or `store`; under an MPI launcher (mpiexec, srun) no such
    information is needed.

    Args:
        backend: "gloo" or "mpi", two names for MPI through mpi4py; None is "gloo".
        init_method: `env://` (the default; variables RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT),
            `tcp://host:port` or `file:///path`.
        timeout: how long an operation may take; 30 minutes by default.
        world_size: the number of processes.
        rank: this process's number.
        store: a store that all processes share; needs rank and world_size.
        group_name, pg_options, device_id: accepted; they change nothing.

    Raises:
        ValueError: there is a default group already, or rank, world size or address are missing.
        RuntimeError: there is no such backend here.
        DistBackendError: mpi4py is missing, or MPI cannot be started.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> dist.get_rank(), dist.get_world_size()
    (0, 1)
    >>> dist.destroy_process_group()
    """
    if GroupMember.WORLD is not None:
        raise ValueError("trying to initialize the default process group twice!")
    if store is not None:
        if init_method is not None:
            raise AssertionError("Cannot specify both init_method and store.")
        if world_size <= 0:
            raise AssertionError("world_size must be positive if using store")
        if rank < 0:
            raise AssertionError("rank must be non-negative if using store")
    timeout = default_pg_timeout if timeout is None else timeout
    _check_timeout(timeout)
    name = Backend("undefined" if backend is None else backend)
    check_available(name)
    host, world = "", None
    if store is None:
        if _finds_each_other_by_mpi(name, init_method, rank, world_size):
            world = mpi_world.world(None, -1, -1, "", timeout)
            rank, world_size, store = world.rank, world.size, _store_over_mpi(world, timeout)
        else:
            store, rank, world_size = next(rendezvous(init_method or "env://", rank, world_size, timeout=timeout))
            store.set_timeout(timeout)
    check_rank(rank, world_size)
    base = store._underlying_non_prefix_store if isinstance(store, PrefixStore) else store
    host = base.host if isinstance(base, TCPStore) else _own_name()
    store = PrefixStore("default_pg", store)
    if world is None and world_size > 1:
        world = mpi_world.world(PrefixStore("mpi", store), rank, world_size, host, timeout)
    communicator = SingleCommunicator() if world is None or world_size == 1 else None
    _GROUPS.count = 0
    _GROUPS.uses.clear()
    ranks = list(range(world_size))
    GroupMember.WORLD = _make(_GROUPS.next_name(), communicator, world, ranks, store, str(name), timeout, "default_pg")


def _finds_each_other_by_mpi(backend: str, init_method: str | None, rank: int, size: int) -> bool:
    """Whether the processes need no store to meet: there is an MPI launcher, or "mpi" is all that was said."""
    if init_method not in (None, "env://") or "RANK" in os.environ or rank != -1 or size != -1:
        return False
    return mpi_world.launched() is not None or (backend == Backend.MPI and library.available())


def _own_name() -> str:
    """The name under which other machines reach this one."""
    import socket

    return socket.getfqdn()


def _store_over_mpi(world: MPIWorld, timeout: timedelta) -> Store:
    """A store of all processes of an MPI world, which are told by MPI where it is."""
    if world.rank == 0:
        name = _own_name()
        server = TCPStore(name, 0, None, True, timeout)
        world.comm.bcast((name, server.port), 0)
        return server
    host, port = world.comm.bcast(None, 0)
    return TCPStore(host, port, None, False, timeout)


def _make(
    name: str,
    communicator: Any,
    world: MPIWorld | None,
    ranks: list[int],
    store: Store,
    backend: str,
    timeout: timedelta,
    desc: str,
    places: list[int] | None = None,
) -> ProcessGroup:
    """A group that this process is a member of. All members must call it.

    `places` are the ranks in the MPI world, if the default group was shrunk and they are others than `ranks`.
    """
    if communicator is None:
        assert world is not None
        places = ranks if places is None else places
        _wait_for_members(PrefixStore(f"group{name}", store), world.rank, places, timeout)
        communicator = MPICommunicator(world, places, crc32(name.encode()))
    result = ProcessGroup(communicator, ranks, store, backend, timeout, name, desc)
    _GROUPS.by_name[name] = result
    _pg_map[result] = (backend, store)
    return result


def _make_part(
    world: ProcessGroup, name: str, members: list[int], backend: str, timeout: timedelta, desc: str | None
) -> ProcessGroup:
    """A group of some members of the default group, of which this process is one."""
    single = SingleCommunicator() if len(members) == 1 else None
    mpi, places = None, members
    if isinstance(world.communicator, MPICommunicator):
        mpi, places = world.communicator.world, [world.communicator.ranks[rank] for rank in members]
    return _make(name, single, mpi, members, world.store, backend, timeout, desc or "undefined", places)


def _wait_for_members(store: Store, rank: int, ranks: list[int], timeout: timedelta) -> None:
    """Waits until all members are here: MPI itself would wait without a limit."""
    store.add("members", 1)
    if rank == ranks[0]:
        if not wait_until(lambda: store.add("members", 0) >= len(ranks), timeout):
            raise DistStoreError(
                f"Timed out initializing process group on rank {rank}: {store.add('members', 0)} of {len(ranks)} "
                f"members joined within {timeout}"
            )
        store.set("complete", "1")
    store.wait(["complete"], timeout)


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Ends a process group; without an argument, or for the default group, all of them.

    Args:
        group: the group.

    Raises:
        AssertionError: there is no default group.
        ValueError: it was ended before.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> dist.destroy_process_group()
    >>> dist.is_initialized()
    False
    """
    if not_in_group(group):
        return
    chosen = GroupMember.WORLD if group is None else group
    if chosen is None:
        raise AssertionError("Process group cannot be None")
    if chosen not in _pg_map:
        raise ValueError("Invalid process group specified")
    if chosen is GroupMember.WORLD:
        _GROUPS.by_name.clear()
        _pg_map.clear()
        GroupMember.WORLD = None
    else:
        del _GROUPS.by_name[chosen.group_name], _pg_map[chosen]
    chosen.free()


def get_rank(group: ProcessGroup | None = None) -> int:
    """Returns this process's rank in a group, the default one if none is given; -1 if it is not a member.

    Raises:
        ValueError: there is no default group.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> dist.get_rank()
    0
    >>> dist.destroy_process_group()
    """
    if not_in_group(group):
        return -1
    rank = default_group().rank()
    return rank if group is None or group is GroupMember.WORLD else get_group_rank(group, rank)


def get_world_size(group: ProcessGroup | None = None) -> int:
    """Returns the number of processes in a group, the default one if none is given; -1 if this is not a member.

    Raises:
        ValueError: there is no default group.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> dist.get_world_size()
    1
    >>> dist.destroy_process_group()
    """
    return -1 if not_in_group(group) else or_default(group).size()


def _registered(group: ProcessGroup | None) -> ProcessGroup:
    if not_in_group(group):
        raise ValueError("Invalid process group specified")
    chosen = or_default(group)
    if chosen not in _pg_map:
        raise ValueError(
            f"Process group {chosen} is not initialized in the world group map. Please initialize the group first."
        )
    return chosen


def get_backend(group: ProcessGroup | None = None) -> str:
    """Returns the backend's name, as `init_process_group` was given it.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> dist.get_backend()
    'gloo'
    >>> dist.destroy_process_group()
    """
    return Backend(_registered(group).backend)


def get_backend_config(group: ProcessGroup | None = None) -> str:
    """Returns which backend serves which kind of device.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> dist.get_backend_config()
    'cpu:gloo,cuda:gloo'
    >>> dist.destroy_process_group()
    """
    return str(BackendConfig(_registered(group).backend))


def get_pg_count() -> int:
    """Returns how many groups were made, this process's and others'.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> dist.get_pg_count()
    1
    >>> dist.destroy_process_group()
    """
    return _GROUPS.count


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
    sort_ranks: bool = True,
) -> Any:
    """Makes a group of some processes. All processes of the job must call it, in the same order.

    Args:
        ranks: the global ranks of the members; None means all.
        timeout: how long an operation may take; by default that of `init_process_group`.
        backend: the default group's, if None.
        group_desc: a description.
        use_local_synchronization: whether only the members call it.
        sort_ranks: whether ranks within the group follow the global ranks, rather than the order given.
        pg_options, device_id: accepted; they change nothing.

    Returns:
        The group; `GroupMember.NON_GROUP_MEMBER` in processes that are not members.

    Raises:
        ValueError: a rank is given twice, or does not exist.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> dist.new_group([0]).size()
    1
    >>> dist.destroy_process_group()
    """
    world = default_group()
    backend = world.backend if backend is None else Backend(backend)
    check_available(backend)
    timeout = world.timeout if timeout is None else timeout
    _check_timeout(timeout)
    members = list(range(world.size())) if ranks is None else sorted(ranks) if sort_ranks else list(ranks)
    if len(set(members)) != len(members):
        raise ValueError(f"ranks list must not contain duplicate entries, got {members}")
    if len(members) > world.size():
        raise ValueError(
            "the new group's world size should be less or equal to the world size set by init_process_group"
        )
    for rank in members:
        if not 0 <= rank < world.size():
            raise ValueError(
                f"Rank {rank} is out of range. Valid ranks are 0 to {world.size() - 1} (world_size={world.size()})"
            )
    if not use_local_synchronization:
        name = _GROUPS.next_name()
    if world.rank() not in members:
        return GroupMember.NON_GROUP_MEMBER
    if use_local_synchronization:
        name = _GROUPS.name_in_common(f"of {members}")
    return _make_part(world, name, members, backend, timeout, group_desc)


def split_group(
    parent_pg: ProcessGroup | None = None,
    split_ranks: Sequence[Sequence[int]] | None = None,
    timeout: timedelta | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
    backend: str | None = None,
) -> ProcessGroup | None:
    """Divides a group into groups that do not overlap. All members of the group must call it, and nobody else.

    In PyTorch, groups of the backend "nccl" alone can be split.

    Args:
        parent_pg: the group; the default one if None.
        split_ranks: for each new group the ranks of its members within the group. All members give the same.
        timeout: how long an operation may take; by default that of the group.
        pg_options: accepted; it changes nothing.
        group_desc: a description.
        backend: the group's, if None.

    Returns:
        The new group that this process is in, or None if it is in none of them.

    Raises:
        ValueError: no ranks are given, a rank does not exist or is given twice, or this process is not a member.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> dist.split_group(split_ranks=[[0]]).size()
    1
    >>> dist.destroy_process_group()
    """
    if not split_ranks:
        raise ValueError("split_ranks cannot be None or empty")
    world = default_group()
    if not_in_group(parent_pg):
        raise ValueError(f"Global rank {world.rank()} is not part of the parent group {parent_pg}")
    parent = _registered(parent_pg)
    timeout = parent.timeout if timeout is None else timeout
    _check_timeout(timeout)
    backend = parent.backend if backend is None else Backend(backend)
    check_available(backend)
    for ranks in split_ranks:
        if not ranks:
            raise ValueError("the split group cannot be empty")
        if len(set(ranks)) != len(ranks):
            raise ValueError("the split group cannot have duplicate ranks")
        if outside := [rank for rank in ranks if not 0 <= rank < parent.size()]:
            raise ValueError(f"the parent group has {parent.size()} members, and no rank {outside[0]}")
    every = [rank for ranks in split_ranks for rank in ranks]
    if len(set(every)) != len(every):
        raise ValueError(f"the split groups must not overlap, got {[list(ranks) for ranks in split_ranks]}")
    mine = next((sorted(ranks) for ranks in split_ranks if parent.rank() in ranks), None)
    if mine is None:
        return None
    members = [parent.ranks[rank] for rank in mine]
    name = _GROUPS.name_in_common(f"of {members} in {parent.group_name}")
    return _make_part(world, name, members, backend, timeout, group_desc or f"{parent.group_desc}:split")


def new_subgroups(
    group_size: int | None = None,
    group: ProcessGroup | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:
    """Divides a group into groups of equal size. All processes of the job must call it.

    Args:
        group_size: the size of each.
        group: the group to divide; the default group if None.
        timeout, backend, pg_options, group_desc: see `new_group`.

    Returns:
        The group that this process is in, and the list of all.

    Raises:
        ValueError: the size does not divide that of the whole.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> mine, all_of_them = dist.new_subgroups(group_size=1)
    >>> mine.size(), len(all_of_them)
    (1, 1)
    >>> dist.destroy_process_group()
    """
    if group_size is None:
        if not cuda.is_available():
            raise ValueError(
                "Default group size only takes effect when CUDA is available."
                "If your subgroup using a backend that does not depend on CUDA,"
                "please pass in 'group_size' correctly."
            )
        group_size = cuda.device_count()
    if group_size <= 0:
        raise ValueError(f"The arg 'group_size' ({group_size}) must be positive")
    size = get_world_size(group)
    if size < group_size:
        raise ValueError(f"The arg 'group_size' ({group_size}) must not exceed the world size ({size})")
    if size % group_size != 0:
        raise ValueError(f"The world size ({size}) must be divisible by '{group_size=}'")
    ranks = get_process_group_ranks(group)
    parts = [ranks[first : first + group_size] for first in range(0, len(ranks), group_size)]
    return new_subgroups_by_enumeration(parts, timeout, backend, pg_options, group_desc)


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]],
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:
    """Makes several groups that do not overlap. All processes of the job must call it.

    Args:
        ranks_per_subgroup_list: the global ranks of each group.
        timeout, backend, pg_options, group_desc: see `new_group`.

    Returns:
        The group that this process is in, or None, and the list of all.

    Raises:
        ValueError: the list is empty, or a rank is in two groups.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> mine, all_of_them = dist.new_subgroups_by_enumeration([[0]])
    >>> mine is all_of_them[0]
    True
    >>> dist.destroy_process_group()
    """
    if not ranks_per_subgroup_list:
        raise ValueError("The arg 'ranks_per_subgroup_list' cannot be empty")
    groups, mine, places = [], None, {}  # type: list[Any], Any, dict[int, Sequence[int]]
    for ranks in ranks_per_subgroup_list:
        groups.append(new_group(ranks, timeout, backend, pg_options, group_desc=group_desc))
        for rank in ranks:
            if rank in places:
                raise ValueError(f"Rank {rank} has appeared in both subgroup {places[rank]} and {ranks}")
            places[rank] = ranks
            if rank == get_rank():
                mine = groups[-1]
    return mine, groups


def monitored_barrier(
    group: ProcessGroup | None = None, timeout: timedelta | None = None, wait_all_ranks: bool = False
) -> None:
    """Waits for all members, and names those that do not come.

    Args:
        group: the group; the default one if None.
        timeout: how long to wait for each; by default 30 minutes.
        wait_all_ranks: whether rank 0 names all missing members rather than the first.

    Raises:
        RuntimeError: a member did not come in time.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> dist.monitored_barrier()
    >>> dist.destroy_process_group()
    """
    if not_in_group(group):
        warn_not_in_group("monitored_barrier")
        return
    chosen = or_default(group)
    if chosen.backend == Backend.MPI:
        raise ValueError("monitored_barrier is only implemented for GLOO backend.")
    if isinstance(timeout, float):
        warnings.warn(
            "Please specify timeout arg as a timedelta. "
            f"Converting current value of {timeout} assuming it represents seconds",
            stacklevel=2,
        )
        timeout = timedelta(seconds=timeout)
    timeout = default_pg_timeout if timeout is None else timeout
    _check_timeout(timeout)
    chosen.monitored += 1
    store = PrefixStore(f"monitored{chosen.group_name}/{chosen.monitored}", chosen.store)
    rank, milliseconds = chosen.rank(), round(timeout.total_seconds() * 1000)
    if rank:
        store.set(str(rank), "1")
        try:
            store.wait(["complete"], timeout + timedelta(seconds=0.5))
        except DistStoreError:
            raise RuntimeError(
                f"[Rank {rank}]: Successfully reached monitoredBarrier, but received errors while waiting for "
                "send/recv from rank 0. Please check rank 0 logs for faulty rank."
            ) from None
        return
    missing: list[int] = []
    for other in range(1, chosen.size()):
        try:
            store.wait([str(other)], timedelta(milliseconds=1) if missing else timeout)
        except DistStoreError:
            missing.append(other)
            if not wait_all_ranks:
                break
    if missing:
        names = ("Rank " if len(missing) == 1 else "Ranks ") + ", ".join(map(str, missing))
        raise RuntimeError(f"[Rank 0]: {names} failed to pass monitoredBarrier in {milliseconds} ms")
    store.set("complete", "1")
