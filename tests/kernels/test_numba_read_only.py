"""Arrays that must not be written, as `np.load(..., mmap_mode="r")` gives them: NumPy's kernels serve."""

import numpy as np
import pytest

import tensorgrad as tg
from tests.support.kernels import absent

if absent():
    pytest.skip(absent(), allow_module_level=True)

F = tg.nn.functional
PLACES = np.arange(2048) % 300


def table_of(x):
    return tg.from_numpy(PLACES), x.reshape(-1, 100)


def matrix_of(x):
    """A sparse matrix of 300 × 300, whose indices must not be written either."""
    indices = np.stack([np.arange(30_000) % 300, np.arange(30_000) // 7 % 300])
    indices.flags.writeable = False
    return tg.sparse_coo_tensor(tg.from_numpy(indices), x[:30_000], (300, 300))


CALLS = {
    "sum": lambda x: x.sum(),
    "sum of columns": lambda x: x.reshape(200, -1).sum(0),
    "amax": lambda x: x.amax(),
    "exp": lambda x: x.exp(),
    "add": lambda x: x + x,
    "broadcast": lambda x: x.reshape(200, -1) + x[:200, None],
    "softmax": lambda x: x.reshape(200, -1).softmax(1),
    "layer_norm": lambda x: F.layer_norm(x.reshape(200, -1), (x.numel() // 200,)),
    "rms_norm": lambda x: F.rms_norm(x.reshape(200, -1), (x.numel() // 200,)),
    "batch_norm": lambda x: F.batch_norm(x.reshape(20, 10, -1), x[:10], x[10:20].exp(), x[:10], x[:10]),
    "conv2d": lambda x: F.conv2d(x.reshape(2, 10, 60, -1), x[:90].reshape(1, 10, 3, 3)),
    "max_pool2d": lambda x: F.max_pool2d(x.reshape(2, 10, 60, -1), 2),
    "matmul": lambda x: x.reshape(300, -1) @ x.reshape(-1, 300),
    "linear": lambda x: F.linear(x.reshape(300, -1), x.reshape(300, -1)),
    "embedding": lambda x: F.embedding(*table_of(x)),
    "cumsum": lambda x: x.cumsum(0),
    "sparse.mm": lambda x: tg.sparse.mm(matrix_of(x), x[:30_000].reshape(300, 100)),
    "sparse.mm by a vector": lambda x: tg.sparse.mm(matrix_of(x), x[:300, None]),
    "sparse.sampled_addmm": lambda x: tg.sparse.sampled_addmm(
        matrix_of(x).coalesce().to_sparse_csr(), x[:30_000].reshape(300, 100), x[:30_000].reshape(100, 300)
    ).to_dense(),
    "coalesce": lambda x: matrix_of(x).coalesce().to_dense(),
    "cross_entropy": lambda x: F.cross_entropy(x.reshape(-1, 100), tg.from_numpy(PLACES)[:300] % 100),
}


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writ")
@pytest.mark.parametrize("name", CALLS)
def test_read_only(name):
    numbers = np.random.default_rng(0).standard_normal(120_000).astype(np.float32)
    numbers = numbers[:30000] if name == "cross_entropy" else numbers
    kept = numbers.copy()
    kept.flags.writeable = False
    for _ in range(2):
        expected, found = CALLS[name](tg.from_numpy(numbers)), CALLS[name](tg.from_numpy(kept))
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=2e-4, atol=2e-4)
