"""nan, infinities, signed zeros, the smallest and the largest numbers in the compiled kernels: the tests of
tests/test_edge_values.py once more, with every kernel compiled and used for arrays of any size."""

import pytest

pytest.importorskip("numba", reason="compiled kernels need Numba")
pytest.importorskip("torch", reason="torch is the oracle of these tests")

from tensorgrad.kernels.numba import runtime, table
from tests.test_edge_values import (  # noqa: F401
    test_along_a_dimension,
    test_gradient_at_the_edges,
    test_gradient_in_every_precision,
    test_pointwise,
    test_pointwise_of_three,
)

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """All kernels, used for arrays of any size; afterwards as before."""
    before = {row: row.elements for row in table.ROWS}
    for row in table.ROWS:
        row.asked, row.ready = True, row.ready or runtime.compiled(row.kernel)
        row.elements = 0
    yield
    for row, elements in before.items():
        row.elements = elements
