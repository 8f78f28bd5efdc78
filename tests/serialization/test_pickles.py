"""What `torch.save` writes names only what PyTorch has, and is read there; what PyTorch writes is read here."""

import copy
import io
import pickle
import pickletools
import warnings
import zipfile

import numpy as np
import pytest

import tensorgrad as tg
from tensorgrad.serialization.names import pytorch_name
from tests.conformance import pickledb
from tests.support.alike import alike
from tests.support.compare import saved

try:
    import torch
except ImportError:
    torch = None

needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed: nothing to compare with")
INSIDE = ("TransformerEncoder", "TransformerDecoder")  # parts of the Transformer
pytestmark = pytest.mark.filterwarnings("ignore")
MODULES = {f"{name}{'' if i == 0 or pickledb.MODULES[i - 1][0] != name else ' again'}": (name, *rest)
           for i, (name, *rest) in enumerate(pickledb.MODULES) if rest[0] is not None}  # fmt: skip
VALUES = {**pickledb.VALUES, **{
    f"nn.{what}": pickledb._module(name, *args, **keywords) for what, (name, args, keywords, _) in MODULES.items()
}}  # fmt: skip


def names_in(file: io.BytesIO) -> set[str]:
    """The names that the pickle in a file asks for."""
    with zipfile.ZipFile(file) as archive:
        text = archive.read(next(name for name in archive.namelist() if name.endswith("data.pkl")))
    file.seek(0)
    return {argument.replace(" ", ".") for op, argument, _ in pickletools.genops(text) if op.name == "GLOBAL"}


def of_pytorch(name: str):
    """The thing of that name in PyTorch. Raises: AttributeError or ImportError if there is none."""
    import importlib

    module, _, name = name.rpartition(".")
    return getattr(importlib.import_module(module), name)


def test_every_public_module_is_in_the_table():
    public = {
        n for n in tg.nn.__all__ if isinstance(getattr(tg.nn, n), type) and issubclass(getattr(tg.nn, n), tg.nn.Module)
    }
    assert public - {name for name, *_ in pickledb.MODULES} <= {"RNNBase", "RNNCellBase", *INSIDE}


@pytest.mark.parametrize("what", VALUES)
def test_files_name_nothing_of_ours(what):
    names = names_in(saved(VALUES[what](tg)))
    assert not [name for name in names if name.startswith("tensorgrad")]
    if torch is not None:
        for name in names:
            if name.startswith("torch."):
                of_pytorch(name)


@needs_torch
def test_classes_have_the_names_that_pytorch_gives_them():
    """Or else `safe_globals([torch.nn.Linear])` would not allow what a file calls so."""
    rooms = (
        "nn", "nn.utils.rnn", "nn.utils.prune", "nn.parameter", "optim", "optim.lr_scheduler", "optim.swa_utils",
        "distributions", "distributions.transforms", "utils.data", "autograd.graph", "amp",
    )  # fmt: skip
    wrong, seen = [], 0
    for room in rooms:
        mine, theirs = (of_pytorch_or_here(library, room) for library in ("tensorgrad", "torch"))
        for name in dir(mine):
            ours, original = getattr(mine, name, None), getattr(theirs, name, None)
            if name.startswith("_") or not isinstance(ours, type) or not isinstance(original, type):
                continue
            if ours.__module__.startswith("tensorgrad") and original.__module__.startswith("torch"):
                seen += 1
                if str(pytorch_name(ours)) != f"{original.__module__}.{original.__qualname__}":
                    wrong.append((room, name, str(pytorch_name(ours)), original.__module__))
    assert not wrong and seen > 300


def of_pytorch_or_here(library: str, room: str):
    import importlib

    return importlib.import_module(f"{library}.{room}")


@pytest.mark.parametrize("what", VALUES)
def test_declared_public_classes_are_enough(what):
    """Six programs of many did just this: the public classes of their model, and `weights_only=True`."""
    value = VALUES[what](tg)
    if not isinstance(value, tg.nn.Module):
        pytest.skip("no module")
    file = saved(value)
    classes = {type(module) for module in value.modules()}
    others = {n for n in names_in(file) if n.startswith(("__builtin__.", "torch.nn.utils", "torch.nn.functional"))}
    if "__builtin__.getattr" in others or "__builtin__.print" in others:
        pytest.skip("hooks: the file calls functions")
    functions = [tg.nn.functional.relu, tg.nn.functional.gelu, *(type(h) for m in value.modules() for h in hooks_of(m))]
    with tg.serialization.safe_globals([*classes, *functions, tg.nn.functional.pairwise_distance]):
        loaded = tg.load(file, weights_only=True)
    assert type(loaded) is type(value) and repr(loaded) == repr(value)
    assert list(loaded.state_dict()) == list(value.state_dict())


def hooks_of(module):
    own = vars(module)
    for table in ("_forward_pre_hooks", "_state_dict_hooks", "_load_state_dict_pre_hooks"):
        for hook in own.get(table, {}).values():
            yield hook
            if hasattr(hook, "hook"):
                yield hook.hook
            yield getattr(getattr(hook, "hook", hook), "fn", None)


# --- both ways -------------------------------------------------------------------------------------------------------


def called(module, shapes, library) -> list:
    """The results of a module on fixed random input, as arrays."""
    rng = np.random.default_rng(0)
    inputs = [library.tensor(rng.random(shape), dtype=library.float32) for shape in shapes]
    module.eval()
    result = module(*inputs)

    def leaves(value):
        if isinstance(value, tuple | list):
            return [leaf for v in value for leaf in leaves(v)]
        return [] if value is None else [value.detach().numpy()]

    return leaves(result)


def keys(module) -> list[tuple[str, list[str]]]:
    """The attributes of all modules in a tree. (Handles and views that PyTorch makes anew are not compared.)"""
    found = []
    for name, part in module.named_modules():
        state = part.__reduce_ex__(2)[2]
        state.pop("_flat_weight_refs", None)
        found.append((name, sorted(state)))
    return found


@needs_torch
@pytest.mark.parametrize("what", MODULES)
def test_modules_go_to_pytorch_and_back(what):
    name, args, keywords, shapes = MODULES[what]
    tg.manual_seed(1)
    mine = getattr(tg.nn, name)(*args, **keywords)
    theirs = torch.load(saved(mine), weights_only=False)
    assert type(theirs) is getattr(torch.nn, name) and repr(theirs) == repr(mine)
    fresh = getattr(torch.nn, name)(*args, **keywords)
    for (place, found), (_, expected) in zip(keys(theirs), keys(fresh), strict=True):
        assert not set(expected) - set(found), (place, sorted(set(expected) - set(found)))
    back = tg.load(saved(theirs, torch), weights_only=False)
    assert type(back) is type(mine) and repr(back) == repr(mine) and list(back.state_dict()) == list(mine.state_dict())
    if shapes is not None:
        for other in (theirs, back, copy.deepcopy(mine), pickle.loads(pickle.dumps(mine))):
            library = torch if other is theirs else tg
            for a, b in zip(called(mine, shapes, tg), called(other, shapes, library), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        assert set(map(str, theirs.double().state_dict())) == set(fresh.state_dict())


@needs_torch
@pytest.mark.parametrize("what", pickledb.VALUES)
def test_values_go_to_pytorch_and_back(what):
    mine, original = pickledb.VALUES[what](tg), pickledb.VALUES[what](torch)
    theirs = torch.load(saved(mine), weights_only=False)
    assert type(theirs) is type(original) or what == "buffer"  # a Buffer is a tensor with a mark there
    back = tg.load(saved(theirs, torch), weights_only=False)
    assert type(back) is type(mine)
    here = tg.load(saved(original, torch), weights_only=False)
    assert type(here) is type(mine) or what == "buffer"
    if "optim.LBFGS" in what:
        return  # PyTorch's loses its parameters in a pickle
    if isinstance(mine, tg.optim.Optimizer | tg.optim.lr_scheduler.LRScheduler):
        for other in (theirs, back, here):
            other.step(*([0.5] if "Plateau" in what else []))
            other.state_dict()
    if isinstance(mine, tg.distributions.Distribution):
        for other in (theirs, back, here):
            assert repr(other) == repr(mine)
            if what != "distributions.Gumbel":  # in a pickle of PyTorch its transforms lose what they invert
                other.sample()
    if isinstance(mine, tg.Generator):
        assert [back.initial_seed(), here.initial_seed()] == [3, 3]
        drawn = torch.rand(3, generator=theirs).tolist()
        assert drawn == tg.rand(3, generator=back).tolist() == tg.rand(3, generator=here).tolist()


# --- members in plain tables -----------------------------------------------------------------------------------------


class OwnState(tg.nn.Module):
    """A module that packs and unpacks itself, as many programs do."""

    def __init__(self):
        super().__init__()
        self.layer = tg.nn.Linear(2, 3)
        self.scale = tg.nn.Parameter(tg.ones(3))

    def __getstate__(self):
        return self.__dict__.copy()

    def __setstate__(self, state):
        self.__dict__.update(state)

    def forward(self, x):
        return self.layer(x) * self.scale


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)),
                                    lambda m: tg.load(saved(m), weights_only=False)])  # fmt: skip
def test_modules_with_a_state_of_their_own_stay_alive(copied):
    made = copied(OwnState())
    x = tg.ones(1, 2)
    assert made(x).shape == (1, 3)
    made.scale = tg.nn.Parameter(tg.zeros(3))
    made.layer = tg.nn.Linear(2, 3)
    assert made(x).tolist() == [[0, 0, 0]] and made.layer is made._modules["layer"]
    seen = []
    made.register_forward_hook(lambda *_: seen.append(1))
    made(x)
    assert seen == [1] and made.scale is made._parameters["scale"]


def test_a_module_keeps_its_hooks():
    layer = pickledb._hooked(tg)
    for made in (copy.deepcopy(layer), tg.load(saved(layer), weights_only=False), pickle.loads(pickle.dumps(layer))):
        assert list(made._forward_hooks.values()) == [print] and made._hooked
    if torch is not None:
        made = tg.load(saved(pickledb._hooked(torch), torch), weights_only=False)
        assert list(made._forward_hooks.values()) == [print] and made._hooked


def test_handles_travel():
    layer = tg.nn.Linear(1, 1)
    seen: list = []
    layer.handle = layer.register_forward_pre_hook(print)
    made = tg.load(saved(layer), weights_only=False)
    made.handle.remove()
    assert not made._forward_pre_hooks and len(layer._forward_pre_hooks) == 1
    assert made.register_forward_hook(seen.append).id != layer.handle.id


# --- the environment -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("yes", ["1", "y", "YES", "true", "0", "no"])
@pytest.mark.parametrize("given", [None, True, False])
@pytest.mark.parametrize("names", [(), ("",), ("NO_",), ("", "NO_")])
def test_the_environment_can_force_weights_only(names, given, yes, monkeypatch):
    for name in names:
        monkeypatch.setenv(f"TORCH_FORCE_{name}WEIGHTS_ONLY_LOAD", yes)

    def outcome(library):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                loaded = type(library.load(saved(library.nn.ReLU(), library), weights_only=given)).__name__
            except RuntimeError as error:
                loaded = str(error)
            except pickle.UnpicklingError:
                loaded = "refused"
        return loaded, [str(w.message) for w in caught if "FORCE" in str(w.message)]

    found = outcome(tg)
    on = yes.lower() in ("1", "y", "true", "yes")
    if names and on and len(names) == 2:
        assert "Only one of" in found[0]
    elif names == ("",) and on:
        assert found[0] == "refused"
    elif names == ("NO_",) and on and given is None:
        assert found[0] == "ReLU" and len(found[1]) == 1
    else:
        assert found == ("ReLU" if given is False else "refused", [])
    if torch is not None:
        assert found == outcome(torch)


@alike
def test_dtypes_are_pickled_by_name(torch):
    kinds = torch.float32, torch.int64, torch.bool, torch.complex64, torch.bfloat16
    assert all(pickle.loads(pickle.dumps(d)) is d and copy.deepcopy([d])[0] is d for d in kinds)
    return [d.__reduce_ex__(2) for d in kinds]  # writers of YAML refuse objects that say this
