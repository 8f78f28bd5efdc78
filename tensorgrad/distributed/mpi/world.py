"""This process's MPI world. MPI can be initialized once in a process; groups come and go within that world."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import re
import select
import socket
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from tensorgrad.distributed.errors import DistBackendError, ranks_named
from tensorgrad.distributed.mpi import library, pmi
from tensorgrad.distributed.stores.store import Store
from tensorgrad.distributed.work import PROGRESS

__all__ = ["MPIWorld", "give_up", "launched", "world"]

GOODBYE = 5.0  # seconds that a process waits for the others at its end
PATIENCE = 60.0  # seconds that it then waits for the server, which answers at once


def launched() -> tuple[int, int] | None:
    """The rank and size that an MPI launcher (mpiexec, srun) gave this process; None if there was none."""
    for rank, size in (
        ("PMI_RANK", "PMI_SIZE"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMIX_RANK", "SLURM_NTASKS"),
    ):
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    return None


class MPIWorld:
    """All processes of the job, connected by MPI. `comm` contains them in the order of their ranks."""

    def __init__(self, comm: Any, place: tuple[int, int], connections: tuple[int, socket.socket] | None) -> None:
        self.comm, self.connections = comm, connections
        self.rank, self.size = place
        self.process = os.getpid()
        self.failed = False  # an operation timed out or broke: MPI cannot end in an orderly way
        self._gone: set[int] = set()
        self._end = ""  # "end": all have said goodbye, and end MPI together; "apart": some did not wait, so nobody does
        self._text = b""
        atexit.register(self._finalize)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def gone(self) -> set[int]:
        """The ranks whose processes have ended without a goodbye."""
        self._listen(0)
        return self._gone

    def _listen(self, seconds: float) -> None:
        """Reads what the server reports. A server that is gone reports nothing: then timeouts must do."""
        if self.connections is None:
            return
        watch = self.connections[1]
        try:
            while watch.fileno() >= 0 and select.select([watch], [], [], seconds)[0]:
                data = watch.recv(65536)
                if not data:
                    watch.close()
                    return
                *lines, self._text = (self._text + data).split(b"\n")
                for line in lines:
                    if line in (b"end", b"apart"):
                        self._end = line.decode()
                    elif line.startswith(b"gone "):
                        self._gone.add(int(line[5:]))
                seconds = 0
        except (OSError, ValueError):
            watch.close()

    def _forget(self) -> None:
        """In a forked child: its copies would hide from the server that this process has ended."""
        if self.connections is not None:
            pmi.leave(self.connections[0])
            self.connections[1].close()

    def _finalize(self) -> None:
        try:
            self._finalize_with_the_others()
        finally:
            if self.connections is not None and self.process == os.getpid():
                os.dup(self.connections[0])  # stays open: the server is to see when this process ends, not before
                pmi.leave(self.connections[0])

    def _say(self, word: str, seconds: float) -> None:
        """Sends a word to the server, and waits for its decision on how the job ends."""
        assert self.connections is not None
        watch, until = self.connections[1], time.monotonic() + seconds
        try:
            watch.sendall(word.encode() + b"\n")
        except OSError:
            return
        while not self._end and not self._gone - {self.rank} and watch.fileno() >= 0 and time.monotonic() < until:
            self._listen(0.1)

    def _finalize_with_the_others(self) -> None:
        """Ends MPI, if all ranks do so. Otherwise the process ends without: MPI would wait for those that cannot.

        Who has waited long enough takes the goodbye back, and asks the server whether that is too late: the others may
        have just been told to end MPI together.
        """
        if self.failed or PROGRESS.works or self.process != os.getpid():
            return
        if self.connections is not None:
            self._say("bye", GOODBYE)
            if not self._end:
                self._say("apart", PATIENCE)
            if self._end != "end":
                return
        else:  # the launcher ends a job in which a process leaves early, so there is no limit
            arrived = self.comm.Ibarrier()
            while not arrived.Test():  # `MPI_Finalize` would stop this interpreter, and the store it may serve
                time.sleep(1e-3)
        from mpi4py import MPI

        if MPI.Is_initialized() and not MPI.Is_finalized():
            MPI.Finalize()


_WORLD: list[MPIWorld] = []  # the one of this process, once there is one


def world(store: Store | None, rank: int, size: int, host: str, timeout: timedelta) -> MPIWorld:
    """This process's MPI world, joined if need be.

    Args:
        store: shared by all ranks; None under a launcher that gives rank and size.
        rank, size: of this process; -1 under such a launcher.
        host: where the others reach rank 0.
        timeout: how long to wait for the others.

    Raises: DistBackendError if MPI is missing, or this process belongs to another MPI world already.
    """
    if not _WORLD:
        _WORLD.append(_join(store, rank, size, host, timeout))
    found = _WORLD[0]
    if size >= 0 and (found.rank, found.size) != (rank, size):
        raise DistBackendError(
            f"this process is rank {found.rank} of {found.size} in its MPI world and cannot be rank {rank} of {size}: "
            "MPI can be initialized only once in a process"
        )
    if found.failed:
        raise DistBackendError("an operation failed in this process's MPI world; start the processes again")
    return found


def give_up() -> None:
    """After an exception that ends this process: it does not wait for the other ranks at its end."""
    for found in _WORLD:
        found.failed = True


def _join(store: Store | None, rank: int, size: int, host: str, timeout: timedelta) -> MPIWorld:
    given, connections = launched(), None
    found: MPIWorld | None = None
    MPI = library.imported()
    if (
        MPI.Is_initialized()
        and store is not None
        and (rank, size) != (MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size())
    ):
        raise DistBackendError(
            f"MPI was initialized in this process before it became rank {rank} of {size}, and can be initialized only "
            "once: something else used mpi4py.MPI"
        )
    if not MPI.Is_initialized():
        if store is not None and given != (rank, size):
            _check_library(MPI)
            connections = pmi.join(store, rank, size, host, timeout)
        if connections is not None:
            found = MPIWorld(None, (rank, size), connections)
            try:
                _wait(found, _Initialization(MPI), timeout)
            finally:
                for name in pmi.PMI_VARIABLES:  # processes that this one starts are not part of the world
                    os.environ.pop(name, None)
        else:
            MPI.Init_thread(MPI.THREAD_MULTIPLE)
    comm, copied = MPI.COMM_WORLD.Idup()
    if found is None:
        found = MPIWorld(None, (MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()), None)
    found.comm = comm
    _wait(found, copied, timeout)
    comm.Set_errhandler(MPI.ERRORS_RETURN)
    _wait(found, comm.Ibarrier(), timeout)
    _remove_names_of_shared_memory()
    return found


class _Initialization:
    """`MPI_Init_thread` in a thread, which releases Python's lock: it never returns if another rank ends meanwhile.

    mpi4py would keep the lock, so that nobody could notice.
    """

    def __init__(self, MPI: Any) -> None:
        self._call = ctypes.CDLL(MPI.__file__).MPI_Init_thread  # found in the MPI library, which that file is linked to
        self._level = MPI.THREAD_MULTIPLE
        self._thread = threading.Thread(target=self._run, name="tensorgrad-mpi-init", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._call(None, None, self._level, ctypes.byref(ctypes.c_int()))

    def Test(self) -> bool:
        """Whether it has returned."""
        return not self._thread.is_alive()


def _wait(found: MPIWorld, request: Any, timeout: timedelta) -> None:
    """Waits for the first operations of all ranks. Raises: DistBackendError if a rank ends, or it takes too long."""
    end = time.monotonic() + timeout.total_seconds()
    while not request.Test():
        gone, late = sorted(found.gone() - {found.rank}), time.monotonic() > end
        if gone or late:
            found.failed = True
            _remove_names_of_shared_memory()
            what = f"{ranks_named(gone)} ended" if gone else f"it took more than {timeout.total_seconds():g} seconds"
            raise DistBackendError(f"rank {found.rank} of {found.size} could not join the MPI world: {what}")
        time.sleep(1e-4)


def _remove_names_of_shared_memory() -> None:
    """MPICH's, once all ranks have mapped it, or will not. Without a name it is freed with the last process."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:  # not Linux: MPI removes it at its orderly end
        return
    for name in set(re.findall(r"/dev/shm/mpich_shm_\w+", maps)):
        with contextlib.suppress(OSError):  # another rank was faster
            os.unlink(name)


def _check_library(MPI: Any) -> None:
    """Raises: DistBackendError unless the MPI library can be joined through a PMI-1 server."""
    version = MPI.Get_library_version()
    if not any(name in version for name in ("MPICH", "Intel(R) MPI", "MVAPICH", "CRAY")):
        raise DistBackendError(
            f"{version.splitlines()[0].strip()} cannot be joined without its launcher: start the program by mpiexec, "
            "or install MPICH (pip install mpich)"
        )
