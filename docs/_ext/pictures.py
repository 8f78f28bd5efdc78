"""The directive ``{picture}``: a block of Python whose last line is a picture, which is shown below it.

The pictures are drawn by `tensorgrad.viz` when the pages are built, so they are always current.
"""

from __future__ import annotations

import ast
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

import tensorgrad
from tensorgrad import viz


def drawn(code: str, scope: dict | None = None) -> Any:
    """Runs `code`, with `torch` and `viz` defined, and returns the value of its last line. `scope` gets its names."""
    *before, last = ast.parse(code).body
    if not isinstance(last, ast.Expr):
        raise ValueError(f"the last line of a picture's block must be an expression: {ast.unparse(last)}")
    scope = {} if scope is None else scope
    scope |= {"torch": tensorgrad, "viz": viz}
    exec(compile(ast.Module(before, []), "<picture>", "exec"), scope)
    return eval(compile(ast.Expression(last.value), "<picture>", "eval"), scope)


class Drawing(SphinxDirective):
    """Shows the code and its picture; the argument is the caption."""

    has_content = True
    optional_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Returns a code block and a container with the SVG."""
        figure = nodes.container(classes=["picture"])
        figure += nodes.raw("", drawn("\n".join(self.content))._repr_svg_(), format="html")
        if self.arguments:
            figure += nodes.caption(text=self.arguments[0])
        code = "\n".join(self.content)
        return [nodes.literal_block(code, code, language="python"), figure]


def setup(app) -> dict:
    """Called by Sphinx: registers the directive."""
    app.add_directive("picture", Drawing)
    return {"parallel_read_safe": True, "version": "1"}
