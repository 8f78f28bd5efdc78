"""Docstrings answer where they are read: in a tooltip nobody follows "the arguments are those of `Adam`"."""

import inspect
import re

import pytest

import tensorgrad as torch

DEAD_END = re.compile(r"[Aa]rguments (are|as) those (of|in)|[Aa]rguments( and formula)?: `")
PLACES = {
    "torch": torch, "Tensor": torch.Tensor, "nn": torch.nn, "functional": torch.nn.functional, "optim": torch.optim,
    "lr_scheduler": torch.optim.lr_scheduler, "swa_utils": torch.optim.swa_utils, "linalg": torch.linalg,
    "fft": torch.fft, "special": torch.special, "data": torch.utils.data, "distributions": torch.distributions,
    "init": torch.nn.init, "func": torch.func, "nn.utils": torch.nn.utils,
}  # fmt: skip


def public(place) -> dict:
    values = {name: getattr(place, name) for name in dir(place) if name[0] != "_" and name != "Any"}
    return {name: value for name, value in values.items() if inspect.isclass(value) or inspect.isroutine(value)}


@pytest.mark.parametrize("place", PLACES)
def test_no_docstring_sends_its_reader_elsewhere(place):
    found = public(PLACES[place])
    assert found
    assert not [name for name, value in found.items() if DEAD_END.search(inspect.getdoc(value) or "")]


# --- arguments -----------------------------------------------------------------------------------------------------

# Parameters that mean the same everywhere, and those that PyTorch has replaced by `reduction`.
COMMON = {"self", "device", "dtype", "size_average", "reduce", "args", "kwargs", "options", "last_epoch", "foreach"}
# Classes whose docstring does not name every argument: layers that are another one but for the size that they find out
# themselves, and old names.
LAZY = {f"Lazy{kind}{n}d" for kind in ("BatchNorm", "Conv", "ConvTranspose", "InstanceNorm") for n in (1, 2, 3)}
NOT_YET: dict[str, set[str]] = {
    "nn": LAZY | {"Hardtanh", "NLLLoss2d", "SyncBatchNorm"}, "optim": set(), "lr_scheduler": set(),
}  # fmt: skip


def missing(cls) -> list[str]:
    """The parameters of a class that the section `Args` of its docstring does not name."""
    section = re.search(r"^Args:\n((?:    .*\n|\n)*)", (inspect.getdoc(cls) or "") + "\n", flags=re.M)
    named = re.findall(r"^    (\S[^:]*):", section[1], flags=re.M) if section else []
    names = {name.strip(" *`") for each in named for name in each.split(",")}
    given = [name for name in inspect.signature(cls).parameters if not name.startswith("_")]
    return [name for name in given if name not in names | COMMON]


@pytest.mark.parametrize("place", NOT_YET)
def test_every_class_says_what_its_arguments_are(place):
    """All layers, losses, optimizers and schedules but the few that are listed, which may only become fewer."""
    classes = {n: v for n, v in public(PLACES[place]).items() if inspect.isclass(v)}
    lacking = {name: missing(cls) for name, cls in classes.items() if missing(cls)}
    assert set(lacking) == NOT_YET[place], {n: v for n, v in lacking.items() if n not in NOT_YET[place]}


@pytest.mark.parametrize("place", NOT_YET)
def test_every_class_has_an_example(place):
    classes = {n: v for n, v in public(PLACES[place]).items() if inspect.isclass(v)}
    assert not [name for name, cls in classes.items() if ">>>" not in (cls.__doc__ or "")]
