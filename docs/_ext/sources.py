"""Where a name is defined: the file and the line, and the pages that show these files. Does not need Sphinx."""

from __future__ import annotations

import functools
import html
import importlib
import inspect
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

from public_names import _families

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "tensorgrad"
GENERATED = PACKAGE / "dispatch"  # the functions of rows are made there; what a reader looks for is the row


@functools.cache
def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def _found(path: Path, name: str) -> int:
    """The first line of a file that defines a name: a class, a function, or a row of the op table."""
    word = re.escape(name)
    for pattern in (
        rf"\s*(?:class|def) {word}\b",
        rf"\s*{word}\b[\w, ]*(?::[^=]*)?= ",
        rf'.*["\']{word}(?:\(|["\'])',
        rf".*\b{word}\b",
    ):
        for number, line in enumerate(_lines(path), 1):
            if re.match(pattern, line):
                return number
    return 1


def place_of(name: str, value: Any) -> tuple[Path, int] | None:
    """Returns the file and the line where a name is defined, or None if it is not in the package's own files."""
    value = getattr(value, "__func__", value)
    plain = inspect.unwrap(getattr(value, "fget", None) or value)
    code = getattr(plain, "__code__", None)
    path = Path(code.co_filename) if code else None
    if path is not None and path.is_relative_to(PACKAGE) and GENERATED not in path.parents and path.exists():
        return path, code.co_firstlineno
    module = getattr(plain, "__module__", None) or ""
    row = getattr(plain, "op", plain)
    family = _families().get(row) if isinstance(row, Hashable) else None
    if family is not None:
        module = f"tensorgrad.ops.{family}"
    file = getattr(importlib.import_module(module), "__file__", None) if module.startswith("tensorgrad") else None
    if file is None or not Path(file).is_relative_to(PACKAGE):
        return None
    return Path(file), _found(Path(file), getattr(plain, "__name__", name) if isinstance(plain, type) else name)


def page_of(path: Path) -> str:
    """The address of the page of a file, from the top of the site."""
    return f"source/{path.relative_to(ROOT).as_posix()}.html"


def shown(path: Path) -> str:
    """The page of a file: its text with numbered lines, each of which can be linked to (`#L-12`)."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    name = path.relative_to(ROOT).as_posix()
    top = "../" * page_of(path).count("/")
    form = HtmlFormatter(linenos="inline", lineanchors="L", anchorlinenos=True)
    body = highlight(path.read_text(encoding="utf-8"), PythonLexer(), form)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="color-scheme" content="light dark"><title>{html.escape(name)} - tensorgrad</title>
<meta name="description" content="The source of {html.escape(name)}."><link rel="icon" href="{top}_static/logo.svg">
<link rel="stylesheet" href="{top}_static/pygments.css"><link rel="stylesheet" href="{top}_static/site.css"></head>
<body class="source-page"><script>document.body.dataset.theme = localStorage.getItem("theme") || "auto";</script>
<p><a href="{top}index.html">tensorgrad</a> · <a href="{top}reference/index.html">Reference</a> ·
{html.escape(name)}</p>
{body}</body></html>
"""
