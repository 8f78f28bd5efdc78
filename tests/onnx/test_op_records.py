"""Every sixth record of PyTorch's op database in onnxruntime (all of them: `python -m tests.onnx.opdb_records`)."""

import pytest

from tests.onnx.compare import NEEDS

pytest.importorskip("torch", reason="its database has the calls")
pytest.importorskip("expecttest", reason="PyTorch's test database imports expecttest")
pytest.importorskip("onnx", reason=NEEDS)
pytest.importorskip("onnxruntime", reason=NEEDS)

from tests.conformance import opdb
from tests.onnx.opdb_records import check

pytestmark = pytest.mark.filterwarnings("ignore")  # both libraries warn about what the records do on purpose


@pytest.mark.parametrize("record", opdb.records()[1::6], ids=opdb.record_name)
def test_records(record):
    problems = check(record)
    assert not problems, "\n".join(problems)
