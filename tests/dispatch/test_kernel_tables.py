"""The tables of kernels: every name in those of ops is an op, and what is asked for by name has a name of its own."""

from pathlib import Path
from types import SimpleNamespace

import tensorgrad
from tensorgrad.kernels.compiled import table
from tensorgrad.rows.kernel_tables import OPS


def cuda_tables():
    """What kernels/cuda/table.py holds; the folder itself cannot be imported without CuPy."""
    folder = Path(tensorgrad.__file__).parent / "kernels" / "cuda"
    host, names = {"__name__": "host"}, {"__name__": "table"}
    exec((folder / "host.py").read_text(), host)
    names["host"] = SimpleNamespace(**host)
    exec((folder / "table.py").read_text().replace("from tensorgrad.kernels.cuda import host\n", ""), names)
    return names["ROWS"], names["PARTS"]


def test_every_row_of_compiled_kernels_is_an_op():
    assert {row.op.removesuffix(".backward") for row in table.ROWS} <= set(OPS)


def test_every_row_of_cuda_kernels_is_an_op():
    rows, _ = cuda_tables()
    assert {name.removesuffix(".backward") for name in rows} <= set(OPS)


def test_kernels_that_are_no_ops_have_identifiers():
    rows, parts = cuda_tables()
    ours = {row.op for row in table.PARTS}
    assert all(name.isidentifier() for name in ours | set(parts))
    assert not ours & {row.op for row in table.ROWS} and not set(parts) & set(rows)


def test_optimizers_name_kernels_that_exist():
    _, parts = cuda_tables()
    named = {c._kernel_name for c in vars(tensorgrad.optim).values() if getattr(c, "_kernel_name", "")}
    assert named and named <= {row.op for row in table.PARTS} & set(parts)
