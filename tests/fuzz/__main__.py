"""The command: gives each loop its share of the time, shows the progress, and summarizes what was tried.

    python -m tests.fuzz kernels [--device cpu|cuda] [--family NAME,…]  one loop: kernels compared with NumPy's
    python -m tests.fuzz stress [--only NAME,…]                         all loops, or some
    options: --seconds N   --seed N   --cases N (instead of the time)

Without --seed, every run has different cases; the first seed is printed, and case i has that seed plus i.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import time
from collections import Counter
from functools import partial

from tqdm import tqdm

from tests.fuzz import loops
from tests.fuzz.loops import LOOPS, Loop

MOST_FAILURES = 5  # failures after which a loop is not run again


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("kernels", "stress"))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--cases", type=int, default=0, help="so many cases of each loop, whatever time they take")
    parser.add_argument("--seed", type=int, default=None, help="of the first case")
    parser.add_argument("--only", default="", help="loops, separated by commas")
    parser.add_argument("--family", default="", help="of kernels, separated by commas")
    emulated = os.environ.get("DEVICE") in ("cuda", "emulator")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if emulated else "cpu")
    return parser.parse_args()


def only(given: argparse.Namespace) -> tuple[str, ...]:
    """Returns the requested families of kernels; empty for all."""
    return tuple(filter(None, given.family.split(",")))


def chosen(given: argparse.Namespace) -> dict[str, Loop]:
    """Returns the requested loops. Raises: SystemExit for an unknown name."""
    if given.what == "kernels":
        name = "kernels" if given.device == "cpu" else "cuda"
        return {name: LOOPS[name]._replace(
            run=partial(loops.kernel_case, given.device, only(given)),
            details=partial(loops.kernel_details, given.device, only(given)),
        )}  # fmt: skip
    names = [name for name in given.only.split(",") if name] or list(LOOPS)
    if unknown := set(names) - set(LOOPS):
        raise SystemExit(f"no such loop: {', '.join(sorted(unknown))}; there are {', '.join(LOOPS)}")
    return {name: LOOPS[name] for name in names}


def repeat(given: argparse.Namespace, name: str, seed: int) -> str:
    """Returns the command that repeats one case."""
    before = "DEVICE=emulator " if name == "cuda" and os.environ.get("DEVICE") != "cuda" else ""
    if given.what == "kernels":
        family = f" --family {given.family}" if given.family else ""
        return f"{before}python -m tests.fuzz kernels --device {given.device}{family} --seed {seed} --cases 1"
    return f"{before}python -m tests.fuzz stress --only {name} --seed {seed} --cases 1"


def run(name: str, loop: Loop, seed: int, seconds: float, cases: int, given, bar: tqdm) -> tuple[Counter, int]:
    """Runs a loop for its time. Returns the counts, and the number of failed cases."""
    counted: Counter[str] = Counter()
    failures, begin, done = 0, time.monotonic(), 0
    bar.set_description(name)
    while (done < cases if cases else time.monotonic() - begin < seconds) and failures < MOST_FAILURES:
        start = time.monotonic()
        try:
            made = loop.run(seed + done)
            counted.update({made: 1} if isinstance(made, str) else made)
        except Exception as error:
            failures += 1
            bar.write(f"\n{name}, seed {seed + done}: {type(error).__name__}: {error}", file=sys.stderr)
            bar.write(f"again: {repeat(given, name, seed + done)}", file=sys.stderr)
            bar.write(loop.details(seed + done), file=sys.stderr)
        done += 1
        bar.update(1 if cases else min(time.monotonic() - start, max(0.0, (bar.total or 0) - bar.n)))
    took = time.monotonic() - begin
    bar.write(f"{name}: {done} cases in {took:.0f} s ({done / max(took, 1e-9):.1f} a second), {failures} failed")
    return counted, failures


def main() -> int:
    given = arguments()
    wanted = chosen(given)
    seed = secrets.randbelow(1 << 30) if given.seed is None else given.seed
    print(f"python -m tests.fuzz {given.what}: seed {seed}", flush=True)
    for name in [name for name, loop in wanted.items() if loop.lacks()]:
        print(f"{name}: left out, {wanted.pop(name).lacks()}")
    whole, results, failures = sum(loop.share for loop in wanted.values()) or 1, {}, 0
    total = given.cases * len(wanted) if given.cases else given.seconds
    form = "{desc:<9} {percentage:3.0f}%|{bar}| {elapsed}"
    with tqdm(total=total, bar_format=form, disable=None if sys.stderr.isatty() else True) as bar:
        for name, loop in wanted.items():
            if name in ("kernels", "cuda"):
                loops.families("cpu" if name == "kernels" else "cuda", only(given))  # its preparation
            seconds = given.seconds * loop.share / whole
            results[name], failed = run(name, loop, seed, seconds, given.cases, given, bar)
            failures += failed
    print()
    for name, counted in results.items():
        print(f"{name}: {'proves that' if not failures else 'is to prove that'} {wanted[name].proves}")
        print("    " + (", ".join(f"{key} {count}" for key, count in sorted(counted.items())) or "nothing"))
    print(f"seed {seed}: {'all cases agree' if not failures else f'{failures} cases FAILED'}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
