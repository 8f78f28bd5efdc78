"""What `help`, `inspect` and tooltips show as parameters: what a function or method takes, as PyTorch names it."""

import inspect
import subprocess
import sys

import pytest

import tensorgrad as tg
from tensorgrad.dispatch.kinds import FUNCTIONS
from tensorgrad.dispatch.signatures import Promised
from tests.support.processes import ROOT

VAGUE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
# Methods for devices that PyTorch has and this package does not: they raise whatever is given.
TWO_FORMS = {"set_autocast_enabled"}  # (enabled), or (device_type, enabled)
ABSENT = {"ipu", "mtia", "reinforce", "to_mkldnn", "to_padded_tensor", "xpu"}


def is_vague(function) -> bool:
    """Whether a signature says nothing: `(*args, **kwargs)`, with or without the tensor before it."""
    parameters = list(inspect.signature(function).parameters.values())
    named = [p.name for p in parameters if p.kind not in VAGUE]
    return any(p.kind is p.VAR_KEYWORD and p.name == "kwargs" for p in parameters) and not {*named} - {"self", "input"}


def functions_of(place):
    return {n: f for n in dir(place) if n[0] != "_" and inspect.isroutine(f := getattr(place, n))}


@pytest.mark.parametrize("name", ["", "fft", "linalg", "nn.functional", "special"])
def test_every_function_shows_what_it_takes(name):
    place = tg
    for part in filter(None, name.split(".")):
        place = getattr(place, part)
    found = functions_of(place)
    assert len(found) > 15
    assert not {name for name, function in found.items() if is_vague(function)} - TWO_FORMS


def test_every_method_shows_what_it_takes():
    vague = {name for name, function in functions_of(tg.Tensor).items() if is_vague(function)}
    assert not vague - ABSENT - {f"{name}_" for name in ABSENT}


def test_the_signature_does_not_change_when_the_function_is_first_called():
    """What stands for a function then takes over the code of the real one, whose defaults tell what was left out."""
    program = (
        "import inspect, tensorgrad as torch\n"
        "functions = torch.cumsum, torch.Tensor.mul_, torch.add, torch.squeeze\n"
        "before = [str(inspect.signature(f)) for f in functions]\n"
        "x = torch.ones(2); torch.cumsum(x, 0); x.mul_(2); torch.add(x, 1); torch.squeeze(x)\n"
        "assert before == [str(inspect.signature(f)) for f in functions]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_a_signature_is_like_any_other():
    signature = inspect.signature(tg.cumsum)
    assert isinstance(signature, inspect.Signature)
    assert signature.bind(1, dim=2).arguments == {"input": 1, "dim": 2}
    assert list(signature.replace(return_annotation=int).parameters) == ["input", "dim", "dtype", "out"]
    assert list(inspect.signature(tg.ones(2).mul_).parameters) == ["other"]
    with pytest.raises(AttributeError):
        signature.no_such_attribute


def test_parameters_have_pytorchs_names():
    """Those of one of the overloads in PyTorch's own schemas, in their order."""
    torch = pytest.importorskip("torch")
    checked, wrong = 0, {}
    for name, function in FUNCTIONS.items():
        if not isinstance(getattr(function, "__signature__", None), Promised) or name.startswith("_"):
            continue
        packet = getattr(torch.ops.aten, name, None)
        if packet is None or not hasattr(torch, name):
            continue
        ours = ["input" if p == "self" else p for p in inspect.signature(function).parameters if p != "out"]
        schemas = [getattr(packet, overload)._schema for overload in packet.overloads()]
        theirs = [["input" if a.name == "self" else a.name for a in s.arguments if not a.is_out] for s in schemas]
        checked += 1
        if ours not in theirs and name not in OTHERWISE:
            wrong[name] = ours, theirs
    assert checked > 150
    assert not wrong


# Here `swapaxes` is `transpose` itself, and `rrelu_` takes no generator.
OTHERWISE = {"rrelu_", "swapaxes"}
