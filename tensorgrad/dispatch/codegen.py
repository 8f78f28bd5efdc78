"""From text to function: compiles what templates.py filled in, so that tracebacks show its lines.

Compiling a function for each of hundreds of ops would take longer than the rest of the import. A placeholder stands for
each until it is first called; then it takes over the code of the function, so that all who hold it have the real one.
"""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable
from typing import Any

_compiled: dict[tuple, Callable] = {}  # texts that are equal are compiled once
_count = itertools.count(1)


def function_of(text: str, cells: dict[str, Any], names: dict[str, Any], name: str = "") -> Any:
    """The function whose text this is, with the values of its free variables and the module's `names`.

    `name` is what tracebacks and profiles show, if it is not that of the text: equal texts share their code.

    >>> from tensorgrad.dispatch.codegen import function_of
    >>> function_of("def add(x):\\n    return x + N", {"N": 2}, {})(3)
    5
    """
    key = (text, *cells, id(names))
    factory = _compiled.get(key)
    if factory is None:
        head, *rest = text.splitlines()
        body = [head, f"    if 0: {', '.join(cells)}", *rest]  # every cell is there, used or not: see take_over
        defined = head[len("def ") :].partition("(")[0]
        lines = [f"def make({', '.join(cells)}):", *(f"    {line}" for line in body), f"    return {defined}", ""]
        whole, file = "\n".join(lines), f"<tensorgrad generated {next(_count)}>"
        linecache.cache[file] = (len(whole), None, whole.splitlines(True), file)
        scope: dict[str, Any] = {}
        exec(compile(whole, file, "exec"), names, scope)
        factory = _compiled[key] = scope["make"]
    function = factory(*cells.values())
    if name:
        function.__code__ = function.__code__.replace(co_name=name)
    return function


def take_over(placeholder: Any, function: Any) -> Any:
    """Gives a placeholder the code and defaults of the function that it stands for; returns it. Both have the same free
    variables: their values stay those of the placeholder."""
    placeholder.__defaults__, placeholder.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    placeholder.__code__ = function.__code__
    return placeholder
