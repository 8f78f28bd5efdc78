"""Empty tensors: every way that a dimension can be 0, forward and backward, against torch.

What torch gives must come out here, gradients included; where torch refuses, an error of its kind or (some of its
refusals hang on how a kernel is written) an empty result. Nothing may fail by accident, as in a division by zero.
"""

import itertools
import math
import re
import warnings

import pytest

pytest.importorskip("torch", reason="torch is the oracle of these tests")

import torch

import tensorgrad as tg
from tests.conformance.opdb_bridge import leaves
from tests.support.edge_cases import listed

SHAPES = [(2, 3, 0), (0, 3), (3, 0), (0,), (2, 0, 3), (0, 0), (2, 3)]
# Of a shape `s`, one of its dimensions `d`, `k` indices `i` along it, and `u`, the shape with `k` there.
ALONG = listed("""
T(*s).index_select(d, i); T(*s).index_add(d, i, T(*u)); T(*s).index_copy(d, i, T(*u)); T(*s).index_fill(d, i, 2.0)
T(*s).index_reduce(d, i, T(*u), "amax"); T(*s).index_reduce(d, i, T(*u), "mean"); T(*s).gather(d, Z(*u))
T(*s).index_reduce(d, i, T(*u), "prod"); T(*s).scatter(d, Z(*u), T(*u)); T(*s).scatter_add(d, Z(*u), T(*u))
T(*s).scatter_reduce(d, Z(*u), T(*u), "sum"); T(*s).scatter_reduce(d, Z(*u), T(*u), "amax")
T(*s).scatter_reduce(d, Z(*u), T(*u), "mean"); T(*s).scatter_reduce(d, Z(*u), T(*u), "prod")
T(*s).take_along_dim(Z(*u), d); T(*s).repeat_interleave(k, d); T(*s).repeat_interleave(l.full((s[d],), k), d)
T(*s)[(slice(None),) * d + (i,)]; T(*s)[(slice(None),) * d + (i, None)]; T(*s)[l.ones(s[: d + 1]).bool()]
T(*s).index_put((i,), T(1)); T(*s).index_put((i,), T(1), accumulate=True); T(*s).unfold(d, k, 1); T(*s).narrow(d, 0, 0)
T(*s).masked_select(l.zeros(s).bool()); T(*s).masked_scatter(l.zeros(s).bool(), T(3)); T(*s).take(Z(k))
T(*s).masked_fill(l.ones(s).bool(), 2.0); T(*s).select_scatter(T(*s[:d], *s[d + 1 :]), d, 0); T(*s).put(Z(k), T(k))
T(*s).slice_scatter(T(*s[:d], 0, *s[d + 1 :]), d, 0, 0); T(*s).cumsum(d); T(*s).cumprod(d); T(*s).cummax(d)
T(*s).logcumsumexp(d); T(*s).sort(d); T(*s).topk(0, d); T(*s).flip(d); T(*s).roll(1, d); T(*s).diff(dim=d)
l.cat([T(*s), T(*u)], d); l.stack([T(*s), T(*s)], d); T(*s).split(2, d); T(*s).chunk(2, d); T(*s).tile((k,))
T(*s).repeat(*[k] * len(s)); T(*s).sum(d); T(*s).mean(d); T(*s).prod(d); T(*s).amax(d); T(*s).max(d); T(*s).logsumexp(d)
T(*s).std(d); T(*s).var(d); T(*s).median(d); T(*s).nanmedian(d); T(*s).mode(d); T(*s).norm(dim=d); T(*s).nansum(d)
T(*s).nanmean(d); T(*s).softmax(d); T(*s).log_softmax(d); T(*s).all(d); T(*s).any(d); T(*s).argmax(d)
T(*s).kthvalue(1, d); T(*s).quantile(0.5, d); T(*s).nanquantile(0.5, d); T(*s).count_nonzero(d); T(*s).aminmax(dim=d)
T(*s).sum(); T(*s).mean(); T(*s).prod(); T(*s).amax(); T(*s).max(); T(*s).std(); T(*s).var(); T(*s).median()
T(*s).norm(); T(*s).argmax(); T(*s).quantile(0.5); T(*s).aminmax()
""")
# Of a batch of `n`, `c` channels, a spatial size `z`.
LAYERS = listed("""
F.batch_norm(T(n, c, z), None, None, training=True); F.layer_norm(T(n, c, z), (z,)); F.group_norm(T(n, c, z), 1)
F.batch_norm(T(n, c, z), l.zeros(c).double(), l.ones(c).double()); F.instance_norm(T(n, c, z))
F.rms_norm(T(n, c, z), (z,))
F.max_pool1d(T(n, c, z), 2); F.max_pool2d(T(n, c, z, 3), 2); F.avg_pool1d(T(n, c, z), 2); F.avg_pool2d(T(n, c, z, 3), 2)
F.adaptive_avg_pool1d(T(n, c, z), 2); F.adaptive_max_pool2d(T(n, c, z, 3), 2); F.lp_pool1d(T(n, c, z), 2, 2)
F.interpolate(T(n, c, z), scale_factor=2); F.interpolate(T(n, c, z), scale_factor=2, mode="linear")
F.interpolate(T(n, c, z, 3), scale_factor=2, mode="bilinear"); F.pad(T(n, c, z), (1, 1)); F.unfold(T(n, c, z, 3), 2)
F.pad(T(n, c, z), (1, 1), "reflect"); F.pad(T(n, c, z), (1, 1), "replicate"); F.pad(T(n, c, z), (1, 1), "circular")
F.fold(T(n, c * 4, 6), (3, 4), 2); F.softmax(T(n, c, z), 1); F.cross_entropy(T(n, c, z), Z(n, z))
F.mse_loss(T(n, c, z), T(n, c, z)); F.l1_loss(T(n, c, z), T(n, c, z)); F.nll_loss(T(n, c), Z(n)); F.glu(T(n, c, z), 1)
F.binary_cross_entropy_with_logits(T(n, c, z), T(n, c, z)); F.linear(T(n, c, z), T(3, z), T(3)); T(n, c, z) @ T(z, 5)
T(n, c, z).bmm(T(n, z, 5)); F.scaled_dot_product_attention(T(n, c, z), T(n, c, z), T(n, c, z))
F.embedding(Z(n), T(2, c))
F.embedding_bag(Z(n, 3), T(2, c)); F.embedding_bag(Z(0), T(2, c), Z(2)); F.cosine_similarity(T(n, c, z), T(n, c, z))
F.pairwise_distance(T(n, c, z), T(n, c, z)); l.cdist(T(n, c, z), T(n, c, z)); l.cdist(T(n, c, z), T(n, c, z), 0.0)
l.cdist(T(n, c, z), T(n, c, z), 1.0); F.prelu(T(n, c, z), T(c)); F.local_response_norm(T(n, c, z), 2)
F.normalize(T(n, c, z)); F.grid_sample(T(n, c, z, 3), T(n, 2, 2, 2)); l.einsum("ncs,ncs->n", T(n, c, z), T(n, c, z))
l.fft.fft(T(n, c, z)); T(n, c, z).renorm(2, 0, 1.0); T(n, c, z).triu(); T(n, c, z).diagonal(); T(n, c).trace()
l.linalg.det(T(n, 0, 0)); l.linalg.inv(T(n, 0, 0)); l.linalg.svdvals(T(n, c)); l.linalg.qr(T(n, c)); l.cov(T(n, c))
l.kron(T(n, c), T(2, 2)); l.outer(T(n), T(c)); l.trapezoid(T(n, c, z)); l.cumulative_trapezoid(T(n, c, z))
l.combinations(T(n)); l.cartesian_prod(T(n), T(c)); l.block_diag(T(n, c), T(2, 2)); l.addmm(T(n, 5), T(n, c), T(c, 5))
l.baddbmm(T(n, c, 5), T(n, c, z), T(n, z, 5)); l.linalg.multi_dot([T(2, n), T(n, c), T(c, 2)]); F.one_hot(Z(n))
l.linalg.matrix_norm(T(n, c)); F.kl_div(T(n, c, z), T(n, c, z)); F.huber_loss(T(n, c, z), T(n, c, z))
""")
# `o` channels out, a kernel of `k`, settings `w`.
CONVOLUTIONS = listed("""
F.conv1d(T(n, c, z), T(o, c, k), T(o), **w); F.conv_transpose1d(T(n, c, z), T(c, o, k), T(o), **w)
F.conv2d(T(n, c, z, z), T(o, c, k, k), T(o), **w); F.conv_transpose2d(T(n, c, z, z), T(c, o, k, k), T(o), **w)
""")


def observed(library, expression: str, names: dict):
    """("ok", shapes and values, gradients) or (where it failed, the exception)."""
    made = []

    def T(*shape):
        values = (library.arange(math.prod(shape), dtype=library.float64) + 0.5).reshape(shape)
        made.append(values.requires_grad_())
        return values

    names = {**names, "i": library.zeros(names.get("k", 0), dtype=library.int64)}
    names |= {"T": T, "Z": lambda *s: library.zeros(s, dtype=library.int64), "l": library, "F": library.nn.functional}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            results = leaves(eval(expression, names))
        except Exception as error:
            return "forward", error
        values = [(tuple(r.shape), str(r.dtype)[-7:], r.requires_grad, r.detach().tolist()) for r in results]
        tracked = [r for r in results if r.requires_grad]
        if not tracked:
            return "ok", values, []
        try:
            grads = library.autograd.grad(tracked, made, [library.ones_like(r) for r in tracked], allow_unused=True)
        except Exception as error:
            return "backward", error
    return "ok", values, [g if g is None else (tuple(g.shape), g.tolist()) for g in grads]


def nearly_equal(a, b) -> bool:
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(nearly_equal, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (a != a and b != b) or abs(a - b) <= 1e-8 + 1e-6 * abs(a)
    return a == b


def check(expression: str, cases) -> None:
    wrong = []
    for names in cases:
        found, expected = observed(tg, expression, names), observed(torch, expression, names)
        if found[0] != "ok":
            accident = isinstance(found[1], ArithmeticError | AttributeError | NameError) or "by zero" in str(found[1])
            if accident or expected[0] == "ok":
                wrong.append(f"{names}: {found}, torch {expected}")
        elif expected[0] == "ok" and not nearly_equal(found, expected):
            wrong.append(f"{names}: {found}, torch {expected}")
    assert not wrong, f"{expression}\n" + "\n".join(wrong[:6])


@pytest.mark.parametrize("expression", ALONG)
def test_along_a_dimension(expression):
    cases = []
    for s in SHAPES:
        for d, k in itertools.product(range(len(s)), (0, 2)):
            if s[d] or not k or not re.search(r"\bi\b|Z\(", expression):  # (else there is nothing to point at)
                cases.append({"s": s, "d": d, "k": k, "u": (*s[:d], k, *s[d + 1 :])})
    check(expression, cases)


@pytest.mark.parametrize("expression", LAYERS)
def test_layers(expression):
    check(expression, [{"n": n, "c": c, "z": z} for n, c, z in itertools.product((0, 2), (0, 2), (0, 4))])


@pytest.mark.parametrize("expression", CONVOLUTIONS)
def test_convolutions(expression):
    settings = ({}, {"stride": 2, "padding": 1}, {"padding": 2})
    check(expression, [
        dict(zip("nczokw", case, strict=True))
        for case in itertools.product((0, 1, 2), (0, 2), (0, 1, 4), (0, 3), (1, 2, 3), settings)
    ])  # fmt: skip


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int64", "bool", "complex64"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_reductions_of_nothing_in_other_dtypes(shape, dtype):
    """Two-byte floats, integers and complex numbers have kernels of their own."""
    for name in ("sum", "prod", "mean", "nansum", "any", "count_nonzero", "cumsum", "cumprod", "std", "norm"):
        for dim in (None, *range(len(shape))):
            found = []
            for library in (tg, torch):
                x = library.zeros(shape, dtype=getattr(library, dtype))
                try:
                    made = getattr(x, name)() if dim is None else getattr(x, name)(dim)
                except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError):
                    found.append("an error")
                else:
                    values = made.to(library.complex64).nan_to_num().tolist()
                    found.append((str(made.dtype).split(".")[-1], tuple(made.shape), values))
            assert found[0] == found[1], (name, dim)
