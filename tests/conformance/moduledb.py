"""The modules of torch.nn against PyTorch's, on the inputs of PyTorch's own test database (`module_db`).

    python -m tests.conformance.moduledb nn.Linear nn.LSTM      what differs in some records
    python -m tests.conformance.moduledb                        in all of them

Classes that the database has no record of are run on the inputs in tests/conformance/moduledb_samples.py.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import io
import math
import pickle
import re
import sys
import time
import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.testing._internal.common_modules import MODULES_TO_SKIP, ModuleErrorEnum, module_db

import tensorgrad as tg
from tests.conformance import opdb_bridge as bridge
from tests.conformance.moduledb_samples import SAMPLES

DTYPES = (torch.float32, torch.float64)
RECORDS = {info.name: info for info in module_db}
MAX_SAMPLES = 120  # of a record's inputs for each dtype and mode; few have more than ten
MAX_SHOWN = 12  # differences of one record


class Sample(NamedTuple):
    """How to make a module, and what to call it with."""

    made_with: tuple[tuple, dict]
    called_with: tuple[tuple, dict] | None
    what: str


def names() -> list[str]:
    """Every class of torch.nn that is a module, as `nn.Linear`."""
    classes = {name: getattr(torch.nn.modules, name) for name in torch.nn.modules.__all__}
    skipped = {*MODULES_TO_SKIP, torch.nn.NLLLoss2d}
    public = [n for n, c in classes.items() if isinstance(c, type) and issubclass(c, torch.nn.Module)]
    return sorted({*RECORDS, *(f"nn.{n}" for n in public if classes[n] not in skipped)})


def check(name: str, most: int = MAX_SAMPLES) -> list[str]:
    """What differs between the two libraries' classes of that name; the first few differences.

    `most` inputs are tried for each dtype and mode.
    """
    problems: list[str] = []
    for what, function in _checks(name, most):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = function()
        except Exception as error:
            found = [f"{type(error).__name__}: {str(error)[:200]}"]
        problems += [f"{name} {what}: {problem}" for problem in found]
        if len(problems) >= MAX_SHOWN:
            break
    return problems[:MAX_SHOWN]


def _checks(name: str, most: int):
    """Every check of a record, as (what, function that returns differences)."""
    plain = name.removeprefix("nn.")
    if not hasattr(tg.nn, plain):
        yield "", lambda: ["missing"]
        return
    theirs, ours = getattr(torch.nn, plain), getattr(tg.nn, plain)
    for dtype in DTYPES:
        for training in (True, False):
            for i, sample in enumerate(_samples(name, dtype, training, most)):
                what = f"{bridge.plain_name(dtype)} {'train' if training else 'eval'} {sample.what or i}"
                run = functools.partial(_compare, theirs, ours, sample, dtype, training, first=not i)
                yield what, run
            if name in RECORDS and RECORDS[name].module_error_inputs_func:
                yield (
                    f"errors {bridge.plain_name(dtype)}",
                    functools.partial(_compare_errors, RECORDS[name], theirs, ours, dtype, training),
                )


def _samples(name: str, dtype, training: bool, most: int = MAX_SAMPLES) -> list[Sample]:
    torch.manual_seed(7)
    if name not in RECORDS:
        return [
            Sample((args, kwargs), None if inputs is None else (_drawn(inputs, dtype), {}), f"sample {i}")
            for i, (args, kwargs, inputs) in enumerate(SAMPLES[name])
        ]
    info = RECORDS[name]
    if not training and not info.train_and_eval_differ and not info.is_lazy:
        return []
    given = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training)
    if len(given) > most:  # evenly from all of them
        given = [given[i * len(given) // most] for i in range(most)]
    found = []
    for i, one in enumerate(given):
        called = one.forward_input and (one.forward_input.args, one.forward_input.kwargs)
        found.append(
            Sample((one.constructor_input.args, one.constructor_input.kwargs), called, f"{i} {one.desc}".strip())
        )
    return found


def _drawn(inputs: tuple, dtype) -> tuple:
    """Random tensors for shapes; everything else as it is."""
    return tuple(torch.randn(i, dtype=dtype).requires_grad_() if isinstance(i, list) else i for i in inputs)


# --- from one library to the other -----------------------------------------------------------------------------------


def _ours(value: Any, memo: dict | None = None) -> Any:
    """A value of torch as tensorgrad's: modules, options and functions too."""
    memo = {} if memo is None else memo
    if isinstance(value, torch.nn.utils.rnn.PackedSequence):
        parts = [_ours(part, memo) for part in value]
        return tg.nn.utils.rnn.PackedSequence(*parts)
    if isinstance(value, torch.nn.TransformerEncoderLayer | torch.nn.TransformerDecoderLayer):
        attention, kind = value.self_attn, getattr(tg.nn, type(value).__name__)
        made = kind(
            attention.embed_dim, attention.num_heads, value.linear1.out_features, value.dropout.p,
            _ours(value.activation), value.norm1.eps, attention.batch_first, value.norm_first,
            value.linear1.bias is not None, dtype=_ours(value.linear1.weight.dtype),
        )  # fmt: skip
        return made.init_from_torch(value).train(value.training)
    if isinstance(value, getattr(torch.nn, "LinearCrossEntropyOptions", ())):  # which came with PyTorch 2.13
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return tg.nn.LinearCrossEntropyOptions(**_ours(fields))
    if callable(value) and not isinstance(value, torch.nn.Module | torch.dtype | type):
        same = getattr(tg.nn.functional, getattr(value, "__name__", ""), None)
        if getattr(torch.nn.functional, getattr(value, "__name__", ""), None) is value and same is not None:
            return same
    if isinstance(value, tuple | list) and not isinstance(value, torch.Size):
        items = [_ours(v, memo) for v in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {k: _ours(v, memo) for k, v in value.items()}
    return bridge.to_tg(value, memo=memo)


def _twice(value: Any) -> tuple[Any, Any]:
    """A value for torch, and the same for tensorgrad; neither sees what the other writes into it."""
    return _copied(value), _ours(value)


def _copied(value: Any) -> Any:
    if isinstance(value, torch.nn.utils.rnn.PackedSequence):
        return torch.nn.utils.rnn.PackedSequence(*(_copied(part) for part in value))
    if isinstance(value, torch.nn.Module):
        return copy.deepcopy(value)
    if isinstance(value, tuple | list):
        items = [_copied(v) for v in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {k: _copied(v) for k, v in value.items()}
    return bridge.copied(value)


# --- the comparison --------------------------------------------------------------------------------------------------


def _compare(theirs: type, ours: type, sample: Sample, dtype, training: bool, first: bool) -> list[str]:
    """The differences of one module: as it is made, called, differentiated, copied, and moved."""
    arguments, keywords = _twice(sample.made_with[0]), _twice(sample.made_with[1])
    torch.manual_seed(3)
    expected = theirs(*arguments[0], **keywords[0])
    tg.manual_seed(3)
    before = _device_numbers()
    actual = ours(*arguments[1], **keywords[1])
    if before != _device_numbers():
        return []  # made on a GPU, which draws other random numbers
    problems = _compare_state(expected, actual, "as made")
    if repr(expected) != repr(actual):
        problems.append(f"repr: {actual!r}, expected {expected!r}")
    if type(actual).__name__ != type(expected).__name__:
        problems.append(f"class: {type(actual).__name__}")
    expected, actual = expected.to(dtype).train(training), actual.to(bridge.HOME, _ours(dtype)).train(training)
    problems += _compare_state(expected, actual, "cast")
    if sample.called_with is None or problems:
        return problems
    before = _device_numbers()
    problems += _compare_calls(expected, actual, sample.called_with)
    if first and not problems and before == _device_numbers():
        problems += _compare_copies(theirs, ours, sample, expected, actual)
    return problems


def _compare_state(expected, actual, what: str) -> list[str]:
    """Parameters and buffers: names, order, values."""
    mine, problems = actual.state_dict(keep_vars=True), []
    reference = expected.state_dict(keep_vars=True)
    if list(mine) != list(reference):
        return [f"{what}: state_dict has {list(mine)}, expected {list(reference)}"]
    if [n for n, _ in expected.named_parameters()] != [n for n, _ in actual.named_parameters()]:
        problems.append(f"{what}: parameters {[n for n, _ in actual.named_parameters()]}")
    if [n for n, _ in expected.named_buffers()] != [n for n, _ in actual.named_buffers()]:
        problems.append(f"{what}: buffers {[n for n, _ in actual.named_buffers()]}")
    for key, value in reference.items():
        if torch.nn.parameter.is_lazy(value):
            if repr(value) != repr(mine[key]):
                problems.append(f"{what}: {key} is {mine[key]!r}, expected {value!r}")
        elif isinstance(value, torch.Tensor):
            problems += _differences(value, mine[key], f"{what}: {key}")
            if value.requires_grad != mine[key].requires_grad:
                problems.append(f"{what}: {key} requires_grad={mine[key].requires_grad}")
    return problems


def _differences(expected, actual, what: str) -> list[str]:
    """As `bridge.differences`, but with a tolerance that grows with the largest element of a tensor."""
    if isinstance(expected, torch.nn.utils.rnn.PackedSequence):
        expected, actual = tuple(expected), tuple(actual)
    if isinstance(expected, tuple | list):
        if not isinstance(actual, tuple | list) or len(expected) != len(actual):
            return [f"{what}: expected {len(expected)} results, got {actual!r:.80}"]
        pairs = enumerate(zip(expected, actual, strict=True))
        return [d for i, (e, a) in pairs for d in _differences(e, a, f"{what}[{i}]")]
    if not isinstance(expected, torch.Tensor) or not isinstance(actual, tg.Tensor):
        return bridge.differences(expected, actual, what)
    problems = bridge.differences(expected, actual, what)
    if len(problems) == 1 and "values differ" in problems[0]:
        reference = bridge.numpy_of(expected)
        finite = np.abs(reference[np.isfinite(reference)])
        slack = (2e-5 if expected.dtype is torch.float32 else 1e-9) * (finite.max() if finite.size else 0)
        if bridge.close(bridge.numpy_of(actual), reference, bridge.plain_name(expected.dtype), slack):
            return []
    return problems


def _compare_calls(expected, actual, called_with: tuple[tuple, dict]) -> list[str]:
    """Results, gradients of parameters and inputs, and the state after the call."""
    positional, keywords = _twice(called_with[0]), _twice(called_with[1])
    torch.manual_seed(5)
    reference = expected(*positional[0], **keywords[0])
    tg.manual_seed(5)
    before = _device_numbers()
    result = actual(*positional[1], **keywords[1])
    if before != _device_numbers():
        return []  # a GPU draws other random numbers
    problems = _differences(reference, result, "result")
    problems += _compare_state(expected, actual, "after the call")
    if type(expected).__name__ != type(actual).__name__:
        problems.append(f"became a {type(actual).__name__}, expected a {type(expected).__name__}")
    if problems:
        return problems
    differentiable = [
        (r, a) for r, a in zip(bridge.leaves(reference), bridge.leaves(result), strict=True) if r.requires_grad
    ]
    if any(not a.requires_grad for _, a in differentiable):
        return ["a result does not require grad"]
    if not differentiable:
        return []
    generator = np.random.default_rng(1)
    cotangents = [generator.standard_normal(tuple(r.shape)) for r, _ in differentiable]
    torch.autograd.backward(
        [r for r, _ in differentiable],
        [torch.tensor(c, dtype=r.dtype) for (r, _), c in zip(differentiable, cotangents, strict=True)],
    )
    tg.autograd.backward(
        [a for _, a in differentiable],
        [tg.tensor(c, dtype=a.dtype, device=a.device) for (_, a), c in zip(differentiable, cotangents, strict=True)],
    )
    mine = dict(actual.named_parameters())
    for name, parameter in expected.named_parameters():
        problems += _compare_gradient(parameter, mine[name], f"gradient of {name}")
    inputs = bridge.leaves((positional[0], keywords[0]))
    for i, (x, y) in enumerate(zip(inputs, bridge.leaves((positional[1], keywords[1])), strict=True)):
        if x.requires_grad:
            problems += _compare_gradient(x, y, f"gradient of input {i}")
    return problems


def _device_numbers() -> list | None:
    """How far the random numbers of the GPU under test have come, not counting seeds."""
    return tg.cuda.get_rng_state().tolist()[8:] if bridge.HOME else None


def _compare_gradient(expected, actual, what: str) -> list[str]:
    if (expected.grad is None) != (actual.grad is None):
        return [f"{what}: {'missing' if actual.grad is None else 'there is one, expected none'}"]
    return [] if expected.grad is None else _differences(expected.grad, actual.grad, what)


def _compare_copies(theirs: type, ours: type, sample: Sample, expected, actual) -> list[str]:
    """Loading PyTorch's weights, copies, pickles, checkpoints, other dtypes and devices."""
    problems = []
    arguments, keywords = _ours(sample.made_with[0]), _ours(sample.made_with[1])
    if not hasattr(actual, "cls_to_become") and not issubclass(ours, tg.nn.modules.lazy.LazyModuleMixin):
        tg.manual_seed(11)
        loaded = ours(*arguments, **keywords).to(next(iter(actual.state_dict().values()), tg.ones(1)).dtype)
        loaded = loaded.to(bridge.HOME, _dtype_of(actual)).train(actual.training)
        problems += _compare_state(expected, loaded.init_from_torch(expected), "loaded from torch")
    for what, made in (
        ("deepcopy", copy.deepcopy(actual)),
        ("pickle", pickle.loads(pickle.dumps(actual))),
        ("state_dict", _saved_and_loaded(actual)),
    ):
        problems += _compare_state(expected, made, what)
        if repr(made) != repr(actual):
            problems.append(f"{what}: repr {made!r}, expected {actual!r}")
        if made.training != actual.training:
            problems.append(f"{what}: training={made.training}")
        problems += [f"{what}: {p}" for p in _compare_calls(copy.deepcopy(expected), made, sample.called_with)[:1]]
    for move in (lambda m: m.half(), lambda m: m.to("meta"), lambda m: m.float().requires_grad_(False).eval()):
        reference, made = move(copy.deepcopy(expected)), move(copy.deepcopy(actual))
        for (key, r), m in zip(reference.state_dict().items(), made.state_dict().values(), strict=True):
            where = str(r.device), str(m.device).replace(f"{bridge.HOME}:0", "cpu")
            facts = [
                (tuple(t.shape), bridge.plain_name(t.dtype), device, t.requires_grad)
                for t, device in zip((r, m), where, strict=True)
            ]
            if facts[0] != facts[1]:
                problems.append(f"moved: {key} is {facts[1]}, expected {facts[0]}")
    return problems


def _dtype_of(module) -> Any:
    floating = [t.dtype for t in module.state_dict().values() if t.is_floating_point()]
    return floating[0] if floating else tg.float32


def _saved_and_loaded(module):
    made = copy.deepcopy(module)
    for tensor in made.state_dict().values():
        if tensor.is_floating_point():
            tensor.fill_(math.nan)
    file = io.BytesIO()
    tg.save(module.state_dict(), file)
    file.seek(0)
    made.load_state_dict(tg.load(file))
    return made


# --- errors ----------------------------------------------------------------------------------------------------------


def _compare_errors(info, theirs: type, ours: type, dtype, training: bool) -> list[str]:
    """Each of the record's wrong inputs must raise the exception that PyTorch raises."""
    torch.manual_seed(7)
    problems = []
    given = info.module_error_inputs_func(info, device="cpu", dtype=dtype, requires_grad=False, training=training)
    for i, wrong in enumerate(given):
        made, called = wrong.module_error_input.constructor_input, wrong.module_error_input.forward_input
        at_call = wrong.error_on is ModuleErrorEnum.FORWARD_ERROR
        reference = _raised(theirs, _copied(made.args), _copied(made.kwargs), called, at_call, dtype, _copied)
        result = _raised(ours, _ours(made.args), _ours(made.kwargs), called, at_call, _ours(dtype), _ours)
        if type(reference) is not type(result):
            problems.append(f"wrong input {i}: {result!r:.150}, expected {reference!r:.150}")
        elif re.search(wrong.error_regex, str(reference)) and not re.search(wrong.error_regex, str(result)):
            problems.append(f"wrong input {i}: {result!s:.150}, expected {wrong.error_regex}")
    return problems


def _raised(cls: type, args: tuple, kwargs: dict, called: Any, at_call: bool, dtype, convert) -> Exception | None:
    try:
        module = cls(*args, **kwargs)
        if at_call:
            module.to(bridge.HOME if convert is _ours else None, dtype)(*convert(called.args), **convert(called.kwargs))
            bridge.wait()
    except Exception as error:
        return error
    return None


# --- for the report --------------------------------------------------------------------------------------------------

# A record's name -> (why it differs, texts in its differences).
KNOWN: dict[str, tuple[str, ...]] = {
    "nn.CrossMapLRN2d": (
        "PyTorch's backward pass is not the derivative of its forward pass (`gradcheck` fails there), ours is.",
        "gradient of input 0: values differ",
    ),
}


def unexplained(name: str, problems: list[str]) -> list[str]:
    """Of a record's differences, those without a written reason."""
    return [problem for problem in problems if not any(text in problem for text in KNOWN.get(name, ())[1:])]


def entries() -> list:
    """Every class as an entry of the conformance report; the families are PyTorch's files."""
    from tests.conformance.__main__ import Entry

    found = []
    for name in names():
        cls = getattr(torch.nn, name.removeprefix("nn."))
        missing = "" if hasattr(tg.nn, name.removeprefix("nn.")) else "Not written yet."
        reason = KNOWN.get(name, ("",))[0]
        if reason:
            reason = f"compared with PyTorch's in all but its gradient: {reason}"
        found.append(Entry(name, cls.__module__.rpartition(".")[2], missing=missing, excluded=reason))
    return found


def modules_section():
    """The modules as a section of the conformance report."""
    from tests.conformance.__main__ import Section

    return Section(
        key="modules",
        title="Modules",
        about=f"""\
Each class of `torch.nn` is made in both libraries, from one seed and with the same arguments: those of its record in
`module_db` (up to {MAX_SAMPLES} for each dtype), or, for the {len(set(names()) - set(RECORDS))} classes that have none,
of our own samples. In float32 and float64, training and not: initial weights, names and order of the state, `repr`,
results, gradients of inputs and parameters, the state after the call; loading PyTorch's weights, deep copies, pickles,
checkpoints, `half()`, `to("meta")`; and the type of the exception for each of the record's wrong inputs. A class passes
only if nothing at all differs.""",
        entries=entries,
        check=check,
        known={},
    )


def main(wanted: list[str]) -> int:
    """Prints what differs in the named records, or in all."""
    torch.set_num_threads(1)
    start, failed = time.perf_counter(), 0
    for name in wanted or names():
        problems = check(name)
        failed += bool(problems)
        print("".join(f"{problem}\n" for problem in problems), end="")
    print(f"{len(wanted or names()) - failed} agree, {failed} differ; {time.perf_counter() - start:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
