"""What every rank runs for `test_sums.py`: sums in shared memory, alone and in DistributedDataParallel."""

import numpy as np

import tensorgrad as torch
import tensorgrad.distributed as dist
from tensorgrad.distributed.collectives.reductions import start_copies, start_sums, sums_in_place
from tensorgrad.distributed.mpi import shared_sums

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
world = dist.group.WORLD
part = dist.new_group([0, size - 1])
assert sums_in_place(world) and sums_in_place(world)


def check(dtype, lengths, group=world, factor=1.0):
    """Compares with a sum in order of the ranks' arrays, which all ranks can compute."""
    own = [np.random.default_rng(r).standard_normal(sum(lengths)).astype(dtype) for r in group.ranks]
    mine, first, arrays = own[group.rank()].copy(), 0, []
    for length in lengths:
        arrays.append(mine[first : first + length])
        first += length
    work = start_sums(arrays, factor, group, watched=rank == 0)
    other = dist.all_reduce(torch.ones(3), group=group, async_op=True)  # goes another way meanwhile
    work.wait(), other.wait()
    wanted = np.sum(np.array(own, np.float64), axis=0) * factor
    np.testing.assert_allclose(mine, wanted, rtol=0, atol=1e-12 if dtype == "f8" else 2e-5)
    everywhere = [None] * group.size()
    dist.all_gather_object(everywhere, mine.tobytes(), group)
    assert len(set(everywhere)) == 1, "ranks have different bits"


elements = shared_sums.CHUNK // 8
for dtype in ("f4", "f8"):
    for lengths in (
        [1],
        [3, 0, 5],
        [0],
        [size - 1 or 1],
        [elements * 2],
        [elements - 1, 3, elements * 4 + 7, 1],
        [5] * 99,
    ):
        check(dtype, lengths, factor=1.0 / size)
if part != dist.GroupMember.NON_GROUP_MEMBER and size > 1:
    assert sums_in_place(part)
    check("f8", [1000, 7], part)

# Copies of one rank's bytes take turns with sums.
for number, lengths in enumerate(([1], [0, 3], [shared_sums.CHUNK - 1, 5, 0, 3 * shared_sums.CHUNK + 1], [7] * 99) * 3):
    root = number % size
    copies = [np.full(length, rank * 50 + number, np.uint8) for length in lengths]
    start_copies(copies, root, world)
    assert all((copy == root * 50 + number).all() for copy in copies)
    if number % 2:
        check("f4", [5, elements + 1])

# Several sums at once end in the order in which they began, whoever waits.
tensors = [torch.full((elements + k,), float(rank + k)) for k in range(4)]
works = [start_sums([t._array], 1.0, world, watched=k == 0) for k, t in enumerate(tensors)]
for work in reversed(works):
    work.wait()
for k, tensor in enumerate(tensors):
    assert (tensor == sum(r + k for r in range(size))).all()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = torch.nn.Linear(7, 5), torch.nn.Linear(5, 5).double(), torch.nn.Linear(7, 3)
        self.factor = torch.nn.Parameter(torch.ones(5, dtype=torch.float16))
        self.columns = torch.nn.Parameter(torch.randn(7, 4).t())  # not row by row
        self.register_buffer("seen", torch.zeros(3, dtype=torch.int64))
        self.register_buffer("flag", torch.tensor(rank == 0))
        self.register_buffer("brain", torch.full((5,), float(rank), dtype=torch.bfloat16))
        self.register_buffer("rows", torch.full((3, 4), float(rank)).t())  # not row by row
        self.register_buffer("later", None, persistent=False)

    def forward(self, x, use_c):
        y = self.b(self.a(x).double()).sum() + (self.factor.float() * self.factor.float()).sum()
        y = y + (x @ self.columns.t()).square().sum()
        return y + (self.c(x).sum() if use_c else 0)


torch.manual_seed(0)
for options in ({}, {"bucket_cap_mb": 1e-5}, {"gradient_as_bucket_view": True}, {"static_graph": True}):
    unused = "static_graph" not in options
    model = torch.nn.parallel.DistributedDataParallel(Net(), find_unused_parameters=unused, **options)
    assert bool(model.module.flag) and not model.module.brain.any()
    kept = []
    for step in range(4):
        model.zero_grad(set_to_none=step != 2)
        x = torch.randn(2, 7, generator=torch.Generator().manual_seed(10 * step + rank))
        model.module.seen += rank
        model.module.rows += rank
        model.module.later = torch.tensor(rank + 7.0)
        versions = [b._version for b in model.module.buffers()]
        model(x, not unused or (rank == 0 and step > 1)).backward()
        assert (model.module.seen == 0).all() and not model.module.rows.any() and model.module.later == 7  # rank 0's
        assert rank == 0 or all(b._version > v for b, v in zip(model.module.buffers(), versions))
        reference = Net()
        reference.load_state_dict(model.module.state_dict())
        wanted = []
        for other in range(size):
            x = torch.randn(2, 7, generator=torch.Generator().manual_seed(10 * step + other))
            (reference(x, not unused or (other == 0 and step > 1)) / size).backward()
        for (name, mine), theirs in zip(model.module.named_parameters(), reference.parameters(), strict=True):
            if theirs.grad is not None:
                torch.testing.assert_close(mine.grad, theirs.grad, rtol=2e-3 if name == "factor" else 1e-4, atol=1e-4)
            if step < 2 and unused and name.startswith("c."):
                assert mine.grad is None
        kept.append([(p.grad, p.grad.clone()) for p in model.parameters() if p.grad is not None])
    if "gradient_as_bucket_view" not in options:  # gradients that a program kept do not change in later passes
        for before, value in kept[0]:
            assert torch.equal(before, value)
    assert model.reducer.in_place is True and any(bucket.in_place for bucket in model.reducer.buckets)
print("done", flush=True)
dist.destroy_process_group()
