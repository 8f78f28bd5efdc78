"""Forward derivatives of every third record of PyTorch's op database (all: `python -m tests.conformance.forward`)."""

import pytest

pytest.importorskip("torch", reason="torch is the oracle of these tests")
pytest.importorskip("expecttest", reason="PyTorch's test database imports expecttest")

from tests.conformance import forward, opdb

pytestmark = pytest.mark.filterwarnings("ignore")  # both libraries warn about what the records do on purpose
RECORDS = [r for r in opdb.records() if forward.supported(r)][::3]


@pytest.mark.parametrize("record", RECORDS, ids=opdb.record_name)
def test_tangents(record):
    problems = [p for dtype in forward.dtypes_of(record) for p in forward.check(record, dtype, limit=1)]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("record", RECORDS[::4], ids=opdb.record_name)
def test_second_derivatives(record):
    if opdb.record_name(record) in forward.SECOND_APART or not (record.supports_gradgrad and record.supports_autograd):
        pytest.skip("the ways differ with reason (SECOND_APART), or the record has no second derivative")
    problems = [p for dtype in forward.dtypes_of(record) for p in forward.check_second(record, dtype, limit=1)]
    assert not problems, "\n".join(problems)
