"""What every rank runs for `test_shrinking.py`: groups go on without members that leave, or that are killed."""

import os
import signal
import sys

import tensorgrad as torch
import tensorgrad.distributed as dist
from tensorgrad.distributed.distributed_c10d import SHRINK_ABORT

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()  # of four


def total(group=None):
    x = torch.tensor([float(rank + 1)])
    dist.all_reduce(x, group=group)
    return x.item()


def fails(error, text, *arguments, **options):
    try:
        dist.shrink_group(*arguments, **options)
    except error as found:
        assert text in str(found), found
    else:
        raise AssertionError(f"no error: {text}")


assert size == 4
fails(TypeError, "must be a list", (1,))
fails(ValueError, "cannot be empty", [])
fails(ValueError, "Rank 4 at index 1 is out of bounds for group size 4. Valid ranks are in range [0, 3].", [0, 4])
fails(ValueError, "Duplicate rank 0", [0, 0])
fails(TypeError, "Element at index 0 is str: 1", ["1"])
fails(ValueError, "Cannot exclude all 4 ranks", [0, 1, 2, 3])
fails(ValueError, "Invalid shrink_flags value: 7", [1], shrink_flags=7)
fails(RuntimeError, f"Current rank {rank} is in the exclusion list", [rank])

part = dist.new_group([0, 1, 3])
if rank in (0, 3):
    part = dist.shrink_group([1], part)  # rank 1 within it
    assert part.size() == 2 and dist.get_process_group_ranks(part) == [0, 3] and total(part) == 5
dist.barrier()

if sys.argv[1] == "killed" and rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
if rank != 1:
    flags = 0
    if sys.argv[1] == "killed":
        try:
            total()
            raise AssertionError("rank 1 was killed")
        except dist.DistBackendError as error:
            assert "rank 1 has ended" in str(error), error
        fails(dist.DistBackendError, "an earlier operation", [1])
        flags = SHRINK_ABORT
    world = dist.shrink_group([1], shrink_flags=flags)
    assert world is dist.group.WORLD and dist.get_pg_count() >= 1
    assert (dist.get_rank(), dist.get_world_size()) == ({0: 0, 2: 1, 3: 2}[rank], 3)
    assert total() == 1 + 3 + 4
    objects = [None] * 3
    dist.all_gather_object(objects, rank)
    assert objects == [0, 2, 3]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    for _ in range(3):
        model.zero_grad()
        model(torch.full((1, 2), float(rank))).sum().backward()
        torch.testing.assert_close(model.module.weight.grad, torch.full((1, 2), 5 / 3))
    pair = dist.new_group([0, 2])  # of the new ranks
    if dist.get_rank() in (0, 2):
        assert total(pair) == 5
    dist.barrier()
    if dist.get_rank() == 0:
        alone = dist.shrink_group([1, 2])
        assert alone.size() == dist.get_world_size() == 1 and total() == 1
        assert dist.new_group([0]).size() == 1
print("done", flush=True)
