"""`torch.utils._python_dispatch`: modes are given PyTorch's operators, with its arguments, in its order."""

import importlib
import threading

import pytest

import tensorgrad
from tensorgrad.rows.switches import DISPATCH, SLOW
from tensorgrad.utils import _python_dispatch as ours
from tests.support.alike import alike, error


def mode_of(torch):
    """PyTorch's class of modes, and one that writes down what it sees."""
    TorchDispatchMode = importlib.import_module(f"{torch.__name__}.utils._python_dispatch").TorchDispatchMode

    class Seen(TorchDispatchMode):
        def __init__(self, told=None, name=""):
            super().__init__()
            self.told, self.name = [] if told is None else told, name

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            written = [_written(a, torch) for a in args], {k: _written(v, torch) for k, v in kwargs.items()}
            self.told.append((f"{self.name}{func}", *written))
            return func(*args, **kwargs)

    return TorchDispatchMode, Seen


def _written(value, torch):
    if isinstance(value, torch.Tensor):
        return list(value.shape)
    if isinstance(value, list | tuple):
        return [_written(v, torch) for v in value]
    return value if isinstance(value, int | float | str | None) else str(value)


def seen(torch, calls):
    _, Seen = mode_of(torch)
    x, w = torch.arange(24.0).reshape(2, 3, 4) / 7 - 1, torch.arange(20.0).reshape(4, 5) / 9
    found = []
    for call in calls:
        y = torch.ones(2, 3, 4)
        with Seen() as mode:
            call(torch, x, y, w)
        found.append(mode.told)
    return found


@alike
def test_arithmetic(torch):
    return seen(torch, (
        lambda t, x, y, w: x * 2, lambda t, x, y, w: 1 - x, lambda t, x, y, w: 1 / x, lambda t, x, y, w: x**2,
        lambda t, x, y, w: x // 2, lambda t, x, y, w: -x, lambda t, x, y, w: x == 1, lambda t, x, y, w: x < y,
        lambda t, x, y, w: x.abs().exp(), lambda t, x, y, w: x.add_(1), lambda t, x, y, w: y.copy_(x),
        lambda t, x, y, w: y.zero_(), lambda t, x, y, w: y.fill_(2.0), lambda t, x, y, w: t.where(x > 0, x, y),
        lambda t, x, y, w: x.masked_fill(x > 0, 0.0), lambda t, x, y, w: x.clamp(0, 1), lambda t, x, y, w: x.sum(),
        lambda t, x, y, w: x.sum(1), lambda t, x, y, w: x.mean((0, 2)), lambda t, x, y, w: x.std(),
        lambda t, x, y, w: x.max(1), lambda t, x, y, w: x.argmax(1), lambda t, x, y, w: x.sort(),
        lambda t, x, y, w: x.topk(2), lambda t, x, y, w: x.cumsum(0), lambda t, x, y, w: (x > 0).any(),
        lambda t, x, y, w: x.logsumexp(0), lambda t, x, y, w: x.norm(), lambda t, x, y, w: x.round().isnan(),
    ))  # fmt: skip


@alike
def test_shapes_and_what_makes_tensors(torch):
    return seen(torch, (
        lambda t, x, y, w: x[0], lambda t, x, y, w: x[:, 1], lambda t, x, y, w: x[t.zeros(1).long()],
        lambda t, x, y, w: x.reshape(2, 12), lambda t, x, y, w: x.transpose(0, 1).reshape(3, 8),
        lambda t, x, y, w: x.permute(0, 2, 1), lambda t, x, y, w: x.flatten(1), lambda t, x, y, w: x.unsqueeze(0),
        lambda t, x, y, w: x.split(1), lambda t, x, y, w: x.chunk(2, 1), lambda t, x, y, w: t.cat([x, y]),
        lambda t, x, y, w: t.stack([x, y]), lambda t, x, y, w: x.repeat(1, 2, 1), lambda t, x, y, w: x.unbind(0),
        lambda t, x, y, w: x.to(t.float64), lambda t, x, y, w: x.double(), lambda t, x, y, w: x.detach(),
        lambda t, x, y, w: x.clone(), lambda t, x, y, w: x.contiguous(), lambda t, x, y, w: t.ones(2, 3),
        lambda t, x, y, w: t.full((2,), 3.0), lambda t, x, y, w: t.randn(2), lambda t, x, y, w: w.tril(),
        lambda t, x, y, w: x.gather(1, t.zeros(2, 1, 4, dtype=t.int64)), lambda t, x, y, w: x.flip(0),
    ))  # fmt: skip


@alike
def test_wrong_indices_are_seen_by_no_operator(torch):
    _, Seen = mode_of(torch)
    told = []
    for index in ((0, 0, 0, 0), (..., 0, 0, 0, 0), (None, 0, 0, 0, slice(None)), slice(None, None, -1)):
        with Seen() as mode:
            told.append((error(lambda index=index: torch.ones(2, 3, 4)[index]), [name for name, *_ in mode.told[1:]]))
    return told


@alike
def test_products_and_layers(torch):
    return seen(torch, (
        lambda t, x, y, w: w.t() @ w, lambda t, x, y, w: x @ w, lambda t, x, y, w: x @ y.mT,
        lambda t, x, y, w: w @ t.ones(5), lambda t, x, y, w: t.outer(x[0, 0], x[0, 1]),
        lambda t, x, y, w: t.nn.functional.linear(x, w.t()),
        lambda t, x, y, w: t.nn.functional.linear(x, w.t(), t.ones(5)),
        lambda t, x, y, w: t.nn.functional.linear(x[0], w.t(), t.ones(5)),
        lambda t, x, y, w: t.nn.functional.conv1d(x, t.ones(2, 3, 2), padding=1),
        lambda t, x, y, w: t.nn.functional.conv2d(x[None], t.ones(4, 2, 2, 2), t.ones(4), stride=2),
        lambda t, x, y, w: t.nn.functional.conv_transpose2d(x[None], t.ones(2, 4, 2, 2), stride=2),
        lambda t, x, y, w: t.nn.functional.max_pool2d(x[None], 2),
        lambda t, x, y, w: t.nn.functional.adaptive_avg_pool2d(x[None], 1),
        lambda t, x, y, w: t.nn.functional.layer_norm(x, (4,), t.ones(4), t.zeros(4)),
        lambda t, x, y, w: t.nn.functional.softmax(x, 0), lambda t, x, y, w: x.log_softmax(-1),
        lambda t, x, y, w: t.nn.functional.relu(x), lambda t, x, y, w: t.nn.functional.gelu(x),
        lambda t, x, y, w: t.nn.functional.silu(x), lambda t, x, y, w: t.nn.functional.hardswish(x),
        lambda t, x, y, w: t.nn.functional.mse_loss(x, y),
        lambda t, x, y, w: t.nn.functional.smooth_l1_loss(x, y, reduction="sum"),
        lambda t, x, y, w: t.nn.functional.embedding(t.ones(2).long(), w),
        lambda t, x, y, w: [name for name in [t.nn.functional.cross_entropy(w, t.ones(4).long())] if 0],
    ))  # fmt: skip


@alike
def test_functions_whose_arguments_are_not_those_of_an_operator_of_their_name(torch):
    """Such as `torch.embedding` and `torch.nn.functional.embedding`."""
    at = torch.tensor([1, 0])
    functional = torch.nn.functional
    told = seen(torch, (
        lambda t, x, y, w: x.as_strided((2, 2), (1, 1), 3), lambda t, x, y, w: x[1].as_strided((2, 2), (1, 1)),
        lambda t, x, y, w: x.index_put((at,), t.ones(())), lambda t, x, y, w: y.index_put_((at, at), t.ones(()), True),
        lambda t, x, y, w: y.index_put_((at,), t.ones(())), lambda t, x, y, w: t.embedding(w, at),
        lambda t, x, y, w: t.softmax(x, 0), lambda t, x, y, w: t.polygamma(1, w + 1), lambda t, x, y, w: x.split(2),
        lambda t, x, y, w: t.empty(2), lambda t, x, y, w: t.linalg.vector_norm(x, 1.0, -1, True),
    ))  # fmt: skip
    x, w = torch.arange(24.0).reshape(2, 3, 4) / 7 - 1, torch.ones(3)
    ends, targets = x[0].T.log_softmax(1), torch.tensor([0, 255, 1, 2])
    _, Seen = mode_of(torch)
    with Seen():
        computed = [
            torch.batch_norm(x, w, w, 0 * w, w, False, 0.1, 1e-5, False),
            torch.linalg.norm(x[0], float("inf")),
            torch.norm(x, 1),
            x.norm(1, 0),
            torch.softmax(x, 1, torch.float64),
            x.log_softmax(1, dtype=torch.float64),
            functional.unfold(x[None], 2),
            functional.softmax(x, 1, dtype=torch.float64),
            functional.nll_loss(ends, targets, w, ignore_index=255),
        ]
        refused = error(lambda: functional.batch_norm(x[:1, :, 0], None, None, training=True))
    return told, computed, refused


@alike
def test_targets_that_do_not_count_have_no_gradient(torch):
    _, Seen = mode_of(torch)
    found = []
    for targets in ([255, 255], [255, 1]):
        x = torch.linspace(-1, 1, 6).reshape(2, 3).requires_grad_()
        with Seen():
            loss = torch.nn.functional.cross_entropy(x, torch.tensor(targets), torch.ones(3), ignore_index=255)
            found += torch.autograd.grad(loss, x)
    return found


def without_bookkeeping(told):
    """Operators without those by which PyTorch's autograd keeps what it saves."""
    names = ("aten.detach.default", "aten.lift_fresh.default", "aten.ones_like.default", "aten.clone.default")
    return [name for name, *_ in told if name not in names]


@alike
def test_a_backward_pass_is_seen_and_computes_the_same(torch):
    torch.manual_seed(0)
    _, Seen = mode_of(torch)
    x = torch.linspace(-1, 1, 96).reshape(2, 3, 4, 4).requires_grad_()
    conv, linear = torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.Linear(64, 2)
    with torch.no_grad():
        for p in (*conv.parameters(), *linear.parameters()):
            p.copy_(torch.linspace(-1, 1, p.numel()).reshape(p.shape))
    parameters = [x, *conv.parameters(), *linear.parameters()]

    def loss():
        return linear(conv(x).flatten(1)).sum()

    expected = torch.autograd.grad(loss(), parameters)
    with Seen() as mode:
        found = torch.autograd.grad(loss(), parameters)
        torch.nn.functional.conv_transpose2d(x, torch.ones(3, 2, 2, 2, requires_grad=True)).sum().backward()
    products = [name for name in without_bookkeeping(mode.told) if "conv" in name or "mm" in name]
    return [bool(torch.allclose(a, b)) for a, b in zip(expected, found)], products, x.grad, found


@alike
def test_modes_are_asked_one_after_the_other(torch):
    TorchDispatchMode, Seen = mode_of(torch)
    told, x = [], torch.ones(2)

    class Doubled(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            told.append(str(func))
            return 2 * func(*args, **(kwargs or {}))

    class Declines(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return NotImplemented

    with Seen(told, "outer "), Doubled(), Seen(told, "inner "):
        y = x + 1
    z = x + 1  # no mode is left
    with Declines():
        declined = error(lambda: torch.add(x, 1))
    return y, z, told, declined.partition(" at 0x")[0].partition("mode object")[0]


@alike
def test_a_mode_is_asked_before_a_class(torch):
    told = []
    _, Seen = mode_of(torch)

    class Kept(torch.Tensor):
        __torch_function__ = torch._C._disabled_torch_function_impl

        @staticmethod
        def __new__(cls, inside):
            return torch.Tensor._make_wrapper_subclass(cls, inside.shape, dtype=inside.dtype)

        def __init__(self, inside):
            self.inside = inside

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            told.append(("class", str(func)))
            return func(*[a.inside if isinstance(a, cls) else a for a in args], **(kwargs or {}))

    with Seen(told, "mode "):
        made = Kept(torch.ones(2)) * 3
    return made, told


@alike
def test_operators_called_by_name_and_those_of_a_users_own_are_seen(torch):
    _, Seen = mode_of(torch)
    with torch.library._scoped_library("dispatch_modes", "FRAGMENT") as library:
        library.define("double(Tensor x) -> Tensor")
        library.impl("double", lambda x: x + x, "CompositeExplicitAutograd")
        with Seen() as mode:
            torch.ops.dispatch_modes.double(torch.ops.aten.add.Tensor(torch.ones(2), 1))
    return [told for told in mode.told if "ones" not in told[0]]


def test_nothing_is_left_of_a_mode():
    _, Seen = mode_of(tensorgrad)
    before, slow, x = list(DISPATCH), list(SLOW), tensorgrad.ones(2)
    mode = Seen()
    with pytest.raises(ZeroDivisionError), mode, mode:  # may be entered twice
        assert ours._get_current_dispatch_mode_stack() == [mode, mode] and ours.is_in_torch_dispatch_mode()
        assert ours._len_torch_dispatch_stack() == 2 and ours._get_current_dispatch_mode() is mode
        with ours._disable_current_modes() as modes:
            assert modes == [mode, mode] and x.add(1).tolist() == [2.0, 2.0]
        assert [name for name, *_ in mode.told] == []
        raise ZeroDivisionError
    assert ours._get_current_dispatch_mode() is None and not ours.is_in_torch_dispatch_mode()
    assert list(DISPATCH) == before and list(SLOW) == slow


def test_other_threads_have_modes_of_their_own():
    _, Seen = mode_of(tensorgrad)
    results = []
    with Seen() as mode:
        thread = threading.Thread(target=lambda: results.append((tensorgrad.ones(2) + 1).tolist()))
        thread.start()
        thread.join()
    assert results == [[2.0, 2.0]] and mode.told == []


def test_a_mode_without_the_method_says_so():
    with ours.TorchDispatchMode(), pytest.raises(NotImplementedError):
        tensorgrad.ones(2)
    with ours.BaseTorchDispatchMode():
        assert tensorgrad.ones(2).tolist() == [1.0, 1.0]


def test_names_and_answers():
    theirs = pytest.importorskip("torch.utils._python_dispatch", reason="torch is not installed")
    torch = pytest.importorskip("torch")
    helpers = ("Any", "Iterator", "contextmanager", "__all__", "LOCAL", "dispatch_modes")
    assert not [name for name in vars(ours) if not hasattr(theirs, name) and name not in helpers]

    def classes(l):
        class Plain(l.Tensor):
            pass

        class Made(l.Tensor):
            def __tensor_flatten__(self):
                return [], None

            @staticmethod
            def __tensor_unflatten__(inner, context, size, stride):
                return None

        return l.Tensor, Plain, Made

    answers = [
        [p.is_traceable_wrapper_subclass_type(c) for c in classes(l)] for p, l in ((ours, tensorgrad), (theirs, torch))
    ]
    assert answers[0] == answers[1]
