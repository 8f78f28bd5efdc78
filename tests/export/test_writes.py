"""What writes in place is in the program: every method that ends in `_`, and every function with `inplace=`."""

import inspect
from importlib import import_module

import pytest

import tensorgrad
import tensorgrad.nn.functional as F
from tests.export.test_export import exported
from tests.support.alike import alike

# Those that are not of a dense tensor alone, or that reach into memory.
LEFT_OUT = {"apply_", "map_", "map2_", "resize_as_sparse_", "set_", "share_memory_", "sparse_resize_",
            "sparse_resize_and_clear_"}  # fmt: skip
METHODS = sorted(name for name in dir(tensorgrad.Tensor) if name[-1] == "_" and name[0] != "_" and name not in LEFT_OUT)
FUNCTIONS = sorted(
    name for name, value in vars(F).items()
    if callable(value) and not isinstance(value, type) and "inplace" in inspect.signature(value).parameters
)  # fmt: skip
X, Y = tensorgrad.rand(3, 4) * 0.8 + 0.1, tensorgrad.rand(3, 4) + 0.1
ROWS = tensorgrad.tensor([0, 2])
# Arguments that some method takes.
ARGUMENTS = (
    (), (Y,), (2,), (0.5,), (Y, Y), (0, ROWS, Y[:2]), (0, 1), (X > 0.5, 1.0), (0, ROWS, 1.0), (Y[:, :3], Y[:3]),
    (Y[:, 0], Y[0]), (Y[0],), (X > 0.5, Y), (0, ROWS.expand(2, 2), Y[:2, :2]), (2.0, 0, 1.0), ((ROWS,), Y[:2]),
    (0, ROWS.expand(2, 2), Y[:2, :2], "sum"), (0, ROWS, Y[:2], "prod"), (0,), (-Y,), (Y[:, :3].long() + 6,),
    (ROWS, Y[0, :2]), (Y[None, :3, :3], Y[None]), (Y[:, :3], Y[0, :3]), (Y[None, :, :3], Y[None]),
    (ROWS + 1, ROWS + 2), ((2, 2), (1, 2)),
)  # fmt: skip
INPUTS = X, (X * 10).long(), X[None], X[:, 0], X.double(), (X[:, :3] * 10).long() + 12


def same(name, run, *inputs):
    """Compares a program with what it does, for the first of the inputs and arguments that it takes."""
    for x in inputs:
        for args in ARGUMENTS:
            if name == "resize_":  # what is beyond the old memory is not defined
                args = (2, 3)

            def program(x, args=args):
                x = x.clone()
                run(x, *args)
                return x * 1, x.shape[0]

            tensorgrad.manual_seed(0)
            try:
                expected, _ = program(x)
            except (RuntimeError, TypeError, IndexError, ValueError, AttributeError, NotImplementedError):
                continue
            if tensorgrad.equal(expected, x.clone() * 1) and args:
                continue  # which would show nothing
            made = exported(program, x)
            tensorgrad.manual_seed(0)
            found, _ = made.module()(x)
            assert found.shape == expected.shape
            assert found.nan_to_num().tolist() == expected.nan_to_num().tolist(), made.graph
            return
    pytest.fail(f"no arguments of {name}")


@pytest.mark.filterwarnings("ignore:This overload of")
@pytest.mark.parametrize("name", METHODS)
def test_methods(name):
    same(name, lambda x, *args: getattr(x, name)(*args), *INPUTS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    training = {"training": True} if "training" in inspect.signature(getattr(F, name)).parameters else {}
    inputs = (tensorgrad.randn(2, 3, 4), tensorgrad.randn(2, 3, 4, 5, 2))[name == "dropout3d" :]
    same(name, lambda x, *args: getattr(F, name)(x, *args, inplace=True, **training), *inputs)


@alike
def test_activations_are_pytorchs_operators(torch):
    nn = torch.nn
    layers = (nn.ReLU(True), nn.ReLU6(True), nn.Hardswish(True), nn.SiLU(True), nn.Hardsigmoid(True), nn.Mish(True),
              nn.Hardtanh(-1.0, 2.0, True), nn.LeakyReLU(0.1, True), nn.CELU(2.0, True), nn.ELU(2.0, True),
              nn.Threshold(0.1, 2.0, True), nn.Dropout(inplace=True), nn.AlphaDropout(inplace=True))  # fmt: skip
    program = torch.export.export(nn.Sequential(nn.Linear(3, 4), *layers), (torch.ones(2, 3),))
    return [str(n.target) for n in program.graph.nodes if n.op == "call_function"]


@alike
def test_modes_see_what_is_written(torch):
    base = import_module(f"{torch.__name__}.utils._python_dispatch").TorchDispatchMode
    seen = []

    class Seeing(base):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    x, F = torch.rand(3, 4), torch.nn.functional
    with Seeing():
        x.uniform_().normal_().bernoulli_().bernoulli_(0.5).exponential_().cauchy_().log_normal_().geometric_(0.5)
        x.random_().random_(1, 4)
        x.t_().transpose_(0, 1).unsqueeze_(0).squeeze_().swapaxes_(0, 1).resize_(2, 3)
        for call in (F.silu, F.hardswish, F.hardsigmoid, F.mish, F.elu, F.hardtanh, F.leaky_relu):
            call(x, inplace=True)
    return seen


@alike
def test_copies_keep_their_format(torch):
    class Shuffle(torch.nn.Module):
        def forward(self, x):
            a = x.view(2, 2, 3, 4, 4).transpose(1, 2).contiguous().view(2, 6, 4, 4)
            return a, x.clone(memory_format=torch.channels_last), 10.0**x

    x = torch.arange(192.0).reshape(2, 6, 4, 4) / 192
    program = torch.export.export(Shuffle(), (x,))
    found = program.module()(x)
    told = [(str(n.target), str(n.kwargs)) for n in program.graph.nodes if n.op == "call_function"]
    return [t.stride() for t in found], found[0], told[-2:]
