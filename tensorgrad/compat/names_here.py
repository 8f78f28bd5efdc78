"""Says what a name of PyTorch's is here: present, absent, or something that stands in for it."""

from __future__ import annotations

import functools
import inspect
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

from tensorgrad.compat import stand_ins
from tensorgrad.system.absent_names import ABSENT, REFUSES

PRESENT, ABSENT_HERE, REFUSED = "present", "absent", "refuses"
_OPEN = ("torch.ops", "torch.classes")  # namespaces that libraries add their own operators to
_MISSING = object()


class Found(NamedTuple):
    """What a name is here."""

    state: str  #: PRESENT, ABSENT_HERE or REFUSED
    place: str  #: the part of the name that the state is about: `torch.a` of `torch.a.b` if there is no `torch.a`
    reason: str = ""


@functools.cache
def found(name: str) -> Found:
    """Returns what a name is here: it is walked through modules and classes, as far as those go.

    >>> from tensorgrad.compat.names_here import found
    >>> found("torch.nn.Linear.forward").state, found("torch.nn.Lineer").state
    ('present', 'absent')
    >>> found("torch.cuda._memory_viz.trace_plot").state
    'refuses'
    """
    first, *rest = name.split(".")
    place, value = first, _module(first)
    for part in rest:
        if place in _OPEN:
            break
        outer, place = place, f"{place}.{part}"
        try:
            value = _inside(value, outer, part)
        except ImportError:  # here, and needs a package that is not installed, as in PyTorch: utils.tensorboard
            break
        if value is _MISSING:
            kind, _, advice = ABSENT.get(place, (None, "", ""))
            if kind == REFUSES:
                return Found(REFUSED, place, advice)
            if kind is None:
                return Found(ABSENT_HERE, place)
            break
        if not isinstance(value, ModuleType) and not inspect.isclass(value):
            break
        if inspect.isclass(value) and "_not_included" in vars(value) and place not in ABSENT:
            return Found(REFUSED, place, vars(value)["_not_included"])
    return Found(PRESENT, name)


def _module(full: str) -> Any:
    """The module of tensorgrad that has a module's name in PyTorch; those of absent names among them."""
    ours = f"tensorgrad.{full}" if full.startswith("functorch") else "tensorgrad" + full.removeprefix("torch")
    try:
        return import_module(ours)
    except ImportError:
        return stand_ins.AbsentModule(full) if stand_ins.names_in(full) and full not in ABSENT else _MISSING


def _inside(value: Any, outer: str, part: str) -> Any:
    if isinstance(value, stand_ins.AbsentModule):
        return _module(f"{outer}.{part}")
    inner = getattr(value, part, _MISSING)
    return _module(f"{outer}.{part}") if inner is _MISSING and isinstance(value, ModuleType) else inner
