"""A graph in Graphviz's DOT language, https://graphviz.org/doc/info/lang.html."""

from __future__ import annotations

from tensorgrad.viz.boxes import BACKWARD, arranged, label
from tensorgrad.viz.graph import INPUT, LEAF, MODULE, Graph

_STYLE = {
    LEAF: 'shape=box, style="rounded,filled", fillcolor="#d6f0dd"',
    INPUT: 'shape=box, style="rounded,filled,dashed", fillcolor="#f2f4f7"',
    MODULE: 'shape=box3d, style=filled, fillcolor="#fde5d0"',
}
_OP = 'shape=box, style=filled, fillcolor="#d3e6fa"'


def source(graph: Graph, direction: str) -> str:
    """Returns the graph in the DOT language, drawn from top to bottom like `render`.

    >>> x = torch.tensor(2.0, requires_grad=True)
    >>> print(x.exp().render(names={"x": x}).dot)
    digraph tensorgrad {
      node [fontname="Helvetica", fontsize=11]
      n0 [label="x\\nfloat32 scalar", shape=box, style="rounded,filled", fillcolor="#d6f0dd"]
      n1 [label="exp\\nfloat32 scalar", shape=box, style=filled, fillcolor="#d3e6fa"]
      n0 -> n1
    }
    """
    backward = direction == BACKWARD
    drawn, _, _, links = arranged(graph, direction)
    lines = ["digraph tensorgrad {", '  node [fontname="Helvetica", fontsize=11]']
    for i in drawn:
        vertex = graph.vertices[i]
        text = r"\n".join(quoted(t) for t, _ in label(vertex, direction))
        lines.append(f'  n{i} [label="{text}", {_STYLE.get(vertex.kind, _OP)}]')
    for link in links:
        ends = (link.target, link.source) if backward else (link.source, link.target)
        note = f' [taillabel="{link.number}"]' if backward and graph.vertices[link.target].kind != MODULE else ""
        lines.append(f"  n{ends[0]} -> n{ends[1]}{note}")
    return "\n".join([*lines, "}"])


def quoted(text: str) -> str:
    """Escapes text for a quoted string in the DOT language.

    >>> quoted('a "b" \\\\ c')
    'a \\\\"b\\\\" \\\\\\\\ c'
    """
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
