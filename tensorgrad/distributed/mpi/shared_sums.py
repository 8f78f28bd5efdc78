"""Sums and copies over the ranks of one machine, in memory that MPI lets them share (`MPI_Win_allocate_shared`)."""

from __future__ import annotations

import shutil
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from tensorgrad.system import forks

__all__ = ["SharedSum", "SharedSums", "room_for"]

CHUNK = 1 << 19  # bytes that are summed at a time: few enough for a core's cache to hold them until they are read again
SLOTS = 2  # chunks of each rank that are in the memory: one may be written while others still read the last one
STEPS = 3  # of each chunk: written, summed, read
PAGE = 4096  # bytes before the slots, which begin with the rank's number of steps


def room_for(ranks: int) -> bool:
    """Whether there is enough shared memory: some containers have little, and to use too much ends the process."""
    try:
        return shutil.disk_usage("/dev/shm").free > 2 * ranks * (PAGE + SLOTS * CHUNK)
    except OSError:
        return True  # not Linux: MPI's memory is elsewhere


class SharedSum:
    """A sum that has begun: a request like MPI's. It keeps the arrays alive."""

    __slots__ = ("_moves", "_owner", "arrays", "done")

    def __init__(self, owner: SharedSums, arrays: list[np.ndarray], moves: Iterator[None]) -> None:
        self._owner, self.arrays, self._moves, self.done = owner, arrays, moves, False

    def completed(self) -> bool:
        """Whether it is complete; a call makes progress."""
        return self.done or self._owner.advance(self)

    def advance(self) -> bool:
        """Goes on until it has to wait for another rank. Returns whether it is complete."""
        self.done = next(self._moves, self) is self
        return self.done


class SharedSums:
    """Memory that all ranks of a group see, in which they add up their arrays chunk by chunk.

    Every rank has two slots for its chunks. It writes a chunk into one of them, and when all have done so, adds up its
    own part of the chunk, in its slot. When that is done everywhere, it reads all parts. How many steps it has taken is
    written before its slots: a number that only grows.

    Ranks must begin the same sums in the same order, with as many elements of the same type.
    """

    def __init__(self, mpi: Any, comm: Any) -> None:
        """All ranks must call it. `comm` has only ranks that can share memory."""
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self._window = mpi.Win.Allocate_shared(PAGE + SLOTS * CHUNK, 1, comm=comm)
        self._window.Lock_all(mpi.MODE_NOCHECK)
        parts = [np.frombuffer(self._window.Shared_query(rank)[0], np.uint8) for rank in range(self.size)]
        self._steps = [part[:8].view(np.int64) for part in parts]
        self._slots = [part[PAGE:].reshape(SLOTS, CHUNK) for part in parts]
        self._typed = {
            dtype: [[slots[number].view(dtype) for slots in self._slots] for number in range(SLOTS)]
            for dtype in (np.dtype(np.float32), np.dtype(np.float64))
        }
        self._steps[self.rank][0] = 0
        self._window.Sync()
        comm.Barrier()
        self._chunks = 0  # how many there ever were
        self._begun: deque[SharedSum] = deque()
        self._lock = forks.adopt(threading.Lock())

    def start(self, arrays: list[np.ndarray], factor: float) -> SharedSum:
        """Replaces the elements of arrays by their sums over all ranks, each multiplied by a factor first.

        Args:
            arrays: contiguous, of the same dtype.
            factor: this rank's.
        """
        arrays = [array.reshape(-1) for array in arrays]
        begun = SharedSum(self, arrays, self._moves(arrays, factor))
        with self._lock:
            self._begun.append(begun)
        return begun

    def copy(self, arrays: list[np.ndarray], root: int) -> SharedSum:
        """Begins to replace the elements of arrays by those of one rank: a request like a sum's.

        Args:
            arrays: flat and contiguous, of bytes; as many on all ranks.
            root: whose.
        """
        begun = SharedSum(self, arrays, self._copies(arrays, root))
        with self._lock:
            self._begun.append(begun)
        return begun

    def advance(self, wanted: SharedSum) -> bool:
        """Moves the sums on, the first one first. Returns whether this one is complete."""
        if self._lock.acquire(blocking=False):  # else another thread moves them
            try:
                while self._begun and self._begun[0].advance():
                    self._begun.popleft()
            finally:
                self._lock.release()
        return wanted.done

    def _reached(self, step: int) -> bool:
        """Whether all ranks have come to a step."""
        self._window.Sync()
        return all([steps[0] >= step for steps in self._steps])

    def _announce(self, step: int) -> None:
        self._window.Sync()  # what was written before is seen before
        self._steps[self.rank][0] = step

    def _moves(self, arrays: list[np.ndarray], factor: float) -> Iterator[None]:
        """The work on some arrays. It pauses where it has to wait for another rank."""
        dtype = arrays[0].dtype
        scale, two = dtype.type(factor), self.size == 2
        for pieces, length in _chunks(arrays, CHUNK // dtype.itemsize):
            number, self._chunks = self._chunks, self._chunks + 1
            written = STEPS * number + 1
            slots = self._typed[dtype][number % SLOTS]
            own = slots[self.rank]
            while not self._reached(written - 1 - STEPS * (SLOTS - 1)):  # all have read what was in this slot
                yield
            for piece, start in pieces:
                if two:
                    np.multiply(piece, scale, out=piece)
                    own[start : start + piece.size] = piece
                else:
                    np.multiply(piece, scale, out=own[start : start + piece.size])
            self._announce(written)
            while not self._reached(written):
                yield
            if two:  # then to wait once more takes longer than to add up everything twice
                other = slots[1 - self.rank]
                for piece, start in pieces:  # which is still in the core's cache; the own slot is being read, so slow
                    np.add(piece, other[start : start + piece.size], out=piece)
            else:
                bounds = [length * rank // self.size for rank in range(self.size + 1)]
                part = slice(bounds[self.rank], bounds[self.rank + 1])
                for rank, values in enumerate(slots):
                    if rank != self.rank:
                        np.add(own[part], values[part], out=own[part])
                self._announce(written + 1)
                while not self._reached(written + 1):
                    yield
                for piece, start in pieces:
                    for rank, values in enumerate(slots):
                        low, high = max(start, bounds[rank]), min(start + piece.size, bounds[rank + 1])
                        if low < high:
                            np.copyto(piece[low - start : high - start], values[low:high])
            self._announce(written + 2)

    def _copies(self, arrays: list[np.ndarray], root: int) -> Iterator[None]:
        """The work on arrays of which one rank has the values. That rank need not wait until the others have read."""
        for pieces, _ in _chunks(arrays, CHUNK):
            number, self._chunks = self._chunks, self._chunks + 1
            written, slot = STEPS * number + 1, self._slots[root][number % SLOTS]
            if self.rank == root:
                while not self._reached(written - 1 - STEPS * (SLOTS - 1)):  # all have read what was in this slot
                    yield
                for piece, start in pieces:
                    slot[start : start + piece.size] = piece
            else:
                while self._steps[root][0] < written:
                    self._window.Sync()
                    yield
                self._window.Sync()
                for piece, start in pieces:
                    piece[...] = slot[start : start + piece.size]
            self._announce(written + 2)


def _chunks(arrays: list[np.ndarray], size: int) -> Iterator[tuple[list[tuple[np.ndarray, int]], int]]:
    """Divides flat arrays, laid end to end, into chunks: the pieces in each with their places, and its length."""
    pieces: list[tuple[np.ndarray, int]] = []
    length = 0
    for array in arrays:
        first = 0
        while first < array.size:
            piece = array[first : first + size - length]
            pieces.append((piece, length))
            first, length = first + piece.size, length + piece.size
            if length == size:
                yield pieces, length
                pieces, length = [], 0
    if pieces:
        yield pieces, length
