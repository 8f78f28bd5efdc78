"""What both ranks run for `test_hf_storage.py`: `python hf_storage_cases.py FOLDER`, in two processes."""

import sys
from pathlib import Path

import tensorgrad as torch
import tensorgrad.distributed as dist
import tensorgrad.distributed.checkpoint as dcp
from tensorgrad.distributed.checkpoint import _consolidate_hf_safetensors as consolidation
from tensorgrad.distributed.tensor import Replicate, Shard, distribute_tensor

dist.init_process_group("gloo")
rank, folder = dist.get_rank(), Path(sys.argv[1])
mesh = dist.DeviceMesh("cpu", [0, 1])
WHOLE = {"rows": torch.arange(15.0).reshape(5, 3), "columns": torch.arange(12).reshape(3, 4), "one": torch.tensor(True)}


def placed(*dims):
    """The tensors, divided among the ranks along these dimensions."""
    places = [Replicate() if dim is None else Shard(dim) for dim in dims]
    return {name: distribute_tensor(x, mesh, [place]) for (name, x), place in zip(WHOLE.items(), places)}


def check(path, *dims):
    state = {name: torch.zeros_like(x) for name, x in placed(*dims).items()}
    dcp.load(state, storage_reader=dcp.HuggingFaceStorageReader(path))
    for name, x in state.items():
        assert torch.equal(x.full_tensor(), WHOLE[name]), name


def sharded():
    path = folder / "sharded"
    for _ in range(2):  # a checkpoint of the same folder is written again
        writer = dcp.HuggingFaceStorageWriter(path, save_distributed=True)
        dcp.save(placed(0, 1, None), storage_writer=writer)
    dist.barrier()
    assert len(list(path.iterdir())) == 2
    check(path, 1, None, None)
    (folder / "few").mkdir(exist_ok=True)
    (folder / "few" / "shard-00003-model-00001-of-00001.safetensors").write_bytes(b"of three processes before")
    dist.barrier()
    writer = dcp.HuggingFaceStorageWriter(folder / "few", save_distributed=True, enable_consolidation=True)
    writer.path = folder / "few"  # pieces and whole tensors in one folder
    dcp.save(placed(0, 1, None), storage_writer=writer)
    dist.barrier()
    check(folder / "few", 1, 0, None)


def clashing():
    try:
        dcp.save(placed(0, 1, None), storage_writer=dcp.HuggingFaceStorageWriter(folder / "clashing"))
    except dcp.CheckpointException as error:
        assert "would both write model-00001-of-00001.safetensors" in str(error), error
    else:
        raise AssertionError("no error")


def on_every_rank():
    numbers = {"rows": 1, "columns": 2, "one": 2}
    (folder / "whole").mkdir(exist_ok=True)
    dist.barrier()
    consolidation.consolidate_safetensors_files_on_every_rank(folder / "sharded", folder / "whole", numbers)
    assert len(list((folder / "whole").iterdir())) == 3
    check(folder / "whole", 0, 1, None)


for case in (sharded, clashing, on_every_rank):
    case()
    if rank == 0:
        print(case.__name__, flush=True)
dist.barrier()
dist.destroy_process_group()
