"""What every rank runs for `test_checkpoint_ranks.py`: `python checkpoint_cases.py FOLDER`, in four processes.

Groups of the first one to four ranks are the jobs of other sizes.
"""

import contextlib
import random
import resource
import sys
from pathlib import Path

import tensorgrad as torch
import tensorgrad.distributed as dist
import tensorgrad.distributed.checkpoint as dcp
from tensorgrad.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

dist.init_process_group("gloo")
rank, folder = dist.get_rank(), Path(sys.argv[1])
meshes = [dist.DeviceMesh("cpu", list(range(n))) for n in range(1, 5)] + [dist.DeviceMesh("cpu", [[0, 1], [2, 3]])]
groups = [mesh.get_group() if mesh.ndim == 1 else dist.group.WORLD for mesh in meshes]
SIZES = [1, 2, 3, 4, 4]
DTYPES = [torch.float32, torch.float64, torch.int64, torch.bool, torch.bfloat16, torch.complex64, torch.uint8]


def tensor(rng, values):
    shape = [rng.choice([0, 1, 2, 3, 5, 7]) for _ in range(rng.randrange(4))]
    numbers = [float(values.randrange(2)) for _ in range(torch.Size(shape).numel())]
    return torch.tensor(numbers).reshape(shape).to(rng.choice(DTYPES))


def placements(rng, mesh, ndim):
    return [Shard(rng.randrange(ndim)) if ndim and rng.random() < 0.75 else Replicate() for _ in range(mesh.ndim)]


def placed(rng, mesh, x):
    return distribute_tensor(x, mesh, placements(rng, mesh, x.ndim)) if rng.random() < 0.9 else x.clone()


def piece(x):
    return x.to_local() if isinstance(x, DTensor) else x


def what_one_job_saved_any_other_loads():
    for seed in range(20):
        rng = random.Random(seed)
        whole = {f"x{i}": tensor(rng, random.Random(100 * seed + i)) for i in range(rng.randrange(1, 5))}
        writers, readers = rng.randrange(5), rng.randrange(5)
        place, seeds = folder / f"any{seed % 3}", [rng.random() for _ in range(2)]  # some folders are used again
        if rank < SIZES[writers]:
            r = random.Random(seeds[0])
            state = {"model": {name: placed(r, meshes[writers], x) for name, x in whole.items()}, "step": [seed, "a"]}
            found = dcp.save(state, checkpoint_id=place, process_group=groups[writers])
            for name, x in whole.items():
                pieces = found.state_dict_metadata[f"model.{name}"].chunks
                assert sum(chunk.sizes.numel() for chunk in pieces) == x.numel(), "something is written twice"
        dist.barrier()
        if rank < SIZES[readers]:
            r = random.Random(seeds[1])
            wanted = {name: placed(r, meshes[readers], x) for name, x in whole.items()}
            state = {"model": {name: torch.zeros_like(x) for name, x in wanted.items()}, "step": None}
            dcp.load(state, checkpoint_id=place, process_group=groups[readers])
            assert state["step"] == [seed, "a"]
            for name, x in wanted.items():
                assert torch.equal(piece(state["model"][name]), piece(x)), (seed, name, x)
        dist.barrier()


def replicated_tensors_are_written_once_by_all_together():
    state = {f"x{i}": torch.full((100, 100), float(i)) for i in range(8)}
    place = folder / "replicated"
    dcp.save(state, checkpoint_id=place)
    dist.barrier()
    sizes = [path.stat().st_size for path in place.glob("*.distcp")]
    assert len(sizes) == 4 and min(sizes) > 80_000 and max(sizes) < 100_000, sizes


@contextlib.contextmanager
def largest_file(size):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


class Broken:
    def state_dict(self):
        raise KeyError("no state")

    def load_state_dict(self, state):
        raise AssertionError


def an_error_reaches_all_ranks():
    place, file, whole = folder / "errors", folder / "file", torch.arange(4000.0)
    sharded = {"x": distribute_tensor(whole, meshes[3], [Shard(0)])}
    dcp.save(sharded, checkpoint_id=place)
    zeros = {"x": torch.zeros_like(sharded["x"])}
    if rank == 0:
        file.touch()
    dist.barrier()

    def fails(function, *parts):
        try:
            function()
        except dcp.CheckpointException as error:
            assert list(error.failures) == [2] and "\n" not in str(error), error
            assert all(part in str(error) for part in ("rank 2: ", *parts)), error
        else:
            raise AssertionError("no error")
        dist.barrier()
        state = {"x": torch.zeros_like(sharded["x"])}
        dcp.load(state, checkpoint_id=place)
        assert torch.equal(piece(state["x"]), piece(sharded["x"]))

    new = {"x": sharded["x"] + 1}
    for save in (dcp.save, lambda *args, **options: dcp.async_save(*args, **options).result(60)):
        with largest_file(500) if rank == 2 else contextlib.nullcontext():
            fails(lambda: save(new, checkpoint_id=place), "write: ", "OSError", "File too large", "__2_")
        elsewhere = file / "x" if rank == 2 else place
        fails(lambda: save(new, checkpoint_id=elsewhere), "plan: ", "NotADirectoryError", str(file))
        fails(lambda: save(new | ({"b": Broken()} if rank == 2 else {}), checkpoint_id=place), "KeyError", "no state")
    terms = DTensor.from_local(torch.ones(2), meshes[3], [Partial()])
    fails(lambda: dcp.save({"x": terms} if rank == 2 else new, checkpoint_id=place), "ValueError", "terms of a sum")
    fails(lambda: dcp.load(zeros | ({"y": 1} if rank == 2 else {}), checkpoint_id=place), "Missing key", ": y")
    fails(lambda: dcp.load(zeros, checkpoint_id=elsewhere), "plan: ", "NotADirectoryError", str(file))
    assert piece(zeros["x"]).sum() == 0, "something was loaded before all ranks could load"
    dcp.save(new, checkpoint_id=place)
    dist.barrier()
    assert len(list(place.iterdir())) == 5, "files are left"


def ranks_that_disagree_get_an_error():
    for state in ({"x": torch.ones(2 + rank)}, {"x": torch.ones(2) if rank else 3}):
        try:
            dcp.save(state, checkpoint_id=folder / "different")
        except dcp.CheckpointException as error:
            assert "differs between processes" in str(error) or "a tensor in some processes" in str(error), error
        else:
            raise AssertionError("no error")


def saving_in_the_background():
    x = distribute_tensor(torch.arange(50_000.0), meshes[3], [Shard(0)])
    wanted, futures = piece(x).clone(), []
    for step in range(3):
        futures.append(dcp.async_save({"x": x, "step": step}, checkpoint_id=folder / f"background{step}"))
        x += 1
        for _ in range(20):  # the other group is used meanwhile
            assert (total := dist_sum(1.0)) == 4, total
    for step, future in enumerate(futures):
        future.result(60)
        state = {"x": torch.zeros_like(x), "step": None}
        dcp.load(state, checkpoint_id=folder / f"background{step}")
        assert torch.equal(piece(state["x"]), wanted + step) and state["step"] == step


def dist_sum(value):
    x = torch.tensor([value])
    dist.all_reduce(x)
    return x.item()


for case in (
    what_one_job_saved_any_other_loads, replicated_tensors_are_written_once_by_all_together,
    an_error_reaches_all_ranks, ranks_that_disagree_get_an_error, saving_in_the_background,
):  # fmt: skip
    case()
    if rank == 0:
        print(case.__name__, flush=True)
dist.barrier()
dist.destroy_process_group()
