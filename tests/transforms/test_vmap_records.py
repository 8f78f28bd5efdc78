"""`vmap` over every fourth record of PyTorch's op database (all: `python -m tests.conformance.vmap`)."""

import pytest

pytest.importorskip("torch", reason="torch is the oracle of these tests")
pytest.importorskip("expecttest", reason="PyTorch's test database imports expecttest")

from tests.conformance import opdb, vmap

pytestmark = pytest.mark.filterwarnings("ignore")  # both libraries warn about what the records do on purpose
RECORDS = [r for r in opdb.records() if vmap.supported(r)][1::4]


@pytest.mark.parametrize("record", RECORDS, ids=opdb.record_name)
def test_batches(record):
    problems = [p for dtype in vmap.dtypes_of(record)[:1] for p in vmap.check(record, dtype, limit=2)]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("record", RECORDS[::3], ids=opdb.record_name)
def test_gradients_per_sample(record):
    problems = vmap.check_gradients(record, limit=1)
    assert not problems, "\n".join(problems)


def test_few_ops_run_in_a_loop():
    ops, looped = vmap.counted()
    assert len(looped) <= 0.05 * ops
