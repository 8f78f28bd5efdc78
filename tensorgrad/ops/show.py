"""Prints the functions that were made for an op:  python -m tensorgrad.ops.show mul"""

from __future__ import annotations

import sys

from tensorgrad.ops import callpath
from tensorgrad.ops.dispatch import OPS


def show(name: str) -> str:
    """The row of an op and the text of its functions.

    Raises: KeyError, with the closest names, if there is no such op.
    """
    if name not in OPS:
        import difflib

        close = difflib.get_close_matches(name, OPS) or sorted(n for n in OPS if name in n)
        raise KeyError(f"no op is called {name!r}; close: {', '.join(close) or 'none'} (all: --list)")
    op = OPS[name]
    parts = [f"# {op.signature}   kind: {op.kind}, kernel: {op.kernel}"]
    parts += ["# what users call", callpath.source(op, "call", name)]
    if op.wrt:
        parts += ["# what the engine calls", callpath.backward_source(op, op.backward_name)]
    return "\n".join(parts)


def main(names) -> int:
    """Prints the named ops; without a name, says how to use it."""
    import tensorgrad  # noqa: F401  declares the ops

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
    sys.exit(main(sys.argv[1:]))
