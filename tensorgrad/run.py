"""Runs a PyTorch program under tensorgrad, unchanged.

    python -m tensorgrad.run train.py --epochs 3
    python -m tensorgrad.run -m package.train --epochs 3

Inside, `import torch` and every `import torch.*` load tensorgrad, also in the processes that the program starts: they
inherit the variable TENSORGRAD_COMPAT=1, and a PYTHONPATH that begins with a folder of tensorgrad. A program that wants
a process with the real torch removes the variable. Nothing else changes.
"""

from __future__ import annotations

import os
import runpy
import sys

USAGE = """usage: python -m tensorgrad.run script.py [arguments ...]
       python -m tensorgrad.run -m module [arguments ...]"""


def main(arguments: list[str]) -> int:
    """Runs the program named by the arguments as `__main__`. Returns 2 if they name none.

    The program's errors show their own traceback, with a hint added if a name is missing in tensorgrad.
    """
    from tensorgrad import compat

    if not arguments or arguments[0] in ("-h", "--help") or (arguments[0] == "-m" and len(arguments) < 2):
        print(USAGE, file=sys.stderr if not arguments or arguments[0] == "-m" else sys.stdout)
        return 0 if arguments and arguments[0] != "-m" else 2
    compat.install()
    compat.children.of_any_kind(True)
    try:
        if arguments[0] == "-m":
            sys.argv = arguments[1:]
            sys.path.insert(0, os.getcwd())
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            script = arguments[0]
            if not os.path.exists(script):
                print(f"python -m tensorgrad.run: can't open file {script!r}: no such file", file=sys.stderr)
                return 2
            sys.argv = list(arguments)
            sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
            runpy.run_path(script, run_name="__main__")
    except Exception as error:
        hint = compat.explain(error)
        if hint is not None and hasattr(error, "add_note"):  # Python 3.11 and later show notes with the traceback
            error.add_note(hint)
        elif hint is not None:
            print(hint, file=sys.stderr)
        raise
    return 0


def command() -> None:
    """Runs the program of this process's command line, and exits."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path.pop(0)  # the folder that `-m` or a script added; the program should not see it
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    command()
