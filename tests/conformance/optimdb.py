"""The optimizers against PyTorch's, in the configurations of PyTorch's own test database (`optim_db`).

python -m tests.conformance.optimdb Adam LBFGS       what differs in some records
python -m tests.conformance.optimdb                  in all of them, and in the schedules (tests/support/schedules.py)
"""

from __future__ import annotations

import copy
import functools
import inspect
import sys
import time
import types
import warnings
from typing import NamedTuple

import numpy as np
import torch
from torch.testing._internal.common_optimizers import OptimizerErrorEnum, optim_db

import tensorgrad as tg
from tests.conformance.__main__ import Entry, Section
from tests.conformance.opdb_bridge import numpy_of, plain_name, to_tg
from tests.support import schedules

RECORDS = {record.name: record for record in optim_db}
EXCLUDED = {"SparseAdam": "takes sparse gradients only, which the records here do not have; tests/sparse compares it"}
KNOWN: dict[str, tuple[str, ...]] = {}
DTYPES = ("float32", "float64", "complex64", "complex128")
REAL_ONLY = {"Adafactor": "refuses complex parameters, though its record says that it supports them"}
FORMS = ("list", "groups", "names", "named groups")
STEPS = 10
SHAPES = ((3, 4), (5,), (), (2, 3, 2))
MATRICES = ((3, 4), (6, 2), (8, 8))
TOLERANCE = {"float32": 1e-5, "complex64": 1e-5, "float64": 1e-9, "complex128": 1e-9}
# Of Muon the last bit of a bfloat16 number may differ, times the learning rate; LBFGS carries rounding errors on from
# iteration to iteration, and what it keeps of the last ones is the difference of nearly equal vectors.
LOOSER = {"Muon": 50, "LBFGS": 200}
FAMILIES = {
    "LBFGS": "second order", "Muon": "matrices", "Adafactor": "matrices", "SGD": "gradient descent",
    "ASGD": "gradient descent", "Rprop": "gradient descent",
}  # fmt: skip


# --- twins -----------------------------------------------------------------------------------------------------------


class Twin(NamedTuple):
    """One library's parameters, and the optimizer that moves them."""

    lib: types.ModuleType
    params: list
    optimizer: object

    def give(self, step: int) -> None:
        """A gradient for each parameter, the same in both libraries; the second gets none in every third step."""
        for i, (p, values) in enumerate(zip(self.params, drawn(self.params, 100 + step), strict=True)):
            p.grad = None if i == 1 and step % 3 == 2 else self.lib.tensor(values).to(p.dtype)

    def closure(self):
        """A loss with its gradients, for the optimizers that want to compute it anew."""
        self.optimizer.zero_grad()
        squares = [(p * p.conj()).real if p.is_complex() else p * p for p in self.params]
        loss = sum(((i + 1) * s + (1 + s).log()).sum() for i, s in enumerate(squares))
        loss.backward()
        return loss

    def step(self, number: int, closure: bool):
        """A step, and what it returns."""
        if closure:
            return self.optimizer.step(self.closure)
        self.give(number)
        return self.optimizer.step()


def drawn(like, seed: int) -> list[np.ndarray]:
    """Normal numbers for tensors, or shapes, of either library."""
    rng, made = np.random.default_rng(seed), []
    for shape in like:
        values = np.asarray(rng.standard_normal(tuple(getattr(shape, "shape", shape))))
        if getattr(shape, "is_complex", bool)():
            values = values + 1j * rng.standard_normal(values.shape)
        made.append(values)
    return made


def parameters(lib, name: str, dtype: str) -> list:
    """Parameters to start from."""
    shapes = MATRICES if name == "Muon" else SHAPES
    start, other = drawn(shapes, 0), drawn(shapes, 1)
    values = [a + 1j * b for a, b in zip(start, other, strict=True)] if "complex" in dtype else start
    return [lib.tensor(v).to(getattr(lib, dtype)).requires_grad_() for v in values]


def arranged(params: list, form: str) -> list:
    """Parameters as an optimizer takes them."""
    named = [(f"p{i}", p) for i, p in enumerate(params)] if "name" in form else params
    return [{"params": named[:1], "lr": 0.03}, {"params": named[1:]}] if "groups" in form else named


def twins(record, kwargs: dict, dtype: str, form: str = "list") -> list[Twin]:
    """The same optimizer here and there."""
    made = []
    for lib, convert in ((tg, to_tg), (torch, copy.deepcopy)):
        params = parameters(lib, record.name, dtype)
        optimizer = getattr(lib.optim, record.name)(arranged(params, form), **convert(kwargs))
        made.append(Twin(lib, params, optimizer))
    return made


# --- comparisons -----------------------------------------------------------------------------------------------------


def compare(mine: Twin, theirs: Twin, what: str, tolerance: float) -> list[str]:
    """How parameters, settings and state differ."""
    problems = []
    for i, (m, t) in enumerate(zip(mine.params, theirs.params, strict=True)):
        problems += different(m, t, f"{what}: parameter {i}", tolerance)
    mine, theirs = mine.optimizer, theirs.optimizer
    if repr(mine) != repr(theirs):
        problems.append(f"{what}: repr {mine!r}, expected {theirs!r}")
    mine, theirs = mine.state_dict(), theirs.state_dict()
    problems += different(mine["param_groups"], theirs["param_groups"], f"{what}: settings", tolerance)
    return problems + different(mine["state"], theirs["state"], f"{what}: state", tolerance)


def different(mine, theirs, what: str, tolerance: float) -> list[str]:
    """How nested values differ: keys, lengths, types, dtypes, shapes, and numbers beyond the tolerance."""
    if isinstance(theirs, torch.Tensor):
        if not isinstance(mine, tg.Tensor):
            return [f"{what}: a {type(mine).__name__}, expected a tensor"]
        if plain_name(mine.dtype) != plain_name(theirs.dtype) or tuple(mine.shape) != tuple(theirs.shape):
            return [f"{what}: {mine.dtype}{list(mine.shape)}, expected {theirs.dtype}{list(theirs.shape)}"]
        mine, theirs = numpy_of(mine), numpy_of(theirs)
    elif isinstance(theirs, dict):
        if not isinstance(mine, dict) or set(mine) != set(theirs):
            return [f"{what}: keys {list(mine)}, expected {list(theirs)}"]
        return [d for key in theirs for d in different(mine[key], theirs[key], f"{what}[{key!r}]", tolerance)]
    elif type(mine) is not type(theirs):
        return [f"{what}: {mine!r}, expected {theirs!r}"]
    elif isinstance(theirs, list | tuple):
        if len(mine) != len(theirs):
            return [f"{what}: {len(mine)} of them, expected {len(theirs)}"]
        pairs = enumerate(zip(mine, theirs, strict=True))
        return [d for i, (m, t) in pairs for d in different(m, t, f"{what}[{i}]", tolerance)]
    elif not isinstance(theirs, float):
        return [] if mine == theirs else [f"{what}: {mine!r}, expected {theirs!r}"]
    same = np.allclose(mine, theirs, rtol=tolerance, atol=tolerance / 10, equal_nan=True)
    return [] if same else [f"{what}: {np.ravel(mine)[:4]}, expected {np.ravel(theirs)[:4]}"]


def tolerance_of(record, dtype: str) -> float:
    return TOLERANCE[dtype] * LOOSER.get(record.name, 1)


def compare_lbfgs(mine: Twin, theirs: Twin, what: str, tolerance: float) -> list[str]:
    """As :func:`compare`; of the state its keys, and how often the loss was computed."""
    problems = []
    for i, (m, t) in enumerate(zip(mine.params, theirs.params, strict=True)):
        problems += different(m, t, f"{what}: parameter {i}", tolerance)
    (mine,), (theirs,) = (twin.optimizer.state.values() for twin in (mine, theirs))
    if set(mine) != set(theirs):
        problems.append(f"{what}: state {list(mine)}, expected {list(theirs)}")
    for key in ("func_evals", "n_iter"):
        if tolerance < 1e-5 and mine[key] != theirs[key]:
            problems.append(f"{what}: {key} {mine[key]}, expected {theirs[key]}")
    return problems


def comparison(record):
    return compare_lbfgs if record.name == "LBFGS" else compare


def stepped(record, mine: Twin, theirs: Twin, what: str, tolerance: float, numbers) -> list[str]:
    """How they differ after some steps, and what these returned."""
    for number in numbers:
        found, expected = (twin.step(number, record.step_requires_closure) for twin in (mine, theirs))
        if expected is not None:
            found, expected = found.item(), expected.item()
        problems = different(found, expected, f"{what}, step {number}: returned", tolerance)
        for i, (m, t) in enumerate(zip(mine.params, theirs.params, strict=True)):
            problems += different(m, t, f"{what}, step {number}: parameter {i}", tolerance)
        if problems:
            return problems
    return comparison(record)(mine, theirs, what, tolerance)


# --- checks: a record -> its differences -----------------------------------------------------------------------------


def configurations(record, dtype: str) -> list[tuple[str, dict]]:
    """The database's configurations, by their description."""
    return [(i.desc, i.kwargs) for i in record.optim_inputs_func("cpu", getattr(torch, dtype))]


def dtypes_of(record) -> list[str]:
    complex_too = record.supports_complex and record.name not in REAL_ONLY
    return [dtype for dtype in DTYPES if complex_too or "complex" not in dtype]


def check_steps(record) -> list[str]:
    """Ten steps of every configuration, in every dtype, with parameters given in every way."""
    problems = []
    for dtype in dtypes_of(record):
        for n, (description, kwargs) in enumerate(configurations(record, dtype)):
            for form in FORMS if record.supports_param_groups else ("list", "names")[: 1 if n else 2]:
                what = f"{dtype}, {description}, {form}"
                mine, theirs = twins(record, kwargs, dtype, form)
                problems += stepped(record, mine, theirs, what, tolerance_of(record, dtype), range(STEPS))
    return problems


def check_flags(record) -> list[str]:
    """The implementations that PyTorch lets one choose between, and what it refuses."""
    problems = []
    choices = [{"foreach": True}, {"foreach": False}] * ("foreach" in record.supported_impls)
    choices += [{"fused": True}, {"fused": False}] * ("fused" in record.supported_impls)
    for flags in choices:
        for dtype in ("float32", "float64"):
            mine, theirs = twins(record, flags, dtype)
            problems += stepped(record, mine, theirs, f"{dtype}, {flags}", 10 * tolerance_of(record, dtype), range(5))
    refused = [{"foreach": True, "fused": True}, {"fused": True, "differentiable": True}] * ("fused" in str(choices))
    for flags in refused:
        problems += raised_alike(lambda lib, flags=flags: make(lib, record, flags), f"{flags}")
    at_step = [({"capturable": True}, "float32")] * record.has_capturable_arg
    at_step += [({"fused": True}, "complex64")] * ("fused" in record.supported_impls)
    at_step += [({"differentiable": True}, "float32")] * ("differentiable" in record.supported_impls)
    at_step += [({"differentiable": True, "foreach": True}, "float32")] * ("differentiable" in record.supported_impls)
    for flags, dtype in at_step:  # of parameters that are leaves: nobody can differentiate through their change
        problems += raised_alike(
            lambda lib, f=flags, d=dtype: make(lib, record, f, d).step(0, False), f"{flags}, {dtype}"
        )
    return problems


def make(lib, record, kwargs: dict, dtype: str = "float32") -> Twin:
    params = parameters(lib, record.name, dtype)
    return Twin(lib, params, getattr(lib.optim, record.name)(params, **kwargs))


def raised_alike(attempt, what: str) -> list[str]:
    """How the exceptions differ that an attempt raises here and there."""
    found, expected = raised(lambda: attempt(tg)), raised(lambda: attempt(torch))
    return [] if found == expected else [f"{what}: {found}, expected {expected}"]


def raised(attempt) -> str:
    """`Type: text` of the exception, or of the warning; "nothing" without either."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            attempt()
    except Exception as error:
        return f"{type(error).__name__}: {error}".replace("tensorgrad.", "torch.")
    return "nothing"


def check_signature(record) -> list[str]:
    """The names, kinds and defaults of the constructor's parameters."""
    mine, theirs = (inspect.signature(getattr(lib.optim, record.name)) for lib in (tg, torch))
    found, expected = ([(p.name, p.kind, p.default) for p in s.parameters.values()] for s in (mine, theirs))
    return [] if found == expected else [f"signature: {mine}, expected {theirs}"]


def check_errors(record) -> list[str]:
    """The database's wrong inputs: the same exceptions with the same texts."""
    problems = []
    for error in record.optim_error_inputs_func("cpu", torch.float32):
        case, at_step = error.optimizer_error_input, error.error_on is OptimizerErrorEnum.STEP_ERROR

        def attempt(lib, case=case, at_step=at_step):
            params = [torch.nn.Parameter(torch.ones(1, 1))] if case.params is None else case.params
            kwargs = case.kwargs
            if lib is tg:
                params, kwargs = translated(params, {}), to_tg(kwargs)
            elif isinstance(params, list) and isinstance(params[0], dict):
                params = [dict(group) for group in params]  # an optimizer writes into these
            optimizer = getattr(lib.optim, record.name)(params, **kwargs)
            if at_step:
                optimizer.step()

        problems += raised_alike(attempt, f"error input: {case.desc}")
    return problems


def translated(value, memo: dict):
    """Nested torch tensors as tensorgrad's, each of them once, with their gradients."""
    if isinstance(value, torch.Tensor):
        if id(value) not in memo:
            memo[id(value)] = to_tg(value)
            memo[id(value)].grad = None if value.grad is None else to_tg(value.grad)
        return memo[id(value)]
    if isinstance(value, list | tuple):
        return type(value)(translated(v, memo) for v in value)
    return {k: translated(v, memo) for k, v in value.items()} if isinstance(value, dict) else value


def check_checkpoints(record) -> list[str]:
    """After five steps, either library's state goes on in the other."""
    problems = []
    for dtype in ["float64"] if record.step_requires_closure else dtypes_of(record):
        for description, kwargs in configurations(record, dtype):
            what, tolerance = f"{dtype}, {description}", tolerance_of(record, dtype)
            mine, theirs = twins(record, kwargs, dtype)
            for number in range(5):
                for twin in (mine, theirs):
                    twin.step(number, record.step_requires_closure)
            for source, convert in ((theirs, to_tg), (mine, to_torch)):
                started = twins(record, {}, dtype)
                for twin, own in zip(started, (mine, theirs), strict=True):
                    state = copy.deepcopy(own.optimizer.state_dict())
                    if own.lib is not source.lib:
                        state = convert(source.optimizer.state_dict())
                        own = source
                    for p, value in zip(twin.params, own.params, strict=True):
                        p.data = twin.lib.tensor(numpy_of(value))
                    twin.optimizer.load_state_dict(state)
                name = f"{what}, state loaded from {source.lib.__name__}"
                problems += stepped(record, *started, name, 2 * tolerance, range(5, 8))
    return problems


def to_torch(value):
    """Nested tensorgrad tensors as torch's."""
    if isinstance(value, tg.Tensor):
        return torch.tensor(numpy_of(value))
    if isinstance(value, list | tuple):
        return type(value)(to_torch(v) for v in value)
    return {k: to_torch(v) for k, v in value.items()} if isinstance(value, dict) else value


def check_old_checkpoints(record) -> list[str]:
    """State as old versions saved it: without the settings that came later, and with plain numbers as counts."""
    if record.step_requires_closure:
        return []
    mine, theirs = twins(record, {}, "float32")
    for twin in (mine, theirs):
        twin.step(0, False)
        state = copy.deepcopy(twin.optimizer.state_dict())
        for group in state["param_groups"]:
            for flag in record.not_og_supported_flags:
                group.pop(flag, None)
        for kept in state["state"].values():
            for key in ("step", "eta", "mu", "mu_product"):
                if key in kept:
                    kept[key] = kept[key].item()
        twin.optimizer.load_state_dict(state)
    return stepped(record, mine, theirs, "an old checkpoint", tolerance_of(record, "float32"), range(1, 4))


def check_schedules(record) -> list[str]:
    """With the schedules that the database has for it."""
    problems = []
    for n, makers in enumerate(record.scheduler_inputs):
        mine, theirs = twins(record, {}, "float64")
        plans = []
        for twin in (mine, theirs):
            made = [ported(maker, twin.lib)(twin.optimizer) for maker in makers]
            plans.append([(s, "ReduceLROnPlateau" in type(s).__name__) for s in made])
        for number in range(STEPS):
            for twin, plan in zip((mine, theirs), plans, strict=True):
                twin.step(number, record.step_requires_closure)
                for schedule, measured in plan:
                    schedule.step(*[1.0] * measured)
        problems += comparison(record)(mine, theirs, f"schedules {n}", tolerance_of(record, "float64"))
    return problems


def ported(function: types.FunctionType, lib):
    """A function of the database with a library's schedules in the place of PyTorch's."""
    own = {name: getattr(lib.optim.lr_scheduler, name) for name in torch.optim.lr_scheduler.__all__}
    return types.FunctionType(function.__code__, {**function.__globals__, **own})


def check_gradients(record) -> list[str]:
    """Gradients through two steps of an optimizer that was made with ``differentiable=True``."""
    if "differentiable" not in record.supported_impls:
        return []
    problems = []
    for dtype in ("float64", "complex128"):
        for description, kwargs in configurations(record, dtype):
            if any(isinstance(value, torch.Tensor) for value in kwargs.values()):
                continue
            try:
                theirs = differentiated(torch, record, kwargs, dtype)
            except RuntimeError as error:
                if "modified by an inplace operation" not in str(error):
                    raise
                continue  # PyTorch overwrites what it still needs
            mine = differentiated(tg, record, kwargs, dtype)
            # PyTorch counts the steps in float32, and what follows from them is as coarse.
            problems += different(mine, theirs, f"{dtype}, {description}, gradients", 1e-4)
    return problems


def differentiated(lib, record, kwargs: dict, dtype: str) -> list:
    """The parameters after two steps, and how a loss of them changes with the first ones and with the gradients."""
    start = parameters(lib, record.name, dtype)
    params = [p.clone() for p in start]
    optimizer = getattr(lib.optim, record.name)(params, differentiable=True, **kwargs)
    inputs = list(start)
    for step in range(2):
        grads = [lib.tensor(v).to(p.dtype).requires_grad_() for v, p in zip(drawn(params, step), params, strict=True)]
        inputs += grads
        for p, grad in zip(params, grads, strict=True):
            p.grad = grad
        optimizer.step()
    loss = sum(((i + 1) * p.abs() ** 2).sum() for i, p in enumerate(params))
    found = lib.autograd.grad(loss, inputs, allow_unused=True)
    return [p.detach() for p in params] + [None if g is None else g.detach() for g in found]


CHECKS = (
    check_signature, check_errors, check_steps, check_flags, check_checkpoints, check_old_checkpoints, check_schedules,
    check_gradients,
)  # fmt: skip


def check(name: str) -> list[str]:
    """What differs between the two libraries' optimizers of that name."""
    problems = []
    for function in CHECKS:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                problems += function(RECORDS[name])
        except Exception as error:
            problems.append(f"{function.__name__}: {type(error).__name__}: {error}")
    return [f"{name}: {problem}" for problem in problems]


# --- sections of the conformance report ------------------------------------------------------------------------------


def entries() -> list[Entry]:
    """All records of the database, in its order."""
    return [
        Entry(
            name,
            FAMILIES.get(name, "adaptive"),
            EXCLUDED.get(name, ""),
            "" if hasattr(tg.optim, name) else "not implemented yet",
        )
        for name in RECORDS
    ]


def optim_section() -> Section:
    """The optimizers of PyTorch's database."""
    return Section(
        key="optim",
        title="Optimizers",
        about=f"""\
Each record of `optim_db` is run in both libraries in all its configurations, in float32 and float64 and, where PyTorch
can, complex64 and complex128, with parameters given as a list, in groups, with names and in groups with names: from the
same parameters and gradients, {STEPS} steps, after each of which the parameters are compared, and at the end settings,
`repr` and state (keys, dtypes, shapes, values; of LBFGS keys and counts). Then: the constructor's signature; the
record's error inputs, with the texts of their exceptions; `foreach`, `fused`, `capturable`, `differentiable`, taken or
refused alike; state saved by either library after five steps and loaded into the other; checkpoints of old versions;
the record's learning rate schedules; and gradients through the steps of differentiable optimizers, where PyTorch has
them.""",
        entries=entries,
        check=check,
        known=KNOWN,
    )


def scheduler_section() -> Section:
    """The classes of `torch.optim.lr_scheduler`, and what `torch.optim.swa_utils` adds."""
    return Section(
        key="schedulers",
        title="Learning rate schedules",
        about=f"""\
PyTorch has no database of these: all classes of `torch.optim.lr_scheduler`, and `SWALR`, each in the settings of
tests/support/schedules.py, with an optimizer that has momentum and one that has β₁, in two parameter groups, for
{schedules.STEPS} steps: all settings of the groups and `get_last_lr()` after each step; the state, saved by either
library in the middle and loaded into the other; signatures; warnings, and the texts of exceptions.""",
        entries=lambda: [
            Entry(name, "schedules", "", "" if schedules.found(tg, name) else "not implemented yet")
            for name in schedules.NAMES
        ],
        check=functools.partial(schedules.check),
        known={},
    )


def main(wanted: list[str]) -> int:
    """Prints what differs in the named records, or in all."""
    torch.set_num_threads(1)
    start, failed = time.perf_counter(), 0
    names = wanted or [*(name for name in RECORDS if name not in EXCLUDED), *schedules.NAMES]
    for name in names:
        problems = (check if name in RECORDS else schedules.check)(name)
        failed += bool(problems)
        print("".join(f"{problem}\n" for problem in problems), end="")
    print(f"{len(names) - failed} agree, {failed} differ; {time.perf_counter() - start:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
