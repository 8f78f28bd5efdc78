"""nan, infinities, signed zeros, the smallest and the largest numbers in the compiled kernels: the tests of
tests/ops/test_edge_values.py once more, with every kernel compiled and used for arrays of any size."""

import pytest

from tests.support.kernels import absent

if absent():
    pytest.skip(absent(), allow_module_level=True)
pytest.importorskip("torch", reason="torch is the oracle of these tests")

from tests.kernels.test_numba import compiled  # noqa: F401  (a fixture, for every test here)
from tests.ops.test_edge_values import (  # noqa: F401
    test_along_a_dimension,
    test_gradient_at_the_edges,
    test_gradient_in_every_precision,
    test_pointwise,
    test_pointwise_of_three,
)

pytestmark = pytest.mark.filterwarnings("ignore")
