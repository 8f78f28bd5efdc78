"""What programs of PyTorch's users do: each snippet prints the same under torch and under tensorgrad."""

import contextlib
import io
import re
import warnings

import pytest

import tensorgrad

torch = pytest.importorskip("torch", reason="torch is the oracle of this test")

NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?")


def printed(library, program):
    """What a program prints that finds `library` under the name torch."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(program, "<program>", "exec"), {"torch": library, "nn": library.nn, "F": library.nn.functional})
    return out.getvalue()


def check(program):
    expected, actual = printed(torch, program), printed(tensorgrad, program)
    assert expected, "the program prints nothing"
    assert NUMBER.sub("#", actual) == NUMBER.sub("#", expected)
    numbers = [[float(x) for x in NUMBER.findall(text)] for text in (actual, expected)]
    assert numbers[0] == pytest.approx(numbers[1], abs=1e-4, rel=1e-4)


OLD_OPTIMIZER = """
from {} import Optimizer, required
class Momentum(Optimizer):
    def __init__(self, params, lr=required, momentum=0.9):
        super(Momentum, self).__init__(params, dict(lr=lr, momentum=momentum))
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["m"], state["v"] = torch.zeros_like(p.data), torch.zeros_like(p.data)
                d_p = p.grad.data
                d_p.add_(0.01, p.data)
                state["m"].mul_(group["momentum"]).add_(1 - group["momentum"], d_p)
                state["v"].mul_(0.9).addcmul_(0.1, d_p, d_p)
                p.data.addcdiv_(-group["lr"], state["m"], state["v"].sqrt().add_(1e-8))
                p.data = p.data.sub(0.1, p.data)
torch.manual_seed(0)
net = nn.Linear(3, 1)
optimizer = Momentum(net.parameters(), lr=0.1)
x = torch.randn(8, 3)
for _ in range(4):
    optimizer.zero_grad()
    loss = torch.add(net(x), 2, x[:, :1]).pow(2).mean()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


def test_an_optimizer_from_before_pytorch_1_5():
    for library in (torch, tensorgrad):
        program = OLD_OPTIMIZER.format(f"{library.__name__}.optim.optimizer")
        assert len(printed(library, program).split()) == 4
    numbers = [
        [float(x) for x in printed(lib, OLD_OPTIMIZER.format(f"{lib.__name__}.optim.optimizer")).split()]
        for lib in (torch, tensorgrad)
    ]
    assert numbers[1] == pytest.approx(numbers[0], rel=1e-4)


def test_the_number_before_the_tensors():
    check("""
x, y = torch.ones(2), torch.full((2,), 3.0)
print(torch.add(x, 2, y), x.add(2, y), x.clone().add_(2, y), torch.sub(x, 2, y), x.clone().sub_(2, y))
print(x.clone().addcmul_(2, y, y), x.clone().addcdiv_(-2, y, y), x.clone().addcmul_(y, y, value=2))
for call in (lambda: x.add(y, y), lambda: x.add_(1, 2), lambda: x.addcmul_(y, y, y), lambda: x.add_(1, 2, 3)):
    try:
        call()
    except TypeError:
        print("TypeError")
""")


def test_sizes_by_keyword():
    check("""
for name in ("zeros", "ones", "empty", "rand", "randn"):
    make = getattr(torch, name)
    print(make(size=(2, 3)).shape, make(2, 3).shape, make([2]).shape, make(()).shape)
    for wrong in ({"size": (2,), "foo": 1}, {}, {"shape": (2,)}):
        try:
            make(**wrong)
        except TypeError:
            print("TypeError")
print(torch.arange(5).split(split_size=2), torch.arange(5).split(2, dim=0))
""")


def test_graphs_are_drawn_by_the_names_of_classes():
    check("""
class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x
    @staticmethod
    def backward(ctx, grad):
        return 2 * grad
x = torch.ones(3, requires_grad=True)
y = F.cross_entropy((Double.apply(x) * 3).exp().view(1, 3), torch.tensor([1]))
print(y)
def walk(node, depth=0):
    print(" " * depth, type(node).__name__)
    for child, _ in node.next_functions:
        if child is not None:
            walk(child, depth + 1)
walk((Double.apply(x) * 3).exp().sum().grad_fn)
(Double.apply(x) * 3).sum().backward()
print(x.grad)
""")


def test_subclasses_of_parameter_and_tensor():
    check("""
class Tagged(nn.Parameter):
    pass
class Image(torch.Tensor):
    pass
p, image = Tagged(torch.zeros(2)), torch.ones(2).as_subclass(Image)
for f in (lambda t: t * 2, lambda t: t.detach(), lambda t: t.data, lambda t: torch.stack([t, t]), lambda t: t[0]):
    print(type(f(p)).__name__, type(f(image)).__name__)
module = nn.Module()
module.p, module.double = p, p * 2
print([name for name, _ in module.named_parameters()], type(module.p).__name__)
made = torch.Tensor._make_subclass(Image, torch.ones(2), True)
print(type(made).__name__, made.requires_grad)
""")


MISTAKES = """
for attempt in (ATTEMPTS):
    try:
        attempt()
    except Exception as error:
        print(type(error).__name__, str(error)[:LENGTH])
"""


@pytest.mark.parametrize(
    "attempts, length",
    [
        ("lambda: nn.Linear(3, 2)(torch.ones(1, 3).double()), lambda: nn.Linear(3, 2)(torch.ones(3).long())", 99),
        ("lambda: nn.Conv2d(1, 1, 2)(torch.ones(1, 1, 3, 3).double()), lambda: nn.ConvTranspose1d(1, 1, 2)"
         "(torch.ones(1, 1, 3).double())", 99),
        ("lambda: F.cross_entropy(torch.ones(4, 3), torch.zeros(4, 1).long()), lambda: F.nll_loss(torch.ones(4, 3), "
         "torch.zeros(4, 3).long())", 59),
        ("lambda: torch.tensor([[1, 2], [3]]), lambda: torch.tensor([[[1], [2]], [[1, 2], [3]]]), "
         "lambda: torch.tensor([None]), lambda: torch.tensor([[1], ['a']])", 99),
        ("lambda: torch.tensor([[1], 2]), lambda: torch.tensor([1, [2]])", 0),
        ("lambda: torch.zeros(2.5), lambda: torch.ones(4).view(2.0, 2), lambda: torch.ones(2).sum('a'), "
         "lambda: torch.ones(3).topk(1.5), lambda: torch.ones(2).unsqueeze(None)", 0),
        ("lambda: F.pad(torch.ones(1, 1, 4, 4), (5, 5, 5, 5), mode='reflect')", 200),
        ("lambda: setattr(torch.ones(3), 'grad', torch.ones(2))", 200),
        ("lambda: torch.tanh(__import__('numpy').ones(2)), lambda: torch.squeeze(__import__('numpy').ones(2))", 99),
        ("lambda: torch.ones(3, requires_grad=True).exp().add_(1).sum().backward()", 250),
        ("lambda: torch.ones(3, requires_grad=True).exp().mul_(torch.ones(3)).sum().backward()", 250),
    ],
)  # fmt: skip
def test_what_simple_mistakes_are_told(attempts, length):
    check(MISTAKES.replace("ATTEMPTS", attempts + ",").replace("LENGTH", str(length)))


def test_a_refused_checkpoint_says_what_people_search_for():
    file = io.BytesIO()
    torch.save(nowhere := _Unknown(), file)
    for library in (torch, tensorgrad):
        file.seek(0)
        with pytest.raises(Exception, match="Weights only load failed"):
            library.load(file)
    assert nowhere.value == 1


class _Unknown:
    value = 1


def test_overrides():
    check("""
class Logged:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func.__name__, [t.__name__ for t in types], len(args), sorted(kwargs)
def double(x, scale=2):
    return x * scale
o = __import__(torch.__name__ + ".overrides").overrides
print(o.has_torch_function((Logged(), 1)), o.has_torch_function((torch.ones(1), nn.Parameter(torch.ones(1)))))
print(o.handle_torch_function(double, (Logged(),), Logged(), scale=3))
print(o.is_tensor_like(Logged()), o.is_tensor_like(torch.ones(1)), o.is_tensor_like([1]))
print(o.has_torch_function_unary(3), o.has_torch_function_variadic(3, Logged()))
""")


def test_torchscript_classes_are_modules():
    program = """
class Scale(torch.jit.ScriptModule):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(2))
    def forward(self, x):
        return x * self.w
print(Scale()(torch.ones(2)).tolist(), isinstance(Scale(), nn.Module))
print(torch.jit.trace_module(nn.ReLU(), {"forward": torch.ones(2)})(torch.tensor([-1.0, 1.0])).tolist())
"""
    assert printed(tensorgrad, program) == "[1.0, 1.0] True\n[0.0, 1.0]\n"
