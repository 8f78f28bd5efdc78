"""`viz.curves` and `viz.weights`: lines over steps, such as losses, and the distribution of values during training."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tensorgrad.tensor import Tensor
from tensorgrad.viz import svg
from tensorgrad.viz.picture import Picture
from tensorgrad.viz.svg import colour, element

Points = tuple[np.ndarray, np.ndarray]  # x and y of a line, floats


# --- input data ----------------------------------------------------------------------------------------------------


def lines_of(data: Any, x: Any = None) -> dict[str, Points]:
    """Converts the data that `curves` accepts to lines: name -> (x, y). Values that are not numbers are left out.

    Raises: TypeError for unsupported data; ValueError if there is no line, or x and y differ in length.

    >>> lines_of({"loss": [3, 2, 1]})["loss"][1].tolist()
    [3.0, 2.0, 1.0]
    """
    if isinstance(data, str | os.PathLike):
        data, column = read_log(Path(data))
        x = column if x is None else x
    if hasattr(data, "columns"):  # a data frame
        data = {name: data[name] for name in data.columns}
    if isinstance(data, Mapping):
        found = {str(name): _line(values, x) for name, values in data.items()}
    elif isinstance(data, Tensor) and data.ndim == 2:
        found = {str(i): _line(row, x) for i, row in enumerate(data)}
    else:
        found = {"": _line(data, x)}
    found = {name: line for name, line in found.items() if len(line[0])}
    if not found:
        raise ValueError("curves(): expected at least one number to draw, but got none")
    return found


def _line(values: Any, x: Any) -> Points:
    """Converts the data of one line: values over 0, 1, 2, ... or over x, or (x, y) pairs."""
    y = _floats(values)
    if y.ndim == 2 and y.shape[1] == 2:
        along, y = y[:, 0], y[:, 1]
    else:
        along = np.arange(len(y), dtype=float) if x is None else _floats(x)
    if y.ndim != 1 or along.shape != y.shape:
        raise ValueError(f"curves(): expected 1-D x and y of equal length, but got shapes {along.shape} and {y.shape}")
    known = np.isfinite(along) & ~np.isnan(y)
    return along[known], y[known]


def _floats(values: Any) -> np.ndarray:
    if isinstance(values, Tensor):
        values = values.detach().cpu().double().tolist()
    elif isinstance(values, Iterable) and not isinstance(values, str | bytes):
        values = [v.item() if isinstance(v, Tensor) else math.nan if v is None else v for v in values]
    try:
        found = np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise TypeError(f"curves(): expected numbers, but got {type(values).__name__}: {error}") from None
    return found if found.ndim else found.reshape(1)


STEPS = (
    "step",
    "iteration",
    "iter",
    "global_step",
    "epoch",
    "batch",
)  # a column with one of these names becomes the x axis


def read_log(path: Path) -> tuple[dict[str, list[float]], list[float] | None]:
    """Reads the numeric columns of a log: CSV with a header, or one JSON object per line (`.jsonl`, `.json`).

    Returns the columns and, separately, the column that counts steps, if there is one. Missing values are nan.

    Raises: ValueError if there are no numeric columns.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "log.csv")
    ...     _ = path.write_text("step,loss\\n0,2.5\\n10,1.5\\n")
    ...     read_log(path)
    ({'loss': [2.5, 1.5]}, [0.0, 10.0])
    """
    text = path.read_text(encoding="utf-8-sig")
    rows: list[dict[str, Any]]
    if path.suffix.lower() in (".jsonl", ".json", ".ndjson"):
        whole = text.lstrip().startswith("[")
        rows = json.loads(text) if whole else [json.loads(line) for line in text.splitlines() if line.strip()]
    else:
        try:
            dialect: Any = csv.Sniffer().sniff(text[:4096], delimiters=",;\t ")
        except csv.Error:
            dialect = csv.excel
        rows = list(csv.DictReader(text.splitlines(), dialect=dialect, skipinitialspace=True))
    names = dict.fromkeys(name for row in rows for name in row if name is not None)
    columns = {name: [_number(row.get(name)) for row in rows] for name in names}
    columns = {name: column for name, column in columns.items() if not all(map(math.isnan, column))}
    steps = next((name for name in columns if name.lower() in STEPS), None)
    if not columns.keys() - {steps}:
        raise ValueError(f"{path}: expected a header and at least one numeric column, but found none")
    return {n: c for n, c in columns.items() if n != steps}, columns[steps] if steps else None


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def smoothed(values: np.ndarray, weight: float) -> np.ndarray:
    """Returns the exponential moving average, with bias correction. 0 changes nothing; a weight close to 1 flattens.

    Source: the bias correction of Kingma & Ba, "Adam: a method for stochastic optimization", 2015.

    >>> smoothed(np.array([1.0, 1.0, 4.0]), 0.5).round(3).tolist()
    [1.0, 1.0, 2.714]
    """
    found, mean, total = np.empty_like(values), 0.0, 0.0
    for i, value in enumerate(values):
        if math.isfinite(value):
            mean, total = weight * mean + (1 - weight) * value, weight * total + (1 - weight)
        found[i] = mean / total if total else value
    return found


def thinned(x: np.ndarray, y: np.ndarray, most: int) -> Points:
    """Reduces a line to about `most` points that look the same: the lowest and highest of each stretch.

    >>> len(thinned(np.arange(1000.0), np.sin(np.arange(1000.0)), 100)[0]) <= 100
    True
    """
    if len(x) <= most:
        return x, y
    kept = []
    for part in np.array_split(np.arange(len(x)), most // 2):
        kept += sorted({int(part[np.argmin(y[part])]), int(part[np.argmax(y[part])])})
    return x[kept], y[kept]


# --- axes ----------------------------------------------------------------------------------------------------------


class Axis(NamedTuple):
    """Maps a range of values to a range of the picture; `log` for a logarithmic scale, `whole` for integers."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    whole: bool = False

    @classmethod
    def over(cls, values: np.ndarray, start: float, end: float, log: bool = False, slack: float = 0.04) -> Axis:
        """Returns an axis that covers the given values."""
        whole = not slack and bool(np.all(values == np.round(values)))
        values = values[np.isfinite(values) & ((values > 0) | (not log))]
        low, high = (float(values.min()), float(values.max())) if len(values) else (1.0, 10.0) if log else (0.0, 1.0)
        if log:
            low, high = math.log10(low), math.log10(high)
        if high - low < 1e-12 * max(abs(low), abs(high), 1e-300):
            margin = abs(low) * 0.1 or 0.5
            low, high = low - margin, high + margin
        room = (high - low) * slack
        low, high = low - room, high + room
        return cls(10**low if log else low, 10**high if log else high, start, end, log, whole)

    def place(self, value: float) -> float:
        """Returns the position of a value in the picture, clipped to the ends of the axis."""
        low, high = self.low, self.high
        if self.log:
            if value <= 0:
                return self.start
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        share = min(max((value - low) / (high - low), 0.0), 1.0)
        return self.start + share * (self.end - self.start)

    def ticks(self, wanted: int = 5) -> list[float]:
        """Returns about `wanted` round values along the axis.

        >>> Axis(0.0, 9.7, 0, 100).ticks()
        [0.0, 2.0, 4.0, 6.0, 8.0]
        >>> Axis(0.01, 20.0, 0, 100, log=True).ticks()
        [0.01, 0.1, 1.0, 10.0]
        """
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            powers = range(first - 1, last + 1, max(1, round((last - first) / wanted)))
            found = [f * 10.0**power for power in powers for f in ((1, 2, 5) if last - first < 3 else (1,))]
            found = [
                round(value, 12 - math.floor(math.log10(value))) for value in found if self.low <= value <= self.high
            ]
            if len(found) > 1:
                return found
        span = self.high - self.low
        size = 10.0 ** math.floor(math.log10(span / wanted))
        step = min((f * size for f in (1, 2, 2.5, 5, 10)), key=lambda s: abs(span / s - wanted))
        first = math.ceil(self.low / step - 1e-9)
        found = [round((first + i) * step, 12) for i in range(int((self.high - first * step) / step + 1e-9) + 1)]
        return [value for value in found if value == int(value)] if self.whole else found


WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 720.0, 370.0, 64.0, 64.0, 46.0
STEP = 15.0  # the distance between the names of two lines


def frame(across: Axis, up: Axis, title: str, x_label: str, y_label: str) -> list[str]:
    """Draws the title, the grid, the ticks and the axis labels."""
    parts = [svg.text(LEFT, 28, title, font_size=16, font_weight=600)] if title else []
    for value in up.ticks():
        y = up.place(value)
        parts.append(svg.line(across.start, y, across.end, y, stroke=colour("grid")))
        parts.append(svg.text(across.start - 8, y + 4, svg.short(value, 3), text_anchor="end", class_="tg-muted"))
    for value in across.ticks(7):
        x = across.place(value)
        parts.append(svg.line(x, up.start, x, up.start + 5, stroke=colour("edge")))
        parts.append(svg.text(x, up.start + 19, svg.short(value, 6), text_anchor="middle", class_="tg-muted"))
    parts.append(svg.line(across.start, up.start, across.end, up.start, stroke=colour("edge")))
    middle = (across.start + across.end) / 2
    parts.append(svg.text(middle, up.start + 38, x_label, text_anchor="middle", class_="tg-muted"))
    if y_label:
        parts.append(svg.text(20, up.end - 12, y_label, class_="tg-muted"))
    return parts


# --- curves --------------------------------------------------------------------------------------------------------


def curves(
    data: Any,
    *,
    x: Any = None,
    log: bool = False,
    smooth: float = 0.0,
    title: str = "",
    x_label: str = "step",
    y_label: str = "",
) -> Picture:
    """Draws lines over steps: losses, accuracies, norms of weights.

    Args:
        data: the values of one line (a list, an array or a tensor) or (x, y) pairs; a dict or a data frame for several
            named lines; or the path of a log (CSV with a header, or one JSON object per line), whose numeric columns
            are drawn.
        x: the x values of all lines; by default 0, 1, 2, ..., or the log's column `step`, `epoch` or similar.
        log: whether to use a logarithmic scale; values that are not positive are drawn at its lower end.
        smooth: the weight of the past in a moving average, from 0 to below 1; the original values stay faintly visible.
        title, x_label, y_label: the title and the axis labels.

    NaN values are skipped without breaking the line. The name of each line is shown at its end with the last value (for
    smoothed lines, the average). Long lines are thinned, keeping their extremes.

    Returns:
        A picture: a notebook shows it; elsewhere use `.save("curves.svg")` or `.show()`.

    Raises:
        TypeError: If the data is not numeric.
        ValueError: If there is nothing to draw, or a setting is out of range.

    >>> from tensorgrad import viz
    >>> viz.curves({"train": [2.0, 1.0, 0.6], "test": [2.1, 1.3, 1.1]}, title="Loss", smooth=0.5)
    <Picture: Loss>
    """
    if not 0 <= smooth < 1:
        raise ValueError(f"curves(): expected 0 <= smooth < 1, but got {smooth}")
    lines = lines_of(data, x)
    drawn = {name: smoothed(y, smooth) if smooth else y for name, (_, y) in lines.items()}
    names = {name: f"{name} {svg.short(y[-1], 4)}".strip() for name, y in drawn.items()}
    room = min(max(1.12 * svg.text_width(n) for n in names.values()) + 24, 260.0)
    shown = [y for name, (_, y) in lines.items()]
    across = Axis.over(np.concatenate([a for a, _ in lines.values()]), LEFT, WIDTH - room, slack=0.0)
    height = max(HEIGHT, TOP + BOTTOM + STEP * len(lines))
    up = Axis.over(np.concatenate(shown), height - BOTTOM, TOP, log)
    parts = frame(across, up, title, x_label, y_label)
    ends = []
    for number, (name, (along, values)) in enumerate(lines.items()):
        if smooth and len(values) > 1:
            parts.append(_polyline(along, values, across, up, number, faint=True))
        parts.append(_polyline(along, drawn[name], across, up, number))
        end = across.place(float(along[-1])), up.place(float(drawn[name][-1]))
        if end[0] < across.end - 1:  # a line that ends early, or a single point, gets a dotted line to its name
            parts.append(svg.line(*end, across.end, end[1], stroke=svg.series(number), stroke_dasharray="1 4"))
        ends.append((end[1], number, name))
    parts += _names(ends, names, across.end, room, up.start)
    heading = title or ", ".join(filter(None, lines)) or "Curve"
    return Picture(svg.document(WIDTH, height, parts, title=heading, description=_in_words(lines, x_label)), heading)


def _polyline(x: np.ndarray, y: np.ndarray, across: Axis, up: Axis, number: int, faint: bool = False) -> str:
    x, y = thinned(x, y, 1200)
    corners = [(across.place(a), up.place(b)) for a, b in zip(x.tolist(), y.tolist())]
    if len(corners) == 1:
        return element("circle", cx=corners[0][0], cy=corners[0][1], r=4, fill=svg.series(number))
    return element(
        "polyline",
        points=svg.points(corners),
        fill="none",
        stroke=svg.series(number),
        stroke_width=1.0 if faint else 2.0,
        stroke_opacity=0.3 if faint else None,
        stroke_linejoin="round",
        stroke_dasharray=DASHES[number // len(svg.SERIES) % len(DASHES)],
    )


DASHES = (None, "6 3", "2 3")  # tell lines apart once the colors repeat


def _names(
    ends: list[tuple[float, int, str]], names: Mapping[str, str], x: float, room: float, bottom: float
) -> list[str]:
    """Draws the lines' names next to their ends, moved apart where they would overlap."""
    parts = []
    ends = sorted(ends)
    heights = [y for y, _, _ in ends]
    for i in range(1, len(heights)):
        heights[i] = max(heights[i], heights[i - 1] + STEP)
    for i, above_bottom in enumerate(reversed(range(len(heights)))):  # the lowest ones push the others up again
        heights[i] = min(heights[i], bottom - STEP * above_bottom)
    for height, (y, number, name) in zip(heights, ends):
        shade = svg.series(number)
        parts.append(svg.line(x + 2, y, x + 10, height, stroke=shade))
        shown = svg.shortened(names[name], (room - 18) / 1.12)
        parts.append(svg.text(x + 13, height + 4, shown, fill=shade, font_weight=600))
    return parts


def _in_words(lines: Mapping[str, Points], x_label: str) -> str:
    """Describes the lines in words, for screen readers."""
    sentences = []
    for name, (x, y) in list(lines.items())[:12]:
        lowest, highest = int(np.argmin(y)), int(np.argmax(y))
        sentences.append(
            f"{name or 'The line'} goes from {svg.short(y[0])} to {svg.short(y[-1])}; lowest {svg.short(y[lowest])} at "
            f"{x_label} {svg.short(x[lowest], 6)}, highest {svg.short(y[highest])} at {svg.short(x[highest], 6)}."
        )
    more = f" And {len(lines) - 12} more lines." if len(lines) > 12 else ""
    return " ".join(sentences) + more


# --- weights -------------------------------------------------------------------------------------------------------

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


def weights(history: Any, *, title: str = "", x_label: str = "step", y_label: str = "value") -> Picture:
    """Draws the distribution of values over the steps: bands for 100 %, 90 % and 50 % of them, and the median line.

    Args:
        history: the values at each step: a list of tensors or arrays, or a dict from steps to these. Typically copies
            of a weight taken during training: `history.append(layer.weight.detach().clone())`.
        title, x_label, y_label: the title and the axis labels.

    Returns:
        A picture: a notebook shows it; elsewhere use `.save("weights.svg")` or `.show()`.

    Raises:
        ValueError: If there is nothing to draw.

    >>> from tensorgrad import viz
    >>> viz.weights([torch.linspace(-1, 1, 11) * scale for scale in (1, 2, 3)], title="Layer 1")
    <Picture: Layer 1>
    """
    entries = list(history.items()) if isinstance(history, Mapping) else list(enumerate(history))
    steps, rows = [], []
    for step, values in entries:
        flat = _floats(values.reshape(-1) if isinstance(values, Tensor) else np.asarray(values).reshape(-1))
        flat = flat[np.isfinite(flat)]
        if len(flat):
            steps.append(float(step))
            rows.append(np.quantile(flat, QUANTILES))
    if not rows:
        raise ValueError("weights(): expected at least one finite number to draw, but got none")
    bands, along = np.array(rows).T, np.array(steps)
    across = Axis.over(along, LEFT, WIDTH - 130, slack=0.0)
    up = Axis.over(bands, HEIGHT - BOTTOM, TOP)
    parts = frame(across, up, title, x_label, y_label)
    labels = ("all values", "90 %", "50 %")
    for i, opacity in enumerate((0.15, 0.25, 0.4)):
        low, high = bands[i], bands[-1 - i]
        edge = [*zip(along, high), *zip(along[::-1], low[::-1])]
        corners = [(across.place(float(a)), up.place(float(b))) for a, b in edge]
        parts.append(element("polygon", points=svg.points(corners), fill=colour("accent"), fill_opacity=opacity))
    parts.append(_polyline(along, bands[3], across, up, 0))
    ends = [(up.place(float(bands[3][-1])), "median " + svg.short(bands[3][-1], 3))]
    ends += [(up.place(float(bands[-1 - i][-1])), label) for i, label in enumerate(labels)]
    for y, label in _apart(ends):
        parts.append(svg.text(across.end + 8, y + 4, label, fill=colour("accent"), font_weight=600))
    first, last = bands[:, 0], bands[:, -1]
    words = " ".join(
        f"At {x_label} {svg.short(at, 6)}: from {svg.short(q[0])} to {svg.short(q[-1])}, median {svg.short(q[3])}."
        for at, q in ((along[0], first), (along[-1], last))
    )
    heading = title or "Weights"
    return Picture(svg.document(WIDTH, HEIGHT, parts, title=heading, description=words), heading)


def _apart(entries: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    placed: list[tuple[float, str]] = []
    for y, label in sorted(entries):
        placed.append((max(y, placed[-1][0] + STEP) if placed else y, label))
    return placed
