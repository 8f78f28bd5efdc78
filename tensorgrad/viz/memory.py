"""`viz.strides`: a tensor, its storage, and which elements of the storage it uses."""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np

from tensorgrad.tensor import Tensor
from tensorgrad.viz import svg
from tensorgrad.viz.picture import Picture
from tensorgrad.viz.svg import colour, element

TINT = 0.15  # the opacity of a cell's color; small text on it must stay readable
HEIGHT, GAP, MARGIN = 36, 26, 20  # of a cell; between grids and rows; around everything
WINDOW, PER_ROW = 96, 16  # how many cells of the storage are shown, in total and per row
ROWS, COLUMNS, GRIDS = 10, 12, 6  # how many rows and columns of a matrix, and how many matrices, are shown
MANY = 1 << 16  # how many elements are checked to find those that share a cell


class Geometry(NamedTuple):
    """Shape, strides and offset, in elements, and the number of elements in the storage."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    cells: int

    @classmethod
    def of(cls, tensor: Tensor) -> Geometry:
        """Returns the geometry of a tensor."""
        memory = tensor.untyped_storage()
        cells = memory.nbytes() // max(tensor.element_size(), 1)
        return cls(tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset(), cells)

    def cell(self, index: tuple[int, ...]) -> int:
        """Returns the position in the storage of the element at `index`.

        >>> Geometry((2, 3), (1, 2), 0, 6).cell((1, 2))
        5
        """
        return self.offset + sum(i * s for i, s in zip(index, self.strides))

    def window(self) -> range:
        """Returns the cells to show: all of a small storage, else those from just before the first one used."""
        if self.cells <= WINDOW:
            return range(self.cells)
        start = min(max(0, self.offset - 2), self.cells - WINDOW)
        return range(start, start + WINDOW)

    def seen(self, window: range) -> dict[int, list[tuple[int, ...]]]:
        """Returns the indices of the elements in each cell of the window, up to a limit.

        >>> Geometry((2, 3), (0, 1), 0, 3).seen(range(3))[1]
        [(0, 1), (1, 1)]
        """
        found: dict[int, list[tuple[int, ...]]] = {}
        if 0 in self.shape:
            return found
        room = window.stop - self.offset
        reach = [min(n, -(-room // s)) if s else n for n, s in zip(self.shape, self.strides)]
        for index in itertools.islice(itertools.product(*map(range, reach)), MANY):
            cell = self.cell(index)
            if cell in window:
                found.setdefault(cell, []).append(index)
        return found


def strides(tensor: Tensor, name: str = "") -> Picture:
    """Draws a tensor, its storage, and the steps given by its strides.

    The upper part shows the tensor's elements by index, each with the number of its storage cell. The lower part shows
    the cells of the storage, with the indices of the elements in them. Elements in the same row of the tensor have the
    same color; cells that the tensor does not use are gray. Arrows show steps by one along a dimension. A cell with
    several elements (a stride of 0, or an overlapping `as_strided`) shows their number. For large tensors, only the
    beginning is shown.

    Args:
        tensor: the tensor.
        name: its name in the heading.

    Returns:
        A picture: a notebook shows it; elsewhere use `.save("strides.svg")` or `.show()`.

    Raises:
        TypeError: If `tensor` is not a tensor.

    >>> from tensorgrad import viz
    >>> x = torch.arange(6).reshape(2, 3)
    >>> viz.strides(x.t()[::2], name="x.t()[::2]")
    <Picture: x.t()[::2]: shape (2, 2), strides (2, 3), offset 0>
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"strides(): expected a Tensor, but got {type(tensor).__name__}")
    drawing = _Drawing(tensor)
    geometry, heading = drawing.geometry, name or "Tensor"
    facts = f"shape {_tuple(geometry.shape)}, strides {_tuple(geometry.strides)}, offset {geometry.offset}"
    sentence = drawing.sentence()
    above, wide, y = drawing.view(78)
    below, width, height = drawing.storage(y + GAP, sentence)
    lines = [(f"{tensor.dtype} · {facts}", 50), (heading, 30)]
    body = [
        svg.text(MARGIN, lines[1][1], heading, font_size=16, font_weight=600),
        svg.text(MARGIN, lines[0][1], lines[0][0], class_="tg-muted"),
        above,
        below,
    ]
    bold = 1.12  # how much wider bold text is
    words = max(
        svg.text_width(lines[0][0]),
        svg.text_width(sentence),
        svg.text_width(drawing.legend(), 12 * bold),
        svg.text_width(heading, 16 * bold),
    )
    width = max(width, wide, words + 2 * MARGIN, 360)
    title = f"{heading}: {facts}"
    return Picture(svg.document(width, height, body, title=title, description=f"{facts}. {sentence}"), title)


def _tuple(values: tuple[int, ...]) -> str:
    return str(tuple(int(v) for v in values))


def _stored(tensor: Tensor, window: range) -> list[str]:
    """Returns the values of the storage's cells as text; empty on the meta device, which has no values."""
    if tensor.is_meta or not len(window):
        return [""] * len(window)
    flat = tensor.detach().as_strided((len(window),), (1,), window.start)
    return [value_text(v) for v in flat.cpu().tolist()]


def value_text(value: Any) -> str:
    """Formats a value, short enough for a cell.

    >>> value_text(3.14159), value_text(True), value_text(123456789)
    ('3.14', 'True', '1.2e+08')
    """
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, complex):
        return f"{value.real:.2g}{value.imag:+.2g}j"
    if isinstance(value, int):
        return str(value) if abs(value) < 10_000_000 else f"{value:.1e}"
    return f"{value:.3g}"


def _contiguous(geometry: Geometry) -> bool:
    step = 1
    for n, s in reversed(list(zip(geometry.shape, geometry.strides))):
        if n != 1 and s != step:
            return False
        step *= n
    return True


def line_of(geometry: Geometry, index: tuple) -> int:
    """Returns the number of an element's color: that of its row, or 0 for vectors and scalars.

    >>> line_of(Geometry((2, 3), (3, 1), 0, 6), (1, 2))
    1
    """
    if len(index) < 2:
        return 0
    return int(np.ravel_multi_index(index[:-1], geometry.shape[:-1]))


class _Drawing:
    """Draws the parts of one picture."""

    def __init__(self, tensor: Tensor):
        self.tensor, self.geometry = tensor, Geometry.of(tensor)
        self.window = self.geometry.window()
        self.seen = self.geometry.seen(self.window)
        self.stored = dict(zip(self.window, _stored(tensor, self.window)))
        last = self.geometry.cell(tuple(n - 1 for n in self.geometry.shape)) if 0 not in self.geometry.shape else 0
        widest = max((svg.text_width(v, mono=True) for v in self.stored.values()), default=0)
        labels = max((svg.text_width(self.label(p), 10) for p in self.seen), default=0)
        self.wide = max(38.0, widest + 8, labels + 6, svg.text_width(f"@{last}", 10) + 6)

    def sentence(self) -> str:
        """Describes the picture in a sentence."""
        geometry, seen = self.geometry, len(self.seen)
        elements = math.prod(geometry.shape)
        if not elements:
            return "The tensor has no elements."
        most = max(map(len, self.seen.values()), default=0)
        if geometry.cells > WINDOW:
            which = f"Cells {self.window.start:,} to {self.window.stop - 1:,} are shown; {seen} of them are used."
            return which + (" Some contain several elements." if most > 1 else "")
        words = f"{elements:,} elements use" if elements != 1 else "1 element uses"
        words += f" {seen} of {geometry.cells:,} cell{'s' * (geometry.cells != 1)}"
        if most > 1:
            return f"{words}; up to {most} elements share a cell."
        return f"{words}, in order: it is contiguous." if _contiguous(geometry) else f"{words}, one cell each."

    def label(self, cell: int) -> str:
        """Returns the label above a cell of the storage: the index of its element, or the number of elements."""
        indices = self.seen.get(cell, [])
        if len(indices) > 1:
            return f"×{len(indices)}"
        return ",".join(map(str, indices[0])) or "( )" if indices else ""

    def cell(self, x: float, y: float, value: str, number: int, line: int | None) -> str:
        """Draws a cell with its value and its number; `line` selects the color, and None is gray."""
        frame = {"x": x, "y": y, "width": self.wide, "height": HEIGHT}
        if line is None:
            box = element("rect", **frame, fill=colour("panel"), stroke=colour("grid"))
        else:
            box = element("rect", **frame, fill=svg.series(line), fill_opacity=TINT)
            box += element("rect", **frame, fill="none", stroke=svg.series(line))
        middle, shade = x + self.wide / 2, {"fill": colour("muted")} if line is None else {}
        shown = svg.text(middle, y + 17, value, text_anchor="middle", class_="tg-mono", **shade)
        return box + shown + _small(middle, y + 31, f"@{number}")

    # --- the tensor ---

    def view(self, y: float) -> tuple[str, float, float]:
        """Draws the elements by index, as matrices. Returns (markup, width, y of the lower end)."""
        shape = self.geometry.shape
        if 0 in shape:
            return svg.text(MARGIN, y, "no elements", class_="tg-muted"), 0, y
        rows, columns = (1, 1) if not shape else (1, shape[0]) if len(shape) == 1 else shape[-2:]
        lead = list(itertools.islice(itertools.product(*map(range, shape[:-2])), GRIDS))
        hidden = math.prod(shape[:-2]) - len(lead)
        parts = [svg.text(MARGIN, y, self.legend(), font_weight=600)] if shape else []
        side = 34.0 if len(shape) > 1 else 0.0
        width, left = 0.0, MARGIN + side
        top = y + (40 if len(shape) > 2 else 24 if shape else -12)
        each = min(columns, COLUMNS) * self.wide + (60 if columns > COLUMNS else 0)
        high = min(rows, ROWS) * HEIGHT + (24 if rows > ROWS else 0)
        for index in lead:
            if left > MARGIN + side and left + each > 960:
                left, top = MARGIN + side, top + high + 44
            parts.append(self.grid(index, rows, columns, left, top))
            width, left = max(width, left + each), left + each + GAP + side
        if hidden > 0:
            parts.append(svg.text(left - side, top + HEIGHT / 2, f"… {hidden:,} more", class_="tg-muted"))
            width = max(width, left + 60)
        return "".join(parts), width + MARGIN, top + high

    def legend(self) -> str:
        """Describes the step along each dimension."""
        rank = len(self.geometry.shape)
        arrows = ["→"] if rank == 1 else ["next matrix"] * (rank - 2) + ["↓", "→"]
        steps = ["the same cell" if not s else f"+{s} cell" + "s" * (s != 1) for s in self.geometry.strides]
        return "\N{EM SPACE}\N{EM SPACE}".join(
            f"dim {d} {arrow} {step}" for d, (arrow, step) in enumerate(zip(arrows, steps))
        )

    def grid(self, lead: tuple, rows: int, columns: int, left: float, top: float) -> str:
        """Draws one matrix, with its indices along the edges."""
        rank = len(self.geometry.shape)
        parts = [svg.text(left, top - 19, f"[{', '.join(map(str, lead))}]", class_="tg-mono")] if lead else []
        shown_rows, shown_columns = range(min(rows, ROWS)), range(min(columns, COLUMNS))
        if rank:
            parts += [_small(left + (c + 0.5) * self.wide, top - 5, c) for c in shown_columns]
        if rank > 1:
            parts += [_small(left - 12, top + r * HEIGHT + 22, r) for r in shown_rows]
        for r, c in itertools.product(shown_rows, shown_columns):
            index = (*lead, r, c)[-rank:] if rank else ()
            cell = self.geometry.cell(index)
            value = self.stored[cell] if cell in self.stored else self.value(index)
            x, y = left + c * self.wide, top + r * HEIGHT
            parts.append(self.cell(x, y, value, cell, line_of(self.geometry, index)))
        if columns > COLUMNS:
            after = left + COLUMNS * self.wide + 6
            parts.append(svg.text(after, top + 22, f"… {columns:,}", class_="tg-muted"))
        if rows > ROWS:
            parts.append(svg.text(left, top + ROWS * HEIGHT + 18, f"… {rows:,} rows", class_="tg-muted"))
        return "".join(parts)

    def value(self, index: tuple) -> str:
        """Returns the text of one element of a tensor whose storage is only partly shown."""
        return "" if self.tensor.is_meta else value_text(self.tensor.detach()[index].item())

    # --- the storage ---

    def storage(self, y: float, sentence: str) -> tuple[str, float, float]:
        """Draws the cells in rows, with the steps above the first. Returns (markup, width, y of the lower end)."""
        size, window = self.tensor.element_size(), self.window
        what = f"Storage: {self.geometry.cells:,} cells of {size} byte{'s' * (size != 1)}"
        arrows, room = self.steps(y + 30)
        top = y + 54 + room
        parts = [
            svg.text(MARGIN, y, what, font_weight=600),
            svg.text(MARGIN, y + 18, sentence, class_="tg-muted"),
            arrows,
        ]
        gray_first = sorted(enumerate(window), key=lambda entry: entry[1] in self.seen)
        for at, cell in gray_first:
            row, column = divmod(at, PER_ROW)
            x, line = MARGIN + column * self.wide, top + row * (HEIGHT + GAP)
            indices = self.seen.get(cell)
            color = line_of(self.geometry, indices[0]) if indices else None
            parts.append(self.cell(x, line, self.stored[cell], cell, color))
            if indices:
                several = {"fill": colour("warm"), "font_weight": 600} if len(indices) > 1 else {"fill": colour("ink")}
                middle = x + self.wide / 2
                parts.append(
                    svg.text(middle, line - 5, self.label(cell), text_anchor="middle", font_size=10, **several)
                )
        rows = max(1, -(-len(window) // PER_ROW))
        width = 2 * MARGIN + min(len(window), PER_ROW) * self.wide
        return "".join(parts), width, (top + rows * (HEIGHT + GAP) - GAP if len(window) else y + 18) + MARGIN

    def steps(self, y: float) -> tuple[str, float]:
        """Draws arrows from the first element to its neighbor along each dimension, if both are in the first row.

        Returns (markup, height).
        """
        geometry = self.geometry
        first = geometry.offset - self.window.start
        wanted = [(s, d) for d, (n, s) in enumerate(zip(geometry.shape, geometry.strides)) if n > 1]
        fitting = sorted((s, d) for s, d in wanted if first + s < PER_ROW) if 0 not in geometry.shape else []
        room = 18.0 * len(fitting)
        base, parts = y + room + 6, []
        ends = [MARGIN + (first + 0.5 + step) * self.wide - 4 * level for level, (step, _) in enumerate(fitting)]
        for level, (step, dim) in enumerate(fitting):
            x = MARGIN + (first + 0.5) * self.wide - 4 * level
            end = x + step * self.wide if step else x + 14
            high = base - 18.0 * (level + 1) + 4
            path = f"M{svg.number(x)} {svg.number(base)}V{svg.number(high + 6)}q0 -6 6 -6"
            path += f"H{svg.number(end - 6)}q6 0 6 6V{svg.number(base - 5)}"
            stroke = svg.series(4 + dim)
            tip = svg.points([(end - 4, base - 6), (end + 4, base - 6), (end, base + 1)])
            parts.append(element("path", d=path, fill="none", stroke=stroke, stroke_width=1.5))
            parts.append(element("polygon", points=tip, fill=stroke))
            words = f"dim {dim}: +{step}"
            left = end
            for other in ends[level + 1 :]:  # moves the text past arrows that come down on the right
                if left - 4 < other < left + 64:
                    left = other
            parts.append(svg.text(left + 7, high + 9, words, font_size=10, fill=stroke, font_weight=600))
        return "".join(parts), room


def _small(x: float, y: float, content: object) -> str:
    return svg.text(x, y, content, text_anchor="middle", font_size=10, class_="tg-muted")
