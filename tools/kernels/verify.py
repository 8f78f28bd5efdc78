"""Compares kernels with NumPy's, each in a small program.

    python -m tools.kernels.verify [FOLDER]     all kernels of the level that this process uses

TENSORGRAD_CPU names another level. FOLDER has files of kernels, instead of the package's own.

A compiler may be wrong, and a processor may not be what it reports.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np

from tensorgrad.kernels.compiled.runtime import library
from tensorgrad.rows import kernel_tables
from tensorgrad.settings import SETTINGS


@functools.cache
def _numbers(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _normal(*shape: int, seed: int = 0, grad: bool = True) -> Any:
    import tensorgrad as torch

    return torch.tensor(_numbers(shape, seed + sum(shape)), requires_grad=grad)


def _whole(high: int, *shape: int) -> Any:
    import tensorgrad as torch

    return torch.tensor(np.random.default_rng(high).integers(0, high, shape))


def _two_bytes() -> list[Any]:
    """The dtypes of two bytes that there are: NumPy has no bfloat16."""
    import tensorgrad as torch

    return [torch.float16, torch.bfloat16][: 1 + (find_spec("ml_dtypes") is not None)]


def _back(result: Any, *inputs: Any) -> list[Any]:
    """Returns a result and the gradients of its inputs."""
    (result * _normal(*result.shape, seed=1, grad=False)).sum().backward()
    return [result, *(x.grad for x in inputs)]


def _each(functions: str, *shapes: tuple) -> Callable[[], list[Any]]:
    """Calls functions of `torch` or methods on tensors of these shapes, forward and backward."""

    def program() -> list[Any]:
        import tensorgrad as torch

        found = []
        for name in functions.split():
            inputs = [_normal(*shape, seed=n) for n, shape in enumerate(shapes)]
            function = getattr(torch, name, None) or getattr(torch.nn.functional, name)
            found += _back(function(*inputs), *inputs)
        return found

    return program


def _ufuncs() -> list[Any]:
    import tensorgrad as torch

    x, y = _normal(48, 40, grad=False), _normal(48, 40, seed=1, grad=False)
    found: list[Any] = []
    for name in ["neg", "abs", "sin", "cos", "exp2", "tanh", "expm1", "square"]:
        found.append(getattr(torch, name)(x))
    for name in ["sqrt", "reciprocal", "log", "log2", "log10", "log1p"]:
        found.append(getattr(torch, name)(x.abs() + 0.5))
    for name in ["maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "mul", "div"]:
        found += [getattr(torch, name)(x, y), getattr(torch, name)(x, y[:1]), getattr(torch, name)(x, y[:, :1])]
    found.append(torch.square(_normal(300, 300, grad=False)))  # shared among threads from this size on
    a, b = x > 0, y > 0
    return [*found, a & b, torch.logical_and(a, b), torch.logical_or(a, b), torch.logical_not(a), x**2, x.abs() ** 0.5]


def _choices() -> list[Any]:
    import tensorgrad as torch

    x, y = _normal(30, 17, grad=False), _normal(30, 17, seed=1, grad=False)
    return [torch.where(x > 0, x, y), x.masked_fill(y > 0, 3.0), x.masked_fill(y[:1] > 0, 3.0)]


def _joint() -> list[Any]:
    """Arithmetic as a chain launches it."""
    x, y, found = _numbers((30, 17), 0), _numbers((30, 17), 1), []
    functions = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.true_divide}
    for name, function in functions.items():
        made = kernel_tables.run_compiled(f"joint_{name}", x.size, x, y)
        found.append(function(x, y) if made is NotImplemented else made)
    return found


def _steps(name: str, kernel: str = "", **options: Any) -> Callable[[], list[Any]]:
    def program() -> list[Any]:
        import tensorgrad as torch

        x = _normal(37, 11).detach().requires_grad_()
        optimizer = getattr(torch.optim, name)([x], lr=0.1, **options)
        optimizer._kernel_name = kernel or optimizer._kernel_name
        for n in range(3):
            x.grad = _normal(37, 11, seed=n, grad=False)
            optimizer.step()
        return [x.detach()]

    return program


def _clipped() -> list[Any]:
    import tensorgrad as torch

    x = _normal(37, 11)
    x.grad = _normal(37, 11, seed=1, grad=False)
    return [torch.nn.utils.clip_grad_norm_([x], 1.0), x.grad]


def _random() -> list[Any]:
    import tensorgrad as torch

    torch.manual_seed(3)
    dropped = [torch.nn.functional.dropout(_normal(50, 60, grad=False), 0.3) for _ in range(2)]
    return [*dropped, torch.rand(5003), torch.empty(71, 72).uniform_(-0.7, 0.2), torch.randn(70, 71)]


def _rows() -> list[Any]:
    found = []
    for shape in ((9, 33), (5, 1, 7)):
        for name in ("softmax", "log_softmax"):
            x = _normal(*shape)
            found += _back(getattr(x, name)(-1), x)
    return found


def _places() -> list[Any]:
    import tensorgrad as torch

    x = _normal(9, 13)
    found = []
    for dim in (0, 1):
        at = _whole(9, 9, 13)
        found += _back(x.gather(dim, at), x)
        found.append(torch.zeros(9, 13).scatter_add(dim, at, x.detach()))
        order = torch.argsort(_normal(9, 13, seed=dim, grad=False), dim)
        found.append(torch.zeros(9, 13).scatter(dim, order, x.detach()))
        found.append(torch.zeros(9, 13).index_add(dim, _whole(9, 4), x.detach().narrow(dim, 0, 4)))
    return found


def _attention() -> list[Any]:
    import tensorgrad as torch

    found = []
    for causal in (False, True):
        q, k, v = (_normal(2, 3, 19, 8, seed=n) for n in range(3))
        found += _back(torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal), q, k, v)
    x = _normal(2, 19, 3 * 24)
    parts = [part.view(2, 19, 3, 8).transpose(1, 2) for part in x.split(24, 2)]
    found += _back(torch.nn.functional.scaled_dot_product_attention(*parts), x)
    q, k, v, mask = (_normal(2, 3, 19, 8, seed=n) for n in range(4))
    seen = (mask[:, :1, :1, :1] + torch.arange(19.0)).expand(2, 3, 19, 19)
    for mask in (seen < 9, seen):
        found += _back(torch.nn.functional.scaled_dot_product_attention(q, k, v, mask.detach()), q, k, v)
    return found


def _attention_in_two_bytes() -> list[Any]:
    """Of float16 and bfloat16 (which NumPy does not have): with tiles, with single queries, with two blocks of keys."""
    import tensorgrad as torch

    found = []
    for dtype in _two_bytes():
        for length, source, width, causal in ((35, 35, 20, True), (19, 530, 8, False), (2, 19, 8, False)):
            shapes = ((2, 3, n, width) for n in (length, source, source))
            q, k, v, g = (
                _normal(*shape, seed=n).detach().to(dtype).requires_grad_()
                for n, shape in enumerate((*shapes, (2, 3, length, width)))
            )
            mask = None if causal else torch.arange(source) % 5 > 0
            made = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, 0.0, causal)
            found += [made, *torch.autograd.grad(made, (q, k, v), g.detach())]
    return found


def _convolutions() -> list[Any]:
    import tensorgrad as torch

    found = []
    cases: tuple[tuple[tuple, tuple, dict[str, Any]], ...] = (
        ((3, 4, 11, 9), (6, 4, 3, 3), {"padding": 1}),
        ((2, 4, 9, 9), (4, 2, 3, 2), {"stride": 2, "padding": 1, "groups": 2}),
        ((40, 3, 5, 5), (8, 3, 3, 3), {"dilation": 2}),
    )
    for dtype in (torch.float32, *_two_bytes()):
        for shape, window, options in cases:
            given = _normal(*shape), _normal(*window, seed=1), _normal(window[0], seed=2)
            x, w, b = (t.detach().to(dtype).requires_grad_() for t in given)
            found += _back(torch.nn.functional.conv2d(x, w, b, **options), x, w, b)
    x, w = _normal(2, 4, 6, 5), _normal(4, 3, 3, 3, seed=1)
    return found + _back(torch.nn.functional.conv_transpose2d(x, w, stride=2, padding=1), x, w)


def _products() -> list[Any]:
    import tensorgrad as torch

    found = []
    shapes = ((70, 130), (130, 135)), ((5, 67, 65), (5, 65, 69)), ((5, 67, 65), (65, 69)), ((5, 40, 1), (5, 1, 30))
    for a, b in shapes:
        inputs = _normal(*a), _normal(*b, seed=1)
        found += _back(inputs[0] @ inputs[1], *inputs)
    inputs = _normal(140, 130), _normal(130, 135, seed=1)
    found += _back(torch.mm(*inputs), *inputs)
    inputs = _normal(5, 67, 65), _normal(5, 65, 69, seed=1)
    found += _back(torch.bmm(*inputs), *inputs)
    for bias in ((), (_normal(10, seed=2),)):  # few numbers
        given = _normal(6, 37), _normal(10, 37, seed=1), *bias
        found += _back(torch.nn.functional.linear(*given), *given)
    for x in ((70, 130), (5, 14, 130)):
        given = _normal(*x), _normal(135, 130, seed=1), _normal(135, seed=2)
        found += _back(torch.nn.functional.linear(*given), *given)
    for rows in (2, 7):  # few rows, and weights that are not copied
        given = _normal(rows, 530), _normal(603, 530, seed=1), _normal(603, seed=2)
        found += _back(torch.nn.functional.linear(*given), *given)
        inputs = _normal(rows, 1030), _normal(1030, 603, seed=1)
        found += _back(inputs[0] @ inputs[1], *inputs) + _back(torch.mm(*inputs), *inputs)
    for dtype in _two_bytes():
        for rows in (1, 30):
            given = _normal(rows, 140, grad=False), _normal(60, 140, grad=False, seed=1), _normal(60, grad=False)
            found.append(torch.nn.functional.linear(*(x.to(dtype) for x in given)).float())
            found.append((given[0].to(dtype) @ given[1].to(dtype).t()).float())
    three = _normal(135, seed=3), _normal(70, 130), _normal(130, 135, seed=1)
    return found + _back(torch.addmm(*three), *three)


def _pools() -> list[Any]:
    import tensorgrad as torch

    F, found = torch.nn.functional, []
    for size, options in ((2, {}), (3, {"stride": 2, "padding": 1})):
        for function in (F.max_pool2d, F.avg_pool2d):
            x = _normal(3, 5, 12, 14)
            found += _back(function(x, size, **options), x)
        for dtype in (torch.float32, *_two_bytes()):
            found.append(F.max_pool2d(_normal(3, 5, 12, 14, grad=False).to(dtype), size, **options))
        x = _normal(3, 9, 12, 14)
        points = x.contiguous(memory_format=torch.channels_last)
        found += [*_back(F.max_pool2d(points, size, **options), x), F.max_pool2d(points.detach(), size, **options)]
    for shape in (1, (4, 7)):
        x = _normal(3, 5, 12, 14)
        found += _back(F.adaptive_avg_pool2d(x, shape), x)
        found += _back(F.adaptive_max_pool2d(x, shape), x)
    return found


def _norms() -> list[Any]:
    import tensorgrad as torch

    F, found = torch.nn.functional, []
    for shape in ((9, 33), (5, 1, 7)):
        x, w, b = _normal(*shape), _normal(shape[-1], seed=1), _normal(shape[-1], seed=2)
        found += _back(F.layer_norm(x, shape[-1:], w, b), x, w, b)
        found += _back(F.rms_norm(x, shape[-1:], w, 1e-5), x, w)
    for shape in ((6, 5, 7, 3), (33, 5), (2, 6, 40)):
        c = shape[1]
        for training in (True, False):
            x, w, b = _normal(*shape), _normal(c, seed=1), _normal(c, seed=2)
            mean, var = torch.zeros(c), torch.ones(c)
            found += [*_back(F.batch_norm(x, mean, var, w, b, training), x, w, b), mean, var]
        with torch.no_grad():
            found.append(F.batch_norm(x, mean, var, w, b))
    for shape, groups in (((4, 6, 5, 3), 3), ((4, 6), 2)):
        x, w, b = _normal(*shape), _normal(6, seed=1), _normal(6, seed=2)
        found += _back(F.group_norm(x, groups, w, b), x, w, b)
    for shape in ((4, 16, 6, 5), (3, 72, 3, 3)):  # channels innermost of each point
        x, w, b = _normal(*shape), _normal(shape[1], seed=1), _normal(shape[1], seed=2)
        points, mean, var = x.contiguous(memory_format=torch.channels_last), torch.zeros(shape[1]), torch.ones(shape[1])
        for result in (
            F.batch_norm(points, mean, var, w, b, True), F.batch_norm(points, mean, var, w, b),
            F.group_norm(points, 8, w, b),
        ):  # fmt: skip
            found += _back(result, x, w, b)
    return found


def _losses() -> list[Any]:
    import tensorgrad as torch

    found = []
    for reduction in ("mean", "none"):
        x, target = _normal(23, 67), _whole(67, 23)
        target[3] = -100
        loss = torch.nn.functional.cross_entropy(x, target, reduction=reduction)
        loss.sum().backward()
        found += [loss, x.grad]
        loss = torch.nn.functional.cross_entropy(x, target, reduction=reduction)
        found += torch.autograd.grad(loss.sum(), x, create_graph=True)
    for reduction in ("mean", "sum"):
        x, target = _normal(9, 10), _whole(10, 9)
        loss = torch.nn.functional.cross_entropy(x, target, reduction=reduction, ignore_index=int(target[2]))
        found += _back(loss, x)
        slopes = torch.func.grad(functools.partial(torch.nn.functional.cross_entropy, reduction=reduction))
        found.append(torch.func.vmap(slopes)(_normal(7, 3, 10, grad=False), _whole(10, 7, 3)))
    return found


def _folds() -> list[Any]:
    import tensorgrad as torch

    found: list[Any] = []
    for x in (_normal(13, 37, grad=False), _normal(5, 9, 11, grad=False)):
        for dim in range(x.ndim):
            found += [x.sum(dim), x.mean(dim), x.amax(dim), x.amin(dim), *x.max(dim), x.argmin(dim), x.var(dim)]
            found += [torch.linalg.vector_norm(x, dim=dim), x.prod(dim), x.std(dim)]
            found += [*torch.var_mean(x, dim), *torch.std_mean(x, dim)]
        found += [x.sum(), x.mean(), x.max(), x.min(), x.argmax(), x.norm(), x.prod(), x.var(), x.std()]
        found += [*torch.var_mean(x), *torch.std_mean(x)]
        bias = _normal(x.shape[-1])  # its gradient is a sum of columns, as an op of its own in a graph of gradients
        made = torch.nn.functional.linear(x, _normal(x.shape[-1], x.shape[-1], grad=False), bias)
        found += torch.autograd.grad((made * x).sum(), bias, create_graph=True)
    return found


def _tables() -> list[Any]:
    import tensorgrad as torch

    F = torch.nn.functional
    weight = _normal(17, 12)
    found = _back(F.embedding(_whole(17, 5, 7), weight), weight)
    for mode in ("sum", "mean"):
        weight = _normal(17, 12)
        found += _back(F.embedding_bag(_whole(17, 40), weight, torch.arange(0, 40, 5), mode=mode), weight)
    weight, share = _normal(17, 12), _normal(40, seed=1)
    given = _whole(17, 40), weight, torch.arange(0, 40, 5)
    return found + _back(F.embedding_bag(*given, mode="sum", per_sample_weights=share), weight, share)


def _recurrent() -> list[Any]:
    import tensorgrad as torch

    found: list[Any] = []
    for kind in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
        torch.manual_seed(0)
        for shape in ((17, 18, 9), (17, 2, 9), (3, 17, 9)):  # many sequences, and few
            for batch_first in (False, True):
                net, x = kind(9, 21, batch_first=batch_first), _normal(*shape)
                found += _back(net(x)[0], x)
                found += [p.grad for p in net.parameters()]
    return found


def _sums() -> list[Any]:
    found = []
    for dim in (0, 1, 2):
        x = _normal(6, 7, 9)
        found += _back(x.cumsum(dim), x)
    return found


def _top() -> list[Any]:
    x = _normal(9, 70, grad=False)
    return [*x.topk(5), *x.topk(3, 0), *x.topk(4, largest=False)]


def _sparse() -> list[Any]:
    import tensorgrad as torch

    where, values = _whole(9, 3, 60), _normal(60, 7, grad=False)
    stored = torch.sparse_coo_tensor(_whole(9, 2, 60), _normal(60, grad=False), (9, 9))
    dense = _normal(9, 6)
    found = [torch.sparse_coo_tensor(where, values, (9, 9, 9, 7)).coalesce().values(), stored.coalesce().values()]
    found += _back(torch.sparse.mm(stored, dense), dense) + [stored @ _normal(9, 1, grad=False)]
    pattern = torch.sparse_csr_tensor([0, 2, 3], [0, 3, 1], _normal(3, grad=False), (2, 4))
    table = torch.nn.Embedding.from_pretrained(_normal(9, 37, grad=False), freeze=False, sparse=True)
    table(_whole(9, 20)).sum().backward()
    torch.optim.SGD(table.parameters(), lr=0.1).step()
    return [
        *found,
        table.weight,
        torch.sparse.sampled_addmm(pattern, _normal(2, 37, grad=False), _normal(37, 4, grad=False)).values(),
    ]


def _pointwise() -> list[Any]:
    """Every op of one input that the table gives a kernel of this family, for its values or its gradient."""
    import tensorgrad as torch
    from tensorgrad.kernels.compiled.table import ROWS

    ops = dict.fromkeys(row.op.partition(".")[0] for row in ROWS if row.kernel.startswith("pointwise."))
    del ops["clamp"]
    found = _each(" ".join(ops), (11, 37))()
    for function in (lambda x: torch.nn.functional.gelu(x, approximate="tanh"), lambda x: x.clamp(-0.5, 1.0)):
        x = _normal(11, 37)
        found += _back(function(x), x)
    return found


def _pooled_norms() -> list[Any]:
    """Batch norm, ReLU and maxima of 2x2 windows by one kernel, and their gradients: of long and of short rows."""
    import tensorgrad as torch

    F, run, found = torch.nn.functional, kernel_tables.run_compiled, []
    for shape in ((3, 4, 12, 10), (5, 3, 6, 8)):
        x, w, b = _normal(*shape), _normal(shape[1], seed=1), _normal(shape[1], seed=2)
        normal = F.batch_norm(x, None, None, w, b, True, eps=0.05).relu()
        pooled, at = F.max_pool2d(normal, 2, return_indices=True)
        g = _normal(*pooled.shape, seed=3, grad=False)
        places = (at // shape[3] % 2 * 2 + at % shape[3] % 2).to(torch.uint8)  # of each window's four numbers
        var, mean = torch.var_mean(x.detach(), (0, 2, 3), correction=0)
        arrays = [t.detach().numpy() for t in (x, w, b)]
        made = run("batch_norm_relu_pool", x.numel(), *arrays, 0.05)
        if made is NotImplemented:
            made = [t.detach().numpy() for t in (pooled, places, mean, var, (var + 0.05).rsqrt())]
        maxima, numbers, centre, variance, rstd = made
        given = g.numpy(), maxima, numbers, arrays[0], arrays[1], centre, rstd, (True, True, True)
        slopes = run("batch_norm_relu_pool_grad", x.numel(), *given)
        found += [maxima, centre, variance, rstd]
        found += torch.autograd.grad(pooled, (x, w, b), g) if slopes is NotImplemented else slopes
    return found


def _copies() -> list[Any]:
    """Copies of matrices and images in memory orders other than row-major."""
    wide, images = _normal(70, 90, grad=False), _normal(3, 17, 20, 21, grad=False)
    turned = (wide.t(), wide[3:, 5:].t(), images.permute(0, 2, 3, 1), images.transpose(2, 3), images.movedim(0, -1))
    rows, long = _normal(30, 40, 60, grad=False), _normal(3, 5, 7, 650, grad=False)
    apart = (rows.transpose(0, 1), rows[:, 3:, 5:].transpose(0, 1), long.permute(2, 0, 1, 3))
    return [x.contiguous() for x in (*turned, *apart)] + [x.reshape(-1) for x in (*turned, *apart)]


def _joined() -> list[Any]:
    import tensorgrad as torch

    wide, high = _normal(90, 130, grad=False), _normal(130, 90, grad=False)
    return [torch.cat([wide, wide[:, :7], high.t()], 1), torch.cat([wide, high.view(90, 130)])]


def _small_weights() -> list[Any]:
    """Weights of 8 and 4 bits, and products with one row, with few and with many."""
    import tensorgrad as torch
    from tensorgrad.ops.nn.small_weights import int4_linear, int4_weights, int8_linear, int8_weights

    bytes_of = np.random.default_rng(0)
    eight = torch.from_numpy(bytes_of.integers(-128, 128, (37, 130)).astype(np.int8))
    four = torch.from_numpy(bytes_of.integers(0, 256, (37, 96)).astype(np.uint8))
    scales, groups, zeros = _normal(37, grad=False), _normal(37, 3, grad=False), _normal(37, 3, grad=False)
    made = [int8_weights(eight, scales), int4_weights(four, groups), int4_weights(four, groups, zeros)]
    for rows in (1, 3, 7, 40):
        made += [
            int8_linear(_normal(rows, 130, grad=False), eight, scales, _normal(37, grad=False)),
            int4_linear(_normal(rows, 192, grad=False), four, groups),
            int4_linear(_normal(rows, 192, grad=False), four, groups, zeros, _normal(37, grad=False)),
        ]
    return made


def _small_caches() -> list[Any]:
    """Attention of one query and of several on keys and values of 8 bits."""
    import tensorgrad as torch
    from tensorgrad.ops.nn.small_weights import int8_attention

    bytes_of, made = np.random.default_rng(0), []
    key, value = (torch.from_numpy(bytes_of.integers(-128, 128, (2, 2, 43, 48)).astype(np.int8)) for _ in range(2))
    scales, mask = _normal(2, 2, 43, grad=False).abs() / 100, _normal(1, 1, 1, 43, grad=False)
    for heads, queries in ((2, 1), (4, 1), (6, 3)):
        query = _normal(2, heads, queries, 48, grad=False)
        made += [int8_attention(query, key, scales, value, scales, m, 0.25) for m in (None, mask)]
    return made


def _integers() -> list[Any]:
    """Products of integers of 8 bits, and of numbers that become such, with one row and with many."""
    import tensorgrad as torch
    from tensorgrad.ops.pytorch.integer_products import dynamic_linear, integer_sums

    weight = torch.from_numpy(np.random.default_rng(0).integers(-128, 128, (37, 130)).astype(np.int8))
    scales, none, made = _normal(37, grad=False), torch.zeros(1), []
    for rows in (1, 3, 40):
        made += [
            integer_sums(_whole(256, rows, 130).to(torch.uint8), weight, 100),
            dynamic_linear(_normal(rows, 130, grad=False), weight, scales.abs(), none, _normal(37, grad=False), 127),
        ]
    return made


def _in_two_bytes() -> list[Any]:
    """What kernels compute of float16 and bfloat16 (which NumPy does not have)."""
    import tensorgrad as torch

    F, found = torch.nn.functional, []
    for dtype in _two_bytes():
        x, y, w = (_normal(*shape, seed=n).detach().to(dtype).requires_grad_()
                   for n, shape in enumerate(((70, 300), (70, 300), (300,))))  # fmt: skip
        for made in (
            F.gelu(x), F.silu(x), F.relu(x), x.tanh(), x * 0.3, x + y, x - y, x * y, x / y, x * w, x.softmax(-1),
            x.log_softmax(-1), F.layer_norm(x, (300,), w), F.rms_norm(x, (300,), w), x.sum(0), x.sum(1), x.mean(),
            F.cross_entropy(x, _whole(300, 70)),
        ):  # fmt: skip
            found += [made, *torch.autograd.grad(made, x, torch.ones_like(made))]
        found += [x.detach().amax(), x.detach().amax(0), x.float(), x.float().to(dtype), x.to(torch.float16)]
        for name, options in (("SGD", {"momentum": 0.9}), ("AdamW", {"amsgrad": True})):
            moved = x.detach().clone().requires_grad_()
            moved.grad = y.detach().clone()
            optimizer = getattr(torch.optim, name)([moved], lr=0.1, **options)
            for _ in range(2):
                optimizer.step()
            found.append(moved.detach())
    return found


def _layers_in_two_bytes() -> list[Any]:
    """Products, norms of images and tables in float16 and bfloat16 (which NumPy does not have)."""
    import tensorgrad as torch

    F, found = torch.nn.functional, []
    for dtype in _two_bytes():
        x, w, b, tall, image, short, scale = (
            _normal(*shape, seed=n).detach().to(dtype).requires_grad_() for n, shape in enumerate((
                (50, 90), (70, 90), (70,), (2, 40, 530), (3, 4, 15, 9), (5, 4, 3), (4,)
            ))
        )  # fmt: skip
        still = tall.detach()
        table, index = _normal(9, 20, seed=8).detach().to(dtype).requires_grad_(), _whole(9, 30)
        for made, leaves in (
            (F.linear(x, w, b), (x, w, b)), (F.linear(x[:3], w), (x, w)), (tall @ still.mT, (tall,)),
            (tall.mT @ still, (tall,)), (F.batch_norm(image, None, None, scale, scale, True), (image, scale)),
            (F.batch_norm(short, None, None, scale, scale, True), (short, scale)), (F.group_norm(image, 2), (image,)),
            (F.batch_norm(image, scale, scale * scale), (image,)), (F.group_norm(short, 2, scale), (short, scale)),
            (F.embedding(index, table), (table,)),
        ):  # fmt: skip
            upstream = _normal(*made.shape, seed=9).detach().to(dtype)
            found += [made, *torch.autograd.grad(made, leaves, upstream)]
    return found


def _and_in_two_bytes(
    program: Callable[[], list[Any]], halves: Callable[[], list[Any]] = _in_two_bytes
) -> Callable[[], list[Any]]:
    return lambda: program() + halves()


def _integer_convolutions() -> list[Any]:
    """Convolutions of quantized images: with pieces that fill registers and that do not, and with padding."""
    import tensorgrad as torch
    from tensorgrad.ao.nn.quantized import products

    made = []
    for inputs, size in ((3, 3), (16, 3), (40, 1)):
        image = torch.quantize_per_tensor(_normal(2, inputs, 9, 8, grad=False), 0.03, 100, torch.quint8)
        weight = torch.quantize_per_tensor(_normal(18, inputs, size, size, grad=False), 0.02, 0, torch.qint8)
        bias, pair = _normal(18, grad=False), (1, 1)
        made += [
            products.conv(image, weight, bias, pair, (size // 2,) * 2, pair, 1, "zeros", 0.3, 7, relu).int_repr()
            for relu in (False, True)
        ]
    return made


# By family, or by kernel if a family's kernels have little in common: a program, which returns tensors.
PROGRAMS: dict[str, Callable[[], list[Any]]] = {
    "runtime.spin": lambda: [], "ufuncs": _ufuncs, "broadcast": _choices,
    **{f"broadcast.{name}": _joint for name in ("add", "sub", "mul", "div")},
    "optim.sgd": _and_in_two_bytes(_steps("SGD", momentum=0.9)),
    "optim.sgd_each": _steps("SGD", "sgd_each", momentum=0.9),
    "optim.adam": _and_in_two_bytes(_steps("Adam", weight_decay=0.1)),
    "optim.squares": _clipped, "optim.scale": _clipped, "random": _random, "sort": _top, "pointwise": _pointwise,
    "softmax": _and_in_two_bytes(_rows), "index": _places, "conv": _convolutions,
    "attention": _and_in_two_bytes(_attention, _attention_in_two_bytes), "attention_halves": _attention_in_two_bytes,
    "matmul": _products, "matmul_halves": _layers_in_two_bytes, "pool": _pools,
    "norm": _and_in_two_bytes(_norms, _layers_in_two_bytes), "norm_of_rows": _and_in_two_bytes(_norms),
    "norm_pool": _pooled_norms,
    "loss": _and_in_two_bytes(_losses), "reduce": _and_in_two_bytes(_folds),
    "embedding": _and_in_two_bytes(_tables, _layers_in_two_bytes),
    "rnn": _recurrent, "rnn_few": _recurrent, "scan": _sums, "layout": _copies, "join": _joined, "sparse": _sparse,
    "casts": _in_two_bytes, "halves": _in_two_bytes, "quantized": _small_weights, "integer_products": _integers,
    "attention_int8": _small_caches, "integer_conv": _integer_convolutions,
}  # fmt: skip


@contextmanager
def only(kernels: dict[str, Any]) -> Iterator[None]:
    """Uses these kernels, and no others, for every size, on two threads."""
    rows = list(kernel_tables.COMPILED.values())
    threads, SETTINGS.threads = SETTINGS.threads, 2  # some are for several threads only
    before = [(row, row.failed, row.ready, row.elements) for row in rows]
    try:
        for row in rows:
            row.ready = kernels.get(row.kernel)
            row.failed = row.ready is None
            row.elements = 0 if row.kernel in kernels else row.elements
        yield
    finally:
        SETTINGS.threads = threads
        for row, failed, ready, elements in before:
            row.failed, row.ready, row.elements = failed, ready, elements


def _results(program: Callable[[], list[Any]]) -> list[np.ndarray]:
    return [np.asarray(t.detach()._array if hasattr(t, "detach") else t) for t in program()]


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether results are the same up to rounding, of two bytes up to a unit in the last place."""
    if a.dtype.itemsize == 2 and a.dtype.kind in "fV":
        digit = 2.0 ** (-7 if a.dtype.kind == "V" else -10)
        return np.allclose(a.astype(np.float32), b.astype(np.float32), digit, digit / 16, equal_nan=True)
    return np.allclose(a, b, rtol=1e-3, atol=1e-4, equal_nan=True)


@functools.cache
def _expected(program: Callable[[], list[Any]]) -> list[np.ndarray]:
    """Returns NumPy's results of a program, which many kernels of a family are compared with."""
    with only({}):
        return _results(program)


def uses(kernel: str, made: Any) -> int:
    """Returns how many calls of its program a kernel runs.

    Raises: ArithmeticError if results differ from NumPy's.
    """
    program = PROGRAMS.get(kernel) or PROGRAMS.get(kernel.rpartition(".")[0]) or list
    count = 0

    def counted(*given: Any, **options: Any) -> Any:
        nonlocal count
        result = made(*given, **options)
        count += result is not NotImplemented
        return result

    expected = _expected(program)
    with only({kernel: counted}):
        found = _results(program)
    for n, (a, b) in enumerate(zip(found, expected, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype or not _close(a, b):
            raise ArithmeticError(f"{kernel}: result {n} of its program differs from NumPy's on this machine")
    return count


def main(folder: str = "") -> int:
    """Compares all kernels, those of the files in a folder if one is given. Returns how many differ."""
    from tensorgrad.kernels.compiled import table
    from tensorgrad.kernels.compiled.runtime import target

    target.FOLDER = folder or target.FOLDER
    wrong = 0
    for kernel in dict.fromkeys(row.kernel for row in table.ROWS if row is not table.WAITING):
        try:
            if not uses(kernel, library.load(kernel)):
                raise ArithmeticError(f"{kernel}: its program does not use it")
        except (ArithmeticError, library.Missing) as error:
            wrong += 1
            print(error)
    print(f"{wrong} kernels differ from NumPy's" if wrong else "all kernels agree with NumPy's")
    return wrong


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
