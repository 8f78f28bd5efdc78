"""What every rank runs for `test_sync_batchnorm.py`: batch norm of its part, compared with that of the whole batch."""

import copy

import tensorgrad as torch
import tensorgrad.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
double = torch.float64


def same(a, b, atol=1e-12):
    torch.testing.assert_close(a, b, rtol=0, atol=atol)


def compare(shape, sizes, group=None, members=None, dtype=double, atol=1e-12, **options):
    """Two steps of training and one of evaluation; `sizes` are the members' batch sizes."""
    members = list(range(size)) if members is None else members
    torch.manual_seed(3)
    layer = torch.nn.SyncBatchNorm(shape[0], process_group=group, dtype=double, **options)
    kind = {1: torch.nn.BatchNorm1d, 2: torch.nn.BatchNorm1d, 3: torch.nn.BatchNorm2d, 4: torch.nn.BatchNorm3d}
    whole = kind[len(shape)](shape[0], dtype=double, **options)
    with torch.no_grad():
        for parameter, reference in zip(layer.parameters(), whole.parameters()):
            parameter.copy_(torch.randn_like(reference))
            reference.copy_(parameter)
    layer, whole = layer.to(dtype), whole.to(dtype)
    start = sum(sizes[: members.index(rank)])
    mine = slice(start, start + sizes[members.index(rank)])
    for training in (True, True, False) if options.get("track_running_stats", True) else (True, True):
        layer.train(training), whole.train(training)
        layer.zero_grad(), whole.zero_grad()
        x = (torch.randn(sum(sizes), *shape, dtype=double) * 3 + 100).to(dtype).requires_grad_()
        part = x.detach()[mine].clone().requires_grad_()
        seed = torch.randn_like(x)
        expected, found = whole(x), layer(part)
        (expected * seed).sum().backward()
        (found * seed[mine]).sum().backward()
        same(found, expected[mine], atol)
        same(part.grad, x.grad[mine], atol)
        for parameter, reference in zip(layer.parameters(), whole.parameters(), strict=True):
            dist.all_reduce(parameter.grad, group=group)  # each process has the gradient of its part
            same(parameter.grad, reference.grad, atol * 10)
        for buffer, reference in zip(layer.buffers(), whole.buffers(), strict=True):
            same(buffer, reference, atol * 10)


even, uneven = [4] * size, [1 + 2 * r for r in range(size)]
for shape in ((5,), (5, 7), (3, 4, 2), (2, 3, 2, 2)):
    compare(shape, even)
    compare(shape, uneven)
compare((3, 4), [0, *even[1:]])  # no samples in one process
compare((3,), [1] * size)  # too few for plain batch norm
compare((3,), uneven, momentum=None)
compare((3,), uneven, affine=False)
compare((3,), uneven, bias=False)
compare((3,), uneven, track_running_stats=False)
compare((3, 5), uneven, dtype=torch.float32, atol=2e-4)

first = dist.new_group([0, 1])
if rank < 2:
    compare((3, 2), [2, 5], first, [0, 1])
alone = [dist.new_group([r]) for r in range(size)][rank]
compare((3, 2), [4], alone, [rank])
if rank == 2:  # not a member: plain batch norm
    x = torch.randn(4, 3)
    assert torch.equal(torch.nn.SyncBatchNorm(3, process_group=first)(x), torch.nn.BatchNorm1d(3)(x))

half = torch.nn.SyncBatchNorm(2)(torch.ones(3, 2, dtype=torch.bfloat16).add_(rank))
assert half.dtype == torch.bfloat16 and half.isfinite().all()

x = torch.randn(4, 3, requires_grad=True)
(grad,) = torch.autograd.grad(torch.nn.SyncBatchNorm(3)(x).square().sum(), x, create_graph=True)
for call, error, text in (
    (lambda: torch.nn.SyncBatchNorm(2)(torch.ones(0 if rank else 1, 2)), ValueError, "more than 1 value per channel"),
    (lambda: torch.nn.SyncBatchNorm(2)(torch.ones(3, 4)), RuntimeError, "should contain 4 elements not 2"),
    (lambda: torch.nn.SyncBatchNorm(2)(torch.ones(3)), ValueError, "at least 2D input"),
    (lambda: torch.nn.SyncBatchNorm(2)(torch.ones(3, 0)), ValueError, "channels should be non-zero"),
    (lambda: grad.sum().backward(), RuntimeError, "twice"),
):
    try:
        call()
    except error as found:
        assert text in str(found), found
    else:
        raise AssertionError("no error")

# with DistributedDataParallel, training is training on the whole batch
torch.manual_seed(5)
plain = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 2)).double()
model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(plain))
model = torch.nn.parallel.DistributedDataParallel(model)
for _ in range(3):
    x = torch.randn(4 * size, 4, dtype=double)
    for trained, batch in ((plain, x), (model, x[rank::size])):
        trained.zero_grad()
        trained(batch).square().mean().backward()
        torch.optim.SGD(trained.parameters(), lr=0.1).step()
for found, expected in zip(model.state_dict().values(), plain.state_dict().values(), strict=True):
    same(found, expected)
print("done", flush=True)
dist.destroy_process_group()
