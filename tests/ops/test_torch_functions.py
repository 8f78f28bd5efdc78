"""Functions of `torch` about the process, the thread and the machine rather than about numbers, each as in torch."""

from __future__ import annotations

import re
import warnings

import pytest

import tensorgrad as tg
from tests.support.processes import output_of

torch = pytest.importorskip("torch", reason="PyTorch is the oracle of these tests and is not installed")


def story(library, lines: str) -> list[tuple]:
    """What each line, run one after the other, gives: its text or its exception; and what it warns of."""
    scope, told = {"l": library, "F": library.nn.functional}, []
    for line in filter(None, map(str.strip, lines.splitlines())):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                try:
                    result = repr(eval(line, scope))
                except SyntaxError:
                    result = exec(line, scope)
            except Exception as error:
                result = type(error).__name__, str(error)[:60]
        warned = [(w.category.__name__, str(w.message).partition(" (Trig")[0]) for w in caught]
        told.append((line, re.sub("tensorgrad", "torch", str(result)), warned))
    return told


AUTOCAST = {
    "enabled": """
        l.set_autocast_enabled(True)
        l.is_autocast_enabled(), l.is_autocast_enabled("cuda"), l.is_autocast_enabled("cpu")
        l.set_autocast_enabled(False)
        l.set_autocast_enabled("cpu", True)
        (l.ones(2, 2) @ l.ones(2, 2)).dtype
        l.is_autocast_cpu_enabled(), l.is_autocast_enabled()
        l.set_autocast_enabled(device_type="cpu", enabled=False)
        (l.ones(2, 2) @ l.ones(2, 2)).dtype
        l.set_autocast_cpu_enabled(True)
        l.is_autocast_enabled("cpu")
        l.set_autocast_cpu_enabled(False)
        l.set_autocast_enabled(1)
        l.set_autocast_enabled("cpu", 1)
        l.set_autocast_enabled(True, "cpu")
        l.set_autocast_enabled()
        l.set_autocast_cpu_enabled(3)
    """,
    "dtype": """
        l.set_autocast_dtype("cpu", l.float16)
        l.get_autocast_dtype("cpu"), l.get_autocast_cpu_dtype(), l.get_autocast_gpu_dtype()
        l.set_autocast_enabled("cpu", True)
        (l.ones(2, 2) @ l.ones(2, 2)).dtype
        l.set_autocast_enabled("cpu", False)
        l.set_autocast_gpu_dtype(l.bfloat16)
        l.get_autocast_dtype("cuda")
        l.set_autocast_gpu_dtype(l.float16)
        l.set_autocast_cpu_dtype(l.bfloat16)
        l.get_autocast_dtype("cpu")
        l.set_autocast_cpu_dtype(3)
        l.set_autocast_dtype("cpu", 3)
    """,
    "nesting": """
        l.autocast_increment_nesting(), l.autocast_increment_nesting(), l.autocast_decrement_nesting()
        l.autocast_decrement_nesting()
        block = l.autocast("cpu", cache_enabled=False)
        block.__enter__() and None
        l.autocast_increment_nesting(), l.autocast_decrement_nesting(), l.is_autocast_cache_enabled()
        l.set_autocast_enabled("cpu", False)
        l.set_autocast_enabled("cuda", True)
        block.__exit__(None, None, None) or None
        l.is_autocast_enabled("cpu"), l.is_autocast_enabled("cuda"), l.is_autocast_cache_enabled()
        l.set_autocast_enabled("cuda", False)
    """,
    "cache": """
        l.is_autocast_cache_enabled()
        l.set_autocast_cache_enabled(False)
        l.is_autocast_cache_enabled()
        l.set_autocast_cache_enabled(1)
        l.set_autocast_cache_enabled(True)
        l.clear_autocast_cache()
    """,
}


@pytest.mark.parametrize("name", AUTOCAST)
def test_the_state_of_autocast(name):
    from tensorgrad.rows import switches

    before = list(switches.SLOW)
    assert story(tg, AUTOCAST[name]) == story(torch, AUTOCAST[name])
    assert switches.LOCAL.autocast is None and before == switches.SLOW


def test_copies_of_parameters_are_kept_while_the_nesting_lasts():
    kept = []
    for l in (tg, torch):
        w, x = l.ones(2, 2, requires_grad=True), l.ones(2, 2)
        l.set_autocast_enabled("cpu", True)
        l.autocast_increment_nesting()
        first, second = (x @ w).grad_fn, (x @ w).grad_fn
        l.clear_autocast_cache()
        third = (x @ w).grad_fn
        l.autocast_decrement_nesting()
        l.clear_autocast_cache()
        l.set_autocast_enabled("cpu", False)
        casts = [node.next_functions[1][0] for node in (first, second, third)]
        kept.append((casts[0] is casts[1], casts[0] is casts[2]))
    assert kept[0] == kept[1] == (True, False)


NAMES = """
    l.get_device_module("cpu").__name__, l.get_device_module(l.device("cuda", 0)).__name__
    l.get_device_module().__name__
    l.get_device_module("meta")
    l.get_device_module(3)
    l.get_file_path("a", "b")[-4:]
    l.set_anomaly_enabled(True)
    l.is_anomaly_enabled(), l.is_anomaly_check_nan_enabled()
    l.set_anomaly_enabled(True, False)
    l.is_anomaly_check_nan_enabled()
    l.set_anomaly_enabled(False)
    l.is_anomaly_enabled(), l.is_anomaly_check_nan_enabled()
    l.set_anomaly_enabled(1)
    l.autograd.is_view_replay_enabled()
    l.autograd._force_original_view_tracking(True).__exit__(None, None, None)
    l.autograd.is_view_replay_enabled()
    F.has_torch_function((l.ones(2), 1)), F.has_torch_function_unary(l.ones(2)), F.has_torch_function_variadic(1, 2)
    F.handle_torch_function.__name__
    F.BroadcastingList2[int]
    one = lambda x, flag=False: ("one", x)
    two = lambda x, flag=False: ("two", x)
    chosen = F.boolean_dispatch("flag", 1, False, one, two, "here", "chosen")
    chosen(1), chosen(1, True), chosen(1, flag=True), chosen.__name__, chosen.__module__, chosen.__doc__
    F.boolean_dispatch("flag", 1, False, l.nn.Linear, l.nn.ReLU, None, None)
"""


def test_names_about_the_process():
    assert story(tg, NAMES) == story(torch, NAMES)


@pytest.mark.parametrize(("shape", "lengths", "dim"), [
    ((3, 4), (3, 1), 0), ((3, 4), (1, 4), 1), ((3, 4), (), -1), ((2, 3, 4), (2, 1, 1), 0), ((2, 3, 4), (1, 3, 1), 1),
    ((2, 3, 4), (1, 1, 4), 2),
])  # fmt: skip
def test_a_weight_of_given_length(shape, lengths, dim):
    torch.manual_seed(0)
    v, g = torch.randn(shape, dtype=torch.float64), torch.randn(lengths, dtype=torch.float64)
    ours = [tg.tensor(t.numpy(), requires_grad=True) for t in (v, g)]
    theirs = [t.clone().requires_grad_() for t in (v, g)]
    both = []
    for l, (direction, length) in ((tg, ours), (torch, theirs)):
        w = l._weight_norm(direction, length, dim)
        w.cos().sum().backward()
        both.append([t.detach().numpy() for t in (w, direction.grad, length.grad)])
        if dim in (0, len(shape) - 1):
            w, norms = l._weight_norm_interface(direction, length, dim)
            assert w.requires_grad and not norms.requires_grad
            both[-1] += [w.detach().numpy(), norms.numpy()]
        else:
            with pytest.raises(RuntimeError, match="fused kernels can only be applied for first or last dim"):
                l._weight_norm_interface(direction, length, dim)
    for mine, its in zip(*both, strict=True):
        torch.testing.assert_close(torch.from_numpy(mine.copy()), torch.from_numpy(its.copy()))


def test_the_report_of_the_machine():
    from torch.utils import collect_env as theirs

    from tensorgrad.utils import collect_env as ours

    assert ours.SystemEnv._fields == theirs.SystemEnv._fields
    told = [re.findall(r"(?m)^([A-Z][\w /]+):", module.get_pretty_env_info().partition("\nCPU:")[0])
            for module in (ours, theirs)]  # fmt: skip
    assert told[0] == told[1]
    printed = output_of(None, "-m", "tensorgrad.utils.collect_env")
    assert "PyTorch version: 2" in printed and re.search(r"\[pip3\] numpy==", printed)


def test_parts_of_the_report_on_the_machine():
    """Test suites of libraries (kornia's) print them."""
    from torch.utils import collect_env as theirs

    from tensorgrad.utils import collect_env as ours

    asked = []

    def run(command):
        asked.append(command)
        return ours.run(command)

    for name in ("cpu_info", "gcc_version", "nvidia_driver_version", "cmake_version"):
        assert getattr(ours, f"get_{name}")(run) == getattr(theirs, f"get_{name}")(theirs.run), name
    assert asked
