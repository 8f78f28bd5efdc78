"""Every op on the GPU against torch on the CPU: the records of PyTorch's database, each in a few of its samples.

Most run on CuPy alone, by the kernels that NumPy shares: those in CUDA C have tests of their own. Every record runs in
float32 (or the first dtype it has) and in one other dtype; what takes longer is shared out: the other forms (method,
in place, `out=`, inputs with gaps), gradients, and all of it with the CUDA kernels. Everything for every record:

    DEVICE=cuda python -m tests.conformance.opdb            (or DEVICE=emulator)
"""

import pytest

torch = pytest.importorskip("torch", reason="torch is the oracle of these tests")
pytest.importorskip("expecttest", reason="PyTorch's test database imports expecttest")

import tensorgrad as tg
from tests.conformance import opdb, opdb_families
from tests.cuda.general import on_cupy_alone
from tests.cuda.known import unexplained

HERE = {e.name for e in opdb_families.entries() if not e.excluded and not e.missing}
RECORDS = [r for r in opdb.records() if opdb.record_name(r) in HERE]
TURNS = {opdb.record_name(r): turn for turn, r in enumerate(RECORDS)}
OTHERS = (torch.bfloat16, torch.int64, torch.complex64, torch.float16, torch.bool, torch.float64, torch.uint8)
FORMS = (opdb.check_method, opdb.check_inplace, opdb.check_out, opdb.check_noncontiguous)
SLOW = {"grid_sampler_3d", "nn.functional.max_pool3d", "svd_lowrank", "pca_lowrank"}  # seconds each, on the emulator

pytestmark = pytest.mark.filterwarnings("ignore")  # both libraries warn about what these tests do on purpose


@pytest.fixture(autouse=True)
def full_precision():
    """Convolutions round their operands to TF32 otherwise, as in PyTorch."""
    with tg.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


@pytest.fixture
def alone():
    with on_cupy_alone():
        yield


def dtypes_of(record):
    return [d for d in opdb.DTYPES if d in record.supported_dtypes("cpu")]


def agrees(record, problems):
    others = unexplained(opdb.record_name(record), problems)
    assert not others, "\n".join(others[:8])


@pytest.mark.parametrize(
    "records", [RECORDS[i::40] for i in range(40)], ids=lambda records: opdb.record_name(records[0])
)
def test_forward(records, alone):
    for record in records:
        dtypes, turn = dtypes_of(record), TURNS[opdb.record_name(record)]
        if not dtypes:
            continue
        limit = 1 if opdb.record_name(record) in SLOW else 3
        problems = opdb.check_forward(record, dtypes[0], record.name in opdb.VIEWS, limit)
        another = next((d for i in range(len(OTHERS)) if (d := OTHERS[(turn + i) % len(OTHERS)]) in dtypes[1:]), None)
        if another is not None:
            problems += opdb.check_forward(record, another, limit=1)
        agrees(record, problems)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_other_forms(form, alone):
    for record in RECORDS[FORMS.index(form) :: 12]:
        if dtypes_of(record):
            agrees(record, form(record, dtypes_of(record)[0]))


DIFFERENTIABLE = [r for r in RECORDS if opdb.differentiable(r) and opdb.record_name(r) not in SLOW]


@pytest.mark.parametrize("part", range(10))
def test_gradients(part, alone):
    for record in DIFFERENTIABLE[part::20]:
        dtype = next(d for d in opdb.DTYPES if d in record.supported_backward_dtypes("cpu"))
        agrees(record, opdb.check_gradient(record, dtype, 1, 2))


def test_second_derivatives(alone):
    for record in DIFFERENTIABLE[1::24]:
        if record.supports_gradgrad and torch.float64 in record.supported_backward_dtypes("cpu"):
            agrees(record, opdb.check_gradient(record, torch.float64, 2, 2))


def test_with_cuda_kernels():
    for record in RECORDS[3::24]:
        if dtypes_of(record):
            agrees(record, opdb.check_forward(record, dtypes_of(record)[0], limit=2))
