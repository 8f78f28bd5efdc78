"""Pictures: SVG text that notebooks show and that can be saved or opened."""

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
    _Path = type(Path())  # the class of paths on this system; before Python 3.12, only it can be subclassed


class Page(_Path):
    """The path of a page that was written. As the last value of a notebook cell, the page itself is shown in place.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = Page(write(os.path.join(folder, "a.html"), "<p>Hello</p>"))
    ...     page.name, "&lt;p&gt;Hello&lt;/p&gt;" in page._repr_html_()
    ('a.html', True)
    """

    def with_segments(self, *segments) -> Path:
        """Makes derived paths, such as the parent, ordinary paths (from Python 3.12 on)."""
        return Path(*segments)

    def _repr_html_(self) -> str | None:
        """Returns the page in a resizable frame; None if the file no longer exists."""
        if self.suffix.lower() != ".html" or not self.is_file():
            return None
        style = "width:100%;height:44rem;min-height:12rem;border:0;resize:vertical;overflow:auto"
        return svg.element("iframe", srcdoc=self.read_text("utf-8"), title=self.stem, style=style)


class Picture:
    """An SVG image. As the last value of a notebook cell, it is shown in place.

    Args:
        markup: the SVG text of the image, usually from `viz.svg.document`.
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
        """Returns a page that contains only the picture."""
        return svg.page(svg.element("main", self.svg), title=self.title)

    def save(self, path: str | os.PathLike, dark: bool = False) -> Path:
        """Writes the picture to a file with the extension `.svg`, `.html`, `.png` or `.pdf`, and returns its path.

        `dark` selects the colors of PNG and PDF files; the other formats adapt to the reader. The file is written
        atomically: it is either complete or does not appear.

        Raises:
            ValueError: If the file has another extension.
            RuntimeError: If no installed program can write PNG or PDF.
        """
        path = Path(path)
        kind = path.suffix.lower().removeprefix(".")
        if kind not in ("svg", "html", "png", "pdf"):
            raise ValueError(f"expected a path that ends with .svg, .html, .png or .pdf, but got {str(path)!r}")
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
    """Writes a file atomically: readers see the old content or the new, never a part of it.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(os.path.join(folder, "a.txt"), "text").read_text()
    'text'
    """
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)
    return Path(path)


def open_page(markup: str) -> Any:
    """Opens HTML text in the browser, from a file that remains until the system clears its temporary files."""
    path = write(Path(tempfile.mkdtemp(prefix="tensorgrad-")) / "picture.html", markup)
    return webbrowser.open(path.as_uri())
