"""Starts jobs by `tensorgrad.distributed.run`, kills parts of them, and looks at the process table."""

import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tensorgrad.system.watchdog import table
from tests.distributed.launch import HANG, HERE, end, finished, start

RUN = ["-m", "tensorgrad.distributed.run"]


def launch(*arguments, cwd=None, **variables) -> subprocess.Popen:
    """An agent, in a session of its own."""
    return start([*RUN, *arguments], cwd, **variables)


def job(*arguments, **variables):
    """Runs a job to its end."""
    return finished(launch(*arguments, **variables))


def eventually(condition, timeout=HANG):
    """Waits for a condition, and returns its value."""
    end = time.monotonic() + timeout
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return found


def living(pids):
    """Those of these processes that are in the table."""
    return sorted(set(pids) & set(table()))


def ranks_of(folder: Path) -> dict[int, tuple[int, int]]:
    """The processes that the program resuming.py has noted in its folder: the restart and the rank of each."""
    noted = [[int(part) for part in path.name.split(".")[:3]] for path in folder.glob("*.pid")]
    return {pid: (restart, rank) for restart, rank, pid in noted}


class Kills(NamedTuple):
    """How often ranks were killed, and the seconds from a kill to the next group's first step."""

    number: int
    seconds: list[float]

    def __str__(self) -> str:
        median, longest = statistics.median(self.seconds), max(self.seconds)
        return (
            f"{self.number} kills, a median of {median:.2f} and at most {longest:.2f} s to the next group's first step"
        )


def train_with_kills(seed: int, kills: int, size: int = 2, pause: float = 0.03) -> Kills:
    """Trains while random ranks are killed at random moments: while they start, connect, compute, and save.

    The weights must be those of a run without kills, and no process may be left.
    """
    import tensorgrad as torch

    rng = random.Random(seed)
    steps = 40 * kills  # more than there is time for: a group is killed within 0.8 seconds of its first step
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        undisturbed, disturbed = Path(first), Path(second)
        options = ("--standalone", "--nproc-per-node", size, "--max-restarts", kills, HERE / "resuming.py")
        code, _, errors = job(*options, undisturbed, steps)
        assert code == 0, errors
        agent = launch(*options, disturbed, steps, pause)

        def first_steps() -> list[float]:
            noted = disturbed / "first_steps"
            return [float(line.split()[0]) for line in noted.read_text().splitlines()] if noted.exists() else []

        def new_ranks() -> list[int]:
            """The living processes of the group after the last kill, by rank."""
            ranks = ranks_of(disturbed)
            there = [pid for pid in living(ranks) if ranks[pid][0] == len(killed)]
            return sorted(there, key=lambda pid: ranks[pid])

        def stepped() -> bool:
            return len(first_steps()) > 0 and first_steps()[-1] > max(killed, default=0.0)

        killed: list[float] = []
        try:
            while len(killed) < kills:
                wait = stepped if rng.random() < 0.8 else new_ranks
                there = eventually(lambda wait=wait: agent.poll() is not None or wait())
                assert there and agent.poll() is None, f"no group after kill {len(killed)}, seed {seed}"
                time.sleep(rng.uniform(0, 0.8))
                os.kill(rng.choice(new_ranks()), signal.SIGKILL)
                killed.append(time.time())
            assert eventually(lambda: agent.poll() is not None or stepped()), f"no step after the last kill, {seed}"
            (disturbed / "hurry").touch()
            code, _, errors = finished(agent)
            assert code == 0, errors
            assert errors.count("; restart ") == kills, errors
        finally:
            end(agent)
        left = living(ranks_of(disturbed))
        assert not left, f"ranks are left: {left}"
        wanted, found = (torch.load(folder / "checkpoint.pt") for folder in (undisturbed, disturbed))
        assert found["step"] == wanted["step"] == steps
        for name, value in wanted["model"].items():
            assert torch.equal(found["model"][name], value), f"{name} differs after {kills} kills, seed {seed}"
        starts = first_steps()
    before = [[time for time in killed if time < start] for start in starts]
    return Kills(len(killed), [start - times[-1] for start, times in zip(starts, before) if times])


if __name__ == "__main__":
    print(train_with_kills(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
