"""The public extension API: a toy device defined outside the package, with six ops of its own."""

import numpy as np
import pytest

import tensorgrad as tg
from tensorgrad.const import DEVICE, DTYPE, OP
from tensorgrad.ops.stubs import Op
from tensorgrad.rows.kernel_tables import OPS, OpDispatch
from tensorgrad.storage.stubs import BY_DEVICE, STORAGES, Storage, register


class ToyArray:
    """A NumPy array in disguise: a type of its own, as a device's arrays are."""

    def __init__(self, inner):
        self.inner = np.asarray(inner)

    shape = property(lambda self: self.inner.shape)
    dtype = property(lambda self: self.inner.dtype)
    strides = property(lambda self: self.inner.strides)
    ndim = property(lambda self: self.inner.ndim)
    size = property(lambda self: self.inner.size)
    itemsize = property(lambda self: self.inner.itemsize)
    nbytes = property(lambda self: self.inner.nbytes)
    flags = property(lambda self: self.inner.flags)

    def astype(self, dtype):
        return ToyArray(self.inner.astype(dtype))


CALLS: dict[str, int] = {}


def counted(name, function):
    """A kernel that unwraps, counts and wraps."""

    def kernel(*values):
        CALLS[name] = CALLS.get(name, 0) + 1
        return ToyArray(function(*(v.inner if isinstance(v, ToyArray) else v for v in values)))

    return kernel


@pytest.fixture(scope="module", autouse=True)
def toy_device():
    """Registers the device and six ops, and takes everything out again afterwards."""

    @register
    class ToyStorage(Storage):
        __slots__ = ()

        device_type = "toy"
        array_type = ToyArray

        @classmethod
        def from_host(cls, array, device):
            return ToyArray(np.array(array))

        @classmethod
        def to_host(cls, array):
            return array.inner

        @classmethod
        def write(cls, target, values):
            target.inner[...] = values.inner if isinstance(values, ToyArray) else values

    class ToyExp(Op):
        @staticmethod
        def forward(x):
            return counted("exp", np.exp)(x)

        @staticmethod
        def backward(g, out):
            return counted("exp backward", np.multiply)(g, out)

    class ToySum(Op):
        @staticmethod
        def forward(x, dim, keepdim, dtype):
            return counted("sum", lambda a: np.asarray(a.sum(axis=dim, keepdims=keepdim)))(x)

        @staticmethod
        def backward(g, input_shape):
            return counted("sum backward", lambda a: np.array(np.broadcast_to(a, input_shape)))(g)

    kernels = {
        OP.ADD: counted("add", np.add),
        OP.SUB: counted("sub", np.subtract),
        OP.MUL: counted("mul", np.multiply),
        OP.DIV: counted("div", np.true_divide),
        OP.EXP: ToyExp,
        OP.SUM: ToySum,
    }
    for name, kernel in kernels.items():
        OpDispatch.register(name, "toy")(kernel)
    yield
    for name in kernels:
        OpDispatch.unregister(name, "toy")
    STORAGES.pop(ToyArray)
    BY_DEVICE.pop("toy")
    tg.devices.TYPES.discard("toy")


@pytest.fixture(autouse=True)
def fresh_counts():
    CALLS.clear()


def toy(values, requires_grad=False):
    return tg.tensor(values, device="toy", requires_grad=requires_grad)


def test_tensors_live_on_the_device():
    x = toy([1.0, 2.0])
    assert x.device == tg.device("toy")
    assert isinstance(x._array, ToyArray)
    assert x.tolist() == [1.0, 2.0]
    assert x.cpu().device == tg.device("cpu")
    assert "device='toy'" in repr(x)


def test_its_kernels_run_forward_and_backward():
    x, y = toy([1.0, 2.0], True), toy([3.0, 5.0], True)
    ((x * y + x) * y).sum().backward()
    assert x.grad.tolist() == [12, 30]
    assert y.grad.tolist() == [7, 22]
    assert CALLS["mul"] == 6 and CALLS["add"] >= 1 and CALLS["sum"] == CALLS["sum backward"] == 1


def test_a_registered_backward_runs_unless_it_must_be_recorded():
    x = toy([0.5], True)
    x.exp().backward(toy([1.0]))
    assert CALLS == {"exp": 1, "exp backward": 1}
    assert np.allclose(x.grad.tolist(), [np.exp(0.5)])
    (first,) = tg.autograd.grad(x.exp(), x, toy([1.0]), create_graph=True)
    (second,) = tg.autograd.grad(first, x, toy([1.0]))
    assert np.allclose(second.tolist(), [np.exp(0.5)])


def test_a_backward_that_asks_for_what_is_not_saved_is_refused():
    class Wrong(Op):
        forward = staticmethod(counted("exp", np.exp))

        @staticmethod
        def backward(g, input):
            return g

    with pytest.raises(TypeError, match="backward registered for exp needs input"):
        OpDispatch.register(OP.EXP, "meta")(Wrong)
    assert tg.empty(2, device="meta").exp().shape == (2,)


def test_a_backward_that_forgets_an_input_is_an_error():
    class Half(Op):
        forward = staticmethod(np.multiply)

        @staticmethod
        def backward(g, other):
            return g * other

    OpDispatch.register(OP.MUL, DEVICE.CPU)(Half)
    try:
        x, y = tg.ones(2, requires_grad=True), tg.ones(2, requires_grad=True)
        with pytest.raises(RuntimeError, match=r"registered for mul returned 1 gradients, expected 2 \(input, other\)"):
            (x * y).sum().backward()
    finally:
        OpDispatch.unregister(OP.MUL, DEVICE.CPU)


def test_a_node_hook_that_returns_too_few_gradients_is_an_error():
    x, y = tg.ones(2, requires_grad=True), tg.ones(2, requires_grad=True)
    z = x * y
    z.grad_fn.register_hook(lambda grad_inputs, grad_outputs: grad_inputs[:1])
    with pytest.raises(RuntimeError, match=r"incorrect number of values \(got 1, but expected 2\)"):
        z.sum().backward()
    assert x.grad is None and y.grad is None


def test_a_twin_runs_through_the_devices_ops():
    from tensorgrad.dispatch.kinds import op

    kernel, twin = lambda xp, x: x * np.exp(x) + x, lambda input: input * input.exp() + input
    squash = OPS.get("toy_squash") or op("toy_squash(input)", kernel, twin=twin, where=()).op
    x = toy([0.0, 1.0], True)
    result = squash.compiled.call(x)
    assert np.allclose(result.tolist(), [0, np.e + 1])
    assert CALLS == {"exp": 1, "mul": 1, "add": 1}
    result.sum().backward()
    assert x.grad.device == tg.device("toy")
    with tg.no_grad():
        assert np.allclose(squash.compiled.call(x).tolist(), result.tolist())
    del OPS["toy_squash"]


def test_the_seventh_op_is_a_clear_error():
    message = r"sin: no kernel for device 'toy'.*OpDispatch.register\('sin', 'toy'\)"
    with pytest.raises(NotImplementedError, match=message):
        toy([1.0]).sin()


def test_devices_do_not_mix():
    with pytest.raises(RuntimeError, match=r"Expected all tensors to be on the same device.*toy.*cpu"):
        toy([1.0, 2.0]) + tg.ones(2)


def test_a_kernel_may_decline():
    seen = []

    @OpDispatch.register(OP.ADD, DEVICE.CPU)
    def only_three(x, y):
        seen.append(x.shape)
        return np.full(3, 7, np.float32) if x.shape == (3,) else NotImplemented

    try:
        assert (tg.ones(3) + tg.ones(3)).tolist() == [7, 7, 7]
        assert (tg.ones(2) + tg.ones(2)).tolist() == [2, 2]
        assert seen == [(3,), (2,)]
    finally:
        OpDispatch.unregister(OP.ADD, DEVICE.CPU)
    assert (tg.ones(3) + tg.ones(3)).tolist() == [2, 2, 2]


def test_registering_what_is_not_a_kernel_is_refused():
    with pytest.raises(TypeError, match="expected a function or a class with forward"):
        OpDispatch.register(OP.ADD, DEVICE.CPU)(3)


def test_cuda_says_what_is_missing():
    if BY_DEVICE.get("cuda") is not None:
        pytest.skip("CUDA is available here")
    with pytest.raises(RuntimeError, match="device 'cuda' needs"):
        tg.ones(2, device="cuda")


def test_names_that_are_not_known_are_refused():
    assert OP.MUL == "mul" and DEVICE.CPU == "cpu"
    assert {name.lower() for name in dir(OP)} == set(OPS) and DTYPE.BFLOAT16 == "bfloat16"
    with pytest.raises(AttributeError, match="there is no op 'MULL'; did you mean 'mul'"):
        OP.MULL
    with pytest.raises(ValueError, match=r"register\('mull', 'cpu'\): there is no op 'mull'; did you mean 'mul'"):
        OpDispatch.register("mull", "cpu")
    with pytest.raises(ValueError, match=r"there is no device 'cpuu'; did you mean 'cpu'\?; expected one of cpu, cuda"):
        OpDispatch.register(OP.MUL, "cpuu")
