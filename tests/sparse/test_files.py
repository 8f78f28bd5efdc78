"""Sparse tensors in PyTorch's files, both ways; hostile files; copies and pickles."""

import copy
import io
import pickle

import pytest

import tensorgrad as tg
from tensorgrad.serialization.pickler import _Call
from tensorgrad.serialization.tables import named

torch = pytest.importorskip("torch")
from tests.conformance.opdb_bridge import differences, to_tg  # noqa: E402

DENSE = torch.tensor([[0.0, 2, 0, 1], [3, 0, 0, 0]])
MADE = {
    "coo": DENSE.to_sparse(),
    "hybrid": DENSE.to_sparse(1),
    "uncoalesced": torch.sparse_coo_tensor([[1, 0, 1], [2, 2, 2]], [1.0, 2.0, 3.0], (3, 4)),
    "of no dimensions": torch.tensor(3.0).to_sparse(),
    "empty, of huge size": torch.sparse_coo_tensor((2**40, 2**20)),
    "csr": DENSE.to_sparse_csr(),
    "csc": DENSE.to_sparse_csc(),
    "bsr": DENSE.to_sparse_bsr((1, 2)),
    "bsc": DENSE.to_sparse_bsc((2, 2)),
}
every = pytest.mark.parametrize("made", MADE.values(), ids=MADE)
trusting = pytest.mark.parametrize("weights_only", [True, False])
old = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "old format"])


def through_file(save, load, value, zipped, weights_only):
    file = io.BytesIO()
    save({"a": value}, file, _use_new_zipfile_serialization=zipped)
    file.seek(0)
    return load(file, weights_only=weights_only)["a"]


@every
@old
@trusting
def test_files_are_read_by_both_libraries(made, zipped, weights_only):
    given = [made, torch.nn.Parameter(made)]
    plain, parameter = through_file(torch.save, tg.load, given, zipped, weights_only)
    assert not differences(made, plain, "read here")
    assert type(parameter) is tg.nn.Parameter and parameter.requires_grad
    own = [to_tg(made), tg.nn.Parameter(to_tg(made))]
    plain, parameter = through_file(tg.save, torch.load, own, zipped, weights_only)
    assert not differences(plain, own[0], "read by torch")
    assert type(parameter) is torch.nn.Parameter and parameter.requires_grad


@every
def test_copies_and_pickles(made):
    own = to_tg(made)
    own.note = ["kept"]
    for again in (copy.deepcopy(own), pickle.loads(pickle.dumps(own))):
        assert not differences(made, again, "copy") and again.note == ["kept"]
        again.mul_(2)
    assert not differences(made, own, "original")


def test_state_dicts():
    module = tg.nn.Module()
    module.register_buffer("graph", to_tg(MADE["csr"]))
    read = through_file(tg.save, torch.load, module.state_dict(), True, True)
    assert not differences(read["graph"], module.graph, "buffer")


# --- hostile files -------------------------------------------------------------------------------------------------

VALUES = tg.ones(2)
AT = tg.tensor([[0, 1], [1, 0]])
LINES, PLACES = tg.tensor([0, 1, 2]), tg.tensor([1, 0])
HUGE = tg.zeros(1, dtype=tg.int64).expand(2, 2**40)
HOSTILE = {
    "an index beyond the size": ("coo", (AT, VALUES, (2, 1), False)),
    "a negative index": ("coo", (-AT, VALUES, (2, 2), False)),
    "indices that are not integers": ("coo", (AT.double(), VALUES, (2, 2), False)),
    "more indices than values": ("coo", (AT, VALUES[:1], (2, 2), False)),
    "a size of another length": ("coo", (AT, VALUES, (2, 2, 2), False)),
    "a negative size": ("coo", (AT, VALUES, (2, -2), False)),
    "a size that is no integer": ("coo", (AT, VALUES, (2, 2.5), False)),
    "a size beyond 64 bits": ("coo", (AT, VALUES, (2, 2**70), False)),
    "said to be coalesced": ("coo", (AT.flip(1), VALUES, (2, 2), True)),
    "indices of terabytes": ("coo", (HUGE, tg.ones(1).expand(2**40), (2, 2), False)),
    "values of terabytes": ("coo", (HUGE[:0], tg.ones(1).expand(2**40), (), False)),
    "no tensors": ("coo", ([0], [1.0], (2,), False)),
    "a sparse tensor inside": ("coo", (AT, VALUES.to_sparse(), (2, 2), False)),
    "three parts of CSR": ("csr", (LINES, PLACES, VALUES)),
    "a column beyond the size": ("csr", (LINES, PLACES, VALUES, (2, 1))),
    "a negative column": ("csr", (LINES, -PLACES, VALUES, (2, 2))),
    "lines that do not rise": ("csr", (tg.tensor([0, 3, 2]), PLACES, VALUES, (2, 2))),
    "lines beyond the values": ("csr", (tg.tensor([0, 1, 900]), PLACES, VALUES, (2, 2))),
    "too few lines": ("csr", (LINES, PLACES, VALUES, (2**40, 2))),
    "two kinds of integers": ("csc", (LINES, PLACES.int(), VALUES, (2, 2))),
    "blocks that do not fit": ("bsr", (LINES, PLACES, tg.ones(2, 2, 3), (4, 4))),
    "blocks of no size": ("bsr", (LINES, PLACES, tg.ones(2, 0, 1), (2, 2))),
}


@pytest.mark.parametrize("layout, parts", HOSTILE.values(), ids=HOSTILE)
@old
def test_hostile_files_are_refused(layout, parts, zipped):
    name = _Call(named("torch.serialization", "_get_layout"), (f"torch.sparse_{layout}",))
    file = io.BytesIO()
    tg.save(_Call(named("torch._utils", "_rebuild_sparse_tensor"), (name, parts)), file,
            _use_new_zipfile_serialization=zipped)  # fmt: skip
    file.seek(0)
    with pytest.raises(pickle.UnpicklingError):
        tg.load(file)


def test_indices_share_no_memory_with_other_tensors_of_a_file():
    made = MADE["csr"]
    value = [made.crow_indices(), made.col_indices(), made]
    lines, places, read = through_file(torch.save, tg.load, value, True, True)
    lines.fill_(99)
    places.fill_(99)
    assert not differences(made, read, "after writing to what it was made of")
