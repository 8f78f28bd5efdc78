"""The table of `nn.summary`: its columns, its totals, and the complete table as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensorgrad.tensor import Tensor
from tensorgrad.viz import svg

if TYPE_CHECKING:
    from tensorgrad.viz.summary import Layer, Summary

HEADER = ("Layer", "Output", "Parameters", "Multiply-adds", "Kept for backward")
NONE = "–"


class Shape:
    """The shape and dtype of a tensor that no longer exists."""

    def __init__(self, shape: tuple, dtype: Any):
        self.shape, self.dtype = shape, dtype

    @classmethod
    def of(cls, tensor: Tensor) -> Shape:
        return cls(tuple(tensor.shape), tensor.dtype)


def shape_text(output: Any) -> str:
    """Formats a module's output: `[2, 10]` for a tensor; containers are formatted with their members."""
    if isinstance(output, Shape):
        return str(list(output.shape))
    if isinstance(output, dict):
        return f"{{{', '.join(f'{key}: {shape_text(value)}' for key, value in output.items())}}}"
    if isinstance(output, list | tuple):
        return f"({', '.join(map(shape_text, output))})"
    return NONE if output is None else type(output).__name__


def cells(layer: Layer) -> tuple[str, str, str, str]:
    """Returns the columns of a layer after its name."""
    parameters = f"{layer.parameters:,}" if layer.parameters else "shared" if layer.shared else NONE
    output = NONE
    if layer.calls:
        output = shape_text(layer.output)
    elif layer.has_own:
        output = "weights used" if layer.used else "not called"
    return (
        output,
        parameters,
        svg.count(layer.multiply_adds) if layer.multiply_adds else NONE,
        svg.size(layer.kept) if layer.kept else NONE,
    )


def totals(summary: Summary) -> list[tuple[str, str]]:
    """Returns the totals below the table, as (name, value)."""
    frozen = summary.parameters - summary.trainable
    what = "all trainable" if not frozen else f"{summary.trainable:,} trainable, {frozen:,} not"
    rows = [("Parameters", f"{summary.parameters:,} ({what}), {svg.size(summary.parameter_bytes)}")]
    if summary.buffer_bytes:
        rows.append(("Buffers", svg.size(summary.buffer_bytes)))
    if summary.device is None:
        return rows
    step = summary.parameter_bytes + summary.gradient_bytes + summary.buffer_bytes + summary.input_bytes + summary.kept
    shown = summary.input[0] if len(summary.input) == 1 else summary.input
    rows += [
        ("Input", f"{shape_text(shown)}, {svg.size(summary.input_bytes)}"),
        ("Multiply-adds", svg.count(summary.multiply_adds)),
        ("Results of all ops", svg.size(summary.made)),
        ("Kept for backward", svg.size(summary.kept)),
    ]
    rows.append(("Measured", "by shapes alone" if summary.device == "meta" else f"by running it on {summary.device}"))
    if summary.kept:
        rows.insert(-1, ("A training step holds", f"{svg.size(step)} (parameters, gradients, buffers, input, kept)"))
    return rows


def branches(layers: list[Layer]) -> list[str]:
    """Returns the lines of the tree in front of each layer's name."""
    found, open_at = [], set[int]()
    for layer in reversed(layers):
        depth = layer.depth
        open_at = {d for d in open_at if d <= depth}
        stem = "".join("│  " if d in open_at else "   " for d in range(1, depth))
        found.append(stem + ("├─ " if depth in open_at else "└─ ") if depth else "")
        open_at.add(depth)
    return found[::-1]


def label(layer: Layer) -> str:
    """Returns a layer's name and class."""
    name = layer.path.rpartition(".")[2]
    return f"{name}: {layer.kind}" if name else layer.kind


def text(summary: Summary) -> str:
    """Returns the table as text."""
    layers = summary.shown()
    names = [
        stem + label(layer) + (f" ×{layer.calls}" if layer.calls > 1 else "")
        for stem, layer in zip(branches(layers), layers)
    ]
    rows = [HEADER, *((name, *cells(layer)) for name, layer in zip(names, layers))]
    rows = [(row[0], row[1] if len(row[1]) <= 48 else row[1][:47] + "…", *row[2:]) for row in rows]
    if summary.device is None:
        rows = [(row[0], "", row[2], "", "") for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    lines = [
        "  ".join(c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths)) if w).rstrip()
        for row in rows
    ]
    rule = "-" * max(map(len, lines))
    pairs = totals(summary)
    wide = max(len(name) for name, _ in pairs)
    below = [f"{name.ljust(wide)}  {value}" for name, value in pairs]
    return "\n".join([lines[0], rule, *lines[1:], rule, *below])
