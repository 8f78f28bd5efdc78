"""Functions of sparse tensors whose gradients are compared with torch's, and the inputs they are called with.

Everything is a function of the library `T`, so that one table serves both.
"""

import numpy as np


def numbers(shape, seed, dtype=np.float64):
    """Random numbers, none near zero, a fraction of them zero."""
    rng = np.random.default_rng(seed)
    values = rng.uniform(0.25, 1.5, shape) * rng.choice([-1, 1], shape)
    return values.astype(dtype)


def thinned(shape, seed, dtype=np.float64, keep=0.5):
    """The same with about half of them zero."""
    return numbers(shape, seed, dtype) * (np.random.default_rng(seed + 100).uniform(size=shape) < keep)


def dense(*shape, seed=0):
    return lambda T: T.tensor(numbers(shape, seed))


def coo(*shape, seed=1, sparse_dim=None):
    """A coalesced COO tensor."""
    return lambda T: T.tensor(thinned(shape, seed)).to_sparse(len(shape) if sparse_dim is None else sparse_dim)


def loose(*shape, seed=2, sparse_dim=None, count=7):
    """A COO tensor that is not coalesced: coordinates repeat, and are in no order."""

    def make(T):
        rng = np.random.default_rng(seed)
        dims = len(shape) if sparse_dim is None else sparse_dim
        indices = np.stack([rng.integers(0, n, count) for n in shape[:dims]])
        indices[:, -1] = indices[:, 0]
        return T.sparse_coo_tensor(T.tensor(indices), T.tensor(numbers((count, *shape[dims:]), seed)), shape)

    return make


def csr(*shape, seed=3):
    return lambda T: T.tensor(thinned(shape, seed)).to_sparse_csr()


def csc(*shape, seed=3):
    return lambda T: T.tensor(thinned(shape, seed)).to_sparse_csc()


def bsr(*shape, seed=4, block=(2, 2)):
    return lambda T: T.tensor(thinned(shape, seed, keep=0.3)).to_sparse_bsr(block)


def bsc(*shape, seed=4, block=(2, 2)):
    return lambda T: T.tensor(thinned(shape, seed, keep=0.3)).to_sparse_bsc(block)


def scalar(value):
    return lambda T: T.tensor(value, dtype=T.float64)


LAYOUTS = {"coo": coo(4, 6), "loose": loose(4, 6), "csr": csr(4, 6), "csc": csc(4, 6), "bsr": bsr(4, 6),
           "bsc": bsc(4, 6)}  # fmt: skip
SECOND = {"coo": coo(4, 6, seed=11), "loose": loose(4, 6, seed=12), "csr": csr(4, 6, seed=13),
          "csc": csc(4, 6, seed=13), "bsr": bsr(4, 6, seed=14), "bsc": bsc(4, 6, seed=14)}  # fmt: skip
HYBRID = {"hybrid": coo(3, 4, 2, sparse_dim=2), "loose hybrid": loose(3, 4, 2, sparse_dim=2),
          "rows": loose(5, 3, sparse_dim=1)}  # fmt: skip
HYBRID_SECOND = {"hybrid": coo(3, 4, 2, sparse_dim=2, seed=21), "loose hybrid": loose(3, 4, 2, sparse_dim=2, seed=22),
                 "rows": loose(5, 3, sparse_dim=1, seed=23)}  # fmt: skip

UNARY = ("abs", "asin", "asinh", "atan", "atanh", "erf", "erfinv", "expm1", "log1p", "neg", "rad2deg", "deg2rad",
         "relu", "sgn", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh", "floor", "ceil", "round", "trunc",
         "frac", "positive", "nan_to_num")  # fmt: skip


def cases():
    """{name: (function of T and the inputs, makers of the inputs)}"""
    made = {}

    def add(name, function, *inputs):
        made[name] = (function, inputs)

    every = {**LAYOUTS, **HYBRID}
    for kind, x in every.items():
        add(f"to_dense {kind}", lambda T, x: x.to_dense(), x)
        add(f"to_dense unmasked {kind}", lambda T, x: x.to_dense(masked_grad=False), x)
        add(f"to_dense masked {kind}", lambda T, x: x.to_dense(masked_grad=True), x)
        add(f"mul number {kind}", lambda T, x: x * 2.5, x)
        add(f"rmul number {kind}", lambda T, x: 2.5 * x, x)
        add(f"div number {kind}", lambda T, x: x / 2.5, x)
        add(f"mul 0-dim {kind}", lambda T, x, s: x * s, x, scalar(2.5))
        add(f"div 0-dim {kind}", lambda T, x, s: x / s, x, scalar(2.5))
        add(f"sum {kind}", lambda T, x: x.sum(), x)
        add(f"torch.sum {kind}", lambda T, x: T.sum(x), x)
        add(f"sparse.sum {kind}", lambda T, x: T.sparse.sum(x), x)
        add(f"clone {kind}", lambda T, x: x.clone(), x)
        add(f"float {kind}", lambda T, x: x.float(), x)
        add(f"pow {kind}", lambda T, x: x**2, x)
        add(f"values {kind}", lambda T, x: (x.coalesce() if x.layout is T.sparse_coo else x).values(), x)
        add(f"shared {kind}", lambda T, x: x + x, x)
        add(f"twice {kind}", lambda T, x: x * 2 + x * 3, x)
        add(f"to_sparse_coo {kind}", lambda T, x: x.to_sparse_coo(), x)
    for kind, x in {**LAYOUTS, "hybrid": HYBRID["hybrid"]}.items():
        for name in UNARY:
            add(f"{name} {kind}", lambda T, x, name=name: getattr(x * 0.5, name)(), x)
    for kind, y in {**SECOND, **HYBRID_SECOND}.items():
        x = every[kind]
        add(f"add {kind}", lambda T, x, y: x + y, x, y)
        add(f"add alpha {kind}", lambda T, x, y: T.add(x, y, alpha=3), x, y)
        add(f"sub {kind}", lambda T, x, y: x - y, x, y)
        add(f"mul {kind}", lambda T, x, y: x * y, x, y)
        shape = (3, 4, 2) if "hybrid" in kind else (5, 3) if kind == "rows" else (4, 6)
        add(f"mul dense {kind}", lambda T, x, y: x * y, x, dense(*shape))
        add(f"dense mul {kind}", lambda T, x, y: y * x, x, dense(*shape))
        add(f"dense add {kind}", lambda T, x, y: y + x, x, dense(*shape))
        add(f"dense sub {kind}", lambda T, x, y: y - x, x, dense(*shape))
        add(f"add dense {kind}", lambda T, x, y: x + y, x, dense(*shape))
        add(f"mul of itself {kind}", lambda T, x: x * x, x)
        add(f"sparse_mask dense {kind}", lambda T, d, m: d.sparse_mask(m.detach().coalesce() if m.is_sparse else
                                                                       m.detach()), dense(*shape), y)  # fmt: skip
        add(f"sparse_mask {kind}", lambda T, x, m: x.sparse_mask(m.detach().coalesce() if m.is_sparse else
                                                                 m.detach()), x, y)  # fmt: skip
    for kind, x in LAYOUTS.items():
        add(f"mul row {kind}", lambda T, x, y: x * y, x, dense(6))
        add(f"mul column {kind}", lambda T, x, y: x * y, x, dense(4, 1))
        for name, call in {
            "mm": lambda T, x, y: x.mm(y), "matmul": lambda T, x, y: x @ y, "spmm": lambda T, x, y: T.spmm(x, y),
            "sparse.mm": lambda T, x, y: T.sparse.mm(x, y), "smm": lambda T, x, y: T.smm(x, y),
            "hspmm": lambda T, x, y: T.hspmm(x, y),
        }.items():  # fmt: skip
            add(f"{name} {kind}", call, x, dense(6, 3))
        add(f"dense mm {kind}", lambda T, x, y: T.mm(y, x), x, dense(3, 4))
        add(f"dense matmul {kind}", lambda T, x, y: y @ x, x, dense(3, 4))
        add(f"dense sparse.mm {kind}", lambda T, x, y: T.sparse.mm(y, x), x, dense(3, 4))
        add(f"mv {kind}", lambda T, x, y: x.mv(y), x, dense(6))
        add(f"matmul vector {kind}", lambda T, x, y: x @ y, x, dense(6))
        add(f"addmm {kind}", lambda T, c, x, y: T.addmm(c, x, y, beta=2, alpha=3), dense(4, 3), x, dense(6, 3))
        add(f"addmm row {kind}", lambda T, c, x, y: T.addmm(c, x, y), dense(3), x, dense(6, 3))
        add(f"sparse.addmm {kind}", lambda T, c, x, y: T.sparse.addmm(c, x, y, beta=2, alpha=3), dense(4, 3), x,
            dense(6, 3))  # fmt: skip
        add(f"mm both {kind}", lambda T, x, y: T.mm(x, y.t()), x, SECOND[kind])
        add(f"sparse.mm both {kind}", lambda T, x, y: T.sparse.mm(x, y.t()), x, SECOND[kind])
        add(f"matmul both {kind}", lambda T, x, y: x @ y.t(), x, SECOND[kind])
        add(f"t {kind}", lambda T, x: x.t(), x)
        add(f"transpose {kind}", lambda T, x: x.transpose(0, 1), x)
        add(f"permute {kind}", lambda T, x: x.permute(1, 0), x)
        add(f"t mm {kind}", lambda T, x, y: x.t() @ y, x, dense(4, 3))
        add(f"to_sparse_csr {kind}", lambda T, x: x.to_sparse_csr(), x)
        add(f"to_sparse_csc {kind}", lambda T, x: x.to_sparse_csc(), x)
        add(f"to_sparse_bsr {kind}", lambda T, x: x.to_sparse_bsr((2, 2)), x)
        add(f"select {kind}", lambda T, x: x[1], x)
        add(f"index_select {kind}", lambda T, x: x.index_select(1, T.tensor([2, 0, 2])), x)
        for name, dim in {"0": 0, "1": 1, "both": (0, 1)}.items():
            add(f"sum {name} {kind}", lambda T, x, dim=dim: x.sum(dim), x)
            add(f"sum keepdim {name} {kind}", lambda T, x, dim=dim: x.sum(dim, keepdim=True), x)
            add(f"sparse.sum {name} {kind}", lambda T, x, dim=dim: T.sparse.sum(x, dim), x)
        for name in ("softmax", "log_softmax"):
            for dim in (0, 1):
                add(f"sparse.{name} {dim} {kind}", lambda T, x, f=name, d=dim: getattr(T.sparse, f)(x, d), x)
        add(f"cat {kind}", lambda T, x, y: T.cat([x, y], 0), x, SECOND[kind])
        add(f"cat 1 {kind}", lambda T, x, y: T.cat([x, y], 1), x, SECOND[kind])
        add(f"stack {kind}", lambda T, x, y: T.stack([x, y]), x, SECOND[kind])
        add(f"unsqueeze {kind}", lambda T, x: x.unsqueeze(0), x)
    for kind, x in HYBRID.items():
        for name in ("softmax", "log_softmax"):
            for dim in range(2 if kind == "rows" else 3):
                add(f"sparse.{name} {dim} {kind}", lambda T, x, f=name, d=dim: getattr(T.sparse, f)(x, d), x)
        for dim in (0, 1, (0, 1)) if kind == "rows" else (0, 1, 2, (0, 1), (0, 2), (1, 2), (0, 1, 2)):
            add(f"sum {dim} {kind}", lambda T, x, dim=dim: x.sum(dim), x)
            add(f"sparse.sum {dim} {kind}", lambda T, x, dim=dim: T.sparse.sum(x, dim), x)
        add(f"index_select {kind}", lambda T, x: x.index_select(0, T.tensor([2, 0, 2])), x)
        add(f"index_select last {kind}", lambda T, x: x.index_select(-1, T.tensor([1, 0, 1])), x)
        add(f"cat {kind}", lambda T, x, y: T.cat([x, y], 0), x, HYBRID_SECOND[kind])
        add(f"cat last {kind}", lambda T, x, y: T.cat([x, y], -1), x, HYBRID_SECOND[kind])
        add(f"select {kind}", lambda T, x: x[1], x)
    add("transpose hybrid", lambda T, x: x.transpose(0, 1), HYBRID["hybrid"])
    for kind in ("coo", "loose"):
        add(f"coalesce {kind}", lambda T, x: x.coalesce(), LAYOUTS[kind])
        add(f"coalesced values {kind}", lambda T, x: x.coalesce().values(), LAYOUTS[kind])
        add(f"bmm {kind}", lambda T, x, y: T.bmm(x, y), {"coo": coo, "loose": loose}[kind](2, 3, 4), dense(2, 4, 3))
        add(f"softmax 3 {kind}", lambda T, x: T.sparse.softmax(x, 1), {"coo": coo, "loose": loose}[kind](2, 3, 4))
        add(f"sum 3 {kind}", lambda T, x: T.sparse.sum(x, (0, 2)), {"coo": coo, "loose": loose}[kind](2, 3, 4))
        add(f"permute 3 {kind}", lambda T, x: x.permute(2, 0, 1), {"coo": coo, "loose": loose}[kind](2, 3, 4))
    for reduce in ("sum", "mean", "amax", "amin"):
        add(f"sparse.mm {reduce}", lambda T, x, y, r=reduce: T.sparse.mm(x, y, r), csr(4, 6), dense(6, 3))
    add("sampled_addmm", lambda T, c, a, b: T.sparse.sampled_addmm(c, a, b, beta=2, alpha=3), csr(4, 6), dense(4, 3),
        dense(3, 6))  # fmt: skip
    add("sampled_addmm of a batch", lambda T, c, a, b: T.sparse.sampled_addmm(c, a, b, beta=2, alpha=3), csr(4, 6),
        dense(2, 4, 3), dense(2, 3, 6))  # fmt: skip
    for name, call in {
        "to_sparse": lambda T, x: x.to_sparse(), "to_sparse 1": lambda T, x: x.to_sparse(1),
        "to_sparse_coo": lambda T, x: x.to_sparse_coo(), "to_sparse_csr": lambda T, x: x.to_sparse_csr(),
        "to_sparse_csc": lambda T, x: x.to_sparse_csc(), "to_sparse_bsr": lambda T, x: x.to_sparse_bsr((2, 2)),
        "to_sparse_bsc": lambda T, x: x.to_sparse_bsc((2, 2)),
        "to_sparse values": lambda T, x: x.to_sparse().values(),
        "to_sparse_csr values": lambda T, x: x.to_sparse_csr().values(),
        "to_sparse to_dense": lambda T, x: x.to_sparse().to_dense(),
        "to_sparse unmasked": lambda T, x: x.to_sparse().to_dense(masked_grad=False),
        "to_sparse mul": lambda T, x: x.to_sparse() * 2,
        "to_sparse_csr mm": lambda T, x: x.to_sparse_csr() @ T.ones(6, 2, dtype=T.float64),
        "to_sparse mm": lambda T, x: x.to_sparse() @ T.ones(6, 2, dtype=T.float64),
        "to_sparse sparse.mm": lambda T, x: T.sparse.mm(x.to_sparse(), T.ones(6, 2, dtype=T.float64)),
    }.items():  # fmt: skip
        add(f"dense {name}", call, lambda T: T.tensor(thinned((4, 6), 9)))
    at = [[0, 2, 1, 2], [1, 0, 3, 0]]
    add("sparse_coo_tensor", lambda T, v: T.sparse_coo_tensor(T.tensor(at), v, (3, 4)), dense(4))
    add("sparse_coo_tensor mm", lambda T, v, y: T.sparse.mm(T.sparse_coo_tensor(T.tensor(at), v, (3, 4)), y),
        dense(4), dense(4, 2))  # fmt: skip
    add("sparse_coo_tensor @", lambda T, v, y: T.sparse_coo_tensor(T.tensor(at), v, (3, 4)) @ y, dense(4),
        dense(4, 2))  # fmt: skip
    add("sparse_coo_tensor coalesce", lambda T, v: T.sparse_coo_tensor(T.tensor(at), v, (3, 4)).coalesce().values(),
        dense(4))  # fmt: skip
    add("sparse_coo_tensor softmax", lambda T, v: T.sparse.softmax(T.sparse_coo_tensor(T.tensor(at), v, (3, 4)), 1),
        dense(4))  # fmt: skip
    add("sparse_coo_tensor to_dense", lambda T, v: T.sparse_coo_tensor(T.tensor(at), v, (3, 4, 2)).to_dense(),
        dense(4, 2))  # fmt: skip
    lines, columns = [0, 1, 2, 4], [1, 3, 0, 2]
    add("sparse_csr_tensor", lambda T, v: T.sparse_csr_tensor(T.tensor(lines), T.tensor(columns), v, (3, 4)), dense(4))
    add("sparse_csr_tensor mm",
        lambda T, v, y: T.sparse.mm(T.sparse_csr_tensor(T.tensor(lines), T.tensor(columns), v, (3, 4)), y), dense(4),
        dense(4, 2))  # fmt: skip
    add("sparse_csr_tensor @",
        lambda T, v, y: T.sparse_csr_tensor(T.tensor(lines), T.tensor(columns), v, (3, 4)) @ y, dense(4),
        dense(4, 2))  # fmt: skip
    add("sparse_csr_tensor to_dense",
        lambda T, v: T.sparse_csr_tensor(T.tensor(lines), T.tensor(columns), v, (3, 4)).to_dense(),
        dense(4))  # fmt: skip
    add("sparse_csc_tensor to_dense",
        lambda T, v: T.sparse_csc_tensor(T.tensor(lines), T.tensor(columns), v, (4, 3)).to_dense(),
        dense(4))  # fmt: skip
    add("sparse_bsr_tensor to_dense",
        lambda T, v: T.sparse_bsr_tensor(T.tensor(lines), T.tensor(columns), v, (6, 8)).to_dense(),
        dense(4, 2, 2))  # fmt: skip
    return made


CASES = cases()


def shown(t):
    """What is compared of a tensor: layout, dtype, shape, how many elements it stores, and all of them."""
    if t is None:
        return None
    layout = str(t.layout).removeprefix("torch.")
    parts = ()
    if layout == "sparse_coo":
        parts = (t.is_coalesced(), t._nnz(), t.sparse_dim())
    elif layout != "strided":
        parts = (t._nnz(),)
    whole = t.detach().to_dense()
    return (layout, str(t.dtype).removeprefix("torch."), tuple(t.shape), *parts), np.asarray(whole.numpy())


def weights(T, out, how):
    """A gradient for `out`: dense, or (how="sparse") in its layout with its pattern."""
    if how == "sparse" and out.layout is not T.strided:
        out = out.detach()
        if out.layout is T.sparse_coo:
            out = out.coalesce()
            values = T.tensor(numbers(tuple(out._values().shape), 77)).to(out.dtype)
            made = T.sparse_coo_tensor(out._indices(), values, out.shape)
            return made._coalesced_(out.is_coalesced())
        values = T.tensor(numbers(tuple(out.values().shape), 77)).to(out.dtype)
        by_rows = out.layout in (T.sparse_csr, T.sparse_bsr)
        first, second = (out.crow_indices(), out.col_indices()) if by_rows else (out.ccol_indices(), out.row_indices())
        return T.sparse_compressed_tensor(first, second, values, out.shape, layout=out.layout)
    return T.tensor(numbers(tuple(out.shape), 78)).to(out.dtype)


def gradients(T, case, how, wanted=None):
    """The output and the gradients of all inputs (or of those `wanted`), as `shown`."""
    function, inputs = case
    made = [make(T) for make in inputs]
    for k, x in enumerate(made):
        x.requires_grad_(wanted is None or k in wanted)
    out = function(T, *made)
    g = weights(T, out, how)
    if how == "dense" and out.layout is not T.strided:
        (out.to_dense() * g).sum().backward()
    else:
        out.backward(g)
    return shown(out), *(shown(x.grad) for x in made)


def difference(name, theirs, mine):
    """What differs between two lists of `shown` tensors (the output and the gradients), as text; empty if nothing.

    How often a tensor that is not coalesced stores a coordinate is not compared, nor whether a gradient is known to
    be coalesced: torch forgets that when it stores a gradient.
    """
    for k, (a, b) in enumerate(zip(theirs, mine, strict=True)):
        what = f"gradient {k - 1}" if k else "output"
        if (a is None) != (b is None):
            return f"{what}: {a and a[0]} in torch, {b and b[0]} here"
        if a is None:
            continue
        (about, x), (about_mine, y) = a, b
        if about[0] == "sparse_coo" and about_mine[0] == "sparse_coo":
            skipped = {3, 4} if any(n in name for n in LOOSE) else {3} if k else set()
            if "sparse.mm both" in name:
                skipped = {3, 4}  # torch stores zeros too
            about = [v for i, v in enumerate(about) if i not in skipped]
            about_mine = [v for i, v in enumerate(about_mine) if i not in skipped]
        if about != about_mine:
            return f"{what}: {about} in torch, {about_mine} here"
        if not np.allclose(x, y, rtol=1e-6, atol=1e-8, equal_nan=True):
            return f"{what}: values differ by {np.abs(x - y).max()}"
    return ""


LOOSE = ("loose", "rows", "sparse_coo_tensor")
