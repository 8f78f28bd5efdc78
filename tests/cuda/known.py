"""Where a record of PyTorch's database differs on the GPU on purpose: name -> (reason, texts of its differences)."""

from tests.conformance.opdb_known import KNOWN
from tests.support.versions import INSTALLED, SPECIFICATION, numbers

_ROWS = (
    "Conjugates of complex numbers are CuPy's, whose new arrays are in the order of rows, whatever that of the input.",
    "result: strides (",
)

_NO_COMPLEX_HALF = ("CuPy has no complex numbers of half precision.", "complex32", "float16[")

ON_GPU: dict[str, tuple[str, ...]] = {
    "H": _ROWS,
    "mH": _ROWS,
    "adjoint": _ROWS,
    "chalf": _NO_COMPLEX_HALF,
    "complex": _NO_COMPLEX_HALF,
    "view_as_complex": _NO_COMPLEX_HALF,
    "tensor_split": (
        "As in PyTorch, a tensor of the places to split at must be on the CPU; here all are on the GPU.",
        "tensor_indices_or_sections",
    ),
    "to": (
        "Where a record moves a tensor to the CPU, that stands for the GPU here, except in an object's attributes.",
        "shares memory with an input",
        "expected device cuda:0 but got cpu",
        "two devices",
    ),
    "multinomial": (
        "The limit on categories is that of the CPU's way of drawing; on a GPU there is none.",
        "number of categories cannot exceed",
    ),
}

# Parts of differences that say where tensors are, and that a PyTorch before 2.13 prints no `bias=`.
OF_DEVICES = ("torch.cuda.FloatTensor", *((": repr: ",) if numbers(SPECIFICATION) > INSTALLED else ()))


def unexplained(name: str, problems: list[str]) -> list[str]:
    """Of a record's differences those without a written reason."""
    texts = (*KNOWN.get(name, ("",))[1:], *ON_GPU.get(name, ("",))[1:])
    return [problem for problem in problems if not any(text in problem for text in texts)]
