"""`viz.heatmap`: a tensor as a table with colored cells; and `viz.notebook`, which shows all tensors that way."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tensorgrad.tensor import Tensor
from tensorgrad.viz import picture, svg
from tensorgrad.viz.memory import value_text
from tensorgrad.viz.svg import colour, element, escape

ROWS, COLUMNS, TABLES = 16, 16, 6  # the largest part of a tensor that is shown
STRONGEST = 45  # percent of color in the cell with the largest value; text on it must stay readable

STYLE = svg.fenced(
    "tg-heat",
    f"&{{font:13px/1.35 {svg.SANS};color:{colour('ink')};background:{colour('surface')};padding:.35rem;"
    "border-radius:6px}& .scroll{overflow-x:auto}"
    f"& table{{border-collapse:collapse;margin:0 0 .6rem;color:{colour('ink')};font-size:inherit}}"
    f"& caption{{text-align:left;padding:.15rem 0 .3rem;color:{colour('muted')};white-space:nowrap}}"
    f"& th,& td{{padding:.2rem .45rem;text-align:right;border:1px solid {colour('grid')};"
    f"background:{colour('surface')};font:inherit;font-variant-numeric:tabular-nums;font-weight:400}}"
    f"& th{{color:{colour('muted')};background:{colour('panel')}}}"
    f"& td.nan{{background:{colour('bad-soft')}}}"
    + "".join(
        f"& td.{letter}{step}{{background:color-mix(in srgb,{colour(name)} {STRONGEST * step / 9:.0f}%,"
        f"{colour('surface')})}}"
        for letter, name in (("p", "accent"), ("m", "warm"))
        for step in range(1, 10)
    ),
)


class Heatmap:
    """A tensor as an HTML table: blue above zero, orange below, stronger for larger magnitudes.

    As the last value of a notebook cell it is shown in place; `save` writes a page and `show` opens one.
    """

    def __init__(self, tensor: Tensor, name: str = ""):
        self.title, self.body = name or "Tensor", _tables(tensor.detach(), name)
        self.summary = f"{tensor.dtype} {tuple(tensor.shape)}"

    def _repr_html_(self) -> str:
        return element("div", element("style", svg.theme() + STYLE), self.body, class_="tg tg-heat")

    def html(self) -> str:
        """Returns a page that contains only the table."""
        heading = element("h1", escape(self.title), style="font-size:1.3rem;margin:.2rem 0 .6rem")
        return svg.page(element("main", heading, self.body, class_="tg-heat"), title=self.title, style=STYLE)

    def save(self, path: str | os.PathLike) -> Path:
        """Writes the table as a page.

        Raises:
            ValueError: If the path does not end with `.html`.
        """
        if Path(path).suffix.lower() != ".html":
            raise ValueError(f"expected a path that ends with .html, but got {str(path)!r}")
        return picture.write(path, self.html())

    def show(self) -> None:
        """Opens the page in the browser."""
        picture.open_page(self.html())

    def __repr__(self) -> str:
        return f"<Heatmap: {self.title}, {self.summary}>"


def heatmap(tensor: Tensor, name: str = "") -> Heatmap:
    """Shows a tensor's values as a table, colored by sign and magnitude, for notebooks and pages.

    For large tensors, only the first rows and columns are shown, and with more than two dimensions only the first
    matrices. Complex numbers are colored by their absolute value; nan is red.

    Args:
        tensor: the tensor.
        name: its name in the caption.

    Raises:
        TypeError: If `tensor` is not a tensor.
        NotImplementedError: If it is on the meta device, which has no values.

    >>> from tensorgrad import viz
    >>> viz.heatmap(torch.eye(3), name="I")
    <Heatmap: I, torch.float32 (3, 3)>
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"heatmap(): expected a Tensor, but got {type(tensor).__name__}")
    return Heatmap(tensor, name)


def _tables(tensor: Tensor, name: str) -> str:
    shape = tuple(tensor.shape)
    if not tensor.numel():
        return element("p", escape(f"{name or 'tensor'} {tensor.dtype} {shape}: no elements"), style="margin:0")
    lead = list(itertools.islice(itertools.product(*map(range, shape[:-2])), TABLES))
    size = _strongest(tensor)
    tables = [_table(tensor[index] if index else tensor, index, name, size) for index in lead]
    hidden = math.prod(shape[:-2]) - len(lead)
    return "".join(tables) + (element("p", f"… and {hidden:,} more", style="margin:0") if hidden > 0 else "")


def _strongest(tensor: Tensor) -> float:
    """Returns the largest finite absolute value."""
    shown = tensor.abs() if tensor.dtype.is_complex else tensor.double().abs()
    finite = shown[shown.isfinite()]
    return float(finite.max().item()) if finite.numel() else 0.0


def _table(matrix: Tensor, lead: tuple, name: str, size: float) -> str:
    shape = tuple(matrix.shape)
    rows, columns = (1, 1) if not shape else (1, shape[0]) if len(shape) == 1 else shape
    shown = matrix.reshape(rows, columns)[:ROWS, :COLUMNS].cpu().tolist()
    where = f"[{', '.join(map(str, lead))}] " if lead else ""
    cut = f", the first {min(rows, ROWS)} × {min(columns, COLUMNS)}" if rows > ROWS or columns > COLUMNS else ""
    caption = f"{name or 'tensor'} {where}{matrix.dtype} {shape}{cut}"
    head = [element("th", str(c), scope="col") for c in range(min(columns, COLUMNS))]
    body = [
        element("tr", element("th", str(r), scope="row"), (_cell(v, size) for v in row)) for r, row in enumerate(shown)
    ]
    corner = element("td", style="border:0") if head else None
    table = element(
        "table",
        element("caption", escape(caption)),
        element("thead", element("tr", corner, head)),
        element("tbody", body),
    )
    return svg.scrolling(table, caption)


def _cell(value: Any, size: float) -> str:
    amount = abs(value) if isinstance(value, complex) else float(value)
    if math.isnan(amount):
        return element("td", "nan", class_="nan")
    share = min(abs(amount) / size, 1.0) if size else float(math.isinf(amount))
    step = math.ceil(9 * share)
    kind = ("p" if amount > 0 else "m") + str(step) if step else None
    return element("td", escape(value_text(value)), class_=kind)


# --- notebooks -----------------------------------------------------------------------------------------------------


def notebook(on: bool = True) -> None:
    """Makes notebooks show tensors as heat maps and modules as tables; `notebook(False)` turns this off.

    By default notebooks show the `repr`, as in PyTorch. Large tensors, and those on the meta device, are always shown
    as text.

    >>> from tensorgrad import viz
    >>> viz.notebook()
    >>> torch.eye(2)._repr_html_().count("<td")
    5
    >>> viz.notebook(False)
    >>> hasattr(torch.eye(2), "_repr_html_")
    False
    """
    from tensorgrad.nn.module import Module

    shown_as: tuple[tuple[type, Callable], ...] = ((Tensor, _tensor_html), (Module, _module_html))
    for cls, shown in shown_as:
        if on:
            setattr(cls, "_repr_html_", shown)  # noqa: B010
        elif "_repr_html_" in vars(cls):
            delattr(cls, "_repr_html_")


def _tensor_html(tensor: Tensor) -> str | None:
    small = tensor.ndim <= 3 and tensor.numel() <= TABLES * ROWS * COLUMNS and not tensor.is_meta
    return heatmap(tensor)._repr_html_() if small and tensor.numel() else None


def _module_html(module: Any) -> str | None:
    from tensorgrad.viz.summary import summary

    try:
        return summary(module)._repr_html_()
    except ValueError:  # lazy modules have no shapes to count yet
        return None
