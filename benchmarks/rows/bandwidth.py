"""Kernels that are limited by memory bandwidth, on arrays too large for any cache.

`moved` is the minimum number of bytes that must cross the memory bus: every input is read once and every result written
once. A copy moves bytes as fast as the machine can, so the other rows are compared with it.
"""

from __future__ import annotations

from benchmarks.rows import Row, drawn, forward, forward_backward, placed
from benchmarks.rows.layers import cross_entropy, embedding

COPY = "copy 64 M float32"
WIDTH = {"float32": 4, "bfloat16": 2}


def passes(count: float):
    """Returns `moved` for a row that moves each element of its largest array `count` times."""

    def moved(dtype: str = "float32", **sizes):
        elements = 1
        for size in sizes.values():
            elements *= size
        return int(count * elements * WIDTH[dtype])

    return moved


def of(function, leaf: bool = False, operands: int = 1):
    """Returns a row's `make` for a function of tensors with one shape; with `leaf`, the first one requires grad."""

    def make(torch, dtype: str = "float32", **sizes):
        x, *others = (
            drawn(torch, *sizes.values(), seed=seed, requires_grad=leaf and seed == 0, dtype=dtype)
            for seed in range(operands)
        )
        return lambda: function(torch, x, *others), [x]

    return make


def of_module(make_module):
    """Returns a row's `make` for the module that `make_module(torch, **sizes)` creates."""

    def make(torch, dtype: str = "float32", **sizes):
        module = placed(make_module(torch, **sizes)).to(getattr(torch, dtype))
        x = drawn(torch, *sizes.values(), requires_grad=True, dtype=dtype)
        return lambda: module(x), [x, *module.parameters()]

    return make


def no_graph(make):
    """Returns the build function of a row that records no graph."""

    def build(torch, **sizes):
        torch.manual_seed(0)
        function, _ = make(torch, **sizes)

        def step():
            with torch.no_grad():
                return function()

        return step, lambda: [step()]

    return build


def into(function):
    """Returns the build function of a row that writes into an existing tensor."""

    def build(torch, size: int, dtype: str = "float32"):
        x, y = drawn(torch, size, dtype=dtype), drawn(torch, size, seed=1, dtype=dtype)
        return lambda: function(x, y), lambda: [function(x, y)]

    return build


def stepping(make_optimizer):
    """Returns the build function of an optimizer step over several large parameters."""

    def build(torch, tensors: int, size: int):
        parameters = [torch.nn.Parameter(drawn(torch, size, seed=i)) for i in range(tensors)]
        for i, parameter in enumerate(parameters):
            parameter.grad = drawn(torch, size, seed=100 + i)
        optimizer = make_optimizer(torch, parameters)

        def results():
            optimizer.step()
            optimizer.step()
            return [parameter.detach() for parameter in parameters]

        return optimizer.step, results

    return build


def clipping(torch, tensors: int, size: int):
    """Clips gradients to norm 1."""
    parameters = [torch.nn.Parameter(drawn(torch, size, seed=i)) for i in range(tensors)]
    for i, parameter in enumerate(parameters):
        parameter.grad = drawn(torch, size, seed=100 + i)

    def step():
        return torch.nn.utils.clip_grad_norm_(parameters, 1.0)

    return step, lambda: [step(), *(parameter.grad for parameter in parameters)]


LINE, MATRIX = {"size": 1 << 26}, {"rows": 1 << 14, "columns": 1 << 12}
WIDE, TALL = {"rows": 1 << 10, "columns": 1 << 16}, {"rows": 1 << 20, "columns": 1 << 6}
IMAGES = {"batch": 256, "channels": 64, "height": 64, "width": 64}
SCORES = {"rows": 4096, "classes": 50257}
MANY = {"tensors": 16, "size": 1 << 22}
HALF = {"dtype": "bfloat16"}


def pointwise() -> list[Row]:
    """Pointwise ops."""
    relu = no_graph(of(lambda torch, x: torch.relu(x)))
    gelu = no_graph(of(lambda torch, x: torch.nn.functional.gelu(x)))
    add = no_graph(of(lambda torch, x, y: x + y, operands=2))
    rows = [
        Row(COPY, into(lambda x, y: y.copy_(x)), LINE, moved=passes(2)),
        Row("add 64 M", add, LINE, moved=passes(3)),
        Row("add 64 M, bfloat16", add, LINE | HALF, tolerance=1e-2, moved=passes(3)),
        Row("mul by a number, in place, 64 M", into(lambda x, y: x.mul_(1.0)), LINE, moved=passes(2)),
        Row("exp 64 M", no_graph(of(lambda torch, x: x.exp())), LINE, moved=passes(2)),
        Row("relu 64 M", relu, LINE, moved=passes(2)),
        Row("GELU 64 M", gelu, LINE, moved=passes(2)),
        Row("GELU 64 M, bfloat16", gelu, LINE | HALF, tolerance=1e-2, moved=passes(2)),
        Row("add a row, 16384×4096", no_graph(of(lambda torch, x: x + x[0])), MATRIX, moved=passes(2)),
        Row("to bfloat16, 64 M", no_graph(of(lambda torch, x: x.bfloat16())), LINE, tolerance=1e-2, moved=passes(1.5)),
    ]
    back = forward_backward(of(lambda torch, x: torch.nn.functional.gelu(x), leaf=True))
    return [*rows, Row("GELU 64 M, forward and backward", back, LINE, moved=passes(5))]


def reductions() -> list[Row]:
    """Reductions along each dimension; softmax and norms."""
    found = []
    for name, function in (
        ("sum", lambda torch, x, dim: x.sum(dim)),
        ("amax", lambda torch, x, dim: x.amax(dim)),
        ("var", lambda torch, x, dim: x.var(dim)),
    ):
        rows, columns = (no_graph(of(lambda torch, x, f=function, d=dim: f(torch, x, d))) for dim in (-1, 0))
        found.append(Row(f"{name} of rows, 16384×4096", rows, MATRIX, tolerance=1e-3, moved=passes(1)))
        found.append(Row(f"{name} of columns, 16384×4096", columns, MATRIX, tolerance=1e-3, moved=passes(1)))
    found.append(Row("mean of all, 64 M", no_graph(of(lambda torch, x: (x * x).mean())), LINE, moved=passes(3)))
    softmax = of(lambda torch, x: x.softmax(-1), leaf=True)
    for title, sizes in (("16384×4096", MATRIX), ("1024×65536", WIDE), ("1048576×64", TALL)):
        found.append(Row(f"softmax {title}", forward(softmax), sizes, moved=passes(2)))
    found += [
        Row("softmax 16384×4096, bfloat16", forward(softmax), MATRIX | HALF, tolerance=1e-2, moved=passes(2)),
        Row("softmax 16384×4096, forward and backward", forward_backward(softmax), MATRIX, moved=passes(5)),
    ]
    layer_norm = of_module(lambda torch, rows, columns: torch.nn.LayerNorm(columns))
    rms_norm = of_module(lambda torch, rows, columns: torch.nn.RMSNorm(columns))
    batch_norm = of_module(lambda torch, batch, channels, height, width: torch.nn.BatchNorm2d(channels))
    for name, make, sizes, there, back in (
        # Batch norm needs the mean of all values before it can write the first, so it reads its input twice.
        ("LayerNorm 16384×4096", layer_norm, MATRIX, 2, 3),
        ("RMSNorm 16384×4096", rms_norm, MATRIX, 2, 3),
        ("BatchNorm2d 256×64×64²", batch_norm, IMAGES, 3, 5),
    ):
        found.append(Row(f"{name}, forward", forward(make), sizes, tolerance=1e-3, moved=passes(there)))
        found.append(
            Row(f"{name}, forward and backward", forward_backward(make), sizes, None, 1e-3, moved=passes(there + back))
        )
    return found


def losses_and_tables() -> list[Row]:
    """Cross-entropy and embedding."""
    entries = {"entries": 50257, "width": 768, "batch": 64, "length": 1024}

    def looked_up(entries: int, width: int, batch: int, length: int) -> int:
        return 2 * 4 * batch * length * width

    def looked_up_and_back(entries: int, width: int, batch: int, length: int) -> int:
        return looked_up(entries, width, batch, length) + 4 * width * (batch * length + entries)

    return [
        Row("CrossEntropy 4096×50257, forward", forward(cross_entropy), SCORES, heavy=True, moved=passes(1)),
        Row(
            "CrossEntropy 4096×50257, forward and backward",
            forward_backward(cross_entropy),
            SCORES,
            heavy=True,
            moved=passes(3),
        ),
        Row("Embedding 50257×768, 64×1024 numbers, forward", forward(embedding), entries, moved=looked_up),
        Row(
            "Embedding 50257×768, 64×1024 numbers, forward and backward",
            forward_backward(embedding),
            entries,
            moved=looked_up_and_back,
        ),
    ]


def optimizers() -> list[Row]:
    """Optimizer steps over 64 M parameters, and gradient clipping."""
    return [
        Row(
            "SGD with momentum, 64 M",
            stepping(lambda torch, parameters: torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)),
            MANY,
            moved=passes(5),
        ),
        Row(
            "AdamW, 64 M",
            stepping(lambda torch, parameters: torch.optim.AdamW(parameters, lr=1e-3)),
            MANY,
            moved=passes(7),
        ),
        Row("clip_grad_norm_, 64 M", clipping, MANY, moved=passes(3)),
    ]


ROWS = [*pointwise(), *reductions(), *losses_and_tables(), *optimizers()]
