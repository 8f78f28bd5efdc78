"""Each translation: what onnxruntime computes is what the program does."""

import pytest

import tensorgrad as torch
import tensorgrad.nn.functional as F
from tests.onnx.compare import check

ALL = (18, 20, 23)  # versions of the operators in which translations differ


def x(*shape):
    torch.manual_seed(0)
    return torch.randn(*shape) if shape else torch.randn(3, 4)


def positive(*shape):
    return x(*shape).abs() + 0.5


def integers(*shape, low=-5, high=6):
    torch.manual_seed(0)
    return torch.randint(low, high, shape or (3, 4))


UNARY = {
    name: (getattr(torch, name), x() * 0.9)
    for name in (
        "neg", "exp", "sin", "cos", "tan", "atan", "sinh", "cosh", "tanh", "asinh", "abs", "sign", "sigmoid", "erf",
        "erfc", "relu", "square", "exp2", "expm1", "deg2rad", "rad2deg", "floor", "ceil", "round", "trunc", "frac",
        "isnan", "isinf", "isfinite", "logical_not",
    )
} | {
    name: (getattr(torch, name), positive() / 3)
    for name in ("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal")
} | {name: (getattr(torch, name), x().tanh()) for name in ("asin", "acos", "atanh")}  # fmt: skip
BINARY = {
    name: (getattr(torch, name), x(), x(4) * 0.7)
    for name in ("add", "sub", "mul", "div", "remainder", "fmod", "maximum", "minimum", "atan2", "hypot",
                 "logaddexp", "floor_divide", "eq", "ne", "lt", "le", "gt", "ge")
} | {
    f"{name} of integers": (getattr(torch, name), integers(), integers(4, low=1))
    for name in ("add", "sub", "mul", "div", "floor_divide", "remainder", "fmod", "maximum", "eq", "ne", "lt", "ge",
                 "bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or")
}  # fmt: skip
REDUCTIONS = {
    **{f"{name}": (getattr(torch, name), x(2, 3, 4)) for name in ("sum", "mean", "prod", "std", "var", "amax", "amin")},
    **{f"{name} over 1": (lambda t, n=name: getattr(torch, n)(t, 1), x(2, 3, 4))
       for name in ("sum", "mean", "prod", "std", "var", "amax", "amin", "max", "min", "argmax", "argmin", "cumsum",
                    "softmax", "log_softmax", "logsumexp", "sort", "norm", "var_mean", "nansum", "count_nonzero")},
    **{f"norm {p}": (lambda t, p=p: torch.linalg.vector_norm(t, p, 1), x()) for p in (0, 1, 2, 3, float("inf"))},
    "sum of two, kept": (lambda t: t.sum((0, 2), keepdim=True), x(2, 3, 4)),
    "any and all": (lambda t: ((t > 0).any(), (t > -9).all(1), t.any(0)), x()),
    "argmax of all": (lambda t: (t.argmax(), t.argmin()), x()),
    "max of all": (lambda t: (t.max(), t.min()), x()),
    "topk": (lambda t: (*t.topk(2), *t.topk(1, 0, largest=False)), x()),
    "tril and triu": (lambda t: (t.tril(), t.triu(1), (t > 0).tril(-1)), x(4, 4)),
    "cdist": (torch.cdist, x(2, 3, 4), x(2, 5, 4) + 1),
}  # fmt: skip
SHAPES = {
    "view": (lambda t: (t.view(-1), t.view(3, 2, 2), t.flatten(), t.unsqueeze(0), t.unsqueeze(-1).squeeze()), x()),
    "permute": (lambda t: (t.permute(2, 0, 1), t.transpose(0, -1), t.movedim(0, 1), t[0].t()), x(2, 3, 4)),
    "slices": (lambda t: (t[:, 1:3], t[::2], t[..., -1], t[-1], t[0, 1:], t[:, None, 1], t[:, -2:]), x(3, 4, 5)),
    "expand": (lambda t: (t.expand(2, 3, 4), t.repeat(2, 3), t.tile(2), t.repeat_interleave(2, 0)), x()),
    "split": (lambda t: (t.split(1), t.chunk(2, 1), t.unbind(1), t.split([1, 3], 1)), x()),
    "join": (lambda t: (torch.cat([t, t * 2], 1), torch.stack([t, t], 1), torch.hstack([t, t])), x()),
    "flip": (lambda t: (t.flip(0), t.roll(1, 0), t.roll((1, -1), (0, 1)), t.roll(2)), x()),
    "diagonal": (lambda t: (t.diagonal(), t.diagonal(1), t.diagonal(-1)), x(3, 4)),
    "unfold": (lambda t: (t.unfold(1, 2, 1), F.unfold(t[None, None], 2)), x(4, 5)),
    "pad": (lambda t: (F.pad(t, (1, 2)), F.pad(t, (1, 0, 0, 1), value=3.0), F.pad(t, (-1, 1))), x()),
    "circles that are cut": (lambda t: F.pad(t, (-1, 1, -2, 1), mode="circular"), x(1, 3, 4, 4)),
    "edges beyond a cut": (lambda t: F.pad(t, (-4, 5, 0, 0), mode="replicate"), x(2, 3, 4, 4)),
    "pad around": (lambda t: [F.pad(t, (1, 1), mode=m) for m in ("reflect", "replicate", "circular")], x(1, 3, 4)),
    "casts": (lambda t: (t.double(), t.int(), t.bool(), t.to(torch.int64).float(), t.half().float()), x()),
    "made": (lambda t: (torch.zeros_like(t), torch.full((2,), 3.0) + t[0, 0], torch.arange(4) * t), x()),
    "einsum": (lambda t: (torch.einsum("ij,kj->ik", t, t), torch.einsum("ij->ji", t)), x()),
}
NUMBERS = {  # tensors without dimensions
    "extremes of a number": (lambda t: (*t.max(0), t.argmax(), t.argmin(0), *t.sort(0), *t.topk(1, 0)), x()[0, 0]),
    "sums of a number": (lambda t: (t.nansum(0), t.count_nonzero(), torch.linalg.vector_norm(t, 1), t.norm()),
                         -x()[0, 0].abs()),
    "a number in places": (
        lambda t, i: (t.index_fill(0, i, 2.0), t.index_add(0, i, t[None], alpha=3), t.index_copy(0, i, t[None] * 2),
                      t.gather(0, i), t.scatter_add(0, i[0], t), t.unfold(0, 1, 1), t.roll(2)),
        x()[0, 0], torch.tensor([0])),
    "one_hot of a number": (lambda i: F.one_hot(i, 4), torch.tensor(2)),
    "cross entropy of one example": (lambda t, i: (F.cross_entropy(t, i), F.cross_entropy(t, i, reduction="none")),
                                     x(4), torch.tensor(2)),
    "logaddexp of infinities": (torch.logaddexp, torch.tensor([-float("inf"), 1.0, -float("inf")]),
                                torch.tensor([-float("inf"), -float("inf"), 2.0])),
}  # fmt: skip
INDEXING = {
    "where": (lambda t: (torch.where(t > 0, t, 0), t.masked_fill(t > 0, -1.0), t.clamp(-0.5, 0.5), t.clamp(0)), x()),
    "index": (lambda t: (t[torch.tensor([0, 2])], t[:, torch.tensor([1, -1])], t[torch.tensor([[0, 1]])]), x()),
    "two indices": (lambda t: (t[torch.tensor([0, 1]), torch.tensor([1, -1])],
                               t[torch.tensor([0, 1]), :, torch.tensor([1, 0])]), x(2, 3, 4)),
    "index by input": (lambda t, i: (t[i], t.gather(0, i[:, None]), t.index_select(0, i), F.one_hot(i, 5)),
                       x(), torch.tensor([2, 0])),
    "mask": (lambda t: (t[t > 0], t.nonzero()), x()),
    "scatter": (lambda t: (t.scatter(1, torch.zeros(3, 1, dtype=torch.int64), 2.0),
                           t.scatter_add(0, torch.zeros(1, 4, dtype=torch.int64), t),
                           t.index_add(0, torch.tensor([0, 0]), t[:2]),
                           t.index_fill(1, torch.tensor([1]), 5.0)), x()),
    "index_put": (lambda t: (t.index_put((torch.tensor([0, 2]),), torch.tensor(1.0)),
                             t.index_put((torch.tensor([0, 0]), torch.tensor([1, 1])), t[0, :2], True)), x()),
    "embedding": (lambda w, i: F.embedding(i, w), x(), torch.tensor([[0, 2], [1, 1]])),
}  # fmt: skip
NETWORKS = {
    **{f"interpolate {mode} {kind}": (lambda t, m=mode, k=kind: F.interpolate(t, mode=m, **k_of(k)), x(1, 2, 4, 6))
       for mode in ("nearest", "nearest-exact", "bilinear", "bicubic") for kind in ("size", "scale")},
    "align_corners": (lambda t: F.interpolate(t, size=(5, 7), mode="bilinear", align_corners=True), x(1, 2, 4, 4)),
    **{f"adaptive {n}": (lambda t, n=n: F.adaptive_avg_pool2d(t, n), x(1, 2, 6, 7)) for n in (1, 2, 3, (3, 1))},
    "max pool": (lambda t: (F.max_pool2d(t, 3, 2, 1, ceil_mode=True), *F.max_pool2d(t, 2, return_indices=True)),
                 x(2, 2, 8, 8)),
    "avg pool": (lambda t: (F.avg_pool2d(t, 3, 2, 1), F.avg_pool2d(t, 3, 2, 1, count_include_pad=False),
                            F.avg_pool2d(t, 2, divisor_override=3)), x(2, 2, 8, 8)),
    "avg pool of windows beyond the edge": (
        lambda t: (F.avg_pool2d(t, (4, 4), (2, 3), 1, True, False, 2), F.avg_pool2d(t, 3, 2, 1, True, True, 5),
                   F.avg_pool3d(t[None], 2, 1, 1, True, False, 2)), x(1, 3, 9, 9)),
    "grid_sample": (lambda t, g: F.grid_sample(t, g, align_corners=False), x(1, 2, 4, 4), x(1, 3, 3, 2) / 3),
    "grid_sampler in volumes": (lambda t, g: torch.grid_sampler_3d(t, g, 0, 1, False), x(1, 2, 3, 3, 3),
                                x(1, 2, 2, 2, 3) / 3),
    "attention": (lambda q: (F.scaled_dot_product_attention(q, q, q, is_causal=True),
                             F.scaled_dot_product_attention(q, q, q, attn_mask=torch.ones(3, 3).tril().bool())),
                  x(2, 2, 3, 4)),
    "products": (lambda a, b: (a @ b, torch.mv(a, b[:, 0]), torch.dot(a[0], b[:, 0]), torch.outer(a[0], a[1]),
                               torch.addmm(a @ b, a, b, beta=0.5, alpha=2.0), torch.linalg.multi_dot([a, b, a])),
                 x(3, 4), x(4, 3)),
    "losses": (lambda a, i: (F.cross_entropy(a, i), F.nll_loss(a, i, reduction="sum"), F.mse_loss(a, a * 2),
                             F.cross_entropy(a, i, torch.arange(4.0) + 1, ignore_index=0, reduction="none")),
               x(), torch.tensor([1, 0, 3])),
}  # fmt: skip
TABLE = {**UNARY, **BINARY, **REDUCTIONS, **SHAPES, **NUMBERS, **INDEXING, **NETWORKS}


def k_of(kind):
    return {"size": (5, 7)} if kind == "size" else {"scale_factor": 1.5}


@pytest.mark.filterwarnings("ignore::tensorgrad.onnx.errors.OnnxExporterWarning")
@pytest.mark.parametrize("name", TABLE)
def test_operator(name):
    program, *args = TABLE[name]
    for opset in ALL if name in NETWORKS else (18 + list(TABLE).index(name) % 6,):
        check(program, tuple(args), opset_version=opset)


def test_writes_and_views():
    def program(x):
        x = x.clone()
        row, corner = x[0], x[:2, :2]
        x[0, 1] = 5
        corner.mul_(2)
        x[:, 1:] += row[1]
        x[torch.tensor([1]), 2] = 7.0
        x[x < 0] = 0.0
        x.t()[0].add_(1)
        buffer = torch.zeros(2, 3)
        buffer[1] = row[:3]
        return x, row, corner, buffer, x.relu_()

    check(program, (x(),))


def test_an_input_that_is_written_to_or_returned():
    check(lambda x: (x, x, x + 1), (x(),))
