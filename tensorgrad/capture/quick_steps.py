"""Steps of optimizers in plans: all parameters moved by one kernel, without Python for each.

An optimizer's step reads its settings, its hooks and the state of each parameter. While these are the very objects that
they were, which machine code compares in one call, the kernel gets the arrays that it would get from `step`, and the
coefficients that it got. Otherwise `step` runs. Where one thread moves all parameters of SGD, machine code runs the
launches of the first such step again, as a list.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tensorgrad.capture.guards import ABSENT, places_in_tensors
from tensorgrad.kernels.compiled.runtime import launch as compiled
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.identities import Comparisons, usable
from tensorgrad.kernels.compiled.runtime.launch import address
from tensorgrad.optim import optimizer as optimizers
from tensorgrad.optim.elementwise import Elementwise
from tensorgrad.rows.kernel_tables import COMPILED
from tensorgrad.settings import SETTINGS
from tensorgrad.storage.cuda.capture import RUNNING

_EACH = {"sgd_step": "sgd_each"}  # kernels that do the same by a launch for each parameter
_METHODS = ("step", "_step", "_step_group", "_settings_of", "_kernel_for", "_move")


class _Group(NamedTuple):
    """What the kernel gets for the parameters of a group: their arrays, with None in the places of gradients."""

    settings: Any
    params: list[Any]
    arrays: list[Any]
    width: int
    scalars: list[Any]


class _Listed(NamedTuple):
    """The launches of a step as a list, and the arrays that it takes after the gradients."""

    place: int
    arrays: list[np.ndarray]
    kept: list[Any]


class _Known(NamedTuple):
    """What a step is made of, and whether all that it was read from is still the same."""

    same: Callable[[], bool]
    kernel: Callable
    each: Callable | None  # the same by a launch for each parameter
    groups: list[_Group]
    listed: _Listed | None = None  # these launches


def quick_step(optimizer: Any) -> Callable[[tuple], None] | None:
    """A function that does what `optimizer.step()` does, given the arrays of all gradients in the order of the groups.

    None if the optimizer counts its steps, has a step of its own or no kernel, or if there is no machine code. It does
    not count the versions of the parameters: a plan does so itself.
    """
    known = _known(optimizer)
    if known is None:
        return None
    before: Any = None  # the settings of the last step that was not a quick one
    replay = compiled.replay()

    def step(gradients: tuple) -> None:
        nonlocal known, before
        now = known  # (another thread may replace it)
        if now is None or not now.same():
            optimizer.step()
            settings = _settings(optimizer)
            known, before = _known(optimizer) if settings is not None and settings == before else None, settings
            return
        optimizer._opt_called = True
        if now.listed is not None and replay(now.listed.place, *gradients, *now.listed.arrays):
            return
        kernel, first, all_taken = now.kernel if now.each is None else now.each, 0, True
        with thread_pool.listening() as heard:
            for settings, params, arrays, width, scalars in now.groups:
                given, last = arrays.copy(), first + len(params)
                given[1::width] = gradients[first:last]
                for n in kernel(given, scalars):  # the kernel does not take its arrays
                    optimizer._move(params[n], given[n * width : (n + 1) * width], settings, scalars[n], object())
                    all_taken = False
                first = last
        if now.each is not None:
            listed = _listed(heard, now.groups, gradients) if all_taken else None
            known = now._replace(each=None if listed is None else now.each, listed=listed)

    return step


def _listed(heard: list[thread_pool.Heard], groups: list[_Group], gradients: tuple) -> _Listed | None:
    """The launches of a step as a list, one for each parameter, if one thread ran each."""
    if any(h.several for h in heard):
        return None
    taken, launches, kept = list(gradients), [], list[Any]()
    own = [group.arrays[n : n + group.width] for group in groups for n in range(0, len(group.arrays), group.width)]
    for n, (launch, arrays) in enumerate(zip(heard, own, strict=True)):
        places = {address(gradients[n]): n}
        for a in arrays:
            if a is not None:
                places[address(a)] = len(taken)
                taken.append(a)
        numbers = compiled.numbers_of(launch.kernel, launch.arguments)
        for i, number in enumerate(numbers):
            if number.__class__ is np.ndarray:
                kept.append(number)
                place = places.get(address(number))
                numbers[i] = address(number) if place is None else (place, 0)
        launches.append((launch.kernel, launch.length, numbers))
    words = compiled.listed(taken, launches, sum(h.elements for h in heard) < thread_pool.WAKING)
    return _Listed(address(words), taken[len(gradients) :], [words, [a.dtype for a in taken], kept])


def _settings(optimizer: Any) -> list[tuple] | None:
    """The settings of all groups, if these are numbers and the like."""
    found = [optimizer._settings_of(i, group) for i, group in enumerate(optimizer.param_groups)]
    return [settings.seen for settings in found] if all(settings.steady for settings in found) else None


def _known(optimizer: Any) -> _Known | None:
    cls, own, row = type(optimizer), vars(optimizer), COMPILED.get(optimizer._kernel_name)
    if not usable() or row is None or row.ready is None or SETTINGS.deterministic or _settings(optimizer) is None:
        return None
    if any(getattr(cls, name) is not getattr(Elementwise, name) for name in _METHODS):
        return None
    fast, array = Comparisons(), places_in_tensors()["_array"]
    tables = optimizers._global_pre_hooks, optimizers._global_post_hooks, RUNNING
    hooks = optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks
    state, groups = optimizer.state, optimizer.param_groups
    found = [
        *(fast.length(table, 0) for table in (*tables, *hooks)),
        fast.item(COMPILED, optimizer._kernel_name, row, ABSENT),
        *(fast.item(own, name, own[name], ABSENT) for name in ("state", "param_groups")),
        fast.elements(groups, tuple(groups)), fast.items(state, dict(state), ABSENT),
    ]  # fmt: skip
    made = []
    for i, group in enumerate(groups):
        settings, params = optimizer._settings_of(i, group), group["params"]
        starts, names = settings.starts, settings.names
        if settings.flagged or "step" in starts or any(name not in state.get(p, ()) for p in params for name in starts):
            return None
        found += [fast.items(group, dict(group), ABSENT), fast.elements(params, tuple(params))]
        arrays: list[Any] = []
        for p in params:
            tensors = [p, *(state[p][name] for name in names if name)]
            found += [fast.attribute(tensor, "_array", tensor._array, array) for tensor in tensors]
            if starts:
                found.append(fast.items(state[p], dict(state[p]), ABSENT))
            arrays += [p._array, None, *[state[p][name]._array if name else None for name in names]]
        t = False if starts and optimizer._needs_t else None
        scalars = [settings.coefficients(optimizer, group, t)] * len(params)
        made.append(_Group(settings, list(params), arrays, 2 + len(names), scalars))
    same = fast.function()
    each = COMPILED.get(_EACH.get(optimizer._kernel_name, ""))
    alone = each.ready if each is not None and each.available() else None
    return None if same is None or not all(found) or "step" in own else _Known(same, row.ready, alone, made)
