"""`torch.library`: the same operators in both libraries."""

import gc
import itertools
from collections.abc import Sequence
from typing import Optional, Union

import numpy as np
import pytest

import tensorgrad
import tensorgrad.library
from tensorgrad.library.schema import parse
from tests.support.alike import alike, plain

torch = pytest.importorskip("torch", reason="torch is not installed: nothing to compare with")
pytest.importorskip("torch.library")

_number = itertools.count()


def fresh(l) -> str:
    """A namespace of its own for each test and library."""
    return f"own{next(_number)}"


def told(call):
    try:
        return call()
    except Exception as error:
        return type(error).__name__, str(error).partition(" to C++ type")[0]


def without(namespace, value):
    """The texts of a story, with the namespace left out."""
    if isinstance(value, str):
        return value.replace(namespace, "ns").replace("tensorgrad", "torch")
    if isinstance(value, list | tuple):
        return [without(namespace, item) for item in value]
    return value


def compare(story):
    """Runs a story `story(l, namespace)` in both libraries: what it tells must be the same."""

    def test():
        results = []
        for l in (tensorgrad, torch):
            namespace = fresh(l)
            l.manual_seed(0)
            results.append(without(namespace, plain(list(story(l, namespace)))))
        assert results[0] == results[1]

    test.__name__, test.__doc__ = story.__name__, story.__doc__
    return test


def scaled(l, ns, **options):
    """An operator that leaves autograd: x · k, by NumPy."""

    def scale(x, k=1.0):
        return l.from_numpy(x.detach().numpy() * np.float32(k))

    scale.__annotations__ = {"x": l.Tensor, "k": float, "return": l.Tensor}
    return l.library.custom_op(f"{ns}::scale", scale, mutates_args=(), **options)


# --- schemas --------------------------------------------------------------------------------------------------------


def prototypes(l):
    T, none = l.Tensor, type(None)
    yield {"x": T, "y": Optional[T], "return": T}, ()  # noqa: UP045 as programs write it
    yield {"x": T, "k": int, "f": float, "b": bool, "s": str, "return": T}, ("x",)
    yield {"x": list[T], "y": Sequence[Optional[T]], "z": Sequence[int], "return": tuple[T, T]}, "unknown"  # noqa: UP045
    yield {"x": T, "d": l.dtype, "e": l.device, "o": Optional[Sequence[int]], "return": None}, ()  # noqa: UP045
    yield {"x": T, "n": Union[int, float, bool], "return": int}, ()  # noqa: UP007
    yield {"x": T | None, "y": list[int], "z": int | None, "return": list[T]}, {"x"}
    yield {"x": T, "return": tuple[T, int, float]}, ()
    yield {"x": T, "w": list[float], "return": bool}, ()
    yield {"x": T, "y": dict, "return": T}, ()
    yield {"x": T, "y": Sequence[str], "return": T}, ()
    yield {"x": T, "y": tuple[int, int], "return": T}, ()
    yield {"x": T, "y": list[T] | None, "return": T}, ()
    yield {"x": T, "return": Optional[T]}, ()  # noqa: UP045
    yield {"x": T, "k": int, "return": none}, ("k",)
    yield {"x": T, "return": T}, ("q",)
    yield {"x": T}, ()
    yield {"x": T, "y": ..., "return": T}, ()


def test_inferred_schemas():
    def of(l):
        for annotations, mutated in prototypes(l):
            names = [name for name in annotations if name != "return"]
            scope = {}
            exec(f"def f({', '.join(names)}): pass", scope)
            given = {n: a for n, a in annotations.items() if a is not ...}
            scope["f"].__annotations__ = given
            yield told(lambda f=scope["f"], m=mutated: l.library.infer_schema(f, mutates_args=m))

    for ours, theirs in zip(of(tensorgrad), of(torch), strict=True):
        if isinstance(theirs, tuple):  # the error: its beginning; PyTorch goes on with all types that it has
            assert ours[0] == theirs[0] and ours[1][:55] == theirs[1][:55], (ours, theirs)
        else:
            assert ours == theirs


SCHEMAS = (
    "a::f(Tensor x, int[] d=[1], *, float? e=None) -> Tensor", "a::f.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)",
    "a::f(Tensor[] xs, Tensor?[] ys, SymInt[2] k=[1, 2], bool b=True, str s=\"q, (r)\") -> (Tensor, Tensor[])",
    "a::f() -> ()", "a::f(Scalar a=1.5, ScalarType? d=None, Device? e=None, Layout? f=None) -> int",
    "a::f(Tensor(a) x, float y=1.) -> (Tensor(a), Tensor)", "a::f(Tensor x) -> (Tensor)",
    "a::f(int[2] k=1, float[] g=[1.5, 2.0], MemoryFormat? m=None, Generator? g2=None) -> Tensor",
)  # fmt: skip


@pytest.mark.parametrize("text", SCHEMAS)
def test_schemas_are_read_as_pytorch_reads_them(text):
    ours, theirs = parse(text), torch._C.parse_schema(text)
    assert (ours.name, ours.overload_name) == (theirs.name, theirs.overload_name)
    assert str(parse(str(ours))) == str(ours)
    for a, b in zip([*ours.arguments, *ours.returns], [*theirs.arguments, *theirs.returns], strict=True):
        assert (a.name, a.kwarg_only) == (b.name, b.kwarg_only)
        assert a.is_write == (b.alias_info is not None and b.alias_info.is_write)
        assert a.has_default_value() == b.has_default_value()
        if a.has_default and a.type not in ("int[2]", "SymInt[2]"):
            assert a.default_value == b.default_value


@pytest.mark.parametrize(
    "text", ["f", "a::f(Tensr x) -> Tensor", "a::f(Tensor x)", "a::f(Tensor x -> Tensor", "f(int) x"]
)
def test_wrong_schemas(text):
    with pytest.raises(RuntimeError):
        parse(text)
    with pytest.raises(RuntimeError):
        torch._C.parse_schema(text)


# --- custom_op ------------------------------------------------------------------------------------------------------


@compare
def test_custom_op(l, ns):
    op = scaled(l, ns)
    x, overload = l.arange(3.0), getattr(l.ops, ns).scale.default
    yield str(op), op._qualname, str(op._opoverload), repr(overload), str(overload._schema), overload.name()
    yield overload.namespace, getattr(l.ops, ns).scale.overloads(), overload.__name__
    for args, kwargs in [((x,), {}), ((x, 2.0), {}), ((x,), {"k": 3}), ((3,), {}), ((x, "a"), {}), ((), {}),
                         ((x,), {"q": 1}), ((x, 1.0, 2), {}), ((x, 1.0), {"k": 2.0})]:  # fmt: skip
        for f in (op, overload, getattr(l.ops, ns).scale):
            result = told(lambda f=f, a=args, k=kwargs: f(*a, **k))
            if (f is getattr(l.ops, ns).scale and isinstance(result, tuple)) or (
                isinstance(result, tuple) and "multiple values" in result[1]
            ):
                result = result[0]
            yield result
    yield l.library.opcheck(op, (x,), test_utils="test_schema")
    yield isinstance(op, l.library.CustomOpDef)
    yield told(lambda: l.library.custom_op("noname", mutates_args=())(op._init_fn))[0]


@compare
def test_derivatives(l, ns):
    op = scaled(l, ns)
    x = l.arange(3.0).requires_grad_()
    yield op(x).requires_grad, type(op(x).grad_fn).__name__, told(lambda: op(x).sum().backward())
    seen = []

    def keep(ctx, inputs, output):
        seen.append((len(inputs), ctx.needs_input_grad[:2], output.shape))
        ctx.k = inputs[1]
        ctx.save_for_backward(inputs[0])

    def backward(ctx, g):
        seen.append((ctx.needs_input_grad, len(ctx.saved_tensors)))
        return op(g, ctx.k), None

    op.register_autograd(backward, setup_context=keep)
    (op(x, 3.0) * x).sum().backward()
    yield x.grad, seen[:2]
    first = l.autograd.grad(op(x, 2.0).pow(3).sum(), x, create_graph=True)[0]
    yield first, l.autograd.grad(first.sum(), x)
    with l.no_grad():
        yield op(x).requires_grad
    yield l.autograd.gradcheck(
        lambda y: op(y.float(), 2.0).double(), l.ones(2, dtype=l.float64, requires_grad=True), eps=0.1, atol=1e-2
    )
    op.register_autograd(lambda ctx, g: (g, None, g))
    yield told(lambda: op(x).sum().backward())[0]
    op.register_autograd(lambda ctx, g: None)
    yield told(lambda: op(l.ones(2, requires_grad=True)).sum().backward())


@compare
def test_lists_and_several_results(l, ns):
    def both(xs, y):
        return sum(t.detach() for t in xs) + 0, y.detach() * 2

    both.__annotations__ = {"xs": Sequence[l.Tensor], "y": l.Tensor, "return": tuple[l.Tensor, l.Tensor]}
    op = l.library.custom_op(f"{ns}::both", both, mutates_args=())
    op.register_autograd(lambda ctx, a, b: ([a, a * 2], b * 2))
    x, y, z = (l.ones(2, requires_grad=True) for _ in range(3))
    a, b = op([x, y], z)
    (a.sum() + b.sum()).backward()
    yield x.grad, y.grad, z.grad

    def split(x):
        return [x[:1].clone(), x[1:].clone()]

    split.__annotations__ = {"x": l.Tensor, "return": list[l.Tensor]}
    parts = l.library.custom_op(f"{ns}::split", split, mutates_args=())
    parts.register_autograd(lambda ctx, grads: l.cat(grads) * 3)
    p, q = parts(x)
    yield p, q, l.autograd.grad(p.sum() + q.sum() * 2, x)


@compare
def test_keyword_only_arguments(l, ns):
    def f(x, *, k):
        return x.detach() * k

    f.__annotations__ = {"x": l.Tensor, "k": float, "return": l.Tensor}
    op = l.library.custom_op(f"{ns}::f", f, mutates_args=())

    def keep(ctx, inputs, keyword_only_inputs, output):
        ctx.k = keyword_only_inputs["k"]

    op.register_autograd(lambda ctx, g: g * ctx.k, setup_context=keep)
    x = l.ones(2, requires_grad=True)
    op(x, k=4.0).sum().backward()
    yield x.grad, str(op._opoverload._schema), told(lambda: op(x, 4.0))


@compare
def test_writes(l, ns):
    def add_(x, v):
        x.detach().numpy()[:] += v

    add_.__annotations__ = {"x": l.Tensor, "v": float, "return": None}
    op = l.library.custom_op(f"{ns}::add_", add_, mutates_args={"x"})
    x = l.zeros(2)
    before = x._version
    yield op(x, 2.0), x, x._version > before, str(op._opoverload._schema)
    yield told(lambda: op.register_autograd(lambda ctx, g: g))[0]
    saved = l.ones(2, requires_grad=True)
    y = saved.exp()
    op(y.detach(), 1.0)
    yield told(lambda: y.sum().backward())[0]

    def same(x):
        return x

    same.__annotations__ = {"x": l.Tensor, "return": l.Tensor}
    bad = l.library.custom_op(f"{ns}::same", same, mutates_args=())
    yield told(lambda: bad(x))[1].partition("):")[2]


@compare
def test_meta_and_devices(l, ns):
    op = scaled(l, ns)
    meta = l.ones(2, 3, device="meta")
    yield told(lambda: op(meta))[0]
    op.register_fake(lambda x, k=1.0: l.empty_like(x))
    yield op(meta).shape, op(meta, 2.0).device.type
    only = scaled(l, ns + "b", device_types="cuda")
    yield told(lambda: only(l.ones(2)))[0]
    only.register_kernel("cpu")(lambda x, k=1.0: x + k)
    yield only(l.ones(2))
    yield told(lambda: op.register_kernel("tpu")(lambda x: x))[0]


@compare
def test_batches(l, ns):
    op = scaled(l, ns)
    x = l.arange(6.0).reshape(2, 3)
    yield l.vmap(op)(x), l.vmap(op, in_dims=1, out_dims=1)(x), l.vmap(lambda t: op(t, 2.0) + t)(x)
    seen = []

    def rule(info, in_dims, x, k=1.0):
        seen.append((info.batch_size, in_dims))
        return op(x, k), in_dims[0]

    op.register_vmap(rule)
    yield l.vmap(op)(x), l.vmap(l.vmap(op))(x.reshape(2, 3, 1)), l.vmap(op, in_dims=(1, None))(x, 2.0)
    yield seen[:1]


def test_transforms_see_one_step():
    """In PyTorch, `torch.func.grad` refuses custom operators."""
    op = scaled(tensorgrad, fresh(tensorgrad))
    op.register_autograd(lambda ctx, g: (g * 2, None))
    x = tensorgrad.arange(3.0)
    assert tensorgrad.func.grad(lambda t: op(t, 2.0).sum())(x).tolist() == [2.0, 2.0, 2.0]


@compare
def test_autocast(l, ns):
    op = scaled(l, ns)
    op.register_autocast("cpu", l.float64)
    yield op(l.ones(2)).dtype
    with l.autocast("cpu"):
        yield op(l.ones(2)).dtype
    yield told(lambda: op.register_autocast("nothing", l.float64))[0]


@compare
def test_kernels_can_be_switched_off(l, ns):
    op = scaled(l, ns)
    op.register_kernel("cpu")(lambda x, k=1.0: x * 0)
    x = l.ones(2)
    yield op(x)
    with op.set_kernel_enabled("cpu", enabled=False):
        yield op(x)
    yield op(x)


def failures(l, ns):
    def f(x):
        return x.detach() + 1

    f.__annotations__ = {"x": l.Tensor, "return": l.Tensor}

    def mutates(x):
        x.numpy()[:] += 1
        return x + 1

    mutates.__annotations__ = f.__annotations__
    op = l.library.custom_op(f"{ns}::f", f, mutates_args=())
    yield l.library.custom_op(f"{ns}::m", mutates, mutates_args=()), (l.ones(2),), "mutated"
    yield op, (l.ones(2),), "no fake impl"
    op.register_fake(lambda x: x.new_empty(3))
    yield op, (l.ones(2),), "Shapes torch.Size([2]) and torch.Size([3])"
    op.register_fake(lambda x: x.new_empty(x.shape, dtype=l.int64))
    yield op, (l.ones(2),), "Dtypes torch.float32 and torch.int64"
    op.register_fake(l.empty_like)
    yield op, (l.ones(2, requires_grad=True),), "no autograd formula was registered"
    op.register_autograd(lambda ctx, g: g)
    yield op, (l.ones(2, requires_grad=True),), None


@pytest.mark.slow
def test_opcheck():
    def of(l):
        for op, args, expected in failures(l, fresh(l)):
            try:
                found = l.library.opcheck(op, args)
                assert expected is None and set(found.values()) == {"SUCCESS"}
                yield sorted(found)
            except Exception as error:
                assert type(error).__name__ in ("OpCheckError", "AssertionError")
                assert expected is not None and expected in str(error), error
                yield str(error).partition(" failed")[0]

    assert list(of(tensorgrad)) == list(of(torch))
    with pytest.raises(ValueError, match="subset"):
        tensorgrad.library.opcheck(scaled(tensorgrad, fresh(tensorgrad)), (tensorgrad.ones(2),), test_utils="no_test")


def test_one_step_for_modes_classes_and_tracing():
    op = scaled(tensorgrad, fresh(tensorgrad))
    seen = []

    class Mode(tensorgrad.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    x = tensorgrad.ones(2)
    with Mode():
        op(x)
    assert seen == [str(op._opoverload)]
    traced = tensorgrad.fx.symbolic_trace(lambda x: op(x, 2.0) + 1)
    assert f"torch.ops.{op._namespace}.scale.default(x, 2.0)" in traced.code
    assert traced(tensorgrad.ones(2)).tolist() == [3.0, 3.0]


# --- Library --------------------------------------------------------------------------------------------------------


@compare
def test_library(l, ns):
    library, x = l.library.Library(ns, "DEF"), l.arange(3.0)
    ops = getattr(l.ops, ns)
    yield repr(library), library.define("f(Tensor x, int[] d=[1], *, float? e=None) -> Tensor")
    yield told(lambda: ops.f(x))[0]
    library.impl("f", lambda x, d=(1,), e=None: x * len(d) if e is None else x * e, "CompositeImplicitAutograd")
    yield ops.f(x), ops.f(x, [1, 2]), ops.f(x, e=3.0), str(ops.f.default._schema)
    y = x.clone().requires_grad_()
    yield l.autograd.grad(ops.f(y, [1, 2]).sum(), y)
    library.define("g.Scalar(Tensor self, Scalar s) -> Tensor")
    library.define("g.Tensor(Tensor self, Tensor s) -> Tensor")
    library.impl("g.Scalar", lambda self, s: self + s, "CPU")

    @l.library.impl(library, "g.Tensor", "CompositeExplicitAutograd")
    def g(self, s):
        return self - s

    yield ops.g(x, 2), ops.g(x, x), ops.g.overloads(), ops.g.Scalar(y, 1).requires_grad, ops.g.Scalar.name()
    yield told(lambda: ops.g.default), told(lambda: ops.nothing), told(lambda: ops.g(x, "text"))[0]
    yield told(lambda: library.define("f(Tensor x) -> Tensor"))[0], told(lambda: library.define("h"))
    yield told(lambda: library.define("h(Tensr x) -> Tensor"))[0], told(lambda: l.library.Library(ns, "DEF"))[0]
    yield told(lambda: l.library.Library("aten", "DEF"))[0], told(lambda: l.library.Library(ns, "NO"))[0]
    yield told(lambda: library.impl("f", 3))[0]
    fragment = l.library.Library(ns, "FRAGMENT")
    fragment.define("w(Tensor(a!) x) -> Tensor(a!)")
    fragment.impl("w", lambda x: x.add_(1), "CPU")
    z = l.zeros(2)
    yield ops.w(z) is z, z


@compare
def test_functions(l, ns):
    lib = l.library
    name, x = f"{ns}::f", l.arange(3.0)
    lib.define(name, "(Tensor x) -> Tensor")

    @lib.impl(name, "cpu")
    def f(x):
        return l.from_numpy(x.detach().numpy() + 1)

    lib.register_fake(name, l.empty_like)
    op = getattr(l.ops, ns).f
    yield op(x), op(x.to("meta")).shape
    lib.register_autograd(name, lambda ctx, g: g * 5)
    y = x.clone().requires_grad_()
    yield op(y).requires_grad, l.autograd.grad(op(y).sum(), y)
    yield told(lambda: lib.register_fake("nothing::f", l.empty_like))[0]
    yield told(lambda: lib.define("noname", "(Tensor x) -> Tensor"))[0], told(lambda: lib.define(f"{ns}::g", "f(x)"))[0]
    lib.define(f"{ns}::k", "(Tensor x) -> Tensor")
    lib.register_kernel(f"{ns}::k", "cpu", lambda x: x * 2)
    yield getattr(l.ops, ns).k(x)


@compare
def test_kernels_of_autograd(l, ns):
    library = l.library.Library(ns, "DEF")
    library.define("f(Tensor x) -> Tensor")
    op = getattr(l.ops, ns).f

    class F(l.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            with l._C._AutoDispatchBelowAutograd():
                return op(x)

        @staticmethod
        def backward(ctx, g):
            return g * 7

    library.impl("f", lambda x: x + 1, "CPU")
    library.impl("f", F.apply, "Autograd")
    x = l.ones(2, requires_grad=True)
    yield op(x), l.autograd.grad(op(x).sum(), x)


def test_what_a_library_adds_is_gone_with_it():
    ns = fresh(tensorgrad)
    library = tensorgrad.library.Library(ns, "DEF")
    library.define("f(Tensor x) -> Tensor")
    assert hasattr(getattr(tensorgrad.ops, ns), "f")
    del library
    gc.collect()
    assert not hasattr(getattr(tensorgrad.ops, ns), "f")
    with tensorgrad.library._scoped_library(ns, "DEF") as again:
        again.define("f(Tensor x) -> Tensor")
    assert not hasattr(getattr(tensorgrad.ops, ns), "f")


def test_operators_of_pytorchs_own_keep_their_kernels():
    with pytest.raises(NotImplementedError, match="OpDispatch"):
        tensorgrad.library.Library("aten", "IMPL").impl("add.Tensor", lambda x, y: x, "CPU")


@alike
def test_dispatch_keys(l):
    key, keys = l._C.DispatchKey, l._C.DispatchKeySet
    both = keys(key.CPU) | keys(key.CUDA)
    return (
        both.has(key.CPU),
        both.has(key.Meta),
        str(key.CPU),
        str(keys(key.CPU)),
        (both - keys(key.CUDA)).has(key.CUDA),
    )
