"""Ops on distributed tensors under many placements: results and gradients are those of ordinary tensors."""

import itertools
import random

import tensorgrad as torch
import tensorgrad.distributed as dist
import tensorgrad.nn.functional as F
from tensorgrad.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from tensorgrad.distributed.tensor._dtensor_spec import DTensorSpec
from tensorgrad.distributed.tensor._redistribute import redistribute_local_tensor
from tensorgrad.distributed.tensor.dtensor import as_dtensor

dist.init_process_group("gloo")
size = dist.get_world_size()
mesh = dist.init_device_mesh("cpu", (2, 2) if size == 4 else (size,))
torch.set_default_dtype(torch.float64)

CASES = {
    "linear": (lambda x, w, b: F.linear(x, w, b), (5, 3, 7), (4, 7), (4,)),
    "matmul": (lambda x, w: torch.matmul(x, w), (5, 7), (7, 4)),
    "stacks": (lambda x, w: x @ w, (3, 5, 7), (3, 7, 4)),
    "broadcast": (lambda x, y: x * y + y / 2 - x, (5, 3, 7), (3, 1)),
    "terms": (lambda x, y: (x + y) * 3, (5, 7), (5, 7)),
    "means": (lambda x: x.mean((0,)) + x.sum(0), (5, 7)),
    "softmax": (lambda x: torch.softmax(x, -1), (5, 7)),
    "transpose": (lambda x: x.transpose(0, 1) * 2, (5, 7, 2)),
    "std": (lambda x: (x.relu() - x.tanh()).std(0), (5, 7)),
    "norm": (lambda x: x.norm(), (5, 7)),
    "cat": (lambda x, y: torch.cat([x, y])[1:], (5, 7), (3, 7)),
    "amax": (lambda x: (x**2).amax(1), (5, 7)),
}


def placed(x, placements):
    """A tensor that all ranks have, under other placements, with gradients."""
    spec = DTensorSpec(mesh, (Replicate(),) * mesh.ndim, tuple(x.shape))
    return as_dtensor(redistribute_local_tensor(x, spec, placements), spec.with_placements(placements))


for name, (function, *shapes) in CASES.items():
    torch.manual_seed(0)
    given = [torch.randn(shape) for shape in shapes]
    plain = [x.clone().requires_grad_() for x in given]
    wanted = function(*plain)
    weights = torch.randn(wanted.shape)
    (wanted * weights).sum().backward()
    single = [[Replicate(), Partial(), *map(Shard, range(len(shape)))] for shape in shapes]
    options = [list(itertools.product(places, repeat=mesh.ndim)) for places in single]
    combinations = list(itertools.product(*options))
    random.Random(0).shuffle(combinations)
    for placements in combinations[:12]:
        leaves = [x.clone().requires_grad_() for x in given]
        result = function(*map(placed, leaves, placements))
        assert isinstance(result, DTensor) and result.shape == wanted.shape, (name, placements)
        whole = result.full_tensor()
        assert torch.allclose(whole, wanted, rtol=0, atol=1e-12), (name, placements)
        (whole * weights).sum().backward()
        for leaf, other in zip(leaves, plain):
            assert torch.allclose(leaf.grad, other.grad, rtol=0, atol=1e-12), (name, placements)

# reductions of some elements, and those that take a dtype
x = torch.arange(35.0).reshape(5, 7).sin()
masks = torch.arange(35).reshape(5, 7) % 3 > 0
calls = {name: (getattr(torch.masked, name), (), {}) for name in ("sum", "prod", "amax", "amin", "mean", "var", "std")}
along = ["softmax", "softmin", "log_softmax", "cumsum", "cumprod", "argmax", "argmin", "median"]
calls |= {name: (getattr(torch.masked, name), (1,), {}) for name in along}
calls |= {name: (getattr(torch.masked, name), (2.0, 0), {}) for name in ("norm", "normalize")}
calls["to float32"] = torch.masked.sum, (0,), {"keepdim": True, "dtype": torch.float32}
for placements in itertools.product([Replicate(), Shard(0), Shard(1)], repeat=mesh.ndim):
    given = distribute_tensor(x, mesh, placements)
    for name, (function, args, options) in calls.items():
        for mask in (None, masks):
            wanted = function(x, *args, **options, mask=mask)
            placed_mask = None if mask is None else distribute_tensor(mask, mesh, placements)
            result = function(given, *args, **options, mask=placed_mask)
            assert isinstance(result, DTensor) and result.dtype == wanted.dtype, (name, placements)
            assert torch.allclose(result.full_tensor(), wanted, rtol=1e-12, atol=1e-6), (name, placements)
    for function in (lambda x: x.sum(1, dtype=torch.float32), lambda x: torch.cumsum(x, 0, dtype=torch.float32)):
        result, wanted = function(given), function(x)
        assert result.dtype == wanted.dtype and torch.allclose(result.full_tensor(), wanted, atol=1e-5), placements

# redistribution: every pair of placements of one tensor, with uneven pieces
x = torch.arange(35.0).reshape(5, 7)
places = list(itertools.product([Replicate(), Shard(0), Shard(1)], repeat=mesh.ndim))
for before, after in itertools.product(places, places):
    moved = distribute_tensor(x, mesh, before).redistribute(placements=after)
    assert torch.equal(moved.full_tensor(), x), (before, after)
    assert torch.equal(moved.to_local(), distribute_tensor(x, mesh, after).to_local()), (before, after)

# on another device, or of another dtype, a tensor stays distributed
for placements in places:
    given = distribute_tensor(x, mesh, placements).requires_grad_()
    assert given.cpu() is given and given.to("cpu") is given
    for moved in (given.to("meta"), given.to(torch.float32), given.to("cpu", torch.float32), given.to(device="meta")):
        assert isinstance(moved, DTensor) and moved.placements == given.placements and moved.shape == given.shape
    assert given.to("meta").is_meta and given.to(torch.float32).dtype is torch.float32
    given.to(torch.float32).sum().backward()
    assert given.grad.placements == given.placements and torch.equal(given.grad.full_tensor(), torch.ones(5, 7))

# parameters, gradients and optimizer state
w = torch.nn.Parameter(distribute_tensor(torch.ones(5, 3), mesh, [Shard(0)] + [Replicate()] * (mesh.ndim - 1)))
assert isinstance(w, torch.nn.Parameter) and isinstance(w, DTensor) and w.requires_grad
(w * 2).sum().backward()
assert w.grad.placements == w.placements and torch.equal(w.grad.full_tensor(), torch.full((5, 3), 2.0))
adam = torch.optim.Adam([w])
adam.step()
assert adam.state[w]["exp_avg"].placements == w.placements
# operators that write
for operator in ("+=", "-=", "*=", "/=", "//=", "%=", "**=", "&=", "|=", "^=", "<<=", ">>="):
    wanted = torch.arange(1, 6) if operator in ("&=", "|=", "^=", "<<=", ">>=") else torch.arange(1.0, 6.0)
    given = distribute_tensor(wanted, mesh, [Shard(0)] + [Replicate()] * (mesh.ndim - 1))
    names = {"x": given, "y": wanted.clone()}
    exec(f"x {operator} 2\ny {operator} 2", names)
    assert names["x"] is given and given.placements[0] == Shard(0), operator
    assert torch.equal(given.full_tensor(), names["y"]), operator

mask = distribute_tensor(torch.ones(5, 3, dtype=torch.bool), mesh, [Replicate()] * mesh.ndim)
for mixes in (
    lambda: w + torch.ones(5, 3),
    lambda: torch.ones(5, 3).copy_(w.detach()),
    lambda: torch.ones(5, 3).__setitem__(slice(None), w.detach()),
    lambda: torch.ones(5, 3).__setitem__(mask, 2.0),
    lambda: torch.ones(5, 3).masked_scatter_(mask, torch.ones(5, 3)),
):
    try:
        mixes()
    except RuntimeError as error:
        assert "got mixed torch.Tensor and DTensor" in str(error)
    else:
        raise AssertionError("ordinary and distributed tensors do not mix")
dist.destroy_process_group()
