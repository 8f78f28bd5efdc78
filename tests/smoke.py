"""The smoke suite: tensorgrad with nothing but NumPy, on any supported Python. Run it as `python tests/smoke.py`."""

import itertools
import math
import sys
from pathlib import Path

import numpy as np

import tensorgrad as torch

OPTIONAL = ("cupy", "IPython", "llvmlite", "matplotlib", "ml_dtypes", "numba", "scipy", "sklearn", "torch", "tqdm")
CHECKS = []


def check(function):
    """Put `function` on the list of checks."""
    CHECKS.append(function)
    return function


def same(tensor, expected, tolerance=0.0):
    """Assert that `tensor` has the shape of the nested list `expected`, and its values within `tolerance`."""
    expected = np.asarray(expected)
    assert tuple(tensor.shape) == expected.shape, f"shape {tuple(tensor.shape)}, expected {expected.shape}"
    array = tensor.detach().numpy()
    assert np.allclose(array, expected, rtol=0, atol=tolerance), f"got {array}, expected {expected}"


def raises(error, text, function):
    """Assert that `function()` raises `error` with `text` in its message."""
    try:
        function()
    except error as caught:
        assert text in str(caught), f"message {caught!s}, expected {text}"
    else:
        raise AssertionError(f"no {error.__name__} was raised")


@check
def optional_packages_stay_unimported():
    assert not set(OPTIONAL) & set(sys.modules)


@check
def version_is_there():
    assert torch.__version__[0].isdigit()


@check
def arithmetic():
    a, b = torch.tensor([1.0, -2.0, 3.0]), torch.tensor([4.0, 5.0, -6.0])
    same(a + b, [5, 3, -3])
    same(a - b, [-3, -7, 9])
    same(a * b, [4, -10, -18])
    same(a / b, [0.25, -0.4, -0.5], 1e-7)
    same(2 - a, [1, 4, -1])
    same(a**2, [1, 4, 9])
    same(a.abs().sqrt(), [1, math.sqrt(2), math.sqrt(3)], 1e-6)
    same(a @ b, -24)
    same(torch.exp(a).log(), [1, -2, 3], 1e-6)
    same(a > b, [False, False, True])
    same(torch.tensor([7, -7]) // 2, [3, -4])


@check
def types_follow_the_rules():
    assert torch.tensor([1, 2]).dtype is torch.int64
    assert torch.tensor([1.0]).dtype is torch.float32
    assert (torch.tensor([1, 2]) + 1.5).dtype is torch.float32
    assert (torch.tensor([1, 2]) / 2).dtype is torch.float32
    assert (torch.ones(2, dtype=torch.float64) + torch.ones(2)).dtype is torch.float64
    assert (torch.ones(2, dtype=torch.uint8) + torch.ones(2, dtype=torch.int8)).dtype is torch.int16
    assert torch.ones(2, dtype=torch.int32).sum().dtype is torch.int64


@check
def broadcasting_and_its_gradient():
    row, column = torch.arange(3.0, requires_grad=True), torch.ones(2, 1, requires_grad=True)
    product = row * column
    same(product, [[0, 1, 2], [0, 1, 2]])
    product.sum().backward()
    same(row.grad, [2, 2, 2])
    same(column.grad, [[3], [3]])
    raises(RuntimeError, "must match the size", lambda: torch.ones(2) + torch.ones(3))


@check
def reductions():
    x = torch.tensor([[1.0, 5.0, 3.0], [4.0, 2.0, 6.0]])
    same(x.sum(), 21)
    same(x.mean(dim=0), [2.5, 3.5, 4.5])
    same(x.max(dim=1).indices, [1, 2])
    same(x.argmin(), 0)
    same(x.std(dim=1, unbiased=False), [math.sqrt(8 / 3)] * 2, 1e-6)
    same(torch.softmax(x, dim=1).sum(dim=1), [1, 1], 1e-6)
    same(x.cumsum(dim=1), [[1, 6, 9], [4, 6, 12]])


@check
def views_share_memory_in_place():
    x = torch.zeros(2, 3)
    x[1] = 3
    row = x[0]
    row.add_(2)
    x.t()[2, 1] = 7
    x.view(-1)[0] = -1
    same(x, [[-1, 2, 2], [3, 3, 7]])
    assert row.data_ptr() == x.data_ptr() and x.t().stride() == (1, 3) and not x.t().is_contiguous()
    array = np.zeros(2, dtype=np.float32)
    torch.from_numpy(array).fill_(4)
    assert array.tolist() == [4, 4]


@check
def in_place_writes_are_differentiated():
    x = torch.ones(2, 2, requires_grad=True)
    y = x * 2
    y[0].mul_(3)
    y[1, 1] = 0
    y.sum().backward()
    same(x.grad, [[6, 6], [2, 0]])
    raises(RuntimeError, "a leaf Variable that requires grad is being used in an in-place operation", lambda: x.add_(1))


@check
def indexing():
    x = torch.arange(12).view(3, 4)
    same(x[1:, ::2], [[4, 6], [8, 10]])
    same(x[[0, 2], [1, 3]], [1, 11])
    same(x[x % 5 == 0], [0, 5, 10])
    same(x[..., None, -1], [[3], [7], [11]])
    same(torch.cat([x[0], x[1, :2]]), [0, 1, 2, 3, 4, 5])
    raises(IndexError, "out of bounds", lambda: x[3])


@check
def backward_of_a_small_network_against_finite_differences():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)).double()
    x, y = torch.randn(5, 3, dtype=torch.float64), torch.tensor([0, 1, 1, 0, 1])

    def loss():
        return torch.nn.functional.cross_entropy(model(x), y)

    loss().backward()
    step = 1e-6
    for parameter in model.parameters():
        flat, gradient = parameter.data.view(-1), parameter.grad.view(-1)
        for i in range(flat.numel()):
            value = flat[i].item()
            flat[i] = value + step
            above = loss().item()
            flat[i] = value - step
            below = loss().item()
            flat[i] = value
            assert abs(gradient[i].item() - (above - below) / (2 * step)) < 1e-7


@check
def gradient_of_a_known_function():
    x = torch.tensor([0.5, 0.75], requires_grad=True)
    y = torch.log(x[0] * x[1]) * torch.sin(x[1])
    y.backward()
    same(x.grad, [1.3633, 0.1912], 1e-4)


class TwiceTheSame(torch.autograd.Function):
    """An op whose backward gives both inputs one and the same tensor."""

    @staticmethod
    def forward(ctx, a, b):
        return a + b

    @staticmethod
    def backward(ctx, g):
        one = g * 2
        return one, one


@check
def gradients_have_their_own_memory():
    # Leaves take over a gradient that nobody else holds. That is found out by counting references, which Pythons do
    # differently: a wrong count shows as memory that a gradient shares with another one, an input or a seed.
    kept = []

    def hooked(a, b):
        middle = a * 1
        middle.register_hook(kept.append)
        middle.retain_grad()
        kept.append(middle)
        return middle + b

    def written(a, b):
        whole = a.clone()
        whole.view(-1).add_(b.reshape(-1))
        return whole

    programs = [
        lambda a, b: a + b,
        lambda a, b: a - b,
        lambda a, b: a.view(3, 2) + b.reshape(3, 2),
        lambda a, b: a.t() * b.t(),
        lambda a, b: a[0] + b[1],
        lambda a, b: (a + 0) + (b + 0),
        lambda a, b: torch.cat([a, b]),
        lambda a, b: torch.stack([a, b]),
        lambda a, b: a.expand(2, 2, 3) + b,
        lambda a, b: a.clone() + b.clone(),
        lambda a, b: torch.where(a > 0, a, b),
        lambda a, b: a * b.sum(dim=0),
        lambda a, b: TwiceTheSame.apply(a, b),
        lambda a, b: torch.nn.functional.linear(a, b),
        hooked,
        written,
    ]
    for number, program in enumerate(programs):
        a, b = (torch.rand(2, 3, requires_grad=True) for _ in range(2))
        result = program(a, b)
        seed = torch.rand(result.shape)
        result.backward(seed)
        tensors = [a.grad, b.grad, a, b, seed, result]
        tensors += [t if t.is_leaf else t.grad for t in kept]
        arrays = [t.detach().numpy() for t in tensors]
        for i, j in itertools.product(range(2), range(1, len(arrays))):
            shared = i != j and np.shares_memory(arrays[i], arrays[j])
            assert not shared, f"program {number}: tensors {i} and {j} share memory"
        assert a.grad.numpy().flags.writeable and b.grad.numpy().flags.writeable
        kept.clear()
    seed, leaf = torch.ones(3), torch.zeros(3, requires_grad=True)
    leaf.backward(seed)
    seed.zero_()
    same(leaf.grad, [1, 1, 1])


@check
def gradients_of_gradients():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    same(first, [3, 12])
    same(second, [6, 12])


@check
def errors_are_the_known_ones():
    y = torch.ones(2, requires_grad=True) * 2
    raises(RuntimeError, "grad can be implicitly created only for scalar outputs", y.backward)
    raises(RuntimeError, "Only Tensors of floating point", lambda: torch.tensor([1], requires_grad=True))


@check
def no_grad_records_nothing():
    x = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        with torch.no_grad():
            pass
        y = x * 2
    assert not y.requires_grad and y.grad_fn is None
    assert (x * 2).requires_grad and not (x * 2).detach().requires_grad


@check
def random_numbers_are_the_known_ones():
    torch.manual_seed(0)
    same(torch.rand(3), [0.4962566, 0.7682218, 0.08847743], 1e-7)
    torch.manual_seed(0)
    same(torch.randint(10, (5,)), [4, 9, 3, 0, 3])


@check
def xor_is_learned():
    torch.manual_seed(0)
    x, y = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), torch.tensor([0, 1, 1, 0])
    model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(500):
        optimizer.zero_grad()
        loss = torch.nn.CrossEntropyLoss()(model(x), y)
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.05
    assert (model(x).argmax(dim=1) == y).all()


@check
def convolution_trains():
    torch.manual_seed(0)
    images, labels = torch.rand(8, 1, 8, 8), torch.tensor([0, 1] * 4)
    images[1::2] += 0.5
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(64, 2),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    data = torch.utils.data.TensorDataset(images, labels)
    for _ in range(20):
        for x, y in torch.utils.data.DataLoader(data, batch_size=4, shuffle=True):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    assert (model(images).argmax(dim=1) == labels).all()


@check
def state_dict_makes_the_round_trip():
    torch.manual_seed(1)
    first, second = (torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)) for _ in range(2))
    x = torch.randn(4, 3)
    assert not torch.equal(first(x), torch.nn.Linear(3, 2)(x))
    state = {name: torch.from_numpy(value.numpy().copy()) for name, value in first.state_dict().items()}
    assert list(state)[:2] == ["0.weight", "0.bias"]
    second.load_state_dict(state)
    same(second.eval()(x), first.eval()(x).detach().numpy())
    raises(RuntimeError, "Missing key(s) in state_dict", lambda: second.load_state_dict({}))


@check
def printed_forms():
    assert repr(torch.tensor([1.0, 2.5])) == "tensor([1.0000, 2.5000])"
    assert repr(torch.tensor([[1, -2]])) == "tensor([[ 1, -2]])"
    assert repr(torch.tensor([True])) == "tensor([True])"
    assert repr(torch.zeros(0)) == "tensor([])"
    assert repr(torch.ones(2, requires_grad=True)) == "tensor([1., 1.], requires_grad=True)"
    assert repr(torch.ones(2, requires_grad=True) * 2) == "tensor([2., 2.], grad_fn=<MulBackward0>)"
    assert repr(torch.nn.Linear(2, 3)) == "Linear(in_features=2, out_features=3, bias=True)"


@check
def a_long_chain_needs_no_recursion():
    x = torch.ones(1, requires_grad=True)
    y = x
    for _ in range(5000):
        y = y + 1
    y.backward()
    same(x.grad, [1])


@check
def compiled_kernels_agree_with_numpys():
    from tensorgrad.kernels.compiled.runtime import library

    try:
        library.image()
    except library.Unusable:
        return
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from tools.kernels import verify

    assert verify.main() == 0


if __name__ == "__main__":
    for function in CHECKS:
        try:
            function()
        except Exception:
            print(f"smoke: {function.__name__} failed", flush=True)
            raise
    print(f"smoke: {len(CHECKS)} checks passed")
