"""`torch.export`: programs compute the bits of the module, at all sizes that they allow, and can be trained."""

import copy
import io
import re

import pytest

import tensorgrad as torch
import tensorgrad.nn.functional as F
from tensorgrad import nn
from tensorgrad.export import Dim, UserError
from tensorgrad.utils._pytree import tree_leaves
from tests.capture.compare import bits
from tests.capture.test_modules import MODULES
from tests.export.models import make

NAMES = list(make(torch))


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def exported(function, *args, **options):
    return torch.export.export(Function(function), args, **options)


def run(module, args, kwargs, gradients=True):
    """What a call leaves: its results, the state, the arguments, and gradients."""
    torch.manual_seed(0)
    leaves = tree_leaves(module(*args, **kwargs))
    found = [bits(v) if isinstance(v, torch.Tensor) else v for v in leaves]
    sums = [v.sum() for v in leaves if isinstance(v, torch.Tensor) and v.requires_grad]
    if sums and gradients:
        sum(sums).backward()
    named = sorted([*module.named_parameters(), *module.named_buffers()])
    found += [(n, bits(t)) for n, t in named if not n.startswith(("lifted", "scale"))]
    found += [(n, None if t.grad is None else bits(t.grad)) for n, t in named]
    found = [f for f in found if not (isinstance(f, tuple) and f[0] in ("scale", "lifted_tensor_0"))]
    return found + [bits(a) for a in args]


@pytest.mark.parametrize("name", NAMES)
def test_a_program_computes_the_bits_of_its_module(name):
    torch.manual_seed(1)
    module, args, kwargs = make(torch)[name]
    state, seed = copy.deepcopy(module.state_dict()), torch.get_rng_state()
    program = torch.export.export(module, copy.deepcopy(args), kwargs)
    assert torch.equal(seed, torch.get_rng_state())
    assert all(torch.equal(v, state[k]) for k, v in module.state_dict().items())
    expected = run(copy.deepcopy(module), copy.deepcopy(args), kwargs)
    assert run(program.module(), copy.deepcopy(args), kwargs) == expected  # shares the parameters with `module`


@pytest.mark.parametrize("name", NAMES)
def test_core_operators_compute_the_same(name):
    torch.manual_seed(1)
    module, args, kwargs = make(torch)[name]
    program = torch.export.export(module, copy.deepcopy(args), kwargs).run_decompositions()
    assert not [n for n in program.graph.nodes if re.search(r"_\.\w+$", str(n.target))], "a write in place"
    apart, mine, theirs = copy.deepcopy(module), copy.deepcopy(args), copy.deepcopy(args)
    torch.manual_seed(0)
    expected = tree_leaves(apart(*mine, **kwargs))
    torch.manual_seed(0)
    found = tree_leaves(program.module()(*theirs, **kwargs))
    for a, b in zip(
        [*found, *module.state_dict().values(), *theirs], [*expected, *apart.state_dict().values(), *mine], strict=True
    ):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", MODULES)
def test_modules(name):
    make, *inputs = MODULES[name]
    torch.manual_seed(0)
    module, args = make(), tuple(make() for make in inputs)
    module = module if isinstance(module, nn.Module) else Function(module)
    program = torch.export.export(copy.deepcopy(module), copy.deepcopy(args))

    def seen(module):
        torch.manual_seed(1)
        leaves = tree_leaves(module(*copy.deepcopy(args)))
        return [bits(v) if isinstance(v, torch.Tensor) else v for v in leaves]

    file = io.BytesIO()
    if name not in NOT_SAVED:
        torch.export.save(program, file)
    expected = seen(module)
    assert seen(program.module()) == expected
    if name in NOT_SAVED:
        with pytest.raises(NotImplementedError, match="not an operator of PyTorch's registry"):
            torch.export.save(program, file)
    else:
        file.seek(0)
        assert seen(torch.export.load(file).module()) == expected


NOT_SAVED = ("LPPool2d", "LocalResponseNorm", "LSTMCell", "GRUCell")  # they call what has no operator there


def written(x):
    y = x.clone()
    y[:, 0] = 1
    y[y > 2] = 0
    y[0, 1] += x[0, 0]
    return y


def without_gradients(x):
    with torch.no_grad():
        y = x * 2
    return y * x


FUNCTIONS = {
    "written": written,
    "without gradients": without_gradients,
    "padding": lambda x: F.pad(x, (1, 1)),
    "resizing": lambda x: F.interpolate(x, scale_factor=2.0) + F.interpolate(x, size=(12, 12), mode="bilinear"),
    "norms": lambda x: F.instance_norm(F.group_norm(x, 2)) + F.rms_norm(x, [6]),
    "statistics": lambda x: x.std(0) + x.var((1, 2), keepdim=True)[0],
    "choices": lambda x: torch.where(x > 0, x, 0.0) + x.masked_fill(x > 0, 1.0),
    "indices": lambda x: x[:, [0, 1], 1:, ::2],
    "products": lambda x: torch.einsum("nchw,ncij->nij", x, x) @ x[0, 0],
    "orders": lambda x: (x.topk(2, 1), x.sort(1), x.argmax(1), x.cumsum(1)),
    "pools": lambda x: F.avg_pool2d(x, 2) + F.adaptive_avg_pool2d(x, (3, 3)) + F.adaptive_max_pool2d(x, 3),
    "convolutions": lambda x: F.conv_transpose2d(
        F.conv2d(x, torch.ones(3, 4, 2, 2), padding="same"), torch.ones(3, 2, 2, 2)
    ),
    "activations": lambda x: F.glu(F.silu(x)) + F.glu(F.softplus(x)) + F.glu(F.selu(x)) + F.glu(F.logsigmoid(x)),
    "losses": lambda x: F.cross_entropy(x, torch.zeros(2, 6, 6, dtype=torch.long)) + F.mse_loss(x, 2 * x),
    "dtypes": lambda x: x.to(torch.float64).float().int(),
    "joins": lambda x: (torch.stack([x, x], -1), torch.cat([x, x], 1), x.repeat(2, 1, 1, 1)),
    "random": lambda x: F.dropout(x, 0.5) + torch.rand(6) + torch.randn_like(x),
    "factors": lambda x: torch.linalg.inv(x + 6 * torch.eye(6)) + torch.fft.rfft(x).abs().sum(),
    "parts": lambda x: (x.unbind(0)[0] * 1, x.chunk(2, 1)[1], x.split([1, 3], 1)[1]),
    "nested": lambda x: {"a": [x, (x + 1, None, 3)], "b": "text"},
    "data": lambda x: x.data * 2 + x.detach(),
    "constants": lambda x: torch.triu(torch.ones(6, 6), 1) + torch.arange(6) + x + torch.linspace(0, 1, 6),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    torch.manual_seed(1)
    x = torch.randn(2, 4, 6, 6)

    def seen(call):
        torch.manual_seed(0)
        given = x.clone().requires_grad_()
        leaves = tree_leaves(call(given))
        tensors = [v for v in leaves if isinstance(v, torch.Tensor)]
        tracked = [v.sum() for v in tensors if v.requires_grad]
        if tracked:
            sum(tracked).backward()
        found = [(bits(v), v.stride(), v.requires_grad) if isinstance(v, torch.Tensor) else v for v in leaves]
        return found, None if given.grad is None else bits(given.grad)

    program = exported(FUNCTIONS[name], x.clone().requires_grad_())
    assert seen(program.module()) == seen(FUNCTIONS[name])


BATCH = Dim("batch")
DYNAMIC = {  # a module or function, arguments, others, dynamic_shapes
    "MLP": (nn.Sequential(nn.Linear(3, 4), nn.ReLU()), [(3, 3)], [[(1, 3)], [(7, 3)]], ({0: BATCH},)),
    "an example of size 1": (nn.Linear(3, 4), [(1, 3)], [[(5, 3)]], ({0: BATCH},)),
    "a convolution": (
        nn.Sequential(nn.Conv2d(1, 2, 3, 2, 1), nn.MaxPool2d(2), nn.Flatten()), [(2, 1, 16, 16)], [[(3, 1, 20, 16)]],
        ({0: BATCH, 2: Dim("height")},),
    ),
    "an LSTM": (nn.LSTM(3, 4, batch_first=True), [(2, 5, 3)], [[(3, 8, 3)]], ({0: BATCH, 1: Dim("time")},)),
    "an encoder": (
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), [(2, 5, 8)], [[(3, 9, 8)], [(1, 2, 8)]],
        ({0: BATCH, 1: Dim("time")},),
    ),
    "arithmetic": (
        lambda x: (x.reshape(2 * x.shape[0], -1), x.view(-1) * x.shape[0] ** 0.5, torch.arange(x.shape[0] + 1)),
        [(3, 4)], [[(6, 4)]], ({0: BATCH},),
    ),
    "sizes of results": (lambda x: (x.shape[0], x.sum() / x.shape[0]), [(3, 4)], [[(5, 4)]], ({0: BATCH},)),
    "halves": (lambda x: x[: x.shape[0] // 2] + x[-1], [(4, 3)], [[(7, 3)]], ({0: BATCH},)),
    "two that are one": (lambda x, y: x + y, [(4, 3), (4, 3)], [[(7, 3), (7, 3)]], ({0: BATCH}, {0: BATCH})),
    "joined": (
        lambda x, y: torch.cat([x, y]).view(-1), [(4, 3), (2, 3)], [[(7, 3), (5, 3)]],
        ({0: Dim("a")}, {0: Dim("b")}),
    ),
    "derived": (
        lambda x, y: x.view(-1, 2) + y[:-1, None], [(8,), (5,)], [[(4,), (3,)]], ({0: 2 * BATCH}, {0: BATCH + 1}),
    ),
    "hints": (
        lambda x, y: x * y + torch.ones(4), [(3, 4), (3, 4)], [[(8, 4), (8, 4)]],
        ({0: Dim.DYNAMIC, 1: Dim.AUTO}, [Dim.AUTO, Dim.STATIC]),
    ),
    "by name": (lambda *args: args[0] * args[1], [(3,), (3,)], [[(5,), (5,)]], {"args": ({0: BATCH}, {0: BATCH})}),
}  # fmt: skip


@pytest.mark.parametrize("name", DYNAMIC)
def test_other_sizes(name):
    function, example, others, shapes = DYNAMIC[name]
    module = function if isinstance(function, nn.Module) else Function(function)
    torch.manual_seed(1)
    if not isinstance(function, nn.Module) and isinstance(shapes, tuple):
        shapes = (shapes,)  # those of `*args`
    program = torch.export.export(module, tuple(torch.randn(*s) for s in example), dynamic_shapes=shapes)
    assert program.range_constraints
    core = program if name == "an LSTM" else program.run_decompositions()  # its loop over time has a length
    assert str(core.range_constraints) == str(program.range_constraints)
    for sizes in (example, *others):
        args = tuple(torch.randn(*s) for s in sizes)
        expected = tree_leaves(module(*args))
        found = tree_leaves(program.module()(*args))
        assert [bits(v) if isinstance(v, torch.Tensor) else v for v in found] == [
            bits(v) if isinstance(v, torch.Tensor) else v for v in expected
        ]
        torch.testing.assert_close(tree_leaves(core.module()(*args)), expected)


def test_shapes_that_a_program_does_not_allow():
    x = torch.ones(3, 2)
    refused = [
        (lambda x: x + torch.ones(2), x[:2, 0], ({0: BATCH},), r"Constraints violated \(batch\)"),
        (lambda x: x * 2 if x.shape[0] > 3 else x + 1, x, ({0: BATCH},), "does something else.*test_export.py"),
        (lambda x: x, x, ({5: BATCH},), "no dimension 5"),
        (lambda x: x, x, ({0: Dim("n", max=2)},), "outside of the bounds"),
        (lambda x: x, x, ({0: 2 * BATCH},), "not of the form"),
        (lambda x: x, x, ({0: 4},), "says that it is 4"),
        (lambda x: x, x, ([BATCH],), "same length"),
        (lambda x: x, x, (), "one entry"),
        (lambda x: x, x, {"z": None}, "arg names"),
        (lambda x: x, x, 3, "dict, list or tuple"),
    ]

    class One(Function):
        def forward(self, x):
            return self.function(x)

    for function, given, shapes, message in refused:
        with pytest.raises(UserError, match="(?s)" + message):
            torch.export.export(One(function), (given,), dynamic_shapes=shapes)
    assert (
        torch.export.draft_export(One(refused[0][0]), (x[:2, 0],), dynamic_shapes=refused[0][2]).range_constraints == {}
    )


def test_guards():
    program = torch.export.export(nn.Linear(3, 1), (torch.ones(4, 3),), dynamic_shapes=({0: Dim("n", min=2, max=8)},))
    module = program.module()
    assert module(torch.ones(8, 3)).shape == (8, 1)
    for wrong, message in ((torch.ones(9, 3), "<= 8"), (torch.ones(1, 3), ">= 2"), (torch.ones(3), r"len\(input")):
        with pytest.raises(AssertionError, match=f"Guard failed: .*{message}"):
            module(wrong)
    assert program.module(check_guards=False)(torch.ones(9, 3)).shape == (9, 1)
    with pytest.raises(AssertionError, match="Guard failed: args_1 == 2"):
        exported(lambda x, n: x * n, torch.ones(2), 2).module()(torch.ones(2), 3)


@pytest.mark.parametrize(
    "read", [lambda x: bool(x.sum() > 0), lambda x: x.sum().item(), lambda x: x.tolist(), lambda x: x.numpy(), float]
)
def test_programs_that_read_values_name_the_line(read):
    def program(x):
        read(x.sum())
        return x

    with pytest.raises(UserError, match=r"data-dependent(?s:.*)test_export\.py, line"):
        exported(program, torch.ones(2))
    assert torch.ones(1).item() == 1 and not torch.compiler.is_exporting()


def test_a_failed_export_leaves_everything_as_it_was():
    class Failing(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x):
            self.count += 1
            x.mul_(2)
            torch.rand(3)
            raise KeyError("of the program")

    module, x, seed = Failing(), torch.ones(2), torch.get_rng_state()
    with pytest.raises(KeyError, match="of the program"):
        torch.export.export(module, (x,))
    assert module.count.item() == 0 and x.tolist() == [1, 1] and torch.equal(seed, torch.get_rng_state())
    assert (torch.ones(2) + 1).tolist() == [2, 2]


def test_the_program_of_a_program_and_its_passes():
    module, args, kwargs = make(torch)["ConvNet"]
    program = torch.export.export(module, args, kwargs)
    program.validate()
    again = torch.export.export(program.module(), args)
    assert bits(again.module()(*args)) == bits(module(*args))
    for node in program.graph.nodes:
        if str(node.target) == "aten.relu.default":
            node.target = torch.ops.aten.neg.default
    program.graph_module.recompile()
    assert bits(program.module()(*args)) != bits(module(*args))
    copied = copy.deepcopy(again.module())
    assert bits(copied(*args)) == bits(module(*args)) and copied.conv.weight is not module.conv.weight


def test_a_program_trains():
    torch.manual_seed(0)
    module, args, _ = make(torch)["ConvNet in training"]
    program = torch.export.export(copy.deepcopy(module), args)
    assert program.module().conv.weight is program.state_dict["conv.weight"]
    losses = []
    for model in (module, program.module()):
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        losses.append([])
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(*args).square().sum()
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    assert losses[0] == losses[1] and losses[0][0] != losses[0][2]


def test_text():
    program = torch.export.export(nn.Linear(3, 1), (torch.ones(4, 3),), dynamic_shapes=({0: BATCH},))
    text = str(program)
    for part in (
        'def forward(self, p_weight: "f32[1, 3]", p_bias: "f32[1]", input: "f32[s0, 3]"):',
        'linear: "f32[s0, 1]" = torch.ops.aten.linear.default(input_1, p_weight, p_bias)',
        "p_weight: PARAMETER target='weight'",
        "Range constraints: {'s0': VR[0, int_oo]}",
    ):
        assert part in text
    assert [n for n, _ in program.named_parameters()] == ["weight", "bias"] and not list(program.buffers())


def test_a_table_of_decompositions():
    program = torch.export.export(nn.ReLU(), (torch.ones(2),))
    aten = torch.ops.aten
    made = program.run_decompositions({aten.relu: lambda x: aten.clamp.default(x, 0)})
    assert [str(n.target) for n in made.graph.nodes if n.op == "call_function"] == ["aten.clamp.default"]


def test_what_is_not_exported():
    with pytest.raises(UserError, match="tuple"):
        torch.export.export(nn.ReLU(), torch.ones(1))
    with pytest.raises(UserError, match="do not fit"):
        torch.export.export(nn.ReLU(), ())

    def cast(x):
        with torch.autocast("cpu"):
            return x @ x

    with pytest.raises(NotImplementedError, match=r"autocast(?s:.*)test_export"):
        exported(cast, torch.ones(2, 2))
