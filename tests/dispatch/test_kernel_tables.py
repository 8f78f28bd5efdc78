"""The registry of kernels: every name in it is an op's, or that of a helper which the package looks up."""

import re
from pathlib import Path

import pytest

import tensorgrad
import tensorgrad.kernels.sparse.table
import tensorgrad.quantized
from tensorgrad.dispatch.kinds import FUNCTIONAL, FUNCTIONS
from tensorgrad.dispatch.show import show
from tensorgrad.kernels.compiled import table
from tensorgrad.kernels.cuda import table as cuda
from tensorgrad.rows.kernel_tables import OPS, ORDER, REGISTRY, RULES, TAKE_EVERY_CALL, OpDispatch, asked
from tensorgrad.storage.stubs import STORAGES

TABLES = {"compiled": {row.op for row in table.ROWS}, "cuda": set(cuda.ROWS)}


def helpers(names) -> set[str]:
    return {name for name in names if name.removesuffix(".backward") not in OPS}


@pytest.mark.parametrize("where", TABLES)
def test_a_name_is_an_ops_or_that_of_a_helper_which_is_looked_up(where):
    """A misspelt name would leave an op without its kernel, and nobody would notice."""
    assert len(table.ROWS) == len(TABLES["compiled"])
    folder = Path(tensorgrad.__file__).parent
    texts = [path.read_text() for path in folder.rglob("*.py") if path.name != "table.py"]
    for name in helpers(TABLES[where]):
        used = re.compile(rf"(?<![\w.])(\"{name}\"|kernels\.{name}|sampler\.{name})(?!\w)")
        assert name.isidentifier() and any(map(used.search, texts)), name


def test_backward_kernels_are_those_of_rows_that_have_one():
    names = [name for names in TABLES.values() for name in names if name.endswith(".backward")]
    assert names and all(OPS[name.removesuffix(".backward")].backward_kernel for name in names)


def test_optimizers_name_kernels_that_exist():
    named = {c._kernel_name for c in vars(tensorgrad.optim).values() if getattr(c, "_kernel_name", "")}
    assert named and named <= helpers(TABLES["compiled"]) & helpers(TABLES["cuda"])


def test_every_source_stands_in_the_order_of_asking():
    assert set(RULES) | {source for _, source in REGISTRY} <= set(ORDER)


def test_kernels_are_asked_in_order_and_the_last_one_takes_every_call():
    for op in OPS.values():
        for storage in STORAGES.values():
            sources = [source for source, _ in asked(op, storage)]
            assert sources == sorted(sources, key=ORDER.index), op
            assert not {*sources[:-1]} & {*TAKE_EVERY_CALL}, op


def test_show_prints_every_op_function_and_composite():
    """Views among them: of their kernels for some layouts, one function is bound to each name."""
    for name in {*OPS, *FUNCTIONS, *FUNCTIONAL}:
        assert show(name).startswith("# "), name


def test_show_prints_the_order_of_asking():
    """All of it: a line for each class of arrays that the op has a kernel for, and for its backward kernel."""

    def has(name: str, *lines: str) -> None:
        shown = show(name).replace("its stored, else ", "")  # a check, once a test has made such numbers
        for line in lines:
            assert re.search(f"^#?[ ]*{line}$", shown, re.MULTILINE), line

    large = r"kernels/compiled/[\w.]+ from \d+ elements on, else " if table.wanted() else ""
    has(
        "softmax",
        f"cpu: {large}kernels/array/softmax.softmax", "cuda: kernels/cuda/softmax.softmax, else kernels/array/.*",
        "meta.*: its shape rule", "batched: its batch rule",
        "backward:", f"cpu: {large}kernels/array/softmax.softmax_grad",
        "cuda: kernels/cuda/softmax.softmax_grad, else .*",
    )  # fmt: skip
    try:
        OpDispatch.register("tanh", "cpu")(lambda x: NotImplemented)
        has("tanh", f"cpu: <function .*>, registered, else {large}the array module's tanh")
    finally:
        OpDispatch.unregister("tanh", "cpu")
    has("adam_step", "cuda: kernels/cuda/optim.adam", *(["cpu: kernels/compiled/optim.adam .*"] if large else []))
