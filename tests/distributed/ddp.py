"""What every rank runs for `test_ddp.py`: trains on its part of each batch, and compares with the whole batch."""

import copy

import tensorgrad as torch
import tensorgrad.distributed as dist
from tensorgrad.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()


class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.other, self.never = (torch.nn.Linear(5, 3) for _ in range(3))

    def forward(self, x, other=False):
        return {"out": (self.used(x) + (self.other(x) if other else 0),)}


def mean(group, bucket):
    return dist.all_reduce(bucket.buffer() / size, group=group, async_op=True).get_future().then(lambda f: f.value()[0])


def train(accumulate=1, hook=None, **options):
    torch.manual_seed(rank)  # other weights on each rank: those of rank 0 are sent to all
    own = torch.nn.Sequential(torch.nn.Linear(5, 40), torch.nn.Tanh(), torch.nn.Linear(40, 3)).double()
    model = DistributedDataParallel(own, **options)
    whole = copy.deepcopy(own)
    if hook:
        model.register_comm_hook(None, hook)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (model, whole)]
    data = torch.Generator().manual_seed(7)
    for _ in range(4):
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=not options.get("gradient_as_bucket_view"))
        for part in range(accumulate):
            x = torch.randn(6 * size, 5, generator=data, dtype=torch.float64)
            whole(x).square().mean().backward()
            if part + 1 < accumulate:
                with model.no_sync():
                    model(x[rank::size]).square().mean().backward()
            else:
                model(x[rank::size]).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
        for mine, reference in zip(model.parameters(), whole.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, reference.grad, rtol=0, atol=1e-12)
            torch.testing.assert_close(mine, reference, rtol=0, atol=1e-12)
    return model


model = train()
assert next(iter(model.state_dict())) == "module.0.weight" and model.reducer.rebuilt
many = train(bucket_cap_mb=0.0001)
assert len(many.reducer.buckets) > 1
views = train(gradient_as_bucket_view=True)
assert all(p.grad is v for b in views.reducer.buckets for p, v in zip(b.parameters, b.views))
train(accumulate=3)
train(hook=mean)

model = DistributedDataParallel(Branches(), find_unused_parameters=True)
for _ in range(2):
    model.zero_grad()
    model(torch.ones(2, 5), other=rank == 0)["out"][0].sum().backward()
    assert model.module.never.weight.grad is None
    assert torch.allclose(model.module.used.weight.grad, torch.full((3, 5), 2.0))
    assert torch.allclose(model.module.other.weight.grad, torch.full((3, 5), 2.0 / size))

model = DistributedDataParallel(Branches())
model(torch.ones(2, 5))["out"][0].sum().backward()
try:
    model(torch.ones(2, 5))
    raise AssertionError("no error")
except RuntimeError as error:
    assert str(error).startswith("Expected to have finished reduction in the prior iteration"), error
print("done", flush=True)
dist.destroy_process_group()
