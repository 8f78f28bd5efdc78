"""With other libraries: NumPy, einops, scikit-learn, pandas, Matplotlib; JAX and PyTorch through DLPack and arrays."""

import importlib.util
import os
import subprocess
import sys

import numpy as np
import pytest

import tensorgrad as tg
from tests.conftest import HAS_TORCH
from tests.support.compare import array_of, assert_equal


def package(name):
    """The module, or the test is skipped."""
    return pytest.importorskip(name, reason=f"{name} is not installed")


def assert_tensor_of(tensor, expected):
    """Asserts that something is a tensor of tensorgrad itself, equal to an array or to another such tensor."""
    assert type(tensor) is tg.Tensor
    assert_equal(array_of(tensor), array_of(expected))


# --- NumPy -----------------------------------------------------------------------------------------------------------


def test_arrays_share_memory():
    x = tg.zeros(2, 3)
    array = np.asarray(x)
    array[0, 1] = 5
    assert x[0, 1] == 5 and np.shares_memory(np.asarray(x.t(), copy=False), array)
    assert not np.shares_memory(np.array(x), array)
    assert np.asarray(x, dtype=np.int16).dtype == np.int16
    with pytest.raises(ValueError, match="Unable to avoid copy"):
        np.asarray(x, dtype=np.int16, copy=False)
    with pytest.raises(RuntimeError, match="detach"):
        np.asarray(tg.ones(2, requires_grad=True))


NUMPY_FUNCTIONS = [
    "np.sin(x)", "np.exp(x)", "np.isnan(x)", "np.add(x, 1)", "np.add(1, x)", "np.add(np.ones(3), x)", "np.modf(x)",
    "np.multiply(x, x)", "np.power(2, l.tensor(3))", "np.greater(x, 0)", "np.cumsum(x)", "np.maximum(x, 0.5)",
    "np.add.reduce(x)", "np.sqrt(l.tensor(4.0))", "np.floor(x)", "np.abs(l.tensor(-3))", "np.linalg.inv(x)",
    "np.outer(x[0], x[0])", "np.dot(x, x)", "np.stack([x, x])", "np.argmax(x)", "np.round(x, 1)", "np.argsort(x)",
    "np.where(x > 0, x, 0)", "np.clip(x, 0, 1)", "np.linalg.norm(x)", "np.float64(2) * x",
    "np.float32(3) + l.tensor(2)", "x * np.float64(2)", "np.zeros(3)[l.tensor([0, 1])]", "np.unique(x)",
    "np.arange(9.0).reshape(3, 3)[x > 0]", "np.mean([l.tensor(1.0), l.tensor(2.0)])", "np.array([x[0, 0], x[0, 1]])",
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's __array_wrap__ has the parameters of NumPy 1
@pytest.mark.parametrize("expression", NUMPY_FUNCTIONS)
def test_numpy_functions_return_what_they_do_of_torch(expression):
    torch = package("torch")
    data = np.random.default_rng(0).standard_normal((3, 3)).astype(np.float32)
    expected, actual = (eval(expression, {"np": np, "l": l, "x": l.tensor(data)}) for l in (torch, tg))
    for e, a in zip(*((r if isinstance(r, tuple) else (r,)) for r in (expected, actual)), strict=True):
        assert isinstance(a, tg.Tensor) == isinstance(e, torch.Tensor)
        assert str(a.dtype) == str(e.dtype)
        np.testing.assert_allclose(np.asarray(a), np.asarray(e), rtol=1e-5, atol=1e-6)


AXES = [
    "x.sum(axis=1)", "x.mean(axis=0, keepdims=True)", "l.sum(x, axis=(0, 1), keepdims=True)", "x.argmax(axis=1)",
    "x.max(axis=1)", "x.std(axis=0)", "l.softmax(x, axis=1)", "x.log_softmax(axis=1)", "l.cat([x, x], axis=1)",
    "l.stack([x, x], axis=1)", "l.concatenate([x, x], axis=1)", "x.squeeze(axis=0)", "x.unsqueeze(axis=0)",
    "l.unsqueeze(x, axis=0)", "l.chunk(x, 2, axis=1)", "x.cumsum(axis=1)", "x.sort(axis=1)", "(x > 0).any(axis=1) + 0",
    "l.prod(x, axis=1, keepdims=True)", "l.gather(x, axis=1, index=l.tensor([[0]]))", "x.index_select(axis=1, index=i)",
    "l.index_select(x, axis=1, index=i)", "x.select(axis=1, index=0)", "l.unbind(x, axis=1)", "l.diff(x, axis=1)",
    "l.topk(x, 2, axis=1)", "l.count_nonzero(x, axis=1)", "l.repeat_interleave(x, 2, axis=1)", "x.median(axis=1)",
    "l.linalg.norm(x, axis=1, keepdims=True)", "l.fft.fft(x, axis=0)", "l.roll(x, 1, 0)", "l.flip(x, (0,))",
    "l.quantile(x, 0.5, axis=1)", "x.narrow(axis=0, start=1, length=2)", "x.scatter(axis=0, index=i[None], src=x)",
    "x.cumsum()", "x.index_select(0)", "x.softmax()", "x.gather(1)", "l.split(x, 2, axis=1)", "x.norm(axis=1)",
    "l.unique(x, axis=1)", "l.nn.functional.softmax(x, axis=1)", "x.unsqueeze()",
]  # fmt: skip


@pytest.mark.parametrize("expression", AXES)
def test_numpy_names_of_dimensions(expression):
    """`axis` and `keepdims` wherever PyTorch takes them (the last few are errors)."""
    torch = package("torch")
    data = np.random.default_rng(0).standard_normal((3, 3))
    outcomes = []
    for l in (torch, tg):
        try:
            result = eval(expression, {"l": l, "x": l.tensor(data), "i": l.tensor([0])})
        except TypeError as error:
            outcomes.append(type(error))
        else:
            parts = result if isinstance(result, tuple) else (result,)
            outcomes.append([np.round(part.numpy(), 9).tolist() for part in parts])
    assert outcomes[1] == outcomes[0]


# --- einops ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def einops():
    module = package("einops")
    from tensorgrad.utils import einops_backend

    einops_backend.register()
    return module


REARRANGEMENTS = [
    ("rearrange", "b c h w -> b (c h w)", {}),
    ("rearrange", "b (c k) h w -> b h (w k) c", {"k": 2}),
    ("rearrange", "... w -> w ...", {}),
    ("rearrange", "b c h w -> h () (b c) w", {}),
    ("repeat", "b c h w -> b (2 c) h (w n)", {"n": 3}),
    ("repeat", "b c h w -> n b c h w", {"n": 2}),
    ("reduce", "b c (h 2) (w 2) -> b c h w", {"reduction": "max"}),
    ("reduce", "b c h w -> b c", {"reduction": "mean"}),
    ("reduce", "b c h w -> b () () w", {"reduction": "sum"}),
    ("reduce", "b c h w -> c", {"reduction": "min"}),
    ("reduce", "b c h w -> b", {"reduction": "prod"}),
]


@pytest.mark.parametrize("name, pattern, options", REARRANGEMENTS)
def test_einops_functions(einops, name, pattern, options):
    array = np.random.default_rng(0).standard_normal((2, 4, 6, 4))
    function = getattr(einops, name)
    x = tg.tensor(array, requires_grad=True)
    result = function(x, pattern, **options)
    np.testing.assert_allclose(result.detach().numpy(), function(array, pattern, **options), rtol=1e-12)
    result.sum().backward()
    assert x.grad.shape == x.shape


def test_einops_of_several_tensors(einops):
    a, b = np.random.default_rng(0).standard_normal((2, 3, 4))
    x, y = tg.tensor(a), tg.tensor(b)
    assert_tensor_of(einops.rearrange([x, y], "two h w -> h (two w)"), einops.rearrange([a, b], "two h w -> h (two w)"))
    packed, shapes = einops.pack([x, y[0]], "* w")
    assert_tensor_of(packed, np.concatenate([a, b[:1]]))
    assert [p.tolist() for p in einops.unpack(packed, shapes, "* w")] == [a.tolist(), b[0].tolist()]
    np.testing.assert_allclose(einops.einsum(x, y, "i k, j k -> i j").numpy(), a @ b.T)
    assert einops.parse_shape(x, "h _") == {"h": 3}
    assert_tensor_of(einops.asnumpy(x).__class__ and x, a)
    assert_tensor_of(
        einops.reduce(tg.tensor([[True, False], [False, False]]), "a b -> a", "any"), np.array([True, False])
    )
    with pytest.raises(einops.EinopsError):
        einops.rearrange(x, "a b c -> c b a")


def test_einops_layers(einops):
    from tensorgrad.utils import einops_backend

    layers = einops_backend.register().layers()
    x = tg.randn(5, 3, 8, 8)
    model = tg.nn.Sequential(
        layers.Rearrange("b c (h p) (w q) -> b h w (p q c)", p=4, q=4),
        layers.EinMix("b h w c -> b h w (head d)", "c head d", "head d", c=48, head=2, d=4),
        layers.Reduce("b h w d -> b d", "mean"),
    )
    result = model(x)
    assert result.shape == (5, 8) and "Rearrange('b c (h p) (w q)" in repr(model)
    assert [tuple(p.shape) for p in model.parameters()] == [(48, 2, 4), (1, 1, 1, 2, 4)]
    result.sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    mix = layers.EinMix("t b i -> t b o", weight_shape="i o", i=3, o=2)
    y = tg.randn(4, 5, 3)
    assert mix.bias is None and tg.allclose(mix(y), y @ mix.weight)


def test_einops_own_tests_pass_where_torch_is_tensorgrad():
    """They run with the backend that einops has for PyTorch."""
    package("einops")
    if importlib.util.find_spec("einops.tests") is None:
        pytest.skip("this einops comes without its tests")
    unfit = [
        "test_torch_compile_with_dynamic_shape",  # sets the compiler's options
        "test_einops_threading",  # starts a program named `python`, which need not be this one
        "test_all_notebooks", "test_backends_installed", "run_tests",
    ]  # fmt: skip
    command = [
        sys.executable, "-m", "tensorgrad.run", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs",
        "einops.tests", "-k", " and ".join(f"not {name}" for name in unfit),
    ]  # fmt: skip
    # Some compare two calls to the last digit: no kernel may get ready between them.
    environment = os.environ | {"EINOPS_TEST_BACKENDS": "numpy,torch", "OMP_NUM_THREADS": "1", "TENSORGRAD_FAST": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout


# --- tables, figures, estimators -------------------------------------------------------------------------------------


def test_pandas():
    pd = package("pandas")
    x = tg.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    frame = pd.DataFrame(x, columns=["a", "b"])
    assert frame["a"].dtype == np.float32 and frame["b"].tolist() == [2, 4, 6]
    assert pd.DataFrame({"a": x[:, 0], "n": tg.arange(3)}).dtypes.tolist() == [np.float32, np.int64]
    assert pd.Series(x[0]).sum() == 3 and frame.assign(c=tg.arange(3))["c"].tolist() == [0, 1, 2]
    table = pd.DataFrame({"f": [0.5, 1.5, 2.5], "i": [1, 2, 3]}, index=[7, 8, 9])
    assert_tensor_of(tg.tensor(table["f"]), table["f"].to_numpy())
    assert_tensor_of(tg.tensor(table["i"]), table["i"].to_numpy())
    assert_tensor_of(tg.tensor(table.values), table.values)
    assert_tensor_of(tg.as_tensor(table), table.to_numpy())
    assert_tensor_of(tg.tensor(table[["f"]].to_numpy(dtype=np.float32)), table[["f"]].to_numpy(np.float32))
    assert_tensor_of(tg.from_numpy(table["i"].to_numpy()), table["i"].to_numpy())
    assert tg.tensor(table["f"], dtype=tg.float32).dtype is tg.float32
    assert table.iloc[tg.tensor([0, 2])]["i"].tolist() == [1, 3]
    assert table[(tg.tensor([1, 0, 1]) > 0).numpy()]["i"].tolist() == [1, 3]
    with pytest.raises(TypeError, match="object_"):
        tg.tensor(pd.Series(["a", "b"], dtype=object))


def test_matplotlib():
    matplotlib = package("matplotlib")
    matplotlib.use("Agg")
    import io

    import matplotlib.pyplot as plt

    figure, axes = plt.subplots()
    x = tg.linspace(0, 1, 10)
    (line,) = axes.plot(x, x**2, label=f"{x[1]:.2f}")
    np.testing.assert_allclose(line.get_xydata(), np.stack([x.numpy(), x.numpy() ** 2], axis=1))
    assert len(axes.plot(tg.ones(5, 3))) == 3
    assert axes.plot([tg.tensor(1.0), tg.tensor(2.0)])[0].get_xydata().tolist() == [[0, 1], [1, 2]]
    assert axes.hist(tg.randn(100), bins=10)[0].sum() == 100
    assert axes.imshow(tg.rand(3, 4, 3)).get_array().shape == (3, 4, 3)
    axes.imshow(tg.eye(3) > 0)
    axes.scatter(x, x, c=x, s=10 * x)
    axes.bar(tg.arange(3), tg.rand(3), yerr=tg.rand(3))
    axes.fill_between(x, x - 1, x + 1)
    axes.contourf(*tg.meshgrid(tg.arange(4.0), tg.arange(5.0), indexing="xy"), tg.rand(5, 4))
    axes.axhline(tg.tensor(0.5))
    axes.set_xlim(tg.tensor(0.0), tg.tensor(2.0))
    with pytest.raises(RuntimeError, match="detach"):
        axes.plot(tg.ones(3, requires_grad=True))
    figure.savefig(io.BytesIO(), format="png")
    plt.close(figure)


def test_scikit_learn():
    package("sklearn")
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import accuracy_score, confusion_matrix, roc_auc_score
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import StandardScaler

    tg.manual_seed(0)
    x = tg.randn(80, 3)
    y = (x[:, 0] > 0).long()
    assert LogisticRegression().fit(x.numpy(), y.numpy()).score(x.numpy(), y.numpy()) > 0.9
    model = LogisticRegression().fit(x, y)  # by the array protocol
    assert accuracy_score(y, model.predict(x)) > 0.9 and roc_auc_score(y, x[:, 0]) == 1
    assert confusion_matrix(y, y).sum() == 80
    probabilities = tg.from_numpy(model.predict_proba(x))
    assert tg.allclose(probabilities.sum(axis=1), tg.ones(80, dtype=probabilities.dtype))
    scaled = tg.as_tensor(StandardScaler().fit_transform(x))
    assert scaled.mean().abs() < 1e-6 and PCA(2).fit_transform(x).shape == (80, 2)
    assert KMeans(2, n_init=1, random_state=0).fit(x).labels_.shape == (80,)
    parts = train_test_split(x, y, test_size=0.25, random_state=0)
    assert all(type(p) is tg.Tensor for p in parts) and [len(p) for p in parts] == [60, 20, 60, 20]


# --- JAX and PyTorch -------------------------------------------------------------------------------------------------

DTYPES = (
    "bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32",
    "float64", "complex64", "complex128",
)  # fmt: skip


def in_both(name):
    """The dtype `name`; bfloat16 only where ml_dtypes is."""
    if name == "bfloat16":
        package("ml_dtypes")
    return getattr(tg, name)


@pytest.mark.parametrize("name", DTYPES)
def test_memory_shared_with_torch(name):
    torch = package("torch")
    dtype = in_both(name)
    ours = tg.tensor([[0, 1, 1], [1, 0, 1]]).to(dtype)
    theirs = torch.from_dlpack(ours)
    assert theirs.dtype is getattr(torch, name) and theirs.tolist() == ours.tolist()
    theirs[0, 0] = 1
    assert ours[0, 0] == 1 and torch.from_dlpack(ours.t()).stride() == (1, 3)
    back = tg.from_dlpack(theirs)
    assert back.dtype is dtype and back.data_ptr() == ours.data_ptr()
    back[1, 1] = 1
    assert theirs.all() and tg.from_dlpack(theirs.t()).stride() == (1, 3)


def test_capsules_to_and_from_torch():
    torch = package("torch")
    assert tg.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(torch.arange(3))).tolist() == [0, 1, 2]
    assert torch.utils.dlpack.from_dlpack(tg.utils.dlpack.to_dlpack(tg.arange(3))).tolist() == [0, 1, 2]
    for x in (tg.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)):
        with pytest.raises(BufferError, match="detach"):
            (torch if isinstance(x, tg.Tensor) else tg).from_dlpack(x)


@pytest.mark.filterwarnings("error")
def test_values_from_torch_and_to_it():
    torch = package("torch")
    assert_tensor_of(tg.tensor(torch.ones(2, 3, dtype=torch.float64)), np.ones((2, 3)))
    assert_tensor_of(tg.as_tensor(torch.arange(3, dtype=torch.int16)), np.arange(3, dtype=np.int16))
    assert torch.tensor(tg.ones(2)).tolist() == torch.as_tensor(np.asarray(tg.ones(2))).tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="detach"):
        tg.tensor(torch.ones(2, requires_grad=True))


@pytest.mark.parametrize("name", [n for n in DTYPES if "64" not in n and n != "complex128"])
def test_memory_shared_with_jax(name):
    """Those dtypes that JAX has without its flag for 64 bits."""
    jnp = package("jax.numpy")
    dtype = in_both(name)
    ours = tg.tensor([[0, 1, 1], [1, 0, 1]]).to(dtype)
    theirs = jnp.from_dlpack(ours)
    assert theirs.dtype.name == name and np.asarray(theirs).tolist() == ours.tolist()
    back = tg.from_dlpack(theirs)
    assert back.dtype is dtype and back.tolist() == ours.tolist()
    assert_tensor_of(tg.tensor(theirs), ours.numpy())
    assert_tensor_of(tg.as_tensor(theirs), ours.numpy())
    assert np.asarray(jnp.asarray(ours)).tolist() == ours.tolist()


def test_jax_gradients_meet_ours():
    jax = package("jax")
    x = tg.linspace(-2, 2, 7)
    theirs = jax.grad(lambda v: (jax.numpy.tanh(v) ** 2).sum())(jax.numpy.from_dlpack(x))
    x.requires_grad_()
    (x.tanh() ** 2).sum().backward()
    np.testing.assert_allclose(np.asarray(theirs), x.grad.numpy(), rtol=1e-5, atol=1e-6)


def test_numpy_takes_tensors_through_dlpack():
    x = tg.zeros(2, 3)
    np.from_dlpack(x.t())[1, 0] = 4
    assert x[0, 1] == 4
    if HAS_TORCH:
        assert tg.from_dlpack(np.ones(2)).dtype is tg.float64
