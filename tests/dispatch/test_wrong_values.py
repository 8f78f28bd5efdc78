"""Flags that are not bools, factors that are not numbers, and integers beyond 64 bits, in calls of PyTorch's op
database that are right otherwise: PyTorch's type of error, and a message that names the argument.
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

FLAGS = {"str": "a", "int": 1, "float": 1.5, "list": [], "None": None, "object": object()}
FACTORS = {"str": "a", "list": [1.5], "None": None, "object": object(), "matrix": [[1.5, 2.0], [3.0, 4.0]]}
BEYOND = {"dim": (1 << 70, -(1 << 63) - 1)}
# What PyTorch's own code in Python uses in another way.
APART = ("stft", "nn.functional.local_response_norm", "nn.functional.rrelu", "signal.windows.", "masked.")


def values(name, parameter, there):
    """What a parameter is given that it does not take: (label, of the library there)."""
    if parameter.default is True or parameter.default is False:
        return FLAGS.items()
    if name in ("alpha", "beta", "value") and parameter.default.__class__ in (int, float):
        return [(k, there.tensor(v) if k == "matrix" else v) for k, v in FACTORS.items()]
    return [(str(v), v) for v in BEYOND.get(name, ())]


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
    for dtype in (torch.float32, torch.int64, torch.bool):
        if dtype in record.dtypes:
            found = opdb.calls(record, dtype, limit=6, elements=60)
            if found:
                return max(found, key=lambda call: len(call.inputs) + len(call.kwargs))
    return None


def test_flags_and_factors_and_large_dimensions():
    apart, tried = [], 0
    for record in list(opdb.records())[::3]:
        call = sample(record) if opdb.resolve(record) is not None and not record.name.startswith(APART) else None
        for name, theirs, ours in forms(record) if call else ():
            public = getattr(tensorgrad, record.name, ours)
            if not callable(public) or "<lambda>" in getattr(theirs, "__qualname__", ""):
                continue
            parameters = list(inspect.signature(public).parameters.values())[len(call.inputs) :]
            for p in parameters:
                pairs = zip(values(p.name, p, torch), values(p.name, p, tensorgrad), strict=True)
                for (label, wrong), (_, ours_wrong) in pairs:
                    inputs, kwargs = bridge.copied((call.inputs, call.kwargs))
                    expected, told = outcome(theirs, inputs, {**kwargs, p.name: wrong})
                    if not expected:
                        continue
                    inputs, kwargs = bridge.to_tg((call.inputs, call.kwargs))
                    found, said = outcome(ours, inputs, {**kwargs, p.name: ours_wrong})
                    tried += 1
                    if found != expected or (p.name in told and p.name not in said and p.name not in BEYOND):
                        apart.append(f"{name}({p.name}={label}): {expected}, here {found}: {said[:80]}")
    assert not apart, "\n".join(apart)
    assert tried > 500
