"""Every op against torch: the records of PyTorch's own test database, through `tests/opdb.py`.

For each record that names something tensorgrad has: values and dtypes in five dtypes, the method, in-place and `out=`
variants, inputs with gaps, meta shapes, first and second gradients (real and complex), and the error inputs.
"""

import pytest

pytest.importorskip("torch", reason="torch is the oracle of these tests")
pytest.importorskip("expecttest", reason="PyTorch's test database imports expecttest")

from tests import opdb
from tests.opdb_known import KNOWN

RECORDS = [r for r in opdb.records() if opdb.resolve(r.name) is not None]
NAMES = {opdb.record_name(r) for r in RECORDS}


@pytest.mark.parametrize("record", RECORDS, ids=opdb.record_name)
def test_record(record):
    name = opdb.record_name(record)
    problems = opdb.check_all(record)
    expected = KNOWN.get(name)
    if expected is None:
        assert not problems, "\n".join(problems[:8])
    else:
        reason, pattern = expected
        other = [p for p in problems if pattern not in p]
        assert not other, "beside the known difference:\n" + "\n".join(other[:8])
        assert problems, f"{name} agrees now: take it out of KNOWN ({reason})"


def test_the_database_covers_what_it_should():
    """A record must not vanish from the tests because a name was lost."""
    assert len(RECORDS) >= 480
    assert set(KNOWN) <= NAMES
