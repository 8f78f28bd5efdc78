"""The flags and numbers that guards check for functions which PyTorch writes in Python (`_PASSED_ON` in guard.py) are
arguments of the operators that these functions call, and such arguments are checked.
"""

import inspect
import re

import pytest

import tensorgrad
from tensorgrad.dispatch import guard
from tensorgrad.overriding.caller_arguments import IN_PYTHON

torch = pytest.importorskip("torch", reason="PyTorch's schemas are the oracle of this test")

# What the operator calls otherwise, or what another function of Python's passes on.
RENAMED = {"training": "train"}
BY_ANOTHER = {
    **{key: {"max_norm"} for key in ("embedding", "embedding_bag")},
    **{key: {"dim"} for key in ("softmax", "softmin", "log_softmax")},
    **{f"{kind}{d}d": {"ceil_mode"} for kind in ("lp_pool", "max_pool") for d in (1, 2, 3)},
    "unique": {"return_counts", "return_inverse", "sorted"},
    "unique_consecutive": {"return_counts", "return_inverse"},
    "symeig": {"upper"},  # removed: raises
}
# Words, of which each function of Python's makes numbers; what others compute with before they pass it on.
WORDS = {"reduction", "mode", "padding_mode", "indexing"}
COMPUTED = {
    "embedding": {"padding_idx"},
    "interpolate": {"align_corners"},
    "multi_margin_loss": {"margin", "p"},
    "stft": None,
}


def arguments():
    """The names of the arguments of each operator, all overloads together."""
    found = {}
    for schema in torch._C._jit_get_all_schemas():
        room, _, name = schema.name.partition("::")
        if room == "aten":
            found.setdefault(name, set()).update(argument.name for argument in schema.arguments)
    return found


def test_what_is_checked_is_passed_on():
    schemas, apart, tried = arguments(), [], 0
    for room, names in IN_PYTHON.items():
        here = tensorgrad.nn.functional if room.endswith("functional") else tensorgrad
        there = torch.nn.functional if room.endswith("functional") else torch
        for name in names:
            function, theirs = getattr(here, name, None), getattr(there, name, None)
            if not hasattr(function, "__wrapped__") or theirs is None or COMPUTED.get(name, ()) is None:
                continue
            composite = function.__wrapped__
            plain = {*guard._flags(composite), *(p[0] for p in guard._plain_values(composite))} - WORDS
            checked = plain & guard._passed_on(function)
            called = re.findall(r"(?:torch|_VF|_nn)\.(\w+)\(", inspect.getsource(inspect.unwrap(theirs)))
            known = set().union(*(schemas.get(operator, ()) for operator in called))
            unknown = {p for p in checked if not known & {p, RENAMED.get(p)}} - BY_ANOTHER.get(name, set())
            missed = (plain & known) - checked - COMPUTED.get(name, set())
            tried += len(checked)
            if unknown or missed:
                apart.append(f"{name}: not passed on {sorted(unknown)}, not checked {sorted(missed)}")
    assert not apart, "\n".join(apart)
    assert tried > 80
