"""CUDA kernels beside NumPy's: some random calls of every family, and those that once differed."""

import pytest

from tests.cuda.conftest import MODE
from tests.fuzz import kernels
from tests.fuzz.cases import Array, Case
from tests.fuzz.families import FAMILIES

BEGUN = 7_000  # the seed of the first case

FOUND = {
    "logits that begin anywhere": (
        "losses",
        Case("F.cross_entropy(a, b)", {
            "a": Array((3, 33), layout="odd"), "b": Array((3,), "int64", high=33),
        }),
    ),
    "double precision with a mask": (
        "attentions",
        Case("F.scaled_dot_product_attention(a, a, a, b)", {
            "a": Array((1, 4, 3), "float64"), "b": Array((4, 4), "bool"),
        }),
    ),
    "a product's gradient in two bytes": ("sums", Case("torch.prod(a)", {"a": Array((3,), "bfloat16")})),
    "what cross-entropy keeps": (
        "losses",
        Case("F.cross_entropy(a, b, reduction='sum')", {"a": Array((2, 3)), "b": Array((2,), "int64", high=3)}),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in FAMILIES if kernels.fits(name, "cuda")])
@pytest.mark.skipif(MODE != "emulator", reason="on a GPU: python -m tests.fuzz kernels --device cuda")
def test_kernels_give_numpys_numbers(name):
    for seed in range(BEGUN, BEGUN + 25):
        kernels.check(name, seed, "cuda")


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found(name):
    family, case = FOUND[name]
    assert kernels.compare(case, FAMILIES[family], "cuda") == "same"
