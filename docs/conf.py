"""Sphinx configuration, used by `make docs`. The build needs no network, and warnings are errors."""

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

from tensorgrad import version as versions  # noqa: E402

project = "tensorgrad"
language = "en"
release = version = versions.tensorgrad
html_title = f"tensorgrad {release}"
html_logo = html_favicon = "_static/logo.svg"
extensions = ["myst_parser", "pictures", "reference", "pages", "frame", "notebooks", "gallery", "playground", "lite"]
exclude_patterns = ["_ext", "_static"]
nitpicky = True
default_role = "code"
highlight_language = "text"

html_theme = "furo"
html_static_path = ["_static"]
html_css_files, html_js_files = ["site.css"], ["site.js"]
html_copy_source = html_show_sourcelink = False
html_use_index = False
html_show_copyright = html_show_sphinx = False
html_theme_options = {"top_of_page_buttons": []}
toc_object_entries = False  # pages have hundreds of functions; use the search
myst_heading_anchors = 3

# Pages in the root of the repository that are also part of the documentation -> their names here.
MOVED = {
    "BENCHMARK.md": "benchmarks.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",
}
INCLUDED = re.compile(r"```\{include\} \.\./([A-Z]+\.md)\n```")
LINK = re.compile(r"\[([^\]]*)\]\((?!\w+:|#)([^)\s]+)\)")


def _links(app, document: str, content: list[str]) -> None:
    """Inserts the pages of the root that are included, and redirects links to them to their copies here."""
    content[0] = INCLUDED.sub(lambda found: _page_of_root(found[1]), content[0])
    if document == "benchmarks":
        content[0] = content[0].replace("\n\nEach column", "\n\n```{drawing} workloads\n```\n\nEach column", 1)
    for there, here in MOVED.items():
        content[0] = content[0].replace(f"](../{there})", f"]({here})")


def _page_of_root(name: str) -> str:
    """The text of a page in the root, with its links adapted to this folder; code blocks are left unchanged."""
    parts = re.split(r"^(```.*?^```)$", (HERE.parent / name).read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    return "".join(part if i % 2 else LINK.sub(_from_root, part) for i, part in enumerate(parts))


def _from_root(link: re.Match) -> str:
    """Adapts a link of a page in the root to this folder; links to folders become plain text."""
    text, target = link.groups()
    if (HERE.parent / target).is_dir():
        return text
    return f"[{text}]({target.removeprefix('docs/') if target.startswith('docs/') else f'../{target}'})"


def setup(app) -> None:
    """Called by Sphinx: registers the link rewriting."""
    app.connect("source-read", _links)
