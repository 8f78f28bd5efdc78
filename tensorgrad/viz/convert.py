"""Converts SVG to PNG and PDF with whichever is installed of CairoSVG, librsvg's `rsvg-convert`, and Chromium."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

from tensorgrad.viz import svg

SCALE = 2  # PNG pixels per unit of the picture, for high-resolution screens
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def converted(markup: str, kind: str, dark: bool = False) -> bytes:
    """Converts an SVG image to `kind` ("png" or "pdf").

    Raises: RuntimeError if no converter is installed, or none succeeds.
    """
    markup = svg.resolved(markup, dark)
    failures = []
    for name, convert in CONVERTERS.items():
        try:
            result = convert(markup, kind, dark)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            failures.append(f"{name}: {error}")
            continue
        if result is not None:
            return result
    if failures:
        raise RuntimeError(f"cannot write {kind.upper()}: {'; '.join(failures)}")
    raise RuntimeError(
        f"writing {kind.upper()} needs a converter: run `pip install cairosvg`, or install rsvg-convert (librsvg) or "
        "Chromium; .svg and .html need no converter"
    )


def _cairosvg(markup: str, kind: str, dark: bool) -> bytes | None:
    try:
        import cairosvg
    except (ImportError, OSError):  # OSError: the package is installed, but the C library is not
        return None
    if kind == "pdf":
        return cairosvg.svg2pdf(bytestring=markup.encode())
    return cairosvg.svg2png(bytestring=markup.encode(), scale=SCALE)


def _rsvg(markup: str, kind: str, dark: bool) -> bytes | None:
    program = shutil.which("rsvg-convert")
    if program is None:
        return None
    command = [program, "--format", kind, *(["--zoom", str(SCALE)] if kind == "png" else [])]
    return subprocess.run(command, input=markup.encode(), capture_output=True, check=True, timeout=120).stdout


def _chromium(markup: str, kind: str, dark: bool) -> bytes | None:
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        return None
    width, height = size_of(markup)
    # The page has the size of the picture, so that the PDF is a single sheet without margins.
    style = f"@page{{size:{width}px {height}px;margin:0}}body.tg{{padding:0}}svg{{display:block}}"
    with tempfile.TemporaryDirectory(prefix="tensorgrad-", ignore_cleanup_errors=True) as folder:
        source, target = Path(folder, "picture.html"), Path(folder, f"picture.{kind}")
        source.write_text(svg.resolved(svg.page(markup, title="picture", style=style), dark), encoding="utf-8")
        what = (
            # The window is larger than the area it shows and has a minimum width, so the image is cropped below.
            [f"--screenshot={target}", f"--window-size={max(width, 600)},{height + 200}"]
            if kind == "png"
            else [f"--print-to-pdf={target}", "--no-pdf-header-footer"]
        )
        command = [
            program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
            f"--force-device-scale-factor={SCALE}", f"--user-data-dir={folder}/profile", *what, source.as_uri(),
        ]  # fmt: skip
        subprocess.run(command, capture_output=True, check=True, timeout=120)
        content = target.read_bytes()
    return cropped(content, width * SCALE, height * SCALE) if kind == "png" else content


def cropped(png: bytes, width: int, height: int) -> bytes:
    """Crops a PNG image of 8-bit RGB or RGBA pixels to its upper left part.

    A row's bytes are differences from pixels on the left and above, never from those on the right or below, so the rows
    can simply be truncated. Source: "Portable Network Graphics", https://www.w3.org/TR/png-3/.

    Raises: ValueError if the image is smaller, or of another kind.
    """
    chunks, offset = [], 8
    while offset < len(png):
        (length,) = struct.unpack(">I", png[offset : offset + 4])
        chunks.append((png[offset + 4 : offset + 8], png[offset + 8 : offset + 8 + length]))
        offset += length + 12
    columns, rows, *kind = struct.unpack(">IIBBBBB", chunks[0][1])
    channels = {2: 3, 6: 4}.get(kind[1])
    if kind[0] != 8 or channels is None or kind[4] or columns < width or rows < height:
        raise ValueError(
            f"expected at least {width} × {height} pixels of 8-bit RGB, but got {columns} × {rows}, {kind}"
        )
    data = zlib.decompress(b"".join(content for name, content in chunks if name == b"IDAT"))
    step = 1 + columns * channels
    kept = b"".join(data[i * step : i * step + 1 + width * channels] for i in range(height))
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, *kind)),
        (b"IDAT", zlib.compress(kept, 9)),
        (b"IEND", b""),
    ]
    packed = (struct.pack(">I", len(c)) + n + c + struct.pack(">I", zlib.crc32(n + c)) for n, c in parts)
    return png[:8] + b"".join(packed)


CONVERTERS: dict[str, Callable[[str, str, bool], bytes | None]] = {
    "CairoSVG": _cairosvg,
    "rsvg-convert": _rsvg,
    "Chromium": _chromium,
}


def size_of(markup: str) -> tuple[int, int]:
    """Returns the width and height of an SVG image, rounded up. Raises: ValueError if it does not state them.

    >>> size_of('<svg viewBox="0 0 20 10.5">')
    (20, 11)
    """
    found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', markup)
    if found is None:
        raise ValueError("expected an SVG image with a viewBox that starts at 0 0, but found none")
    return -int(-float(found[1]) // 1), -int(-float(found[2]) // 1)
