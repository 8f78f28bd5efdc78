"""SVG and HTML as text: elements, numbers, colors for light and dark mode, and the document around a picture.

Everything here is a function from values to text; nothing draws. Children are markup and are not escaped:
`element("b", "<i>x</i>")` nests elements, and `element("b", escape("a < b"))` shows text. Attributes are always
escaped.

A color has a name (`colour("ink")`) and two values, for light and dark mode. The stylesheet that `document` includes
selects one, according to the reader's system settings or the notebook or page around the picture.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from html import escape as _escape
from typing import Any

# name: (light, dark). Text is `ink`, `muted` or a series color on `surface` or `panel`. Each of these pairs has a
# contrast of at least 4.5 (WCAG 2.2, criterion 1.4.3), which tests/viz/test_viz_pictures.py checks.
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

_EMPTY = frozenset((  # elements without children; all others get a closing tag, as HTML requires
    "rect", "circle", "ellipse", "line", "path", "polyline", "polygon", "use", "stop", "image",
    "br", "col", "hr", "img", "input", "link", "meta",
))  # fmt: skip


# --- text --------------------------------------------------------------------------------------------------------

# Characters that XML 1.0 does not allow, not even escaped.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def escape(value: object) -> str:
    """Escapes a value for use in markup or in an attribute. Characters that XML does not allow are replaced.

    >>> escape("a < b & 'c'")
    'a &lt; b &amp; &#x27;c&#x27;'
    """
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", _escape(str(value)))


def number(value: float, digits: int = 2) -> str:
    """Formats a coordinate with at most `digits` decimals, without an exponent or trailing zeros.

    >>> number(3.0), number(2.345), number(-0.001), number(1e7)
    ('3', '2.35', '0', '10000000')
    """
    shown = f"{float(value):.{digits}f}"
    if "." in shown:
        shown = shown.rstrip("0").rstrip(".")
    return "0" if shown == "-0" else shown


def short(value: float, digits: int = 4) -> str:
    """Formats a number for display, with `digits` significant digits and an exponent only for very large or small ones.

    >>> short(0.12345678), short(12345.678), short(1e-9), short(3.0), short(float("nan"))
    ('0.1235', '12346', '1e-09', '3', 'nan')
    """
    value = float(value)
    if 1e3 <= abs(value) < 1e6:
        digits = max(digits, len(str(int(abs(value)))))
    return f"{value:.{digits}g}"


def count(value: float) -> str:
    """Formats a count in thousands, millions, ..., with three significant digits.

    >>> count(999), count(11_689_512), count(1.8e9)
    ('999', '11.7 M', '1.80 G')
    """
    return _scaled(value, 1000, ("", "k", "M", "G", "T", "P"))


def size(value: float) -> str:
    """Formats a size in bytes, in binary units.

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
    """Estimates the width of a text, in the unit of `font_size`, for layouts without access to a font.

    >>> text_width("mmm") > text_width("iii"), text_width("iii", mono=True) == text_width("mmm", mono=True)
    (True, True)
    """
    letters = str(content)
    if mono:
        return 0.61 * font_size * sum(2 if ord(c) > 0x2E80 else 1 for c in letters)
    widths = (0.36 if c in _NARROW else 0.76 if c in _WIDE else 1.0 if ord(c) > 0x2E80 else 0.61 for c in letters)
    return font_size * sum(widths)


def shortened(content: object, width: float, font_size: float = 12, mono: bool = False) -> str:
    """Shortens a text in the middle if it would be wider than `width`.

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
    """Returns one element. Children are markup or iterables of markup; None is left out.

    In attribute names, `_` is replaced by `-`, and a trailing `_` is dropped (`class_`, `for_`). Attributes that are
    None or False are left out, and the value of a True attribute is its name. Floats are rounded.

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
    """Returns a line of text at a position; `text_anchor="middle"` centers it, and `"end"` aligns it to the right.

    >>> text(3, 4.5, "a < b", text_anchor="middle")
    '<text x="3" y="4.5" text-anchor="middle">a &lt; b</text>'
    """
    return element("text", escape(content), **{"x": x, "y": y, **attributes})


def line(x1: float, y1: float, x2: float, y2: float, **attributes: Any) -> str:
    """Returns a straight line.

    >>> line(0, 0, 1, 2, stroke="red")
    '<line x1="0" y1="0" x2="1" y2="2" stroke="red"/>'
    """
    return element("line", **{"x1": x1, "y1": y1, "x2": x2, "y2": y2, **attributes})


def points(corners: Iterable[tuple[float, float]]) -> str:
    """Formats points for the attribute `points` of a `<polyline>`.

    >>> points([(0, 1), (2.5, 3)])
    '0,1 2.5,3'
    """
    return " ".join(f"{number(x)},{number(y)}" for x, y in corners)


# --- colors --------------------------------------------------------------------------------------------------------


def colour(name: str) -> str:
    """Returns a palette color as the value of an attribute or a style. Raises: KeyError if the name is unknown.

    >>> colour("ink")
    'var(--tg-ink,#1b2129)'
    """
    return f"var(--tg-{name},{PALETTE[name][0]})"


def series(index: int) -> str:
    """Returns the color of one of several lines. The colors repeat after eight.

    >>> series(0) == series(8) == colour("series-1")
    True
    """
    return colour(SERIES[index % len(SERIES)])


def theme() -> str:
    """Returns CSS that sets the colors within class `tg`, by the system's preference unless the page selects a mode.

    Documentation pages select a mode with `data-theme`; JupyterLab and VS Code have their own attributes and classes.

    >>> "prefers-color-scheme: dark" in theme()
    True
    """
    light, dark = ("".join(f"--tg-{name}:{pair[i]};" for name, pair in PALETTE.items()) for i in (0, 1))
    selectors = {
        "light": ('[data-theme="light"]', '[data-jp-theme-light="true"]', ".vscode-light"),
        "dark": ('[data-theme="dark"]', '[data-jp-theme-light="false"]', ".vscode-dark"),
    }
    by_page = {mode: ",".join(f"{page} .tg,{page}.tg" for page in pages) for mode, pages in selectors.items()}
    return (
        f".tg{{color-scheme:light;{light}}}"
        f"@media (prefers-color-scheme: dark){{.tg{{color-scheme:dark;{dark}}}}}"
        f"{by_page['light']}{{color-scheme:light;{light}}}{by_page['dark']}{{color-scheme:dark;{dark}}}"
    )


def resolved(markup: str, dark: bool = False) -> str:
    """Replaces the names of colors with their values, for programs that do not support CSS variables.

    >>> resolved(element("rect", fill=colour("ink")))
    '<rect fill="#1b2129"/>'
    """
    return re.sub(r"var\(--tg-([a-z0-9-]+)(?:,[^()]*)?\)", lambda m: PALETTE[m[1]][dark], markup)


_PAINTED = re.compile(r'(fill|stroke|stop-color)="var\(--tg-([a-z0-9-]+)(?:,[^()]*)?\)"')
_STYLED = re.compile(r"([a-z-]+):(var\(--tg-([a-z0-9-]+)(?:,[^()]*)?\))")


def portable(markup: str) -> str:
    """Prepares an image for a file: browsers still select the mode, and other programs show the light colors.

    The elements get the light colors directly. Rules in the stylesheet, which programs without support for CSS
    variables ignore, replace them.

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
    """Returns the contrast of two colors `#rrggbb`, from 1 to 21; text needs 4.5.

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
    """Returns an `id` derived from the parts, so that pictures on one page do not collide.

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
    """Returns a complete SVG image: the body on a background, with the stylesheet and text for screen readers.

    Args:
        width, height: the size of the image.
        body: markup.
        title: a short title, which browsers show as a tooltip.
        description: what the image shows, for screen readers.
        style: additional CSS. Its selectors should start with a specific class, since all pictures in a notebook share
            one page.

    By default, elements are drawn in `ink`, and text is 12 units high and sans-serif. The class `tg-mono` is for
    monospaced text, and `tg-muted` for less important text.

    >>> document(10, 5, element("circle", r=2), title="A dot").endswith("</svg>")
    True
    """
    inside = [part for part in _flat(body)]
    name = identifier(title, description, inside)
    base = (
        # Inside @media, which CairoSVG ignores: it would treat `height:auto` as no height.
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
    """Returns CSS for the contents of class `name` (`&` in the rules), isolated from the page around it.

    Notebooks have their own rules for tables, lists and paragraphs, which would interfere. An id that no element has
    gives every selector here a higher specificity than those, and all properties start from the browser's defaults.

    >>> fenced("box", "& td{margin:0}").endswith(":is(.box,#box) td{margin:0}")
    True
    """
    base = (
        "&{text-align:left;text-indent:0;white-space:normal;letter-spacing:normal;word-break:normal}"
        f"& *{{all:revert}}& :focus-visible{{outline:3px solid {colour('accent')};outline-offset:2px}}"
    )
    return (base + rules).replace("&", f":is(.{name},#{name})")


def scrolling(table: str, name: str) -> str:
    """Puts HTML that may be wider than the page into a frame (class `scroll`) that can be scrolled with the keyboard.

    >>> scrolling("<table></table>", "Layers")
    '<div class="scroll" role="region" aria-label="Layers" tabindex="0"><table></table></div>'
    """
    return element("div", table, class_="scroll", role="region", aria_label=name, tabindex=0)


def page(*body: Any, title: str, style: str = "", script: str = "", language: str = "en") -> str:
    """Returns a complete HTML page, in the palette's colors, that loads nothing.

    `script` is JavaScript to run after the body.

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
