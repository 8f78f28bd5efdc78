"""What every rank runs for `test_compiled_ddp.py`: a compiled wrapper gives the bits of the wrapper as it is."""

import contextlib

import tensorgrad as torch
import tensorgrad.distributed as dist
from tensorgrad import nn
from tensorgrad.nn.parallel import DistributedDataParallel
from tests.capture.compare import bits

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()


class Branches(nn.Module):
    """Two results; each has a part that the loss may leave out, and one layer serves none."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(5, 40), nn.BatchNorm1d(40)
        self.left, self.right, self.never = (nn.Linear(40, 3) for _ in range(3))

    def forward(self, x):
        h = self.norm(self.first(x)).relu()
        return {"left": self.left(h), "right": self.right(h)}


class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Linear(40, 3))

    def forward(self, x):
        return {"left": self.layers(x)}


def loss(out, turn):
    """On some ranks and in some steps, the loss depends on one of the results alone."""
    parts = list(out.values())
    if len(parts) == 2 and (turn + rank) % 3 == 0:
        parts = parts[turn % 2 :][:1]
    return sum((part.square().mean() for part in parts), torch.zeros(()))


def mean(group, bucket):
    return dist.all_reduce(bucket.buffer() / size, group=group, async_op=True).get_future().then(lambda f: f.value()[0])


def train(make, how, hook=None, compiled_inside=False, **options):
    torch.manual_seed(rank)
    own = make()
    model = DistributedDataParallel(torch.compile(own) if compiled_inside else own, **options)
    if hook is not None:
        model.register_comm_hook(None, hook)
    call = how(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    data, found = torch.Generator().manual_seed(7 + rank), []
    for turn in range(12):
        if turn % 4 != 3:
            optimizer.zero_grad(set_to_none=not options.get("gradient_as_bucket_view"))
        x = torch.randn(6, 5, generator=data)
        with model.no_sync() if turn % 4 == 2 else contextlib.nullcontext():
            out = call(x)
            loss(out, turn).backward()
        if turn % 4 != 2:
            optimizer.step()
        grads = [p.grad for p in model.parameters()]
        found.append(bits([out, grads, list(model.parameters()), list(model.buffers())]))
    found.append([[b.indices for b in model.reducer.buckets], model.reducer.passes])
    if options.get("gradient_as_bucket_view"):
        assert all(p.grad is v for b in model.reducer.buckets for p, v in zip(b.parameters, b.views, strict=True))
    return found, call


def in_place(model):
    model.compile()
    return model


for make, options in [
    (Chain, {}),
    (Chain, {"bucket_cap_mb": 0.0001}),
    (Chain, {"gradient_as_bucket_view": True}),
    (Chain, {"static_graph": True}),
    (Chain, {"hook": mean, "bucket_cap_mb": 0.0001}),
    (Chain, {"broadcast_buffers": False}),
    (Branches, {"find_unused_parameters": True}),
    (Branches, {"find_unused_parameters": True, "bucket_cap_mb": 0.0001}),
]:
    expected, _ = train(make, lambda model: model, **options)
    found, call = train(make, torch.compile, **options)
    assert found == expected, options
    assert call._region.plans == 1 and call._orig_mod.module.__class__ is make, call._region.explain()
    found, call = train(make, in_place, **options)
    assert found == expected and call.__dict__["_compiled_call_impl"].plans == 1, options
    found, call = train(make, lambda model: model, compiled_inside=True, **options)
    assert found == expected and call.module._region.plans == 1, options
print("done")
dist.destroy_process_group()
