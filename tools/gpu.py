"""Runs all that can be run on a GPU: the tests on the device, then PyTorch's own databases.

    python tools/gpu.py [--device cuda|emulator] [--processes N] [--seconds S] [arguments of pytest ...]

In `build/gpu/`, or the folder named by `--out`: `tests.xml` (JUnit), `tests.log`, `conformance.log` and
`conformance-<device>.txt`. With pytest-xdist the tests share N processes (by default as many as there are processors).
After S seconds (by default 270) the tests are interrupted, and after as many again the databases' records.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ONE = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def run(name: str, command: list[str], device: str, seconds: float, log: Path) -> int:
    """Runs a command with its output in a log, and interrupts it when its time is up. Returns its exit status."""
    began = time.monotonic()
    environment = {**os.environ, **ONE, "DEVICE": device, "EVERY_DTYPE": "1", "PYTHONUNBUFFERED": "1"}
    with open(log, "wb") as file:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # so that what was found so far is written
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    wanted = ("FAILED ", "ERROR ")
    print(f"--- {name}: {time.monotonic() - began:.0f} s, exit status {process.returncode}, {log}")
    print("\n".join([*[line[:200] for line in lines if line.startswith(wanted)], *lines[-1:]]), flush=True)
    return process.returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "emulator"], default="cuda")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--seconds", type=int, default=270, metavar="S", help="for each of the two")
    parser.add_argument("--only", choices=["tests", "conformance"], help="one of the two")
    parser.add_argument("--samples", type=int, metavar="N", help="samples of a record and dtype (20)")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu", metavar="FOLDER")
    arguments, given = parser.parse_known_args()
    out = arguments.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    several = importlib.util.find_spec("xdist") is not None and arguments.processes > 1
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={out / 'tests.xml'}"]
    tests += ["-n", str(arguments.processes), "--max-worker-restart", "30"] if several else []
    tests += ["-m", "not conformance", *(given or ["tests"])]
    records = [sys.executable, "-m", "tests.conformance", "--processes", str(arguments.processes)]
    records += ["--seconds", str(max(arguments.seconds - 30, 10))]
    records += ["--samples", str(arguments.samples)] if arguments.samples else []
    status = 0
    for name, command in (("tests", tests), ("conformance", records)):
        if arguments.only in (None, name):
            status |= run(name, command, arguments.device, arguments.seconds, out / f"{name}.log")
    summary = ROOT / "build" / f"conformance-{arguments.device}.txt"
    if arguments.only != "tests" and summary.exists():
        shutil.copy(summary, out)
    return int(bool(status))


if __name__ == "__main__":
    sys.exit(main())
