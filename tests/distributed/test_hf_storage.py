"""Checkpoints in files of safetensors: both ways with PyTorch, and one clear error for what the format cannot hold."""

import json
import pickle

import pytest

import tensorgrad as torch
import tensorgrad.distributed.checkpoint as dcp
from tensorgrad.distributed.checkpoint import _consolidate_hf_safetensors as consolidation
from tests.distributed.launch import HERE, needs_mpi, run

pytest.importorskip("safetensors")

DTYPES = ["float32", "float64", "float16", "bfloat16", "int64", "int8", "uint8", "bool", "complex64", "float8_e4m3fn"]


def state(t, fill):
    values = {f"a.{name}": t.full((3, 2), fill).to(getattr(t, name)) for name in DTYPES}
    return {
        **values,
        "nested": {"row": t.arange(6.0).reshape(2, 3)[1] * fill, "none": t.zeros(0, 3)},
        "one": t.tensor(fill),
    }


def both():
    return [(torch, dcp), (pytest.importorskip("torch"), pytest.importorskip("torch.distributed.checkpoint"))]


def contents(state):
    flat = {**state, **state["nested"]}
    return {name: (str(x.dtype), x.tolist()) for name, x in flat.items() if name != "nested"}


def loaded(t, library, folder):
    found = state(t, 0.0)
    library.load(found, storage_reader=library.HuggingFaceStorageReader(str(folder)), no_dist=True)
    return contents(found)


def save(library, values, folder, **options):
    library.save(values, storage_writer=library.HuggingFaceStorageWriter(str(folder), **options), no_dist=True)


NUMBERS = {name: 1 + i % 3 for i, name in enumerate([f"a.{n}" for n in DTYPES] + ["nested.row", "nested.none", "one"])}


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore:torch.distributed:UserWarning"
)
@pytest.mark.parametrize("options", [{}, {"fqn_to_index_mapping": NUMBERS}, {"save_distributed": True}], ids=str)
def test_each_library_reads_what_the_other_wrote(tmp_path, options):
    (ours, mine), (theirs, other) = both()
    save(mine, state(ours, 2.0), tmp_path / "ours", **options)
    save(other, state(theirs, 2.0), tmp_path / "theirs", **options)
    one, two = (sorted(path.name for path in (tmp_path / side).iterdir()) for side in ("ours", "theirs"))
    assert one == two and len(one) == (4 if options.get("fqn_to_index_mapping") else 1 + (not options))
    for folder in ("ours", "theirs"):
        expected = contents(state(theirs, 2.0))
        assert loaded(theirs, other, tmp_path / folder) == expected
        ours_found = {name: (dtype.replace("tensorgrad", "torch"), x) for name, (dtype, x) in
                      loaded(ours, mine, tmp_path / folder).items()}  # fmt: skip
        assert ours_found == expected
    if not options.get("save_distributed"):
        indexes = [json.loads((tmp_path / side / one[-1]).read_text()) for side in ("ours", "theirs")]
        assert indexes[0] == indexes[1]


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore:torch.distributed:UserWarning"
)
def test_whole_tensors_are_those_of_pytorch(tmp_path):
    pieces = ["float32", "float64", "float16", "bfloat16"]  # PyTorch's whole tensors are of floats
    numbers = {f"a.{name}": 1 + i % 2 for i, name in enumerate(pieces)}
    for side, (t, library) in zip(("ours", "theirs"), both()):
        values = {f"a.{name}": t.arange(6).reshape(3, 2).to(getattr(t, name)) for name in pieces}
        options = {"save_distributed": True, "enable_consolidation": True, "fqn_to_index_mapping": numbers}
        save(library, values, tmp_path / side, **options)
    names = [
        sorted(str(path.relative_to(tmp_path / side)) for path in (tmp_path / side).rglob("*"))
        for side in ("ours", "theirs")
    ]
    assert names[0] == names[1]
    safetensors = pytest.importorskip("safetensors.torch")
    for name in names[0]:
        if name.startswith("model") and name.endswith(".safetensors"):
            one, two = (safetensors.load_file(tmp_path / side / name) for side in ("ours", "theirs"))
            assert {key: x.tolist() for key, x in one.items()} == {key: x.tolist() for key, x in two.items()}
    assert (tmp_path / "ours" / names[0][2]).suffix == ".json"
    assert json.loads((tmp_path / "ours" / names[0][2]).read_text()) == json.loads(
        (tmp_path / "theirs" / names[0][2]).read_text()
    )


def test_whole_tensors_of_all_dtypes_and_sizes(tmp_path):
    values = state(torch, 1.0)
    save(dcp, values, tmp_path, save_distributed=True, enable_consolidation=True)
    assert loaded(torch, dcp, tmp_path) == contents(values)


def test_what_cannot_be_written_or_read(tmp_path):
    def fails(text, values=None, **options):
        with pytest.raises(dcp.CheckpointException, match=text):
            save(dcp, {"x": torch.ones(2)} if values is None else values, tmp_path, **options)

    fails("ValueError: .* epoch is not a tensor", {"x": torch.ones(2), "epoch": 3})
    fails("fqn_to_index_mapping has no file for x", fqn_to_index_mapping={"y": 1})
    save(dcp, {"x": torch.ones(4)}, tmp_path, save_distributed=True)
    (file,) = tmp_path.iterdir()
    with pytest.raises(ValueError, match="y should be written to a file"):
        consolidation.consolidate_safetensors_files(tmp_path, tmp_path, {"y": 1})
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b'saved_offsets\\": [0]', b'saved_offsets\\": [2]'))
    with pytest.raises(ValueError, match="x: the pieces do not fill the size"):
        consolidation.consolidate_safetensors_files(tmp_path, tmp_path, {"x": 1})
    file.write_bytes(whole.replace(b"DCP_SHARDING_INFO", b"DCP_SHARDING_INFX"))
    with pytest.raises(ValueError, match="was not written as part of a checkpoint"):
        consolidation.consolidate_safetensors_files(tmp_path, tmp_path, {"x": 1})
    reader = dcp.HuggingFaceStorageReader(tmp_path)
    changed = [whole.replace(b"F32", b"F33"), whole.replace(b"[4]", b"[5]"), whole.replace(b'"F32"', b"12345")]
    cut = [b"", whole[:50], whole[:-1], whole[:8] + b"x" * (len(whole) - 8), b"\xff" * 8 + whole[8:]]
    for damaged in changed + cut:
        file.write_bytes(damaged)
        with pytest.raises(pickle.UnpicklingError, match=f"{file.name} is damaged"):
            reader.read_metadata()


@needs_mpi
@pytest.mark.together
def test_two_ranks(tmp_path):
    results = run(2, [HERE / "hf_storage_cases.py", tmp_path])
    assert results[0][1].splitlines() == ["sharded", "clashing", "on_every_rank"]
    other, theirs = pytest.importorskip("torch"), pytest.importorskip("torch.distributed.checkpoint")
    for folder in ("sharded", "whole"):
        found = {"rows": other.zeros(5, 3), "columns": other.zeros(3, 4, dtype=other.int64), "one": other.tensor(False)}
        reader = theirs.HuggingFaceStorageReader(str(tmp_path / folder))
        theirs.load(found, storage_reader=reader, no_dist=True)
        assert found["rows"].flatten().tolist() == list(range(15)) and found["one"].item()
        assert found["columns"].flatten().tolist() == list(range(12))
