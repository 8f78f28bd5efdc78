"""Whether compiled kernels work with this Python and this Numba: one of most families is compared with NumPy.

    python tests/smoke_kernels.py [families]

It needs no pytest, and takes about a minute. Each kernel must have served its program (kernels/numba/verify.py).
"""

import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
ONE = {  # of most families, that which calls most of it; those that take longest to compile are left to all tests
    "runtime.spin": "wait", "ufuncs": "sin", "broadcast": "where", "pointwise": "gelu", "softmax": "softmax",
    "reduce": "sum", "index": "gather", "sort": "topk", "optim": "sgd", "embedding": "embedding",
    "loss": "cross_entropy",
    "rnn": "gru", "pool": "max_pool", "conv": "conv",
}  # fmt: skip


def main(families: list[str]) -> None:
    """Compiles and compares. Raises: what the first kernel that fails raises."""
    import numba

    from tensorgrad.kernels.numba.runtime import compiler

    compiler.serving = True  # kernels are compiled here, not in a process of their own
    from tensorgrad.kernels.numba import compiling, table, verify
    from tensorgrad.kernels.numba.runtime import loading

    known = {row.kernel for row in table.ALL}
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TENSORGRAD_CACHE"] = folder
        for family in families or ONE:
            kernel = f"{family}.{ONE[family]}"
            if kernel not in known:
                raise LookupError(f"there is no kernel {kernel}")
            compiling.compile_into(kernel, Path(folder))
            if callable(loading.loaded[kernel]) and not verify.uses(kernel, loading.loaded[kernel]):
                raise AssertionError(f"{kernel} served nothing of its program")
    seconds = time.monotonic() - start
    print(f"{len(families or ONE)} kernels agree with NumPy: Numba {numba.__version__}, {seconds:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
