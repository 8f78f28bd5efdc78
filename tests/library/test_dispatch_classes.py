"""Classes of tensors with a `__torch_dispatch__` are given PyTorch's operators, with its arguments, and its results."""

import copy
import io
import pickle

import pytest

import tensorgrad
from tensorgrad.rows.switches import DISPATCH
from tests.support.alike import alike, error


@pytest.fixture(autouse=True, scope="module")
def as_before():
    before = list(DISPATCH)
    yield
    DISPATCH[:] = before


def scaled(torch):
    """A class of tensors that are 8-bit integers and a factor, and the operators that it has seen."""
    seen, aten = [], torch.ops.aten

    class Scaled(torch.Tensor):
        @staticmethod
        def __new__(cls, integers, factor):
            made = {"dtype": torch.float32, "device": integers.device, "strides": integers.stride()}
            return torch.Tensor._make_wrapper_subclass(cls, integers.shape, **made)

        def __init__(self, integers, factor):
            self.integers, self.factor = integers, factor

        __torch_function__ = torch._C._disabled_torch_function_impl

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            told = [_told(a) for a in args], {k: _told(v) for k, v in kwargs.items() if k != "pin_memory"}
            seen.append((str(func), [t.__name__ for t in types], *told))
            if func in (aten.detach.default, aten.clone.default, aten.alias.default, aten.t.default):
                return cls(func(args[0].integers), args[0].factor)
            return func(*map(cls.plain, args), **{k: cls.plain(v) for k, v in kwargs.items()})

        @classmethod
        def plain(cls, value):
            if isinstance(value, cls):
                return value.integers.to(torch.float32) * value.factor
            return [cls.plain(v) for v in value] if isinstance(value, list | tuple) else value

    def _told(value):
        if isinstance(value, torch.Tensor):
            return type(value).__name__
        return [_told(v) for v in value] if isinstance(value, list | tuple) else str(value)

    integers = torch.tensor([[-1, 4, -2], [-5, -2, 4], [2, -2, 2], [-2, -4, 1]], dtype=torch.int8)
    return Scaled(integers, 0.5), torch.arange(6.0).reshape(2, 3), seen


def outcomes(torch, calls):
    w, x, seen = scaled(torch)
    found = []
    for call in calls:
        seen.clear()
        result = call(torch, w, x)
        parts = result if isinstance(result, tuple | list) else (result,)
        found.append([p.integers if type(p).__name__ == "Scaled" else p for p in parts] + [list(seen)])
    return found


@alike
def test_arithmetic_and_reductions(torch):
    return outcomes(torch, (
        lambda t, w, x: w + x.sum(), lambda t, w, x: w + 1, lambda t, w, x: 1 + w, lambda t, w, x: w - 1,
        lambda t, w, x: w * 2, lambda t, w, x: 2 * w, lambda t, w, x: w / 2, lambda t, w, x: w**2, lambda t, w, x: -w,
        lambda t, w, x: w == 1, lambda t, w, x: w < x.sum(), lambda t, w, x: w > 0, lambda t, w, x: w.abs().sqrt(),
        lambda t, w, x: w.sum(), lambda t, w, x: w.sum(1), lambda t, w, x: t.sum(w, dim=0, keepdim=True),
        lambda t, w, x: w.mean(), lambda t, w, x: w.mean(dim=1), lambda t, w, x: w.std(), lambda t, w, x: w.max(),
        lambda t, w, x: w.max(1), lambda t, w, x: w.amax(1), lambda t, w, x: w.argmax(1), lambda t, w, x: w.sort(),
        lambda t, w, x: w.sort(stable=True), lambda t, w, x: w.topk(2), lambda t, w, x: w.any(),
        lambda t, w, x: w.uniform_(), lambda t, w, x: w.normal_(0.0, 2.0), lambda t, w, x: w.bernoulli_(0.25),
        lambda t, w, x: w.random_(4), lambda t, w, x: w.copy_(t.ones(4, 3)), lambda t, w, x: w.lerp_(w, 0.5),
        lambda t, w, x: w.div_(2, rounding_mode="floor"), lambda t, w, x: w.cumsum_(0),
        lambda t, w, x: w.prod(), lambda t, w, x: w.cumsum(0), lambda t, w, x: w.clamp(0, 1),
        lambda t, w, x: t.nn.functional.relu(w), lambda t, w, x: t.nn.functional.gelu(w), lambda t, w, x: w.exp(),
        lambda t, w, x: t.where(x.sum() > 0, w, w), lambda t, w, x: w.masked_fill(x.sum() > 0, 0.0),
        lambda t, w, x: t.maximum(w, w), lambda t, w, x: w.isnan(), lambda t, w, x: w.round(),
    ))  # fmt: skip


@alike
def test_shapes_and_products(torch):
    return outcomes(torch, (
        lambda t, w, x: t.mm(x, w.t()), lambda t, w, x: x @ w.t(), lambda t, w, x: w.mv(t.ones(3)),
        lambda t, w, x: t.addmm(t.ones(4), x, w.t()), lambda t, w, x: t.nn.functional.linear(x, w),
        lambda t, w, x: t.nn.functional.linear(x, w, t.ones(4)), lambda t, w, x: w.view(12),
        lambda t, w, x: w.reshape(2, 6), lambda t, w, x: w.permute(1, 0), lambda t, w, x: w.transpose(0, 1),
        lambda t, w, x: w.T, lambda t, w, x: w.unsqueeze(0).expand(2, 4, 3), lambda t, w, x: w.repeat(2, 1),
        lambda t, w, x: w.flip(0), lambda t, w, x: t.flip(w, [0, 1]), lambda t, w, x: w.unbind(),
        lambda t, w, x: list(w), lambda t, w, x: w.split(2), lambda t, w, x: t.cat([w, w]),
        lambda t, w, x: t.stack([w, w]), lambda t, w, x: w[0], lambda t, w, x: w[1:3], lambda t, w, x: w[:, 1],
        lambda t, w, x: w[..., None], lambda t, w, x: w[t.tensor([0, 1])], lambda t, w, x: w[:, [0, 2]],
        lambda t, w, x: w[w > 0], lambda t, w, x: w.narrow(0, 1, 2), lambda t, w, x: w.select(0, 1),
        lambda t, w, x: w.index_select(0, t.tensor([1])), lambda t, w, x: t.gather(w, 0, t.zeros(1, 3).long()),
        lambda t, w, x: t.nn.functional.embedding(t.tensor([1, 2]), w), lambda t, w, x: w.to(t.float64),
        lambda t, w, x: w.double(), lambda t, w, x: w.half(), lambda t, w, x: w.to(t.float32),
        lambda t, w, x: w.clone(),
        lambda t, w, x: w.detach(), lambda t, w, x: w.data, lambda t, w, x: t.zeros_like(w),
        lambda t, w, x: copy.deepcopy(w), lambda t, w, x: w.diagonal(), lambda t, w, x: w.tril(),
    ))  # fmt: skip


@alike
def test_values_are_read_by_an_operator(torch):
    return outcomes(torch, (
        lambda t, w, x: w.sum().item(), lambda t, w, x: bool(w.any()), lambda t, w, x: float(w[0, 0]),
        lambda t, w, x: int(w[0, 1]), lambda t, w, x: bool((w == 1).all()), lambda t, w, x: complex(w.max()),
        lambda t, w, x: "more" if w.sum() > x.sum() else "less",
    ))  # fmt: skip


@alike
def test_values_of_several_elements_are_refused(torch):
    w, _, _ = scaled(torch)
    return error(w.item)


@alike
def test_operators_with_arguments_of_their_own(torch):
    return outcomes(torch, (
        lambda t, w, x: t.block_diag(w, w), lambda t, w, x: t.cross(w, w, dim=1),
        lambda t, w, x: t.linalg.qr(w)[1].abs(),
        lambda t, w, x: t.nn.functional.grid_sample(w[None, None], t.zeros(1, 2, 2, 2), align_corners=False),
        lambda t, w, x: t.nn.functional.grid_sample(
            w[None, None], t.zeros(1, 2, 2, 2), "nearest", "border", align_corners=True
        ),
        lambda t, w, x: t.nn.functional.grid_sample(w[None, None, None], t.zeros(1, 1, 2, 2, 3), align_corners=True),
        lambda t, w, x: w.take(t.tensor([0, 5])), lambda t, w, x: w.put(t.tensor([0]), t.tensor([7.0])),
    ))  # fmt: skip


@alike
def test_what_such_a_tensor_is(torch):
    w, x, _ = scaled(torch)
    module = torch.nn.Linear(3, 4)
    module.weight = torch.nn.Parameter(w, requires_grad=False)
    told = [type(p).__name__ for p in module.parameters()], list(module.state_dict()), module(x).shape
    again = pickle.loads(pickle.dumps(copy.deepcopy(module.bias)))
    parameters = isinstance(module.weight, torch.nn.Parameter), isinstance(w, torch.nn.Parameter), again.shape
    return w.shape, w.dtype, w.device.type, w.stride(), w.requires_grad, w.is_leaf, *told, *parameters


@alike
def test_in_place_operators(torch):
    w, _, seen = scaled(torch)
    seen.clear()
    v = w.add_(1)
    v += 2
    v.zero_()
    return v is w, list(seen)


@alike
def test_a_function_of_a_users_own_finds_the_tensor_that_it_saved(torch):
    w, x, _ = scaled(torch)

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(w)
            return x @ (w.integers.float() * w.factor).t()

        @staticmethod
        def backward(ctx, g):
            (w,) = ctx.saved_tensors
            return g @ (w.integers.float() * w.factor), None

    x.requires_grad_()
    Product.apply(x, w).sum().backward()
    return x.grad


@alike
def test_operators_of_a_users_own_reach_the_class(torch):
    w, _, seen = scaled(torch)
    with torch.library._scoped_library("operator_classes", "FRAGMENT") as library:
        library.define("double(Tensor x) -> Tensor")
        library.impl("double", lambda x: x + x, "CompositeExplicitAutograd")
        seen.clear()
        return torch.ops.operator_classes.double(w), list(seen)


class Kept(tensorgrad.Tensor):
    """A class that pickles can name."""

    __torch_function__ = tensorgrad._C._disabled_torch_function_impl
    hint = None

    @staticmethod
    def __new__(cls, data):
        return tensorgrad.Tensor._make_wrapper_subclass(cls, data.shape, dtype=data.dtype)

    def __init__(self, data):
        self.data_inside = data

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(*[a.data_inside if isinstance(a, cls) else a for a in args], **(kwargs or {}))


def test_files_keep_the_class_and_its_parts():
    kept = Kept(tensorgrad.arange(6.0).reshape(2, 3))
    kept.hint = "rows"
    file = io.BytesIO()
    tensorgrad.save(kept, file)
    file.seek(0)
    for again in (tensorgrad.load(file, weights_only=False), pickle.loads(pickle.dumps(kept))):
        assert type(again) is Kept and again.shape == (2, 3) and again.hint == "rows"
        assert again.data_inside.tolist() == kept.data_inside.tolist() and (again + 1).sum().item() == 21


def test_memory_that_is_not_there_is_never_read():
    kept = Kept(tensorgrad.ones(2))
    for read in (kept.tolist, kept.numpy, lambda: Kept.__torch_function__(tensorgrad.Tensor.tolist, (), (kept,))):
        with pytest.raises((NotImplementedError, TypeError), match=r"no memory of its own|Kept"):
            read()


@alike
def test_a_class_without_it_has_no_such_tensors(torch):
    class Plain(torch.Tensor):
        pass

    return error(lambda: torch.Tensor._make_wrapper_subclass(Plain, (2,)))


@alike
def test_a_class_that_declines(torch):
    class Declines(torch.Tensor):
        __torch_function__ = torch._C._disabled_torch_function_impl

        @staticmethod
        def __new__(cls):
            return torch.Tensor._make_wrapper_subclass(cls, (2,))

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

    return error(lambda: torch.add(Declines(), 1)).partition(";")[0]


@alike
def test_how_wrappers_are_shown_copied_and_replaced(torch):
    """What a class passes as `tensor_contents` is shown in place of values, which it does not have."""

    class Wrapped(torch.Tensor):
        @staticmethod
        def __new__(cls, inner, requires_grad=False):
            options = {"dtype": inner.dtype, "layout": inner.layout, "device": inner.device}
            return torch.Tensor._make_wrapper_subclass(cls, inner.size(), requires_grad=requires_grad, **options)

        def __init__(self, inner, requires_grad=False):
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
            map_ = torch.utils._pytree.tree_map
            open_ = lambda x: x.inner if isinstance(x, Wrapped) else x
            made = function(*map_(open_, args), **map_(open_, kwargs or {}))
            return map_(lambda x: Wrapped(x) if isinstance(x, torch.Tensor) else x, made)

        def __repr__(self):
            return super().__repr__(tensor_contents=f"inner={self.inner}")

    found = []
    for inner in (torch.ones(3), torch.zeros(2, 0), torch.arange(2), torch.ones(2, dtype=torch.float64)):
        x = Wrapped(inner)
        found += [repr(x), repr(copy.deepcopy(x))]
        if inner.is_floating_point():
            parameter = torch.nn.Parameter(Wrapped(inner))
            found += [repr(parameter), repr(parameter * 2), type(parameter.data).__name__]
            parameter.data = Wrapped(inner[:1])
            found += [parameter.shape, type(parameter).__name__, isinstance(parameter, torch.nn.Parameter)]
    layer = torch.nn.Linear(2, 2, bias=False)
    layer.weight = torch.nn.Parameter(Wrapped(torch.eye(2)))

    class Negative(torch.nn.Module):
        def forward(self, x):
            return -x

    torch.nn.utils.parametrize.register_parametrization(layer, "weight", Negative())
    return [*found, layer.weight.inner, type(layer.weight).__name__]


@alike
def test_a_class_whose_function_sees_what_its_constructor_sets(torch):
    """`_make_subclass` calls nothing that the class overrides: its attributes are not there yet."""

    class Logged(torch.Tensor):
        __slots__ = ["log"]

        def __new__(cls, data):
            made = torch.Tensor._make_subclass(cls, data, require_grad=data.requires_grad)
            made.log = []
            return made

        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            next(x for x in args if isinstance(x, Logged)).log.append(function.__name__)
            with torch._C.DisableTorchFunctionSubclass():
                return function(*args, **(kwargs or {}))

    found = []
    for data in (torch.ones(2), torch.ones(2, requires_grad=True)):
        x = Logged(data)
        y = x + 1
        found += [x.log[:1], y.requires_grad, x.is_leaf]
        if y.requires_grad:
            y.sum().backward()
            found += [x.grad, data.grad]
    return found


def test_isfinite_is_made_of_operators():
    """PyTorch has no kernel for it: classes see a comparison of magnitudes."""
    x, _, seen = scaled(tensorgrad)
    assert tensorgrad.isfinite(x).all() and tensorgrad.isfinite(x).shape == x.shape
    assert {name.split(".")[1] for name, *_ in seen} >= {"eq", "abs"}


@alike
def test_factories_ask_the_class_whether_or_not_gradients_are_recorded(torch):
    class Counted(torch.Tensor):
        @staticmethod
        def __new__(cls, inside):
            return torch.Tensor._make_wrapper_subclass(cls, inside.shape, dtype=inside.dtype)

        def __init__(self, inside):
            self.inside = inside

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return cls(func(*[a.inside if isinstance(a, cls) else a for a in args], **(kwargs or {})))

    seen, found = [], []
    for tensor in (Counted(torch.ones(2)), torch.nn.Parameter(Counted(torch.ones(2)))):
        for name in ("zeros_like", "ones_like", "empty_like", "rand_like", "randn_like"):
            found.append((name, type(getattr(torch, name)(tensor)).__name__))
        for name in ("new_zeros", "new_ones", "new_empty"):
            found.append((name, type(getattr(tensor, name)((3,))).__name__))
        found += [torch.full_like(tensor, 2.0).inside, tensor.new_full((3,), 2.0).inside]
    return found, [name for name in seen if "detach" not in name]


@alike
def test_a_class_with_it_alone_is_asked_about_writes_to_other_tensors(torch):
    """Such a class has no `__torch_function__` to ask, unless it defines one; results are of no class of its own."""
    seen = []

    class Wrapped(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)
            made.inner = inner
            return made

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            seen.append(str(func))
            inner = [a.inner if isinstance(a, cls) else a for a in args]
            inner = [[b.inner if isinstance(b, cls) else b for b in a] if isinstance(a, list) else a for a in inner]
            return func(*inner, **(kwargs or {}))

    class Derived(Wrapped):
        pass

    def assign(x, *place):
        x[place] = wrapped

    wrapped, rows = Derived(torch.ones(2, 2)), torch.tensor([1, 0])
    found = []
    for write in (
        lambda x: x.copy_(wrapped),
        lambda x: x.add_(wrapped),
        lambda x: x.masked_scatter_(x == 0, wrapped),
        lambda x: x.scatter_(0, rows[None], wrapped),
        lambda x: assign(x, slice(None)),
        lambda x: assign(x, rows),
        lambda x: x.where(x > 0, wrapped),
        lambda x: x.type_as(wrapped),
    ):
        x = torch.zeros(2, 2)
        found.append((type(write(x)).__name__, x.tolist(), list(seen)))
        seen.clear()
    disabled = torch._C._disabled_torch_function_impl
    return found, [cls.__torch_function__ is disabled for cls in (Wrapped, Derived)]
