"""Choosing boxes among those that overlap."""

from __future__ import annotations

from tensorgrad.dispatch.kinds import op
from tensorgrad.dtypes import scalar_type


def _checked(boxes, scores, threshold):
    """Raises: RuntimeError if boxes and scores do not fit together."""
    if boxes.ndim != 2:
        raise RuntimeError(f"boxes should be a 2d tensor, got {boxes.ndim}D")
    if boxes.shape[1] != 4:
        raise RuntimeError(f"boxes should have 4 elements in dimension 1, got {boxes.shape[1]}")
    if scores.ndim != 1:
        raise RuntimeError(f"scores should be a 1d tensor, got {scores.ndim}D")
    if len(boxes) != len(scores):
        raise RuntimeError(
            f"boxes and scores should have same number of elements in dimension 0, got {len(boxes)} and {len(scores)}"
        )
    if boxes.dtype != scores.dtype:
        raise RuntimeError("dets should have the same type as scores")
    if boxes.dtype.kind in "biuc":
        raise NotImplementedError(f"\"nms_kernel\" not implemented for '{scalar_type(boxes)}'")
    return boxes, scores, threshold


nms = op(
    "nms(boxes, scores, iou_threshold: float)",
    "boxes.nms",
    prepare=_checked,
    doc="""The indices of boxes (N, 4) that remain when each, from the highest of `scores` (N,) on, removes those that
    it overlaps by more than `iou_threshold` of their union (int64, by falling score).

    >>> from tensorgrad.ops.vision.boxes import nms
    >>> boxes = torch.tensor([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 1.9], [5.0, 5.0, 6.0, 6.0]])
    >>> nms(boxes, torch.tensor([0.5, 0.9, 0.1]), 0.5)
    tensor([1, 2])
    """,
    where=(),
)
