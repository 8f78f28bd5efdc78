"""Functional collectives, `local_map`, `replicate`: `python functional_cases.py tensorgrad|torch`, several times.

Every rank prints its results as JSON. They are compared with those of PyTorch's own gloo group.
"""

import json
import sys
import warnings
from importlib import import_module

from tests.distributed.ending import end

LIBRARY = sys.argv[1]
torch = import_module(LIBRARY)
dist = import_module(f"{LIBRARY}.distributed")
functional = import_module(f"{LIBRARY}.distributed._functional_collectives")
tensor = import_module(f"{LIBRARY}.distributed.tensor")
experimental = import_module(f"{LIBRARY}.distributed.tensor.experimental")
replicate = import_module(f"{LIBRARY}.distributed._composable").replicate

warnings.simplefilter("ignore")
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
world, mesh = dist.group.WORLD, dist.init_device_mesh("cpu", (size,))
CASES = {}


def case(function):
    CASES[function.__name__] = function


def plain(value):
    """Something that JSON can hold."""
    if isinstance(value, torch.Tensor):
        return [list(value.shape), value.detach().double().tolist()]
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value if isinstance(value, (int, float, str, bool, type(None))) else str(value).replace(LIBRARY, "torch")


def fails(function):
    """The type and the first line of the error of a call; nothing must have been sent."""
    try:
        function()
    except Exception as error:
        return [type(error).__name__, str(error).split("\n")[0].replace(LIBRARY, "torch")]
    return "no error"


def x(*shape):
    count = 1
    for length in shape:
        count *= length
    return (torch.arange(count, dtype=torch.float64).reshape(shape) + 1) * (rank + 1)


@case
def every_form():
    return [
        functional.all_reduce(x(3), "sum", world).wait(),
        functional.all_reduce(x(3), "MAX", mesh).wait(),
        functional.all_reduce(x(2, 3).t(), "avg", (mesh, 0)).wait(),
        functional.all_reduce(x(3), "product", [*range(size)]).wait(),
        functional.all_reduce(x(3), "min", world.group_name if LIBRARY == "torch" else world).wait(),
        functional.broadcast(x(2), size - 1, world).wait(),
        functional.all_gather_single(x(2, 3), 0, world).wait(),
        functional.wait_tensor(functional.all_gather_tensor(x(2, 3), 1, world)),
        functional.reduce_scatter_single(x(2 * size, 2), "sum", 0, world).wait(),
        functional.wait_tensor(functional.reduce_scatter_tensor(x(2, 2 * size), "max", 1, world)),
        functional.all_to_all_single(x(2 * size, 2), None, None, world).wait(),
        functional.all_to_all_single(
            x(sum(range(1, size + 1))), [rank + 1] * size, list(range(1, size + 1)), world
        ).wait(),
        functional.permute_tensor(x(2), [(r + 1) % size for r in range(size)], world).wait(),
        [t.wait() for t in functional.all_reduce_coalesced([x(2), x(3)], "sum", world)],
        [t.wait() for t in functional.all_gather_single_coalesced([x(2), x(3)], world)],
        [t.wait() for t in functional.reduce_scatter_single_coalesced([x(size), x(1, size)], "sum", [0, 1], world)],
    ]


@case
def results_wait_at_the_first_use():
    result = functional.all_reduce(x(4), "sum", world)
    kind = type(result).__name__, isinstance(result, torch.Tensor), list(result.shape), str(result.dtype)[-7:]
    before = result.completed
    added = result + 1
    others = functional.all_reduce(added, "sum", world)  # a result as an argument
    chained = functional.all_reduce(functional.all_reduce(x(2), "sum", world), "sum", world)
    return [
        kind, before, type(added).__name__, added, result.completed, type(result.wait()).__name__, others.tolist(),
        chained.numpy().tolist(), type(torch.stack([result, result])).__name__, float(functional.all_reduce(
            torch.ones(()), "sum", world)), functional.wait_tensor(added),
    ]  # fmt: skip


@case
def gradients():
    def of(function, *shape):
        leaf = x(*shape).requires_grad_()
        result = function(leaf)
        (result**2 * (rank + 1)).sum().backward()
        return [result.detach() + 0, leaf.grad]

    return [
        of(lambda t: functional.all_reduce(t, "sum", world), 3),
        of(lambda t: functional.all_gather_single(t, 0, world), 2, 3),
        of(lambda t: functional.all_gather_single_autograd(t, 1, world), 2, 3),
        of(lambda t: functional.reduce_scatter_single_autograd(t, "sum", 0, world), 2 * size, 2),
        of(lambda t: functional.reduce_scatter_single(t, "sum", 1, world), 2, 2 * size),
        of(lambda t: functional.all_to_all_single_autograd(t, None, None, world), 2 * size),
    ]


@case
def written_in_place():
    a, b, c, d = x(2), torch.zeros(2 * size, dtype=torch.float64), torch.zeros(2, dtype=torch.float64), x(size)
    functional.all_reduce_inplace(a, "sum", world)
    functional.all_gather_tensor_inplace(b, x(2), world)
    functional.reduce_scatter_tensor_inplace(c, x(2 * size), "sum", world)
    functional.all_to_all_inplace(d, x(size), None, None, world)
    rows = [torch.zeros(2, dtype=torch.float64) for _ in range(size)]
    functional.all_gather_inplace(rows, x(2), world)
    return [a, b, c, d, rows]


@case
def errors():
    grid = dist.init_device_mesh("cpu", (size, 1))
    y = x(size + 1).requires_grad_()
    return [
        fails(lambda: functional.all_reduce(y, "none", world)),
        fails(lambda: functional.all_reduce(y, "sum", "none")),
        fails(lambda: functional.all_reduce(y, "sum", 3)),
        fails(lambda: functional.all_reduce(y, "sum", (3, 4))),
        fails(lambda: functional.all_reduce(y, "sum", grid)),
        fails(lambda: functional.all_reduce(y, "sum", [9]))[0],
        fails(lambda: functional.reduce_scatter_single(y, "sum", 0, world)),
        fails(lambda: functional.reduce_scatter_single_coalesced([y], "sum", [0, 1], world)),
        fails(lambda: functional.all_to_all_single(y, [1], None, world)),
        fails(lambda: functional.all_to_all_single(y, ["1"], [1], world)),
        fails(lambda: functional.all_reduce_inplace(y, "sum", world, async_op=True)),
        fails(lambda: functional.all_reduce(y, "product", world).sum().backward()),
        fails(lambda: functional.reduce_scatter_single(x(size).requires_grad_(), "max", 0, world).sum().backward()),
    ]


@case
def functions_on_pieces():
    Replicate, Shard = tensor.Replicate, tensor.Shard
    rows, columns = [Shard(0)], [Shard(1)]
    w, v = torch.arange(24.0).reshape(6, 4), torch.arange(12.0).reshape(4, 3)

    def product(device_mesh, a, b):
        return functional.all_reduce(a @ b, "sum", device_mesh)

    mm = experimental.local_map(product, [Replicate()], (None, columns, rows), device_mesh=mesh)
    a, b = tensor.distribute_tensor(w, mesh, columns), tensor.distribute_tensor(v, mesh, rows)
    result = mm(mesh, a, b)

    @experimental.local_map(out_placements=(rows, None), in_placements=(rows, None), redistribute_inputs=True)
    def with_text(t, text):
        return t * 2, text

    doubled, text = with_text(a, "text")
    leaf = tensor.distribute_tensor(w, mesh, rows).requires_grad_()
    grads = experimental.local_map(lambda t, s: t * s, [Shard(0)], (rows, None), (rows, None))(leaf, 3.0)
    grads.to_local().sum().backward()
    strict = experimental.local_map(lambda t: t, rows, (rows,))
    return [
        result.placements, result.to_local(), doubled.placements, doubled.full_tensor(), text,
        leaf.grad.full_tensor(), strict(v), fails(lambda: strict(a))[0],
        fails(lambda: experimental.local_map(lambda t: t, rows, (rows, rows))(a)),
        fails(lambda: experimental.local_map(lambda t: (t, t), rows)(a))[0],
        fails(lambda: experimental.local_map(lambda t: 3, (rows,))(a)),
    ]  # fmt: skip


@case
def ordinary_tensors_among_distributed_ones():
    a = tensor.distribute_tensor(torch.arange(8.0).reshape(4, 2), mesh, [tensor.Shard(0)])
    b = torch.ones(4, 2, requires_grad=True)
    refused = fails(lambda: a + b)[0]
    with experimental.implicit_replication():
        result = a + b
        product = a @ torch.ones(2, 3)
        (result * result).sum().backward()
    return [refused, fails(lambda: a + b)[0], result.placements, result.full_tensor(), product.full_tensor()]


@case
def rules_for_operators_of_a_library():
    @torch.library.custom_op("mine::scaled", mutates_args=())
    def scaled(x: torch.Tensor, y: torch.Tensor, factor: float) -> torch.Tensor:
        return x * factor + y.sum()

    @scaled.register_fake
    def _(x, y, factor):
        return torch.empty_like(x)

    @experimental.register_sharding(torch.ops.mine.scaled.default)
    def ways(x, y, factor):
        whole = [tensor.Replicate()]
        return [(whole, [*whole, *whole, None])] + [([tensor.Shard(d)], [tensor.Shard(d), *whole, None]) for d in
                                                    range(x.ndim)]  # fmt: skip

    found = []
    for places in ([tensor.Shard(0)], [tensor.Shard(1)], [tensor.Replicate()]):
        a = tensor.distribute_tensor(torch.arange(12.0).reshape(4, 3), mesh, places)
        b = tensor.distribute_tensor(torch.ones(5), mesh, [tensor.Shard(0)])
        result = torch.ops.mine.scaled(a, b, 2.0)
        found.append([result.placements, list(result.to_local().shape), result.full_tensor()])
    return found


@case
def replicated_modules():
    nn = torch.nn

    def model():
        torch.manual_seed(0)
        made = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2), nn.Linear(2, 2)).double()
        with torch.no_grad():
            for number, p in enumerate(made.parameters()):
                p.copy_(torch.arange(p.numel(), dtype=torch.float64).reshape(p.shape) / 10 - 0.1 * number)
        return made

    batch = torch.arange(6.0 * size, dtype=torch.float64).reshape(2 * size, 3) / 10
    whole = model()
    whole(batch).pow(2).mean().backward()
    made, found = replicate(model(), ignored_modules=()), []
    own = batch[2 * rank : 2 * rank + 2]
    for _ in range(2):
        made.zero_grad()
        made(own).pow(2).mean().backward()
        found.append(all(torch.allclose(p.grad, q.grad) for p, q in zip(made.parameters(), whole.parameters())))
    made.zero_grad()
    made.set_requires_gradient_sync(False)
    made(own).pow(2).mean().backward()
    found.append(any(torch.allclose(p.grad, q.grad) for p, q in zip(made.parameters(), whole.parameters())))
    made.set_requires_gradient_sync(True)
    made(own).pow(2).mean().backward()
    totals = [round(p.grad.sum().item(), 9) for p in made.parameters()]
    part = model()
    replicate(part, ignored_modules=[part[3]])
    part(own).pow(2).mean().backward()
    return [
        found, totals, type(made).__name__, list(made.state_dict()), isinstance(made, nn.Sequential),
        type(made[:1]).__name__, round(part[3].weight.grad.sum().item(), 9), round(part[0].weight.grad.sum().item(), 9),
        fails(lambda: replicate(made))[0], fails(lambda: replicate(model(), device_id="cpu")),
        fails(lambda: __import__("copy").deepcopy(made)),
    ]  # fmt: skip


print(json.dumps({name: plain(function()) for name, function in CASES.items()}))
end(dist)
