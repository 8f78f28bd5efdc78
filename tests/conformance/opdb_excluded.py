"""Which records of PyTorch's database stand for nothing that tensorgrad should have, and why.

(a pattern of record names, the reason). Only what is found missing is left out: a private function that exists here
all the same is tested like any other.
"""

from fnmatch import fnmatchcase

_DERIVATIVE = (
    "a kernel of PyTorch's own derivatives, reached only through torch.ops.aten; the gradients of the op itself "
    "are compared by its own record"
)
_BATCH_NORM = "an internal step of batch_norm, which is compared by nn.functional.batch_norm and native_batch_norm"

EXCLUDED: tuple[tuple[str, str], ...] = (
    ("jiterator_*", "CUDA C++ source text compiled at run time (torch.cuda.jiterator)"),
    ("torch.ops.aten._flash_attention_forward", "a private kernel behind scaled_dot_product_attention, CUDA only"),
    ("torch.ops.aten._efficient_attention_forward", "a private kernel behind scaled_dot_product_attention, CUDA only"),
    ("torch.ops.*", "PyTorch's internal registry of kernels; programs call the functions in front of it"),
    ("torch._scaled_mm*", "a private product of 8-bit floating-point matrices, for GPUs that have the instruction"),
    ("sparse.*", "sparse layouts, which tests/sparse compares"),
    ("to_sparse", "sparse layouts, which tests/sparse compares"),
    ("_softmax_backward_data", _DERIVATIVE),
    ("native_dropout_backward", _DERIVATIVE),
    ("max_pool2d_with_indices_backward", _DERIVATIVE),
    ("_native_batch_norm_legit", _BATCH_NORM),
    ("_batch_norm_with_update", _BATCH_NORM),
    ("_upsample_bilinear2d_aa", "a private kernel behind nn.functional.interpolate(antialias=True)"),
    ("_chunk_cat", "a private helper of distributed training that pads and joins chunks"),
    ("_unsafe_masked_index*", "a private helper of PyTorch's compiler"),
)


def excluded(name: str) -> str | None:
    """Why a record is left out; None if it is not."""
    return next((reason for pattern, reason in EXCLUDED if fnmatchcase(name, pattern)), None)
