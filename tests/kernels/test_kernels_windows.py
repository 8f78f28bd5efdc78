"""Kernels on Windows: its rules of calling functions, of the stack and of memory, on this processor.

The rules are looked at by tests/support/windows.py. `python -m tests.support.windows` runs all kernels by them.
"""

import platform
import re
import struct

import pytest

from tensorgrad.kernels.compiled import table
from tensorgrad.kernels.compiled.runtime import library
from tests.support.kernels import absent
from tests.support.processes import environment, output_of, run_python

pytestmark = [
    pytest.mark.skipif(bool(absent()), reason=absent()),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="Windows has rules of its own on x86-64"),
]


@pytest.fixture(autouse=True, scope="module")
def assembler():
    pytest.importorskip("llvmlite", reason="llvmlite assembles the code that looks: pip install '.[kernels]'")


def test_a_kernel_of_each_family_gives_numpys_numbers():
    kernels = {row.kernel.rpartition(".")[0]: row.kernel for row in table.ROWS if row is not table.WAITING}
    printed = output_of(None, "-m", "tests.support.windows", *kernels.values(), env=environment("TENSORGRAD"))
    calls = dict(re.findall(r"(\S+): (\d+) calls", printed))
    assert set(calls) == set(kernels.values()) and min(map(int, calls.values())) > 0


def test_training_and_plans_give_the_bits_of_this_system():
    """All four functions of the launcher are called, in several threads."""
    code = """
        import sys
        from tensorgrad.kernels.compiled.runtime import library, native
        from tests.support import bits, windows
        if sys.argv[2] == "windows":
            windows.use()
        names, there = [], native.function
        native.function = lambda address, name: names.append(name) or there(address, name)
        bits.main(sys.argv[1], "training")
        import tensorgrad as torch
        torch.manual_seed(0)
        torch.set_num_threads(3)
        net = torch.nn.Sequential(torch.nn.Linear(200, 300), torch.nn.GELU(), torch.nn.LayerNorm(300))
        optimizer = torch.optim.SGD(net.parameters(), 0.01)

        @torch.compile
        def step(x):
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        for _ in range(6):
            print(step(torch.randn(500, 200)).item())
        print(*names, "runtime.native" in library.image().addresses)
    """
    file = library.image().file
    here, there = (
        output_of(code, file, system, env=environment("TENSORGRAD")).splitlines() for system in ("here", "windows")
    )
    assert here[:-1] == there[:-1] and len(here) == 4 * 8 + 7
    assert (here[-1], there[-1]) == ("launch call replay same False", "launch call replay same True")


def test_a_broken_rule_is_seen():
    """Functions that are called as on Linux change registers that Windows keeps."""
    code = """
        from tensorgrad.kernels.compiled.runtime import library, native
        from tests.support import windows
        windows.use()
        read = native.words
        native.words = lambda address, count: read(address, count)[:4] * 2 if count == 8 else read(address, count)
        library.load("softmax.softmax")
        import tensorgrad as torch
        torch.randn(300, 300).softmax(-1)
    """
    assert run_python(code, env=environment("TENSORGRAD")).returncode < 0


def test_frames_of_more_than_a_page_touch_each_page():
    """The instructions that make room: `sub rsp, number`, and before a loop of them `lea r11, [rsp - number]`."""
    image, large = library.image(), 0
    for name, family in image.families.items():
        code = image.blob(name)[: family["code"]]
        sizes = [struct.unpack("<i", found)[0] for found in re.findall(rb"\x48\x81\xec(....)", code, re.DOTALL)]
        assert all(size <= 4096 for size in sizes if 0 < size < 1 << 24), name
        large += sizes.count(4096)
    assert large
