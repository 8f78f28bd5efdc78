"""The directive ``{picture}``: a block of Python whose last line is a picture, which stands on the page below it.

The pictures are drawn by `tensorgrad.viz` when the pages are built, so they show what the package does now.
"""

from __future__ import annotations

import ast
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

import tensorgrad
from tensorgrad import viz


def drawn(code: str) -> Any:
    """What the last line of `code` is worth; `torch` and `viz` are known."""
    *before, last = ast.parse(code).body
    if not isinstance(last, ast.Expr):
        raise ValueError(f"the last line of a picture's block must be an expression: {ast.unparse(last)}")
    scope: dict = {"torch": tensorgrad, "viz": viz}
    exec(compile(ast.Module(before, []), "<picture>", "exec"), scope)
    return eval(compile(ast.Expression(last.value), "<picture>", "eval"), scope)


class Drawing(SphinxDirective):
    """Shows its content, and the picture that it makes; the argument is the caption."""

    has_content = True
    optional_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """The code, and a figure of the SVG."""
        figure = nodes.container(classes=["picture"])
        figure += nodes.raw("", drawn("\n".join(self.content))._repr_svg_(), format="html")
        if self.arguments:
            figure += nodes.caption(text=self.arguments[0])
        code = "\n".join(self.content)
        return [nodes.literal_block(code, code, language="python"), figure]


def setup(app) -> dict:
    """Sphinx's entry."""
    app.add_directive("picture", Drawing)
    return {"parallel_read_safe": True, "version": "1"}
