"""Prints what an op became: its kernels, and the text of every function that was generated for it.

python -m tensorgrad.dispatch.show mul
python -m tensorgrad.dispatch.show --list     all names
"""

from __future__ import annotations

import difflib
import inspect
import sys

from tensorgrad.dispatch import guard, templates
from tensorgrad.dispatch.kinds import FUNCTIONAL, FUNCTIONS
from tensorgrad.kernels.cuda import table as cuda
from tensorgrad.rows.kernel_tables import LARGE, OPS, REGISTERED
from tensorgrad.rows.op import Op, backward_arguments


def show(name: str) -> str:
    """The row of an op, its kernels, the text of its functions and of its twin; of a composite, the function itself.

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
        users = guard.guarded({name: public}, "tensorgrad", name in FUNCTIONS)[name]
        if users is not public:
            numpy_names = inspect.getclosurevars(users).nonlocals["numpy_names"]
            parts += ["# what users call", guard.text(public, numpy_names)]
    if op is not None:
        parts += [f"# the row {op.signature}   kind: {op.kind}", *(f"#   {line}" for line in kernels(op)), ""]
        for heading, text in texts(op):
            parts += [f"# {heading}", text]
        if op.twin is not None:
            parts += ["# its twin: the same in simpler ops", written(op.twin)]
    return "\n".join(parts)


def texts(op: Op) -> list[tuple[str, str]]:
    """The functions made for an op: what each is for, and its text."""
    found = [(f"what torch.{op.name} and the method run", templates.forward(op, "call", op.name))]
    if op.compiled.operator is not None:
        found.append(("what the operator runs", templates.forward(op, "operator", op.name)))
    found.append(("what the slow path runs in the end", templates.forward(op, "plain", op.name)))
    if op.wrt:
        found.append(("what the engine calls", templates.backward(op, op.backward_name)))
    if op.backward_kernel or op.on_arrays:
        arguments = backward_arguments(op.backward_kernel) if op.backward_kernel else None
        text = templates.array_backward(op, arguments)
        found.append(("what that runs where nothing is recorded: arrays in, arrays out", text))
    return found


def kernels(op: Op) -> list[str]:
    """The kernels of an op, a line each: for small and large arrays on the CPU, on CUDA, and those registered."""
    named = f"a function of {op.kernel.__module__}" if callable(op.kernel) else str(op.kernel)
    place = "kernels/array/" if not callable(op.kernel) and "." in named else "" if callable(op.kernel) else "NumPy's "
    lines = [f"kernel: {place}{named}" if op.kernel is not None else "no kernel: its twin runs"]
    for name in (op.name, f"{op.name}.backward"):
        what = "" if name == op.name else " (backward)"
        if name in LARGE:
            lines.append(f"from {LARGE[name].elements} elements on: kernels/compiled/{LARGE[name].kernel}{what}")
        if name in cuda.ROWS:
            lines.append(f"cuda: kernels/cuda/{cuda.ROWS[name]}{what}")
    lines += [
        f"registered for {device}: {kernel!r}" for (name, device), kernel in REGISTERED.items() if name == op.name
    ]
    return lines


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
