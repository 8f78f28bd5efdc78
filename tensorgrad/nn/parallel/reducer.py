"""`Reducer`: averages gradients over processes, bucket by bucket, while the backward pass goes on."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from sys import getrefcount
from typing import Any

import numpy as np

import tensorgrad as torch
from tensorgrad.autograd.engine import ALONE_IN_SLOT, reachable
from tensorgrad.autograd.passes import queue_callback
from tensorgrad.autograd.views import edge_of
from tensorgrad.distributed import collectives
from tensorgrad.distributed.collectives.reductions import start_all_reduce, start_sums, sums_in_place
from tensorgrad.distributed.grad_bucket import GradBucket
from tensorgrad.system.processors import processors
from tensorgrad.tensor import share

__all__ = ["Reducer", "assign_buckets"]

PRODUCED_BY_NONE = (
    "Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that "
    "your module has parameters that were not used in producing loss. You can enable unused parameter detection by "
    "passing the keyword argument `find_unused_parameters=True` to `torch.nn.parallel.DistributedDataParallel`, and by "
    "\nmaking sure all "
    "`forward` function outputs participate in calculating loss. \nIf you already have done the above, "
    "then the distributed data parallel module wasn't able to locate the output tensors in the return value of your "
    "module's `forward` function. Please include the loss function and the structure of the return value of `forward` "
    "of your module when reporting this issue (e.g. list, dict, iterable)."
)

CHANGED = (
    "Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that "
    "your training graph has changed in this iteration, e.g., one parameter is used in first iteration, but then got "
    "unused in the second iteration. this is not compatible with static_graph set to True."
)


def assign_buckets(parameters: list[Any], order: Iterable[int], limits: list[int]) -> list[list[int]]:
    """Groups parameters of the same dtype and device, in the given order.

    Args:
        parameters: all of them.
        order: their indices, in the order wanted.
        limits: how many bytes fill the first bucket, the second, ...; the last one counts for all that follow.

    Returns:
        The indices of each bucket.
    """
    open_ones: dict[Any, tuple[list[int], int]] = {}
    closed: dict[Any, int] = {}
    buckets: list[list[int]] = []
    for index in order:
        parameter = parameters[index]
        key = (parameter.dtype, parameter.device)
        members, size = open_ones.get(key, ([], 0))
        if not members:
            buckets.append(members)
        members.append(index)
        size += parameter.numel() * parameter.element_size()
        if size >= limits[min(closed.get(key, 0), len(limits) - 1)]:
            closed[key] = closed.get(key, 0) + 1
            members, size = [], 0
        open_ones[key] = (members, size)
    return buckets


class _Bucket:
    """Some parameters whose gradients travel together, and the flat buffer in which they do."""

    def __init__(self, indices: list[int], parameters: list[Any]) -> None:
        self.indices, self.parameters = indices, parameters
        self.size = sum(p.numel() for p in parameters)
        self.pending = len(indices)
        self.future: Any = None
        self.memory: Any = None  # the buffer's array
        self.buffer: Any = None
        self.views: list[Any] = []
        self.grads: list[Any] = [None] * len(indices)  # that are added up where they are, without a buffer
        first = parameters[0]._array
        self.in_place = False  # whether that is so in this pass
        self.addable = first.__class__ is np.ndarray and first.dtype in (np.float32, np.float64)

    def flat(self, make: Callable[..., Any]) -> Any:
        """A tensor as large as the gradients: `make` is torch.empty or torch.zeros."""
        return make(self.size, dtype=self.parameters[0].dtype, device=self.parameters[0].device)

    def renew(self) -> None:
        """Takes a new buffer, or the former one again if no gradient is in it any more."""
        if self.memory is None or getrefcount(self.memory) > ALONE_IN_SLOT:
            self.memory = self.flat(torch.empty)._array
        self.buffer, start, self.views = share(self.memory, None), 0, []
        array = self.memory
        if array.__class__ is not np.ndarray:
            parts = self.buffer.split([p.numel() for p in self.parameters])
            self.views = [part.view(p.shape) for part, p in zip(parts, self.parameters)]
            return
        for parameter in self.parameters:
            own = parameter._array
            self.views.append(share(array[start : start + own.size].reshape(own.shape), None))
            start += own.size


class Reducer:
    """Watches when the gradients of a model's parameters are ready, and averages them over a group.

    Every process starts the buckets in the same order. The first backward pass uses one bucket; after it, buckets are
    made in the order in which rank 0's gradients became ready (Li et al., "PyTorch Distributed", 2020).

    On one machine, the processes add up gradients where they are, through memory that they share. Otherwise a gradient
    is copied once, into its bucket. After the pass the parameter's `.grad` is that part of the bucket, whose
    memory is used again when nothing refers to it any more. Only a `.grad` from before the pass stays the same tensor,
    and receives the values. With `as_views`, buckets always keep their memory.

    If the graph is static, the first pass only counts how often each gradient is added to, and communicates at its end.
    Later passes know when a gradient is complete.
    """

    def __init__(
        self, parameters: list[Any], names: list[str], group: Any, limits: list[int], find_unused: bool, as_views: bool
    ) -> None:
        self.parameters, self.names, self.group, self.limits = parameters, names, group, limits
        self.find_unused, self.as_views, self.static = find_unused, as_views, False
        self.hook: tuple[Any, Callable[..., Any]] | None = None
        self.divisor: float = group.size()
        self.in_place: bool | None = None  # whether processes add up gradients where they are; None: not known yet
        self.idle = False  # whether there are processors for threads that communicate; else they would be in the way
        self.expecting = self.unfinished = self.rebuilt = False
        self.passes = 0
        self.marked: set[int] = set()
        self.unused: list[int] = []
        self.arrived: list[int] = []  # in which order gradients became ready
        self.counts: dict[int, int] = {}  # of a static graph: how often each is added to; the last to arrive comes last
        self.left: dict[int, int] = {}
        self.before: list[int] = []  # the identities of the gradients before a pass
        self.next_bucket = 0
        self.used_here: set[int] = set()
        self.used: Any = None  # for each parameter, in how many processes it got a gradient
        self.used_work: Any = None
        self.nowhere: set[int] = set()  # the parameters without a gradient in all processes
        every = range(len(parameters))
        groups = (
            assign_buckets(parameters, every, limits) if find_unused else assign_buckets(parameters, every, [2**62])
        )
        self._make(list(reversed(groups)))
        here = weakref.ref(self)  # parameters live longer than a wrapper that is dropped
        handles = [p.register_post_accumulate_grad_hook(_hook(here, index)) for index, p in enumerate(parameters)]
        self.remove_hooks = weakref.finalize(self, _remove, handles)

    def _make(self, groups: list[list[int]]) -> None:
        self.buckets = [_Bucket(indices, [self.parameters[i] for i in indices]) for indices in groups]
        self.places = {index: (b, slot) for b in self.buckets for slot, index in enumerate(b.indices)}
        if self.as_views:
            with torch.no_grad():
                for bucket in self.buckets:
                    bucket.renew()

    def set_static_graph(self) -> None:
        """Expects the same parameters in each pass, each used as often. Raises: RuntimeError after the first pass."""
        if self.passes or self.expecting:
            raise RuntimeError(
                "set_static_graph() should be called before training loop starts and after DistributedDataParallel is "
                "constructed."
            )
        self.static = True

    def _counts_use(self) -> bool:
        """Whether processes tell each other which parameters got a gradient, so that others keep none."""
        return not self.counts if self.static else self.find_unused

    def check_finished(self) -> None:
        """Raises: RuntimeError if some parameters got no gradient in the last backward pass."""
        if self.unfinished:
            missing = [i for i in range(len(self.parameters)) if i not in self.marked]
            reason = CHANGED if self.static else PRODUCED_BY_NONE
            raise RuntimeError(
                f"{reason}\nParameter indices which did not receive grad for rank {self.group.rank()}: "
                f"{' '.join(map(str, missing))} ({', '.join(self.names[i] for i in missing)})"
            )

    def rebuild(self) -> bool:
        """Makes the buckets again, once, in the order of the first backward pass. Returns whether it did."""
        self.check_finished()
        if self.rebuilt or (self.find_unused and not self.static) or len(self.arrived) != len(self.parameters):
            return False
        order = torch.tensor(self.arrived, device="cpu")
        collectives.broadcast(order, group=self.group, group_src=0)
        self._make(assign_buckets(self.parameters, order.tolist(), self.limits))
        self.rebuilt = True
        return True

    def prepare_for_backward(self, outputs: list[Any]) -> None:
        """Expects a backward pass through these outputs; none are needed unless unused parameters are looked for."""
        self.check_finished()
        self.expecting = True
        self.marked, self.unused, self.arrived = set(), [], []
        self.before = [id(parameter._grad) for parameter in self.parameters]
        self._reset_buckets()
        if self.static:
            self.left = dict(self.counts)
            self.unused = [i for i in range(len(self.parameters)) if i not in self.left] if self.left else []
        elif self.find_unused:
            edges = [edge for edge in map(edge_of, outputs) if edge is not None]
            used = reachable(edge[0] for edge in edges)
            self.unused = [i for i, p in enumerate(self.parameters) if p not in used]

    def begin_pass(self) -> None:
        """Called when a backward pass comes to the outputs. (Gradients may arrive in passes within it.)"""
        if self.expecting and self.static and not self.counts:
            self.unfinished = True
            counts: dict[int, int] = {}
            self.left = counts
            queue_callback(lambda: self._end_first_pass(counts))

    def _end_first_pass(self, counts: dict[int, int]) -> None:
        """Takes all gradients of the first pass of a static graph."""
        for index in [*counts, *(i for i in range(len(self.parameters)) if i not in counts)]:
            self.arrived.append(index)
            self._mark(index)

    def ready(self, index: int) -> None:
        """Takes a parameter's gradient into its bucket, and starts the buckets that are full."""
        if (self.static or self.find_unused) and self._counts_use() and self.parameters[index]._grad is not None:
            self.used_here.add(index)
        if not self.expecting:
            return
        if self.static:
            if not self.counts:
                self.left[index] = self.left.pop(index, 0) + 1
                return
            left = self.left[index] = self.left.get(index, 0) - 1
            if left < 0:
                raise RuntimeError(
                    "Your training graph has changed in this iteration, e.g., one parameter is unused in first "
                    "iteration, but then got used in the second iteration. this is not compatible with static_graph "
                    f"set to True. (Parameter at index {index} with name {self.names[index]})"
                )
            if left:
                return
        if not self.unfinished:
            self.unfinished = True
            for other in self.unused:
                self._mark(other)
        self.arrived.append(index)
        self._mark(index)

    def _mark(self, index: int) -> None:
        if index in self.marked:
            raise RuntimeError(
                "Expected to mark a variable ready only once. This error is caused by one of the following reasons: 1) "
                "Use of a module parameter outside the `forward` function. 2) Reused parameters in multiple reentrant "
                f"backward passes. Parameter at index {index} with name {self.names[index]} has been marked as ready "
                "twice."
            )
        self.marked.add(index)
        bucket, slot = self.places[index]
        if bucket.in_place and not self.as_views:
            bucket.grads[slot] = _dense(self.parameters[index])
        else:
            if bucket.pending == len(bucket.indices) and not self.as_views:
                bucket.renew()
            scale = 1.0 if bucket.in_place or self.hook is not None else 1.0 / self.divisor
            self._fill(bucket.views[slot], self.parameters[index], scale)
        bucket.pending -= 1
        while self.next_bucket < len(self.buckets) and not self.buckets[self.next_bucket].pending:
            self._start(self.next_bucket)
            self.next_bucket += 1
            if self.next_bucket == len(self.buckets):
                if self._counts_use():
                    used = [int(i in self.used_here) for i in range(len(self.parameters))]
                    self.used = torch.tensor(used, device="cpu")
                    self.used_work = collectives.all_reduce(self.used, group=self.group, async_op=True)
                queue_callback(self._finish)

    def _reset_buckets(self) -> None:
        """Before the gradients of a pass: nothing of it is in the buckets yet."""
        self.next_bucket = 0
        for bucket in self.buckets:
            bucket.pending, bucket.future = len(bucket.indices), None
            bucket.in_place = bool(self.in_place) and bucket.addable and self.hook is None

    def decide(self) -> None:
        """Finds out how to add up, once. All processes must come here: at the start, or at the end of a pass."""
        if self.in_place is None and self.hook is None and any(bucket.addable for bucket in self.buckets):
            self.in_place = sums_in_place(self.group)
            self.idle = processors() > self.group.size() * torch.get_num_threads()

    def _fill(self, view: Any, parameter: Any, scale: float) -> None:
        """Writes a gradient, multiplied by `scale`, into its bucket."""
        grad, own = parameter._grad, view._array
        if grad is None:
            with torch.no_grad():
                view.zero_()
            return
        if own.__class__ is np.ndarray and own.dtype.kind == "f" and grad._array.dtype == own.dtype:
            if grad is not view or scale != 1.0:
                np.multiply(grad._array, own.dtype.type(scale), out=own)
        else:
            with torch.no_grad():
                if grad is not view:
                    view.copy_(grad.detach())
                if scale != 1.0:
                    view.mul_(scale)
        if self.as_views:
            view._storage.bump()
            parameter._grad = view

    def _start(self, index: int) -> None:
        bucket = self.buckets[index]
        bucket.future = self._combine(index, bucket.grads if bucket.buffer is None else [bucket.buffer])

    def _combine(self, index: int, parts: list[Any]) -> Any:
        """Begins to combine the gradients of a bucket over the group. Returns what can be waited for.

        `parts` are the gradients, or the one buffer that they are in.
        """
        bucket, last = self.buckets[index], index == len(self.buckets) - 1
        if bucket.in_place:
            arrays = [part._array for part in parts]
            return start_sums(arrays, 1.0 / self.divisor, self.group, watched=self.idle and not last)
        [buffer] = parts
        if self.hook is None:  # for the last bucket, the end of the pass waits soon
            return start_all_reduce(buffer, group=self.group, watched=not last)
        state, hook = self.hook
        shapes = [p.shape for p in bucket.parameters]
        return hook(state, GradBucket(index, buffer, shapes, bucket.parameters, last))

    def contribute_zeros(self) -> None:
        """Takes part in a backward pass of the other processes, with gradients of zero; this one's do not change."""
        self._reset_buckets()
        with torch.no_grad():
            futures = [self._combine(index, [b.flat(torch.zeros)]) for index, b in enumerate(self.buckets)]
            if self._counts_use():
                unused = torch.zeros(len(self.parameters), dtype=torch.int64, device="cpu")
                collectives.all_reduce(unused, group=self.group)
            for future in futures:
                future.wait()
        self.decide()
        self.arrived = self.arrived or list(range(len(self.parameters)))  # the next forward pass rebuilds the buckets

    def _finish(self) -> None:
        """Waits for all buckets, and gives the parameters their averaged gradients."""
        with torch.no_grad():
            for bucket in self.buckets:
                result = bucket.future.wait()
                if self.hook is not None:
                    result = result[0] if isinstance(result, list | tuple) else result
                    if result is not bucket.buffer:
                        bucket.buffer.copy_(result.view(-1))
                bucket.future = None
            if self.used_work is not None:
                self.used_work.wait()
                self.nowhere = {i for i, n in enumerate(self.used.tolist()) if not n}
                self.used_work = None
            if self.static and not self.counts:
                self.counts = self.left
            for bucket in self.buckets:
                grads = bucket.grads if bucket.buffer is None else bucket.views
                for index, parameter, grad in zip(bucket.indices, bucket.parameters, grads):
                    if index not in self.nowhere:
                        self._give(index, parameter, grad)
                bucket.grads = [None] * len(bucket.indices)
                if not self.as_views:
                    bucket.buffer, bucket.views = None, []
            self.decide()
        self.used_here = set()
        self.passes += 1
        self.expecting = self.unfinished = False

    def _give(self, index: int, parameter: Any, view: Any) -> None:
        """Makes a tensor, which may be a part of a bucket, the gradient of a parameter."""
        grad = parameter._grad
        if self.as_views:
            parameter._grad = view
        elif grad is view:
            if grad._memory is not None:
                grad._memory.bump()
        elif grad is not None and (id(grad) == self.before[index] or grad._array.strides != view._array.strides):
            grad.detach().copy_(view)  # it was there before, or is in the memory order of a transposed parameter
        else:
            parameter._grad = view


def _dense(parameter: Any) -> Any:
    """A parameter's gradient if its memory can be added to, else a copy; zeros if there is none."""
    grad, own = parameter._grad, parameter._array
    if grad is None:
        return torch.zeros(own.shape, dtype=parameter.dtype)
    array = grad._array
    if array.__class__ is np.ndarray and array.dtype == own.dtype and array.flags.carray and not grad._requires_grad:
        return grad
    with torch.no_grad():
        return torch.empty(own.shape, dtype=parameter.dtype).copy_(grad.detach())


def _hook(reducer: weakref.ref[Reducer], index: int) -> Callable[[Any], None]:
    def on_gradient(parameter: Any) -> None:
        found = reducer()
        if found is not None:
            found.ready(index)

    return on_gradient


def _remove(handles: list[Any]) -> None:
    for handle in handles:
        handle.remove()
