"""Around the pages: descriptions for search engines, drawings of our own, and the explorer within a page."""

from __future__ import annotations

import html
import json
import math
from pathlib import Path

from docutils import nodes
from pictures import drawn
from sphinx.util.docutils import SphinxDirective

from tensorgrad import viz
from tensorgrad.viz import svg

ROOT = Path(__file__).resolve().parents[2]

# --- what search engines and other sites show ------------------------------------------------------------------------


def description(doctree) -> str:
    """The first paragraph of a page, as far as a search engine shows it."""
    for paragraph in doctree.findall(nodes.paragraph):
        text = " ".join(paragraph.astext().split())
        if len(text) > 40:
            return text if len(text) <= 160 else text[:157].rpartition(" ")[0] + " …"
    return ""


def describe(app, page, template, context, doctree) -> None:
    """Adds the description to a page's head."""
    if doctree is None:
        return
    title, about = html.escape(html.unescape(context.get("title", ""))), html.escape(description(doctree))
    tags = f'<meta property="og:title" content="{title}"><meta property="og:type" content="article">'
    if about:
        tags += f'<meta name="description" content="{about}"><meta property="og:description" content="{about}">'
    context["metatags"] = context.get("metatags", "") + tags


# --- drawings --------------------------------------------------------------------------------------------------------

STEPS = (
    ("tensor", "a view of a storage", "tensor.py", "storage/"),
    ("row", "what an op computes,", "rows/", "ops/", "and its derivative"),
    ("kernel", "arrays in, arrays out", "dispatch/", "kernels/"),
    ("graph", "a node for each op", "autograd/", "graph.py"),
    ("engine", "gradients, backwards", "autograd/", "engine.py"),
)
ARROWS = ("a + b", "runs", "records", "backward()")


def flow() -> str:
    """What happens from a tensor to its gradient, in five boxes."""
    wide, high, gap, top = 136.0, 92.0, 54.0, 34.0
    parts: list[str] = []
    for number, (name, about, *places) in enumerate(STEPS):
        x = number * (wide + gap) + 1
        parts.append(svg.element("rect", x=x, y=top, width=wide, height=high, rx=8, fill=svg.colour("surface"),
                                 stroke=svg.series(number), stroke_width=2))  # fmt: skip
        parts.append(svg.text(x + wide / 2, top + 25, name, text_anchor="middle", font_weight=600, font_size=15))
        lines = [about] + [text for text in places if " " in text]
        for i, text in enumerate(lines):
            parts.append(svg.text(x + wide / 2, top + 45 + 15 * i, text, text_anchor="middle", font_size=11.5))
        files = "  ".join(text for text in places if " " not in text)
        parts.append(svg.text(x + wide / 2, top + high - 10, files, text_anchor="middle", font_size=11,
                              class_="tg-muted", font_family=svg.MONO))  # fmt: skip
        if number < len(ARROWS):
            start, end, y = x + wide + 6, x + wide + gap - 6, top + high / 2
            parts.append(_arrow(start, end, y))
            parts.append(svg.text((start + end) / 2, y - 9, ARROWS[number], text_anchor="middle", font_size=10.5))
    last, first = 4 * (wide + gap) + wide / 2, wide / 2
    down = top + high + 34
    path = f"M{last} {top + high + 4}V{down}H{first}V{top + high + 10}"
    parts.append(svg.element("path", d=path, fill="none", stroke=svg.colour("accent"), stroke_width=2))
    parts.append(
        svg.element(
            "polygon",
            points=svg.points([(first, top + high + 3), (first - 5, top + high + 12), (first + 5, top + high + 12)]),
            fill=svg.colour("accent"),
        )
    )
    parts.append(svg.text((first + last) / 2, down - 7, "x.grad", text_anchor="middle", font_size=12))
    words = "; ".join(f"{name}: {about.rstrip(',')}" for name, about, *_ in STEPS)
    return svg.document(
        5 * wide + 4 * gap + 2, down + 12, parts, title="From a tensor to its gradient", description=words
    )


def _arrow(start: float, end: float, y: float) -> str:
    head = svg.points([(end, y), (end - 8, y - 4.5), (end - 8, y + 4.5)])
    return svg.line(start, y, end - 6, y, stroke=svg.colour("muted"), stroke_width=2) + svg.element(
        "polygon", points=head, fill=svg.colour("muted")
    )


WORKLOADS = (
    "modules: Linear 64×1024→2048, forward and backward",
    "modules: Conv2d 8×32×64²→64, forward and backward",
    "layers: LayerNorm 2048×512, forward and backward",
    "layers: attention 8×8×512×64, causal, forward and backward",
    "training: MLP 784-128-10, batch 32, SGD",
    "training: MNIST ConvNet, batch 64, Adam",
    "training: ResNet-18 32×32, batch 32, SGD",
    "training: GPT 4×128, context 64, batch 12, AdamW",
    "training: LSTM characters, 32×64, Adam",
    "inference: GPT 4×128, context 64",
)


def workloads() -> str:
    """Ten workloads' times as a part of torch's, from the file that `python -m benchmarks --write` makes."""
    stored = json.loads((ROOT / "benchmarks" / "results.json").read_text(encoding="utf-8"))
    ratios = {f"{row['theme']}: {row['name']}": row["ratios"]["fast/torch"]["median"] for row in stored["rows"]}
    left, full, step, top = 300.0, 360.0, 25.0, 44.0
    most = max(1.0, *(ratios[name] for name in WORKLOADS))
    scale = full / math.ceil(4 * most) * 4
    low = top + step * len(WORKLOADS)
    parts = [svg.text(left, 18, "time in tensorgrad, as a part of torch's (shorter is faster)", font_weight=600)]
    for quarter in range(math.ceil(4 * most) + 1):
        x = left + scale * quarter / 4
        colour = svg.colour("accent") if quarter == 4 else svg.colour("grid")
        parts.append(svg.line(x, top - 8, x, low, stroke=colour, stroke_width=2 if quarter == 4 else 1))
        name = "torch" if quarter == 4 else svg.short(quarter / 4)
        parts.append(svg.text(x, top - 13, name, text_anchor="middle", font_size=11))
    for number, name in enumerate(WORKLOADS):
        y = top + step * number
        title = name.partition(": ")[2].replace(", forward and backward", "")
        title += " (one answer)" if name.startswith("inference") else ""
        parts.append(svg.text(left - 8, y + 15, svg.shortened(title, left - 12), text_anchor="end"))
        parts.append(svg.element("rect", x=left, y=y + 3, width=scale * ratios[name], height=step - 9, rx=3,
                                 fill=svg.series(0)))  # fmt: skip
        parts.append(svg.text(left + scale * ratios[name] + 6, y + 15, f"{ratios[name]:.2f}", font_size=11))
    words = "; ".join(f"{name.partition(': ')[2]}: {ratios[name]:.2f}" for name in WORKLOADS)
    facts = stored["facts"]
    parts.append(svg.text(left, low + 18, f"{facts['date']}, {facts['processor']}, {facts['threads']} threads",
                          font_size=11, class_="tg-muted"))  # fmt: skip
    return svg.document(
        left + full + 46, low + 26, parts, title="Ten workloads, compared with torch", description=words
    )


DRAWINGS = {"flow": flow, "workloads": workloads}


class Drawing(SphinxDirective):
    """Shows a drawing of this file."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Returns a container with the SVG."""
        figure = nodes.container(classes=["picture"])
        figure += nodes.raw("", DRAWINGS[self.arguments[0]](), format="html")
        return [figure]


class Explorer(SphinxDirective):
    """Shows the explorer of the block's last line, which is a tensor; `names` is what the block calls its inputs."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Returns a frame with the page that `viz.explore` makes. The page is written only for HTML."""
        name = f"explorer/{self.env.docname.replace('/', '-')}.html"
        up = "../" * self.env.docname.count("/")
        if self.env.app.builder.format == "html":
            path = Path(self.env.app.outdir, name)
            path.parent.mkdir(exist_ok=True)
            explored("\n".join(self.content), path)
        frame = (
            f'<iframe class="explorer" loading="lazy" title="Step through a backward pass" src="{up}{name}"></iframe>'
        )
        link = f'<p><a href="{up}{name}">Open it in a page of its own</a></p>'
        return [nodes.raw("", frame + link, format="html")]


def explored(code: str, path: Path) -> None:
    """Writes the explorer of a block of code."""
    scope: dict = {}
    loss = drawn(code, scope)
    names = {name: value for name, value in scope.items() if getattr(value, "is_leaf", False)}
    viz.explore(loss, path, names=names)


def setup(app) -> dict:
    """Called by Sphinx: registers the directives."""
    app.add_directive("drawing", Drawing)
    app.add_directive("explorer", Explorer)
    app.connect("html-page-context", describe)
    return {"parallel_read_safe": True, "version": "1"}
