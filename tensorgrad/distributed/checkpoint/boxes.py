"""Boxes within a tensor: where two overlap, and whether some fill the whole."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tensorgrad.distributed.checkpoint.metadata import ChunkStorageMetadata as Box

__all__ = ["overlap", "overlapping", "problem_of"]


def overlap(a: Box, b: Box) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The offsets and lengths of the common part; None if there is none."""
    starts = tuple(map(max, a.offsets, b.offsets))
    ends = tuple(min(p + n, q + m) for p, n, q, m in zip(a.offsets, a.sizes, b.offsets, b.sizes))
    lengths = tuple(end - start for start, end in zip(starts, ends))
    return (starts, lengths) if all(n > 0 for n in lengths) else None


def overlapping(boxes: Sequence[Box]) -> Iterator[tuple[Box, Box]]:
    """The pairs of boxes that overlap. Sorted along the longest dimension, few pairs have to be compared."""
    dims = len(boxes[0].offsets) if boxes else 0
    along = max(range(dims), key=lambda d: max(box.offsets[d] for box in boxes), default=None)
    first = (lambda box: 0) if along is None else (lambda box: box.offsets[along])
    active: list[Box] = []
    for box in sorted(boxes, key=first):
        active = [other for other in active if along is None or other.offsets[along] + other.sizes[along] > first(box)]
        yield from ((other, box) for other in active if overlap(other, box) is not None)
        active.append(box)


def problem_of(boxes: Sequence[Box], size: Sequence[int]) -> str | None:
    """What is wrong with the pieces of a tensor, if they do not fill it exactly."""
    for box in boxes:
        if len(box.offsets) != len(size) or len(box.sizes) != len(size):
            return f"a piece has {len(box.offsets)} dimensions, the tensor {len(size)}"
        if any(start < 0 or length < 0 or start + length > n for start, length, n in zip(box.offsets, box.sizes, size)):
            return f"the piece at {tuple(box.offsets)} of size {tuple(box.sizes)} reaches beyond the size {tuple(size)}"
    for a, b in overlapping(boxes):
        return f"the pieces at {tuple(a.offsets)} and {tuple(b.offsets)} overlap"
    if sum(math.prod(box.sizes) for box in boxes) != math.prod(size):
        return f"the pieces do not fill the size {tuple(size)}"
    return None
