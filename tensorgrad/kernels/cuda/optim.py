"""Optimizer steps, the norm of all gradients, and loss scaling: one launch for all parameters.

These take lists of arrays, so they are not kernels of ops: `optim/elementwise.py`, `nn/utils/clip_grad.py` and
`amp/grad_scaler.py` look them up by name (`device_kernel` in `rows/kernel_tables.py`). Nothing here waits for the GPU.
"""

from __future__ import annotations

import struct
from functools import lru_cache, partial
from threading import get_ident
from typing import Any

import cupy
import numpy as np

from tensorgrad.kernels.cuda.runtime import launch, program
from tensorgrad.storage.cuda.capture import RUNNING, current

PIECE, THREADS = 16384, 256  # elements per block, as in sources/optim.cu
ARRAYS = 5  # arrays per job in that file


def dense(a) -> bool:
    """Returns whether an array fills its memory without gaps, in any order of its dimensions."""
    if a.flags.c_contiguous:
        return True
    stride = a.itemsize
    for step, n in sorted(zip(a.strides, a.shape, strict=True)):
        if n != 1 and step != stride:
            return False
        stride *= n
    return True


def in_step(a, b) -> bool:
    """Returns whether two dense arrays of one shape have their elements in the same order."""
    return a.strides == b.strides or (a.flags.c_contiguous and b.flags.c_contiguous)


def together(arrays: Any) -> bool:
    """Returns whether arrays (or None) can be one job: of one shape, dtype, GPU and order, without gaps."""
    first = arrays[0]
    if first.__class__ is not cupy.ndarray or program.NAME[first.dtype] not in program.NUMBER or not dense(first):
        return False
    return all(a is None or (alike(a, first) and in_step(a, first)) for a in arrays[1:])


def alike(a, b) -> bool:
    """Returns whether an array has the shape and dtype of `b` and is on the same GPU."""
    return (
        a.__class__ is cupy.ndarray
        and a.dtype == b.dtype
        and a.shape == b.shape
        and a.data.device_id == b.data.device_id
    )


def _jobs(sizes: tuple, addresses: list[tuple], steps: tuple) -> tuple[np.ndarray, int]:
    """Returns the table of jobs and their number of blocks."""
    places = np.array(addresses, np.int64)
    table = np.zeros((len(sizes), ARRAYS + 3), np.int64)
    table[:, : places.shape[1]] = places
    table[:, ARRAYS] = sizes
    ends = np.cumsum(-(-table[:, ARRAYS] // PIECE))
    table[1:, ARRAYS + 1] = ends[:-1]
    if steps:
        table[:, ARRAYS + 2] = steps
    return table, int(ends[-1])


class _Table:
    """Jobs in the GPU's memory, whose gradients differ from step to step: a launch tells it their addresses.

    (Copying a table takes ten times as long. A launch carries 4 KiB of arguments.)
    """

    def __init__(self, sizes: tuple, addresses: list[tuple], steps: tuple):
        jobs, self.blocks = _jobs(sizes, addresses, steps)
        self.memory = cupy.asarray(jobs)
        self.known: tuple = ()  # the addresses of the gradients that it has

    def tell(self, gradients: tuple, column: int, dtype: str) -> None:
        """Puts the gradients' addresses into a column of the jobs."""
        if gradients == self.known:
            return
        self.known = ()  # an error or an interrupt may end this half-way
        function = program.function("optim", "tell", dtype)
        for first in range(0, len(gradients), TOLD):
            some = gradients[first : first + TOLD]
            packed = struct.pack(f"{len(some)}Q", *some).ljust(8 * TOLD, b"\0")
            fields = launch.record(np.frombuffer(packed, ADDRESSES).reshape(()))
            numbers = np.int32(first), np.int32(len(some)), np.int32(column)
            function((-(-len(some) // THREADS),), (THREADS,), (self.memory, *numbers, fields))
        self.known = gradients


TOLD = 448  # addresses per launch, as in sources/optim.cu
ADDRESSES = np.dtype([("at", np.uint64, TOLD)])


@lru_cache(maxsize=64)
def _table(sizes: tuple, fixed: tuple, steps: tuple, arrays: int, device: int, stream: int, thread: int) -> _Table:
    """Returns the table of jobs of so many arrays, of which all but the gradients are at `fixed` addresses.

    Each thread has its own: between telling it addresses and the launch that reads it there may be another's.
    """
    others = arrays - 1
    rows = [(0,)] if not others else [fixed[i : i + others] for i in range(0, len(fixed), others)]
    if not others:
        return _Table(sizes, rows * len(sizes), steps)
    return _Table(sizes, [(row[0], 0, *row[1:]) for row in rows], steps)


class _Launch:
    """The jobs of one launch: lists of arrays of one dtype on one GPU, the gradient alone or after the parameter.

    `steps`: each job's number of steps, there. `skip`: what prevents the launch on the GPU, or None.
    """

    def __init__(self, jobs: list, steps: tuple = (), skip=None):
        first = jobs[0][0]
        self.skip = skip
        self.dtype, self.device = program.NAME[first.dtype], first.device
        arrays = len(jobs[0])
        column = int(arrays > 1)
        with self.device:
            sizes = tuple([job[0].size for job in jobs])
            steps = tuple([step.data.ptr for step in steps])
            if RUNNING and (capture := current()) is not None:
                whole, self.blocks = _jobs(sizes, [tuple([a.data.ptr for a in job]) for job in jobs], steps)
                self.memory, self.tell = capture.constant(whole), None
            else:
                fixed = tuple([a.data.ptr for job in jobs for i, a in enumerate(job) if i != column])
                where = self.device.id, cupy.cuda.get_current_stream().ptr, get_ident()
                table = _table(sizes, fixed, steps, arrays, *where)
                gradients = tuple([job[column].data.ptr for job in jobs])
                self.memory, self.blocks = table.memory, table.blocks
                self.tell = partial(table.tell, gradients, column, self.dtype)
        self.count = np.int32(len(jobs))
        self.number = program.NUMBER[self.dtype]

    def __call__(self, name: str, *arguments) -> None:
        with self.device:
            if self.skip is not None:
                name, arguments = f"{name}_unless", (self.skip, *arguments)
            self._run(name, self.blocks, arguments)

    def count_steps(self, skip) -> None:
        """Counts a step of each job."""
        with self.device:
            self._run("count_steps", -(-int(self.count) // THREADS), (skip,))

    def _run(self, name: str, blocks: int, arguments: tuple) -> None:
        if self.tell is not None:  # only now: another launch, of another dtype, may have the same table
            self.tell()
        program.function("optim", name, self.dtype)((blocks,), (THREADS,), (self.memory, self.count, *arguments))


def _launches(arrays: list) -> list[_Launch]:
    """Groups single arrays into launches by dtype and GPU; empty arrays are left out."""
    groups: dict[Any, list] = {}
    for a in arrays:
        if a.size:
            groups.setdefault((program.NAME[a.dtype], a.data.device_id), []).append((a,))
    return [_Launch(jobs) for jobs in groups.values()]


# --- steps -----------------------------------------------------------------------------------------------------------


class Step:
    """An optimizer's update, with the interface of a row of the CPU's compiled kernels (kernels/compiled/table.py)."""

    def __init__(self, update, counted=None):
        self.update, self.counted = update, counted

    def takes(self, x, arrays) -> bool:
        """Returns whether the kernel supports a parameter with these arrays of gradient and state."""
        dtype, shape, strides, device = x.dtype, x.shape, x.strides, x.data.device_id
        if x.__class__ is not cupy.ndarray or program.NAME[dtype] not in program.NUMBER:
            return False
        if not x._c_contiguous and not dense(x):
            return False
        for i, a in enumerate(arrays):
            if a is None:
                continue
            if a.__class__ is not cupy.ndarray or a.dtype != dtype or a.shape != shape or a.data.device_id != device:
                return False
            if i and a.strides != strides and not in_step(a, x):  # the gradient may be copied
                return False
        return True

    def ready(self, arrays: list, scalars: list, skip=None) -> tuple:
        """Updates parameters. `arrays`: one after another, each parameter's, its gradient's and those of its state.

        `skip`: a float32 scalar on the GPU that prevents it unless it is 0; only for SGD. Returns which are left: none.
        """
        groups: dict[Any, list] = {}
        width = len(arrays) // len(scalars)
        for n, numbers in enumerate(scalars):
            x, g, *state = arrays[n * width : (n + 1) * width]
            job = [x, _laid(g, x), *(a for a in state if a is not None)]
            if x.size:
                groups.setdefault((numbers, len(job), program.NAME[x.dtype], x.data.device_id), []).append(job)
        for (numbers, *_), jobs in groups.items():
            self.update(_Launch(jobs, skip=skip), len(jobs[0]), numbers)
        return ()

    def ready_on_device(self, moves: list, group: dict, skip) -> None:
        """Updates the parameters of a list of (parameter, [gradient and state arrays], number of steps).

        What changes from step to step is in the GPU's memory: the numbers of steps, and, if they are arrays, the
        group's learning rate and whether to `skip` the step (else None).
        """
        groups: dict[Any, list] = {}
        for x, arrays, step in moves:
            job = [x, _laid(arrays[0], x), *(a for a in arrays[1:] if a is not None)]
            if x.size:
                groups.setdefault((len(job), program.NAME[x.dtype], x.data.device_id), []).append((job, step))
            else:
                step += 1
        for (arrays, *_), jobs in groups.items():
            made = _Launch([job for job, _ in jobs], tuple([step for _, step in jobs]))
            skipped = _address(skip)
            made.count_steps(skipped)
            self.counted(made, arrays, group, skipped)


def _address(scalar) -> Any:
    """Returns a float32 scalar on the GPU as an argument of a kernel, or that for none."""
    return np.uint64(0) if scalar is None else scalar


def _laid(g, x):
    """Returns a gradient in its parameter's memory order: copied if it differs, as for a transposed weight."""
    if in_step(g, x):
        return g
    with x.device:
        made = cupy.empty_like(x)
        made[...] = g
    return made


def _sgd(made: _Launch, arrays: int, n: Any) -> None:
    number = made.number
    step = number(n.lr), number(n.decay or 0), number(-1 if n.maximize else 1)
    if arrays == 2:
        made("sgd", *step)
    else:
        take = 1 if n.take is None else n.take
        made("sgd_momentum", *step, number(n.momentum), number(take), np.bool_(n.first), np.bool_(n.nesterov))


def _adam(made: _Launch, arrays: int, n: Any) -> None:
    shrink, sign = 1 if n.shrink is None else n.shrink, -1 if n.maximize else 1
    given = n.rate, n.eps, shrink, n.decay or 0, n.take1, n.beta2, n.take2, sign
    made("adam" if arrays == 4 else "adam_amsgrad", *map(made.number, given))


def _adam_counted(made: _Launch, arrays: int, group: dict, skip: Any) -> None:
    rate, lr = (None, group["lr"]) if group["lr"].__class__ is not cupy.ndarray else (group["lr"], 0.0)
    given = [np.float64(v) for v in (lr, *group["betas"], group["eps"], group["weight_decay"])]
    sign = made.number(-1 if group["maximize"] else 1)
    name = "adam_counted" if arrays == 4 else "adam_amsgrad_counted"
    made(name, skip, _address(rate), *given, np.bool_(group["decoupled_weight_decay"]), sign)


sgd, adam = Step(_sgd), Step(_adam, _adam_counted)


# --- all gradients together ------------------------------------------------------------------------------------------


def _ended(device: int):
    """Returns the counter of finished blocks, 0 between launches; launches on one stream run in order."""
    if RUNNING and current() is not None:
        return cupy.zeros(1, np.uint32)
    return _counter(device, cupy.cuda.get_current_stream().ptr)


@lru_cache
def _counter(device: int, stream: int):
    return cupy.zeros(1, np.uint32)


def _served(arrays: list, dtype: np.dtype, device: int) -> bool:
    """Returns whether each array is a job by itself, of this dtype and GPU."""
    if program.NAME[dtype] not in program.NUMBER:
        return False
    for a in arrays:
        if a.__class__ is not cupy.ndarray or a.dtype != dtype or a.data.device_id != device:
            return False
        if not a._c_contiguous and not dense(a):
            return False
    return True


def norm(arrays: list):
    """Computes the Euclidean norm of all arrays as one vector, on the GPU; all are of one dtype there."""
    first = arrays[0]
    if first.__class__ is not cupy.ndarray or not _served(arrays, first.dtype, first.data.device_id):
        return NotImplemented
    with first.device:
        out = cupy.zeros((), first.dtype)
        for each in _launches(arrays):
            ended = _ended(each.device.id)
            each("total_norm", cupy.empty(each.blocks, np.float64), ended, out)
    return out


def clip(arrays: list, total, limit: float):
    """Scales arrays in place, whose norm is `total` (on the same GPU), so that it is at most `limit`."""
    if total.__class__ is not cupy.ndarray or not total.flags.c_contiguous:
        return NotImplemented
    if not _served(arrays, total.dtype, total.data.device_id):
        return NotImplemented
    for each in _launches(arrays):
        each("clip", total, each.number(limit))
    return None


def unscale(arrays: list, inverse, found):
    """Multiplies arrays of one GPU in place by `inverse`; `found` becomes 1 if any contains an infinity or NaN.

    Both are float32 scalars on that GPU.
    """
    if not all(together([a]) for a in arrays):
        return NotImplemented
    for each in _launches(arrays):
        each("unscale", inverse, found)
    return None


def rescale(scale, steps, found, growth: float, backoff: float, interval: int):
    """Updates the loss scale and the number of steps since it grew, in place, from what `unscale` found."""
    arguments = scale, steps, found, np.float32(growth), np.float32(backoff), np.int32(interval)
    with scale.device:
        program.function("optim", "rescale")((1,), (1,), arguments)
