"""torchvision's operators for a torch without GPU libraries, which the compiled part of torchvision's package asks for.

They are in Python, and slow. `files.py` uses them where that part cannot be loaded.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any


def _has_ops() -> bool:
    return True


def prepare() -> None:
    """Makes torchvision's operators available, and imports it."""
    import torch

    spec = importlib.util.find_spec("torchvision")
    assert spec is not None and spec.origin is not None, "torchvision is installed"
    compiled = True
    try:
        for file in Path(spec.origin).parent.glob("_C*.so"):
            torch.ops.load_library(str(file))
    except OSError:
        compiled = False
        _define(torch)
    importlib.import_module("torchvision")
    for name in () if compiled else ("torchvision.extension", "torchvision.ops.roi_align"):  # both ask for it
        sys.modules[name]._has_ops = _has_ops  # type: ignore[attr-defined]


def _define(torch: Any) -> None:
    library = torch.library.Library("torchvision", "FRAGMENT")
    _KEPT.append(library)
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define(
        "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
        "int sampling_ratio, bool aligned) -> Tensor"
    )
    library.define("box_iou_rotated(Tensor boxes1, Tensor boxes2) -> Tensor")  # in programs, but not reached

    def nms(boxes: Any, scores: Any, limit: float) -> Any:
        areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        order, kept = scores.argsort(descending=True, stable=True), []
        while order.numel():
            first, rest = order[0], order[1:]
            kept.append(first)
            low, high = torch.max(boxes[first, :2], boxes[rest, :2]), torch.min(boxes[first, 2:], boxes[rest, 2:])
            inside = (high - low).clamp(min=0).prod(1)
            order = rest[inside / (areas[first] + areas[rest] - inside) <= limit]
        return torch.stack(kept) if kept else order

    def roi_align(input: Any, rois: Any, scale: float, height: int, width: int, ratio: int, aligned: bool) -> Any:
        from torchvision.ops.roi_align import _roi_align

        # Not compiled, which needs setuptools and a C++ compiler; some regions at a time, as it takes much memory.
        parts = [
            _roi_align.__wrapped__(input, part, scale, height, width, ratio, aligned) for part in rois.split(_REGIONS)
        ]
        return torch.cat(parts)

    for name, function in (("nms", nms), ("roi_align", roi_align)):
        library.impl(name, function, "CompositeExplicitAutograd")


_REGIONS = 64
_KEPT: list[Any] = []
