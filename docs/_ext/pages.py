"""One page for each function and class: after the build, the long pages of the reference become an index and its pages.

Sphinx reads and writes the twenty pages of the reference, so that a build and its test take seconds, not minutes. The
directive (reference.py) marks where an entry begins and ends; here each entry is moved into a page of its own, with the
frame of the page that it was in. The index keeps the name and the first sentence. Links between pages lead to the new
ones; old addresses (`torch.html#torch.cumsum`, which bookmarks and the search have) lead there by `site.js`.
"""

from __future__ import annotations

import html
import posixpath
import re
from pathlib import Path
from urllib.parse import unquote

import sources

ENTRY = re.compile(r"<!--entry (\S+) (.*?)-->(.*?)<!--/entry-->", re.DOTALL)
ARTICLE = re.compile(r'(<article role="main" id="furo-main-content">)(.*)(</article>)', re.DOTALL)
LINK = re.compile(r'href="([^"#:]*)#([^"]+)"')
SOURCE = re.compile(r'href="[./]*/(source/[^"#]+)\.html#')


def begin(name: str, sentence: str) -> str:
    """The mark before an entry, with what the index says of it."""
    return f"<!--entry {name} {html.escape(sentence).replace('--', '–')}-->"


END = "<!--/entry-->"


def files_of(names: list[str]) -> dict[str, str]:
    """Names -> files, which differ in more than the case of letters: `torch.tensor` and `torch.Tensor`."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        file = name
        while file.lower() in taken:
            file += "-"
        taken.add(file.lower())
        found[name] = f"{file}.html"
    return found


def page(frame: str, index: str, name: str, sentence: str, entry: str) -> str:
    """One entry's page, in the frame of the page that lists it."""
    title = re.search(r"<h1>(.*?)<a ", frame, re.DOTALL)
    back = f'<p class="up"><a href="{index}">{title[1] if title else index}</a></p><h1 class="entry">{name}</h1>'
    made = ARTICLE.sub(lambda found: f"{found[1]}{back}{entry}{found[3]}", frame)
    made = re.sub(r"<title>.*? - ", f"<title>{name} - ", made, count=1)
    made = re.sub(r'<link rel="(?:next|prev)"[^>]*>', "", made)
    made = re.sub(r'<meta (?:name|property)="(?:og:)?(?:description|title)"[^>]*>', "", made)
    made = made.replace("</title>", f'</title><meta name="description" content="{name}: {sentence}">', 1)
    made = re.sub(r'<div class="related-pages">.*?(?=<div class="bottom-of-page">)', "", made, flags=re.DOTALL)
    return re.sub(r'<div class="toc-tree">.*?</ul>\s*</div>', '<div class="toc-tree"></div>', made, flags=re.DOTALL)


def row(file: str, name: str, sentence: str) -> str:
    """An entry's line in the index."""
    last = name.rpartition(".")[2]
    return f'<p class="name" id="{name}" data-page="{file}"><a href="{file}"><code>{last}</code></a> {sentence}</p>'


def divided(folder: Path, file: str) -> dict[str, tuple[str, set[str]]]:
    """Divides a page of the reference. Returns each of its entries' names -> its page, and the ids that moved there."""
    text = (folder / file).read_text(encoding="utf-8")
    entries = ENTRY.findall(text)
    if not entries:
        return {}
    files = files_of([name for name, _, _ in entries])
    frame = text
    moved = {}
    for name, sentence, entry in entries:
        (folder / files[name]).write_text(page(frame, file, name, sentence, entry), encoding="utf-8")
        moved[name] = (files[name], set(re.findall(r'id="([^"]+)"', entry)))
    index = ENTRY.sub(lambda found: row(files[found[1]], found[1], found[2]), text)
    (folder / file).write_text(index, encoding="utf-8")
    return moved


def relinked(text: str, where: str, places: dict[tuple[str, str], str], listed: str = "") -> str:
    """A page whose links to moved entries lead to their pages.

    Args:
        text, where: the page and its address.
        places: (old page, id) -> new page.
        listed: for an entry's page, the page that it was in, where a link without a file led to.
    """
    folder = posixpath.dirname(where)

    def change(found: re.Match) -> str:
        target, name = found[1], unquote(found[2])
        if not target and f'id="{name}"' in text:
            return found[0]
        old = posixpath.normpath(posixpath.join(folder, target)) if target else listed or where
        new = places.get((old, name), old)
        if new == old and (target or not listed):
            return found[0]
        whole = posixpath.basename(new).removesuffix(".html").rstrip("-") == name
        return f'href="{posixpath.relpath(new, folder or ".")}{"" if whole else f"#{name}"}"'

    return LINK.sub(change, text)


def finish(app, exception) -> None:
    """Called by Sphinx after the build: divides the pages, links to the new ones, and writes those of the sources."""
    if exception is not None or app.builder.name != "html":
        return
    top = Path(app.outdir)
    places: dict[tuple[str, str], str] = {}
    origin: dict[str, str] = {}
    for path in sorted((top / "reference").glob("*.html")):
        for file, ids in divided(path.parent, path.name).values():
            places.update({(f"reference/{path.name}", one): f"reference/{file}" for one in ids})
            origin[f"reference/{file}"] = f"reference/{path.name}"
    wanted: set[str] = set()
    for path in top.rglob("*.html"):
        where = path.relative_to(top).as_posix()
        text = path.read_text(encoding="utf-8")
        wanted |= set(SOURCE.findall(text))
        changed = relinked(text, where, places, origin.get(where, ""))
        if changed != text:
            path.write_text(changed, encoding="utf-8")
    for name in sorted(wanted):
        made = top / f"{name}.html"
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(sources.shown(sources.ROOT / name.removeprefix("source/")), encoding="utf-8")


def setup(app) -> dict:
    """Called by Sphinx: registers the last step."""
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True, "version": "1"}
