"""SVG to PNG and PDF, by whichever program is installed: CairoSVG, librsvg's `rsvg-convert`, or Chromium."""

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

SCALE = 2  # pixels of a PNG for one unit of the picture: sharp on today's screens
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def converted(markup: str, kind: str, dark: bool = False) -> bytes:
    """The image as `kind` ("png" or "pdf").

    Raises: RuntimeError if no program that could do it is installed, or none succeeded.
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
        f"writing {kind.upper()} needs a converter: `pip install cairosvg`, or install rsvg-convert (librsvg) or "
        "Chromium; .svg and .html need nothing"
    )


def _cairosvg(markup: str, kind: str, dark: bool) -> bytes | None:
    try:
        import cairosvg
    except (ImportError, OSError):  # OSError: the package is there, the C library is not
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
    # A page of the picture's own size, so that the PDF is one sheet without a margin.
    style = f"@page{{size:{width}px {height}px;margin:0}}body.tg{{padding:0}}svg{{display:block}}"
    with tempfile.TemporaryDirectory(prefix="tensorgrad-", ignore_cleanup_errors=True) as folder:
        source, target = Path(folder, "picture.html"), Path(folder, f"picture.{kind}")
        source.write_text(svg.resolved(svg.page(markup, title="picture", style=style), dark), encoding="utf-8")
        what = (
            # The window is larger than what it shows, and has a least width: the image is cut to size below.
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
    """The upper left part of a PNG image of 8-bit RGB or RGBA pixels.

    A row's bytes are differences to pixels on the left and above, never to those on the right or below, so that the
    rows only have to be cut off. Source: "Portable Network Graphics", https://www.w3.org/TR/png-3/.

    Raises: ValueError if the image is smaller, or of another kind.
    """
    chunks, place = [], 8
    while place < len(png):
        (length,) = struct.unpack(">I", png[place : place + 4])
        chunks.append((png[place + 4 : place + 8], png[place + 8 : place + 8 + length]))
        place += length + 12
    columns, rows, *kind = struct.unpack(">IIBBBBB", chunks[0][1])
    channels = {2: 3, 6: 4}.get(kind[1])
    if kind[0] != 8 or channels is None or kind[4] or columns < width or rows < height:
        raise ValueError(f"expected at least {width} × {height} pixels of 8-bit RGB, got {columns} × {rows}, {kind}")
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
    """Width and height of an image, rounded up. Raises: ValueError if it does not say.

    >>> size_of('<svg viewBox="0 0 20 10.5">')
    (20, 11)
    """
    found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', markup)
    if found is None:
        raise ValueError("the image has no viewBox that begins at 0 0")
    return -int(-float(found[1]) // 1), -int(-float(found[2]) // 1)
