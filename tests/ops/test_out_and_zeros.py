"""Corners of many ops at once: `out=` that is an input, factors of 0, norms of one number, sizes of 0."""

import math

import pytest

from tests.support.alike import alike


def told(call):
    """The result of a call, or the error."""
    try:
        return call()
    except (RuntimeError, IndexError) as error:
        return f"{type(error).__name__}: {str(error)[:60]}"


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@alike
def test_an_input_is_not_resized_to_be_the_result(torch):
    """Pointwise ops refuse an `out` that is an input of another shape, and leave it as it was."""
    seen = []
    y = torch.arange(6.0).view(2, 3) + 1
    calls = {
        "add": lambda a: torch.add(a, y, out=a),
        "sub": lambda a: torch.sub(y, a, out=a),
        "mul": lambda a: torch.mul(a, y, out=a),
        "div": lambda a: torch.div(a, y, out=a),
        "pow": lambda a: torch.pow(a, y, out=a),
        "maximum": lambda a: torch.maximum(a, y, out=a),
        "atan2": lambda a: torch.atan2(a, y, out=a),
        "eq": lambda a: torch.eq(a, y, out=a),
        "logical_or": lambda a: torch.logical_or(a, y, out=a),
        "where": lambda a: torch.where(y > 2, a, y, out=a),
        "addcmul": lambda a: torch.addcmul(a, y, y, out=a),
        "lerp": lambda a: torch.lerp(a, y, 0.5, out=a),
        "clamp": lambda a: torch.clamp(a, y, out=a),
        "stack": lambda a: torch.stack([a, a], out=a),
        "outer": lambda a: torch.outer(a.view(-1), a.view(-1), out=a),
        "kron": lambda a: torch.kron(a, y, out=a),
        "cat": lambda a: torch.cat([a, a], out=a),
    }
    for name, call in calls.items():
        for shape in ((1,), (3,), (1, 3)):
            a = torch.full(shape, 2.0)
            if name == "cat" and shape == (1, 3):
                continue
            seen.append([name, told(lambda call=call, a=a: call(a) is a)])
            if name not in ("stack", "outer", "kron", "cat"):  # PyTorch refuses these when it has resized it
                seen.append(a.clone())
    return seen


@alike
def test_factors_of_zero(torch):
    """What is multiplied by alpha or beta 0 is ignored where PyTorch ignores it, including nan."""
    nan, ones = math.nan, torch.ones
    seen = []
    for n in (2, 40, 130):  # also sizes that compiled kernels serve
        bad, good, square = torch.full((n, n + 1), nan), ones(n + 1, n), ones(n, n)
        lost = torch.full((n, n), nan)
        seen += [
            torch.addmm(square, bad, good, alpha=0),
            torch.addmm(square, bad, good, alpha=0, beta=2),
            torch.addmm(lost, bad, good, alpha=0, beta=0),
            torch.addmm(lost, ones(n, n), square, beta=0),
            torch.addmm(ones(n), bad, good, alpha=0),
            torch.addmv(ones(n), bad, ones(n + 1), alpha=0),
            torch.addbmm(square, bad.unsqueeze(0), good.unsqueeze(0), alpha=0),
            torch.addmm(square.to(torch.complex64), bad.to(torch.complex64), good.to(torch.complex64), alpha=0),
        ]
        sparse = torch.eye(n).to_sparse()
        seen += [
            torch.sparse.addmm(lost, sparse, square, beta=0),
            torch.addmm(lost, sparse, square, beta=0),
            torch.addmm(lost, torch.eye(n).to_sparse_csr(), square, beta=0),
        ]
    return seen


@alike
def test_norms_of_one_number(torch):
    """Every norm of one number is its absolute value, also of the largest and the smallest, and so is its gradient."""
    seen = []
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        info = torch.finfo(dtype)
        for value in (info.max, -info.max, info.tiny, -3.0, 0.0, math.inf):
            x = torch.tensor(value, dtype=dtype)
            for p in (2, 1, 3, math.inf, -math.inf, 0):
                seen += [
                    torch.linalg.vector_norm(x, p), torch.linalg.vector_norm(x[None], p), torch.dist(x, x * 0, p),
                    torch.linalg.vector_norm(x.expand(3, 1), p, dim=1), torch.norm(x[None, None], p, dim=(0, 1)),
                ]  # fmt: skip
            seen += [torch.linalg.norm(x), torch.norm(x[None]), torch.linalg.matrix_norm(x[None, None])]
            seen += [torch.nn.functional.normalize(x.expand(2, 1)), torch.nn.functional.normalize(x[None], dim=0)]
            if dtype != torch.bfloat16 and value not in (0.0, math.inf):
                leaf = x.clone().requires_grad_()
                torch.linalg.norm(leaf).backward()
                seen.append(leaf.grad)
    seen.append(torch.linalg.norm(torch.tensor([3e38 + 1e38j])))
    return seen


@alike
def test_batches_and_lengths_of_zero(torch):
    """Layers of attention with no batch, no queries, no keys."""
    nn = torch.nn
    seen = []
    for length, source, batch in ((3, 4, 0), (0, 4, 2), (3, 0, 2), (0, 0, 0)):
        for batch_first in (False, True):
            options = {"batch_first": batch_first, "dropout": 0.0}
            lead = (lambda n: (batch, n)) if batch_first else (lambda n: (n, batch))
            x, memory = torch.zeros(*lead(length), 8), torch.zeros(*lead(source), 8)
            for layer in (nn.TransformerDecoderLayer(8, 2, 16, **options), nn.Transformer(8, 2, 1, 1, 16, **options)):
                try:
                    out = layer(x, memory) if "Decoder" in type(layer).__name__ else layer(memory, x)
                except RuntimeError:
                    seen.append("refused")
                    continue
                out.sum().backward()
                seen += [out.shape, all(p.grad is not None for p in layer.parameters())]
            heads = nn.MultiheadAttention(8, 2, batch_first=batch_first)
            out, weights = heads(x, memory, memory)
            seen += [out.shape, weights.shape, heads(x, memory, memory, need_weights=False)[0].shape]
    return seen


@alike
def test_segments_of_nothing(torch):
    """`segment_reduce` of 0 rows, or of rows of 0 elements."""
    seen = []
    for shape in ((0,), (0, 7), (0, 7, 2), (3, 0), (0, 0)):
        lengths = torch.tensor([1, 2] if shape[0] else [0, 0])
        for reduce in ("sum", "mean", "max", "min", "prod"):
            x = torch.zeros(shape, requires_grad=True)
            y = torch.segment_reduce(x, reduce, lengths=lengths, axis=0)
            y.sum().backward()
            seen += [y.detach(), x.grad.shape]
    x = torch.zeros(2, 0, 3)
    seen.append(torch.segment_reduce(x, "sum", lengths=torch.zeros(2, 1, dtype=torch.int64), axis=1))
    return seen


@alike
def test_embeddings_of_nothing(torch):
    """Tables without rows or columns, and no indices, with dense and sparse gradients."""
    seen = []
    for rows, columns, indices in ((0, 0, []), (0, 2, []), (3, 2, []), (3, 2, [[], []]), (3, 0, [1])):
        for sparse in (False, True):
            table = torch.nn.Embedding(rows, columns, sparse=sparse)
            y = table(torch.tensor(indices, dtype=torch.int64))
            y.sum().backward()
            seen += [y.shape, table.weight.grad.to_dense().shape]
    return seen


@alike
def test_views_made_without_recording(torch):
    """A view made under no_grad requires grad as its base does, but nothing can be differentiated from it."""
    seen = []
    for kind in ("leaf", "computed", "later"):

        def made(kind=kind):
            y = torch.ones(2, requires_grad=kind != "later")
            y = y * 2 if kind == "computed" else y
            with torch.no_grad():
                views = y[0:1], y.view(2, 1), y.detach()[0:1], y[0:1].view(1)
            if kind == "later":
                y.requires_grad_()
            return views

        for nr in range(4):
            view = made()[nr]
            seen += [view.requires_grad, view.is_leaf, view.grad_fn is None]
            for call in (
                lambda view: view.backward(torch.ones(view.shape)),
                lambda view: view.sum().backward(),
                lambda view: torch.autograd.grad(view, torch.ones(1, requires_grad=True), torch.ones(view.shape)),
                lambda view: torch.autograd.backward([(view.detach() * view).sum(), view], [None, view]),
            ):
                seen.append(told(lambda call=call, view=view: call(view)))
            view = made()[nr].requires_grad_()
            (view * 3).sum().backward()
            seen.append(view.grad)
    return seen
