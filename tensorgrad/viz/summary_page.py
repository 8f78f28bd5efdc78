"""The table of `nn.summary` as HTML, for notebooks and as a separate page. It contains no scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorgrad.viz import svg
from tensorgrad.viz.summary_table import HEADER, NONE, cells, totals
from tensorgrad.viz.svg import colour, element, escape

if TYPE_CHECKING:
    from tensorgrad.viz.summary import Layer, Summary

STYLE = svg.fenced(
    "tg-summary",
    f"&{{font:14px/1.45 {svg.SANS};color:{colour('ink')};background:{colour('surface')};"
    "max-width:72rem;border-radius:6px;padding:.25rem}& .scroll{overflow-x:auto}"
    "& h1{font-size:1.6rem;margin:0 .6rem .8rem}"
    f"& table{{border-collapse:collapse;width:100%;color:{colour('ink')};font-size:inherit;margin:0}}"
    "& caption{text-align:left;font-weight:600;font-size:1.1em;padding:.3rem .6rem .6rem}"
    "& th,& td{padding:.22rem .6rem;text-align:left;vertical-align:top;"
    f"border:0;border-bottom:1px solid {colour('grid')};background:{colour('surface')};font-weight:400;"
    "white-space:nowrap}"
    f"& thead th{{font-weight:600;color:{colour('muted')};border-bottom:2px solid {colour('edge')}}}"
    "& .n{text-align:right;font-variant-numeric:tabular-nums}"
    f"& .shape{{font-family:{svg.MONO};font-size:.92em;white-space:normal;min-width:9rem}}"
    f"& .kind,& .none{{color:{colour('muted')}}}"
    "& tbody tr:first-child th{font-weight:600}"
    f"& tbody tr:hover>*{{background:{colour('panel')}}}"
    f"& .bar{{display:block;height:3px;margin:2px 0 0 auto;border-radius:2px;background:{colour('accent')}}}"
    f"& .bar.cost{{background:{colour('warm')}}}& .bar.kept{{background:{colour('good')}}}"
    "& dl{display:flex;flex-wrap:wrap;gap:.5rem;margin:.75rem .35rem .25rem;padding:0}"
    f"& dl>div{{background:{colour('panel')};border-radius:6px;padding:.4rem .7rem;margin:0}}"
    f"& dt{{font-size:.85em;color:{colour('muted')};font-weight:400}}& dd{{margin:0}}",
)


def fragment(summary: Summary) -> str:
    """Returns the summary for a notebook cell."""
    return element("div", element("style", svg.theme() + STYLE), content(summary), class_="tg tg-summary")


def page(summary: Summary) -> str:
    """Returns the summary as a complete page."""
    title = f"Summary of {summary.layers[0].kind}"
    heading = element("h1", escape(title))
    return svg.page(element("main", heading, content(summary), class_="tg-summary"), title=title, style=STYLE)


def content(summary: Summary) -> str:
    """Returns the table, with the totals below it."""
    layers = summary.shown()
    ran = summary.device is not None
    titles = HEADER if ran else (HEADER[0], HEADER[2])
    numeric = {*HEADER[2:]}
    head = (element("th", escape(t), scope="col", class_="n" if t in numeric else None) for t in titles)
    hidden = len(summary.layers) - len(layers)
    caption = "Layers" + (f", down to depth {summary.depth} ({hidden} more inside)" if hidden else "")
    table = element(
        "table",
        element("caption", escape(caption)),
        element("thead", element("tr", head)),
        element("tbody", (_row(summary, layer, ran) for layer in layers)),
    )
    pairs = (
        element("div", element("dt", escape(name)), element("dd", escape(value))) for name, value in totals(summary)
    )
    return svg.scrolling(table, "Layers") + element("dl", pairs)


def _row(summary: Summary, layer: Layer, ran: bool) -> str:
    name = layer.path.rpartition(".")[2]
    called = f" ×{layer.calls}" if layer.calls > 1 else ""
    head = element(
        "th",
        f"{escape(name)} " if name else None,
        element("span", escape(layer.kind + called), class_="kind" if name else None),
        scope="row",
        style=f"padding-left:{0.6 + 1.2 * layer.depth:.1f}rem",
        title=layer.path or None,
    )
    shape, *numbers = cells(layer)
    shares = (
        (layer.parameters, summary.parameters, "bar"),
        (layer.multiply_adds, summary.multiply_adds, "bar cost"),
        (layer.kept, summary.kept, "bar kept"),
    )
    columns = [_number(shown, *share) for shown, share in zip(numbers, shares)][: 3 if ran else 1]
    shown_shape = element("td", escape(shape), class_="shape none" if shape == NONE else "shape") if ran else None
    return element("tr", head, shown_shape, columns)


def _number(shown: str, value: int, whole: int, kind: str) -> str:
    """Returns a cell with a bar below the number that shows its share of the total."""
    share = value / whole if whole else 0.0
    bar = element("span", class_=kind, style=f"width:{max(share, 0.02):.1%}", aria_hidden="true") if share else None
    return element("td", escape(shown), bar, class_="n" if value else "n none")
