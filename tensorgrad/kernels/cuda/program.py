"""From a file of CUDA C to a function that can be launched.

A program is `sources/prelude.cuh` and one file of `sources/`, compiled once for each pair of types and each setting of
what it leaves open. Two names stand for types in all of them: `T`, what memory holds, and `A`, what sums are kept in.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import numpy as np

SOURCES = Path(__file__).with_name("sources")
OPTIONS = ("-std=c++17",)

# NumPy's name of a dtype -> (T, A) in CUDA C.
TYPES = {
    "float32": ("float", "float"), "float64": ("double", "double"),
    "float16": ("half", "float"), "bfloat16": ("bfloat16", "float"),
    "int64": ("long long", "long long"), "int32": ("int", "int"), "int16": ("short", "int"),
    "int8": ("signed char", "int"), "uint8": ("unsigned char", "int"), "bool": ("bool", "int"),
}  # fmt: skip
# What a kernel is given as a number of type A.
NUMBER = {"float32": np.float32, "float64": np.float64, "float16": np.float32, "bfloat16": np.float32}


@cache
def text(family: str, dtype: str = "float32", **settings) -> str:
    """The whole program of a family, as the compiler gets it; `settings` become #defines before it.

    >>> from tensorgrad.kernels.cuda import program
    >>> "__global__" in program.text("softmax")
    True
    """
    memory, sums = TYPES[dtype]
    heads = [f"#define T {memory}", f"#define A {sums}"]
    heads += [f"#define {name} {value}" for name, value in sorted(settings.items())]
    parts = [(SOURCES / name).read_text() for name in ("prelude.cuh", f"{family}.cu")]
    return "\n".join([parts[0], *heads, parts[1]])


@cache
def function(family: str, name: str, dtype: str = "float32", **settings):
    """A function of a program, ready for `function(grid, block, arguments, shared_mem=bytes)`.

    It is compiled when first launched; CuPy keeps what comes out on disk.
    """
    return _module(family, dtype, tuple(sorted(settings.items()))).get_function(name)


@cache
def _module(family, dtype, settings):
    import cupy

    return cupy.RawModule(code=text(family, dtype, **dict(settings)), options=OPTIONS)


if __name__ == "__main__":
    print(text(*sys.argv[1:]))
