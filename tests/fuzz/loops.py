"""The table of loops: what each runs from a seed, and what it proves if none of its cases fails.

A loop's function runs one case and returns what to count it as (a name, or several with their counts). It raises an
error if something is wrong, and its seed repeats the case. Loops that kill, signal or fork use a separate process
(children.py).
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

ROOT = Path(__file__).parents[2]
PATIENCE = 180  # seconds after which a process must have exited


class Loop(NamedTuple):
    """A row of the table."""

    run: Callable[[int], str | dict[str, int]]
    proves: str
    share: float = 1.0  # its share of the time, relative to others
    lacks: Callable[[], str] = lambda: ""  # why it cannot run here
    details: Callable[[int], str] = lambda seed: ""  # more about a case that failed


class Failed(Exception):
    """Raised if a child process reports a failure, or does not exit."""


# --- kernels ---------------------------------------------------------------------------------------------------------


@cache
def names(device: str) -> list[str]:
    from tests.fuzz import kernels

    kernels.prepare(device)
    return [name for name in kernels.FAMILIES if kernels.fits(name, device)]


def families(device: str, only: tuple[str, ...]) -> list[str]:
    """Returns the families of kernels to try: all that the device has, or those in `only`.

    Raises: SystemExit for a name that is unknown, or of kernels that the device does not have.
    """
    from tests.fuzz.families import FAMILIES

    if unknown := set(only) - set(FAMILIES):
        raise SystemExit(f"no such family: {', '.join(sorted(unknown))}; there are {', '.join(FAMILIES)}")
    there = names(device)
    if absent := set(only) - set(there):
        needs = "needs a GPU: add --device cuda" if device == "cpu" else "is for processors only"
        raise SystemExit(f"{', '.join(sorted(absent))}: {needs}")
    return [name for name in there if not only or name in only]


def kernel_case(device: str, only: tuple[str, ...], seed: int) -> str:
    """Runs the case for a seed."""
    from tests.fuzz import kernels

    chosen = families(device, only)
    name = chosen[seed % len(chosen)]
    return f"{name}{' (refused)' if kernels.check(name, seed, device) == 'refused' else ''}"


def kernel_details(device: str, only: tuple[str, ...], seed: int) -> str:
    """Returns a program that reproduces a small case with the same failure."""
    from tests.fuzz import kernels

    chosen = families(device, only)
    name = chosen[seed % len(chosen)]
    case, wrong = kernels.shrink(name, seed, device)
    return f"{wrong}\n{kernels.snippet(name, case, device)}"


def no_kernels() -> str:
    from tests.support.kernels import absent

    return absent()


def beside_torch(method: str, seed: int) -> dict[str, int]:
    """Runs a case of programs.py or expressions.py."""
    return importlib.import_module(f"tests.fuzz.{method}").check(seed)


def no_torch() -> str:
    return "" if find_spec("torch") else "it compares with PyTorch, which is not installed"


def no_gpu() -> str:
    if os.environ.get("DEVICE") == "cuda":
        return "" if importlib.util.find_spec("cupy") else "cupy is absent"
    return "" if shutil.which("g++") else "the emulator of a GPU needs g++"


# --- processes -------------------------------------------------------------------------------------------------------


def child(task: str, *arguments: object, **options) -> subprocess.Popen:
    """Starts a process that runs a task of children.py."""
    command = [sys.executable, "-m", "tests.fuzz.children", task, *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def told(task: str, seed: int) -> dict[str, int]:
    """Returns the counts of a child. Raises: Failed with its last output."""
    process = child(task, seed)
    try:
        out, error = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        out, error = process.communicate()
        raise Failed(f"{task}: not done after {PATIENCE} seconds\n{error[-2000:]}") from None
    if process.returncode:
        raise Failed(f"{task}: status {process.returncode}\n{error[-4000:]}")
    return json.loads(out.splitlines()[-1])


def killed_saver(seed: int) -> dict[str, int]:
    """Kills a process with SIGKILL while it saves repeatedly; the file must be one of those that it saved."""
    import tensorgrad as torch

    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pt"
        process = child("save", path, seed)
        assert process.stdout is not None
        process.stdout.readline()  # waits until the first file is complete
        time.sleep(rng.uniform(0.0, 0.3))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        found = torch.load(path)
        turn = int(found["turn"])
        if any(not bool((part == turn).all()) for part in found["parts"]):
            raise Failed(f"the file of turn {turn} holds parts of another")
        left = len(os.listdir(folder)) - 1
        torch.save(turn, path)
        if os.listdir(folder) != [path.name]:
            raise Failed(f"the next save leaves {os.listdir(folder)}")
    return {"kills": 1, "in the middle of a save": left}


def killed_ranks(seed: int) -> dict[str, int]:
    """Kills random ranks of a job 50 times; the agent starts them again, and the weights are those without kills."""
    from tests.distributed.jobs import train_with_kills

    done = train_with_kills(seed, kills=50, size=2 + seed % 2)
    tqdm.write(f"ranks, seed {seed}, {2 + seed % 2} ranks: {done}")
    return {"kills": done.number}


def exits(seed: int) -> dict[str, int]:
    """Ends ten programs in ten ways."""
    from tests.fuzz.exits import PROGRAMS, all_ended

    wrong = all_ended(seed)
    if wrong:
        raise Failed("\n".join(wrong))
    return {"exits": len(PROGRAMS)}


# --- files -----------------------------------------------------------------------------------------------------------


def damaged_file(seed: int) -> str:
    """Loads a damaged or malicious checkpoint."""
    from tests.fuzz import loading

    return loading.stressed(seed)


def damaged_image(seed: int) -> str:
    """Damages the file of compiled kernels: it must be refused before anything of it is put into memory."""
    from tensorgrad.kernels.compiled.runtime import library

    whole = Path(library.image().file).read_bytes()
    rng = random.Random(seed)
    data, where = bytearray(whole), rng.choice((rng.randrange(len(whole)), rng.randrange(library.image().start)))
    way = rng.choice(("bit", "cut", "zeros", "more", "moved"))
    if way == "bit":
        data[where] ^= 1 << rng.randrange(8)
    elif way == "cut":
        del data[where:]
    elif way == "zeros":
        data[where : where + 4096] = bytes(len(data[where : where + 4096]))
    elif way == "more":
        data[where:where] = rng.randbytes(rng.randint(1, 99))
    else:
        data = data[where:] + data[:where]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "image"
        file.write_bytes(data)
        try:
            found = library.Image(str(file))
        except library.Unusable:
            return f"{way}: refused"
        refused = 0
        for family, told in found.families.items():
            try:
                if found.blob(family) != whole[found.start + told["at"] :][: told["length"]]:
                    raise Failed(f"damaged code of {family} ({way}, at {where} of {len(whole)} bytes) is believed")
            except library.Unusable:
                refused += 1
    return f"{way}: a family refused" if refused else f"{way}: between families"


LOOPS: dict[str, Loop] = {
    "programs": Loop(
        partial(beside_torch, "programs"), "random programs of views, writes and gradients leave PyTorch's tensors "
        "after each step", 3, no_torch,
    ),
    "expressions": Loop(
        partial(beside_torch, "expressions"), "functions give PyTorch's results in every mode, layout and dtype",
        3, no_torch,
    ),
    "kernels": Loop(
        partial(kernel_case, "cpu", ()), "compiled kernels give NumPy's numbers, for any shape, layout and threads", 4,
        no_kernels, partial(kernel_details, "cpu", ()),
    ),
    "cuda": Loop(
        partial(kernel_case, "cuda", ()), "CUDA kernels, on the emulated GPU, give NumPy's numbers", 3,
        no_gpu, partial(kernel_details, "cuda", ()),
    ),
    "signals": Loop(
        partial(told, "signals"), "exceptions of signal handlers keep their type, later results are right, no thread "
        "of the pool is lost", 2, lambda: "" if hasattr(signal, "setitimer") else "this system has no interval timers",
    ),
    "kills": Loop(
        killed_saver, "a process that is killed while it saves leaves a whole file, and nothing beside it after the "
        "next save", 1,
        lambda: "" if hasattr(signal, "SIGKILL") else "this system has no SIGKILL",
    ),
    "ranks": Loop(
        killed_ranks, "training goes on exactly where it was when ranks of a job are killed", 2,
        lambda: "" if find_spec("mpi4py") and hasattr(signal, "SIGKILL") else "it needs mpi4py and SIGKILL",
    ),
    "threads": Loop(
        partial(told, "threads"), "models trained in eight threads at once are those trained one by one, to the bit"
    ),
    "forks": Loop(
        partial(told, "forks"), "a child forked while other threads compute, draw, save, … does the same", 1,
        lambda: "" if hasattr(os, "fork") else "this system cannot fork",
    ),
    "exits": Loop(
        exits, "programs that use compiled kernels end with the status they chose, whatever still runs", 2,
        lambda: "" if os.name == "posix" else "its programs end by signals",
    ),
    "files": Loop(
        damaged_file, "a checkpoint that is damaged or made to do harm is loaded or refused, in bounded time and memory"
    ),
    "images": Loop(damaged_image, "a damaged file of compiled kernels is not executed", 1, no_kernels),
}  # fmt: skip
