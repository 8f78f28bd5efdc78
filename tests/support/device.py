"""Tests on the device that the environment's DEVICE names: `cuda`, or `emulator` (tests/emulator), or else the CPU.

The tests of `FOLDERS` are written for tensors on the CPU. With DEVICE they run on the device unchanged:

- tensors made without `device=` are on it, also those that a module makes when it is imported;
- NumPy arrays become tensors there, and tensors become arrays, by copies;
- random numbers are the CPU's, copied, so that a seed gives PyTorch's numbers (the device's own are tested in
  tests/cuda/test_random.py);
- `FloatTensor` and its kin are those of `torch.cuda`;
- the device is not printed, and convolutions are not rounded to TF32.

What cannot hold on another device is skipped with a reason: `ELSEWHERE`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
from fnmatch import fnmatchcase
from pathlib import Path

from tests.support.versions import INSTALLED, SPECIFICATION, numbers

TESTS = Path(__file__).resolve().parents[1]
DEVICE = os.environ.get("DEVICE", "cpu")
ON_DEVICE = DEVICE in ("cuda", "emulator")
FOLDERS = ("autograd", "nn", "ops", "optim")
ABOUT_GPUS = ("cuda",)

# Tests that cannot hold on another device: pattern of "folder/file::test" -> the reason. (A "?" stands for the "["
# before a case, which patterns use for something else.)
_PRINTS = "prints where tensors are"
_LATE = "on a GPU, the error of an index comes late (docs/cuda.md)"
_NAMES = "names the CPU as the device"
ELSEWHERE = {
    "nn/test_amp.py::*": "is about autocast on the CPU; the same for GPUs is in tests/cuda/test_amp.py",
    "nn/test_modules.py::test_class?nn.Parameter*": _PRINTS,
    "nn/test_containers.py::test_containers": _PRINTS,
    "nn/test_rnn.py::test_packing?r.pack_padded_sequence(x, l.tensor*": "lengths must be on the CPU",
    "ops/test_float8.py::*": "8-bit floating dtypes are not on GPUs (docs/cuda.md)",
    "ops/test_small_dtypes.py::*": "dtypes of fewer than eight bits are not on GPUs (docs/cuda.md)",
    "ops/test_edge_values.py::test_deviations_are_still_there": "is about the CPU's kernels",
    "ops/test_magnitudes.py::test_reductions*squares vanish*": "squares below 1.2e-38 are 0 (docs/cuda.md)",
    "ops/test_ops.py::test_empty_and_zero_dim*": _LATE,
    "ops/test_ops.py::test_wrong_arguments?l.ones(3)*": _LATE,
    "ops/test_torch_functions.py::test_the_state_of_autocast*": _NAMES,
    "ops/test_torch_functions.py::test_copies_of_parameters_*": _NAMES,
    "ops/test_torch_functions.py::test_names_about_the_process": _NAMES,
    "ops/test_printing.py::test_device_comes_before_the_dtype": _PRINTS,
    "ops/test_special.py::test_igamma_in_place*": _PRINTS,
    "ops/test_storages.py::*": "is about memory of the CPU, its files and processes",
    "nn/test_nn_utils.py::test_functional_call_says*": _NAMES,
    "ops/test_linalg_edges.py::test_of_nan": "cuSOLVER gives nan where LAPACK fails",
    "ops/test_index_assignment.py::test_assignment_to_whole_index_arrays*": _LATE,
    "ops/test_linalg_edges.py::test_errors_in_words": "the argument `driver` is for GPUs only",
    "ops/test_linalg_factor.py::test_errors_of_lu": "LU without pivoting is for GPUs only",
    "ops/test_interop.py::*": "arrays of NumPy and tensors on a GPU share no memory",
    "optim/test_optim_api.py::test_averaged_model*": _NAMES,
}


# The same under a PyTorch before the one that is the specification: what it prints, draws, or lacks.
NEWER = {
    "nn/test_layers.py::test_layer?*Norm*": "2.13 prints `bias=`, and takes it",
    "nn/test_module_members.py::test_traversal": "2.13 prints `bias=`",
    "nn/test_layers.py::test_init*trunc_normal_*": "2.13 draws others",
    "nn/test_layers.py::test_constructor_errors?HuberLoss*": "2.13 refuses more",
    "nn/test_modules.py::test_class?nn.*Norm*": "2.13 prints `bias=`",
    "nn/test_modules.py::test_class?nn.Transformer*": "2.13 prints `bias=`",
    "nn/test_modules.py::test_lazy_layers*": "2.13 prints `bias=`",
    "nn/test_modules.py::test_sync_batch_norm": "2.13 takes `bias=`",
    "nn/test_modules.py::test_deprecated_classes": "2.13 has another text",
    "nn/test_nn_utils.py::test_parametrize_with_several_tensors": "2.13 prints `bias=`",
    "nn/test_distributions.py::test_what_does_not_fit_together_is_the_same_error?4?": "2.13 has another text",
    "cuda/test_nn.py::test_module?*Norm*": "2.13 prints `bias=`",
    "cuda/test_nn.py::test_module?Transformer*": "2.13 prints `bias=`",
    "ops/test_random_streams.py::test_uniform?*float16*": "2.13 draws others of 16 bits",
    "ops/test_random_streams.py::test_normal?*float16*": "2.13 draws others of 16 bits",
    "ops/test_foreach.py::test_the_*": "2.13 has more of them",
}


def install() -> None:
    """Before anything is imported: the emulator, if that is the device."""
    if DEVICE == "emulator":
        from tests import emulator

        emulator.install()


def as_on_the_cpu(text: str) -> str:
    """Returns a text with the device's name replaced by the CPU's; also as a part of kernels' names."""
    return re.sub(r"(?<![a-z.])cuda(:0)?\b", "cpu", text) if ON_DEVICE else text


def wait() -> None:
    """Waits for the device. Raises: IndexError for an index that was wrong, which a GPU says late."""
    import tensorgrad

    tensorgrad.cuda.synchronize()


def works() -> bool:
    """Returns whether the GPU still works. It waits for the GPU, so that the test that broke it is known."""
    if "cupy" not in sys.modules:
        return True
    runtime = sys.modules["cupy"].cuda.runtime
    try:
        runtime.deviceSynchronize()
    except runtime.CUDARuntimeError:
        return False
    return True


def folder_of(path: Path) -> str:
    """Returns the folder of tests/ that a path is in; "" for those directly in it, or outside."""
    parts = path.relative_to(TESTS).parts if path.is_relative_to(TESTS) else ()
    return parts[0] if len(parts) > 1 else ""


def reason_to_skip(node: str) -> str | None:
    """Returns why a test ("tests/folder/file::test[case]") cannot run on the device, or None."""
    tables, name = [ELSEWHERE], node.removeprefix("tests/")
    if numbers(SPECIFICATION) > INSTALLED:
        tables.append(NEWER)
    return next((why for table in tables for pattern, why in table.items() if fnmatchcase(name, pattern)), None)


@functools.cache
def _replacements() -> list[tuple[object, str, object]]:
    """Returns what stands for what on the device: (object, attribute, value)."""
    import tensorgrad
    from tensorgrad import printing
    from tensorgrad.kernels.cuda.runtime import switches
    from tensorgrad.ops.random import sample

    tensorgrad.cuda.init()
    numpy, from_numpy = tensorgrad.Tensor.numpy, tensorgrad.from_numpy
    stream, format_tensor = sample.stream, printing.format_tensor

    def to_numpy(self, *, force=False):
        there = self.device.type == "cuda" and not force
        return numpy(self.cpu() if there else self, force=force)

    def there(array):
        return from_numpy(array).to("cuda")

    def stream_of_cpu(generator, name, device=None):
        return stream(generator, name)

    def printed(*values, device="cpu", **options):
        return format_tensor(*values, device="cpu" if device.startswith("cuda") else device, **options)

    kinds = [f"{kind}Tensor" for kind in ("Float", "Double", "Half", "Long", "Int", "Short", "Byte", "Bool")]
    return [
        *((tensorgrad, name, getattr(tensorgrad.cuda, name)) for name in kinds),
        (tensorgrad.Tensor, "numpy", to_numpy), (tensorgrad, "from_numpy", there), (sample, "stream", stream_of_cpu),
        (printing, "format_tensor", printed), (switches.cudnn, "allow_tf32", False),
    ]  # fmt: skip


@contextlib.contextmanager
def tensors_there():
    """A context in which tensors are made on the device, as described above."""
    from tensorgrad import devices
    from tensorgrad.ops.create import DEFAULT_DEVICE
    from tensorgrad.rows import kernel_tables

    changed = _replacements()
    before = [(place, name, getattr(place, name)) for place, name, _ in changed]
    rows = kernel_tables.REGISTRY["cuda", "device"]
    drawn = [name for name, path in rows.items() if path.startswith("cuda.random.")]
    for place, name, value in changed:
        setattr(place, name, value)
    kernel_tables.REGISTRY["cuda", "device"] = {name: path for name, path in rows.items() if name not in drawn}
    kernel_tables.forget(*drawn)
    DEFAULT_DEVICE.device = devices.device("cuda")
    try:
        yield
    finally:
        DEFAULT_DEVICE.device = devices.CPU
        kernel_tables.REGISTRY["cuda", "device"] = rows
        kernel_tables.forget(*drawn)
        for place, name, value in before:
            setattr(place, name, value)
