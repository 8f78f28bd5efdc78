"""Where a record of PyTorch's database differs here on purpose or for a known reason.

record name -> (the reason, a text that all of its differences contain). A record that comes to agree must leave.
"""

_DIMENSIONS = (
    "NumPy's arrays have at most 64 dimensions, so the input with 65 cannot be made, and the error is NumPy's own.",
    "number of dimensions must be within [0, 64]",
)
_NARROWING_OUT = (
    "An `out=` that cannot hold the result (integers for floats) is refused by every op; PyTorch's kernel of this one "
    "casts the input first, unlike its neighbours.",
    "can't be cast to the desired output type Long",
)
_ROW_ORDER = (
    "Memory formats other than row order (channels_last) are accepted and not applied, so nothing is copied.",
    "memory_format=torch.channels_last",
)
_NO_COMPLEX_HALF = ("There is no complex dtype of two half-precision numbers (torch.complex32).", "Half")

KNOWN: dict[str, tuple[str, str]] = {
    "amax": _DIMENSIONS,
    "amin": _DIMENSIONS,
    "aminmax": _DIMENSIONS,
    "as_strided.partial_views": (
        "A view moved to the meta device takes along only its own elements; as_strided checks its bounds there too.",
        "are out of bounds for storage",
    ),
    "as_strided_scatter": (
        "PyTorch's derivative for the input is that of the overwritten elements: it fails torch.autograd.gradcheck, "
        "which the one here passes (tests/test_ops.py).",
        "gradient 0: values differ",
    ),
    "byte": _ROW_ORDER,
    "complex": _NO_COMPLEX_HALF,
    "conj": (
        "The conjugate is computed at once; PyTorch marks a view as conjugated and computes when it is read.",
        "does not share memory with an input",
    ),
    "cumprod": _NARROWING_OUT,
    "cumsum": _NARROWING_OUT,
    "gather": (
        "An `out=` that has to grow gets memory of its own; in PyTorch it would grow over the index beside it.",
        "int64[3], 0, int64[2], out=int64[1]",
    ),
    "linalg.norm.subgradients_at_zero": (
        "The second derivative of the 2-norm at zero does not exist: PyTorch says nan, here it is 0 like the first.",
        "expected [nan",
    ),
    "narrow_copy": (
        "A dimension out of range is an IndexError, as in narrow; PyTorch's is an internal assertion.",
        "error: IndexError: Dimension out of range",
    ),
    "to": _ROW_ORDER,
    "view_as_complex": _NO_COMPLEX_HALF,
}
