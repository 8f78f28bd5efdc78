"""Every sixth record of PyTorch's op database under `vmap`, `grad` and `jvp`, recorded: no bit of the results changes
(all: `python -m tests.capture.transform_records`)."""

import pytest

pytest.importorskip("torch", reason="its database has the calls")
pytest.importorskip("expecttest", reason="PyTorch's test database imports expecttest")

from tests.capture.transform_records import check
from tests.conformance import opdb

pytestmark = pytest.mark.filterwarnings("ignore")  # both libraries warn about what the records do on purpose


@pytest.mark.parametrize("record", opdb.records()[2::6], ids=opdb.record_name)
def test_records(record):
    problems = check(record, limit=1)
    assert not problems, "\n".join(problems)
