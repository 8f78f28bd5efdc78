"""Names that PyTorch has in out-of-the-way places: forward_ad, swap_tensors, hub, and what is not included."""

import importlib
import weakref

import pytest

import tensorgrad as tg
from tensorgrad.autograd import forward_ad
from tests.conftest import HAS_TORCH

needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="torch is the oracle of this test")

# --- derivatives along a direction -----------------------------------------------------------------------------------

FUNCTIONS = [
    lambda l, x: x * x, lambda l, x: x.exp().sum(), lambda l, x: l.softmax(x, 0), lambda l, x: x.sort().values * x,
    lambda l, x: (x > 0).to(x.dtype), lambda l, x: x.clone().mul_(3), lambda l, x: x[1:] @ x[:-1],
    lambda l, x: l.stack([x, x.flip(0)]).prod(0), lambda l, x: x.detach() * x, lambda l, x: l.outer(x, x).trace(),
]  # fmt: skip


@needs_torch
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_tangents_are_those_of_torch(function, dtype):
    import torch

    results = []
    for l in (torch, tg):
        ad = importlib.import_module(f"{l.__name__}.autograd.forward_ad")
        point = l.tensor([0.5, -1.5, 2.0], dtype=getattr(l, dtype))
        tangent = l.tensor([1.0, -2.0, 0.5], dtype=getattr(l, dtype)) * (1 if dtype == "float64" else 1 + 1j)
        try:
            with ad.dual_level():
                primal, pushed = ad.unpack_dual(function(l, ad.make_dual(point, tangent)))
        except RuntimeError:  # complex numbers have no order
            results.append(RuntimeError)
        else:
            results.append([primal.tolist(), None if pushed is None else pushed.tolist()])
            assert not primal.requires_grad
    if RuntimeError in results:
        assert results[0] == results[1]
        return
    assert results[1][0] == pytest.approx(results[0][0])
    assert results[1][1] is None if results[0][1] is None else results[1][1] == pytest.approx(results[0][1])


def test_tangents_can_be_differentiated():
    """In what requires grad besides: the point, the tangent, a parameter."""
    w = tg.tensor(3.0, requires_grad=True)
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    t = tg.tensor([1.0, 0.5], requires_grad=True)
    with forward_ad.dual_level():
        primal, tangent = forward_ad.unpack_dual((forward_ad.make_dual(x, t) ** 3 * w).sum())
    assert primal.requires_grad and tangent.item() == 27
    grads = tg.autograd.grad(tangent, (w, x, t))
    assert [g.tolist() for g in grads] == [9, [18, 18], [9, 36]]
    with forward_ad.dual_level():
        assert forward_ad.unpack_dual(w * forward_ad.make_dual(x.detach(), t.detach())).tangent.requires_grad
        with tg.no_grad():
            assert not forward_ad.unpack_dual(forward_ad.make_dual(x.detach(), t.detach())).tangent.requires_grad


def test_levels():
    x = tg.ones(2)
    with pytest.raises(RuntimeError, match="no level exists"):
        forward_ad.make_dual(x, x)
    with forward_ad.dual_level() as level:
        assert level == 0 and forward_ad.unpack_dual(x) == (x, None)
        dual = forward_ad.make_dual(x, tg.ones(2))
        assert dual.data_ptr() == x.data_ptr() and forward_ad.unpack_dual(dual).tangent.tolist() == [1, 1]
        with pytest.raises(RuntimeError, match="Nested"), forward_ad.dual_level():
            pass
        with pytest.raises(RuntimeError, match="different size"):
            forward_ad.make_dual(x, tg.ones(3))
        with pytest.raises(ValueError, match="floating point"):
            forward_ad.make_dual(tg.tensor([1]), x)
    assert forward_ad.unpack_dual(dual).tangent is None
    with pytest.raises(RuntimeError, match="Dual level must be a positive number"):
        forward_ad.exit_dual_level()


# --- tensors that change places --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tensorgrad", pytest.param("torch", marks=needs_torch)])
def test_swap_tensors(name):
    l = importlib.import_module(name)
    a, b = l.ones(2), l.nn.Parameter(l.zeros(3))
    a.note, holder = "a's", {"a": a, "b": b}
    l.utils.swap_tensors(a, b)
    assert type(a) is l.nn.Parameter and a.shape == (3,) and type(b) is l.Tensor and b.note == "a's"
    assert holder["a"] is a and holder["b"].tolist() == [1, 1]
    (a * 2).sum().backward()
    l.utils.swap_tensors(a, b)
    assert a.grad is None and b.grad.tolist() == [2, 2, 2]
    kept = weakref.ref(a)
    with pytest.raises(RuntimeError, match="weakref"):
        l.utils.swap_tensors(a, b)
    assert kept() is a


# --- other modules ---------------------------------------------------------------------------------------------------


def test_functional_is_a_second_place():
    from tensorgrad.functional import einsum, split

    assert einsum is tg.einsum and split is tg.split
    if HAS_TORCH:
        import torch

        assert set(tg.functional.__all__) == set(torch.functional.__all__)


def test_the_core_module():
    from tensorgrad._C import DisableTorchFunctionSubclass, Generator, _LinAlgError

    with pytest.raises(_LinAlgError):
        tg.linalg.inv(tg.zeros(2, 2))
    assert _LinAlgError is tg.linalg.LinAlgError and Generator is tg.Generator

    class Loud(tg.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            raise AssertionError

    with DisableTorchFunctionSubclass():
        assert (tg.ones(2).as_subclass(Loud) + 1).tolist() == [2, 2]


def test_settings_of_the_future():
    from tensorgrad import __future__ as future

    for name in ("overwrite", "swap"):
        get, set_ = (getattr(future, f"{word}_{name}_module_params_on_conversion") for word in ("get", "set"))
        assert get() is False
        set_(True)
        model = tg.nn.Linear(2, 2)
        weight = model.weight
        assert get() is True and model.double().weight is weight and weight.dtype is tg.float64
        set_(False)


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: tg.hub.load("pytorch/vision", "resnet18"), "not fetched from GitHub"),
    ],
)
def test_what_is_not_included_says_so(call, said):
    with pytest.raises(NotImplementedError, match=said):
        call()


# --- hub -------------------------------------------------------------------------------------------------------------

HUBCONF = """
dependencies = ["numpy"]
from beside import answer

def model(pretrained=False, size=3):
    "A model."
    return answer, pretrained, size

_hidden = model
"""


@pytest.fixture
def repository(tmp_path):
    (tmp_path / "hubconf.py").write_text(HUBCONF)
    (tmp_path / "beside.py").write_text("answer = 42\n")
    return tmp_path


def test_hub_from_a_folder(repository):
    assert tg.hub.load(repository, "model", True, source="local", size=4, trust_repo=True) == (42, True, 4)
    assert tg.hub.list(repository, source="local") == ["model"]
    assert tg.hub.help(str(repository), "model", source="local") == "A model."
    with pytest.raises(RuntimeError, match="Cannot find callable other in hubconf"):
        tg.hub.load(repository, "other", source="local")
    with pytest.raises(ValueError, match='Unknown source: "elsewhere"'):
        tg.hub.load(repository, "model", source="elsewhere")
    (repository / "hubconf.py").write_text("dependencies = ['no_such_package_at_all']\n")
    with pytest.raises(RuntimeError, match="Missing dependencies: no_such_package_at_all"):
        tg.hub.list(repository, source="local")


def test_hub_downloads_once_and_checks(tmp_path, monkeypatch):
    import hashlib
    from urllib.error import URLError

    monkeypatch.setattr(tg.hub, "_chosen", None)  # another test may have chosen a folder
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    plain = tmp_path / "model.pt"
    tg.save({"w": tg.ones(2)}, plain)
    digest = hashlib.sha256(plain.read_bytes()).hexdigest()
    right, wrong = tmp_path / f"model-{digest[:8]}.pt", tmp_path / "model-00000000.pt"
    right.write_bytes(plain.read_bytes())
    wrong.write_bytes(plain.read_bytes())
    state = tg.hub.load_state_dict_from_url(right.as_uri(), check_hash=True, progress=False)
    kept = tmp_path / "home" / "hub" / "checkpoints" / right.name
    assert state["w"].tolist() == [1, 1] and kept.exists()
    address = right.as_uri()
    right.unlink()
    assert tg.utils.model_zoo.load_url(address)["w"].tolist() == [1, 1]
    with pytest.raises(RuntimeError, match='invalid hash value \\(expected "00000000"'):
        tg.hub.load_state_dict_from_url(wrong.as_uri(), check_hash=True)
    with pytest.raises(URLError):
        tg.hub.download_url_to_file((tmp_path / "absent").as_uri(), tmp_path / "here")
    assert [p.name for p in kept.parent.iterdir()] == [kept.name] and not (tmp_path / "here").exists()
