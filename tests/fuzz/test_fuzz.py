"""The fuzzers themselves: every kernel has a family and is reached, cases can be repeated, and faults are found."""

import subprocess
import sys

import numpy as np
import pytest

from tensorgrad.kernels.compiled import table
from tests.fuzz import kernels, loops
from tests.fuzz.cases import Array, Case, Draw
from tests.fuzz.families import FAMILIES
from tests.support.kernels import absent

# Kernels that no call reaches directly.
BESIDE = {"spin_wait"}  # the loop of the pool's threads, used by all cases with several threads
compiled = pytest.mark.skipif(bool(absent()), reason=absent())


def test_every_compiled_kernel_has_a_family():
    found = [name for family in FAMILIES.values() for name in family.rows]
    assert sorted(found) == sorted(set(found))
    assert {row.op for row in table.ROWS} == set(found)


def test_every_cuda_kernel_has_a_family():
    from tensorgrad.kernels.cuda.table import ROWS

    found = {name for family in FAMILIES.values() for name in (*family.rows, *family.cuda)}
    assert {name for name, path in ROWS.items() if not path.startswith("host.")} <= found


@compiled
@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.rows])
def test_its_cases_reach_the_kernel(name):
    """Runs at most some hundred cases, until each row's kernel has returned a result."""
    family = FAMILIES[name]
    for seed in range(1500):
        if all(kernels.USED[row] for row in family.rows if row not in BESIDE) and seed >= 5:
            return
        kernels.check(name, seed)
    raise AssertionError(f"not reached: {[row for row in family.rows if not kernels.USED[row]]}")


@pytest.mark.parametrize("layout", ["plain", "odd", "read-only", "transposed", "channels last", "sliced", "spaced"])
def test_layouts_hold_the_numbers(layout):
    for shape in ((), (0,), (3,), (2, 3), (2, 3, 4, 5), (2, 0, 3)):
        array = Array(shape, layout=layout, seed=3, grad=False)
        tensor, whole = array.make()
        np.testing.assert_array_equal(tensor.numpy(), array.numbers())
        assert np.isnan(whole.numpy()).sum() >= whole.numel() - tensor.numel()


def test_a_case_is_made_again_by_its_seed_and_by_its_text():
    for name in FAMILIES:
        case = kernels.make(name, 7)
        assert repr(case) == repr(kernels.make(name, 7))
        assert eval(repr(case), {"Case": Case, "Array": Array, "inf": float("inf")}) == case


@compiled
def test_a_fault_is_found_and_made_small(monkeypatch, capsys):
    """The kernel is wrong for one width only."""
    kernels.load(("softmax", "spin_wait"))
    row = next(row for row in table.ROWS if row.op == "softmax")
    right = row.ready

    def wrong(x, dim):
        made = right(x, dim)
        return made if made is NotImplemented or x.shape[-1] != 3 else made * np.float32(1.01)

    monkeypatch.setattr(row, "ready", wrong)
    seed = next(s for s in range(2000) if kernels.differs("softmaxes", kernels.make("softmaxes", s), "cpu"))
    with pytest.raises(kernels.Wrong, match="expected"):
        kernels.check("softmaxes", seed)
    case, message = kernels.shrink("softmaxes", seed)
    assert "result or gradient 0" in message and case.threads == 1 and case.size() < 40
    exec(kernels.snippet("softmaxes", case, "cpu"), {})
    assert "expected" in capsys.readouterr().out


@compiled
def test_memory_that_is_not_written_is_found(monkeypatch):
    kernels.load(("exp", "spin_wait"))
    row = next(row for row in table.ROWS if row.op == "exp")

    def lazy(x, out=None):
        made = np.empty(x.shape, x.dtype)
        made[..., :-1] = np.exp(x[..., :-1])
        return made

    monkeypatch.setattr(row, "ready", lazy)
    with pytest.raises(kernels.Wrong):
        kernels.compare(Case("torch.exp(a)", {"a": Array((3, 4))}), FAMILIES["unary"])


FOUND = {
    "gradients that must not be written": ("optimizers", Case("stepped('Adam', [a], [b], 2, lr=0.1)", {
        "a": Array((300,), grad=False), "b": Array((300,), layout="read-only", grad=False),
    })),
    "norms of gradients that must not be written": ("clipping", Case("torch.nn.utils.get_total_norm([a])", {
        "a": Array((300,), layout="read-only", grad=False),
    })),
    "weights with gaps": ("convolutions", Case(
        "F.conv1d(a, b)", {"a": Array((40, 6, 7)), "b": Array((30, 6, 1), layout="spaced")}, threads=2,
    )),
    "more points than the source has": ("convolutions", Case(
        "F.conv_transpose2d(a, b, None, (1, 1), (0, 0), (1, 1), 1, (3, 2))",
        {"a": Array((8, 1, 18, 17)), "b": Array((1, 9, 1, 1))},
    )),
    "few taps of a small image": ("convolutions", Case(
        "F.conv2d(a, b, None, 2, 2)", {"a": Array((600, 1, 1, 1)), "b": Array((1, 1, 1, 3))},
    )),
}  # fmt: skip


@compiled
@pytest.mark.parametrize("name", FOUND)
def test_what_was_found(name):
    family, case = FOUND[name]
    kernels.load((*FAMILIES[family].rows, "spin_wait"))
    assert kernels.compare(case, FAMILIES[family]) == "same"


def test_sizes_are_small_and_some_are_nothing():
    shapes = [Draw(seed).any_shape() for seed in range(600)]
    assert sum(0 in shape for shape in shapes) > 5 and sum(1 in shape for shape in shapes) > 100
    assert max(np.prod(shape) for shape in shapes) < 30_000


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "tests.fuzz", *arguments], capture_output=True, text=True, cwd=loops.ROOT, timeout=600
    )


def test_the_command_counts_and_names_its_seed():
    run = command("stress", "--only", "kills", "--seed", "5", "--cases", "3")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "seed 5" in run.stdout and "kills 3" in run.stdout and "all cases agree" in run.stdout
    assert command("stress", "--only", "nothing").returncode != 0


def test_families_that_cannot_run_are_named(monkeypatch):
    monkeypatch.setattr(loops, "names", lambda device: [name for name in FAMILIES if kernels.fits(name, device)])
    assert loops.families("cpu", ("joins", "unary")) == ["unary", "joins"]
    with pytest.raises(SystemExit, match=r"^quotients, scaling: needs a GPU"):
        loops.families("cpu", ("quotients", "unary", "scaling"))
    with pytest.raises(SystemExit, match=r"^no such family: nothing; there are unary"):
        loops.families("cpu", ("unary", "nothing"))


def test_a_case_that_fails_is_named(monkeypatch, capsys):
    from tests.fuzz import __main__ as program

    def odd(seed):
        if seed % 2:
            raise ValueError("odd")
        return "even"

    monkeypatch.setitem(loops.LOOPS, "odd", loops.Loop(odd, "numbers are even"))
    monkeypatch.setattr(sys, "argv", ["fuzz", "stress", "--only", "odd", "--seed", "2", "--cases", "2"])
    assert program.main() == 1
    out, error = capsys.readouterr()
    assert "odd, seed 3: ValueError: odd" in out + error and "--only odd --seed 3 --cases 1" in out + error
    assert "1 cases FAILED" in out and "even 1" in out
