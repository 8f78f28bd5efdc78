"""A picture: SVG text that notebooks show, and that can be saved or opened."""

from __future__ import annotations

import os
import tempfile
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensorgrad.serialization.archive import replacing
from tensorgrad.viz import svg

if TYPE_CHECKING:
    _Path = Path
else:
    _Path = type(Path())  # the class of this system's paths, the one that can be inherited from before Python 3.12


class Page(_Path):
    """The path of a page that was written. At the end of a notebook's cell the page itself is shown in place.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = Page(write(os.path.join(folder, "a.html"), "<p>Hello</p>"))
    ...     page.name, "&lt;p&gt;Hello&lt;/p&gt;" in page._repr_html_()
    ('a.html', True)
    """

    def with_segments(self, *segments) -> Path:
        """What is made of it, such as its folder, is an ordinary path (from Python 3.12 on)."""
        return Path(*segments)

    def _repr_html_(self) -> str | None:
        """The page in a frame of its own, whose lower edge can be pulled; None if it is no longer there."""
        if self.suffix.lower() != ".html" or not self.is_file():
            return None
        style = "width:100%;height:44rem;min-height:12rem;border:0;resize:vertical;overflow:auto"
        return svg.element("iframe", srcdoc=self.read_text("utf-8"), title=self.stem, style=style)


class Picture:
    """An SVG image. At the end of a notebook's cell it is shown in place.

    Args:
        markup: the text of the image, best from `viz.svg.document`.
        title: the title of the page that `show()` opens.

    >>> from tensorgrad.viz import svg
    >>> dot = Picture(svg.document(20, 20, svg.element("circle", cx=10, cy=10, r=5), title="A dot"), title="A dot")
    >>> dot._repr_svg_().startswith("<svg")
    True
    """

    def __init__(self, markup: str, title: str = "Picture"):
        self.svg, self.title = markup, title

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.title}>"

    def html(self) -> str:
        """A page with nothing but the picture."""
        return svg.page(svg.element("main", self.svg), title=self.title)

    def save(self, path: str | os.PathLike, dark: bool = False) -> Path:
        """Writes the picture to a file; the end of its name says how: `.svg`, `.html`, `.png` or `.pdf`.

        `dark` chooses the colours of PNG and PDF; the others adapt to the reader. The file appears when it is
        complete, or not at all. Returns: its path.

        Raises:
            ValueError: for another ending.
            RuntimeError: if PNG or PDF is asked for and nothing installed can make it.
        """
        path = Path(path)
        kind = path.suffix.lower().removeprefix(".")
        if kind not in ("svg", "html", "png", "pdf"):
            raise ValueError(f"expected a path that ends with .svg, .html, .png or .pdf, got {str(path)!r}")
        if kind == "svg":
            content = f'<?xml version="1.0" encoding="UTF-8"?>\n{svg.portable(self.svg)}\n'.encode()
        elif kind == "html":
            content = self.html().encode()
        else:
            from tensorgrad.viz.convert import converted

            content = converted(self.svg, kind, dark)
        return write(path, content)

    def show(self) -> None:
        """Opens the picture in the browser."""
        open_page(self.html())


def write(path: str | os.PathLike, content: str | bytes) -> Path:
    """Writes a file at once: a reader sees the old one or the new one, never half of it.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(os.path.join(folder, "a.txt"), "text").read_text()
    'text'
    """
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)
    return Path(path)


def open_page(markup: str) -> Any:
    """Opens HTML text in the browser, from a file that stays until the system clears its temporary files."""
    path = write(Path(tempfile.mkdtemp(prefix="tensorgrad-")) / "picture.html", markup)
    return webbrowser.open(path.as_uri())
