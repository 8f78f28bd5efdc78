"""Archives that PyTorch writes give the same numbers here, train in the same way, and can be written again."""

import copy
import io
import warnings

import numpy as np
import pytest

import tensorgrad as tg

torch = pytest.importorskip("torch", reason="torch writes the archives")
from tests.jit.programs import PROGRAMS  # noqa: E402  (needs torch)

pytestmark = pytest.mark.filterwarnings("ignore")
CASES = [
    (name, how) for name, (kind, *_) in PROGRAMS.items() for how in (("script", "trace") if kind == "both" else (kind,))
]


def archive(name, how, training=False):
    """What PyTorch makes of a program, its archive, and the inputs."""
    _, make, inputs = PROGRAMS[name]
    torch.manual_seed(0)
    module, given = make().train(training), inputs()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.enable_grad():  # without, the encoder is traced as one operator, and then as many
            if how == "script":
                module = torch.jit.script(module)
            else:
                module = torch.jit.trace(module, given, strict=False, check_trace=False)
    file = io.BytesIO()
    torch.jit.save(module, file)
    file.seek(0)
    return module, file, given


def here(value):
    """A value of PyTorch's as one of this library."""
    if isinstance(value, torch.Tensor):
        return tg.tensor(value.detach().numpy().copy(), requires_grad=value.requires_grad)
    if isinstance(value, list | tuple):
        return type(value)(map(here, value))
    return value


def assert_same(a, b, where=""):
    """Compares a result with PyTorch's."""
    if isinstance(b, torch.Tensor):
        assert isinstance(a, tg.Tensor), f"{where}: {type(a)}"
        assert (tuple(a.shape), str(a.dtype)) == (tuple(b.shape), str(b.dtype)), where
        b = b.detach().numpy()
        scale = 1.0 if b.dtype.kind not in "fc" or not b.size else max(1.0, float(np.abs(np.nan_to_num(b)).max()))
        np.testing.assert_allclose(a.detach().numpy(), b, rtol=1e-6, atol=1e-6 * scale, err_msg=where)
    elif isinstance(b, list | tuple):
        assert isinstance(a, list) is isinstance(b, list) and len(a) == len(b), f"{where}: {a} {b}"
        assert getattr(type(a), "_fields", None) == getattr(type(b), "_fields", None)
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_same(x, y, f"{where}[{i}]")
    elif isinstance(b, dict):
        assert list(a) == list(b)
        for key in b:
            assert_same(a[key], b[key], f"{where}[{key!r}]")
    else:
        assert type(a) is type(b) and (a == b or str(a) == str(b)), f"{where}: {a} {b}"


@pytest.mark.parametrize(("name", "how"), CASES)
def test_results_are_pytorchs(name, how):
    module, file, given = archive(name, how)
    loaded = tg.jit.load(file)
    assert [n for n, _ in loaded.named_modules()] == [n for n, _ in module.named_modules()]
    assert_same(dict(loaded.state_dict()), dict(module.state_dict()))
    assert_same(loaded(*map(here, given)), module(*given), name)


def total(value):
    """The sum of all that may have a gradient."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        parts = [part for part in map(total, value) if part is not None]
        return sum(parts) if parts else None
    return (value**2).sum() if hasattr(value, "requires_grad") and value.requires_grad else None


@pytest.mark.parametrize(
    ("name", "how"), [c for c in CASES if c[0] in ("mlp", "convnet", "recurrent", "encoder", "tied")]
)
def test_training_is_pytorchs(name, how):
    module, file, given = archive(name, how, training=True)
    loaded = tg.jit.load(file)
    for program, inputs in ((module, given), (loaded, list(map(here, given)))):
        library = torch if program is module else tg
        optimizer = library.optim.SGD(program.parameters(), lr=0.01)
        for _ in range(2):
            optimizer.zero_grad()
            total(program(*inputs)).backward()
            optimizer.step()
    assert [p is None for p in loaded.parameters()] == [p is None for p in module.parameters()]
    for (key, a), b in zip(loaded.named_parameters(), module.parameters(), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-5, err_msg=key)
    assert_same({k: v for k, v in loaded.named_buffers() if "num" in k},
                {k: v for k, v in module.named_buffers() if "num" in k})  # fmt: skip
    module.eval(), loaded.eval()
    assert not any(m.training for m in loaded.modules())
    with tg.no_grad(), torch.no_grad():
        results = [total_of(module(*given)), total_of(loaded(*map(here, given)))]
    np.testing.assert_allclose(results[1], results[0], rtol=1e-3)


def total_of(value):
    """The sum of the magnitudes of all tensors."""
    if isinstance(value, dict):
        value = list(value.values())
    return sum(map(total_of, value)) if isinstance(value, list | tuple) else float(abs(value).sum())


def test_methods_attributes_and_errors():
    _module, file, given = archive("language", "script")
    loaded = tg.jit.load(file)
    assert (loaded.kind(3), loaded.kind("s"), loaded.kind(tg.ones(1))) == (4, 2, 3)
    assert loaded.pair == (1, "x") and loaded.original_name == "Language" and "torch.no_grad" not in loaded.code
    assert "def forward(self" in loaded.code and "original_name=Language\n" in repr(loaded)
    assert len(loaded.layers) == 2 and isinstance(loaded.layers[0], tg.jit.RecursiveScriptModule)
    with pytest.raises(RuntimeError, match="missing value for argument 't'"):
        loaded(tg.ones(3, 2))
    with pytest.raises(RuntimeError, match="Expected a value of type 'Tensor' for argument 'x'"):
        loaded(1, 2.0, "a", [])
    with pytest.raises(RuntimeError, match="Unknown keyword argument 'z'"):
        loaded(tg.ones(3, 2), 2.0, "a", [], z=1)
    with pytest.raises(RuntimeError, match="at most 7 argument"):
        loaded(*map(here, given), 1, None, 3)
    with pytest.raises(tg.jit.Error, match=r"(?s)code/__torch__.*line \d+, in forward.*AssertionError: a mode"):
        loaded(*map(here, given), mode="m")
    with pytest.raises(RuntimeError, match=r"(?s)TorchScript interpreter.*line \d+, in forward"):
        loaded(tg.ones(3, 7), 2.0, "a", [tg.ones(5, 5)])
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        loaded.nothing
    _, file, (boxes, scores) = archive("detector", "script")
    with pytest.raises(tg.jit.Error, match=r"ValueError: nothing was found among 12 boxes"):
        tg.jit.load(file)(here(boxes), here(scores) * 0)


def test_copies_devices_and_extra_files(tmp_path):
    module, _, _given = archive("convnet", "script")
    torch.jit.save(module, tmp_path / "net.pt", _extra_files={"info.txt": "hello", "b.bin": b"\x00\xff"})
    extra = {"info.txt": "", "b.bin": ""}
    loaded = tg.jit.load(tmp_path / "net.pt", map_location="cpu", _extra_files=extra)
    assert extra == {"info.txt": b"hello", "b.bin": b"\x00\xff"}
    other = copy.deepcopy(loaded)
    with tg.no_grad():
        next(other.parameters()).zero_()
    assert float(next(loaded.parameters()).abs().sum()) > 0
    assert loaded.double().head.weight.dtype == tg.float64 and loaded.to("meta").head.weight.device.type == "meta"
    with pytest.raises(TypeError, match="pickled"):
        tg.save(loaded, io.BytesIO())
    with pytest.raises(ValueError, match="does not exist"):
        tg.jit.load(tmp_path / "none.pt")
    torch.save({"a": torch.ones(1)}, tmp_path / "checkpoint.pt")
    with pytest.raises(RuntimeError, match=r"a checkpoint: use torch\.load"):
        tg.jit.load(tmp_path / "checkpoint.pt")
    with pytest.raises(Exception, match=r"torch\.jit\.load loads it"):
        tg.load(tmp_path / "net.pt")


def kind_of(x: torch.Tensor | list[torch.Tensor] | tuple[torch.Tensor, int]) -> int:
    """A number for each kind of value."""
    if isinstance(x, (list, tuple)):
        return 1 if isinstance(x, list) else 2
    return 3


def test_lists_and_tuples_of_any_type_are_told_apart():
    class Kinds(torch.nn.Module):
        def forward(self, x, more: list[torch.Tensor]):
            return kind_of(x), kind_of(more), kind_of((x, 1))

    file = io.BytesIO()
    torch.jit.save(torch.jit.script(Kinds()), file)
    file.seek(0)
    loaded = tg.jit.load(file)
    assert loaded(tg.ones(1), [tg.ones(1)]) == (3, 1, 2)
    again = io.BytesIO()
    tg.jit.save(loaded, again)
    again.seek(0)
    assert torch.jit.load(again)(torch.ones(1), [torch.ones(1)]) == (3, 1, 2)


@pytest.mark.parametrize(("name", "how"), CASES)
def test_what_is_saved_again_is_loaded_by_pytorch(name, how):
    module, file, given = archive(name, how)
    loaded = tg.jit.load(file)
    for library, program in ((tg, loaded), (torch, module)):
        with library.no_grad():
            for parameter in program.parameters():
                parameter.mul_(0.5)
    again = io.BytesIO()
    tg.jit.save(loaded, again, _extra_files={"a": "text"})
    again.seek(0)
    extra = {"a": ""}
    theirs = torch.jit.load(again, _extra_files=extra)
    assert extra == {"a": b"text"}
    assert [(n, p.requires_grad) for n, p in theirs.named_parameters()] == [
        (n, p.requires_grad) for n, p in module.named_parameters()
    ]
    result = module(*given)
    again.seek(0)
    assert_same(tg.jit.load(again)(*map(here, given)), result, name)
    assert total_of_all(theirs(*given)) == total_of_all(result)


def total_of_all(value):
    """A value whose tensors are lists."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {k: total_of_all(v) for k, v in value.items()}
    return [total_of_all(v) for v in value] if isinstance(value, list | tuple) else str(value)
