"""Compares learning rate schedules with PyTorch's, each class in several settings; for tests/conformance/optimdb.py."""

from __future__ import annotations

import copy
import inspect
import math
import warnings

import torch

import tensorgrad as tg

STEPS = 30
SWAPPED = 12  # the number of steps after which the state is loaded into the other library
NAMES = [*torch.optim.lr_scheduler.__all__, "SWALR"]


class Halving:
    """A callable object whose attributes are saved."""

    def __init__(self, base: float) -> None:
        self.base = base

    def __call__(self, x: float) -> float:
        return self.base**x


# Class -> functions that create it, from a library's lr_scheduler and an optimizer with two groups.
CASES = {
    "LambdaLR": [
        lambda s, o: s.LambdaLR(o, lambda n: 0.9**n),
        lambda s, o: s.LambdaLR(o, [lambda n: 0.9**n, Halving(0.8)]),
    ],
    "MultiplicativeLR": [
        lambda s, o: s.MultiplicativeLR(o, lambda n: 0.7),
        lambda s, o: s.MultiplicativeLR(o, [lambda n: 1 / n, Halving(0.98)]),
    ],
    "StepLR": [lambda s, o: s.StepLR(o, 3), lambda s, o: s.StepLR(o, 7, gamma=0.5)],
    "MultiStepLR": [
        lambda s, o: s.MultiStepLR(o, [2, 5, 5, 20], gamma=0.3),
        lambda s, o: s.MultiStepLR(o, (20, 3)),
    ],
    "ConstantLR": [
        lambda s, o: s.ConstantLR(o),
        lambda s, o: s.ConstantLR(o, 0.25, 14),
        lambda s, o: s.ConstantLR(o, factor=0.5, total_iters=0),
    ],
    "LinearLR": [
        lambda s, o: s.LinearLR(o),
        lambda s, o: s.LinearLR(o, 0.2, 0.9, 20),
        lambda s, o: s.LinearLR(o, start_factor=1.0, end_factor=0.0, total_iters=10),
    ],
    "ExponentialLR": [lambda s, o: s.ExponentialLR(o, 0.8)],
    "SequentialLR": [
        lambda s, o: s.SequentialLR(o, [s.LinearLR(o, 0.1, 1.0, 3), s.ExponentialLR(o, 0.9), s.StepLR(o, 2)], [4, 9]),
        lambda s, o: s.SequentialLR(o, [s.ConstantLR(o, 0.1, 50), s.CosineAnnealingLR(o, 10)], milestones=[20]),
        lambda s, o: s.SequentialLR(
            o, [s.ChainedScheduler([s.ConstantLR(o, 0.1, 5), s.ExponentialLR(o, 0.9)]), s.StepLR(o, 3)], [11]
        ),
        lambda s, o: s.SequentialLR(o, [s.ExponentialLR(o, 0.9), s.CosineAnnealingWarmRestarts(o, 4, 2)], [5]),
        lambda s, o: s.SequentialLR(
            o, [s.SequentialLR(o, [s.ConstantLR(o), s.ExponentialLR(o, 0.9)], [3]), s.PolynomialLR(o, 9)], [8]
        ),
    ],
    "CosineAnnealingLR": [
        lambda s, o: s.CosineAnnealingLR(o, 5, 0.01),
        lambda s, o: s.CosineAnnealingLR(o, 40),
    ],
    "ChainedScheduler": [
        lambda s, o: s.ChainedScheduler([s.ConstantLR(o, 0.5, 3), s.ExponentialLR(o, 0.9)]),
        lambda s, o: s.ChainedScheduler(
            [s.LinearLR(o, 0.4, total_iters=4), s.StepLR(o, 3), s.MultiplicativeLR(o, lambda n: 0.95)], optimizer=o
        ),
        lambda s, o: s.ChainedScheduler(
            [s.CosineAnnealingLR(o, 8), s.PolynomialLR(o, 12), s.MultiStepLR(o, [4, 10], 0.5)]
        ),
    ],
    "ReduceLROnPlateau": [
        lambda s, o: s.ReduceLROnPlateau(o),
        lambda s, o: s.ReduceLROnPlateau(o, mode="max", patience=1),
        lambda s, o: s.ReduceLROnPlateau(o, "min", 0.5, 2, threshold_mode="abs", threshold=0.3),
        lambda s, o: s.ReduceLROnPlateau(o, cooldown=2, patience=0, min_lr=[0.1, 0.01]),
        lambda s, o: s.ReduceLROnPlateau(o, mode="max", threshold_mode="abs", patience=0, eps=0.1),
    ],
    "CyclicLR": [
        lambda s, o: s.CyclicLR(o, 0.01, 0.1, 4),
        lambda s, o: s.CyclicLR(o, [0.01, 0.02], [0.1, 0.3], 3, 5, mode="triangular2", base_momentum=0.7),
        lambda s, o: s.CyclicLR(o, 0.01, 0.1, step_size_up=5, mode="exp_range", gamma=0.95, cycle_momentum=False),
        lambda s, o: s.CyclicLR(o, 0.01, 0.1, 4, scale_fn=lambda x: 0.9**x, scale_mode="iterations"),
        lambda s, o: s.CyclicLR(o, 0.01, 0.1, 4, scale_fn=Halving(0.5), max_momentum=[0.95, 0.9]),
    ],
    "CosineAnnealingWarmRestarts": [
        lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, 2, 0.01),
        lambda s, o: s.CosineAnnealingWarmRestarts(o, T_0=7),
    ],
    "OneCycleLR": [
        lambda s, o: s.OneCycleLR(o, 1.5, total_steps=31),
        lambda s, o: s.OneCycleLR(
            o, [1.5, 0.5], epochs=8, steps_per_epoch=5, anneal_strategy="linear", three_phase=True
        ),
        lambda s, o: s.OneCycleLR(o, 0.5, 40, pct_start=0.5, cycle_momentum=False, div_factor=5, final_div_factor=10),
    ],
    "PolynomialLR": [lambda s, o: s.PolynomialLR(o), lambda s, o: s.PolynomialLR(o, 20, 2.0)],
    "LRScheduler": [lambda s, o: inverse(s)(o)],
    "SWALR": [
        lambda s, o: found_beside(s).SWALR(o, 0.05),
        lambda s, o: found_beside(s).SWALR(o, [0.05, 0.5], anneal_epochs=4, anneal_strategy="linear"),
        lambda s, o: found_beside(s).SWALR(o, 0.05, anneal_epochs=0),
        lambda s, o: s.SequentialLR(o, [s.ExponentialLR(o, 0.9), found_beside(s).SWALR(o, 0.05, 5)], [6]),
    ],
}

# Class -> calls that raise an exception.
ERRORS = {
    "LambdaLR": [lambda s, o: s.LambdaLR(o, [abs]), lambda s, o: s.LambdaLR(3, abs)],
    "MultiplicativeLR": [lambda s, o: s.MultiplicativeLR(o, 3), lambda s, o: s.MultiplicativeLR(o, [abs] * 3)],
    "StepLR": [lambda s, o: s.StepLR(3, 2), lambda s, o: s.StepLR(o, 2, last_epoch=3)],
    "MultiStepLR": [lambda s, o: s.MultiStepLR(None, [2])],
    "ConstantLR": [lambda s, o: s.ConstantLR(o, 2.0), lambda s, o: s.ConstantLR(o, -0.5)],
    "LinearLR": [
        lambda s, o: s.LinearLR(o, 0.0),
        lambda s, o: s.LinearLR(o, 1.5),
        lambda s, o: s.LinearLR(o, 0.5, 2.0),
        lambda s, o: s.LinearLR(o, 0.5, -1.0),
    ],
    "ExponentialLR": [lambda s, o: s.ExponentialLR("x", 0.5), lambda s, o: s.ExponentialLR(o, 0.5, 2)],
    "SequentialLR": [
        lambda s, o: s.SequentialLR(o, [], []),
        lambda s, o: s.SequentialLR(o, [s.StepLR(o, 2)], [2]),
        lambda s, o: s.SequentialLR(o, [3, s.StepLR(o, 2)], [2]),
        lambda s, o: s.SequentialLR(o, [s.StepLR(o, 2), s.ReduceLROnPlateau(o)], [2]),
        lambda s, o: s.SequentialLR(o, [s.StepLR(o, 2), s.StepLR(another(s), 2)], [2]),
    ],
    "CosineAnnealingLR": [lambda s, o: s.CosineAnnealingLR(o, 5, last_epoch=2)],
    "ChainedScheduler": [
        lambda s, o: s.ChainedScheduler([]),
        lambda s, o: s.ChainedScheduler([s.ReduceLROnPlateau(o)]),
        lambda s, o: s.ChainedScheduler([s.StepLR(o, 2), "x"]),
        lambda s, o: s.ChainedScheduler([s.StepLR(o, 2), s.StepLR(another(s), 2)]),
        lambda s, o: s.ChainedScheduler([s.StepLR(o, 2)], optimizer=another(s)),
    ],
    "ReduceLROnPlateau": [
        lambda s, o: s.ReduceLROnPlateau(o, mode="x"),
        lambda s, o: s.ReduceLROnPlateau(o, threshold_mode="x"),
        lambda s, o: s.ReduceLROnPlateau(o, factor=1.0),
        lambda s, o: s.ReduceLROnPlateau(o, min_lr=[1]),
        lambda s, o: s.ReduceLROnPlateau([]),
        lambda s, o: grown(s.ReduceLROnPlateau(o, min_lr=[0.1, 0.1], patience=0)).step(math.inf),
    ],
    "CyclicLR": [
        lambda s, o: s.CyclicLR(3, 0.1, 1.0),
        lambda s, o: s.CyclicLR(o, [0.1], 1.0),
        lambda s, o: s.CyclicLR(o, 0.1, [1.0]),
        lambda s, o: s.CyclicLR(o, 0.1, 1.0, mode="x"),
        lambda s, o: s.CyclicLR(o, 0.1, 1.0, base_momentum=[0.1]),
        lambda s, o: s.CyclicLR(another(s, "Adagrad"), 0.1, 1.0),
    ],
    "CosineAnnealingWarmRestarts": [
        lambda s, o: s.CosineAnnealingWarmRestarts(o, 0),
        lambda s, o: s.CosineAnnealingWarmRestarts(o, 2.5),
        lambda s, o: s.CosineAnnealingWarmRestarts(o, 2, 0),
        lambda s, o: s.CosineAnnealingWarmRestarts(o, 2, eta_min="0"),
        lambda s, o: s.CosineAnnealingWarmRestarts(o, 2).step(-1),
    ],
    "OneCycleLR": [
        lambda s, o: s.OneCycleLR(3, 1.0),
        lambda s, o: s.OneCycleLR(o, 1.0),
        lambda s, o: s.OneCycleLR(o, 1.0, total_steps=0),
        lambda s, o: s.OneCycleLR(o, 1.0, total_steps=2.5),
        lambda s, o: s.OneCycleLR(o, 1.0, epochs=0, steps_per_epoch=1),
        lambda s, o: s.OneCycleLR(o, 1.0, epochs=2, steps_per_epoch=-1),
        lambda s, o: s.OneCycleLR(o, 1.0, 5, pct_start=2.0),
        lambda s, o: s.OneCycleLR(o, 1.0, 5, pct_start=1),
        lambda s, o: s.OneCycleLR(o, 1.0, 5, anneal_strategy="x"),
        lambda s, o: s.OneCycleLR(o, [1.0], 5),
        lambda s, o: s.OneCycleLR(another(s, "Adagrad"), 1.0, 5),
        lambda s, o: [s.OneCycleLR(o, 1.0, 2).step() for _ in range(1)],
        lambda s, o: [schedule.step() for schedule in [s.OneCycleLR(o, 1.0, 2)] for _ in range(3)],
    ],
    "PolynomialLR": [lambda s, o: s.PolynomialLR(3)],
    "LRScheduler": [lambda s, o: s.LRScheduler(o), lambda s, o: s.LRScheduler(3)],
    "SWALR": [
        lambda s, o: found_beside(s).SWALR(o, 0.05, anneal_strategy="x"),
        lambda s, o: found_beside(s).SWALR(o, 0.05, anneal_epochs=-1),
        lambda s, o: found_beside(s).SWALR(o, 0.05, anneal_epochs=1.5),
        lambda s, o: found_beside(s).SWALR(o, [0.05]),
        lambda s, o: found_beside(s).SWALR(3, 0.05),
    ],
}


def library(s):
    """Returns the library whose lr_scheduler this is."""
    return tg if s.__name__.startswith("tensorgrad") else torch


def found_beside(s):
    return library(s).optim.swa_utils


def found(lib, name: str):
    """Returns a library's class of that name; None if there is none."""
    return getattr(lib.optim.lr_scheduler, name, None) or getattr(lib.optim.swa_utils, name, None)


def another(s, name: str = "SGD"):
    """Returns an optimizer with two groups."""
    return optimizer(library(s), name)


def grown(schedule):
    """Returns the same schedule after adding another group to its optimizer."""
    lib = torch if isinstance(schedule, torch.optim.lr_scheduler.LRScheduler) else tg
    schedule.optimizer.add_param_group({"params": [lib.ones(1, requires_grad=True)]})
    return schedule


def inverse(s):
    """A user-defined schedule."""

    class Inverse(s.LRScheduler):
        def get_lr(self):
            return [base / (self.last_epoch + 1) for base in self.base_lrs]

    return Inverse


def optimizer(lib, name: str, tensors: bool = False):
    params = [lib.ones(1, requires_grad=True) for _ in range(2)]
    rate = (lambda value: lib.tensor(value, dtype=lib.float64)) if tensors else float
    options = {"momentum": 0.9} if name == "SGD" else {}
    groups = [{"params": params[:1]}, {"params": params[1:], "lr": rate(0.2)}]
    return getattr(lib.optim, name)(groups, lr=rate(0.4), **options)


# --- what is compared ------------------------------------------------------------------------------------------------


def check(name: str) -> list[str]:
    """Returns the differences between the two libraries' schedules of that name."""
    mine, theirs = (inspect.signature(found(lib, name)) for lib in (tg, torch))
    problems = []
    if [(p.name, p.kind, p.default) for p in mine.parameters.values()] != [
        (p.name, p.kind, p.default) for p in theirs.parameters.values()
    ]:
        problems.append(f"signature: {mine}, expected {theirs}")
    for n, make in enumerate(CASES[name]):
        for algorithm, tensors in (("SGD", False), ("Adam", False), ("SGD", True)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                stories = [story(lib, other, make, algorithm, tensors) for lib, other in ((tg, torch), (torch, tg))]
            what = f"case {n} with {algorithm}{', learning rates that are tensors' * tensors}"
            problems += different(*stories, what)
        problems += different(*(warnings_of(lib, make) for lib in (tg, torch)), f"case {n}: warnings")
    for n, attempt in enumerate(ERRORS[name]):
        problems += different(*(raised(lib, attempt) for lib in (tg, torch)), f"error {n}")
    return [f"{name}: {problem}" for problem in problems]


def story(lib, other, make, algorithm: str, tensors: bool) -> list:
    """Observes 30 steps; in the middle, the other library's state is loaded."""
    seen = []
    opt = optimizer(lib, algorithm, tensors)
    schedule = make(lib.optim.lr_scheduler, opt)
    for n in range(STEPS):
        if n == SWAPPED:
            saved = state_after(other, make, algorithm, tensors)
            schedule.load_state_dict(saved)
        seen.append([plain(v) for v in schedule.get_last_lr()])
        seen.append(settings(opt))
        opt.step()
        advance(schedule, n)
    return [*seen, saved_plainly(schedule.state_dict())]


def advance(schedule, n: int) -> None:
    """Makes one step; a plateau schedule gets a loss that goes up and down."""
    if type(schedule).__name__ == "ReduceLROnPlateau":
        schedule.step(3 / (n + 1) + math.sin(n) / 5)
    else:
        schedule.step()


def state_after(lib, make, algorithm: str, tensors: bool) -> dict:
    """Returns the state after the first steps, without tensors."""
    opt = optimizer(lib, algorithm, tensors)
    schedule = make(lib.optim.lr_scheduler, opt)
    for n in range(SWAPPED):
        opt.step()
        advance(schedule, n)
    return copy.deepcopy(saved_plainly(schedule.state_dict()))


def saved_plainly(value):
    if isinstance(value, dict):
        return type(value)({k: saved_plainly(v) for k, v in value.items()})
    if isinstance(value, list | tuple):
        return [saved_plainly(v) for v in value]
    return None if inspect.isroutine(value) else plain(value)


def plain(value):
    return value.item() if isinstance(value, torch.Tensor | tg.Tensor) else value


def settings(opt) -> list:
    """Returns the groups' settings, except for the parameters."""
    return [{k: saved_plainly(v) for k, v in group.items() if k != "params"} for group in opt.param_groups]


def different(mine, theirs, what: str) -> list[str]:
    """Describes how nested values differ."""
    if isinstance(theirs, dict) and isinstance(mine, dict):
        if set(mine) != set(theirs):
            return [f"{what}: keys {sorted(mine)}, expected {sorted(theirs)}"]
        return [d for key in theirs for d in different(mine[key], theirs[key], f"{what}[{key!r}]")]
    if isinstance(theirs, list) and isinstance(mine, list) and len(mine) == len(theirs):
        pairs = enumerate(zip(mine, theirs, strict=True))
        return [d for i, (m, t) in pairs for d in different(m, t, f"{what}[{i}]")]
    if isinstance(theirs, float) and isinstance(mine, float | int):
        same = math.isclose(mine, theirs, rel_tol=1e-11, abs_tol=1e-14)
    else:
        same = mine == theirs and type(mine) is type(theirs)
    return [] if same else [f"{what}: {mine!r}, expected {theirs!r}"]


def warnings_of(lib, make) -> list[str]:
    """Returns the warnings for steps in the wrong order, for computing the next rate outside a step, for jumping to an
    epoch, and for an overridden step.
    """
    opt = optimizer(lib, "SGD")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        schedule, overridden = (make(lib.optim.lr_scheduler, o) for o in (opt, optimizer(lib, "SGD")))
    overridden.optimizer.step = lambda: None
    plateau = type(schedule).__name__ == "ReduceLROnPlateau"
    measured = [1.0] if plateau else []
    heard = []
    for attempt in (
        lambda: schedule.step(*measured),
        lambda: schedule.get_lr(),
        lambda: schedule.step(*measured, epoch=3),
        lambda: overridden.step(*measured),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                attempt()
                heard.append("fine")
            except Exception as error:
                heard.append(f"{type(error).__name__}: {error}" if plateau else type(error).__name__)
        heard.append([f"{w.category.__name__}: {str(w.message).partition(' Please open an issue')[0]}" for w in caught])
    return heard


def raised(lib, attempt) -> str:
    """Returns `Type: text` of the exception."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            attempt(lib.optim.lr_scheduler, optimizer(lib, "SGD"))
    except Exception as error:
        return f"{type(error).__name__}: {error}".replace("tensorgrad.", "torch.")
    return "nothing"
