"""Mistakes: what is said of them names the function that was called, the argument, what was expected and what came.

A row is an expression, the type of the exception, and words that the message contains. Where torch is installed, the
types are compared with its own; DIFFERENT says where they differ.
"""

import importlib.util
import warnings

import pytest

import tensorgrad


def argument(expression, function, name, wanted, came):
    """A row for an argument of another type."""
    return expression, TypeError, (f"{function}(): argument '{name}'", wanted, came)


def rows():
    yield from layers()
    yield from factories()
    yield from methods()
    yield from others()


def layers():
    for expression, name in (
        ('nn.Linear(2, "a")', "out_features"), ('nn.Linear("a", 2)', "in_features"),
        ('nn.Embedding("a", 2)', "num_embeddings"), ('nn.BatchNorm2d("a")', "num_features"),
        ('nn.Conv2d(3, 8, "3")', "kernel_size"), ('nn.Conv2d(3, "8", 3)', "out_channels"),
        ('nn.Conv2d("3", 8, 3)', "in_channels"), ('nn.ConvTranspose1d(3, 8, "3")', "kernel_size"),
    ):  # fmt: skip
        yield argument(expression, expression[3:].partition("(")[0], name, "int", "not str")
    yield argument("nn.Linear(2.5, 3)", "Linear", "in_features", "int", "not float")
    yield argument("nn.Linear(None, 3)", "Linear", "in_features", "int", "not NoneType")
    yield argument("nn.Conv2d(3, 8, 2.5)", "Conv2d", "kernel_size", "int", "not float")
    yield argument('nn.Softmax(dim="a")(x)', "softmax", "dim", "int", "not str")
    yield argument('F.softmax(x, dim="a")', "softmax", "dim", "int", "not str")
    yield argument("F.pad(x, (1.5, 1))", "pad", "pad", "tuple of ints", "type float at pos 0")
    yield argument('F.max_pool2d(l.ones(1, 1, 4, 4), "a")', "max_pool2d", "kernel_size", "int", "not str")
    yield "nn.Conv2d(3, 8)", TypeError, ("Conv2d", "missing 1 required positional argument: 'kernel_size'")
    for container in ("nn.Sequential(nn.Linear(2, 2), nn.ReLU)", "nn.ModuleList([nn.ReLU])",
                      'nn.ModuleDict({"a": nn.ReLU})'):  # fmt: skip
        yield container, TypeError, ("ReLU is not a Module subclass", "ReLU()")
    for loss in ("CrossEntropyLoss", "MSELoss", "L1Loss", "BCELoss", "NLLLoss", "SmoothL1Loss", "KLDivLoss",
                 "BCEWithLogitsLoss"):  # fmt: skip
        yield f"nn.{loss}(x, x)", RuntimeError, (
            "Boolean value of Tensor with more than one value is ambiguous", f"{loss}()(input, target)",
        )  # fmt: skip
    pad = "expected Tensor as element 0 in argument 0, but got int (pad_sequence())"
    yield "nn.utils.rnn.pad_sequence([1, 2])", TypeError, (pad,)
    yield "nn.utils.rnn.pack_sequence([1, 2])", TypeError, (pad,)


def factories():
    for name in ("zeros", "ones", "empty", "rand", "randn"):
        yield argument(f'l.{name}("a")', name, "size", "tuple of ints", "not str")
        yield argument(f"l.{name}(2.5)", name, "size", "tuple of ints", "not float")
        yield argument(f'l.{name}(2, requires_grad="yes")', name, "requires_grad", "bool", "not str")
        yield argument(f"l.{name}(2, requires_grad=1)", name, "requires_grad", "bool", "not int")
    yield argument("l.zeros(None)", "zeros", "size", "tuple of ints", "not NoneType")
    yield argument('l.zeros(2, "a")', "zeros", "size", "tuple of ints", "type str at pos 1")
    yield argument("l.zeros((2, 2.5))", "zeros", "size", "tuple of ints", "type float at pos 1")
    yield argument("l.ones((2, 3), 4)", "ones", "size", "tuple of ints", "type tuple at pos 0")
    yield argument('l.full((2,), "a")', "full", "fill_value", "Number", "not str")
    yield argument("l.full((2,), None)", "full", "fill_value", "Number", "not NoneType")
    yield argument("l.full(2, 1)", "full", "size", "tuple of ints", "not int")
    yield argument('l.full("a", 1)', "full", "size", "tuple of ints", "not str")
    yield argument('l.full_like(x, "a")', "full_like", "fill_value", "Number", "not str")
    yield argument('x.new_full((2,), "a")', "new_full", "fill_value", "Number", "not str")
    yield argument('x.new_zeros("a")', "new_zeros", "size", "tuple of ints", "not str")
    yield argument('l.arange("a")', "arange", "start", "Number", "not str")
    yield argument('l.arange(1, "a")', "arange", "end", "Number", "not str")
    yield argument('l.arange("a", 1)', "arange", "start", "Number", "not str")
    yield argument("l.arange(2.0, requires_grad=1)", "arange", "requires_grad", "bool", "not int")
    yield "l.arange()", TypeError, ("arange()", "end")
    yield argument("l.eye(2.0)", "eye", "n", "int", "not float")
    yield argument('l.eye(2, "a")', "eye", "m", "int", "not str")
    yield argument('l.linspace("a", 1, 3)', "linspace", "start", "Number", "not str")
    yield argument('l.logspace("a", 1, 3)', "logspace", "start", "Number", "not str")
    yield argument('x.requires_grad_("a")', "requires_grad_", "requires_grad", "bool", "not str")
    yield argument('l.tensor(1.0, requires_grad="yes")', "tensor", "requires_grad", "bool", "not str")


def methods():
    for name in ("sum", "mean", "max", "argmax", "softmax", "std", "sort", "cumsum", "logsumexp", "unsqueeze", "prod"):
        yield argument(f'x.{name}(dim="a")', name, "dim", "int", "not str")
    for name in ("sum", "cumsum", "unsqueeze"):
        yield argument(f"x.{name}(1.5)", name, "dim", "int", "not float")
    for name, parameter, wanted in (
        ("repeat", "repeats", "tuple of ints"), ("reshape", "shape", "tuple of ints"),
        ("view", "size", "tuple of ints"), ("expand", "size", "tuple of ints"), ("permute", "dims", "tuple of ints"),
        ("flip", "dims", "tuple of ints"), ("tile", "dims", "tuple of ints"), ("flatten", "start_dim", "int"),
        ("topk", "k", "int"), ("chunk", "chunks", "int"), ("tril", "diagonal", "int"), ("triu", "diagonal", "int"),
    ):  # fmt: skip
        yield argument(f'x.{name}("a")', name, parameter, wanted, "not str")
    yield argument("x.topk(1, True)", "topk", "dim", "int", "not bool")
    yield argument('x.transpose("a", 1)', "transpose", "dim0", "int", "not str")
    for call in ('x.clamp("a")', 'l.clamp(x, "a")', 'l.clamp(x, min="a")'):
        yield argument(call, "clamp", "min", "Number", "not str")
    yield argument('x.clamp_("a")', "clamp_", "min", "Number", "not str")
    yield argument('x.clamp(max="a")', "clamp", "max", "Number", "not str")
    yield argument('x.fill_("a")', "fill_", "value", "Number", "not str")
    yield argument('x.masked_fill(x > 0, "a")', "masked_fill", "value", "Number", "not str")
    yield argument('l.svd(x, "a")', "svd", "some", "bool", "not str")
    yield argument('l.unique(x, "a")', "unique", "sorted", "bool", "not str")
    yield argument("l.cholesky(x, x)", "cholesky", "upper", "bool", "not Tensor")
    yield argument("l.broadcast_to(x, 9)", "broadcast_to", "size", "tuple of ints", "not int")
    yield argument("l.linalg.qr(x, 2)", "linalg_qr", "mode", "str", "not int")
    yield argument("l.float_power(2, 3)", "float_power", "input", "Tensor", "not int")
    for name in ("expand_as", "view_as", "reshape_as"):
        yield argument(f"x.{name}(1)", name, "other", "Tensor", "not int")
    yield argument('l.cat([x], "a")', "cat", "dim", "int", "not str")
    yield argument('l.stack([x], "a")', "stack", "dim", "int", "not str")
    overlap = "some elements of the input tensor and the written-to tensor refer to a single memory location"
    yield "l.ones(3, 3).t().copy_(x)", RuntimeError, ("size",)
    yield "copied_onto_itself()", RuntimeError, (overlap,)


def others():
    no_grad = "element 0 of tensors does not require grad and does not have a grad_fn"
    yield "l.autograd.grad(l.ones(2), l.ones(2))", RuntimeError, (no_grad,)
    yield argument("l.autograd.grad(1, l.ones(2))", "grad", "outputs", "Tensor", "not int")
    yield "l.device()", TypeError, ("device()",)
    yield 'l.dtype("float")', TypeError, ("cannot create 'torch.dtype' instances",)
    yield "l.Size(l.ones(3))", TypeError, ("integer tensors of a single element",)
    yield 'l.Size("a")', TypeError, ("torch.Size() takes an iterable of 'int' (item 0 is 'str')",)
    yield "l.Size([2, 1.5])", TypeError, ("torch.Size() takes an iterable of 'int' (item 1 is 'float')",)
    for call in ("l.linalg.inv(l.zeros(2, 2))", "l.linalg.cholesky(-l.eye(2))", "l.linalg.solve(l.zeros(2, 2), x)",
                 "l.inverse(l.zeros(2, 2))", "l.linalg.tensorinv(l.zeros(2, 2, 2, 2))"):  # fmt: skip
        yield call, tensorgrad.linalg.LinAlgError, ("linalg",)


ROWS = list(rows())
DIFFERENT = {"nn.utils.rnn.pack_sequence([1, 2])": AttributeError}  # torch asks the number for its size


def evaluate(library, expression):
    def copied_onto_itself():
        x = library.arange(9.0).view(3, 3)
        return x.t().copy_(x)

    names = {"l": library, "nn": library.nn, "F": library.nn.functional, "x": library.ones(2, 3)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return eval(expression, names | {"copied_onto_itself": copied_onto_itself})


@pytest.mark.parametrize(("expression", "kind", "words"), ROWS, ids=[row[0] for row in ROWS])
def test_message(expression, kind, words):
    for _ in range(2):  # the first call of a function may still have to compile it
        with pytest.raises(kind) as caught:
            evaluate(tensorgrad, expression)
        message = str(caught.value)
        assert all(word in message for word in words), message


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is the oracle of this test")
def test_torch_refuses_the_same():
    import torch

    accepted = []
    for expression, kind, _ in ROWS:
        try:
            evaluate(torch, expression)
        except Exception as error:
            ours = kind if kind.__module__ == "builtins" else RuntimeError
            if not isinstance(error, DIFFERENT.get(expression, ours)):
                accepted.append(f"{expression}: {type(error).__name__}: {error}")
        else:
            accepted.append(f"{expression}: no error")
    assert not accepted, "\n".join(accepted)


@pytest.mark.skipif(tensorgrad.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("expression", [
    'l.zeros(2, device="cuda")', "x.cuda()", 'x.to("cuda")', "nn.Linear(2, 2).cuda()", "l.cuda.current_device()",
    "l.cuda.get_device_properties(0)", 'l.Generator("cuda")',
])  # fmt: skip
def test_without_a_gpu_programs_catch_what_they_catch_in_pytorch(expression):
    """Its builds without CUDA raise AssertionError, those with it RuntimeError."""
    for kind in (AssertionError, RuntimeError):
        with pytest.raises(kind, match="CuPy"):
            evaluate(tensorgrad, expression)


def test_a_layer_without_its_arguments_or_with_others_names_itself():
    """Also where layers share a constructor: not the base class that has it, of which the program knows nothing."""
    told = {}
    for name, layer in [(name, getattr(tensorgrad.nn, name)) for name in dir(tensorgrad.nn)]:
        if not (isinstance(layer, type) and issubclass(layer, tensorgrad.nn.Module)):
            continue
        for kwargs in ({}, {"no_such": 1}):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    layer(**kwargs)
            except TypeError as error:
                told[name, bool(kwargs)] = str(error)
    assert len(told) > 150 and ("Conv2d", False) in told and ("LazyConv2d", True) in told
    others = {key: text for key, text in told.items() if "__init__()" in text and not text.startswith(f"{key[0]}.")}
    assert not others


def test_the_argument_is_named_where_a_program_calls_not_deeper():
    class Net(tensorgrad.nn.Module):
        def __init__(self, width):
            super().__init__()
            self.layer = tensorgrad.nn.Linear(2, width)

    with pytest.raises(TypeError, match=r"^Linear\(\): argument 'out_features' must be int, not str$"):
        Net("a")
