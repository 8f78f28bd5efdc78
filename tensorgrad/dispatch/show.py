"""Prints the functions that were made for an op:  python -m tensorgrad.dispatch.show mul"""

from __future__ import annotations

import difflib
import inspect
import sys

from tensorgrad.dispatch import generate
from tensorgrad.dispatch.kernel_tables import OPS
from tensorgrad.dispatch.kinds import FUNCTIONAL, FUNCTIONS
from tensorgrad.dispatch.op import backward_arguments


def show(name: str) -> str:
    """The row of an op, the text of its functions and of its twin; of a composite, the function itself.

    Raises: KeyError, with the closest names, if there is neither.
    """
    op, public = OPS.get(name), FUNCTIONAL.get(name) or FUNCTIONS.get(name)
    if op is None and public is None:
        known = sorted({*OPS, *FUNCTIONS, *FUNCTIONAL})
        close = difflib.get_close_matches(name, known) or [n for n in known if name in n]
        raise KeyError(f"no op is called {name!r}; close: {', '.join(close) or 'none'} (all: --list)")
    parts = []
    if public is not None and not hasattr(public, "op"):
        parts += ["# a composite: an ordinary function over ops", written(public)]
    if op is not None:
        kernel = f"a function of {op.kernel.__module__}" if callable(op.kernel) else op.kernel
        parts += [f"# the row {op.signature}   kind: {op.kind}, kernel: {kernel}", "# what calls run"]
        parts += [generate.source(op, "call", name)]
        if op.wrt:
            parts += ["# what the engine calls", generate.backward_source(op, op.backward_name)]
        if op.backward_kernel:
            arguments = backward_arguments(op.backward_kernel)
            parts += ["# and that, for the backward kernel", generate.array_backward_source(op, arguments)]
        if op.twin is not None:
            parts += ["# its twin: the same in simpler ops", written(op.twin)]
    return "\n".join(parts)


def written(function) -> str:
    """The text of a function as it stands in its file."""
    try:
        return inspect.getsource(function)
    except OSError:
        return f"({function.__qualname__}: its text is in no file)\n"


def main(names) -> int:
    """Prints the named ops; without a name, says how to use it."""
    if not names or names == ["--list"]:
        print("\n".join(sorted(OPS)) if names else __doc__)
        return 0
    for name in names:
        try:
            print(show(name))
        except KeyError as error:
            print(error.args[0], file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    from tensorgrad.system.command import run

    run(main)
