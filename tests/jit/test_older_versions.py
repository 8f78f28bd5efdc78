"""Archives for earlier versions of PyTorch's operators mean what PyTorch makes of them when it loads them."""

import io
import zipfile

import pytest

import tensorgrad as tg

torch = pytest.importorskip("torch", reason="torch writes the archives, and upgrades their operators")

DIVISIONS = (
    "torch.div(x, y)", "torch.div(x, 2)", "torch.div(x, 2.5)", "torch.div_(x, y)", "torch.div_(x, 2)",
    "torch.div_(x, 2.5)", "torch.div(x, y, rounding_mode=None)", 'torch.div(x, y, rounding_mode="floor")',
    'torch.div_(x, 2, rounding_mode="floor")', "torch.div(x, y, out=torch.zeros_like(x))",
    'torch.div(x, y, rounding_mode="trunc", out=torch.zeros_like(x))', "torch.floor_divide(x, y)",
)  # fmt: skip
MADE = (
    "torch.full([2], 3)", "torch.full([2], 2.5)", "torch.full([2], 3, dtype=4)",
    "torch.full([2], 3, dtype=None, layout=None, device=None, pin_memory=False)",
    "torch.full([2], 3, out=x)", "torch.linspace(0, 1, 3)", "torch.linspace(0, 1, 5, dtype=7)", "torch.linspace(0, 1)",
    "torch.linspace(0, 1, None)", "torch.linspace(0, 1, out=y)", "torch.logspace(0, 1, 3)", "torch.logspace(0, 1)",
    "torch.logspace(0, 1, None, 2.)", "torch.logspace(0, 1, 4, 2., dtype=7)",
    "torch.arange(3)", "torch.arange(0, 3., 1)", "torch.full_like(x, 2)", "torch.gelu(torch.mul(y, 1.))",
)  # fmt: skip
VALUES = ([-7, 4, 9], [2, 3, -4])
VERSIONS = (3, 4, 5, 7, 8, 9, 10)


@pytest.fixture(scope="module")
def written():
    """The entries of an archive that PyTorch writes."""

    class Program(torch.nn.Module):
        def forward(self, x, y):
            return x + y

    file = io.BytesIO()
    torch.jit.save(torch.jit.script(Program()), file)
    with zipfile.ZipFile(file) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def archive(written, version, expression="torch.add(x, y)"):
    """An archive of a version, with another expression."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for name, content in written.items():
            if name.endswith("/version"):
                content = f"{version}\n".encode()
            if name.endswith(".py"):
                assert b"torch.add(x, y)" in content
                content = content.replace(b"torch.add(x, y)", expression.encode())
            made.writestr(name, content)
    file.seek(0)
    return file


def outcome(library, file, dtypes):
    """The result of a program, and its arguments afterwards; that there is none."""
    given = [
        library.tensor(values, dtype=getattr(library, dtype)) for values, dtype in zip(VALUES, dtypes, strict=True)
    ]
    try:
        made = library.jit.load(file)(*given)
    except Exception:
        return "refused"
    return [(str(t.dtype), t.tolist()) for t in (made, *given)]


def agree(found, expected):
    """Whether two outcomes are the same, but for the last digits."""
    if "refused" in (found, expected):
        return found == expected
    return all(
        a[0] == b[0] and a[1] == pytest.approx(b[1], rel=1e-5, abs=1e-6) for a, b in zip(found, expected, strict=True)
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("expression", [*DIVISIONS, *MADE])
def test_operators_mean_what_they_meant(written, expression, version):
    pairs = (("int64", "int64"), ("float32", "int64"), ("int64", "float32"), ("int32", "uint8"))
    for dtypes in pairs if expression in DIVISIONS else (("int64", "float32"),):
        values = (torch, tg)
        expected, found = (outcome(library, archive(written, version, expression), dtypes) for library in values)
        assert agree(found, expected), (dtypes, found, expected)


def test_what_is_saved_again_keeps_its_version(written):
    again = io.BytesIO()
    tg.jit.save(tg.jit.load(archive(written, 3, "torch.div(x, y)")), again)
    for library in (tg, torch):
        again.seek(0)
        assert library.jit.load(again)(library.tensor([-7]), library.tensor([2])).tolist() == [-3]


@pytest.mark.parametrize("version", [0, 11, 10**12, "x"])
def test_versions_that_nobody_knows_are_refused(written, version):
    for library in (tg, torch):
        with pytest.raises(RuntimeError):
            library.jit.load(archive(written, version))
    with pytest.raises(RuntimeError, match="version"):
        tg.jit.load(archive(written, version))
