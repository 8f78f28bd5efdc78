"""Which ops `autocast` runs in which dtype, device by device: names of rows, and of composites that count as one op.

The CPU's lists were measured on PyTorch 2.13. CUDA's are those of its documentation (Automatic Mixed Precision, "CUDA
Op-Specific Behavior"), completed by what its dispatcher does to tensors that only pretend to be on a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


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
    "mse_", "l1_", "smooth_l1_", "huber_", "cross_entropy_", "nll_", "bce_with_logits_",
    # Composites.
    "cosine_embedding_loss", "hinge_embedding_loss", "kl_div", "margin_ranking_loss", "multi_margin_loss",
    "multilabel_margin_loss", "poisson_nll_loss", "soft_margin_loss", "triplet_margin_loss",
))  # fmt: skip

LISTS: dict[str, Lists] = {
    "cpu": Lists(
        shorter=PRODUCTS | {"prelu", "vecdot"},
        full=LOSSES | {
            "bce_", "prod_", "ctc", "euclidean_distances", "svd_", "inverse_", "solve_", "det", "grid_sampler_2d",
            "grid_sampler_3d", "trace",
        },
        widest=frozenset(("cat", "stack", "index_copy")),
    ),
    "cuda": Lists(
        shorter=PRODUCTS | {"mv", "addmv", "addr", "prelu", "vecdot"},
        full=LOSSES | {
            "pow", "rpow", "rdiv", "square", "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log1p",
            "log2", "reciprocal", "rsqrt", "sinh", "softplus", "tan", "layer_norm", "group_norm", "rms_norm",
            "softmax_", "log_softmax_", "logsumexp_", "sum", "prod_", "cumsum", "cumprod", "vector_norm_",
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

# Composites within which nothing is cast: in PyTorch they are one op that is on no list.
ALONE = frozenset(("trace",))

# Functions of several ops that are cast as one: their guards (guard.py) look them up by these names.
AS_ONE = TOLD | ALONE | {
    "cosine_embedding_loss", "hinge_embedding_loss", "kl_div", "margin_ranking_loss", "multi_margin_loss",
    "multilabel_margin_loss", "poisson_nll_loss", "soft_margin_loss", "triplet_margin_loss", "cosine_similarity",
    "dist", "pdist", "cdist", "renorm", "nuclear_norm", "bilinear", "tensordot", "cross", "dot", "vdot", "scatter_add",
    "index_put", "vecdot", "binary_cross_entropy",
}  # fmt: skip
