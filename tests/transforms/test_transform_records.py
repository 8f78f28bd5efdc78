"""Every way to compute derivatives at once, for every record of PyTorch's op database, and for options that it lacks.

Each record goes two of the ways here, others for each of its calls (all: `python -m tests.conformance.transforms`).
"""

import zlib

import pytest

pytest.importorskip("torch", reason="torch is the oracle of these tests")
pytest.importorskip("expecttest", reason="PyTorch's test database imports expecttest")

from tests.conformance import opdb, transforms

pytestmark = pytest.mark.filterwarnings("ignore")  # both libraries warn about what the records do on purpose
WAYS = [*transforms.WAYS]
RECORDS = [r for r in opdb.records() if opdb.resolve(r) is not None]


@pytest.mark.parametrize("case", transforms.OPTIONS, ids=repr)
def test_options(case):
    problems = transforms.check(case)
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("part", range(16))
def test_records(part):
    """A sixteenth of the records: each with two of its calls, in two of the ways."""
    problems = []
    for record in RECORDS[part::16]:
        start = zlib.crc32(opdb.record_name(record).encode())
        for nr, case in enumerate(transforms.cases(record, 2)):
            ways = [WAYS[(start + 2 * nr + k) % len(WAYS)] for k in range(2)]
            problems += [f"{opdb.record_name(record)}: {p}" for p in transforms.check(case, ways)]
    assert not problems, "\n".join(problems)
