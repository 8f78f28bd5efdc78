"""Random calls of PyTorch's functions in nine modes, compared with PyTorch's own results.

Each case is an expression of the table below, a mode (plain, `out=`, no_grad, inference, autocast, vmap, jvp, gradient,
second gradient), and operands: shapes that broadcast, dtypes, layouts, and special values. Compared are values, dtypes,
shapes, how many gradients there are, and the types of errors.

    python -m tests.fuzz stress --only expressions --seed 7 --cases 1
"""

from __future__ import annotations

import random
import re
import warnings
from collections import Counter
from contextlib import nullcontext
from typing import Any

import numpy as np

from tests.fuzz.beside_torch import Difference, Known, kind_of, meant, name_of, numbers, shown, values_differ


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# --- the table -------------------------------------------------------------------------------------------------------

# Names stand for operands: a, b, c broadcast together; m (p, q), n (q, p) and s (q, q) are matrices, u and v have q
# numbers; i are indices of the last dimension of a; k is a mask like a; x is (2, 4, 6, 6), w (4, 4, 3, 3), y (2, 4, 9).
UNARY = words(
    "abs neg exp exp2 expm1 log log2 log10 log1p sqrt rsqrt square reciprocal sin cos tan asin acos atan sinh cosh "
    "tanh asinh acosh atanh sigmoid erf erfc relu sign sgn floor ceil round trunc frac positive isnan isinf "
    "isfinite logical_not lgamma digamma sinc deg2rad rad2deg nan_to_num signbit logit i0 real angle conj"
)
SPECIAL_UNARY = words("entr expit ndtr log_ndtr i0e i1 i1e erfcx bessel_j0 bessel_j1 ndtri")
BINARY = words(
    "add sub mul div maximum minimum fmax fmin pow atan2 hypot copysign fmod remainder floor_divide eq ne lt le gt ge "
    "logical_and logical_or logical_xor logaddexp logaddexp2 nextafter xlogy heaviside true_divide float_power"
)
WHOLE = words("bitwise_and bitwise_or bitwise_xor gcd lcm bitwise_left_shift")
REDUCED = words(
    "sum mean amax amin logsumexp nansum nanmean std var all any argmax argmin prod count_nonzero median nanmedian "
    "mode max min cumsum cumprod cummax cummin logcumsumexp sort argsort softmax log_softmax std_mean var_mean aminmax "
    "unique"
)
ACTIVATIONS = words(
    "relu gelu silu mish elu selu celu leaky_relu hardtanh hardswish hardsigmoid softplus softsign tanhshrink "
    "logsigmoid softshrink hardshrink relu6"
)
LINEAR = words("det inv slogdet matrix_exp eigvalsh cholesky qr svdvals pinv matrix_rank cond lu_factor")
CALLS = """
a + b * c | a - 2 | 3 / a | a ** 2 | 2 ** a | -a | a // 2 | a % 3 | (a > b) | torch.addcmul(a, b, c, value=0.5)
torch.addcdiv(a, b, c) | torch.lerp(a, b, 0.3) | torch.lerp(a, b, c) | torch.where(k, a, b) | torch.where(k, a, 0.5)
torch.clamp(a, -0.5, 0.5) | torch.clamp(a, b, c) | torch.clamp(a, min=0) | a.masked_fill(k, 2.0) | a.masked_select(k)
torch.sum(a) | torch.mean(a) | torch.prod(a) | torch.amax(a) | torch.max(a) | torch.median(a) | torch.var(a)
torch.std(a, correction=0) | torch.norm(a) | torch.linalg.vector_norm(a, 3) | torch.linalg.vector_norm(a, inf)
torch.linalg.vector_norm(a, 0) | a.sum((0, -1)) | a.flip(0) | torch.gather(a, -1, i) | torch.take_along_dim(a, i, -1)
a.scatter(-1, i, b.expand_as(a)) | a.scatter_add(-1, i, b.expand_as(a))
a.scatter_reduce(-1, i, b.expand_as(a), 'amax') | a.scatter_reduce(-1, i, b.expand_as(a), 'mean', include_self=False)
a.index_select(-1, i.flatten()) | a.index_add(-1, i.flatten()[:1], a[..., :1]) | a.index_fill(-1, i.flatten(), 2)
torch.take(a, i) | a[..., i.flatten()] | a[k] | a[..., 0] | a[..., ::2] | a[None]
torch.topk(a, 1)[0] | a.gather(-1, torch.topk(a, 1)[1]) | torch.kthvalue(a, 1)[0]
a.gather(-1, torch.kthvalue(a, 1, keepdim=True)[1])
torch.searchsorted(a.sort(-1)[0], b.expand_as(a).contiguous()) | torch.cat([a, a], -1)
torch.stack([a, b.expand_as(a)]) | torch.roll(a, 1, -1) | a.repeat(2, 1, 1) | a.repeat_interleave(2, -1)
torch.tile(a, (2,)) | a.unfold(-1, 1, 1) | torch.tril(m) | torch.triu(m, 1) | torch.diagonal(m) | torch.diag_embed(u)
torch.rot90(m) | m.t() | m.T.contiguous() | torch.trace(m) | torch.block_diag(m, n) | torch.kron(m, n)
torch.outer(u, v) | torch.dot(u, v) | torch.mv(m, u) | m @ n | torch.mm(m, n) | torch.addmm(s, n, m)
torch.addmm(s, n, m, beta=0.5, alpha=2) | torch.addmv(u, s, v) | torch.baddbmm(s[None], n[None], m[None])
torch.bmm(m[None], n[None]) | torch.addr(s, u, v) | torch.einsum('ij,jk->ki', m, n) | torch.tensordot(m, n, 1)
torch.linalg.multi_dot([m, n, m]) | torch.cross(u[..., :3], v[..., :3], dim=-1) | torch.chain_matmul(m, n)
torch.cdist(m, m + 1) | torch.cov(m) | torch.corrcoef(m) | torch.linalg.solve(s, n) | torch.linalg.matrix_power(s, 2)
torch.linalg.matrix_norm(m) | torch.linalg.matrix_norm(m, 1) | torch.linalg.matrix_norm(m, 'nuc')
torch.linalg.matrix_norm(m, 2) | torch.linalg.lstsq(s, n).solution | torch.trapezoid(a) | torch.bincount(i.flatten())
torch.histc(a, 4) | torch.cumulative_trapezoid(a) | torch.vander(u) | torch.renorm(m, 2, 0, 1)
torch.polar(a.abs(), a) | torch.complex(a, a) | torch.view_as_real(torch.complex(a, a)) | torch.isclose(a, b)
torch.allclose(a, a) | torch.equal(a, a) | torch.bucketize(a, u.sort()[0]) | torch.quantile(a, 0.5)
torch.nanquantile(a, 0.25) | torch.fft.fft(a) | torch.fft.rfft(a) | torch.fft.irfft(torch.fft.rfft(u), u.shape[0])
F.conv2d(x, w) | F.conv2d(x, w, None, 2, 1) | F.conv2d(x, w[:, :1], groups=4) | F.conv_transpose2d(x, w, None, 2)
F.conv1d(y, w[..., 0]) | F.max_pool2d(x, 2) | F.avg_pool2d(x, 3, 2, 1) | F.adaptive_avg_pool2d(x, 2)
F.adaptive_max_pool2d(x, 2) | F.lp_pool2d(x, 2, 2) | F.unfold(x, 2) | F.pixel_shuffle(x, 2)
F.interpolate(x, scale_factor=2) | F.interpolate(x, size=(3, 5), mode='bilinear')
F.interpolate(x, size=(8, 7), mode='bicubic') | F.interpolate(y, 5, mode='linear', align_corners=True)
F.pad(x, (1, 1)) | F.pad(x, (1, 1, 1, 1), 'reflect') | F.pad(x, (1, 0, 2, 0), 'replicate')
F.pad(x, (1, 1, 1, 1), 'circular') | F.pad(a, (1, 2), value=3.0) | F.layer_norm(x, (6,)) | F.group_norm(x, 2)
F.batch_norm(x, None, None, training=True) | F.instance_norm(x) | F.rms_norm(x, (6,)) | F.local_response_norm(x, 2)
F.normalize(a, dim=-1) | F.linear(m, m)
F.bilinear(m, m, w[:, :, 0, 0][None].expand(2, 4, 4)[:, :m.shape[-1], :m.shape[-1]]) | F.softmin(a, -1) | F.glu(y, 1)
F.cosine_similarity(a, b) | F.pairwise_distance(m, m + 0.5) | F.scaled_dot_product_attention(x, x, x)
F.scaled_dot_product_attention(x, x, x, is_causal=True) | F.mse_loss(a, b.expand_as(a)) | F.l1_loss(a, b.expand_as(a))
F.smooth_l1_loss(a, b.expand_as(a)) | F.huber_loss(a, b.expand_as(a))
F.cross_entropy(m, torch.zeros(m.shape[0], dtype=torch.long))
F.nll_loss(m.log_softmax(-1), torch.zeros(m.shape[0], dtype=torch.long))
F.kl_div(m.log_softmax(-1), m.softmax(-1), reduction='batchmean') | F.binary_cross_entropy_with_logits(m, m.sigmoid())
F.soft_margin_loss(a, b.expand_as(a).sign()) | F.poisson_nll_loss(a, b.expand_as(a).abs())
F.gaussian_nll_loss(m, m + 1, m.abs() + 1) | F.margin_ranking_loss(u, v, u.sign())
F.triplet_margin_loss(m, m + 1, m - 2) | F.cosine_embedding_loss(m, m + 1, torch.ones(m.shape[0]))
F.hinge_embedding_loss(m, m.sign()) | F.embedding(i, m) | F.one_hot(i, 9) | F.threshold(a, 0.1, 2)
F.prelu(x, w[0, :, 0, 0]) | F.grid_sample(x, x[:, :2].permute(0, 2, 3, 1).tanh()) | F.fold(F.unfold(x, 2), (6, 6), 2)
torch.segment_reduce(m, 'sum', lengths=torch.tensor([m.shape[0]])) | torch.logdet(s)
torch.linalg.eigvals(s).abs().sort()[0] | torch.triangular_solve(n, s.triu())[0]
torch.linalg.solve_triangular(s.triu(), n, upper=True) | torch.cholesky_inverse(s.tril())
""".replace("\n", " | ")

ELEMENTWISE = (
    *(f"torch.{name}(a)" for name in UNARY), *(f"torch.special.{name}(a)" for name in SPECIAL_UNARY),
    *(f"torch.{name}(a, b)" for name in BINARY), *(f"torch.{name}(a, 2)" for name in BINARY[:20]),
    *(f"torch.{name}(a, b)" for name in WHOLE), *(f"F.{name}(a)" for name in ACTIVATIONS),
    "torch.where(k, a, b)", "torch.clamp(a, b, c)", "torch.clamp(a, -0.5, 0.5)", "torch.lerp(a, b, c)",
)  # fmt: skip
EXPRESSIONS = tuple(dict.fromkeys((
    *ELEMENTWISE,
    *(f"torch.{name}(a, dim=-1)" for name in REDUCED), *(f"torch.{name}(a, 0, keepdim=True)" for name in REDUCED[:14]),
    "torch.norm(a, 2, -1)", "torch.diff(a)", "torch.unique(a)",
    "F.gelu(a, approximate='tanh')",
    *(f"torch.linalg.{name}(s)" for name in LINEAR),
    *(text.strip() for text in CALLS.split("|") if text.strip()),
)))  # fmt: skip

MODES = (
    "plain",
    "plain",
    "out",
    "no_grad",
    "inference",
    "autocast",
    "vmap",
    "jvp",
    "gradient",
    "gradient",
    "second gradient",
)
DTYPES = ("float32",) * 6 + ("float64",) * 4 + ("bfloat16", "float16", "int64", "int32", "uint8", "bool", "complex64")
LAYOUTS = ("plain", "plain", "transposed", "sliced", "expanded", "odd", "empty", "scalar")
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 3e38, -3e38, 1e-40, 0.5, 20.0)
ILL_CONDITIONED = re.compile(r"linalg\.|cholesky_inverse|det\(")  # for some operands
DERIVATIVES = ("jvp", "gradient", "second gradient")

KNOWN: tuple[Known, ...] = (
    Known(
        "",
        "an error missing.*in PyTorch.*(not implemented for|derivative for .* not implemented|not differentiable"
        "|Trying to use forward AD with|Batching rule not implemented|not supported for complex|INTERNAL ASSERT)"
        "|another error.*Trying to use forward AD with",
        "PyTorch has no kernel or no derivative for this, or fails in it",
    ),
    Known(
        r"\| out \|",
        "an error missing.*(unexpected keyword argument 'out'|must be Tensor, not float|got \\(Tensor, out=Tensor\\)"
        "|median\\(\\) missing 1 required)",
        "here every function of one result takes out=",
    ),
    Known(
        r"vander\(u\) \| (second )?gradient",
        "an error missing.*modified by an inplace operation",
        "PyTorch's vander writes into what it has saved for its derivative",
    ),
    Known(
        r"cholesky_inverse\(s.tril\(\)\) \| jvp",
        "^values",
        "PyTorch's forward derivative is wrong: ours agrees with finite differences, and with backward",
    ),
    Known(
        r"torch.(complex|polar)\(.*gradient .*, empty",
        "an error missing.*Tensor must have a last dimension with stride 1",
        "PyTorch's complex gradients of nothing cannot be viewed as real numbers",
    ),
    Known(r"\| vmap \|", "an error missing.*data-dependent control flow", "here a batch can be asked for its values"),
    Known(
        r"(flip\(0\)|searchsorted\(.*|cat\(.*|sum\(\(0, -1\)\)|a\[k\]) \| vmap .*(scalar|empty)"
        r"|cumulative_trapezoid\(a\) .*scalar",
        "an error (missing|too many)|another error",
        "a sample is a number or nothing: the error is that without vmap, where PyTorch's sees the batch's dimension",
    ),
    Known(
        r"with_logits\(.*\| vmap \| (int|uint)",
        "an error missing.*can't be cast to the desired output type",
        "PyTorch's rule for batches writes in place, into integers",
    ),
    Known(
        r"(var|std|var_mean|std_mean)\(a.*\| second gradient .*scalar",
        "^nan",
        "one number has no variance: its gradient is nan, of which PyTorch's derivative is 0",
    ),
    Known(
        r"logsumexp\(a, dim=-1\) \| jvp .*empty|logcumsumexp\(.*\| jvp .*empty|diff\(a\) \| out .*empty",
        "^nan|an error missing.*IndexError",
        "nothing has no sum; PyTorch's formulas for it fail",
    ),
    Known(r"gelu\(a\).*special", "^(inf|nan)", "PyTorch's gelu overflows for the largest numbers"),
    Known(r"lerp\(.*bfloat16.*special", "^inf", "the difference of the ends overflows, which PyTorch then rounds back"),
    Known(
        r"(add|sub)\(a, b\).*complex64.*special",
        "^nan",
        "PyTorch multiplies by alpha, 1 + 0j, which makes nan of an infinity",
    ),
    Known(r"histc\(.*(b?float16), scalar", "^values", "the middle of a range that was rounded to half precision"),
    Known(r"signbit\(a\).*bfloat16.*special", "^values", "PyTorch's nan has a sign after some conversions to bfloat16"),
    Known(
        r"(eigvals\(s\).*|svdvals\(s\)) \| (jvp|gradient|second gradient) \| float(32|64), expanded",
        "^(values|nan)|an error missing.*the input matrix is singular",
        "rows that are equal give the value 0 several times, which has no derivative: it depends on the rounding",
    ),
    Known(
        r"((slog|log|\.)det|linalg\.(cond|qr|matrix_norm|pinv)|std|quantile)\(.*\| (float..|complex64), expanded",
        "^(values|nan|inf)|an error missing.*the input matrix is singular",
        "of equal rows or equal values, which have no derivative, or a condition that is rounding",
    ),
    Known(r"linalg\.pinv\(s\) \| autocast", "form of result", "here it is one op, in float32; PyTorch rounds within"),
    Known(r"bilinear\(m.*\| autocast", "^values", "PyTorch rounds the operands within; here nothing is rounded"),
    Known(
        r"cholesky_inverse\(s.tril\(\)\).* \| complex",
        "^values",
        "a factor has a real diagonal: what comes of a complex one depends on the LAPACK",
    ),
    Known(
        r"hardsigmoid\(a\) \| jvp \| float64",
        "^values",
        "PyTorch's forward derivative has 1/6 in single precision only",
    ),
    Known(
        "complex64, empty",
        "(another error|an error too many).*(complex|Complex)",
        "that a dtype has no such function is said before that there are no values",
    ),
    Known(r"\| out \|", "another error.*keyword argument 'out'", "one of the two has no such argument"),
    Known(r"\| autocast \| float16", "Unexpected floating ScalarType", "PyTorch fails in its autocast"),
    Known(
        r"linalg\.matrix_exp\(s\) .*(float16|bfloat16)",
        "^(nan|inf)",
        "PyTorch's half precision reads memory that was not written",
    ),
)


# --- operands --------------------------------------------------------------------------------------------------------


class Operands:
    """Arrays by name, made from a seed."""

    def __init__(self, seed: int, dtype: str, layout: str, values: str) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype, self.layout, self.values = dtype, layout, values
        r = random.Random(seed)
        p, q = r.randint(1, 4), r.randint(3, 4)
        shape = tuple(r.choice((1, 2, 3, 5)) for _ in range(r.choice((1, 2, 2, 3))))
        if layout == "empty":
            shape = (*shape[:-1], 0)
        if layout == "scalar":
            shape = ()
        lesser = tuple(n if r.random() < 0.7 else 1 for n in shape)[r.choice((0, 0, len(shape) // 2)) :]
        self.shapes = {
            "a": shape, "b": lesser, "c": shape, "m": (p, q), "n": (q, p), "s": (q, q), "u": (q,), "v": (q,),
            "x": (2, 4, 6, 6), "w": (4, 4, 3, 3), "y": (2, 4, 9),
        }  # fmt: skip
        self.arrays = {name: self.array(each) for name, each in self.shapes.items()}
        last = max(shape[-1], 1) if shape else 1
        self.arrays["i"] = np.asarray(self.rng.integers(0, min(last, p), shape or (), np.int64))
        self.arrays["k"] = np.asarray(self.rng.random(shape) < 0.5)
        self.tangents = {name: np.asarray(self.rng.standard_normal(each)) for name, each in self.shapes.items()}
        self.batched = {name: np.stack([array, self.array(array.shape) if name in self.shapes else array])
                        for name, array in self.arrays.items()}  # fmt: skip

    def array(self, shape: tuple[int, ...]) -> np.ndarray:
        if self.dtype == "bool":
            return np.asarray(self.rng.random(shape) < 0.5)
        if self.dtype in ("int64", "int32", "uint8"):
            return np.asarray(self.rng.integers(0 if self.dtype == "uint8" else -4, 5, shape), self.dtype)
        made = np.asarray(self.rng.standard_normal(shape))
        if self.values == "positive":
            made = np.abs(made) + 0.1
        if self.values == "special":
            with np.errstate(all="ignore"):
                made = np.where(self.rng.random(shape) < 0.4, self.rng.choice(SPECIAL, shape), made)
        if self.dtype == "complex64":
            return (made + 1j * self.rng.standard_normal(shape)).astype(np.complex64)
        with np.errstate(all="ignore"):
            return made.astype(np.float64 if self.dtype == "float64" else np.float32)

    def tensor(self, library: Any, array: np.ndarray, wanted: str) -> Any:
        """Returns a tensor with these values in the case's layout."""
        t = library.from_numpy(np.array(array)).to(getattr(library, wanted))
        if self.layout == "transposed" and t.dim() >= 2:
            return t.transpose(0, -1).contiguous().transpose(0, -1)
        if self.layout == "sliced" and t.dim():
            return library.stack([t, t], -1)[..., 0]
        if self.layout == "odd" and t.dim():
            return library.cat([t.flatten()[:1], t.flatten()])[1:].view(t.shape) if t.numel() else t
        if self.layout == "expanded" and t.dim() >= 2:
            return t[:1].expand(t.shape)
        return t

    def dtype_of(self, name: str) -> str:
        return "int64" if name == "i" else "bool" if name == "k" else self.dtype

    def of(self, library: Any, names: tuple[str, ...], batched: bool = False) -> list[Any]:
        arrays = self.batched if batched else self.arrays
        return [self.tensor(library, arrays[name], self.dtype_of(name)) for name in names]


# --- running ---------------------------------------------------------------------------------------------------------


def used(text: str) -> tuple[str, ...]:
    """Returns the names of the operands in an expression."""
    return tuple(sorted(set(re.findall(r"(?<![\w.'])([abcmnsuvikxwy])(?![\w'(=])", text))))


def tensors_in(value: Any) -> list[Any]:
    if hasattr(value, "untyped_storage"):
        return [value]
    if isinstance(value, (tuple, list)):
        return [t for part in value for t in tensors_in(part)]
    return []


class Case:
    """An expression, a mode, and its operands."""

    def __init__(self, seed: int) -> None:
        r = random.Random(seed)
        self.text, self.mode = r.choice(EXPRESSIONS), r.choice(MODES)
        dtype = r.choice(DTYPES)
        if self.mode in DERIVATIVES and dtype not in ("float32", "float64"):
            dtype = "float64"
        values = r.choice(("normal", "normal", "positive", "special"))
        if values == "special" and (self.mode in (*DERIVATIVES, "autocast") or self.text not in ELEMENTWISE):
            values = "normal"  # in sums, what overflows depends on the order of the terms
        self.operands = Operands(seed, dtype, r.choice(LAYOUTS), values)
        self.names = used(self.text)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{n} {self.operands.arrays[n].shape}" for n in self.names)
        o = self.operands
        return f"{self.text} | {self.mode} | {o.dtype}, {o.layout}, {o.values} | {shapes}"

    def function(self, library: Any):
        names = {"torch": library, "F": library.nn.functional, "inf": float("inf")}
        return eval(f"lambda {', '.join(self.names)}: {self.text}", names)

    def result(self, library: Any) -> Any:
        """Runs the case. Returns what it gives; raises what it raises."""
        function, mode, o = self.function(library), self.mode, self.operands
        if mode == "vmap":
            return library.func.vmap(function)(*o.of(library, self.names, batched=True))
        given = o.of(library, self.names)
        if mode == "out":
            first = tensors_in(function(*given))
            if len(first) != 1 or not self.text.startswith("torch.") or not self.text.endswith(")"):
                return first
            out = library.empty(0, dtype=first[0].dtype)
            names = {"torch": library, "inf": float("inf"), "out": out, **dict(zip(self.names, given))}
            eval(f"{self.text[:-1]}, out=out)", names)
            return out
        if mode in DERIVATIVES:
            return self.derivative(library, function, given)
        around = {
            "no_grad": library.no_grad, "inference": library.inference_mode,
            "autocast": lambda: library.autocast("cpu", dtype=library.bfloat16),
        }.get(mode, nullcontext)  # fmt: skip
        with around():
            return function(*given)

    def derivative(self, library: Any, function: Any, given: list[Any]) -> Any:
        floating = [n for n, t in enumerate(given) if t.dtype.is_floating_point]
        random_ = self.operands.tangents
        tangents = [library.from_numpy(np.array(random_[self.names[n]])).to(given[n].dtype) for n in floating]

        def of_floating(*some: Any) -> Any:
            all_ = list(given)
            for n, t in zip(floating, some):
                all_[n] = t
            return function(*all_)

        leaves = [given[n].clone() if self.operands.layout == "expanded" else given[n] for n in floating]
        if self.mode == "jvp":  # (whose primals must not overlap)
            return library.func.jvp(of_floating, tuple(leaves), tuple(tangents))
        leaves = [t.detach().requires_grad_() for t in leaves]
        made = [t for t in tensors_in(of_floating(*leaves)) if t.requires_grad]
        loss = sum(
            (t * library.arange(1.0, 1.0 + t.numel(), dtype=library.float64).cos().reshape(t.shape)).sum()
            for t in made
            if not t.is_complex()
        )
        loss = loss + sum(library.view_as_real(t).sum() for t in made if t.is_complex())
        second = self.mode == "second gradient"
        first = library.autograd.grad(loss, leaves, create_graph=second, allow_unused=True)
        if not second:
            return first
        again = [(g.square() + g).sum() for g in first if g is not None and g.requires_grad]
        found = library.autograd.grad(sum(again), leaves, allow_unused=True) if again else [None] * len(leaves)
        return [library.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves, found)]

    def outcome(self, library: Any) -> Any:
        library.manual_seed(0)
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                return plain(self.result(library))
        except Exception as error:
            return error


def plain(value: Any) -> Any:
    """Returns tensors as (dtype, values)."""
    if hasattr(value, "untyped_storage"):
        return name_of(value.dtype), numbers(value)
    if isinstance(value, (tuple, list)):
        return [plain(part) for part in value]
    return value


def differs(found: Any, expected: Any) -> str:
    """Returns how two outcomes differ, or nothing."""
    if isinstance(found, Exception) or isinstance(expected, Exception):
        if isinstance(found, Exception) and isinstance(expected, Exception) and kind_of(found) == kind_of(expected):
            return ""
        here, there = (
            f"{type(e).__name__}: {str(e)[:200]}" if isinstance(e, Exception) else "a result" for e in (found, expected)
        )
        kind = "another error" if isinstance(found, Exception) and isinstance(expected, Exception) else (
            "an error too many" if isinstance(found, Exception) else "an error missing"
        )  # fmt: skip
        return f"{kind}: {here} | in PyTorch {there}"
    if isinstance(expected, list):
        if not isinstance(found, list) or len(found) != len(expected):
            return "number of results"
        return next(filter(None, (differs(f, e) for f, e in zip(found, expected))), "")
    if isinstance(expected, tuple):
        if not isinstance(found, tuple):
            return f"kind of result: {found}, in PyTorch {expected[0]} {shown(expected[1])}"
        if found[0] != expected[0] or found[1].shape != expected[1].shape:
            return f"form of result: {found[0]} {found[1].shape}, in PyTorch {expected[0]} {expected[1].shape}"
        wrong = values_differ(found[1], expected[1], expected[0])
        return f"{wrong}: {shown(found[1])}, in PyTorch {shown(expected[1])}" if wrong else ""
    if isinstance(expected, float) and isinstance(found, float):
        return (
            ""
            if found == expected or (found != found and expected != expected) or abs(found - expected) < 1e-5
            else "values"
        )
    return (
        "" if type(found) is type(expected) and found == expected else f"kind of result: {found}, in PyTorch {expected}"
    )


def check(seed: int) -> Counter[str]:
    """Runs the case of a seed. Raises: Difference, unless it is meant."""
    import torch

    import tensorgrad

    case = Case(seed)
    expected = case.outcome(torch)
    found = case.outcome(tensorgrad)
    wrong = differs(found, expected)
    if wrong and ILL_CONDITIONED.search(case.text) and case.operands.dtype == "float32":
        precise = Case(seed)  # what double precision does not show is rounding
        precise.operands = Operands(seed, "float64", case.operands.layout, case.operands.values)
        wrong = differs(precise.outcome(tensorgrad), precise.outcome(torch))
    counted = Counter({case.mode: 1})
    if isinstance(expected, Exception):
        counted["errors in PyTorch"] += 1
    if wrong:
        if not meant(repr(case), wrong, KNOWN):
            raise Difference(f"{case!r}\n    {wrong}")
        counted["differences that are meant"] += 1
    return counted
