"""The files of compiled kernels: made of the same sources they are equal, and what is damaged is never executed."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

import tensorgrad
from tensorgrad.kernels.compiled import table
from tensorgrad.kernels.compiled.runtime import library, target
from tests.fuzz.loops import damaged_image
from tests.support.kernels import absent
from tests.support.processes import environment, run_python

ROOT = Path(tensorgrad.__file__).parent
carried = pytest.mark.skipif(bool(absent()), reason=absent())


def test_the_package_imports_no_compiler():
    """Numba and llvmlite are in tools/kernels alone."""
    wrong = [
        f"{file.relative_to(ROOT)}: {line}"
        for file in ROOT.rglob("*.py")
        for line in file.read_text().splitlines()
        if re.match(r"\s*(import|from) (numba|llvmlite)\b", line)
    ]
    assert not wrong


@carried
def test_a_program_imports_none_and_starts_no_thread():
    code = """
import importlib, sys, threading
import tensorgrad as torch
from tensorgrad.kernels.compiled import table
torch.set_num_threads(1)
(torch.randn(300, 300) @ torch.randn(300, 300)).softmax(1).sum()
for row in table.ROWS:
    importlib.import_module("tensorgrad.kernels.compiled." + row.kernel.rpartition(".")[0])
print([name for name in ("numba", "llvmlite") if name in sys.modules], threading.active_count())
"""
    assert run_python(code, env=environment("TENSORGRAD_FAST")).stdout.strip() == "[] 1"


@carried
def test_the_file_has_every_kernel():
    image = library.image()
    assert {each.kernel.rpartition(".")[0] for each in table.ROWS} == set(image.families) - {"runtime.native"}
    for each in table.ROWS:
        assert library.load(each.kernel) is not None
    assert all(told["sources"] == library.source_digest(name) for name, told in image.families.items())


@carried
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="Linux tells what may be done with memory")
def test_code_cannot_be_written_and_what_is_written_cannot_be_run():
    image, modes = library.image(), {}
    start = image.load("runtime.spin")
    told = image.families["runtime.spin"]
    places = {"code": start, "fixed": start + -(-told["code"] // image.head["page"]) * image.head["page"]}
    for line in Path("/proc/self/maps").read_text().splitlines():
        bounds, mode, *_ = line.split()
        first, last = (int(bound, 16) for bound in bounds.split("-"))
        modes |= {name: mode for name, place in places.items() if first <= place < last}
    assert modes == {"code": "r-xp", "fixed": "r--p"}


@carried
def test_what_is_damaged_is_refused():
    outcomes = {damaged_image(seed) for seed in range(300)}
    assert {"bit: a family refused", "cut: a family refused", "bit: refused"} <= outcomes


@pytest.fixture
def other(tmp_path, monkeypatch):
    """Returns a function that has a process without kernels so far read this file."""

    def use(data: bytes) -> library.Image:
        file = tmp_path / "image"
        file.write_bytes(data)
        return library.Image(str(file))

    return use


def with_head(data: bytes, **changes) -> bytes:
    """Returns a file whose head says something else, with the right digest."""
    begin = len(library.MAGIC) + library.DIGEST
    size = int.from_bytes(data[begin : begin + 8], "little")
    head = json.loads(data[begin + 8 : begin + 8 + size]) | changes
    inside = json.dumps(head).encode()
    inside = len(inside).to_bytes(8, "little") + inside
    return library.MAGIC + library.digest(inside) + inside + data[begin + 8 + size :]


@carried
def test_files_of_other_versions_are_refused_by_name(other):
    data = Path(library.image().file).read_bytes()
    assert other(with_head(data)).where
    with pytest.raises(library.Unusable, match=r"belongs to version 0\.0\.9 of the package"):
        other(with_head(data, version="0.0.9"))
    with pytest.raises(library.Unusable, match="is not a file of kernels of this version"):
        other(b"tensorgrad kernels 1\n" + data[len(library.MAGIC) :])
    for length in (0, 10, len(library.MAGIC) + 20, 200):
        with pytest.raises(library.Unusable):
            other(data[:length])


@carried
def test_families_that_are_exchanged_are_refused(other):
    data, families = Path(library.image().file).read_bytes(), dict(library.image().families)
    a, b = sorted(families)[:2]
    exchanged = families[b] | {"digest": families[a]["digest"], "sources": families[a]["sources"]}
    with pytest.raises(library.Unusable, match="is damaged"):
        other(with_head(data, families=families | {a: exchanged})).load(a)


@carried
def test_kernels_of_other_sources_are_not_used(other, monkeypatch):
    image = other(Path(library.image().file).read_bytes())
    monkeypatch.setattr(library, "source_digest", lambda family: "other")
    with pytest.raises(library.Missing, match="of pointwise have changed; `make kernels` in the repository compiles"):
        image.load("pointwise")


def refusals(reason):
    """Makes one way in which a process cannot use kernels, and returns what is said of it."""
    return {
        "memory": "memory.place = lambda *given: (_ for _ in ()).throw(memory.Refused('the system does not let it'))",
        "arrays": "native.arrays_are_known = lambda: False",
        "processor": "target.here = lambda: []",
        "no file": "target.FOLDER = '/nonexistent'",
        "level": "import os; os.environ['TENSORGRAD_CPU'] = 'pentium'",
        "wrong numbers": "self_test.failure = lambda probe: 'a small kernel and NumPy gave different results'",
    }[reason]


@carried
@pytest.mark.parametrize(
    "reason, text",
    [
        ("memory", "the system does not let it"), ("arrays", "arrays are not laid out as"),
        ("processor", "there are none for this processor"), ("no file", "`make kernels` makes them"),
        ("level", "TENSORGRAD_CPU=pentium is none of x86-64-v4"), ("wrong numbers", "gave different results"),
    ],
)  # fmt: skip
def test_where_kernels_are_refused_numpy_serves_with_one_line(reason, text):
    code = f"""
from tensorgrad.kernels.compiled.runtime import memory, native, self_test, target
import tensorgrad as torch
{refusals(reason)}
x = torch.randn(200, 200)
assert torch.allclose((x @ x).relu().sum(), torch.einsum("ij,jk->ik", x, x).clamp(min=0).sum(), rtol=1e-4)
from tensorgrad.kernels.compiled import table
assert not any(row.ready for row in table.ROWS) and any(row.failed for row in table.ROWS)
"""
    done = run_python(code, env=environment("TENSORGRAD_FAST", "TENSORGRAD_CPU"))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("tensorgrad: compiled kernels are not used") == 1 and text in done.stderr


@pytest.mark.parametrize("machine", ["x86_64", "AMD64"])  # as Linux and Windows say it
def test_the_level_is_what_numpy_finds(monkeypatch, machine):
    monkeypatch.setattr(target, "use", lambda level: None)
    monkeypatch.setattr(target, "_used", None)
    monkeypatch.setattr(target.platform, "machine", lambda: machine)
    for features, expected in (
        ({"X86_V4", "X86_V3"}, ["x86-64-v4", "x86-64-v3"]), ({"X86_V3"}, ["x86-64-v3"]), ({"AVX2"}, []),
        ({"AVX2", "FMA3", "F16C", "AVX512_SKX"}, ["x86-64-v4", "x86-64-v3"]),
    ):  # fmt: skip
        monkeypatch.setattr(target, "_features", lambda features=features: dict.fromkeys(features, True))
        assert target.here.__wrapped__() == expected
    monkeypatch.setattr(target.platform, "machine", lambda: "arm64")
    monkeypatch.setattr(target, "_features", lambda: {"ASIMD": True})
    assert target.here.__wrapped__() == ["aarch64"]


@carried
def test_python_functions_of_machine_code_are_never_freed():
    """Python reads their definitions when it frees them, after the modules are cleared (exit status 139 before)."""
    code = """
import tensorgrad as torch
x = torch.randn(300, 300)
(x @ x).relu().sum()
"""
    done = run_python(code, env=environment("TENSORGRAD_FAST", PYTHONMALLOC="debug"))
    assert done.returncode == 0, (done.returncode, done.stderr)


@carried
def test_log_is_right_to_the_last_bit():
    """The logarithm of sums, as a softmax over one number more has it: -log(1 + e^x)."""
    sums = np.concatenate([np.linspace(1, 2, 5000), np.geomspace(1, 1e30, 5000)]).astype(np.float32)
    x = np.zeros((len(sums), 2), np.float32)
    x[:, 1] = np.log(sums - 1 + np.float32(1e-30))
    found = tensorgrad.log_softmax(tensorgrad.from_numpy(x), -1).numpy()
    np.testing.assert_allclose(found[:, 0], -np.logaddexp(0, x[:, 1].astype(np.float64)), rtol=3e-7, atol=1e-7)


# --- the same bits every time ---

PROGRAM = """
import hashlib, struct, sys
import tensorgrad as torch
nn, F = torch.nn, torch.nn.functional


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.layer = nn.Embedding(65, 64), nn.TransformerEncoderLayer(64, 4, 128, 0.1, batch_first=True)
        self.out = nn.Linear(64, 65)

    def forward(self, x):
        return self.out(self.layer(self.embed(x))).flatten(0, 1)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.out = nn.LSTM(32, 64, batch_first=True), nn.Linear(64, 10)

    def forward(self, x):
        return self.out(self.lstm(x)[0][:, -1])


def losses(name, steps=6):
    torch.manual_seed(0)
    y = torch.randint(0, 10, (64,))
    if name == "MLP":
        model, x = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)), torch.randn(64, 784)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
    elif name == "ConvNet":
        model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                              nn.Conv2d(16, 32, 3), nn.GELU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(32 * 144, 10))
        x, optimizer = torch.randn(64, 1, 28, 28), torch.optim.Adam(model.parameters())
    elif name == "GPT":
        model, x, y = Attention(), torch.randint(0, 65, (12, 64)), torch.randint(0, 65, (12 * 64,))
        optimizer = torch.optim.AdamW(model.parameters())
    else:
        model, x = Recurrent(), torch.randn(64, 20, 32)
        optimizer = torch.optim.Adam(model.parameters())
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        found.append(loss.item())
    state = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters()))
    return [*found, state.hexdigest()]


torch.set_num_threads(int(sys.argv[1]))
for name in sys.argv[2:]:
    print(name, *losses(name))
"""
MODELS = ("MLP", "ConvNet", "GPT", "LSTM")


def trained(threads: int, *names: str) -> list[str]:
    done = run_python(None, "-c", PROGRAM, str(threads), *names, env=environment("TENSORGRAD_FAST"))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@carried
def test_training_gives_the_same_bits_in_every_process_with_any_number_of_threads():
    """TESTS_RUNS=20 for more; within a process, in any order, as well."""
    runs = int(os.environ.get("TESTS_RUNS", "2"))
    first = trained(1, *MODELS)
    for n in range(runs - 1):
        assert sorted(trained((n + 2) % 4 + 1, *MODELS[:: -1 if n % 2 else 1])) == sorted(first)
    assert trained(2, "MLP", "MLP") == 2 * first[:1]
    assert len({line.split()[0] for line in first}) == len(MODELS)
