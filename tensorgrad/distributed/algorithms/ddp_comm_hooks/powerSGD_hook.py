"""PowerSGD: gradients travel as products of two thin matrices (Vogels et al., 2019, arXiv:1905.13727)."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tensorgrad as torch
from tensorgrad.distributed.algorithms.ddp_comm_hooks.default_hooks import average, sum_of
from tensorgrad.distributed.grad_bucket import GradBucket
from tensorgrad.distributed.group import default_group, or_default
from tensorgrad.futures import Future

__all__ = ["PowerSGDState", "batched_powerSGD_hook", "powerSGD_hook"]

logger = logging.getLogger(__name__)


class PowerSGDState:
    """The settings of PowerSGD, and what it remembers from step to step.

    Args:
        process_group: the group; the default one if None.
        matrix_approximation_rank: how many columns the thin matrices have: less compression, but more accuracy.
        start_powerSGD_iter: in how many steps gradients are averaged exactly at first.
        min_compression_rate: gradients that would not become smaller by this factor are averaged exactly.
        use_error_feedback: whether what was lost is added to the next gradients.
        warm_start: whether a step starts with the matrices of the last one, rather than with random ones.
        orthogonalization_epsilon: added to the columns' norms.
        random_seed: the seed of random matrices; the same in all processes.
        compression_stats_logging_frequency: how many steps there are between logged statistics.
        batch_tensors_with_same_shape: whether gradients of the same shape are multiplied at once.

    Raises:
        ValueError: with `use_error_feedback` or `warm_start`, PowerSGD can begin after two steps at the earliest.

    >>> from tensorgrad.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState
    >>> PowerSGDState(None, matrix_approximation_rank=2).compression_stats()
    (0, 0, 0)
    """

    __slots__ = (
        "batch_tensors_with_same_shape", "compression_stats_logging_frequency", "error_dict", "iter",
        "matrix_approximation_rank", "min_compression_rate", "next_stats_report", "orthogonalization_epsilon",
        "p_memory_dict", "process_group", "q_memory_dict", "rng", "start_powerSGD_iter",
        "total_numel_after_compression", "total_numel_before_compression", "use_error_feedback", "warm_start",
    )  # fmt: skip

    def __init__(
        self,
        process_group: Any,
        matrix_approximation_rank: int = 1,
        start_powerSGD_iter: int = 1_000,
        min_compression_rate: float = 2,
        use_error_feedback: bool = True,
        warm_start: bool = True,
        orthogonalization_epsilon: float = 0,
        random_seed: int = 0,
        compression_stats_logging_frequency: int = 10_000,
        batch_tensors_with_same_shape: bool = False,
    ) -> None:
        if (use_error_feedback or warm_start) and start_powerSGD_iter <= 1:
            raise ValueError(
                "Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is enabled, because "
                "PowerSGD can only be applied after the first two iterations in DDP."
            )
        self.process_group, self.matrix_approximation_rank = process_group, matrix_approximation_rank
        self.start_powerSGD_iter, self.min_compression_rate = start_powerSGD_iter, min_compression_rate
        self.use_error_feedback, self.warm_start = use_error_feedback, warm_start
        self.orthogonalization_epsilon = orthogonalization_epsilon
        self.batch_tensors_with_same_shape = batch_tensors_with_same_shape
        self.rng = np.random.RandomState(random_seed)
        self.error_dict: dict[int, Any] = {}  # by the index of the bucket, as are P and Q
        self.p_memory_dict: dict[int, Any] = {}
        self.q_memory_dict: dict[int, Any] = {}
        self.iter = self.next_stats_report = 0
        self.total_numel_before_compression = self.total_numel_after_compression = 0
        self.compression_stats_logging_frequency = max(1, compression_stats_logging_frequency)

    def __getstate__(self) -> dict[str, Any]:
        logger.warning("NOTE: Process group is not serializable and excluded from a saved state.")
        return {slot: getattr(self, slot) for slot in self.__slots__ if slot != "process_group"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.process_group = default_group()
        logger.warning(
            "NOTE: Process group will be set to a default group (i.e. the world size). If a different group is "
            "desired, please set `self.process_group` after PowerSGD state is loaded."
        )
        for slot, value in state.items():
            setattr(self, slot, value)

    def maybe_increase_iter(self, bucket: GradBucket) -> None:
        """Counts a step when its last bucket comes.

        >>> import tensorgrad.distributed as dist
        >>> from tensorgrad.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState
        >>> state = PowerSGDState(None)
        >>> state.maybe_increase_iter(dist.GradBucket(0, torch.ones(0), [], [], True))
        >>> state.iter
        1
        """
        if bucket.is_last():
            self.iter += 1
        if self.iter == self.start_powerSGD_iter:
            logger.info("Start to apply PowerSGD after %s iterations.", self.iter)

    def compression_stats(self) -> tuple[float, int, int]:
        """Returns the rate of compression, and the numbers of elements before and after it."""
        before, after = self.total_numel_before_compression, self.total_numel_after_compression
        return (before / after if after > 0 else 0, before, after)


def _orthogonalize(matrices: Any, epsilon: float = 0) -> None:
    """Makes the columns of matrices orthogonal and of norm 1, in place. Columns of zeros stay so."""
    rank = matrices.shape[2]
    if rank > 2 and matrices.dtype not in (torch.float16, torch.bfloat16):
        matrices.copy_(torch.linalg.qr(matrices)[0])
        return
    for i in range(rank):  # the modified Gram-Schmidt process
        column = matrices[:, :, i : i + 1]
        norm = torch.norm(column, dim=1, keepdim=True) + epsilon
        column.div_(torch.where(norm == 0, 1, norm))
        rest = matrices[:, :, i + 1 :]
        rest.sub_((column * rest).sum(dim=1, keepdim=True) * column)


def _report(state: PowerSGDState, bucket: GradBucket) -> None:
    if bucket.is_last() and state.iter >= state.next_stats_report:
        rate, before, after = state.compression_stats()
        logger.info(
            "Compression stats: iter %s, total before compression %s, total after compression %s, rate %s",
            state.iter, before, after, rate,
        )  # fmt: skip
        state.next_stats_report = state.iter + state.compression_stats_logging_frequency


def _add_error(state: PowerSGDState, index: int, gradients: Any) -> Any:
    """Adds what the last step lost. Returns a copy of the sum, or None if no errors are kept."""
    if not state.use_error_feedback:
        return None
    if index in state.error_dict:
        gradients.add_(state.error_dict[index])
    return gradients.clone()


def _start_matrices(state: PowerSGDState, index: int, p_size: int, q_shapes: list[Any], like: Any) -> list:
    """The Qs to start with, as views of one flat tensor in the state; random ones unless the last step left some."""
    known = state.warm_start and index in state.p_memory_dict
    sizes = [math.prod(shape) for shape in q_shapes]
    if not known:
        state.p_memory_dict[index] = torch.empty(p_size, dtype=like.dtype, device=like.device)
        state.q_memory_dict[index] = torch.empty(sum(sizes), dtype=like.dtype, device=like.device)
    parts = state.q_memory_dict[index].split(sizes) if sizes else []
    qs = [part.view(shape) for part, shape in zip(parts, q_shapes)]
    if not known:
        generator = torch.Generator().manual_seed(int(state.rng.randint(1_000_000_000)))
        for q in qs:
            q.copy_(torch.randn(*q.shape, dtype=like.dtype, generator=generator))
    return qs


def _end_step(state: PowerSGDState, bucket: GradBucket, before: Any, after: Any) -> None:
    if before is not None:
        state.error_dict[bucket.index()] = before - after
    if not state.warm_start:
        state.p_memory_dict.clear()
        state.q_memory_dict.clear()
    state.maybe_increase_iter(bucket)


def _batches(state: PowerSGDState, matrices: list[Any]) -> list[list[Any]]:
    """Groups matrices of the same shape, if that is wanted."""
    by_shape: dict[Any, list[Any]] = {}
    for matrix in matrices:
        by_shape.setdefault(matrix.shape, []).append(matrix)
    if state.batch_tensors_with_same_shape:
        return list(by_shape.values())
    return [[matrix] for same in by_shape.values() for matrix in same]


def _at_first(state: PowerSGDState, bucket: GradBucket) -> Future[Any] | None:
    """A future of the exact mean, in the steps before compression begins; None after them."""
    if state.iter >= state.start_powerSGD_iter:
        return None
    state.maybe_increase_iter(bucket)
    return average(state.process_group, bucket.buffer())


def _approximate(
    state: PowerSGDState, index: int, factors: list[tuple[Any, Any, Any]], epsilon: float, decompress: Callable[[], Any]
) -> Future[Any]:
    """Exchanges P = M·Q and Q = Mᵀ·P, which are views of the state's memory of a bucket, for all (M, P, Q).

    Returns:
        A future of the result of `decompress`.
    """
    for matrix, p, q in factors:
        _orthogonalize(q, epsilon)
        p.copy_(matrix.bmm(q))

    def exchange_qs(_: Any) -> None:
        for matrix, p, q in factors:
            _orthogonalize(p, epsilon)  # so the sum need not be divided
            q.copy_(matrix.transpose(1, 2).bmm(p))
        average(state.process_group, state.q_memory_dict[index]).wait()

    sum_of_ps = sum_of(or_default(state.process_group), state.p_memory_dict[index])
    return sum_of_ps.then(exchange_qs).then(lambda _: decompress())


def powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future[Any]:
    """Approximates the mean of each gradient M by P·Qᵀ, and sends P = M·Q and Q = Mᵀ·P rather than M.

    Gradients are seen as matrices of as many rows as their first dimension. Vectors, and matrices that would not become
    small enough, are averaged exactly.

    Args:
        state: the settings, and what is remembered.
        bucket: the gradients.

    Source: Vogels, Karimireddy and Jaggi, "PowerSGD", 2019, Algorithm 1.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(20, 10))
    >>> model.register_comm_hook(PowerSGDState(None, start_powerSGD_iter=2), powerSGD_hook)
    >>> for _ in range(3):
    ...     model.zero_grad()
    ...     model(torch.ones(1, 20)).sum().backward()
    >>> torch.allclose(model.module.weight.grad, torch.ones(10, 20))
    True
    >>> dist.destroy_process_group()
    """
    if (exact_mean := _at_first(state, bucket)) is not None:
        return exact_mean
    buffer, index = bucket.buffer(), bucket.index()
    before = _add_error(state, index, buffer)
    matrices: list[Any] = []
    exact: list[Any] = []
    for gradient in bucket.gradients():
        matrix = gradient.view(gradient.shape[0] if gradient.ndim else 1, -1)
        rows, columns = matrix.shape
        sent = (rows + columns) * min(rows, columns, state.matrix_approximation_rank)
        compress = sent * state.min_compression_rate < gradient.numel()
        (matrices if compress else exact).append(matrix)
        state.total_numel_before_compression += gradient.numel()
        state.total_numel_after_compression += sent if compress else gradient.numel()
    _report(state, bucket)
    batches = _batches(state, matrices)
    stacked = [torch.stack(same) if len(same) > 1 else same[0].unsqueeze(0) for same in batches]
    ranks = [min(*m.shape[1:], state.matrix_approximation_rank) for m in stacked]
    p_shapes = [(len(m), m.shape[1], r) for m, r in zip(stacked, ranks)]
    q_shapes = [(len(m), m.shape[2], r) for m, r in zip(stacked, ranks)]
    p_sizes = [math.prod(shape) for shape in p_shapes]
    qs = _start_matrices(state, index, sum(p_sizes), q_shapes, buffer)
    parts = state.p_memory_dict[index].split(p_sizes) if p_sizes else []
    ps = [part.view(shape) for part, shape in zip(parts, p_shapes)]
    flat = torch.cat([gradient.reshape(-1) for gradient in exact]) if exact else buffer[:0].clone()
    exact_future = average(state.process_group, flat)

    def decompress() -> Any:
        means = exact_future.wait().split([gradient.numel() for gradient in exact]) if exact else []
        for gradient, mean in zip(exact, means):
            gradient.copy_(mean.view_as(gradient))
        for same, p, q in zip(batches, ps, qs):
            for matrix, product in zip(same, p.bmm(q.transpose(1, 2))):
                matrix.copy_(product)
        _end_step(state, bucket, before, buffer)
        return buffer

    factors = list(zip(stacked, ps, qs))
    return _approximate(state, index, factors, state.orthogonalization_epsilon, decompress)


def batched_powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future[Any]:
    """Approximates all gradients of a bucket together, as one square matrix: faster, but less accurate.

    Args:
        state: the settings, and what is remembered.
        bucket: the gradients.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, batched_powerSGD_hook
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(19, 5))
    >>> model.register_comm_hook(PowerSGDState(None, start_powerSGD_iter=2), batched_powerSGD_hook)
    >>> for _ in range(3):
    ...     model.zero_grad()
    ...     model(torch.ones(1, 19)).sum().backward()
    >>> torch.allclose(model.module.weight.grad, torch.ones(5, 19))
    True
    >>> dist.destroy_process_group()
    """
    if (exact_mean := _at_first(state, bucket)) is not None:
        return exact_mean
    buffer, index = bucket.buffer(), bucket.index()
    side = math.ceil(math.sqrt(buffer.numel()))
    shape = (1, side, state.matrix_approximation_rank)
    state.total_numel_before_compression += buffer.numel()
    state.total_numel_after_compression += 2 * math.prod(shape)
    _report(state, bucket)
    padded = torch.zeros(side * side, dtype=buffer.dtype, device=buffer.device)
    padded[: buffer.numel()] = buffer
    before = _add_error(state, index, padded)
    matrix = padded.view(1, side, side)
    (q,) = _start_matrices(state, index, math.prod(shape), [shape], buffer)
    p = state.p_memory_dict[index].view(shape)

    def decompress() -> Any:
        matrix.copy_(p.bmm(q.transpose(1, 2)))
        _end_step(state, bucket, before, padded)
        return buffer.copy_(padded[: buffer.numel()])

    return _approximate(state, index, [(matrix, p, q)], 0.0, decompress)
