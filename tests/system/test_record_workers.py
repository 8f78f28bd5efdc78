"""The processes that share out the records of PyTorch's databases (tests/conformance/workers.py)."""

import os
import time

from tests.conformance import workers


def answer(record):
    """Stands for the check of a record."""
    if record == "crash":
        os._exit(9)
    if record == "slow":
        time.sleep(60)
    return [f"{record} in {os.getpid()}"], record != "last"


def outcomes(tasks, **options):
    return dict(workers.share_out(answer, tasks, **options))


def test_every_record_is_answered():
    found = outcomes([[1, 2, 3], [4], [5, 6]], processes=2)
    assert sorted(found) == [1, 2, 3, 4, 5, 6]
    assert 1 <= len({problems[0].split()[-1] for problems in found.values()}) <= 2


def test_a_process_that_ends_takes_one_record_with_it():
    found = outcomes([["a", "crash", "b"], ["c", "last", "d"]], processes=1)
    assert found.keys() == {"a", "crash", "b", "c", "last", "d"} and found["crash"] == [workers.ENDED]
    pids = {name: problems[0].split()[-1] for name, problems in found.items() if name != "crash"}
    assert pids["b"] != pids["a"] and pids["c"] == pids["last"] != pids["d"]


def test_when_the_time_is_up(monkeypatch):
    monkeypatch.setattr(workers, "GRACE", 0.5)
    assert outcomes([["slow", "after"], ["never"]], processes=1, seconds=0.5) == {"slow": [workers.LATE]}
