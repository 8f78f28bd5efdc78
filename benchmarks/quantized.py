"""Products with weights of 8 and 4 bits, beside float32 and PyTorch: `python -m benchmarks.quantized`.

The functions of a row alternate in one process, on the threads that are there; the table has the median of each, and
its ratio to our float32.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import time
from collections.abc import Callable

import tensorgrad
from tensorgrad.ops.nn.small_weights import int4_linear, int8_linear, packed_int4

SHAPES = [(1, 2048, 2048), (1, 4096, 4096), (1, 11008, 4096), (512, 2048, 2048)]  # rows, columns, depth


def candidates(rows: int, columns: int, depth: int, group: int) -> dict[str, Callable[[], object]]:
    """The functions that are compared."""
    torch = tensorgrad
    x, weight = torch.randn(rows, depth), torch.randint(-127, 128, (columns, depth), dtype=torch.int8)
    scales, numbers = torch.rand(columns), weight.float()
    packed = packed_int4(torch.randint(0, 16, (columns, depth)))
    of_groups = torch.rand(columns, depth // group)
    found: dict[str, Callable[[], object]] = {
        "float32": lambda: torch.nn.functional.linear(x, numbers),
        "int8": lambda: int8_linear(x, weight, scales),
        f"int4, groups of {group}": lambda: int4_linear(x, packed, of_groups),
        f"int4, groups of {group}, zeros": lambda: int4_linear(x, packed, of_groups, of_groups),
    }
    try:
        other = importlib.import_module("torch")
    except ImportError:
        return found
    theirs = [other.from_numpy(t.numpy()) for t in (x, numbers, weight, scales)]
    return found | {
        "torch float32": lambda: other.nn.functional.linear(theirs[0], theirs[1]),
        "torch _weight_int8pack_mm": lambda: other._weight_int8pack_mm(theirs[0], theirs[2], theirs[3]),
    }


def main() -> None:
    """Prints a table for each shape."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--group", type=int, default=128)
    given = parser.parse_args()
    for rows, columns, depth in SHAPES:
        functions = candidates(rows, columns, depth, given.group)
        times: dict[str, list[float]] = {name: [] for name in functions}
        for _ in range(given.rounds):
            for name, function in functions.items():
                begun = time.perf_counter()
                function()
                times[name].append(time.perf_counter() - begun)
        base = statistics.median(times["float32"])
        print(f"{rows} x {depth} @ {depth} x {columns}")
        for name, found in times.items():
            middle = statistics.median(found)
            print(f"  {name:28} {middle * 1e6:9.0f} µs   {base / middle:5.2f} x")


if __name__ == "__main__":
    main()
