"""A table of events or averages, in PyTorch's layout."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

Column = tuple[str, Callable[[Any], str]]
_FLOPS = ("FLOPs", "KFLOPs", "MFLOPs", "GFLOPs", "TFLOPs", "PFLOPs")


def table(
    rows: Sequence[Any],
    total: float,
    *,
    memory: bool,
    flops: bool,
    row_limit: int,
    max_src_column_width: int | None,
    max_name_column_width: int | None,
    max_shapes_column_width: int | None,
    header: str | None,
    top_level_events_only: bool,
    time_unit: str | None,
) -> str:
    """Returns the text for `EventList.table`; `total` is the sum of all events' own times."""
    if not rows:
        return ""
    wide = _width(max(len(e.key) for e in rows) + 4, max_name_column_width)
    columns = _columns(total or 1.0, memory, time_unit)
    widths = [wide, *[12] * len(columns)]
    if any(e.input_shapes for e in rows):
        widths.append(_width(max(len(str(e.input_shapes)) for e in rows) + 4, max_shapes_column_width))
        columns.append(("Input Shapes", lambda e, width=widths[-1]: str(e.input_shapes)[:width]))  # type: ignore[misc]
    counted = [e.flops for e in rows if e.flops > 0] if flops else []
    if counted:
        power = max(0, min(int(math.log10(min(counted)) // 3), len(_FLOPS) - 1))
        widths.append(12)
        columns.append((f"Total {_FLOPS[power]}", lambda e: f"{e.flops / 1000**power:8.3f}" if e.flops else "--"))
    stacked = any(e.stack for e in rows)
    if stacked:
        longest = max(len(line) for e in rows for line in e.stack)
        widths.append(_width(longest + 4, max_src_column_width))
    rule = "  ".join("-" * width for width in widths) + "  "
    titles = ["Name", *(title for title, _ in columns), *(["Source Location"] if stacked else [])]
    lines = ["=" * (len(rule) - 2), header] if header is not None else []
    if top_level_events_only:
        lines += ["=" * (len(rule) - 2), "This report only display top-level ops statistics"]
    lines += [rule, _aligned(titles, widths, stacked), rule]
    for e in rows[: row_limit if row_limit >= 0 else None]:
        name = e.key
        if max_name_column_width is not None and len(name) >= max_name_column_width - 3:
            name = name[: max_name_column_width - 3] + "..."
        sources = [_end_of(line, widths[-1]) for line in e.stack] if stacked else []
        cells = [name, *(show(e) for _, show in columns), *((sources[:1] or [""]) if stacked else [])]
        lines.append(_aligned(cells, widths, stacked))
        empty = [""] * (len(widths) - 1)
        lines += [_aligned([*empty, source], widths, True) for source in [*sources[1:], ""][: len(sources)]]
    return "\n".join([*lines, rule, f"Self CPU time total: {time_text(total, time_unit)}"]) + "\n"


def _columns(total: float, memory: bool, time_unit: str | None) -> list[Column]:
    columns: list[Column] = [
        ("Self CPU %", lambda e: f"{100 * e.self_cpu_time_total / total:.2f}%"),
        ("Self CPU", lambda e: time_text(e.self_cpu_time_total, time_unit)),
        ("CPU total %", lambda e: f"{100 * e.cpu_time_total / total:.2f}%"),
        ("CPU total", lambda e: time_text(e.cpu_time_total, time_unit)),
        ("CPU time avg", lambda e: time_text(e.cpu_time, time_unit)),
    ]
    if memory:
        columns += [
            ("CPU Mem", lambda e: bytes_text(e.cpu_memory_usage)),
            ("Self CPU Mem", lambda e: bytes_text(e.self_cpu_memory_usage)),
        ]
    return [*columns, ("# of Calls", lambda e: str(e.count))]


def _width(wanted: int, most: int | None) -> int:
    return wanted if most is None else min(wanted, most)


def _aligned(cells: Sequence[str], widths: Sequence[int], last_to_the_left: bool) -> str:
    last = len(cells) - 1
    return "".join(
        (cell.ljust(width) if last_to_the_left and i == last else cell.rjust(width)) + "  "
        for i, (cell, width) in enumerate(zip(cells, widths))
    )


def _end_of(path: str, width: int) -> str:
    """Returns the last part of a source location: the file name matters more than the directory."""
    return path if len(path) <= width else "..." + path[len(path) - width + 3 :]


def time_text(microseconds: float, unit: str | None = None) -> str:
    """Formats a time with its unit: `1.250ms`."""
    if unit == "s" or (unit is None and microseconds >= 1e6):
        return f"{microseconds / 1e6:.3f}s"
    if unit == "ms" or (unit is None and microseconds >= 1e3):
        return f"{microseconds / 1e3:.3f}ms"
    return f"{microseconds:.3f}us"


def bytes_text(count: int) -> str:
    """Formats a size with its unit: `1.50 KB`."""
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if abs(count) >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} B"
