"""A busy process keeps the memory of large arrays, within bounds, and returns it to the system when it is idle."""

import os
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest

from tensorgrad.storage import recycling
from tests.support.processes import environment, output_of

START = """
    import os, time
    import numpy as np
    import tensorgrad as torch
    from tensorgrad.storage import recycling
    from tensorgrad.system import threads

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20

    def fall(limit, seconds):
        end = time.monotonic() + seconds
        while resident() - before > limit and time.monotonic() < end:
            time.sleep(0.05)
        return resident() - before <= limit

    def use(megabytes=100):
        x = np.ones(megabytes << 17)
        assert resident() - before > megabytes * 0.8
        return megabytes

    names = list(threads.NAMES.values())
    before = resident()
"""


def run(program, **variables):
    """Returns the words that START and a program print, with no settings of memory but those given."""
    given = environment("MALLOC_", "GLIBC_", "TENSORGRAD_RECYCLE") | variables
    return output_of(textwrap.dedent(START) + textwrap.dedent(program), timeout=180, env=given).split()


needs_glibc = pytest.mark.skipif(
    recycling._glibc() is None or not os.path.exists("/proc/self/statm"), reason="only glibc has these thresholds"
)
needs_memory = pytest.mark.skipif(
    not hasattr(os, "sysconf") or recycling.memory() < 2**31, reason="so little memory is not kept on a small machine"
)
ONE_OP = "recycling.IDLE = 3600\ntorch.ones(3) * 2\n"


@needs_glibc
def test_a_program_that_only_imports_keeps_its_allocator_and_has_no_new_thread():
    assert run("use(); print(fall(20, 0), recycling._State.kept, 'tensorgrad memory' in names)") == [
        "True", "None", "False"
    ]  # fmt: skip


@needs_glibc
@needs_memory
def test_memory_is_kept_and_given_back():
    program = ONE_OP + "use(); print(fall(80, 0)); recycling.release(); print(fall(20, 0))"
    assert run(program) == ["False", "True"]


@needs_glibc
@needs_memory
def test_an_idle_process_gives_it_back():
    program = """
        recycling.IDLE = 0.5
        torch.ones(3) * 2
        assert "tensorgrad memory" in threads.NAMES.values()
        for _ in range(2):  # it does so each time
            end = time.monotonic() + 1.5
            while time.monotonic() < end:
                use()
            print(fall(20, 60))
    """
    assert run(program) == ["True", "True"]


@needs_glibc
@pytest.mark.parametrize("variable", ["TENSORGRAD_RECYCLE=0", "MALLOC_TRIM_THRESHOLD_=131072"])
def test_switched_off(variable):
    name, _, value = variable.partition("=")
    program = ONE_OP + "use(); print(fall(20, 0), recycling.start(), len(threads.NAMES) - len(names))"
    assert run(program, **{name: value}) == ["True", "False", "0"]


@needs_glibc
@needs_memory
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_keeps_little():
    program = """
        recycling.IDLE = 3600
        torch.ones(3) * 2
        pid = os.fork()
        if pid == 0:
            use(200)
            os._exit(0 if fall(recycling.IN_CHILD >> 20, 0) and not threads.NAMES else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        use()
        print(fall(80, 0))
    """
    assert run(program) == ["0", "False"]


# --- without an allocator --------------------------------------------------------------------------------------------


class Library:
    """A stand-in for glibc; it rejects mmap thresholds above a limit, as some versions do."""

    def __init__(self):
        self.asked, self.trims = [], 0

    def mallopt(self, what, value):
        self.asked.append((what, value))
        return what == recycling._TRIM_THRESHOLD or value <= 1 << 25

    def malloc_trim(self, pad):
        self.trims += 1
        return 1


def raised(monkeypatch, memory):
    """Returns the settings requested from the allocator if a process may use this much memory."""
    library = Library()
    monkeypatch.setattr(recycling, "_glibc", lambda: library)
    monkeypatch.setattr(recycling, "memory", lambda: memory)
    monkeypatch.setattr(recycling.threads, "start", lambda name, serve, *arguments: None)
    monkeypatch.setattr(os, "register_at_fork", lambda **functions: None, raising=False)
    for name in (*recycling._OTHERS, "TENSORGRAD_RECYCLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(recycling._State, "kept", None)
    assert recycling.start() and recycling.start()  # the second call requests nothing more
    return library.asked


@pytest.mark.parametrize("memory", [1 << 28, 1 << 30, 1 << 33, 1 << 40])
def test_more_than_the_bound_is_not_kept(memory, monkeypatch):
    limit = min(1 << 30, memory // 8)
    refused = [] if limit <= 1 << 25 else [(recycling._MMAP_THRESHOLD, 1 << 25)]
    assert raised(monkeypatch, memory) == [
        (recycling._MMAP_THRESHOLD, limit), *refused, (recycling._TRIM_THRESHOLD, limit)
    ]  # fmt: skip


def test_elsewhere_nothing_happens(monkeypatch):
    monkeypatch.setattr(recycling._State, "kept", None)
    monkeypatch.setattr(os, "confstr", lambda name: "musl 1.2", raising=False)
    assert recycling._glibc() is None and recycling.start() is False and recycling.release() is False
    monkeypatch.setattr(recycling._State, "kept", None)
    monkeypatch.delattr(os, "confstr")
    assert recycling.start() is False and recycling.release() is False


@pytest.mark.parametrize(
    ("used", "trims"),
    [([0, 0, 0], 0), ([1, 0, 0], 1), ([1, 1, 1], 0), ([1, 0, 1, 0, 0], 2), ([0.02, 0.02, 0], 0), ([1, 1, 0.02], 1)],
)
def test_memory_is_given_back_once_when_a_process_becomes_idle(used, trims, monkeypatch):
    """`used` has the processor seconds at each check of the thread."""
    library, clock, coming = Library(), [0.0], iter(used)

    def sleep(seconds):
        clock[0] += next(coming)  # StopIteration ends the thread

    monkeypatch.setattr(recycling, "time", SimpleNamespace(sleep=sleep, process_time=lambda: clock[0]))
    with pytest.raises(StopIteration):
        recycling._watch(library)
    assert library.trims == trims


# --- the limits of control groups ------------------------------------------------------------------------------------

MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
MB = 1 << 20
# The contents of /proc/self/cgroup, files below /sys/fs/cgroup, and the limit in MB (None: that of the machine).
GROUPS = {
    "none": (None, {}, None),
    "2, no limit": ("0::/", {"memory.max": "max", "memory.high": "max"}, None),
    "2, a container": ("0::/", {"memory.max": 512, "memory.high": "max"}, 512),
    "2, throttled before": ("0::/", {"memory.max": 512, "memory.high": 300}, 300),
    "2, nested": ("0::/a/b/c", {"a/b/c/memory.max": "max", "a/b/memory.max": 200, "a/memory.max": 400}, 200),
    "2, an outer one is smaller": ("0::/a/b", {"a/b/memory.max": 400, "a/memory.high": 100}, 100),
    "2, the group is not shown": ("0::/docker/123", {"memory.max": 256}, 256),
    "2, seen from inside": ("0::/../../x", {"x/memory.max": 77}, 77),
    "1": ("4:memory:/", {"memory/memory.limit_in_bytes": 128}, 128),
    "1, nested": (
        "9:cpu:/z\n4:memory:/a/b", {"memory/a/b/memory.limit_in_bytes": 2**43, "memory/a/memory.limit_in_bytes": 99}, 99
    ),
    "1, no limit": ("4:memory:/", {"memory/memory.limit_in_bytes": 2**43}, None),
    "1, together": ("3:cpu,memory:/a", {"cpu,memory/a/memory.limit_in_bytes": 64}, 64),
    "both": ("4:memory:/m\n0::/u", {"memory/m/memory.limit_in_bytes": 90, "unified/u/memory.max": 80}, 80),
    "another controller": ("4:cpu:/", {"memory.max": 5, "cpu/memory.max": 5}, None),
    "no numbers": ("0::/\nnonsense", {"memory.max": "?", "memory.high": ""}, None),
    "nothing": ("0::/a", {}, None),
    "zero": ("0::/", {"memory.max": 0, "memory.high": 60}, 60),
}  # fmt: skip


@pytest.mark.skipif(not MACHINE, reason="this system does not say how much memory it has")
@pytest.mark.parametrize("name", GROUPS)
def test_limits_of_control_groups(name, tmp_path):
    groups, files, limit = GROUPS[name]
    (tmp_path / "proc/self").mkdir(parents=True)
    if groups is not None:
        (tmp_path / "proc/self/cgroup").write_text(groups + "\n")
    for path, value in files.items():
        file = Path(tmp_path, "sys/fs/cgroup", path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value * MB if isinstance(value, int) else value}\n")
    assert recycling.memory(str(tmp_path)) == (MACHINE if limit is None else min(MACHINE, limit * MB))


@needs_glibc
@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_quantizing_gives_the_memory_of_the_old_weights_back(dtype):
    """96 MB of float32 become 24 or 13. Large weights: while they are quantized, no copy of all is made either."""
    program = """
        recycling.IDLE = 3600
        layers = (torch.nn.Linear(2048, 2048), torch.nn.Linear(2048, 10240))
        model = torch.nn.Sequential(*layers)
        del layers
        print(resident() - before > 80)
        torch.quantize(model, dtype)
        print(fall(sum(t.nbytes for t in model.state_dict().values()) / 2**20 + 20, 0))
        with open("/proc/self/status") as file:
            most = int(next(line for line in file if line.startswith("VmHWM")).split()[1]) >> 10
        print(most - before < 96 + 60)
    """
    assert run(f"dtype = {dtype!r}\n" + textwrap.dedent(program)) == ["True", "True", "True"]
