"""Every fourth record of PyTorch's op database, recorded and run again (all: `python -m tests.capture.opdb_records`)"""

import pytest

pytest.importorskip("torch", reason="its database has the calls")
pytest.importorskip("expecttest", reason="PyTorch's test database imports expecttest")

from tests.capture.opdb_records import check
from tests.conformance import opdb

pytestmark = pytest.mark.filterwarnings("ignore")  # both libraries warn about what the records do on purpose


@pytest.mark.parametrize("record", opdb.records()[::4], ids=opdb.record_name)
def test_records(record):
    problems = check(record)
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("record", [r for r in opdb.records() if r.supports_autograd][1::8], ids=opdb.record_name)
def test_gradients(record):
    problems = check(record, gradients=True)
    assert not problems, "\n".join(problems)
