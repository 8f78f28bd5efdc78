"""Sums at indices in float16 and bfloat16: PyTorch's, to the last bit.

Some of its loops round after every addition, in the order of the indices; others add in float32 and round once.
"""

import numpy as np
import pytest

import tensorgrad

torch = pytest.importorskip("torch", reason="PyTorch's results are the reference")

HALF = ["bfloat16", "float16"]
# Rows of a table, columns, indices: few and many indices for each row, one column, and more than a vector of them.
SIZES = [(5, 7, 40), (5, 70, 400), (200, 3, 1500), (4, 1, 700), (3, 5, 3)]


def written(call):
    """A sum into a table."""
    return lambda T, table, rows, terms: call(T, table, rows, terms)


def gradient(look_up):
    """The gradient of a table of which rows were looked up."""

    def found(T, table, rows, terms):
        table = table.clone().requires_grad_()
        look_up(T, table, rows).backward(terms)
        return table.grad

    return found


def columns(x):
    return x.t().contiguous()


def each(T, rows, table):
    """The row indices once for every column."""
    return rows.unsqueeze(1).expand(-1, table.shape[1]).contiguous()


def flat(T, rows, table):
    return rows.unsqueeze(1) * table.shape[1] + T.arange(table.shape[1])


SUMS = {
    "index_put": written(lambda T, x, i, v: x.index_put((i,), v, accumulate=True)),
    "index_put_": written(lambda T, x, i, v: x.clone().index_put_((i,), v, accumulate=True)),
    "index_put negative": written(lambda T, x, i, v: x.index_put((i - len(x),), v, accumulate=True)),
    "index_put of one number": written(lambda T, x, i, v: x.index_put((i,), v[0, 0], accumulate=True)),
    "index_put of columns": written(
        lambda T, x, i, v: columns(x).index_put((T.arange(x.shape[1])[:, None], i[None]), columns(v), accumulate=True)
    ),
    "index_put of one column": written(lambda T, x, i, v: x[:, 0].index_put((i,), v[:, 0], accumulate=True)),
    "index_add": written(lambda T, x, i, v: x.index_add(0, i, v)),
    "index_add alpha": written(lambda T, x, i, v: x.index_add(0, i, v, alpha=0.3)),
    "index_add int32": written(lambda T, x, i, v: x.index_add(0, i.int(), v)),
    "index_add of columns": written(lambda T, x, i, v: columns(x).index_add(1, i, columns(v))),
    "index_add of columns, alpha": written(lambda T, x, i, v: columns(x).index_add(1, i, columns(v), alpha=0.3)),
    "index_add of one column": written(lambda T, x, i, v: x[:, 0].clone().index_add(0, i, v[:, 0].clone())),
    "index_add of one column, alpha": written(
        lambda T, x, i, v: x[:, 0].clone().index_add(0, i, v[:, 0].clone(), alpha=0.3)
    ),
    "index_add in the middle": written(lambda T, x, i, v: T.stack([x, -x]).index_add(1, i, T.stack([v, v]))),
    "index_add in the middle, alpha": written(
        lambda T, x, i, v: T.stack([x, -x]).index_add(1, i, T.stack([v, v]), alpha=-1.7)
    ),
    "index_add of blocks": written(lambda T, x, i, v: T.stack([x, -x], 1).index_add(0, i, T.stack([v, v], 1))),
    "scatter_add": written(lambda T, x, i, v: x.scatter_add(0, each(T, i, x), v)),
    "scatter_add of columns": written(lambda T, x, i, v: columns(x).scatter_add(1, columns(each(T, i, x)), columns(v))),
    "scatter_add of one column": written(lambda T, x, i, v: x[:, 0].clone().scatter_add(0, i, v[:, 0].clone())),
    "scatter_reduce": written(lambda T, x, i, v: x.scatter_reduce(0, each(T, i, x), v, "sum")),
    "put_": written(lambda T, x, i, v: x.clone().put_(flat(T, i, x), v, accumulate=True)),
    "x[i]": gradient(lambda T, x, i: x[i]),
    "x[i, j]": gradient(lambda T, x, i: x[i[:, None], T.arange(x.shape[1])]),
    "x.t()[:, i]": gradient(lambda T, x, i: x.t()[:, i].t()),
    "index_select": gradient(lambda T, x, i: x.index_select(0, i)),
    "gather": gradient(lambda T, x, i: x.gather(0, each(T, i, x))),
    "take": gradient(lambda T, x, i: x.take(flat(T, i, x))),
    "take_along_dim": gradient(lambda T, x, i: x.take_along_dim(each(T, i, x), 0)),
    "embedding": gradient(lambda T, x, i: T.nn.functional.embedding(i, x)),
    "embedding padding": gradient(lambda T, x, i: T.nn.functional.embedding(i, x, padding_idx=2)),
    "embedding scaled": gradient(lambda T, x, i: T.nn.functional.embedding(i, x, scale_grad_by_freq=True)),
}


def alike(call, dtype, *given):
    def of(T):
        arrays = [T.tensor(a) if a.dtype.kind == "i" else T.tensor(a).to(getattr(T, dtype)) for a in given]
        return call(T, *arrays).detach().float().numpy()

    theirs, mine = of(torch), of(tensorgrad)
    assert np.array_equal(theirs, mine), f"{(theirs != mine).mean():.1%} of the elements differ"


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("name", SUMS)
@pytest.mark.filterwarnings("ignore")
def test_sums_at_indices(name, dtype):
    random = np.random.default_rng(1)
    for count, width, uses in SIZES:
        table, terms = (random.normal(size=(n, width)).astype(np.float32) for n in (count, uses))
        alike(SUMS[name], dtype, table, random.integers(0, count, uses), terms)


def bags(**options):
    def call(T, table, rows, terms, weights):
        kinds = {"per_sample_weights": weights} if options.get("mode") == "weights" else {}
        others = {k: v for k, v in options.items() if k != "even"} | ({"mode": "sum"} if kinds else {})
        if options.get("even"):
            rows, kinds = rows.view(len(terms), -1), {k: v.view(len(terms), -1) for k, v in kinds.items()}
        else:
            kinds["offsets"] = T.arange(len(terms)) ** 2
        return T.nn.functional.embedding_bag(rows, table, **kinds, **others)

    return call


BAGS = {
    f"{mode}, {'even' if even else 'offsets'}{', padding' if padding else ''}": bags(mode=mode, even=even, **padding)
    for mode in ("sum", "mean", "weights", "max") for even in (True, False) for padding in ({}, {"padding_idx": 2})
}  # fmt: skip


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("name", BAGS)
def test_bags(name, dtype):
    """Also bags of many terms: their sums are float32's."""
    random = np.random.default_rng(2)
    for count, width, uses, number in ((9, 7, 200, 8), (90, 64, 600, 4), (7, 1, 120, 4), (300, 70, 2000, 2)):
        table, terms = (random.normal(size=(n, width)).astype(np.float32) for n in (count, number))
        given = table, random.integers(0, count, uses), terms, random.uniform(size=uses).astype(np.float32)
        alike(BAGS[name], dtype, *given)


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("name", ["sum, even", "sum, offsets", "weights, even", "weights, offsets", "mean, even",
                                  "mean, offsets", "max, even", "max, offsets"])  # fmt: skip
def test_gradients_of_bags(name, dtype):
    """Rows that are used twice at most: PyTorch sorts the uses of a row, and keeps no order among them."""
    random = np.random.default_rng(3)

    def call(T, table, rows, terms, weights):
        table = table.requires_grad_()
        BAGS[name](T, table, rows, terms, weights).backward(terms)
        return table.grad

    for width, uses, number in ((7, 64, 8), (70, 256, 16), (1, 16, 4)):
        rows = random.permutation(np.arange(uses) // 2)
        table, terms = (random.normal(size=(n, width)).astype(np.float32) for n in (uses // 2, number))
        alike(call, dtype, table, rows, terms, random.uniform(size=uses).astype(np.float32))
