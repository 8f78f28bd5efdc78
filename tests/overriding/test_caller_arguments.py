"""Classes that override a function are given the arguments as the caller wrote them, as under torch."""

import contextlib
import functools
import inspect
import warnings

import pytest

import tensorgrad
import tensorgrad.overrides

torch = pytest.importorskip("torch", reason="torch is not installed: nothing to compare with")

ROOMS = ("", "nn.functional.", "linalg.", "fft.", "special.")
# What each of these parameters is given; a tensor otherwise.
VALUES = {
    name: value
    for value, names in {
        "1": "dim dim0 dim1 axis k n num_samples diagonal kernel_size output_size groups upscale_factor",
        "(1,)": "size shape dims normalized_shape pad repeats",
    }.items()
    for name in names.split()
}
# Functions that do not ask such classes here, or are one function under two names, or two under one.
OTHERWISE = {
    "dsmm", "empty_like", "full_like", "histogram", "hsmm", "nn.functional.l1_loss",
    "nn.functional.linear_cross_entropy",
    "nn.functional.multi_head_attention_forward", "ones_like", "quantize_per_channel", "quantize_per_tensor",
    "quantize_per_tensor_dynamic", "rsub", "saddmm", "spmm", "sym_float", "sym_int",
    "sym_ite", "sym_max", "sym_min", "sym_not", "sym_sqrt", "sym_sum", "unravel_index", "zeros_like",
}  # fmt: skip


def noting(library, seen):
    """A class that is not a tensor, and one that is: they note what they are asked."""

    class Other:
        def __repr__(self):
            return "tensor"

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append((func, repr(args), repr(sorted((kwargs or {}).items()))))

    class Noted(library.Tensor):
        def __repr__(self):
            return "tensor"

        __torch_function__ = Other.__torch_function__

    return Other, Noted


def found(library, name):
    return functools.reduce(lambda place, part: getattr(place, part, None), name.split("."), library)


@functools.cache
def calls():
    """Name of a function -> the texts of calls of it: with what it needs only, and with a default by place and name."""
    texts = {}
    overrides, ignored = torch.overrides.get_testing_overrides(), torch.overrides.get_ignored_functions()
    for name in (f"{room}{name}" for room in ROOMS for name in sorted(dir(found(torch, room[:-1]) if room else torch))):
        function = found(torch, name)
        if name.rpartition(".")[2][0] == "_" or not callable(function) or function in ignored or name in OTHERWISE:
            continue
        if function not in overrides or found(tensorgrad, name) is None:
            continue
        parameters = inspect.signature(overrides[function]).parameters.values()
        required = [p.name for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
        defaults = [p for p in parameters if p.default is not p.empty and p.name != "out"]
        given = [VALUES.get(p, "[t, t]" if p in ("tensors", "matrices") else "t") if i else "t"
                 for i, p in enumerate(required)]  # fmt: skip
        if required and required[0] in ("tensors", "matrices"):
            given[0] = "[t, t]"
        more = [[]]
        for p in (defaults[0], defaults[-1]) if defaults else ():
            value = repr(p.default) if isinstance(p.default, int | float | str | bool) else "None"
            more += [[f"{p.name}={value}"], *([[value]] if p is defaults[0] else [])]
        texts[name] = [f"f({', '.join(given or ['t', 't'])}{''.join(f', {m}' for m in extra)})" for extra in more]
    return texts


def story(library, name, made):
    """What a class is asked by each call of a function; None for those that are refused before."""
    seen, function, told = [], found(library, name), []
    tensor = made(*noting(library, seen), library)
    for text in calls()[name]:
        seen.clear()
        with contextlib.suppress(Exception):
            eval(text, {"f": function, "t": tensor})
        told.append([(func is function, *rest) for func, *rest in seen[:1]] or None)
    return told


@pytest.mark.parametrize("kind", ["no tensor", "a tensor"])
def test_functions_pass_on_what_was_written(kind):
    def made(other, noted, library):
        return other() if kind == "no tensor" else library.ones(2, 2).as_subclass(noted)

    wrong, count = [], 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in calls():
            for text, here, there in zip(calls()[name], story(tensorgrad, name, made), story(torch, name, made)):
                if there is None or not there[0][0]:  # refused, or something was done with the tensor before
                    continue
                count += 1
                if here != there:
                    wrong.append((name, text, here, there))
    assert not wrong, "\n".join(map(str, wrong))
    assert count > 1000


METHODS = (
    "t.unbind()", "t.unbind(0)", "t.unbind(dim=0)", "t.sum()", "t.sum(0)", "t.sum(dim=0)", "t.sum(axis=0)",
    "t.mean(0, keepdim=False)", "t.std(0, unbiased=True)", "t.max(0)", "t.topk(1, largest=True)", "t.add(1, alpha=1)",
    "t.add_(1, alpha=1)", "t.softmax(dim=0)", "t.squeeze(0)", "t.permute(1, 0)", "t.to('cpu')", "t.clamp(min=0)",
    "t.cumsum(dim=0)", "t.sort(descending=False)", "t.masked_fill(t, value=1)", "t.uniform_(0, 1)", "t.split(1)",
    "t.unique()", "t.unique(sorted=True)", "t.chunk(2, 0)", "t.flatten(start_dim=0)", "t.repeat(1, 2)", "t.new_tensor",
    "t.__iadd__(1)", "t.__isub__(1)", "t.__imul__(2)", "t.__itruediv__(2)", "t.__imod__(2)", "t.norm()",
    "t.norm(dim=0)", "t.backward()",
)  # fmt: skip


@pytest.mark.parametrize("text", METHODS)
def test_methods_pass_on_what_was_written(text):
    def story(library):
        seen = []
        tensor = library.ones(2, 2).as_subclass(noting(library, seen)[1])
        seen.clear()
        eval(text, {"t": tensor})
        return [rest for _, *rest in seen]

    assert story(tensorgrad) == story(torch)


def test_calls_that_python_code_does_not_show():
    """Where a call cannot be read, what has its default counts as not written."""

    def story(library):
        seen = []
        tensor = noting(library, seen)[0]()
        given, named = (tensor, 1), {"dim": 1}
        library.unbind(*given)
        library.unbind(tensor, **named)
        list(map(library.unbind, [tensor]))
        functools.partial(library.unbind, dim=1)(tensor)
        return [args for _, args, _ in seen], [kwargs for *_, kwargs in seen]

    args, kwargs = story(tensorgrad)
    assert args == ["(tensor, 1)", "(tensor, 1)", "(tensor,)", "(tensor, 1)"] and set(kwargs) == {"[]"}
    theirs = story(torch)
    assert theirs[0] == ["(tensor, 1)", "(tensor,)", "(tensor,)", "(tensor,)"]


def test_modes_see_what_was_written():
    def story(library):
        seen = []

        class Noting(library.overrides.TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                seen.append((func.__name__, len(args), sorted((kwargs or {}).items())))
                return func(*args, **(kwargs or {}))

        x = library.ones(2, 2)
        with Noting():
            library.unbind(x, 0)
            library.unbind(x)
            library.unbind(x, dim=0)
            library.sum(x, dim=0, keepdim=False)
            library.stack([x, x], 0)
            library.clamp(x, min=0)
        return seen

    assert story(tensorgrad) == story(torch)


METHODS_IN_MODES = (
    "t.unsqueeze(0)", "t.unsqueeze(dim=0)", "t.cumsum(0)", "t.cumprod(dim=1)", "t.logcumsumexp(0)", "t.cummax(0)",
    "t.select(0, 0)", "t.narrow(0, 0, 1)", "t.index_select(0, i)", "t.gather(0, i.expand(1, 2))", "t.movedim(0, 1)",
    "t.unfold(0, 1, 1)", "t.unflatten(0, (1, 2))", "t.softmax(0)", "t.log_softmax(dim=0)", "t.logsumexp(0)",
    "t.transpose(0, 1)", "t.index_fill(0, i, 2.0)", "t.index_add(0, i, t[:1])", "t.kthvalue(1, 0)", "t.sum(0, True)",
    "t.unsqueeze(0).expand(2, 2, 2)", "t.cumsum(0).unsqueeze(-1).squeeze(-1)",
)  # fmt: skip


@pytest.mark.parametrize("text", METHODS_IN_MODES)
def test_no_argument_of_a_method_is_lost_in_a_mode(text):
    """What is passed on has the values that were written, in a line of several calls and when the op is new, too."""

    def story(library):
        class PassingOn(library.overrides.TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                return func(*args, **(kwargs or {}))

        names = {"t": library.arange(4.0).reshape(2, 2), "i": library.tensor([0])}
        exec(f"r = [{text}, {text}]", names)
        with PassingOn():
            exec(f"a = {text}; b = {text}; s = [a, b]", names)
        return str(names["r"]), str(names["s"])

    assert story(tensorgrad) == story(torch)


@pytest.mark.parametrize("name", ["grad", "data", "T", "mT", "H", "mH", "real"])
def test_properties_that_are_tensors_are_asked_for(name):
    def story(library):
        seen = []

        class Noted(library.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                seen.append((func.__name__, func == getattr(library.Tensor, name).__get__, len(args)))
                return super().__torch_function__(func, types, args, kwargs or {})

        x = library.ones(2, 2).as_subclass(Noted).requires_grad_()
        x.sum().backward()
        seen.clear()
        value = getattr(x, name)
        asked = list(seen)
        return type(value).__name__, tuple(value.shape), asked

    assert story(tensorgrad) == story(torch)


def test_a_class_may_take_its_gradient_for_one_of_its_own():
    def story(library):
        class Marked(library.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                with library._C.DisableTorchFunctionSubclass():
                    result = func(*args, **(kwargs or {}))
                    return result.as_subclass(cls) if isinstance(result, library.Tensor) else result

        x = library.ones(2).as_subclass(Marked)
        x.requires_grad_()
        (x * 3).sum().backward()
        optimizer = library.optim.SGD([x], 0.5)
        optimizer.step()
        before = type(x.grad).__name__, x.grad.tolist(), x.tolist()
        optimizer.zero_grad()
        return *before, x.grad

    assert story(tensorgrad) == story(torch)
