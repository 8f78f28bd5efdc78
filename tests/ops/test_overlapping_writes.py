"""Writes to tensors that overlap with what the write reads are refused where PyTorch refuses them."""

import warnings

from tests.support.alike import alike

# A matrix to write to, and one to read: (torch) -> both, 2 × 3 or 3 × 3.
PAIRS = {
    "the same view": lambda t: lambda b: (b[:6].view(2, 3), b[:6].view(2, 3)),
    "shifted by one": lambda t: lambda b: (b[:6].view(2, 3), b[1:7].view(2, 3)),
    "shifted by a row": lambda t: lambda b: (b[:6].view(2, 3), b[3:9].view(2, 3)),
    "transposed": lambda t: lambda b: (b[:9].view(3, 3), b[:9].view(3, 3).t()),
    "columns that overlap": lambda t: lambda b: (b.view(2, 6)[:, :3], b.view(2, 6)[:, 1:4]),
    "every other column": lambda t: lambda b: (b.view(2, 6)[:, ::2], b.view(2, 6)[:, 1::2]),
    "apart": lambda t: lambda b: (b[:6].view(2, 3), b[6:].view(2, 3)),
    "other strides": lambda t: lambda b: (b.as_strided((2, 3), (3, 1)), b.as_strided((2, 3), (1, 2))),
    "a row of it": lambda t: lambda b: (b[:6].view(2, 3), b[:3].expand(2, 3)),
}
VALUES = {"the same view", "every other column", "apart"}  # of others PyTorch may read what it has written


def first(t):
    return t.tensor([0, 1])


def zeros(t, s):
    return t.zeros(s.shape, dtype=t.int64)


WRITES = {
    "copy_": lambda t, x, s: x.copy_(s),
    "x[...] =": lambda t, x, s: x.__setitem__(..., s),
    "add_": lambda t, x, s: x.add_(s),
    "add_ alpha": lambda t, x, s: x.add_(s, alpha=2),
    "+=": lambda t, x, s: x.__iadd__(s),
    "sub_": lambda t, x, s: x.sub_(s, alpha=0.5),
    "mul_": lambda t, x, s: x.mul_(s),
    "clamp_": lambda t, x, s: x.clamp_(s),
    "lerp_": lambda t, x, s: x.lerp_(s, 0.5),
    "addcmul_": lambda t, x, s: x.addcmul_(s, s),
    "eq_": lambda t, x, s: x.eq_(s),
    "atan2_": lambda t, x, s: x.atan2_(s),
    "heaviside_": lambda t, x, s: x.heaviside_(s),
    "one element": lambda t, x, s: x.add_(s[0, 0]),
    "fill_": lambda t, x, s: x.fill_(s[0, 1]),
    "masked_fill_": lambda t, x, s: x.masked_fill_(x > 2, s[0, 1]),
    "x[mask] = one": lambda t, x, s: x.__setitem__(x > 2, s[0, 1]),
    "x[mask] =": lambda t, x, s: x.__setitem__(x >= 0, s.flatten()),
    "x[i] =": lambda t, x, s: x.__setitem__(first(t), s[:2]),
    "x[i] = a row": lambda t, x, s: x.__setitem__(first(t), s[1]),
    "index_put_": lambda t, x, s: x.index_put_((first(t),), s[:2]),
    "index_put_ added": lambda t, x, s: x.index_put_((first(t),), s[:2], accumulate=True),
    "index_add_": lambda t, x, s: x.index_add_(0, first(t), s[:2]),
    "index_copy_": lambda t, x, s: x.index_copy_(0, first(t), s[:2]),
    "index_fill_": lambda t, x, s: x.index_fill_(0, first(t), s[0, 1]),
    "scatter_": lambda t, x, s: x.scatter_(0, zeros(t, s), s),
    "scatter_ added": lambda t, x, s: x.scatter_(0, zeros(t, s), s, reduce="add"),
    "scatter_add_": lambda t, x, s: x.scatter_add_(0, zeros(t, s), s),
    "scatter_reduce_": lambda t, x, s: x.scatter_reduce_(0, zeros(t, s), s, "amax"),
    "put_": lambda t, x, s: x.put_(zeros(t, s), s),
    "put_ added": lambda t, x, s: x.put_(zeros(t, s), s, accumulate=True),
    "masked_scatter_": lambda t, x, s: x.masked_scatter_(x < 0, s),
    "out of add": lambda t, x, s: t.add(s, s, out=x),
    "out of where": lambda t, x, s: t.where(s > 1, s, s, out=x),
    "out of cumsum": lambda t, x, s: t.cumsum(s, 0, out=x),
    "out of logcumsumexp": lambda t, x, s: t.logcumsumexp(s, 0, out=x),
    "out of scatter": lambda t, x, s: t.scatter(s, 0, zeros(t, s), s, out=x),
    "out of index_add": lambda t, x, s: t.index_add(s, 0, first(t)[:1], s[:1], out=x),
    "out of index_add to itself": lambda t, x, s: t.index_add(x, 0, first(t)[:1], t.ones(1, 3), out=x),
    "out of gather": lambda t, x, s: t.gather(s, 0, zeros(t, s), out=x),
    "out of mm": lambda t, x, s: t.mm(s, t.ones(3, 3), out=x),
    "out of sort": lambda t, x, s: t.sort(s, 0, out=(x, zeros(t, s))),
    "out of sum": lambda t, x, s: t.sum(t.stack([s, s]), 0, out=x),
}


def outcomes(t, tracked):
    seen = []
    for write, call in WRITES.items():
        for pair, made in PAIRS.items():
            base = t.arange(12.0)
            if tracked:
                base = base.requires_grad_() * 1
            x, source = made(t)(base)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    call(t, x, source)
                seen.append((write, pair, x.detach().clone() if pair in VALUES else ""))
            except RuntimeError as error:
                seen.append(
                    (write, pair, "refused: " + str(error)[:80] if "memory location" in str(error) else "error")
                )
    return seen


@alike
def test_sources_that_overlap(t):
    return outcomes(t, False)


@alike
def test_sources_that_overlap_in_a_graph(t):
    return [row for row in outcomes(t, True) if not row[0].startswith("out of")]


@alike
def test_indices_that_are_written_to(t):
    seen = []
    for write in ("x[x] = 1", "x[x] = x", "x.index_put_((x,), t.tensor(1))", "x.index_add_(0, x, t.ones(3).long())",
                  "x.scatter_(0, x, 1)", "x.put_(x, t.ones(3).long())", "x.index_fill_(0, x, 1)"):  # fmt: skip
        x = t.tensor([1, 2, 0])
        try:
            exec(write, {"x": x, "t": t})
            seen.append(x)
        except RuntimeError as error:
            seen.append((write, str(error)[:80]))
    return seen


@alike
def test_a_view_of_one_element_is_the_same_in_any_shape(t):
    x, y = t.ones(()), t.ones(1)
    x[None] = x
    y[::2] += 0.5
    return [x, y]
