"""Notebooks of the tour and the tutorial, made from the same pages: what is code there is a cell here.

    python docs/_ext/notebooks.py FOLDER      writes them

The site has them in `notebooks/`, and those pages link to them.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$\n?", re.MULTILINE | re.DOTALL)
PAGES = {"tour": ["tour.md"], "tutorial": ["tutorial/index.md", "tutorial/[0-9]*.md"]}
LINK = re.compile(r"\]\((?!\w+:|#)([^)\s]+)\)")


def drawn(code: str) -> str:
    """A picture's code as a cell: in a function, as its names are not those of the cells around it."""
    lines = code.strip("\n").splitlines()
    last = ast.parse(code).body[-1].lineno - 1
    lines[last] = f"return {lines[last]}"
    body = ["import tensorgrad as torch", "from tensorgrad import viz", "", *lines]
    return "\n".join(["def picture():", *(f"    {line}".rstrip() for line in body), "", "", "picture()"])


def cells(text: str) -> list[tuple[str, str]]:
    """A page as ("markdown" | "code", content). An output is left out: the cell before it prints it."""
    found: list[tuple[str, str]] = []
    at = 0

    def add(kind: str, content: str) -> None:
        content = content.strip("\n")
        if kind == "markdown":
            content = LINK.sub("]", content)  # its files are not beside the notebook
        if content and found and found[-1][0] == kind == "markdown":
            found[-1] = kind, f"{found[-1][1]}\n\n{content}"
        elif content:
            found.append((kind, content))

    after_code = False
    for fence in FENCE.finditer(text):
        between = text[at : fence.start()]
        add("markdown", between)
        info, content = fence[1], fence[2]
        if info == "python":
            add("code", content)
        elif info.startswith("{picture}"):
            add("code", drawn(content))
        elif not (info == "text" and after_code and not between.strip()) and not info.startswith("{"):
            add("markdown", fence[0])
        after_code = info == "python"
        at = fence.end()
    add("markdown", text[at:])
    return found


def notebook(name: str, kernel: str = "python3") -> dict:
    """The notebook, in Jupyter's format 4.5, for a kernel."""
    made = []
    for pattern in PAGES[name]:
        for page in sorted(DOCS.glob(pattern)):
            made += cells(page.read_text(encoding="utf-8"))
    listed = []
    for number, (kind, content) in enumerate(made):
        cell = {
            "cell_type": kind,
            "id": f"{name}-{number}",
            "metadata": {},
            "source": content.splitlines(keepends=True),
        }
        listed.append(cell | ({"execution_count": None, "outputs": []} if kind == "code" else {}))
    spec = {"display_name": "Python 3", "language": "python", "name": kernel}
    return {"cells": listed, "metadata": {"kernelspec": spec}, "nbformat": 4, "nbformat_minor": 5}


def write(folder: Path, kernel: str = "python3") -> None:
    """Writes all notebooks, for a kernel."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in PAGES:
        (folder / f"{name}.ipynb").write_text(
            json.dumps(notebook(name, kernel), indent=1, ensure_ascii=False), encoding="utf-8"
        )


def link(app, page, template, context, doctree) -> None:
    """Adds a link to the notebook to the pages that it is made from."""
    name = page.partition("/")[0]
    if name in PAGES and "body" in context:
        address = f"{'../' * page.count('/')}notebooks/{name}.ipynb"
        context["body"] += f'<p class="notebook"><a href="{address}" download>This as a notebook</a></p>'


def finish(app, exception) -> None:
    """Called by Sphinx after the build: writes the notebooks."""
    if exception is None and app.builder.format == "html":
        write(Path(app.outdir, "notebooks"))


def setup(app) -> dict:
    """Called by Sphinx: registers the links and the last step."""
    app.connect("html-page-context", link)
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True, "version": "1"}


if __name__ == "__main__":
    write(Path(sys.argv[1]))
