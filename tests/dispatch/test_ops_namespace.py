"""`torch.ops`: PyTorch's registry of operators, by its names."""

import copy
import pickle
import subprocess
import sys
import warnings

import pytest

import tensorgrad as tg
from tensorgrad import compat
from tensorgrad._ops import _overloads
from tests.support.alike import alike, error

try:
    import torch

    from tests.conformance import opdb
    from tests.conformance.opdb_bridge import copied, differences, to_tg
except ImportError:
    torch = None

needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed: nothing to compare with")
UNDEFINED = ("empty", "new_empty", "svd", "eig", "qr", "geqrf")  # values, or signs of vectors
RECORDS = {} if torch is None else {
    opdb.record_name(r): r for r in opdb.records() if r.aten_name in _overloads() and torch.float64 in r.dtypes
}  # fmt: skip


@needs_torch
@pytest.mark.parametrize("name", RECORDS)
def test_operators_do_what_pytorchs_do(name):
    record = RECORDS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call in opdb.calls(record, torch.float64, False, 3, 500):
            (inputs, keywords), (mine, my_keywords) = (
                copied((call.inputs, call.kwargs)),
                to_tg((call.inputs, call.kwargs)),
            )
            torch.manual_seed(0)
            try:
                expected = getattr(torch.ops.aten, record.aten_name)(*inputs, **keywords)
            except (RuntimeError, TypeError, NotImplementedError):
                continue  # a sample of the function in front, which the operator does not take
            tg.manual_seed(0)
            found = getattr(tg.ops.aten, record.aten_name)(*mine, **my_keywords)
            if not any(word in record.aten_name for word in UNDEFINED):
                assert not differences(expected, found, record.aten_name)


@needs_torch
def test_overloads_are_pytorchs():
    missing = [
        (name, overload)
        for name, overloads in _overloads().items()
        for overload in overloads
        if overload not in getattr(torch.ops.aten, name).overloads()
    ]
    assert not missing and len(_overloads()) > 700


def test_every_operator_is_here():
    for name in _overloads():
        packet = getattr(tg.ops.aten, name)
        assert callable(packet.op) and packet.overloads()
        assert all(callable(getattr(packet, overload)) for overload in packet)
        assert getattr(packet.op, "__module__", None) != "tensorgrad.ops.pytorch.absent", name


@alike
def test_calls_names_and_errors(torch):
    x, aten = torch.tensor([1.0, 2.0]), torch.ops.aten
    return [
        aten.add(x, x, alpha=2), aten.add.Tensor(x, x), aten.add.Scalar(x, 3), aten.mul_(x.clone(), 2.0),
        aten.sum.dim_IntList(x, [0], True), aten.add(self=x, other=x), aten.view.default(x, [2, 1]),
        aten.clone.default(x), aten.linalg_norm(x), aten.special_erf(x), aten.gelu(x),
        aten.native_layer_norm(x, [2], None, None, 0.1),
        repr(aten.add), str(aten.add), repr(aten.add.Tensor), str(aten.add.Tensor), aten.add.Tensor.name(),
        aten.mm.default.name(), aten.add.Tensor.overloadpacket is aten.add, aten.add is torch.ops.aten.add,
        aten.__name__, torch.ops.__name__, aten.add.__name__, aten.add.Tensor.__name__,
        "Tensor" in aten.add.overloads(),
        error(getattr, aten, "nope"), error(getattr, torch.ops.nope, "x"), error(getattr, aten.add, "nope"),
        hasattr(torch.ops, "torchvision"), hasattr(torch.ops.torchvision, "nms"), hasattr(torch.ops.aten, "einsum"),
        error(torch.ops.load_library, "/no/such/file.so").partition(":")[0],
    ]  # fmt: skip


def test_it_is_not_the_package_of_this_library():
    from tensorgrad.dispatch.show import main  # noqa: F401
    from tensorgrad.ops import pointwise
    from tensorgrad.rows import kernel_tables

    assert not isinstance(tg.ops.FAMILIES, tuple) and pointwise is sys.modules["tensorgrad.ops.pointwise"]
    assert "add" in kernel_tables.OPS and not hasattr(tg.ops.pointwise, "add")
    subprocess.run([sys.executable, "-m", "tensorgrad.dispatch.show", "mul"], check=True, capture_output=True)
    compat.install()
    try:
        import torch
        import torch.ops as imported

        assert imported is torch.ops is tg.ops and torch.ops.aten.add.Tensor(tg.ones(1), 1).item() == 2
    finally:
        compat.uninstall()


def test_operators_travel():
    for operator in (tg.ops.aten.add, tg.ops.aten.add.Tensor):
        assert repr(pickle.loads(pickle.dumps(operator))) == repr(operator)
        assert copy.deepcopy(operator)(tg.ones(1), 1).item() == 2
