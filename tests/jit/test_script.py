"""`torch.jit.script`: results are PyTorch's, and PyTorch loads and runs what is saved here."""

import io
import math

import numpy as np
import pytest

import tensorgrad as tg
import tensorgrad.jit.annotations
import tensorgrad.jit.frontend
from tensorgrad import nn
from tests.capture.test_modules import MODULES, classes, floats
from tests.jit import script_objects, script_programs
from tests.support.alike import of_torch

torch = pytest.importorskip("torch", reason="torch scripts the same programs")
pytestmark = pytest.mark.filterwarnings("ignore")


def make(library):
    """The programs of both tables."""
    return script_programs.make(library) | script_objects.make(library)


NAMES = list(make(tg))


# Modules of which the table of `MODULES` has a relative.
MORE = {
    3: (
        nn.Dropout1d(), nn.LPPool1d(2, 2), nn.AvgPool1d(2), nn.AdaptiveAvgPool1d(2), nn.MaxPool1d(2), nn.Softmax(),
        nn.ConstantPad1d(2, 1.5), nn.ConvTranspose1d(4, 2, 3), nn.Conv1d(4, 2, 3, padding="same"), nn.InstanceNorm1d(4),
        nn.ReflectionPad1d(1), nn.ReplicationPad1d(2), nn.CircularPad1d((2, 1)), nn.ZeroPad1d(1),
        nn.LPPool1d(math.inf, 3, 1), nn.LPPool1d(-math.inf, 2, ceil_mode=True),
    ),
    4: (
        nn.Dropout2d(), nn.Threshold(0.1, 2.0, inplace=True), nn.AdaptiveAvgPool2d((2, 3)), nn.Softmax2d(),
        nn.Softmin(), nn.ChannelShuffle(2), nn.UpsamplingNearest2d(scale_factor=2), nn.UpsamplingBilinear2d((3, 4)),
        nn.Unflatten(1, (2, 2)), nn.ZeroPad2d(1), nn.Conv2d(4, 2, 3, padding=1, padding_mode="circular"),
        nn.GroupNorm(2, 4, affine=False), nn.LayerNorm((6, 6)), nn.BatchNorm2d(4, track_running_stats=False),
        nn.ReLU(inplace=True), nn.Hardtanh(inplace=True), nn.RReLU(inplace=True), nn.PReLU(4), nn.MaxPool2d(3, 1, 1),
        nn.ReplicationPad2d(1), nn.CircularPad2d(1), nn.ConstantPad2d(1, 0.5), nn.LPPool2d(math.inf, (2, 3)),
    ),
    5: (
        nn.Dropout3d(), nn.AvgPool3d(2), nn.AdaptiveAvgPool3d(2), nn.AdaptiveMaxPool3d(2), nn.MaxPool3d(2),
        nn.ReplicationPad3d(1), nn.ConvTranspose3d(4, 2, 3), nn.Conv3d(4, 2, 3, padding=1, padding_mode="replicate"),
        nn.LPPool3d(2, 2), nn.LPPool3d(3.0, (2, 3, 2), (1, 2, 2), ceil_mode=True), nn.LPPool3d(math.inf, 2, 1),
        nn.ReflectionPad3d(1), nn.CircularPad3d(1), nn.ConstantPad3d(1, 0.5), nn.ZeroPad3d(1), nn.BatchNorm3d(4),
        nn.InstanceNorm3d(4),
    ),
}  # fmt: skip


def fill(module):
    """Gives parameters the same values in both libraries."""
    if hasattr(module, "named_parameters"):
        for i, (_, p) in enumerate(sorted(module.named_parameters())):
            values = np.sin(np.arange(p.numel()) * 0.7 + i).reshape(tuple(p.shape)).astype("float32") * 0.5
            p.data.copy_((torch if isinstance(p, torch.Tensor) else tg).tensor(values))
    return module


def assert_same(a, b, where):
    """Compares a value of this library with one of PyTorch's."""
    if isinstance(b, torch.Tensor):
        assert isinstance(a, tg.Tensor | torch.Tensor), f"{where}: {type(a)}"
        assert (tuple(a.shape), str(a.dtype)) == (tuple(b.shape), str(b.dtype)), where
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-5, atol=1e-5, err_msg=where)
    elif isinstance(b, tg.Tensor):
        assert_same(a, torch.from_numpy(b.detach().numpy()), where)
    elif isinstance(b, list | tuple):
        assert len(a) == len(b) and isinstance(a, list) == isinstance(b, list), where
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_same(x, y, f"{where}[{i}]")
    elif isinstance(b, dict):
        assert list(a) == list(b), where
        for key in b:
            assert_same(a[key], b[key], f"{where}[{key!r}]")
    elif isinstance(b, float):
        assert type(a) is float and math.isclose(a, b, rel_tol=1e-6), f"{where}: {a!r} {b!r}"
    else:
        assert type(a) is type(b) and a == b, f"{where}: {a!r} {b!r}"


@pytest.mark.parametrize("name", NAMES)
def test_results_and_archives_are_pytorchs(name):
    ours, theirs = (fill(make(library)[name][0]) for library in (tg, torch))
    one, other = tg.jit.script(ours), torch.jit.script(theirs)
    assert isinstance(one, tg.jit.ScriptModule | tg.jit.ScriptFunction) and "def " in one.code
    file, its_file = io.BytesIO(), io.BytesIO()
    tg.jit.save(one, file)
    torch.jit.save(other, its_file)
    file.seek(0)
    loaded = torch.jit.load(file)
    file.seek(0)
    again = tg.jit.load(file)
    its_file.seek(0)
    its_again = tg.jit.load(its_file) if isinstance(other, torch.nn.Module) else one  # functions lose their defaults
    for mine, its in zip(make(tg)[name][1], make(torch)[name][1], strict=True):
        expected = other(*its)
        assert_same(loaded(*its), expected, "in PyTorch")
        assert_same(one(*mine), expected, "here")
        assert_same(again(*mine), expected, "loaded here")
        assert_same(its_again(*mine), expected, "PyTorch's archive loaded here")


def assert_a_program(module, *given):
    """Compares what a module computes with its program, here and in PyTorch."""
    scripted = tg.jit.script(module.eval())
    assert isinstance(scripted, tg.jit.RecursiveScriptModule), module._unwritable
    expected = module(*[x.clone() for x in given])
    file = io.BytesIO()
    tg.jit.save(scripted, file)
    file.seek(0)
    theirs = of_torch(lambda: torch.jit.load(file)(*[torch.from_numpy(x.numpy().copy()) for x in given]))
    assert_same(scripted(*[x.clone() for x in given]), expected, "here")
    assert_same(theirs, expected, "in PyTorch")


@pytest.mark.parametrize("name", MODULES)
def test_modules_of_nn_are_programs(name):
    create, *inputs = MODULES[name]
    tg.manual_seed(0)
    assert_a_program(create(), *[create() for create in inputs])


@pytest.mark.parametrize(("dims", "module"), [(n, m) for n, ms in MORE.items() for m in ms], ids=str)
def test_their_relatives_are_programs(dims, module):
    assert_a_program(module, tg.arange(2 * 4 * 6.0 ** (dims - 2)).sin().view(2, 4, *[6] * (dims - 2)))


def signs(*shape):
    return lambda: tg.randint(2, shape) * 2 - 1.0


OTHERS = {
    "BCELoss": (nn.BCELoss, lambda: tg.rand(3, 4), lambda: tg.rand(3, 4)),
    "CTCLoss": (
        lambda: nn.CTCLoss(reduction="sum", zero_infinity=True), lambda: tg.randn(5, 2, 4).log_softmax(-1),
        lambda: tg.randint(1, 4, (2, 3)), lambda: tg.tensor([5, 4]), lambda: tg.tensor([3, 2]),
    ),
    "CosineEmbeddingLoss": (nn.CosineEmbeddingLoss, floats(3, 4), floats(3, 4), signs(3)),
    "CrossMapLRN2d": (lambda: nn.CrossMapLRN2d(3), floats(1, 5, 3, 3)),
    "Embedding": (lambda: nn.Embedding(7, 3, padding_idx=-1, max_norm=0.5), classes(7, 2, 4)),
    "EmbeddingBag": (lambda: nn.EmbeddingBag(7, 3), classes(7, 2, 4)),
    "EmbeddingBag with a norm": (lambda: nn.EmbeddingBag(7, 3, max_norm=0.5, norm_type=1.0), classes(7, 2, 4)),
    "MarginRankingLoss": (nn.MarginRankingLoss, floats(5), floats(5), signs(5)),
    "MultiLabelMarginLoss": (nn.MultiLabelMarginLoss, floats(1, 4), lambda: tg.tensor([[3, 0, -1, 1]])),
    "MultiLabelSoftMarginLoss": (nn.MultiLabelSoftMarginLoss, floats(3, 4), lambda: tg.randint(2, (3, 4)).float()),
    "PoissonNLLLoss": (nn.PoissonNLLLoss, floats(3, 4), lambda: tg.rand(3, 4)),
    "SoftMarginLoss": (nn.SoftMarginLoss, floats(3, 4), signs(3, 4)),
    "TransformerDecoder": (
        lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 8), 2), floats(3, 2, 4), floats(5, 2, 4),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_other_modules_of_nn_are_programs(name):
    create, *inputs = OTHERS[name]
    tg.manual_seed(0)
    assert_a_program(create(), *[create() for create in inputs])


NOT_SCRIPTED = {
    "AdaptiveLogSoftmaxWithLoss": lambda nn: nn.AdaptiveLogSoftmaxWithLoss(4, 10, [3, 6]),
    "LinearCrossEntropyLoss": lambda nn: nn.LinearCrossEntropyLoss(4, 3),
    "SyncBatchNorm": lambda nn: nn.SyncBatchNorm(3),
    "TripletMarginWithDistanceLoss": lambda nn: nn.TripletMarginWithDistanceLoss(),
}


@pytest.mark.parametrize("name", NOT_SCRIPTED)
def test_layers_that_pytorch_does_not_script_are_refused(name):
    make = NOT_SCRIPTED[name]
    kinds = (RuntimeError, ValueError, OSError, AssertionError, torch.jit.frontend.FrontendError)
    with pytest.raises(kinds):
        torch.jit.script(make(torch.nn))
    for layer in (make(nn), nn.Sequential(make(nn))):
        with pytest.raises(RuntimeError, match=f"{name} is not in TorchScript"):
            tg.jit.script(layer)


def test_every_layer_of_nn_is_scripted_or_refused():
    found = {*MODULES, *(name.partition(" ")[0] for name in OTHERS), *NOT_SCRIPTED}
    found |= {type(module).__name__ for modules in MORE.values() for module in modules}
    found |= {"MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d"}
    for program, _ in make(tg).values():
        found |= {type(m).__name__ for m in (program.modules() if isinstance(program, nn.Module) else ())}
    layers = {name for name, cls in vars(torch.nn).items() if name in torch.nn.modules.__all__}
    layers -= {name for name in layers if name.startswith("Lazy")}  # which become others
    containers = {"Container", "Module", "ModuleDict", "ParameterDict", "ParameterList", "RNNBase", "RNNCellBase"}
    assert layers - found == containers | {"LinearCrossEntropyOptions", "NLLLoss2d"} - found


@pytest.mark.parametrize(("pool", "back"), [
    (nn.MaxPool1d(3, 2, 1, return_indices=True), nn.MaxUnpool1d(3, 2, 1)),
    (nn.MaxPool2d((2, 3), return_indices=True), nn.MaxUnpool2d((2, 3))),
    (nn.MaxPool3d(2, return_indices=True), nn.MaxUnpool3d(2)),
], ids=str)  # fmt: skip
def test_unpooling_modules_are_programs(pool, back):
    """PyTorch loads them, though it scripts its own functions only."""
    sides = [6] * len(back.kernel_size) if isinstance(back.kernel_size, tuple) else [6]
    assert_a_program(back, *pool(tg.arange(2 * 4 * 6.0 ** len(sides)).sin().view(2, 4, *sides)))


def test_scripted_modules_are_modules():
    ours = fill(make(tg)["MLP"][0])
    scripted = tg.jit.script(ours)
    assert isinstance(scripted, tg.jit.RecursiveScriptModule) and scripted.original_name == "MLP"
    assert all(p is q for p, q in zip(scripted.parameters(), ours.parameters(), strict=True))
    assert list(scripted.state_dict()) == list(ours.state_dict())
    assert (
        scripted.scale == 2.0 and len(scripted.layers) == 2 and scripted.doubled(tg.ones(2), 3).tolist() == [1.5, 1.5]
    )
    x = make(tg)["MLP"][1][0][0]
    scripted(x).sum().backward()
    assert all(p.grad is not None for p in ours.parameters())
    assert tg.jit.script(scripted) is scripted
    assert scripted.training and not scripted.eval().training and ours.training


def test_annotations_of_all_forms():
    def old(x, n):
        # type: (Tensor, int) -> Tensor
        return x * n

    def later(xs: "list[tg.Tensor]", first: "int | None" = None) -> "tg.Tensor":
        if first is None:
            return xs[0]
        return xs[first]

    def empty():
        return tg.jit.annotate(list[str], [])

    assert tg.jit.script(old)(tg.ones(1), 3).item() == 3
    assert "n: int" in tg.jit.script(old).code and "-> List[str]" in tg.jit.script(empty).code
    scripted = tg.jit.script(later)
    assert scripted([tg.ones(1), tg.zeros(1)]).item() == 1 and scripted([tg.ones(1), tg.zeros(1)], 1).item() == 0
    with pytest.raises(RuntimeError, match="Expected a value of type 'List"):
        scripted(3)


def refused():
    """Functions that TorchScript does not have, and what the error says."""

    def tries(x):
        try:
            return x
        except ValueError:
            return x

    def yields(x):
        yield x

    def inner(x):
        def double(y):
            return y * 2

        return double(x)

    def unknown(x):
        return x + nothing_of_this_name  # noqa: F821

    def two_types(x, flag: bool):
        y = 1 if flag else "a"
        return y

    def changes(x):
        n = 0
        for _ in range(3):
            n = "a"
        return n

    def branches(x, flag: bool):
        if flag:
            y = x
        return y

    def adds(x, text: str):
        return text + 1

    def arguments(*xs):
        return xs[0]

    def filtered(xs: list[int]):
        return [x for x in xs if x > 1]

    def returns(x, flag: bool):
        if flag:
            return 1
        return "a"

    def optional(x: tg.Tensor | None):
        return x.sum()

    def unknown_list(x):
        return x.tolist()

    made = (
        unknown_list, tries, yields, inner, unknown, two_types, changes, branches, adds, arguments, filtered,
        returns, optional,
    )  # fmt: skip
    return {f.__name__: f for f in made}


@pytest.mark.parametrize("name", list(refused()))
def test_what_is_not_torchscript_is_refused_with_its_line(name):
    function = refused()[name]
    with pytest.raises((RuntimeError, tg.jit.frontend.FrontendError), match=r"test_script\.py.*line \d+(.|\n)*HERE"):
        tg.jit.script(function)


def test_what_has_no_text_here_stays_python():
    class Odd(tg.nn.Module):
        def forward(self, x):
            with tg.profiler.record_function("doubling"):
                return x * 2

    def uses_numpy(x):
        return np.sum(x.numpy())

    odd = Odd()
    assert tg.jit.script(odd) is odd and tg.jit.script(uses_numpy) is uses_numpy
    with pytest.raises(NotImplementedError, match="record_function"):
        tg.jit.save(odd, io.BytesIO())
    assert tg.jit.script(uses_numpy)(tg.ones(2)) == 2


def test_hooks_that_are_not_in_programs():
    class Plain(nn.Module):
        def forward(self, x):
            return x + 1

    def first(self, input: tuple[tg.Tensor], output: tg.Tensor) -> tg.Tensor:
        return output * 2

    def other(self, input: tuple[tg.Tensor], output: tg.Tensor) -> tg.Tensor:
        return output * 3

    def wrong(self, input: tuple[tg.Tensor], output: int) -> int:
        return output

    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = Plain()

        def forward(self, x):
            return self.part(x)

    twice, unfit, lambdas = Plain(), Holder(), Plain()
    other.__name__ = "first"
    for hook in (first, other):
        twice.register_forward_hook(hook)
    with pytest.raises(RuntimeError, match="Hook 'first' on Plain has at least two different python definitions"):
        tg.jit.script(twice)
    unfit.part.register_forward_hook(wrong)
    with pytest.raises(RuntimeError, match="Expected a value of type int, but got Tensor"):
        tg.jit.script(unfit)
    lambdas.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    assert tg.jit.script(lambdas) is lambdas and lambdas(tg.ones(1)).item() == 3
    with pytest.raises(NotImplementedError, match="hook"):
        tg.jit.save(lambdas, io.BytesIO())


def hooked_by_keywords(torch):
    """Modules with hooks that take keywords, and one with a hook that is called with a keyword."""

    class Plain(torch.nn.Module):
        def forward(self, x):
            return x + 1

    class Holder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.part = Plain()

        def forward(self, x):
            return self.part(x=x)

    def before(self, input: tuple[torch.Tensor], kwargs: dict[str, torch.Tensor]):
        return input, kwargs

    def after(self, input: tuple[torch.Tensor], kwargs: dict[str, torch.Tensor], output: torch.Tensor):
        return output

    def plain(self, input: tuple[torch.Tensor], output: torch.Tensor):
        return output

    made = Plain(), Plain(), Holder()
    made[0].register_forward_pre_hook(before, with_kwargs=True)
    made[1].register_forward_hook(after, with_kwargs=True)
    made[2].part.register_forward_hook(plain)
    return made


@pytest.mark.parametrize("number", range(3))
def test_hooks_with_keywords_are_refused(number):
    for library in (tg, torch):
        with pytest.raises(RuntimeError):
            library.jit.script(hooked_by_keywords(library)[number])
    with pytest.raises(RuntimeError, match=r"test_script\.py.*line \d+(.|\n)*HERE"):
        tg.jit.script(hooked_by_keywords(tg)[number])


def left(torch):
    """Modules with loops over modules that go on, or end, before their end."""

    class Breaks(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList([torch.nn.ReLU(), torch.nn.Tanh()])

        def forward(self, x):
            for layer in self.layers:
                if bool(x.sum() > 1):
                    break
                x = layer(x)
            return x

    class Continues(Breaks):
        def forward(self, x):
            for i, layer in enumerate(self.layers):
                if i == 1:
                    continue
                x = layer(x)
            return x

    return Breaks(), Continues()


@pytest.mark.parametrize("number", range(2))
def test_loops_over_modules_have_no_jumps(number):
    for library in (tg, torch):
        with pytest.raises(RuntimeError, match="we do not support break or continue inside the body of these loops"):
            library.jit.script(left(library)[number])


def test_objects_and_interfaces():
    @tg.jit.interface
    class Runs:
        def run(self, x: tg.Tensor) -> tg.Tensor:
            pass

    @tg.jit.script
    class Relu:
        def run(self, x: tg.Tensor) -> tg.Tensor:
            return x.relu()

    @tg.jit.script
    class Plus:
        def __init__(self, more: int):
            self.more = more

        def run(self, x: tg.Tensor) -> tg.Tensor:
            return x + self.more

        def walk(self) -> int:
            return self.more

    def chosen(all: list[Runs], at: int, x: tg.Tensor) -> tg.Tensor:
        return all[at].run(x)

    def more(plus: Plus) -> int:
        return plus.more + plus.walk()

    class Owner(nn.Module):
        def __init__(self):
            super().__init__()
            self.plus = Plus(5)  # declared by its class, which was scripted

        def forward(self, x):
            return self.plus.run(x)

    scripted = tg.jit.script(chosen)
    x = tg.tensor([-1.0, 2.0])
    assert [scripted([Relu(), Plus(3)], at, x).tolist() for at in (0, 1)] == [[0.0, 2.0], [2.0, 5.0]]
    assert tg.jit.script(more)(Plus(4)) == 8
    owner = tg.jit.script(Owner())
    assert owner(x).tolist() == [4.0, 7.0] and owner.plus.more == 5
    for wrong in (object(), 3, None, tg.jit.script(Owner())):
        with pytest.raises(RuntimeError, match="Expected a value of type"):
            tg.jit.script(more)(wrong)
        with pytest.raises(RuntimeError, match="Expected a value of type"):
            scripted([wrong], 0, x)
    with pytest.raises(RuntimeError, match="does not support inheritance"):
        tg.jit.interface(type("Derived", (Runs,), {}))
    with pytest.raises(RuntimeError, match="must be applied to a class"):
        tg.jit.interface(3)


def test_interfaces_that_do_not_fit():
    @tg.jit.interface
    class Takes(nn.Module):
        def forward(self, x: tg.Tensor, n: int) -> tg.Tensor:
            pass

    @tg.jit.interface
    class Unsaid(nn.Module):
        def forward(self, x: tg.Tensor):
            pass

    class One(nn.Module):
        part: Takes

        def __init__(self):
            super().__init__()
            self.part = nn.ReLU()

        def forward(self, x):
            return self.part(x, 2)

    class Two(One):
        part: Unsaid

    with pytest.raises(RuntimeError, match="'part' of One is a ReLU, which does not have all methods of Takes"):
        tg.jit.script(One())
    with pytest.raises(RuntimeError, match="must have a return type annotated"):
        tg.jit.script(Two())


def test_errors_of_a_program():
    detector, ((boxes, scores), _) = make(tg)["detector"]
    scripted = tg.jit.script(detector)
    with pytest.raises(tg.jit.Error, match="ValueError: nothing was found among 12 boxes"):
        scripted(boxes, scores * 0)
    with pytest.raises(tg.jit.Error, match="AssertionError: z is there"):
        tg.jit.script(make(tg)["optionals"][0])(tg.ones(1), tg.ones(1), 2)
