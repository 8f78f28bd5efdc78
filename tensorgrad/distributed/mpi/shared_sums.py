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
LAYOUTS = 256  # that are kept
BYTES = np.dtype(np.uint8)
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
        memory = [part[PAGE:].reshape(SLOTS, CHUNK) for part in parts]
        self._typed = {
            dtype: [[slots[number].view(dtype) for slots in memory] for number in range(SLOTS)]
            for dtype in (np.dtype(np.float32), np.dtype(np.float64), BYTES)
        }
        self._steps[self.rank][0] = 0
        self._window.Sync()
        comm.Barrier()
        self._chunks = 0  # how many there ever were
        self._layouts: dict[Any, list[_Chunk]] = {}  # of the arrays so far: buckets and buffers come again and again
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

    def _chunks_of(self, arrays: list[np.ndarray], dtype: np.dtype) -> list[_Chunk]:
        """Flat arrays, laid end to end, divided into chunks."""
        lengths = [array.size for array in arrays]
        key = (dtype, *lengths)
        chunks = self._layouts.get(key)
        if chunks is None:
            if len(self._layouts) == LAYOUTS:
                self._layouts.clear()
            slots = self._typed[dtype]
            chunks = self._layouts[key] = [_Chunk(cuts, lengths, slots) for cuts in _divided(lengths, slots[0][0].size)]
        return chunks

    def _moves(self, arrays: list[np.ndarray], factor: float) -> Iterator[None]:
        """The work on some arrays. It pauses where it has to wait for another rank."""
        dtype, me = arrays[0].dtype, self.rank
        scale, two = dtype.type(factor), self.size == 2
        for chunk in self._chunks_of(arrays, dtype):
            number, self._chunks = self._chunks, self._chunks + 1
            written = STEPS * number + 1
            pieces, slot = chunk.pieces(arrays), number % SLOTS
            own = chunk.parts(slot, me)
            while not self._reached(written - 1 - STEPS * (SLOTS - 1)):  # all have read what was in this slot
                yield
            if two:
                for piece, part in zip(pieces, own):
                    np.multiply(piece, scale, out=piece)
                    part[...] = piece
            else:
                for piece, part in zip(pieces, own):
                    np.multiply(piece, scale, out=part)
            self._announce(written)
            while not self._reached(written):
                yield
            if two:  # then to wait once more takes longer than to add up everything twice
                for piece, part in zip(pieces, chunk.parts(slot, 1 - me)):
                    np.add(piece, part, out=piece)  # which is in the core's cache; the own slot is being read, so slow
            else:
                slots, length = self._typed[dtype][slot], chunk.length
                bounds = [length * rank // self.size for rank in range(self.size + 1)]
                mine = slice(bounds[me], bounds[me + 1])
                total = np.add(slots[0][mine], slots[1][mine])  # in the order of ranks, whoever adds up: same bits
                for values in slots[2:]:
                    np.add(total, values[mine], out=total)
                slots[me][mine] = total
                self._announce(written + 1)
                while not self._reached(written + 1):
                    yield
                for piece, start in zip(pieces, chunk.starts):
                    for rank, values in enumerate(slots):
                        low, high = max(start, bounds[rank]), min(start + piece.size, bounds[rank + 1])
                        if low < high:
                            np.copyto(piece[low - start : high - start], values[low:high])
            self._announce(written + 2)

    def _copies(self, arrays: list[np.ndarray], root: int) -> Iterator[None]:
        """The work on arrays of which one rank has the values. That rank need not wait until the others have read."""
        for chunk in self._chunks_of(arrays, BYTES):
            number, self._chunks = self._chunks, self._chunks + 1
            written, pieces, parts = STEPS * number + 1, chunk.pieces(arrays), chunk.parts(number % SLOTS, root)
            if self.rank == root:
                while not self._reached(written - 1 - STEPS * (SLOTS - 1)):  # all have read what was in this slot
                    yield
                for piece, part in zip(pieces, parts):
                    part[...] = piece
            else:
                while self._steps[root][0] < written:
                    self._window.Sync()
                    yield
                self._window.Sync()
                for piece, part in zip(pieces, parts):
                    piece[...] = part
            self._announce(written + 2)


class _Chunk:
    """What of some arrays is in a slot at one time: pieces of them, and where each of them is in the slots."""

    __slots__ = ("_cuts", "_everything", "_parts", "_slots", "length", "starts")

    def __init__(self, cuts: list[tuple[int, int, int]], lengths: list[int], slots: list[list[np.ndarray]]) -> None:
        """Cuts are (which array, first element, end); `slots` the ranks' memory, of each number."""
        self._cuts, self._slots, self.starts = cuts, slots, [0]
        self._everything = cuts == [(index, 0, length) for index, length in enumerate(lengths)]
        for _, first, end in cuts:
            self.starts.append(self.starts[-1] + end - first)
        self.length = self.starts.pop()
        self._parts: dict[tuple[int, int], list[np.ndarray]] = {}

    def pieces(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """The pieces of arrays that have the lengths for which this was made."""
        return arrays if self._everything else [arrays[index][first:end] for index, first, end in self._cuts]

    def parts(self, slot: int, rank: int) -> list[np.ndarray]:
        """The pieces' places in a rank's slot."""
        found = self._parts.get((slot, rank))
        if found is None:
            memory, ends = self._slots[slot][rank], [*self.starts[1:], self.length]
            found = self._parts[slot, rank] = [memory[start:end] for start, end in zip(self.starts, ends)]
        return found


def _divided(lengths: list[int], size: int) -> list[list[tuple[int, int, int]]]:
    """Divides arrays of these lengths, laid end to end, into chunks of `size` elements: (array, first, end) in each."""
    chunks: list[list[tuple[int, int, int]]] = []
    room = 0
    for index, length in enumerate(lengths):
        first = 0
        while first < length:
            if not room:
                chunks.append([])
                room = size
            end = min(length, first + room)
            chunks[-1].append((index, first, end))
            first, room = end, room - (end - first)
    return chunks
