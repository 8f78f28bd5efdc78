"""The communicator of a group of several processes: MPI's non-blocking collectives on flat NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorgrad.distributed.errors import DistBackendError
from tensorgrad.distributed.mpi.shared_sums import SharedSum, SharedSums, room_for
from tensorgrad.distributed.mpi.world import MPIWorld

__all__ = ["MPICommunicator", "Request"]


class Request:
    """An operation that MPI has begun. It keeps the arrays alive."""

    __slots__ = ("_request", "_status", "arrays")

    def __init__(self, request: Any, status: Any, *arrays: Any) -> None:
        self._request, self._status, self.arrays = request, status, arrays

    def completed(self) -> bool:
        """Whether it is complete; a call makes progress. Raises: DistBackendError if MPI reports an error."""
        try:
            return self._request.Test(self._status)
        except Exception as error:  # MPI.Exception, a RuntimeError
            raise DistBackendError(f"MPI: {error}") from None

    @property
    def source(self) -> int:
        """The rank that a message came from."""
        return self._status.Get_source()


class MPICommunicator:
    """Begins operations; `Request.completed` ends them. Arrays are flat and contiguous.

    Only members of the group may call these methods, and all of them must call collectives in the same order.
    `ranks` are the members' ranks in the MPI world.
    """

    def __init__(self, world: MPIWorld, ranks: list[int], tag: int) -> None:
        from mpi4py import MPI

        self.mpi, self.world, self.ranks = MPI, world, ranks
        members = world.comm.Get_group().Incl(ranks)
        self.comm = world.comm.Create_group(members, tag % 16384)
        self.comm.Set_errhandler(MPI.ERRORS_RETURN)
        self.rank, self.size = self.comm.Get_rank(), self.comm.Get_size()
        self._sums: SharedSums | None = None

    def _begin(self, begin: Any, *arguments: Any) -> Request:
        try:
            return Request(begin(*arguments), self.mpi.Status(), *arguments)
        except self.mpi.Exception as error:
            raise DistBackendError(f"MPI: {error}") from None

    def all_reduce(self, array: np.ndarray, op: str) -> Request:
        return self._begin(self.comm.Iallreduce, self.mpi.IN_PLACE, array, getattr(self.mpi, op))

    def can_share(self) -> bool:
        """Whether this rank is on one machine with all others, and has memory for sums with them."""
        beside = self.comm.Split_type(self.mpi.COMM_TYPE_SHARED)
        together = beside.Get_size() == self.size
        beside.Free()
        return together and room_for(self.size)

    def share(self) -> None:
        """Makes the memory for `sum_in_place`. All must call it, if all of them can."""
        self._sums = SharedSums(self.mpi, self.comm)

    def sum_in_place(self, arrays: list[np.ndarray], factor: float) -> SharedSum:
        """Sums of float32 or float64, each multiplied by its rank's factor first, in the memory of `share`."""
        assert self._sums is not None
        return self._sums.start(arrays, factor)

    def copy_in_place(self, arrays: list[np.ndarray], root: int) -> SharedSum:
        """Copies of one rank's arrays of bytes, through the memory of `share`."""
        assert self._sums is not None
        return self._sums.copy(arrays, root)

    def reduce(self, array: np.ndarray, op: str, root: int) -> Request:
        """The result is in the root's array; the arrays of the others do not change."""
        if self.rank == root:
            return self._begin(self.comm.Ireduce, self.mpi.IN_PLACE, array, getattr(self.mpi, op), root)
        return self._begin(self.comm.Ireduce, array, None, getattr(self.mpi, op), root)

    def reduce_scatter(self, given: np.ndarray, received: np.ndarray, counts: list[int], op: str) -> Request:
        """Rank i receives the i-th part of the result; `counts` are the lengths of the parts."""
        return self._begin(self.comm.Ireduce_scatter, given, received, counts, getattr(self.mpi, op))

    def broadcast(self, array: np.ndarray, root: int) -> Request:
        return self._begin(self.comm.Ibcast, array, root)

    def all_gather(self, given: np.ndarray, received: np.ndarray) -> Request:
        return self._begin(self.comm.Iallgather, given, received)

    def gather(self, given: np.ndarray, received: np.ndarray | None, root: int) -> Request:
        return self._begin(self.comm.Igather, given, received, root)

    def scatter(self, given: np.ndarray | None, received: np.ndarray, root: int) -> Request:
        return self._begin(self.comm.Iscatter, given, received, root)

    def all_to_all(
        self, given: np.ndarray, given_counts: list[int], received: np.ndarray, received_counts: list[int]
    ) -> Request:
        return self._begin(self.comm.Ialltoallv, [given, given_counts], [received, received_counts])

    def send(self, array: np.ndarray, rank: int, tag: int) -> Request:
        return self._begin(self.comm.Isend, array, rank, tag)

    def receive(self, array: np.ndarray, rank: int | None, tag: int) -> Request:
        """`rank` None: from any."""
        return self._begin(self.comm.Irecv, array, self.mpi.ANY_SOURCE if rank is None else rank, tag)

    def barrier(self) -> Request:
        return self._begin(self.comm.Ibarrier)

    def missing(self) -> list[int]:
        """The ranks within the group of members whose processes have ended."""
        gone = self.world.gone()
        return [place for place, rank in enumerate(self.ranks) if rank in gone]

    def free(self) -> None:
        """Gives the communicator up, unless some member cannot take part: to free is a collective operation."""
        # MPI frees what is left when it ends; a collective call here could wait for a member that has failed.
