"""Which test files run with which kernels, and in which phase of `make test`.

A test file that imports something from `ABOUT_PROCESSES` starts processes, opens ports, sends signals, watches clocks
or drives a browser. It runs in the second phase, when nothing else runs on the machine. All others run in the first.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

# Results of these tests depend on whose kernel ran: they run with compiled kernels and with NumPy alone. All others run
# once, as a user's program does, with compiled kernels if the machine has them.
BOTH_KERNELS = (
    "docs/test_examples.py",
    "fuzz/*",
    "kernels/*",
    "nested/*",
    "nn/*",
    "ops/*",
    "optim/*",
    "sparse/*",
    "distributed/test_ddp.py",
    "distributed/test_fsdp.py",
    "distributed/test_groups.py",
)
# Exceptions to that: about compiled kernels, or about neither.
ONCE = (
    "kernels/test_carried_kernels.py",
    "kernels/test_cuda_absent.py",
    "kernels/test_equal_bits.py",
    "kernels/test_kernels_build.py",
    "kernels/test_numba*.py",
    "kernels/test_nvrtc.py",
    "kernels/test_thread_pool.py",
    "kernels/test_winograd.py",
    "sparse/test_database.py",
)
# Of these folders only the tests that reach a compiled kernel are repeated with NumPy alone: a tenth of them
# (tools/reaching.py).
REACHING = ("nested", "nn", "ops", "optim", "sparse")
# Need the emulated GPU in their process (tests/emulator).
EMULATED = ("cuda/*",)
# Files of tests/cuda that also run where there is one GPU: then nothing asks which one is meant.
ON_ONE_GPU = ("cuda/test_nn.py", "cuda/test_autograd.py")

# Each of these folders is about processes as a whole.
PROCESS_FOLDERS = ("distributed", "ecosystem")
ABOUT_PROCESSES = re.compile(
    r"^\s*(import|from) (multiprocessing|resource|selectors|signal|socket|subprocess|time"
    r"|tests\.support\.(chromium|forking|processes)|tests\.distributed|tests\.run_programs|urllib)\b"
    r"|^from tests\.support import .*\b(chromium|forking|processes)\b",
    re.MULTILINE,
)

# Seconds that files take, measured on two cores, where they are many more than their length suggests. They say which
# suites are divided, and which start first.
SECONDS = {
    "capture/test_aliases.py": 11, "capture/test_reachable.py": 11, "capture/test_regions.py": 5,
    "capture/test_replaced.py": 17, "capture/test_training_forward.py": 6,
    "compat/test_environment.py": 12,
    "cuda/test_amp.py": 14, "cuda/test_attention.py": 6, "cuda/test_benchmark.py": 18, "cuda/test_conv.py": 6,
    "cuda/test_examples.py": 15, "cuda/test_fuzz.py": 19, "cuda/test_graphs.py": 10, "cuda/test_nn.py": 9,
    "cuda/test_ops.py": 8, "cuda/test_reduce.py": 5,
    "dispatch/test_stubs.py": 6, "dispatch/test_twins.py": 9,
    "distributed/test_checkpoint_ranks.py": 10, "distributed/test_comm_hooks.py": 11, "distributed/test_ddp.py": 8,
    "distributed/test_dtensor.py": 13, "distributed/test_dynamic_rendezvous.py": 15,
    "distributed/test_elastic_agent.py": 28, "distributed/test_failures.py": 22, "distributed/test_fsdp.py": 12,
    "distributed/test_functional.py": 8, "distributed/test_groups.py": 14, "distributed/test_launch.py": 10,
    "distributed/test_pipelining.py": 9, "distributed/test_run.py": 8, "distributed/test_run_kills.py": 16,
    "distributed/test_run_nodes.py": 13, "distributed/test_slurm.py": 13, "distributed/test_sums.py": 11,
    "distributed/test_zero.py": 10,
    "docs/test_benchmarks.py": 24, "docs/test_contributing.py": 45, "docs/test_docs.py": 11, "docs/test_doctests.py": 9,
    "docs/test_examples.py": 51, "docs/test_tools.py": 14, "docs/test_try.py": 4,
    "ecosystem/test_quick.py": 46,
    "editors/test_checkers.py": 14,
    "fuzz/test_beside_torch.py": 9, "fuzz/test_exits.py": 5, "fuzz/test_fuzz.py": 8,
    "kernels/test_carried_kernels.py": 8, "kernels/test_cuda_absent.py": 4, "kernels/test_equal_bits.py": 51,
    "kernels/test_kernels_build.py": 15, "kernels/test_numba_lean.py": 7, "kernels/test_nvrtc.py": 42,
    "kernels/test_thread_pool.py": 7,
    "nn/test_modules.py": 17,
    "ops/test_ops.py": 49,
    "optim/test_optimdb.py": 17,
    "serialization/test_loading.py": 84, "serialization/test_serialization.py": 10,
    "sparse/test_database.py": 12,
    "system/test_forks.py": 14, "system/test_processes.py": 6, "system/test_recycling.py": 7,
    "system/test_structure.py": 18,
    "utils/test_data_workers.py": 12,
    "viz/test_viz_explore.py": 10, "viz/test_viz_pictures.py": 16,
}  # fmt: skip
BYTES_A_SECOND = 12_000  # of all other files
REPEATED = 1 / 4  # what of a part's time its tests that reach compiled kernels take with NumPy alone
# A suite of many more seconds is divided: files of a part run in one process, in the order of their names.
LARGEST_PART = 75
SMALL_PART = 10  # seconds; folders with fewer share a process
PROCESSES = ", processes"  # ends the names of parts of the second phase
COMPILED, NUMPY, EMULATOR = "compiled kernels", "NumPy alone", "emulated GPUs"
VARIABLES = {COMPILED: {}, NUMPY: {"TENSORGRAD_FAST": "0"}, EMULATOR: {"DEVICE": "emulator", "EMULATED_GPUS": "2"}}


@dataclass
class Part:
    """Files that one process of pytest runs.

    Attributes:
        name: What they are about.
        kernels: `COMPILED`, `NUMPY` or `EMULATOR`.
        files: Paths.
        more: Variables of the process beside those of its kernels.
        reaching: `name` before the part was divided, if only tests that reach compiled kernels are repeated with NumPy
            alone.
    """

    name: str
    kernels: str
    files: list[Path]
    more: dict[str, str] = field(default_factory=dict)
    reaching: str = ""

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the process."""
        return {**VARIABLES[self.kernels], **self.more}

    @property
    def seconds(self) -> float:
        """About how long its files take: the longest parts are started first."""
        part = REPEATED if self.reaching and self.kernels == NUMPY else 1
        return part * sum(map(seconds_of, self.files))


def seconds_of(file: Path) -> float:
    """Returns about how many seconds a test file takes."""
    return SECONDS.get(f"{file.parent.name}/{file.name}", file.stat().st_size / BYTES_A_SECOND)


def has_compiled_kernels(root: Path) -> bool:
    """Returns whether the checkout `root`, or else the installed package, has compiled kernels for this machine."""
    ask = "from tensorgrad.kernels.compiled.runtime import library; library.image()"
    environment = {name: value for name, value in os.environ.items() if name != "TENSORGRAD_FAST"}
    return not subprocess.run([sys.executable, "-c", ask], cwd=root, env=environment, capture_output=True).returncode


def matches(file: Path, tests: Path, patterns: tuple[str, ...]) -> bool:
    """Returns whether the path of a file in the folder `tests` fits one of the patterns."""
    name = file.relative_to(tests).as_posix()
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def starts_processes(file: Path, tests: Path) -> bool:
    """Returns whether a test file belongs to the second phase."""
    folder = file.relative_to(tests).parts[0]
    return folder in PROCESS_FOLDERS or bool(ABOUT_PROCESSES.search(file.read_text(encoding="utf-8")))


def kernels_of(file: Path, tests: Path, compiled: bool) -> tuple[str, ...]:
    """Returns with which kernels of the CPU a test file runs, where there are compiled ones or not."""
    if not compiled:
        return (NUMPY,)
    both = matches(file, tests, BOTH_KERNELS) and not matches(file, tests, ONCE)
    return (COMPILED, NUMPY) if both else (COMPILED,)


def test_files(tests: Path) -> list[Path]:
    """Returns all test files, in the order of their names."""
    return sorted(tests.rglob("test_*.py"))


def phases(tests: Path, compiled: bool, emulator: bool) -> list[list[Part]]:
    """Returns the parts of both phases.

    Args:
        tests: The folder with the tests.
        compiled: Whether there are compiled kernels on this machine.
        emulator: Whether GPUs can be emulated on it.
    """
    result: list[list[Part]] = [[], []]
    folders: dict[tuple[bool, str, str], list[Path]] = {}
    for file in test_files(tests):
        if not matches(file, tests, EMULATED):
            for kernels in kernels_of(file, tests, compiled):
                where = starts_processes(file, tests), file.relative_to(tests).parts[0], kernels
                folders.setdefault(where, []).append(file)
    for (second, folder, kernels), files in folders.items():
        name = folder + PROCESSES if second else folder
        reaching = name if compiled and folder in REACHING else ""
        result[second] += _divided(Part(name, kernels, files, reaching=reaching))
    if emulator:
        gpus = [file for file in test_files(tests) if matches(file, tests, EMULATED)]
        one = [file for file in gpus if matches(file, tests, ON_ONE_GPU)]
        result[0] += _divided(Part("cuda", EMULATOR, gpus))
        result[0] += _divided(Part("cuda, one GPU", EMULATOR, one, {"EMULATED_GPUS": "1"}))
    return [sorted(_joined(parts), key=lambda part: -part.seconds) for parts in result]


def _joined(parts: list[Part]) -> list[Part]:
    """Returns the parts, where small ones that run in the same way are one: a process takes seconds to begin."""
    result: list[Part] = []
    for part in parts:
        alike = (p for p in result if p.seconds <= SMALL_PART and (p.environment, p.reaching) == (part.environment, ""))
        other = next(alike, None) if part.seconds <= SMALL_PART and not part.reaching else None
        if other is None:
            result.append(part)
        else:
            names = [name.removesuffix(PROCESSES) for name in (other.name, part.name)]
            end = PROCESSES if part.name.endswith(PROCESSES) else ""
            result[result.index(other)] = replace(other, name=", ".join(names) + end, files=other.files + part.files)
    return result


def _divided(part: Part) -> list[Part]:
    """Returns the part, or several of about the same length, each of files that follow each other."""
    whole = sum(map(seconds_of, part.files))
    number = max(1, round(part.seconds / LARGEST_PART))
    pieces: list[list[Path]] = [[] for _ in range(number)]
    before = 0.0
    for file in part.files:
        seconds = seconds_of(file)
        pieces[min(int((before + seconds / 2) * number / whole), number - 1)].append(file)
        before += seconds
    pieces = [piece for piece in pieces if piece]
    if len(pieces) < 2:
        return [part] if pieces else []
    return [replace(part, name=f"{part.name} {i}/{len(pieces)}", files=piece) for i, piece in enumerate(pieces, 1)]
