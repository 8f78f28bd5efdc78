"""Prints what an op became: its kernels, and the text of every function that was generated for it.

python -m tensorgrad.dispatch.show mul
python -m tensorgrad.dispatch.show --list     all names
"""

from __future__ import annotations

import difflib
import inspect
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np

from tensorgrad.dispatch import guard, templates
from tensorgrad.dispatch.kinds import FUNCTIONAL, FUNCTIONS
from tensorgrad.kernels.cuda import table  # noqa: F401  which enters its kernels, with or without a GPU
from tensorgrad.rows.kernel_tables import OPS, REGISTRY, asked, asked_backward
from tensorgrad.rows.op import Op, backward_arguments
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.transforms import batch_rules  # noqa: F401  which adds its rule


def show(name: str) -> str:
    """The row of an op, its kernels, the text of its functions and of its twin; of a composite, the function itself.

    Raises: KeyError, with the closest names, if there is neither.
    """
    op, public = OPS.get(name), FUNCTIONAL.get(name) or FUNCTIONS.get(name)
    if op is None and public is None:
        entries = {backend: [(s, t[name])] for (backend, s), t in list(REGISTRY.items()) if name in t}
        if entries:
            return "\n".join(["# a helper: a kernel that belongs to no op", *_by_class(None, entries)])
        known = sorted({*OPS, *FUNCTIONS, *FUNCTIONAL})
        close = difflib.get_close_matches(name, known) or [n for n in known if name in n]
        raise KeyError(f"no op is called {name!r}; close: {', '.join(close) or 'none'} (all: --list)")
    if op is None and public is not None and hasattr(public, "op"):  # another name of an op: arcsin of asin
        op = public.op
    parts = []
    if public is not None and not hasattr(public, "op"):
        parts += ["# a composite: an ordinary function over ops", written(public)]
        users = guard.guarded({name: public}, "tensorgrad", name in FUNCTIONS)[name]
        if users is not public:
            numpy_names = inspect.getclosurevars(users).nonlocals["numpy_names"]
            parts += ["# what users call", guard.text(users, public, numpy_names)]
    if op is not None:
        parts += [
            f"# the row {op.signature}   kind: {op.kind}",
            *(f"#   {line}" for line in (*kernels(op), *derivatives(op))),
            "",
        ]
        for heading, text in texts(op):
            parts += [f"# {heading}", text]
        if op.twin is not None:
            parts += ["# its twin: the same in simpler ops", written(op.twin)]
    return "\n".join(parts)


def texts(op: Op) -> list[tuple[str, str]]:
    """The functions made for an op: what each is for, and its text."""
    users = FUNCTIONS.get(op.name) or FUNCTIONAL.get(op.name)
    by_users = f"what torch.{op.name} and the method run"
    heading = by_users if users is op.compiled.call else "what composites call"
    found = [(heading, templates.forward(op, "call", op.name))]
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
    """The kernels of an op and of its backward pass: a line for each class of arrays, with the order of asking."""
    storages: dict[str, Any] = {storage.backend: storage for storage in STORAGES.values()}
    storages.setdefault("cuda", SimpleNamespace(backend="cuda", device_type="cuda", array_type=object, xp=np))
    lines = _by_class(op.kernel, {backend: asked(op, storage) for backend, storage in storages.items()})
    if op.backward_kernel:
        found = {backend: asked_backward(op, s) for backend, s in storages.items() if s.xp is not None}
        lines += ["backward:", *_by_class(op.backward_kernel, found)]
    tables = {backend: entries for (backend, source), entries in list(REGISTRY.items()) if source == "registered"}
    name = f"{op.name}.backward"
    found = {backend: [("registered", entries[name])] for backend, entries in tables.items() if name in entries}
    return lines + [f"backward, {line}" for line in _by_class(None, found)]


def _by_class(general: Any, found: dict[str, list[tuple[str, Any]]]) -> list[str]:
    """Lines such as "cpu: this kernel, else that one"; classes of arrays with the same kernels share one."""
    classes: dict[str, list[str]] = {}
    for backend, asked_for in found.items():
        text = ", else ".join([_described(source, general if source == "general" else k) for source, k in asked_for])
        classes.setdefault(text, []).append(backend)
    return [f"{', '.join(backends)}: {text}" for text, backends in classes.items() if text]


def _described(source: str, kernel: Any) -> str:
    if source == "compiled":
        return f"kernels/compiled/{kernel.kernel} from {kernel.elements} elements on"
    if source == "general":
        if callable(kernel):
            return f"a function of {kernel.__module__}"
        return f"kernels/array/{kernel}" if "." in kernel else f"the array module's {kernel}"
    if source == "device":
        if callable(kernel):  # a layout may bind one function to each name
            return f"a function of {getattr(kernel, 'func', kernel).__module__}"
        return f"kernels/{kernel.replace('.', '/', 1)}"
    return f"{kernel!r}, registered" if source == "registered" else f"its {source}"


def derivatives(op: Op) -> list[str]:
    """What an op's row states of its derivatives, a line each, and last what is known of its Jacobian, if anything."""
    stated = [f"formula for {name}" for name in op.formulas]
    stated += ["formula for all inputs"] if op.backward is not None else []
    stated += ["its twin"] if op.through_twin else []
    for field in ("backward_kernel", "batch_backward", "jvp", "jvp_kernel"):
        if getattr(op, field):
            named = getattr(op, field)
            stated.append(field.replace("_", " ") + ("" if callable(named) else f": {named}"))
    known = f"linear: {op.linear_in}" if op.linear_in else f"Jacobian: {op.jacobian}" if op.jacobian else ""
    return [*(f"derivative: {statement}" for statement in stated), *([known] if known else [])]


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
