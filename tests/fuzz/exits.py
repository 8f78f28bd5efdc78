"""Ten small programs that use compiled kernels and end in ten ways: the status must be the one they chose.

What machine code points to must live as long as the process: threads may run it, and Python frees its functions, after
the modules they come from are gone. A mistake shows as SIGSEGV at the end of some runs, after all was right.

    python -m tests.fuzz stress --only exits --cases 50      500 exits
    python -m tests.fuzz.exits NAME SEED                     one program
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
AT_ONCE = 4
KEPT: list[Any] = []  # what a program still has when it ends


class Program(NamedTuple):
    run: Callable[[random.Random], Any]
    status: int
    said: str = ""  # part of what it must print as its error


class Ours(Exception):
    """What a program does not catch."""


# --- what the programs do --------------------------------------------------------------------------------------------


def begin(rng: random.Random) -> None:
    """Compiles or loads kernels, and uses them, for small arrays and in several threads."""
    import tensorgrad as torch
    from tests.fuzz.children import use_small_kernels

    torch.set_num_threads(rng.choice((1, 2, 3)))
    use_small_kernels([step])


def step() -> Any:
    import tensorgrad as torch

    x = torch.ones(64, 96, requires_grad=True)
    w = torch.ones(96, 32, requires_grad=True)
    loss = ((x @ w).relu().exp().softmax(-1) + x[:, :32]).sum()
    loss.backward()
    assert x.grad is not None
    return loss


def forever() -> None:
    while True:
        step()


def pause(rng: random.Random) -> None:
    time.sleep(rng.choice((0.0, rng.uniform(0.0, 0.02))))


class AtTheEnd:
    """Computes when it is freed, which is after the modules have been cleared."""

    def __init__(self) -> None:
        self.work = step

    def __del__(self, work=step) -> None:
        with contextlib.suppress(BaseException):  # by then a name may be gone
            work()


# --- how they end ----------------------------------------------------------------------------------------------------


def returning(rng: random.Random) -> None:
    begin(rng)
    KEPT.extend(step() for _ in range(20))


def raising(rng: random.Random) -> None:
    begin(rng)
    KEPT.append(step())
    raise Ours("not caught")


def leaving_in_backward(rng: random.Random) -> None:
    import tensorgrad as torch

    begin(rng)
    x = torch.ones(64, 96, requires_grad=True)
    y = x.exp()
    y.register_hook(lambda gradient: sys.exit(7))
    KEPT.append(y)
    (y.relu() * 2).sum().backward()


def while_kernels_load(rng: random.Random) -> None:
    import tensorgrad as torch
    from tests.fuzz.children import ask_for_small_kernels

    ask_for_small_kernels()
    KEPT.append((torch.ones(64, 96, requires_grad=True) * 2).relu().exp().sum())
    pause(rng)


def beside_a_backward(rng: random.Random) -> None:
    begin(rng)
    threading.Thread(target=forever, daemon=True).start()
    pause(rng)
    sys.exit(3)


def beside_many_threads(rng: random.Random) -> None:
    begin(rng)
    for _ in range(4):
        threading.Thread(target=forever, daemon=True).start()
    pause(rng)


def with_workers(rng: random.Random) -> None:
    import tensorgrad as torch

    data = torch.utils.data.TensorDataset(torch.arange(64.0))
    loader = iter(torch.utils.data.DataLoader(data, 4, num_workers=2))
    next(loader)
    begin(rng)
    KEPT.append(loader)
    pause(rng)


def with_a_pool(rng: random.Random) -> None:
    begin(rng)
    pool = ThreadPoolExecutor(3)
    KEPT.extend((pool, [pool.submit(step) for _ in range(9)]))
    pause(rng)
    sys.exit(4)


def interrupted(rng: random.Random) -> None:
    begin(rng)
    main = threading.get_ident()
    threading.Timer(rng.uniform(0.0, 0.02), lambda: signal.pthread_kill(main, signal.SIGINT)).start()
    forever()


def computing_at_the_end(rng: random.Random) -> None:
    import atexit

    begin(rng)
    atexit.register(step)
    cycle: list[Any] = [AtTheEnd(), step()]
    cycle.append(cycle)
    KEPT.extend((AtTheEnd(), cycle))
    setattr(sys.modules["tensorgrad"], "_kept_by_a_program", AtTheEnd())  # noqa: B010 (as a program might)
    sys.exit(5)


PROGRAMS = {
    "returning": Program(returning, 0),
    "raising": Program(raising, 1, "Ours: not caught"),
    "leaving in backward": Program(leaving_in_backward, 7),
    "while kernels load": Program(while_kernels_load, 0),
    "beside a backward": Program(beside_a_backward, 3),
    "beside many threads": Program(beside_many_threads, 0),
    "with workers": Program(with_workers, 0),
    "with a pool": Program(with_a_pool, 4),
    "interrupted": Program(interrupted, -signal.SIGINT, "KeyboardInterrupt"),
    "computing at the end": Program(computing_at_the_end, 5),
}


# --- running them ----------------------------------------------------------------------------------------------------


# What is freed is left as it is, filled with 0xDD by Python's debug allocator, or with ones by glibc's. (0xDD alone
# does not show all: read as the flags of a function, it says that there is nothing else to free.)
ALLOCATORS: tuple[dict[str, str], ...] = (
    {}, {"PYTHONMALLOC": "debug"}, {"PYTHONMALLOC": "malloc", "MALLOC_PERTURB_": "255"},
)  # fmt: skip


def environment(name: str, seed: int) -> dict[str, str]:
    allocator = ALLOCATORS[(seed + list(PROGRAMS).index(name)) % len(ALLOCATORS)]
    return os.environ | {"PYTHONFAULTHANDLER": "1", "PYTHONDONTWRITEBYTECODE": "1"} | allocator


def ended(name: str, seed: int, patience: float) -> str:
    """Runs a program to its end. Returns what was wrong, or nothing."""
    program = PROGRAMS[name]
    command = [sys.executable, "-m", "tests.fuzz.exits", name, str(seed)]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment(name, seed), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        _, error = process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)  # which prints where its threads are
        _, error = process.communicate()
        return f"{name}: not ended after {patience:.0f} s\n{error[-3000:]}"
    if process.returncode != program.status or program.said not in error or "Fatal Python error" in error:
        return f"{name}: status {process.returncode}, expected {program.status}\n{error[-3000:]}"
    return ""


def all_ended(seed: int, patience: float = 180.0) -> list[str]:
    """Runs each program once, several at a time. Returns what was wrong."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(filter(None, pool.map(lambda name: ended(name, seed, patience), PROGRAMS)))


def main(name: str, seed: str) -> None:
    PROGRAMS[name].run(random.Random(f"{name} {seed}"))


if __name__ == "__main__":
    main(*sys.argv[1:])
