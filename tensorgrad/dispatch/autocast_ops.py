"""Which ops `autocast` runs in which dtype, device by device: names of rows, and of composites that count as one op.

The CPU's lists were measured on PyTorch 2.13. CUDA's are those of its documentation (Automatic Mixed Precision, "CUDA
Op-Specific Behavior"), completed by what its dispatcher does to tensors that only pretend to be on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from tensorgrad.dtypes import dtype


class Lists(NamedTuple):
    """One device's lists; an op that is on none of them runs in the dtype of its inputs."""

    shorter: frozenset[str]  # in the shorter dtype
    full: frozenset[str]  # in float32
    widest: frozenset[str]  # in the widest dtype among the inputs
    refused: Mapping[str, str] = {}  # name -> what the error says


PRODUCTS = frozenset((
    "matmul", "mm", "bmm", "linear", "addmm", "addbmm", "baddbmm", "conv", "conv_transpose", "attention",
    "lstm_layer", "gru_layer", "rnn_layer",
))  # fmt: skip
LOSSES = frozenset((
    "mse", "l1", "smooth_l1", "huber", "cross_entropy", "nll", "bce_with_logits",
    # Composites.
    "cosine_embedding_loss", "hinge_embedding_loss", "kl_div", "margin_ranking_loss", "multi_margin_loss",
    "multilabel_margin_loss", "poisson_nll_loss", "soft_margin_loss", "triplet_margin_loss",
))  # fmt: skip

# Composites, which the CPU runs in float32.
FACTORIZATIONS = frozenset((
    "cholesky", "cholesky_inverse", "cholesky_solve", "inverse", "pinverse", "orgqr", "ormqr", "geqrf", "qr", "svd",
    "lu", "lu_solve", "triangular_solve", "cond", "matrix_rank", "solve", "linalg_cholesky", "cholesky_ex", "svdvals",
    "linalg_svd", "eig", "eigh", "eigvals", "eigvalsh", "inv", "inv_ex", "householder_product", "tensorinv",
    "tensorsolve", "linalg_qr", "lstsq", "svd_lowrank", "pca_lowrank",
))  # fmt: skip
TRANSFORMS = frozenset((
    "fft", "ifft", "fft2", "ifft2", "fftn", "ifftn", "rfft", "irfft", "rfft2", "irfft2", "rfftn", "irfftn", "hfft",
    "ihfft", "stft",
))  # fmt: skip
POOLS = frozenset((
    "avg_pool3d", "adaptive_avg_pool3d", "max_pool3d", "max_pool3d_with_indices", "adaptive_max_pool3d",
    "adaptive_max_pool3d_with_indices", "fractional_max_pool2d", "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d", "fractional_max_pool3d_with_indices", "max_unpool1d", "max_unpool2d", "max_unpool3d",
    "lp_pool3d",
))  # fmt: skip

LISTS: dict[str, Lists] = {
    "cpu": Lists(
        shorter=PRODUCTS | {"prelu", "vecdot", "inner", "affine_grid_generator"},
        full=LOSSES | FACTORIZATIONS | TRANSFORMS | POOLS | {
            "bce", "prod", "ctc", "euclidean_distances", "grid_sampler_2d", "grid_sampler_3d", "trace",
            # Composites.
            "quantile", "nanquantile", "polar", "view_as_complex", "pad", "local_response_norm",
        },
        widest=frozenset(("cat", "stack", "index_copy")),
    ),
    "cuda": Lists(
        shorter=PRODUCTS | {"mv", "addmv", "addr", "prelu", "vecdot"},
        full=LOSSES | {
            "pow", "rpow", "rdiv", "square", "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log1p",
            "log2", "reciprocal", "rsqrt", "sinh", "softplus", "tan", "layer_norm", "group_norm", "rms_norm",
            "softmax", "log_softmax", "logsumexp", "sum", "prod", "cumsum", "cumprod", "vector_norm",
            "euclidean_distances", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d",
            "upsample_nearest_exact1d", "upsample_nearest_exact2d", "upsample_nearest_exact3d", "upsample_linear1d",
            "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d",
            # Composites.
            "cosine_similarity", "dist", "pdist", "cdist", "renorm", "nuclear_norm",
        },
        widest=frozenset((
            "addcdiv", "addcmul", "atan2", "cross_product", "dot", "vdot", "grid_sampler_2d", "grid_sampler_3d",
            "index_put", "scatter_add",
            # Composites.
            "bilinear", "tensordot", "cross",
        )),
        refused={
            "binary_cross_entropy":
                "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
                "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
                "In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits\n"
                "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n"
                "safe to autocast.",
        },
    ),
}  # fmt: skip

# Composites that compute in their `dtype=` if it is given.
TOLD = frozenset(("softmax", "log_softmax", "softmin"))


def _by_dtype(*args, **kwargs) -> bool:
    return any(isinstance(value, dtype) for value in (*args, *kwargs.values()))


def _repeats_values(input, pad, mode="constant", value=None) -> bool:
    return mode == "replicate" or (mode == "reflect" and len(pad) < 6)


def _pools_volumes(input, *args, **kwargs) -> bool:
    return input.ndim > 3


# Composites that are on the lists for some arguments.
PARTLY: Mapping[str, Callable[..., bool]] = {
    **dict.fromkeys(TOLD, _by_dtype), "pad": _repeats_values, "local_response_norm": _pools_volumes,
}  # fmt: skip

# Composites within which nothing is cast: in PyTorch they are one op that is on no list.
ALONE = frozenset(("trace", "bilinear"))

# Functions of several ops that are cast as one: their guards (guard.py) look them up by these names.
AS_ONE = PARTLY.keys() | ALONE | FACTORIZATIONS | TRANSFORMS | POOLS | {
    "cosine_embedding_loss", "hinge_embedding_loss", "kl_div", "margin_ranking_loss", "multi_margin_loss",
    "multilabel_margin_loss", "poisson_nll_loss", "soft_margin_loss", "triplet_margin_loss", "cosine_similarity",
    "dist", "pdist", "cdist", "renorm", "nuclear_norm", "tensordot", "cross", "dot", "vdot", "scatter_add", "index_put",
    "vecdot", "binary_cross_entropy", "cross_entropy", "quantile", "nanquantile", "polar", "view_as_complex", "inner",
    "prelu",
}  # fmt: skip
