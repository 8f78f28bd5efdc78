"""How Sphinx builds these pages: `make docs`. Nothing is fetched, and a warning is an error."""

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

from tensorgrad import version as versions  # noqa: E402

project = "tensorgrad"
language = "en"
release = version = versions.tensorgrad
html_title = "tensorgrad"
extensions = ["myst_parser", "pictures", "reference"]
exclude_patterns = ["_ext", "_static"]
nitpicky = True
default_role = "code"
highlight_language = "text"

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = html_show_sourcelink = False
html_use_index = False
html_show_copyright = html_show_sphinx = False
html_theme_options = {"top_of_page_buttons": []}
toc_object_entries = False  # hundreds of functions on a page: the search finds them
myst_heading_anchors = 3

# Pages that are read in the repository's root as well as here -> what they are called here.
MOVED = {"CONTRIBUTING.md": "contributing.md", "BENCHMARK.md": "benchmarks.md", "README.md": "index.md"}
INCLUDED = re.compile(r"```\{include\} \.\./([A-Z]+\.md)\n```")
LINK = re.compile(r"\[([^\]]*)\]\((?!\w+:|#)([^)\s]+)\)")


def _links(app, document: str, content: list[str]) -> None:
    """Puts pages of the root where they are included, and lets links to them lead to their copies here."""
    content[0] = INCLUDED.sub(lambda found: _page_of_root(found[1]), content[0])
    for there, here in MOVED.items():
        content[0] = content[0].replace(f"](../{there})", f"]({here})")


def _page_of_root(name: str) -> str:
    """A page of the root, with its links as they have to be here; blocks of code stay what they are."""
    parts = re.split(r"^(```.*?^```)$", (HERE.parent / name).read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    return "".join(part if i % 2 else LINK.sub(_from_root, part) for i, part in enumerate(parts))


def _from_root(link: re.Match) -> str:
    """A link of a page in the root, as it has to be in this folder; a folder is only named."""
    text, target = link.groups()
    if (HERE.parent / target).is_dir():
        return text
    return f"[{text}]({target.removeprefix('docs/') if target.startswith('docs/') else f'../{target}'})"


def setup(app) -> None:
    """Sphinx's entry."""
    app.connect("source-read", _links)
