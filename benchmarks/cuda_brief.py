"""The rows of `benchmarks.cuda`, both libraries in one process, one after the other: in minutes.

python -m benchmarks.cuda_brief                            training steps, memory-bound kernels, modules
python -m benchmarks.cuda_brief training_large LSTM        rows whose theme or name contains one of these

Each library runs a row three times for 50 milliseconds by the GPU's clock; the middle of the three counts, and the
ratio of the medians. Results are not compared (`benchmarks.cuda --rehearse` does that).
"""

from __future__ import annotations

import sys
import time
from statistics import median
from typing import Any

from benchmarks.cuda import HEAD, line, tables
from benchmarks.gpu_worker import allow_tf32, seconds_per_step
from benchmarks.rows import CUDA_THEMES, Place, Row, all_rows, matching

SECONDS, ROUNDS, WARM = 0.05, 3, 3


def times(library: Any, step: Any) -> list[float]:
    """Returns the seconds per step of each round, between two events with no wait in between."""
    cuda = library.cuda
    for _ in range(WARM):
        step()
    cuda.synchronize()
    start = time.perf_counter()
    step()
    cuda.synchronize()
    count = max(3, min(200, int(SECONDS / (time.perf_counter() - start))))
    return [seconds_per_step(cuda, step, count) for _ in range(ROUNDS)]


def measured(row: Row, libraries: dict[str, Any]) -> dict[str, Any]:
    """Returns the figures of a row, as `benchmarks.cuda` formats them."""
    found: dict[str, Any] = {"theme": row.theme, "name": row.name, "seconds": {}, "ratios": {}, "wrong": {}}
    rounds: dict[str, list[float]] = {}
    for name, library in libraries.items():
        try:
            rounds[name] = times(library, row.build(library, **row.sizes)[0])
        except Exception as error:
            found["wrong"][name] = f"{type(error).__name__}: {error!s:.200}"
            continue
        found["seconds"][name] = median(rounds[name])
        for each in libraries.values():
            each.cuda.empty_cache()
    if len(rounds) == len(libraries):
        ours, torch = rounds["ours"], rounds["torch"]
        found["ratios"]["ours/torch"] = {
            "median": median(ours) / median(torch), "low": min(ours) / max(torch), "high": max(ours) / min(torch)
        }  # fmt: skip
    if row.moved is not None:
        found["bandwidth"] = {name: row.moved(**row.sizes) / seconds for name, seconds in found["seconds"].items()}
    return found


def main() -> None:
    """Measures the rows, and prints each as it arrives, and the tables."""
    import torch

    import tensorgrad

    libraries = {"ours": tensorgrad, "torch": torch}
    Place.device = "cuda"
    for library in libraries.values():
        allow_tf32(library, False)
    print(f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}\n\n{HEAD}", flush=True)
    found = []
    for row in matching(all_rows(CUDA_THEMES), sys.argv[1:] or ["training_large", "bandwidth", "modules"]):
        found.append(measured(row, libraries))
        print(line(found[-1]), flush=True)
    print(f"\n{tables(found)}")


if __name__ == "__main__":
    main()
