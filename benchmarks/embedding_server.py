"""Measures the server of sentence embeddings, with tensorgrad and with torch: from its start to its first answer.

    python -m benchmarks.embedding_server                    the untrained model of the example
    python -m benchmarks.embedding_server --model FOLDER     another

Both run `examples/libraries/embedding_server.py` in the environment of sentence-transformers that `tests.ecosystem`
makes, in turns: the same packages, with tensorgrad or torch answering `import torch`. The first turn reads the files
from disk and is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

from benchmarks.processes import ROOT, end_in_order
from tests.ecosystem.environments import Environment, environment, real_torch
from tests.ecosystem.libraries import BY_NAME

EXAMPLE = ROOT / "examples" / "libraries" / "embedding_server.py"


def first_answer(python: Environment, torch: Path | None, model: list[str], folder: str) -> dict[str, float]:
    """Starts the server, asks it once, and stops it. Returns seconds, processor seconds, and MB at most."""
    # Bytecode is kept, as in any installation, but in this folder, like the model that the server makes.
    variables = {k: v for k, v in python.variables(torch).items() if k != "PYTHONDONTWRITEBYTECODE"}
    variables["PYTHONPYCACHEPREFIX"] = os.path.join(folder, "bytecode")
    variables["TMPDIR"] = folder
    command = [str(python.python), str(EXAMPLE), "--port", "0", *model]
    start = time.perf_counter()
    process = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    address = process.stdout.readline().split()[-1]  # type: ignore[union-attr]
    text = json.dumps(["a cat on a mat"]).encode()
    with urllib.request.urlopen(urllib.request.Request(address, text), timeout=60) as answer:
        assert len(json.load(answer)) == 1
    passed = time.perf_counter() - start
    process.kill()
    _, _, used = os.wait4(process.pid, 0)
    process.returncode = -9
    return {"seconds": passed, "processor": used.ru_utime + used.ru_stime, "MB": used.ru_maxrss / 1024}


def megabytes(folder: Path) -> float:
    """Returns the size of a folder's files without bytecode and pip."""
    files = (file for file in folder.rglob("*") if file.is_file() and not file.is_symlink())
    kept = (file for file in files if file.suffix != ".pyc" and "pip" not in file.relative_to(folder).parts[0])
    return sum(file.stat().st_size for file in kept) / 1e6


def main() -> None:
    """Measures and prints the figures."""
    end_in_order()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="the folder of a model (default: the example makes a small one)")
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    python, torch = environment(BY_NAME["sentence-transformers"]), real_torch()
    model = [arguments.model] if arguments.model else []
    found: dict[str, list[dict[str, float]]] = {"tensorgrad": [], "torch": []}
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        for _ in range(arguments.runs + 1):
            for name, library in (("tensorgrad", None), ("torch", torch)):
                found[name].append(first_answer(python, library, model, folder))
    for figure in ("seconds", "processor", "MB"):
        ours, theirs = ([run[figure] for run in found[name][1:]] for name in found)
        ratios = statistics.quantiles([a / b for a, b in zip(ours, theirs, strict=True)], n=4)
        low, middle, high = (f"{ratio:.2f}" for ratio in ratios)
        print(
            f"{figure}: tensorgrad {statistics.median(ours):.4g}, torch {statistics.median(theirs):.4g}, "
            f"ratio {middle} ({low}–{high})"
        )
    packages = next(Path(python.python).parent.parent.glob("lib/python*/site-packages"))
    shared, own = megabytes(packages), megabytes(ROOT / "tensorgrad")
    print(f"packages, MB: both {shared:.0f}, tensorgrad {own:.0f} more, torch {megabytes(torch):.0f} more")


if __name__ == "__main__":
    main()
