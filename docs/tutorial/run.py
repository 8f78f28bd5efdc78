"""Runs the tutorial:  python docs/tutorial/run.py [NUMBER]   (all chapters, or those up to NUMBER)"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def chapters() -> list[Path]:
    """The chapters, in order."""
    return sorted(HERE.glob("[0-9][0-9]-*.md"))


def blocks(page: Path) -> Iterator[tuple[str, str, str]]:
    """Yields the Python blocks of a page as (file, code, expected output: the `text` block directly after it)."""
    text = page.read_text(encoding="utf-8")
    found = list(BLOCK.finditer(text))
    for block, following in zip(found, [*found[1:], None]):
        if block[1] != "python":
            continue
        between = text[block.end() : following.start()] if following else "no"
        printed = following[2] if following and following[1] == "text" and not between.strip() else ""
        # Leading blank lines make the line numbers in tracebacks match those of the page.
        yield str(page), "\n" * text.count("\n", 0, block.start(2)) + block[2], printed


def run(page: Path, scope: dict) -> None:
    """Runs a page's blocks in `scope`. Raises: AssertionError if the output of a block differs from the page."""
    for where, code, expected in blocks(page):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, where, "exec"), scope)
        got = [line.rstrip() for line in printed.getvalue().splitlines()]
        wanted = [line.rstrip() for line in expected.splitlines()]
        line = code[: len(code) - len(code.lstrip("\n"))].count("\n") + 1
        assert got == wanted, f"{where}:{line}: printed\n{printed.getvalue()}\nbut the page says\n{expected}"


def main() -> None:
    """Runs the chapters up to the given number."""
    last = int(sys.argv[1]) if len(sys.argv) > 1 else len(chapters())
    scope: dict = {"__name__": "tutorial"}
    for page in chapters()[:last]:
        run(page, scope)
        print(f"{page.stem}: runs, and prints what it says")


if __name__ == "__main__":
    main()
