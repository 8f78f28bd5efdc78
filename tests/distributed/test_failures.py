"""A rank that ends or stalls: the others get an error in time, and no process is left behind."""

import re
import time

import pytest

from tests.distributed.launch import HERE, needs_mpi, run

pytestmark = needs_mpi


def fail(case, size=3, **variables):
    """The return code and output of each rank, and how long it took."""
    start = time.monotonic()
    results = run(size, [HERE / "failing.py", case], check=False, timeout=30, **variables)
    return [(code, output.splitlines(), errors) for code, output, errors in results], time.monotonic() - start


@pytest.mark.parametrize(("case", "victim"), [("killed", 2), ("first killed", 0), ("raises", 2)])
def test_a_rank_that_ends_is_named(case, victim):
    results, seconds = fail(case)
    assert seconds < 15
    for rank, (code, lines, errors) in enumerate(results):
        if rank == victim:
            assert code != 0
            continue
        assert code == 0, errors
        assert re.match(rf"DistBackendError: all_reduce: rank {victim}(, \d)? has ended", lines[0]), lines
        assert lines[1].startswith("DistBackendError: an earlier operation of this process group failed")


def test_a_rank_that_stalls_costs_the_timeout():
    results, _ = fail("late", 2)
    code, lines, errors = results[0]
    assert code == 0, errors
    assert re.match(r"DistBackendError: Timed out waiting 3\d\d\dms for all_reduce operation to complete", lines[0])


def test_what_was_sent_arrives_after_the_sender_has_ended():
    results, _ = fail("exits after sending", 2)
    assert [code for code, _, _ in results] == [0, 0], results
    assert results[0][1] == ["[7.0, 7.0, 7.0, 7.0]"]


def test_a_monitored_barrier_names_who_is_missing():
    results, _ = fail("monitored")
    assert "[Rank 0]: Rank 2 failed to pass monitoredBarrier in 1000 ms" in results[0][1][0]
    assert "[Rank 1]: Successfully reached monitoredBarrier, but received errors" in results[1][1][0]


def test_a_message_that_is_too_long_is_an_error():
    results, _ = fail("too long", 2)
    assert re.match(r"DistBackendError: MPI: .*truncat", results[0][1][0], re.IGNORECASE | re.DOTALL), results


def test_a_rank_that_never_comes():
    code, _, errors = run(1, ["-c", JOIN], check=False, WORLD_SIZE=2)[0]
    assert code != 0 and "1/2 clients joined" in errors


JOIN = """
import tensorgrad.distributed as dist
from datetime import timedelta
dist.init_process_group("gloo", timeout=timedelta(seconds=1))
"""
