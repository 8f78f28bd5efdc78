"""A small kernel is tried in each process before the first one is used: where it is wrong, NumPy serves."""

import time
from types import SimpleNamespace

import numpy as np
import pytest

from tests.support.processes import environment, run_python

pytest.importorskip("numba", reason="the package numba is optional: pip install '.[fast]'")

from tensorgrad.kernels.numba.runtime import background, mailbox, self_test


@pytest.fixture
def loops():
    return background.compiled("runtime.spin.wait")


def test_it_passes_and_takes_no_time(loops):
    assert [self_test.failure(loops) for _ in range(20)] == [""] * 20


def test_the_other_thread_ends(loops):
    seen = []

    def serve(*given):
        why = loops.serve(*given)
        seen.append(why)
        return why

    assert self_test.failure(loops._replace(serve=serve)) == ""
    until = time.monotonic() + 60
    while not seen and time.monotonic() < until:
        time.sleep(0.001)
    assert seen in ([mailbox.IDLE], [mailbox.CROWDED])


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("fault", ["nothing is written", "a number is wrong", "a range has failed"])
def test_a_fault_is_seen(workers, fault, loops):
    def launch(address, arguments, length, box, count):
        happened = loops.probe.launch(address, arguments, length, box, count)
        if count == workers and fault == "nothing is written":
            arguments[1][...] = 0
        elif count == workers and fault == "a number is wrong":
            arguments[1][-1] += np.float32(1e-5 + 1)
        elif count == workers:
            arguments[1][...] = 0
            return mailbox.WRONG
        return happened

    wrong = loops._replace(probe=SimpleNamespace(address=loops.probe.address, launch=launch))
    assert ("on two threads" in self_test.failure(wrong)) is bool(workers)


def test_without_another_thread_it_runs_alone(loops, monkeypatch):
    def start(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(self_test.threads, "start", start)
    assert self_test.failure(loops) == ""


PROGRAM = """
import warnings
import tensorgrad as torch
from tensorgrad.kernels.numba.runtime import background, self_test
real, calls = self_test.failure, []
self_test.failure = lambda loops: (calls.append(1), {answer})[1]
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for _ in range(3):
        x = torch.ones(400, 400)
        made = float((x.exp() @ x.softmax(-1)).sum())
        background.wait()
rows = [row for row in background._requested if row.ready is not None]
print(len(calls), len(seen), bool(rows), round(made / 400**2, 3), *(w.message for w in seen))
"""


@pytest.mark.parametrize("answer, printed", [
    ("'a small kernel is wrong'", "1 1 False 2.718 tensorgrad: compiled kernels are not used: a small kernel is wrong"),
    ("real(loops)", "1 0 True 2.718"),
])  # fmt: skip
def test_where_it_is_wrong_numpy_serves_with_one_warning(answer, printed):
    done = run_python(PROGRAM.format(answer=answer), env=environment(TENSORGRAD_FAST="1"))
    assert done.stdout.strip() == printed, done.stderr
