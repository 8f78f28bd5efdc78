"""Writes `cupy_names.txt`: what the real CuPy offers, so that the emulator offers no more.

Run where CuPy is installed (it needs no GPU): python tests/emulator/names.py > tests/emulator/cupy_names.txt
Each line is a kind, a name, and what is known of it: a function's parameters (those with a default end in "="),
a ufunc's own name, scatter operation and loops.
"""

from __future__ import annotations

import inspect
import re

MODULES = ("", "linalg", "fft", "lib.stride_tricks")


def parameters(function) -> str:
    """A function's parameters, without their default values; "..." where they cannot be found out."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return "..."
    parts, keywords = [], False
    for p in found:
        if p.kind is p.KEYWORD_ONLY and not keywords:
            parts.append("*")
        keywords |= p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)
        stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        parts.append(stars + p.name + ("" if p.default is p.empty else "="))
    return ", ".join(parts)


def documented(method) -> str:
    """The parameters of a compiled method, by the first line of its documentation."""
    match = re.match(r"\w+\.\w+\((?:self(?:, )?)?(.*?)\)", inspect.getdoc(method) or "")
    if match is None:
        return "..."
    names = [re.sub(r"=.*", "=", part).split(" ")[-1] for part in match[1].split(", ") if part]
    return ", ".join(names)


def lines(cupy):
    """The lines of the file, for an imported CuPy."""
    yield f"# CuPy {cupy.__version__}"
    for place in MODULES:
        module = cupy
        for part in filter(None, place.split(".")):
            module = getattr(module, part)
        for name in sorted(n for n in dir(module) if not n.startswith("_") and n != "annotations"):
            found, full = getattr(module, name), f"{place}.{name}".lstrip(".")
            if isinstance(found, cupy.ufunc):
                yield f"ufunc {full} {found.name.removeprefix('cupy_')} {found._scatter_op} {','.join(found.types)}"
            elif inspect.isclass(found):
                yield f"class {full}"
            elif callable(found):
                yield f"def {full} {parameters(found)}".rstrip()
            elif not inspect.ismodule(found):
                yield f"value {full}"
    from cupy._core._routines_math import _clip
    from cupy._sorting.search import _where_ufunc

    for name, found in (("where", _where_ufunc), ("clip", _clip)):  # what these functions call
        yield f"inner {name}.loops {name} None {','.join(found.types)}"
    for name in sorted(n for n in dir(cupy.ndarray) if not n.startswith("_")):
        found = getattr(cupy.ndarray, name)
        yield f"method ndarray.{name} {documented(found)}".rstrip() if callable(found) else f"value ndarray.{name}"
    yield from (f"special ndarray.{name}" for name in sorted(dir(cupy.ndarray)) if name.startswith("__"))


if __name__ == "__main__":
    import cupy

    print("\n".join(lines(cupy)))
