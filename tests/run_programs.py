"""Runs every program of tests/programs with the `torch` that there is, and prints what became of each as JSON lines.

    python tests/run_programs.py 20                        under PyTorch
    python -m tensorgrad.run tests/run_programs.py 20      under tensorgrad

A line is {"name", "losses", "seconds"} or {"name", "error"}.
"""

import importlib.util
import json
import sys
import time
import traceback
import warnings
from pathlib import Path

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))


def load(path):
    """The program as a module, registered under its name, as pickling and dataclasses want it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def outcome(path, steps):
    """What to report of one program."""
    start = time.perf_counter()
    try:
        losses = load(path).main(steps)
    except Exception:
        return {"name": path.stem, "error": traceback.format_exc()}
    return {"name": path.stem, "losses": losses, "seconds": time.perf_counter() - start}


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for program in PROGRAMS:
        print(json.dumps(outcome(program, int(sys.argv[1]))), flush=True)
