"""SVG and HTML as text: elements, numbers, colours for light and dark, and the frame around a picture.

Everything here is a function from values to text; nothing draws. Markup is passed on as it is, values are escaped:
`element("b", "<i>x</i>")` nests, `element("b", escape("a < b"))` shows a sign, and attributes are always escaped.

A colour has a name (`colour("ink")`) and two values, one for light and one for dark surroundings. The stylesheet that
`document` includes chooses, by what the reader's system prefers, or the notebook or page around the picture says.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from html import escape as _escape
from typing import Any

# name: (light, dark). Text is `ink`, `muted` or a series' colour on `surface` or `panel`: each of these pairs has a
# contrast of at least 4.5 (WCAG 2.2, criterion 1.4.3), which tests/viz/test_viz_pictures.py computes.
PALETTE: dict[str, tuple[str, str]] = {
    "surface": ("#ffffff", "#15181d"),
    "panel": ("#f2f4f7", "#20252c"),
    "grid": ("#d9dee5", "#363d47"),
    "edge": ("#7f8a99", "#7d8795"),
    "ink": ("#1b2129", "#e8ebef"),
    "muted": ("#596472", "#a3adba"),
    "accent": ("#0b5cad", "#6cb2ff"),
    "accent-soft": ("#d3e6fa", "#173a5e"),
    "warm": ("#a64200", "#ffa057"),
    "warm-soft": ("#fde5d0", "#54300f"),
    "good": ("#1a7037", "#63c483"),
    "good-soft": ("#d6f0dd", "#17402a"),
    "bad": ("#b3261e", "#ff8f85"),
    "bad-soft": ("#fbdedb", "#5a211d"),
    "series-1": ("#0b5cad", "#6cb2ff"),
    "series-2": ("#a64200", "#ffa057"),
    "series-3": ("#1a7037", "#63c483"),
    "series-4": ("#9c2a75", "#f08cc6"),
    "series-5": ("#6145b0", "#b9a3ff"),
    "series-6": ("#00696e", "#4fc7cc"),
    "series-7": ("#7a5900", "#dbb44b"),
    "series-8": ("#4f5b67", "#aeb8c4"),
}
SERIES = [name for name in PALETTE if name.startswith("series-")]

SANS = "system-ui, 'Segoe UI', 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif"
MONO = "ui-monospace, 'SF Mono', Menlo, Consolas, 'Liberation Mono', monospace"

_EMPTY = frozenset((  # elements that never have children; all others are closed by a tag of their own, as HTML wants
    "rect", "circle", "ellipse", "line", "path", "polyline", "polygon", "use", "stop", "image",
    "br", "col", "hr", "img", "input", "link", "meta",
))  # fmt: skip


# --- text --------------------------------------------------------------------------------------------------------

# What XML 1.0 cannot hold at all, not even escaped.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def escape(value: object) -> str:
    """A value as text inside markup, or inside an attribute. Signs that XML cannot hold are replaced.

    >>> escape("a < b & 'c'")
    'a &lt; b &amp; &#x27;c&#x27;'
    """
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", _escape(str(value)))


def number(value: float, digits: int = 2) -> str:
    """A coordinate: at most `digits` decimals, without exponent and without zeros at the end.

    >>> number(3.0), number(2.345), number(-0.001), number(1e7)
    ('3', '2.35', '0', '10000000')
    """
    shown = f"{float(value):.{digits}f}"
    if "." in shown:
        shown = shown.rstrip("0").rstrip(".")
    return "0" if shown == "-0" else shown


def short(value: float, digits: int = 4) -> str:
    """A number for people: `digits` significant digits, exponents only where zeros would hide the size.

    >>> short(0.12345678), short(12345.678), short(1e-9), short(3.0), short(float("nan"))
    ('0.1235', '12346', '1e-09', '3', 'nan')
    """
    value = float(value)
    if 1e3 <= abs(value) < 1e6:
        digits = max(digits, len(str(int(abs(value)))))
    return f"{value:.{digits}g}"


def count(value: float) -> str:
    """A large count in thousands, millions, ...: three significant digits.

    >>> count(999), count(11_689_512), count(1.8e9)
    ('999', '11.7 M', '1.80 G')
    """
    return _scaled(value, 1000, ("", "k", "M", "G", "T", "P"))


def size(value: float) -> str:
    """A size in bytes, in binary units.

    >>> size(512), size(1536), size(44.7 * 2**20)
    ('512 B', '1.50 KiB', '44.7 MiB')
    """
    return _scaled(value, 1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))


def _scaled(value: float, base: int, units: tuple[str, ...]) -> str:
    place = 0
    while abs(value) >= base - 0.5 and place < len(units) - 1:
        value, place = value / base, place + 1
    shown = f"{value:.0f}" if not place or abs(value) >= 100 else f"{value:#.3g}"
    return f"{shown} {units[place]}".rstrip()


_NARROW, _WIDE = frozenset("fijlrtI.,:;'|!()[]{} /\\-"), frozenset("mwMWABCDEGHKNOQRSUVXYZ@%&")


def text_width(content: object, font_size: float = 12, mono: bool = False) -> float:
    """About how wide a text is, in the unit of `font_size`: what a layout needs, where no font can be measured.

    >>> text_width("mmm") > text_width("iii"), text_width("iii", mono=True) == text_width("mmm", mono=True)
    (True, True)
    """
    letters = str(content)
    if mono:
        return 0.61 * font_size * sum(2 if ord(c) > 0x2E80 else 1 for c in letters)
    widths = (0.36 if c in _NARROW else 0.76 if c in _WIDE else 1.0 if ord(c) > 0x2E80 else 0.61 for c in letters)
    return font_size * sum(widths)


def shortened(content: object, width: float, font_size: float = 12, mono: bool = False) -> str:
    """The text, cut in the middle if it would be wider than `width`.

    >>> shortened("layers.10.attention.projection", 100)
    'layers.…ojection'
    """
    letters = str(content)
    if text_width(letters, font_size, mono) <= width:
        return letters
    for kept in range(len(letters) - 1, 1, -1):
        cut = letters[: kept - kept * 9 // 16] + "…" + letters[len(letters) - kept * 9 // 16 :]
        if text_width(cut, font_size, mono) <= width:
            return cut
    return "…"


# --- elements ------------------------------------------------------------------------------------------------------


def element(tag: str, *children: Any, **attributes: Any) -> str:
    """One element. Children are markup, or iterables of it; None is left out.

    In the names of attributes `_` stands for `-`, and a `_` at the end is dropped (`class_`, `for_`). An attribute
    that is None or False is left out, one that is True has no value but itself; numbers are shortened.

    >>> element("rect", x=1.0, stroke_width=0.5, class_="a b")
    '<rect x="1" stroke-width="0.5" class="a b"/>'
    >>> element("g", element("title", escape("a < b")), [element("circle", r=2)], None, hidden=True)
    '<g hidden="hidden"><title>a &lt; b</title><circle r="2"/></g>'
    """
    shown = "".join(_attribute(name, value) for name, value in attributes.items())
    inside = "".join(_flat(children))
    if tag in _EMPTY and not inside:
        return f"<{tag}{shown}/>"
    return f"<{tag}{shown}>{inside}</{tag}>"


def _attribute(name: str, value: Any) -> str:
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    if value is True:
        value = name
    return f' {name}="{number(value) if isinstance(value, float) else escape(value)}"'


def _flat(children: Iterable) -> Iterable[str]:
    for child in children:
        if isinstance(child, str):
            yield child
        elif child is not None:
            yield from _flat(child)


def text(x: float, y: float, content: object, **attributes: Any) -> str:
    """A line of text at a place; `text_anchor="middle"` or `"end"` centres it, or puts it to the left.

    >>> text(3, 4.5, "a < b", text_anchor="middle")
    '<text x="3" y="4.5" text-anchor="middle">a &lt; b</text>'
    """
    return element("text", escape(content), **{"x": x, "y": y, **attributes})


def line(x1: float, y1: float, x2: float, y2: float, **attributes: Any) -> str:
    """A straight line.

    >>> line(0, 0, 1, 2, stroke="red")
    '<line x1="0" y1="0" x2="1" y2="2" stroke="red"/>'
    """
    return element("line", **{"x1": x1, "y1": y1, "x2": x2, "y2": y2, **attributes})


def points(places: Iterable[tuple[float, float]]) -> str:
    """Places as a `<polyline>` wants them.

    >>> points([(0, 1), (2.5, 3)])
    '0,1 2.5,3'
    """
    return " ".join(f"{number(x)},{number(y)}" for x, y in places)


# --- colours -------------------------------------------------------------------------------------------------------


def colour(name: str) -> str:
    """A colour of the palette, as the value of an attribute or of a style. Raises: KeyError for an unknown name.

    >>> colour("ink")
    'var(--tg-ink,#1b2129)'
    """
    return f"var(--tg-{name},{PALETTE[name][0]})"


def series(index: int) -> str:
    """The colour of one of several lines. They repeat after eight.

    >>> series(0) == series(8) == colour("series-1")
    True
    """
    return colour(SERIES[index % len(SERIES)])


def theme() -> str:
    """CSS that gives the colours their values within class `tg`: as the system prefers, unless the page says which.

    Pages speak by `data-theme` (documentation), JupyterLab and VS Code by attributes and classes of their own.

    >>> "prefers-color-scheme: dark" in theme()
    True
    """
    light, dark = ("".join(f"--tg-{name}:{pair[i]};" for name, pair in PALETTE.items()) for i in (0, 1))
    said = {
        "light": ('[data-theme="light"]', '[data-jp-theme-light="true"]', ".vscode-light"),
        "dark": ('[data-theme="dark"]', '[data-jp-theme-light="false"]', ".vscode-dark"),
    }
    by_page = {mode: ",".join(f"{place} .tg,{place}.tg" for place in places) for mode, places in said.items()}
    return (
        f".tg{{color-scheme:light;{light}}}"
        f"@media (prefers-color-scheme: dark){{.tg{{color-scheme:dark;{dark}}}}}"
        f"{by_page['light']}{{color-scheme:light;{light}}}{by_page['dark']}{{color-scheme:dark;{dark}}}"
    )


def resolved(markup: str, dark: bool = False) -> str:
    """Markup with the colours' values in place of their names: for programs that do not know CSS variables.

    >>> resolved(element("rect", fill=colour("ink")))
    '<rect fill="#1b2129"/>'
    """
    return re.sub(r"var\(--tg-([a-z0-9-]+)(?:,[^()]*)?\)", lambda m: PALETTE[m[1]][dark], markup)


_PAINTED = re.compile(r'(fill|stroke|stop-color)="var\(--tg-([a-z0-9-]+)(?:,[^()]*)?\)"')
_STYLED = re.compile(r"([a-z-]+):(var\(--tg-([a-z0-9-]+)(?:,[^()]*)?\))")


def portable(markup: str) -> str:
    """An image for a file: programs that do not know CSS variables see the light colours, browsers still choose.

    The elements get the light colours themselves; rules in the stylesheet, which such programs skip, replace them.

    >>> image = document(10, 10, title="Nothing")
    >>> 'fill="var' in image, 'fill="var' in portable(image)
    (True, False)
    """
    used = dict.fromkeys(_PAINTED.findall(markup))
    rules = "".join(
        f'.tg[{what}="{PALETTE[name][0]}"],.tg [{what}="{PALETTE[name][0]}"]{{{what}:{colour(name)}}}'
        for what, name in used
    )
    painted = _PAINTED.sub(lambda m: f'{m[1]}="{PALETTE[m[2]][0]}"', markup)
    head, end, rest = painted.partition("</style>")
    head = _STYLED.sub(lambda m: f"{m[1]}:{PALETTE[m[3]][0]};{m[1]}:{m[2]}", head)
    return head + rules + end + rest if end else painted


def contrast(first: str, second: str) -> float:
    """The contrast of two colours `#rrggbb`, from 1 to 21; text needs 4.5.

    Source: WCAG 2.2, "contrast ratio" and "relative luminance", https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio.

    >>> round(contrast("#000000", "#ffffff"), 1)
    21.0
    """
    darker, lighter = sorted((_luminance(first), _luminance(second)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(value: str) -> float:
    parts = (int(value[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


# --- frames --------------------------------------------------------------------------------------------------------


def identifier(*parts: object) -> str:
    """A name for an `id`, the same for the same parts, so that pictures on one page do not collide.

    >>> identifier("a", 1) == identifier("a", 1) != identifier("a", 2)
    True
    """
    return "tg" + hashlib.sha256(repr(parts).encode("utf-8", "backslashreplace")).hexdigest()[:10]


def document(
    width: float,
    height: float,
    *body: Any,
    title: str,
    description: str = "",
    style: str = "",
) -> str:
    """A complete SVG image: body on a surface, with the colours' stylesheet and what a screen reader says.

    Args:
        title: what it is, in a few words. Also the tooltip in browsers.
        description: what it shows, for those who cannot see it.
        style: CSS of its own, whose selectors should begin with a class of its own: in a notebook all pictures
            share one page.

    Whatever is drawn is `ink`, and text 12 units high and without serifs, unless an element says otherwise; the class
    `tg-mono` is for monospaced text, `tg-muted` for what matters less.

    >>> document(10, 5, element("circle", r=2), title="A dot").endswith("</svg>")
    True
    """
    inside = [part for part in _flat(body)]
    name = identifier(title, description, inside)
    base = (
        # (CairoSVG, which knows no @media, would take `height:auto` for no height.)
        f"{theme()}@media screen{{svg.tg{{max-width:100%;height:auto}}}}.tg text{{white-space:pre}}"
        f".tg text.tg-mono,.tg .tg-mono text{{font-family:{MONO}}}"
        f".tg text.tg-muted,.tg .tg-muted text{{fill:{colour('muted')}}}"
    )
    return element(
        "svg",
        element("title", escape(title), id=f"{name}-title"),
        element("desc", escape(description), id=f"{name}-desc") if description else None,
        element("style", base + style),
        element("rect", class_="tg-surface", width="100%", height="100%", rx=6, fill=colour("surface")),
        inside,
        xmlns="http://www.w3.org/2000/svg",
        class_="tg",
        role="img",
        aria_labelledby=f"{name}-title",
        aria_describedby=f"{name}-desc" if description else None,
        viewBox=f"0 0 {number(width)} {number(height)}",
        width=float(width),
        height=float(height),
        fill=colour("ink"),
        font_family=SANS,
        font_size=12,
    )


def fenced(name: str, rules: str) -> str:
    """CSS for what lies inside class `name`, which `&` stands for in the rules; the page around it has no say there.

    A notebook has rules of its own for tables, lists and paragraphs, which would mix with these. Here an id that
    nobody has makes every selector weigh more than those, and everything begins as the browser has it.

    >>> fenced("box", "& td{margin:0}").endswith(":is(.box,#box) td{margin:0}")
    True
    """
    base = (
        "&{text-align:left;text-indent:0;white-space:normal;letter-spacing:normal;word-break:normal}"
        f"& *{{all:revert}}& :focus-visible{{outline:3px solid {colour('accent')};outline-offset:2px}}"
    )
    return (base + rules).replace("&", f":is(.{name},#{name})")


def scrolling(table: str, name: str) -> str:
    """HTML that may be wider than its page, in a frame (class `scroll`) that the keyboard can reach and move.

    >>> scrolling("<table></table>", "Layers")
    '<div class="scroll" role="region" aria-label="Layers" tabindex="0"><table></table></div>'
    """
    return element("div", table, class_="scroll", role="region", aria_label=name, tabindex=0)


def page(*body: Any, title: str, style: str = "", script: str = "", language: str = "en") -> str:
    """A complete HTML page, in the palette's colours, that loads nothing.

    `script` is JavaScript to run after the body; most pages have none.

    >>> page(element("h1", "Hello"), title="Hello").startswith("<!DOCTYPE html>")
    True
    """
    base = (
        f"{theme()}*{{box-sizing:border-box}}"
        f"body{{margin:0;padding:1.5rem;background:{colour('surface')};color:{colour('ink')};font:16px/1.5 {SANS}}}"
        f"a{{color:{colour('accent')}}}:focus-visible{{outline:3px solid {colour('accent')};outline-offset:2px}}"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", escape(title)),
        element("style", base + style),
    )
    code = element("script", script.replace("</", "<\\/")) if script else None
    return "<!DOCTYPE html>\n" + element("html", head, element("body", *body, code, class_="tg"), lang=language) + "\n"
