"""Compiles files of CUDA C into functions that can be launched.

    python -m tensorgrad.kernels.cuda.runtime.program softmax float16     prints a program

A program is `sources/prelude.cuh` and one file of `sources/`, compiled once for each pair of types and each setting of
its parameters. Two names stand for types in all of them: `T`, the type in memory, and `A`, the type of sums.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path

import numpy as np

from tensorgrad.kernels.cuda import expressions

SOURCES = Path(__file__).parent.with_name("sources")
OPTIONS = ("-std=c++17",)

# NumPy's name of a dtype -> (T, A) in CUDA C.
TYPES = {
    "float32": ("float", "float"), "float64": ("double", "double"),
    "float16": ("half", "float"), "bfloat16": ("bfloat16", "float"),
    "int64": ("long long", "long long"), "int32": ("int", "int"), "int16": ("short", "int"),
    "int8": ("signed char", "int"), "uint8": ("unsigned char", "int"), "bool": ("bool", "int"),
}  # fmt: skip
# The type in which a kernel receives a number of type A.
NUMBER = {"float32": np.float32, "float64": np.float64, "float16": np.float32, "bfloat16": np.float32}
FLOATING = ("float32", "float64", "float16", "bfloat16")
WHOLE = ("int64", "int32", "int16", "int8", "uint8", "bool")


class _Names(dict):
    """dtype -> its name, which NumPy puts together anew at each request, in the time of half a launch."""

    def __missing__(self, dtype: np.dtype) -> str:
        name = self[dtype] = dtype.name
        return name


NAME = _Names()

SUMS = (
    "sum", "mean", "prod", "amax", "amin", "norm1", "norm2", "norm_p", "norm_max", "argmax", "argmin", "var",
    "logsumexp",
)  # fmt: skip

# All programs: family -> [(dtypes, settings), ...]. tests/kernels/test_nvrtc.py compiles them all; where there are many
# settings, those that differ in more than a number.
FAMILIES: dict[str, list[tuple[tuple[str, ...], dict]]] = {
    "softmax": [
        (("float32", "float16"), {}), (("float32", "bfloat16"), {"COLUMNS": 1}), (("float32", "float64"), {"COUNT": 1}),
        (("float16", "bfloat16"), {"COUNT": 8, "WARP": 1}),
    ],
    "conv": [
        (FLOATING, {"PARTS": 1, "INDEX": "unsigned"}),
        (("float32", "float64"), {"PARTS": 2, "INDEX": "unsigned long long"}),
    ],
    "pool": [
        ((*FLOATING, "int64", "uint8"), {"EVEN": 0, "LAST": 0, "INDEX": "unsigned"}),
        (FLOATING, {"EVEN": 1, "LAST": 1, "INDEX": "unsigned long long"}),
    ],
    "pointwise": [  # all expressions are compiled together, by the same test
        (("float32", "bfloat16", "float64"), expressions.settings("elu_grad")),
        (("float16",), expressions.settings("where")), (("bfloat16",), expressions.settings("masked_fill")),
        (("float32",), expressions.settings("lt")), (("int64",), expressions.settings("add", "int64")),
    ],
    "reduce": [
        *((("float32",), {"OP": name, "OUT": "T"}) for name in SUMS),
        *((("float32",), {"OP": name, "OUT": "T", "COLUMNS": 1}) for name in ("argmax", "logsumexp")),
        (("float64",), {"OP": "var", "OUT": "T", "COLUMNS": 1}),
        (FLOATING[1:], {"OP": "sum", "OUT": "T"}), (("float16",), {"OP": "sum", "OUT": "T", "COLUMNS": 1}),
        (("float16",), {"OP": "any", "OUT": "bool"}), (("bool",), {"OP": "all", "OUT": "bool", "WHOLE": 1}),
        (("int64", "bool"), {"OP": "sum", "OUT": "long long", "WHOLE": 1}),
    ],
    "norm": [
        (("float32", "float64"), {"COUNT": 2, "W": "T", "CENTRED": 1}),
        (("float32",), {"COUNT": 4, "W": "T", "WARP": 1}), (("float16",), {"COUNT": 1, "W": "T"}),
        (("bfloat16",), {"COUNT": 8, "W": "float", "WARP": 1, "CENTRED": 1}),
    ],
    "batch_norm": [
        (("float32", "bfloat16"), {"W": "float"}), (("float32", "bfloat16"), {"W": "float", "BACKWARD": 1}),
        (("float64",), {"W": "T", "FAR": 1}), (("float64",), {"W": "T", "FAR": 1, "BACKWARD": 1}),
    ],
    "loss": [(FLOATING, {})],
    "scan": [(("float32", "float64", "bfloat16"), {"OUT": "T"}), (("int32", "bool"), {"OUT": "long long", "WHOLE": 1})],
    "attention": [
        ((dtype,), dict(zip(("D", "KEYS", "PACK", "MASK", "CAUSAL", "DROP", "HALVES", "GRAD_MASK"), row, strict=True)))
        for dtype, row in (
            ("float32", (64, 32, 4, 2, 0, 1, 0, 1)), ("float16", (128, 32, 8, 1, 0, 0, 1, 0)),
            ("bfloat16", (64, 64, 1, 0, 1, 0, 1, 0)),
        )
    ],
    "index": [
        (("int8", "int16", "int32"), {"I": "int", "C": "int", "PACK": 1, "SCALED": 0}),
        (("int64",), {"I": "long long", "C": "long long", "PACK": 2, "SCALED": 0}),
        (("float32", "float16", "bfloat16"), {"I": "long long", "C": "float", "PACK": 1, "SCALED": 1}),
        (("float64",), {"I": "int", "C": "double", "PACK": 1, "SCALED": 0}),
    ],
    "rnn": [(("float32", "float64"), {"ROWS": 2}), (("float32",), {"ROWS": 1})],
    "optim": [(FLOATING, {})],
    "rejection": [(("float32", "float64"), {}), (("float32",), {"CAPTURED": 1})],
    "random": [
        ((*FLOATING, "int64", "uint8", "bool"), {}),
        (("float32", "float16"), {"PACK": 4}), (("bfloat16",), {"PACK": 8}), (("float32",), {"CAPTURED": 1, "PACK": 4}),
    ],
}  # fmt: skip


def index_type(count: int) -> str:
    """Returns the type that counts this many elements, for divisions: 64-bit ones are slow on GPUs."""
    return "unsigned" if count < 2**31 else "unsigned long long"


def variants():
    """Yields every program as (family, dtype, settings)."""
    for family, rows in FAMILIES.items():
        for dtypes, settings in rows:
            yield from ((family, dtype, settings) for dtype in dtypes)


def _source(name: str) -> str:
    """Reads a file of `sources/`, with its includes inserted."""
    return re.sub(r'#include "(\S+)"', lambda found: _source(found[1]), (SOURCES / name).read_text())


@cache
def text(family: str, dtype: str = "float32", **settings) -> str:
    """Returns a family's complete source, as passed to the compiler; `settings` become #defines before it.

    >>> from tensorgrad.kernels.cuda.runtime import program
    >>> "__global__" in program.text("softmax")
    True
    """
    memory, sums = TYPES[dtype]
    heads = [f"#define T {memory}", f"#define A {sums}"]
    heads += [f"#define {name} {value}" for name, value in sorted(settings.items())]
    parts = [_source(name) for name in ("prelude.cuh", f"{family}.cu")]
    return "\n".join([parts[0], *heads, parts[1]])


@cache
def function(family: str, name: str, dtype: str = "float32", **settings):
    """Returns a function of a program, to be launched (launch.py). It is compiled on first launch."""
    from tensorgrad.kernels.cuda.runtime.launch import Function  # needs CuPy, which texts do not

    return Function(_module(family, dtype, tuple(sorted(settings.items()))).get_function(name))


@cache
def _module(family, dtype, settings):
    import cupy

    return cupy.RawModule(code=text(family, dtype, **dict(settings)), options=OPTIONS)


def main(arguments: list[str]) -> int:
    """Prints the program of a family, for a dtype. Returns 2 if there is no such family or dtype."""
    families, (family, dtype) = sorted(file.stem for file in SOURCES.glob("*.cu")), (*arguments, "", "")[:2]
    dtype = dtype or "float32"
    if len(arguments) > 2 or family not in families or dtype not in TYPES:
        print(f"expected one of {', '.join(families)}, and a dtype of {', '.join(TYPES)}", file=sys.stderr)
        return 2
    print(text(family, dtype))
    return 0


if __name__ == "__main__":
    from tensorgrad.system.command import run

    run(main)
