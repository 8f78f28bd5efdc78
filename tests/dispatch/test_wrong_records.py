"""Wrong values in each place of right calls: what PyTorch refuses is refused here, with its type of exception, and what
it accepts is accepted.

The calls are those of PyTorch's op database; each run takes the same sample of its records. A value that is accepted
silently gives a number that nobody asked for.
"""

import inspect
import warnings

import pytest

import tensorgrad

torch = pytest.importorskip("torch", reason="torch is the oracle of these tests")
pytest.importorskip("expecttest", reason="PyTorch's test database imports expecttest")
opdb = pytest.importorskip("tests.conformance.opdb")
bridge = pytest.importorskip("tests.conformance.opdb_bridge")

pytestmark = pytest.mark.filterwarnings("ignore")

FIRST, STEP = 5, 17  # of the records
WRONG = {
    "str": "a", "None": None, "float": 1.5, "beyond 64 bits": 2**70, "object": object(), "[]": [], "complex": 1j,
    "list": [1.5], "bool": True, "matrix": [[1.5, 2.0], [3.0, 4.0]],
}  # fmt: skip
# What is otherwise here, by function and argument ("" for all): the reason.
_NONE = "None where it is the default, which PyTorch tells apart from what was not given"
_CAST = "the kernel's dtypes are checked before those of the result"
APART = {
    ("arange", "1"): _NONE, ("std_mean", "unbiased"): _NONE, ("std_mean", "correction"): _NONE,
    ("Tensor.bitwise_left_shift_", "1"): _CAST, ("Tensor.bitwise_xor_", "1"): _CAST,
    ("nn.functional.bilinear", "2"): "the shape of the weight is used first",
    ("nn.functional.dropout", "p"): "a matrix is refused, in PyTorch the truth of a comparison",
}  # fmt: skip
# Functions that the database spells itself, or that PyTorch calls in another way.
SKIPPED = ("_refs", "ops.", "slice", "__r", "stft", "istft")


def outcome(function, inputs, kwargs):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(*inputs, **kwargs)
    except Exception as error:
        return type(error).__name__, str(error)
    return "", ""


def forms(record):
    """Function, method and in-place method: (name, torch's, ours)."""
    yield record.name, record.op, opdb.resolve(record)
    for name, method in ((record.name, record.method_variant), (f"{record.name}_", record.inplace_variant)):
        ours = getattr(tensorgrad.Tensor, name, None)
        if method is not None and ours is not None:
            yield f"Tensor.{name}", method, ours


def sample(record):
    for dtype in (torch.float32, torch.int64, torch.bool, torch.complex64):
        if dtype in record.dtypes:
            found = opdb.calls(record, dtype, limit=6, elements=60)
            if found:
                return max(found, key=lambda call: len(call.inputs) + len(call.kwargs))
    return None


def places(record, call, ours):
    """The places of a call's arguments, and the names of those that have a default."""
    yield from range(len(call.inputs))
    yield from call.kwargs
    try:
        parameters = inspect.signature(getattr(tensorgrad, record.name, ours)).parameters.values()
    except (TypeError, ValueError):
        return
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    yield from (n for n in named[len(call.inputs) :] if n not in call.kwargs and n not in ("out", "generator"))


def attempt(library, function, call, place, label):
    inputs, kwargs = (bridge.copied if library is torch else bridge.to_tg)((call.inputs, call.kwargs))
    value = library.tensor(WRONG[label]) if label == "matrix" else WRONG[label]
    if isinstance(place, int):
        inputs = [*inputs[:place], value, *inputs[place + 1 :]]
    else:
        kwargs = {**kwargs, place: value}
    return outcome(function, inputs, kwargs)


def differs(expected: str, found: str, label: str) -> bool:
    """A TypeError where PyTorch's code in Python misses an attribute is better. An integer beyond 64 bits is refused by
    its size here, also where PyTorch refuses every integer."""
    if label == "beyond 64 bits" and (expected, found) == ("TypeError", "ValueError"):
        return False
    return found != expected and (expected, found) != ("AttributeError", "TypeError")


def test_wrong_values_in_each_place():
    apart, tried = [], 0
    for record in opdb.records()[FIRST::STEP]:
        known = opdb.resolve(record) is not None and not record.name.startswith(SKIPPED)
        call = sample(record) if known else None
        for name, theirs, ours in forms(record) if call else ():
            for place in places(record, call, ours):
                if (place == 0 and name.startswith("Tensor.")) or (name, str(place)) in APART or (name, "") in APART:
                    continue
                for label in WRONG:
                    expected, told = attempt(torch, theirs, call, place, label)
                    found, said = attempt(tensorgrad, ours, call, place, label)
                    tried += bool(expected)
                    if differs(expected, found, label):
                        apart.append(f"{name}({place}={label}): {expected} {told[:60]!r}, here {found} {said[:60]!r}")
    assert not apart, "\n".join(apart)
    assert tried > 1000
