"""Measures how long `import` takes, in fresh processes that alternate:  python -m benchmarks.startup [--write]"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

from benchmarks import report
from benchmarks.processes import end_in_order

RUNS = 15
PROGRAMS = {"numpy": "import numpy", "tensorgrad": "import tensorgrad", "torch": "import torch"}


def seconds(program: str, bytecode: str) -> float:
    """Returns the time of a fresh interpreter that runs `program` and caches bytecode in the folder `bytecode`.

    Bytecode is cached as in any installation, regardless of this process's settings, but not in the checkout.
    """
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
    return time.perf_counter() - start


def main() -> None:
    """Prints medians, quartiles, and the time tensorgrad adds to NumPy's (median of the paired differences)."""
    end_in_order()
    times: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as bytecode:
        for program in PROGRAMS.values():
            seconds(program, bytecode)
        for _ in range(RUNS):
            for name, program in PROGRAMS.items():
                times[name].append(seconds(program, bytecode))
    lines = ["| process | median s | quartiles |", "|---|---:|---:|"]
    for name, values in times.items():
        ordered = sorted(values)
        spread = f"{ordered[RUNS // 4]:.3f}–{ordered[3 * RUNS // 4]:.3f}"
        lines.append(f"| `import {name}` | {statistics.median(values):.3f} | {spread} |")
    added = statistics.median(a - b for a, b in zip(times["tensorgrad"], times["numpy"], strict=True))
    lines.append(f"\ntensorgrad adds {added:.3f} s to `import numpy` (median of {RUNS} pairs; target: under 0.1 s).")
    text = "\n".join(lines)
    print(text)
    if "--write" in sys.argv:
        report.store("startup", text)


if __name__ == "__main__":
    main()
