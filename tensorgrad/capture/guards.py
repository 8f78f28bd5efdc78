"""The comparisons before a plan runs, written out as Python functions: all that is known of a call is built in.

They say yes only where the general comparison (`kind_of` in capture/region.py, `State.same` in capture/state.py) would,
and may say no where it would say yes: then that decides.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from tensorgrad.dispatch.codegen import function_of
from tensorgrad.kernels.compiled.runtime.identities import Comparisons, slot, usable
from tensorgrad.tensor import PLAIN, Tensor, share

ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "absent"})()


def arguments_check(args: tuple, kwargs: dict, modes: Any) -> Any:
    """A function (args, kwargs) -> the tensors among them if they are of the kind of these, else None.

    `modes` says whether those of the thread are the same (`ModesOfThread` in capture/running.py). Returns None for
    arguments in containers.
    """
    values: dict[str, Any] = {"ndarray": np.ndarray, "overlap": np.may_share_memory, "modes": modes}
    names = [f"t{i}" for i in range(len(args) + len(kwargs))]
    lines = [f"if len(args) != {len(args)} or {f'tuple(kwargs) != {tuple(kwargs)!r}' if kwargs else 'kwargs'}:"]
    lines += ["    return None"]
    if args:
        lines.append(f"{', '.join(names[: len(args)])}, = args")
    lines += [f"{t} = kwargs[{name!r}]" for t, name in zip(names[len(args) :], kwargs, strict=True)]
    tests, tensors = ["(modes.same() or modes.learned())"], list[str]()
    for t, value in zip(names, (*args, *kwargs.values()), strict=True):
        values[f"c_{t}"], values[f"k_{t}"] = value.__class__, value
        if value.__class__ in PLAIN:
            if value.requires_grad not in (True, False):
                return None
            tests += _of_tensor(t, value, values)
            tests += [f"({u} is not {t} and (m_{t} is None or m_{u} is not m_{t}) and not overlap(a_{u}, a_{t}))"
                      for u in tensors]  # fmt: skip
            tensors.append(t)
            del values[f"k_{t}"]
        elif isinstance(value, tuple | list | dict | Tensor):
            return None
        elif value.__class__ in (int, str, bytes):
            tests += [f"{t}.__class__ is c_{t}", f"{t} == k_{t}"]
        elif value.__class__ in (float, complex):
            values[f"k_{t}"] = repr(value)
            tests += [f"{t}.__class__ is c_{t}", f"repr({t}) == k_{t}"]
        else:
            tests.append(f"{t} is k_{t}")
    lines += [f"if {' and '.join(tests)}:", f"    return ({''.join(f'{t}, ' for t in tensors)})", "return None"]
    text = "\n".join(["def fits(args, kwargs):", *(f"    {line}" for line in lines), ""])
    return function_of(text, values, {"__name__": "tensorgrad.plan"}, "fits")


def _of_tensor(t: str, value: Tensor, values: dict[str, Any]) -> list[str]:
    array, memory = value._array, value._memory
    values[f"d_{t}"] = array.dtype
    inference = memory is not None and memory.version is None
    made = f"((m_{t} := {t}._memory) is not None and m_{t}.version is None) is {inference}"
    return [
        f"{t}.__class__ is c_{t}", f"(a_{t} := {t}._array).__class__ is ndarray", f"a_{t}.shape == {array.shape}",
        f"a_{t}.dtype is d_{t}", f"a_{t}.strides == {array.strides}", f"{t}._requires_grad is {value.requires_grad}",
        f"{t}._hooks is None", f"not {t}.__dict__", made, f"({t}._grad is None) is {value._grad is None}",
    ]  # fmt: skip


@cache
def places_in_tensors() -> dict[str, int | None]:
    """Where tensors have what is compared."""
    example = share(np.empty(0), None)
    return {name: slot(example, name) for name in ("_array", "_hooks", "_requires_grad", "_grad")}


class Nothing:
    """In the place of `Comparisons` where there is no machine code: Python compares everything."""

    def _no(self, *given: Any) -> bool:
        return False

    item = items = length = elements = attribute = content = part = reference = _no

    def function(self) -> None:
        """There is none."""


def state_check(
    dicts: list,
    orders: list,
    lists: list,
    sets: list,
    cells: list,
    functions: list,
    references: list,
    held: list,
    gradients_count: bool,
    hooks_count: bool = True,
) -> Callable[[], bool]:
    """A function that says whether everything is the same object: one expression.

    It may raise KeyError, IndexError or ValueError, which is a no.
    """
    values: dict[str, Any] = {"ABSENT": ABSENT, "get": dict.get}
    names: dict[int, str] = {}

    def named(value: Any) -> str:
        if value is None:
            return "None"
        if id(value) not in names:
            names[id(value)] = f"k{len(values)}"
            values[names[id(value)]] = value
        return names[id(value)]

    fast = Comparisons() if usable() else Nothing()
    whole: set[int] = set()  # dictionaries whose keys, in their order, are compared
    tests = []
    for scope, keys, wanted, found, _ in dicts:
        own = named(scope)
        if keys is not None:
            known = dict(zip(wanted, found, strict=True))
            if fast.items(scope, {key: known.get(key, ABSENT) for key in keys}, ABSENT):
                whole.add(id(scope))
                continue
            if not set(keys) <= set(wanted):
                tests.append(f"tuple({own}) == {named(keys)}")
            elif not fast.length(scope, len(keys)):
                tests.append(f"len({own}) == {len(keys)}")
        for name, value in zip(wanted, found, strict=True):
            if fast.item(scope, name, value, ABSENT):
                continue
            if scope.__class__ is not dict and isinstance(scope, dict):  # it may have a `__missing__`
                tests.append(f"get({own}, {named(name)}, ABSENT) is {named(value)}")
            elif value is ABSENT:
                tests.append(f"{name!r} not in {own}")
            else:
                tests.append(f"{own}[{named(name) if name.__class__ is not str else repr(name)}] is {named(value)}")
    orders = [(scope, keys) for scope, keys in orders if id(scope) not in whole]
    if orders:
        every = [key for _, keys in orders for key in keys]
        tests.append(f"[{', '.join(f'*{named(scope)}' for scope, _ in orders)}] == {named(every)}")
    for owner, items, _ in lists:
        if owner is not None and not (fast.elements(owner, items) or (not items and fast.length(owner, 0))):
            tests.append(f"len({named(owner)}) == {len(items)}")
            tests += [f"{named(owner)}[{i}] is {named(item)}" for i, item in enumerate(items)]
    for found, items, _ in sets:
        if found.__class__ is frozenset or (not items and fast.length(found, 0)):
            continue
        tests.append(f"tuple({named(found)}) == {named(items)}" if items else f"not {named(found)}")
    for cell, value, _ in cells:
        if not fast.content(cell, value, ABSENT):
            tests.append(f"{named(cell)}.cell_contents is {named(value)}")
    for function, *parts, _ in functions:
        for name, value in zip(("__code__", "__defaults__", "__kwdefaults__"), parts, strict=True):
            if not fast.part(function, name, value):
                tests.append(f"{named(function)}.{name} is {named(value)}")
    for owner, name, value, _ in references:
        if not fast.reference(owner, name, value):
            tests.append(f"type({named(owner)}) is {named(value)}" if name == "__class__" else
                         f"{named(owner)}.{name} is {named(value)}")  # fmt: skip
    places = places_in_tensors() if held and isinstance(fast, Comparisons) else {}
    for tensor, array, requires_grad, no_grad, _ in held:
        known = {"_array": (array, True), "_requires_grad": (requires_grad, True)}
        if hooks_count:
            known["_hooks"] = None, True
        if gradients_count:
            known["_grad"] = None, no_grad
        for name, (value, equal) in known.items():
            if not fast.attribute(tensor, name, value, places.get(name), equal):
                tests.append(f"{named(tensor)}.{name} is {'' if equal else 'not '}{named(value)}")
    compare = fast.function()
    if compare is not None:
        values["compare"] = compare
        tests.insert(0, "compare()")
    lines = [f"    if not ({' and '.join(tests[i : i + 50])}): return False" for i in range(0, len(tests), 50)]
    if compare is not None and len(tests) == 1:
        return compare
    return function_of(
        "\n".join(["def same():", *lines, "    return True", ""]), values, {"__name__": "tensorgrad.plan"}, "same"
    )
