"""The command that compiles the kernels: see `tools/kernels/__init__.py`."""

from __future__ import annotations

import argparse
import importlib.util
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
# The package is imported without its kernels; what Numba's variables say is not meant for them.
_ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "DEBUG"))} | {
    "TENSORGRAD_FAST": "0", "OMP_NUM_THREADS": "1", "NUMBA_DISABLE_INTEL_SVML": "1", "PYTHONHASHSEED": "0",
    "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
}  # fmt: skip


def work(level: str, folder: Path, wanted: list[str]) -> None:
    """What each process does: compiles families that no other has taken, and leaves them in the folder."""
    import gc

    gc.set_threshold(200_000)  # the compiler makes very many objects that are not garbage
    from tools.kernels import compile

    made = compile.compiled(level, compile.claims(folder, wanted))
    (folder / f"{os.getpid()}.made").write_bytes(pickle.dumps(made))


def run_workers(level: str, wanted: list[str], jobs: int, counter: Progress) -> tuple[dict, dict[str, str]]:
    """Compiles families in processes. Returns what `compile.compiled` does, of all of them together."""
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-m", "tools.kernels", "--work", level, name, ",".join(wanted)]
        workers = [
            subprocess.Popen(command, cwd=ROOT, env=_ENVIRONMENT, stdout=subprocess.PIPE, text=True)
            for _ in range(min(jobs, max(len(wanted), 1)))
        ]
        threads = [threading.Thread(target=counter.follow, args=(level, worker)) for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if any([worker.wait() for worker in workers]):
            raise SystemExit(f"kernels for {level} could not be compiled")
        linked: dict = {}
        owners: dict[str, str] = {}
        for file in Path(name).glob("*.made"):
            some, owners = pickle.loads(file.read_bytes())
            linked |= some
        return linked, owners


class Progress:
    """Says which families are being compiled: on a terminal in one line that changes, else one line for each."""

    def __init__(self, total: int):
        self.total, self.done, self.start = total, 0, time.monotonic()

    def follow(self, level: str, worker: subprocess.Popen) -> None:
        """Reads what a process says."""
        assert worker.stdout is not None
        for line in worker.stdout:
            self.done += 1
            on_terminal = sys.stdout.isatty()
            text = f"{level}: {line.strip()} ({self.done} of {self.total} families)"
            print(f"\r{text:<78}" if on_terminal else text, end="" if on_terminal else "\n", flush=True)


def build(level: str, folder: Path, jobs: int) -> None:
    """Brings the file of a level up to date."""
    from tools.kernels import compile

    file = folder / f"{level}.kernels"
    made, begun = compile.kept(file, level), time.monotonic()
    wanted = [family for family in compile.families() if family not in made]
    if not wanted and file.exists():
        print(f"{level}: up to date")
        return
    while wanted:
        linked, owners = run_workers(level, wanted, jobs, Progress(len(wanted)))
        for name, one in linked.items():
            made[name] = compile.packed(*one)
        wanted = sorted(compile.lacking(made, owners))
    compile.write(file, level, made)
    size = file.stat().st_size / 2**20
    line = f"{level}: {len(made)} families, {size:.2f} MiB, {time.monotonic() - begun:.0f} s"
    print(f"\r{line:<78}" if sys.stdout.isatty() else line, flush=True)


def main(given: list[str]) -> int:
    """Compiles what is asked for. Returns the exit status: 1 if there is no compiler, or a level that is not known."""
    if given[:1] == ["--work"]:
        work(given[1], Path(given[2]), given[3].split(","))
        return 0
    parser = argparse.ArgumentParser(prog="python -m tools.kernels", description="Compiles the kernels.")
    parser.add_argument("--level", action="append", help="a level of processors, as x86-64-v3; several times")
    parser.add_argument("--all", action="store_true", help="all levels")
    parser.add_argument("--into", type=Path, help="the folder for the files (that of the package)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many processes")
    options = parser.parse_args(given)
    if importlib.util.find_spec("numba") is None:
        print("kernels need Numba to be compiled (pip install numba); without them NumPy computes everything")
        return 1
    os.environ["TENSORGRAD_FAST"] = "0"
    from tensorgrad.kernels.compiled.runtime import target
    from tools.kernels import internals

    if internals.untried():
        print(f"kernels cannot be compiled: {internals.untried()}")
        return 1
    levels = list(target.LEVELS) if options.all else options.level or target.here()[:1]
    for level in levels:
        if level not in target.LEVELS:
            print(f"{level} is none of {', '.join(target.LEVELS)}")
            return 1
        build(level, options.into or Path(target.FOLDER), options.jobs)
    if not levels:
        print("there are no kernels for this processor; NumPy computes everything")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
