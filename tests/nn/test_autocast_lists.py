"""Autocast on the CPU, function by function: the results have PyTorch's dtypes, and what PyTorch can compute works."""

import pytest

import tensorgrad
from tests.support.alike import alike

F = "nn.functional."
SQUARE, LOWER, PAIR = "s", "s.tril()", "s, s"

# name: the arguments. a, b (2, 3), u (3,), s (3, 3) positive definite, z (2, 8), x (2, 4, 6), i (2, 2, 8, 8),
# v (1, 2, 6, 6, 6), t classes, y in -1 and 1, p probabilities, k a kernel for i; of the dtype of the test.
CALLS = {
    # PyTorch's documented list: in the shorter dtype.
    "conv1d": "x, w1", "conv2d": "i, k", "conv3d": "v, w3", "conv_transpose1d": "x, w1", "conv_transpose2d": "i, k",
    "conv_transpose3d": "v, w3",
    "conv_tbc": "x.permute(2, 0, 1).contiguous(), w1.permute(2, 1, 0).contiguous(), u[:1].expand(4)",
    "mm": PAIR, "bmm": "s[None], s[None]",
    "matmul": PAIR, "addmm": "s, s, s", "addbmm": "s, s[None], s[None]", "baddbmm": "s[None], s[None], s[None]",
    F + "linear": "a, s", "linalg.vecdot": "a, b", "linalg.multi_dot": "[s, s, s]", "chain_matmul": "s, s",
    "einsum": "'ij,jk->ik', s, s",
    F + "scaled_dot_product_attention": "i, i, i", "tensordot": "s, s, 1", "inner": "a, b", "outer": "u, u",
    "mv": "s, u",
    "dot": "u, u", "vdot": "u, u", "addmv": "u, s, u", "addr": "s, u, u", "ger": "u, u",
    "kron": PAIR, "matrix_power": "s, 2",
    "linalg.matmul": PAIR, "linalg.matrix_power": "s, 2", F + "bilinear": "a, a, torch.stack([s, s]), u[:2]",
    "prelu": "a, u[:1]",
    "rnn_tanh_cell": "a, b, s, s", "lstm_cell": "a, (b, b), s.repeat(4, 1), s.repeat(4, 1)",
    "gru_cell": "a, b, s.repeat(3, 1), s.repeat(3, 1)",
    # In float32.
    F + "avg_pool3d": "v, 2", F + "adaptive_avg_pool3d": "v, 2", F + "adaptive_max_pool3d": "v, 2",
    F + "max_pool3d": "v, 2",
    F + "max_unpool2d": "*torch.nn.functional.max_pool2d(i, 2, return_indices=True), 2",
    F + "max_unpool3d": "*torch.nn.functional.max_pool3d(v, 2, return_indices=True), 2",
    F + "max_unpool1d": "*torch.nn.functional.max_pool1d(x, 2, return_indices=True), 2",
    F + "fractional_max_pool2d": "i, 2, 3", F + "fractional_max_pool3d": "v, 2, 3", F + "lp_pool2d": "i, 2, 2",
    F + "lp_pool3d": "v, 2, 2",
    F + "avg_pool1d": "x, 2", F + "avg_pool2d": "i, 2", F + "max_pool1d": "x, 2", F + "max_pool2d": "i, 2",
    F + "adaptive_avg_pool1d": "x, 2", F + "adaptive_avg_pool2d": "i, 2", F + "adaptive_max_pool1d": "x, 2",
    F + "adaptive_max_pool2d": "i, 2",
    F + "binary_cross_entropy": "p, p", F + "binary_cross_entropy_with_logits": "a, p",
    F + "grid_sample": "i, i[:, 0, :, :2, None].expand(2, 8, 2, 2)",
    F + "affine_grid": "a[:1].expand(2, 3)[None], (1, 1, 2, 2)", "polar": "a, b", "complex": "a, b", "prod": "a",
    "quantile": "a, 0.5",
    "nanquantile": "a, 0.5", "median": "a", "nanmedian": "a", "mode": "a",
    "stft": "z, 4, return_complex=True, window=torch.ones(4)",
    "cdist": PAIR, F + "pdist": SQUARE, F + "pairwise_distance": "a, b", "dist": "a, b",
    "trace": SQUARE, "view_as_complex": "x.reshape(-1, 2)",
    "cholesky": SQUARE, "cholesky_inverse": LOWER, "cholesky_solve": "s, s.tril()",
    "inverse": SQUARE, "pinverse": SQUARE,
    "orgqr": "s, u", "ormqr": "s, u, s",
    "geqrf": SQUARE, "qr": SQUARE, "svd": SQUARE, "lu": SQUARE, "slogdet": SQUARE, "logdet": SQUARE, "det": SQUARE,
    "lu_solve": "s, *torch.linalg.lu_factor(s.float())",
    "triangular_solve": PAIR, "linalg.solve_triangular": "s, s, upper=True",
    "fft.fft": "z", "fft.ifft": "z", "fft.fft2": "z", "fft.ifft2": "z", "fft.fftn": "z", "fft.ifftn": "z",
    "fft.rfft": "z", "fft.irfft": "z", "fft.rfft2": "z", "fft.irfft2": "z", "fft.rfftn": "z", "fft.irfftn": "z",
    "fft.hfft": "z", "fft.ihfft": "z",
    "fft.hfft2": "z", "fft.ihfft2": "z", "fft.hfftn": "z", "fft.ihfftn": "z", "fft.fftshift": "z",
    "linalg.cond": SQUARE, "linalg.matrix_rank": SQUARE, "linalg.solve": PAIR, "linalg.solve_ex": PAIR,
    "linalg.cholesky": SQUARE, "linalg.cholesky_ex": SQUARE,
    "linalg.svdvals": SQUARE, "linalg.svd": SQUARE, "linalg.eig": SQUARE, "linalg.eigh": SQUARE,
    "linalg.eigvals": SQUARE, "linalg.eigvalsh": SQUARE,
    "linalg.inv": SQUARE, "linalg.inv_ex": SQUARE, "linalg.pinv": SQUARE, "linalg.householder_product": "s, u",
    "linalg.tensorinv": "s, 1", "linalg.tensorsolve": "s, u",
    "linalg.qr": SQUARE, "linalg.lstsq": PAIR, "linalg.lu": SQUARE, "linalg.lu_factor": SQUARE,
    "linalg.lu_factor_ex": SQUARE, "linalg.ldl_factor": SQUARE, "linalg.det": SQUARE, "linalg.slogdet": SQUARE,
    "linalg.norm": SQUARE, "linalg.norm ": "s, 2", "linalg.norm  ": "s, 'nuc'",
    "linalg.matrix_norm": SQUARE, "linalg.matrix_norm ": "s, 2",
    "linalg.vector_norm": SQUARE, "linalg.matrix_exp": SQUARE,
    "linalg.cross": "a, b", "linalg.vander": "u", "norm": "a", "svd_lowrank": "s, 2", "pca_lowrank": "s, 2",
    F + "mse_loss": "a, b", F + "l1_loss": "a, b", F + "smooth_l1_loss": "a, b", F + "huber_loss": "a, b",
    F + "cross_entropy": "a, t",
    F + "cross_entropy ": "a, a.softmax(1)", F + "nll_loss": "a, t",
    F + "nll_loss ": "i, torch.zeros(2, 8, 8, dtype=torch.int64)", F + "gaussian_nll_loss": "a, b, p",
    F + "poisson_nll_loss": "a, b", F + "kl_div": "a, b",
    F + "cosine_embedding_loss": "a, b, y", F + "hinge_embedding_loss": "a, y[:, None]",
    F + "margin_ranking_loss": "a[:, 0], b[:, 0], y", F + "soft_margin_loss": "a, b",
    F + "multi_margin_loss": "a, t", F + "multilabel_margin_loss": "a, torch.zeros(2, 3, dtype=torch.int64)",
    F + "multilabel_soft_margin_loss": "a, p", F + "triplet_margin_loss": "a, b, a",
    F + "triplet_margin_with_distance_loss": "a, b, a",
    F + "ctc_loss": "x.permute(2, 0, 1).log_softmax(-1), torch.ones(2, 2, dtype=torch.int64), (6, 6), (2, 2)",
    # Nothing is cast, or to the widest dtype.
    "cat": "[a, b]", "stack": "[a, b]", "cat ": "[a, b.float()]", "stack ": "[a.float(), b]",
    "index_copy": "a, 0, t, b", "hstack": "[a, b.float()]", "vstack": "[a, b.float()]", "dstack": "[a, b.float()]",
    "column_stack": "[a, b.float()]", "block_diag": "a, b", "cartesian_prod": "u, u", "where": "a > 0, a, b",
    F + "pad": "x, (1, 1), 'reflect'", F + "pad ": "i, (1, 1, 1, 1), 'reflect'",
    F + "pad  ": "v, (1,) * 6, 'reflect'", F + "pad   ": "x, (1, 1), 'replicate'",
    F + "pad    ": "i, (1, 1, 1, 1), 'replicate'",
    F + "pad     ": "v, (1,) * 6, 'replicate'", F + "pad      ": "i, (1, 1, 1, 1), 'circular'",
    F + "pad       ": "i, (1, 1)",
    F + "interpolate": "i, scale_factor=2.", F + "interpolate ": "i, scale_factor=2., mode='bilinear'",
    F + "interpolate  ": "i, scale_factor=2., mode='bicubic'",
    F + "interpolate   ": "i, scale_factor=2., mode='area'",
    F + "interpolate    ": "v, scale_factor=2., mode='trilinear'",
    F + "interpolate     ": "x, scale_factor=2., mode='linear'",
    F + "pixel_shuffle": "i.repeat(1, 2, 1, 1), 2", F + "unfold": "i, 2", F + "fold": "x[:, :, :4], (3, 3), 2",
    F + "softmax": "a, 1", F + "log_softmax": "a, 1", F + "softmin": "a, 1", F + "gelu": "a", F + "silu": "a",
    F + "softplus": "a", F + "elu": "a", F + "normalize": "a", F + "layer_norm": "a, (3,)",
    F + "group_norm": "i, 2", F + "rms_norm": "a, (3,)", F + "instance_norm": "i",
    F + "batch_norm": "i, None, None, training=True", F + "local_response_norm": "i, 2", F + "embedding": "t, a",
    F + "embedding_bag": "t[None], a", F + "glu": "x", F + "cosine_similarity": "a, b", F + "gumbel_softmax": "a",
    F + "dropout": "a", F + "alpha_dropout": "a",
    "exp": "a", "log": "p", "pow": "p, 0.5", "sqrt": "p", "rsqrt": "p", "sigmoid": "a", "tanh": "a", "erf": "a",
    "erfinv": "a", "lgamma": "p", "digamma": "p", "sin": "a", "atan2": "a, b", "hypot": "a, b", "logaddexp": "a, b",
    "sum": "a", "mean": "a", "std": "a", "var": "a", "var_mean": "a", "cumsum": "a, 1", "cumprod": "a, 1",
    "logsumexp": "a, 1", "logcumsumexp": "a, 1", "amax": "a", "aminmax": "a", "argmax": "a", "sort": "a",
    "topk": "a, 1", "kthvalue": "a, 1", "unique": "a", "histc": "a.float()", "bucketize": "a, u",
    "searchsorted": "u, a", "cov": "a", "corrcoef": "a", "renorm": "a, 2, 0, 1.", "cross": "a, b",
    "add": "a, b", "mul": "a, b.float()", "addcmul": "a, a, b", "addcdiv": "a, a, p", "lerp": "a, b, 0.5",
    "clamp": "a, 0", "index_add": "a, 0, t, b", "scatter_add": "a, 0, torch.zeros(2, 3, dtype=torch.int64), b",
    "index_put": "a, (t,), b", "gather": "a, 1, torch.zeros(2, 3, dtype=torch.int64)",
    "masked_fill": "a, a > 0, 0.", "take_along_dim": "a, a.argsort(1), 1", "trapezoid": "a", "diff": "a",
    "gradient": "u", "cumulative_trapezoid": "a",
    "special.bessel_j0": "a", "special.i0": "a", "special.zeta": "p + 2, p + 1", "special.xlogy": "p, p",
    "special.log_softmax": "a, 1", "special.softmax": "a, 1", "special.logsumexp": "a, 1",
    "istft": "torch.stft(z.float(), 4, return_complex=True, window=torch.ones(4)), 4, window=torch.ones(4)",
    "view_as_real": "torch.complex(a.float(), b.float())", "bernoulli": "p", "normal": "a, p", "poisson": "p",
    "multinomial": "p, 1", "randn_like": "a",
}  # fmt: skip


def operands(torch, dtype):
    """The names that the calls use."""
    grid = lambda *shape: torch.arange(float(torch.Size(shape).numel())).reshape(shape) % 7 / 8 + 0.1
    named = {
        "a": grid(2, 3), "b": grid(2, 3).flip(1), "u": grid(3), "s": grid(3, 3) + 3 * torch.eye(3), "z": grid(2, 8),
        "x": grid(2, 4, 6), "i": grid(2, 2, 8, 8), "v": grid(1, 2, 6, 6, 6), "p": grid(2, 3), "k": grid(2, 2, 3, 3),
        "w1": grid(4, 4, 3), "w3": grid(2, 2, 2, 2, 2), "y": torch.tensor([1.0, -1.0]),
    }  # fmt: skip
    named = {name: value.to(getattr(torch, dtype)) for name, value in named.items()}
    return {**named, "t": torch.tensor([0, 1]), "torch": torch}


def dtypes_of(value) -> list:
    if isinstance(value, tuple | list):
        return [each for part in value for each in dtypes_of(part)]
    return [str(getattr(value, "dtype", type(value).__name__)).replace("tensorgrad", "torch")]


def results(torch, name: str, dtype: str, shorter: str):
    """The dtypes of a call's results, or that it raises."""
    function = torch
    for attribute in name.strip().split("."):
        function = getattr(function, attribute)
    call = eval(f"lambda f: f({CALLS[name]})", operands(torch, dtype))
    try:
        with torch.autocast("cpu", dtype=getattr(torch, shorter)):
            return dtypes_of(call(function))
    except (RuntimeError, TypeError):
        return "an error"


# Where the results are in another dtype than PyTorch's, and why.
OTHERWISE = {
    "svd_lowrank": "PyTorch rounds the products within, and returns U in the shorter dtype; here all is in float32",
    "pca_lowrank": "as svd_lowrank",
    "linalg.pinv": "PyTorch rounds the products within; here it is one op, in float32 as pinverse",
    F + "pdist": "PyTorch has no kernel for the shorter dtype",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CALLS)
def test_results_have_pytorchs_dtypes(name):
    def scenario(torch):
        return [results(torch, name, "float32", "bfloat16"), results(torch, name, "bfloat16", "bfloat16")]

    if name in OTHERWISE:
        assert scenario(tensorgrad)[0] == ["torch.float32"] * (3 if "lowrank" in name else 1)
        return
    scenario.__name__ = scenario.__qualname__ = "test_scenario"
    alike(scenario)()


METHODS = {
    "inverse": "", "pinverse": "", "cholesky": "", "qr": "", "svd": "", "lu": "", "quantile": "0.5",
    "stft": "4, return_complex=True, window=torch.ones(4)",
    "geqrf": "", "prod": "", "trace": "", "inner": "x", "cholesky_inverse": "", "dot": "x",
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("shorter", ["bfloat16", "float16"])
def test_methods_are_cast_as_functions(name, shorter):
    def scenario(torch):
        x = (torch.ones(3, 3) + torch.eye(3)).to(getattr(torch, shorter))
        x = x.flatten() if name in ("dot", "stft") else x
        with torch.autocast("cpu", dtype=getattr(torch, shorter)):
            return dtypes_of(eval(f"x.{name}({METHODS[name]})", {"x": x, "torch": torch}))

    scenario.__name__ = scenario.__qualname__ = "test_scenario"
    alike(scenario)()


LAYERS = {
    "AvgPool3d": ("2", "v"), "MaxPool3d": ("2", "v"), "AdaptiveAvgPool3d": ("2", "v"),
    "AdaptiveMaxPool3d": ("2", "v"),
    "FractionalMaxPool2d": ("2, output_size=3", "i"), "LPPool3d": ("2, 2", "v"), "ReflectionPad1d": ("1", "x"),
    "ReflectionPad2d": ("1", "i"), "ReflectionPad3d": ("1", "v"), "ReplicationPad3d": ("1", "v"),
    "ZeroPad2d": ("1", "i"),
    "CircularPad2d": ("1", "i"), "LocalResponseNorm": ("2", "i"), "CrossEntropyLoss": ("", "a, a.softmax(1)"),
    "MSELoss": ("", "a, b"), "Bilinear": ("3, 3, 2", "a, b"), "LSTMCell": ("3, 3", "a"), "GRUCell": ("3, 3", "a"),
    "RNNCell": ("3, 3", "a"), "Conv2d": ("2, 2, 3, padding=1, padding_mode='reflect'", "i"),
    "LSTM": ("6, 3", "x"), "GRU": ("6, 3", "x"), "Linear": ("3, 3", "a"), "LayerNorm": ("3", "a"), "PReLU": ("", "a"),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_cast_as_functions(name):
    def scenario(torch):
        arguments, inputs = LAYERS[name]
        layer = eval(f"torch.nn.{name}({arguments})", {"torch": torch})
        found = []
        for dtype in ("float32", "bfloat16"):
            named = operands(torch, dtype)
            try:
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    found.append(dtypes_of(eval(f"layer({inputs})", {**named, "layer": layer})))
            except (RuntimeError, ValueError):
                found.append("an error")
        return found

    scenario.__name__ = scenario.__qualname__ = "test_scenario"
    alike(scenario)()


@alike
def test_values_are_those_of_float32(torch):
    """The cast comes first: what float32 can hold and the shorter dtype cannot is there."""
    x = (torch.arange(64.0).reshape(1, 1, 4, 4, 4) / 7).bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = torch.nn.functional.avg_pool3d(x, 2)
        f = torch.fft.rfft(x.flatten()).abs()
        q = torch.quantile(x, 0.3)
    (y.sum() + f.sum() + q).backward()
    return y, f, q, x.grad
