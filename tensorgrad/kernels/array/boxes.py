"""Non-maximum suppression of boxes (x1, y1, x2, y2), on plain arrays."""

from __future__ import annotations

import numpy as np

from .conv import widen


def nms(xp, boxes, scores, threshold):
    """Returns the indices (int64) of the boxes that are kept, by falling score.

    From the best box on, each box that is still there removes all later ones that overlap it by more than `threshold`
    (intersection over union). Equal scores keep their order.

    >>> import numpy as np
    >>> boxes = np.array([[0.0, 0, 2, 2], [0, 0, 2, 1.9], [5, 5, 6, 6]])
    >>> nms(np, boxes, np.array([0.5, 0.9, 0.1]), 0.5).tolist()
    [1, 2]
    """
    boxes, scores = widen(xp, boxes), widen(xp, scores)
    order = xp.argsort(-scores, kind="stable")
    x1, y1, x2, y2 = xp.ascontiguousarray(boxes[order].T)
    areas = (x2 - x1) * (y2 - y1)
    there = xp.ones(len(order), bool)
    kept = []
    with np.errstate(all="ignore"):
        for i in range(len(order)):
            if not there[i]:
                continue
            kept.append(i)
            rest = slice(i + 1, None)
            width = xp.minimum(x2[i], x2[rest]) - xp.maximum(x1[i], x1[rest])
            height = xp.minimum(y2[i], y2[rest]) - xp.maximum(y1[i], y1[rest])
            overlap = xp.maximum(width, 0) * xp.maximum(height, 0)
            there[rest] &= ~(overlap / (areas[i] + areas[rest] - overlap) > threshold)
    return order[xp.asarray(kept, np.int64)].astype(np.int64, copy=False)
