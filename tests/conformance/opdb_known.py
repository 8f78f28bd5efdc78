"""Where a record of PyTorch's database differs here on purpose or for a known reason.

record name -> (the reason, texts): each of its differences contains one of the texts. A record that comes to agree
must leave.
"""

_DIMENSIONS = (
    "NumPy's arrays have at most 64 dimensions, so the input with 65 cannot be made, and the error is NumPy's own.",
    "number of dimensions must be within [0, 64]",
)
_CONJUGATED = (
    "The conjugate is computed at once; PyTorch marks a view as conjugated and computes when it is read.",
    "does not share memory with an input",
    "strides (1, 1, 3), expected (6, 1, 3)",  # of a dimension of one element, after the copy
)
_BESSEL = (
    "PyTorch's value is off by up to 3e-7 in double precision for arguments around 5.5; the one here has all digits.",
    "(forward torch.float64: float64[20])",
)

KNOWN: dict[str, tuple[str, ...]] = {
    "H": _CONJUGATED,
    "amax": _DIMENSIONS,
    "amin": _DIMENSIONS,
    "aminmax": _DIMENSIONS,
    "as_strided.partial_views": (
        "A view moved to the meta device takes along only its own elements; as_strided checks its bounds there too.",
        "are out of bounds for storage",
    ),
    "as_strided_scatter": (
        "PyTorch's derivative for the input is that of the overwritten elements: it fails torch.autograd.gradcheck, "
        "which the one here passes (tests/ops/test_ops.py).",
        "gradient 0: values differ",
    ),
    "conj": _CONJUGATED,
    "gather": (
        "An `out=` that has to grow gets memory of its own; in PyTorch it would grow over the index beside it.",
        "int64[3], 0, int64[2], out=int64[1]",
    ),
    "mH": _CONJUGATED,
    "narrow_copy": (
        "A dimension out of range is an IndexError, as in narrow; PyTorch's is an internal assertion.",
        "error: IndexError: Dimension out of range",
    ),
    "special.bessel_j0": _BESSEL,
    "special.bessel_y1": _BESSEL,
}

ABSENT: dict[str, str] = {}  # why a function that users call does not exist


def unexplained(name: str, problems: list[str]) -> list[str]:
    """Those differences of a record that its entry in KNOWN does not account for."""
    texts = KNOWN.get(name, ())[1:]
    return [p for p in problems if not any(text in p for text in texts)]
