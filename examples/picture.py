"""The examples' pictures: grids of images as PNG, lines and points as SVG. Only NumPy is needed.

Under tensorgrad, loss curves are drawn by ``tensorgrad.viz``.
"""

import html
import importlib.util
import struct
import zlib

import numpy as np

COLORS = ["#3b6fb6", "#d1602b", "#3c8d53", "#8a4fa3", "#777777"]
WIDTH, HEIGHT, MARGIN = 340, 260, 44  # of one panel, in pixels


def save_grid(images, file, columns=10, scale=None):
    """Writes `images` (count, height, width), 0 for paper and 1 for ink, as one PNG with `columns` per row."""
    images = np.clip(np.asarray(images, dtype=np.float32), 0, 1)
    count, height, width = images.shape
    rows = -(-count // columns)
    sheet = np.zeros((rows * columns, height + 1, width + 1), np.float32)  # one pixel of paper between neighbours
    sheet[:count, :-1, :-1] = images
    sheet = sheet.reshape(rows, columns, height + 1, width + 1).swapaxes(1, 2).reshape(rows * (height + 1), -1)
    scale = scale or max(1, round(52 / height))
    pixels = (255 * (1 - sheet)).round().astype(np.uint8).repeat(scale, 0).repeat(scale, 1)
    write_png(pixels, file)


def write_png(pixels, file):
    """Writes gray `pixels`, bytes (height, width), as PNG: header, compressed rows and end, each with its checksum."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels], axis=1)  # each row begins with its filter: none
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)  # eight bits, grayscale, default methods
    with open(file, "wb") as stream:
        stream.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header))
        stream.write(chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)) + chunk(b"IEND", b""))


def save_curves(torch, history, file, title, unit="step"):
    """Draws the lists in `history` over its list "done", counted in `unit`; uses ``viz.curves`` if available."""
    series = {name: values for name, values in history.items() if name != "done"}
    viz = f"{torch.__name__}.viz"
    if importlib.util.find_spec(viz) is None:
        lines = {name: (history["done"], values) for name, values in series.items()}
        save_panels([{"title": f"{title}, by {unit}", "lines": lines}], file)
    else:
        curves = importlib.import_module(viz).curves
        curves(series, x=history["done"], title=title, x_label=unit).save(file)


def save_bars(groups, file):
    """Writes an SVG with one panel for each of `groups`, {title: {name: value}}, and one bar for each name."""
    parts = []
    for number, (title, bars) in enumerate(groups.items()):
        left, longest = number * WIDTH + 12, max(bars.values())
        parts.append(f'<text x="{left}" y="16" font-weight="bold">{html.escape(title)}</text>')
        for i, (name, value) in enumerate(bars.items()):
            y, length = 34 + 44 * i, (WIDTH - 24) * value / longest
            parts.append(f'<text x="{left}" y="{y}">{html.escape(name)}: {value:.3g}</text>')
            parts.append(f'<rect x="{left}" y="{y + 6}" width="{length:.1f}" height="16" fill="{COLORS[i]}"/>')
    write_svg(parts, WIDTH * len(groups), 30 + 44 * max(map(len, groups.values())), file)


def save_panels(panels, file):
    """Writes panels side by side as SVG: {"title": text, "lines": {name: (x, y)}, "points": {name: (x, y)}}.

    A panel may set its "range" to (left, right, bottom, top); by default it shows everything.
    """
    write_svg([draw_panel(panel, i * WIDTH) for i, panel in enumerate(panels)], WIDTH * len(panels), HEIGHT, file)


def write_svg(parts, width, height, file):
    """Writes SVG elements to one file, on a white background."""
    with open(file, "w", encoding="utf-8") as stream:
        stream.write(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'font-family="sans-serif" font-size="11"><rect width="{width}" height="{height}" fill="white"/>'
            + "".join(parts)
            + "</svg>\n"
        )


def draw_panel(panel, offset):
    """The SVG of one panel: title, axes, lines, points and a legend."""
    lines, points = panel.get("lines", {}), panel.get("points", {})
    drawn = [*lines.values(), *points.values()]
    xs, ys = (np.concatenate([np.ravel(pair[axis]) for pair in drawn]) for axis in (0, 1))
    left, right, bottom, top = panel.get("range") or (xs.min(), xs.max(), ys.min(), ys.max())
    right, top = right + (right == left), top + (top == bottom)

    def place(x, y):
        across = offset + MARGIN + (np.ravel(x) - left) / (right - left) * (WIDTH - MARGIN - 12)
        down = HEIGHT - 30 - (np.ravel(y) - bottom) / (top - bottom) * (HEIGHT - 70)
        return zip(across.round(1), down.round(1), strict=True)

    parts = [f'<text x="{offset + MARGIN}" y="16" font-weight="bold">{html.escape(panel["title"])}</text>']
    for tick in ticks(left, right):
        ((x, y),) = place(tick, bottom)
        parts.append(f'<path d="M{x} {y}V40" stroke="#eee"/>')
        parts.append(f'<text x="{x}" y="{y + 15}" text-anchor="middle">{tick:g}</text>')
    for tick in ticks(bottom, top):
        ((x, y),) = place(left, tick)
        parts.append(f'<path d="M{x} {y}H{offset + WIDTH - 12}" stroke="#eee"/>')
        parts.append(f'<text x="{x - 5}" y="{y + 4}" text-anchor="end">{tick:g}</text>')
    name_at, clip = offset + MARGIN, f"inside{offset}"
    parts.append(
        f'<clipPath id="{clip}"><rect x="{offset + MARGIN - 4}" y="36" width="{WIDTH - MARGIN - 4}" '
        f'height="{HEIGHT - 62}"/></clipPath>'
    )
    for number, name in enumerate([*lines, *points]):
        color = COLORS[number % len(COLORS)]
        if name in lines:
            path = " ".join(f"{x},{y}" for x, y in place(*lines[name]))
            shape = f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.5"'
        else:
            dots = "".join(f"M{x} {y}h0" for x, y in place(*points[name]))
            size = 3.5 if np.size(points[name][0]) > 20 else 8
            shape = f'<path d="{dots}" stroke="{color}" stroke-width="{size}" stroke-linecap="round"'
        parts.append(f'{shape} clip-path="url(#{clip})"/>')
        parts.append(f'<text x="{name_at}" y="32" fill="{color}">{html.escape(name)}</text>')
        name_at += 7 * len(name) + 12
    return "".join(parts)


def ticks(low, high):
    """About five round numbers between `low` and `high`."""
    power = 10 ** np.floor(np.log10((high - low) / 6))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= (high - low) / 6)
    return np.round(np.arange(np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9) + 1) * step, 10) + 0.0
