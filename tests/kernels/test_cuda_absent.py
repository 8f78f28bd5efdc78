"""Without CuPy, with a CuPy that cannot be imported, without a driver, without a GPU: everything says so in a line, and
whoever does not ask for a GPU pays nothing."""

import os
from pathlib import Path

import pytest

import tensorgrad
from tests.support.processes import ROOT, environment, output_of

# What stands for a CuPy in `sys.path`, as the text of its `__init__.py`.
BROKEN = """
try:
    raise ModuleNotFoundError("No module named 'cuda.pathfinder'", name="cuda.pathfinder")
except ImportError as error:
    raise ImportError("\\n=====\\nFailed to import CuPy.\\n\\nOriginal error: ...\\n=====") from error
"""
OTHERWISE = "raise AttributeError('numpy has no product')"
WITHOUT_DRIVER = """
class CUDARuntimeError(RuntimeError):
    pass

class runtime:
    CUDARuntimeError = CUDARuntimeError
    @staticmethod
    def getDeviceCount():
        raise CUDARuntimeError("cudaErrorInsufficientDriver: the driver is too old")

class cuda:
    runtime = runtime
"""
WITHOUT_GPU = """
class runtime:
    class CUDARuntimeError(RuntimeError):
        pass
    getDeviceCount = staticmethod(lambda: 0)

class cuda:
    runtime = runtime
"""
ABSENT = None  # no CuPy at all, even if one is installed


def run(program: str, tmp_path: Path, cupy: str | None) -> str:
    """Returns what a program prints in a process that has this CuPy."""
    before = "import sys; sys.modules['cupy'] = None\n" if cupy is ABSENT else ""
    if cupy is not ABSENT:
        (tmp_path / "cupy").mkdir()
        (tmp_path / "cupy" / "__init__.py").write_text(cupy)
    given = environment(PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    return output_of(before + program, env=given).strip()


ASK = """
import tensorgrad as torch
try:
    torch.ones(2, device="cuda")
except RuntimeError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("cupy", "expected"),
    [
        (ABSENT, "device 'cuda' needs CuPy, which is not installed: pip install cupy-cuda13x (or cupy-cuda12x)"),
        (
            BROKEN,
            "device 'cuda' needs CuPy, which is installed but cannot be imported: No module named 'cuda.pathfinder'",
        ),
        (
            OTHERWISE,
            "device 'cuda' needs CuPy, which is installed but cannot be imported: numpy has no product",
        ),
        (
            WITHOUT_DRIVER,
            "device 'cuda' needs an NVIDIA GPU and its driver; CUDA says: cudaErrorInsufficientDriver: the driver "
            "is too old",
        ),
        (WITHOUT_GPU, "device 'cuda' needs an NVIDIA GPU; CUDA finds none"),
    ],
    ids=["absent", "broken", "otherwise", "without driver", "without GPU"],
)
def test_asking_for_a_gpu_says_what_is_missing(cupy, expected, tmp_path):
    assert run(ASK, tmp_path, cupy) == expected


@pytest.mark.parametrize(
    "cupy", [ABSENT, BROKEN, WITHOUT_DRIVER, WITHOUT_GPU], ids=["absent", "broken", "driver", "GPU"]
)
def test_queries_are_answered(cupy, tmp_path):
    program = """
import tensorgrad as torch
cuda = torch.cuda
print(
    cuda.is_available(), cuda.device_count(), cuda.is_initialized(), cuda.memory_allocated(),
    cuda.max_memory_allocated(), cuda.memory_reserved(), len(cuda.memory_stats()), cuda.is_bf16_supported(),
    cuda.is_tf32_supported(), torch.version.cuda, torch.accelerator.is_available(),
    torch.accelerator.current_accelerator(), torch.ones(2).is_pinned(), cuda.get_rng_state_all(),
)
cuda.empty_cache(), cuda.reset_peak_memory_stats(), cuda.manual_seed(0), cuda.manual_seed_all(0), cuda.ipc_collect()
with cuda.device(-1), cuda.device(None), cuda.device_of(torch.ones(1)), cuda.stream(None), cuda.nvtx.range("step"):
    torch.ones(2) + 1
"""
    assert run(program, tmp_path, cupy) == "False 0 False 0 0 0 0 False False None False None False []"


def test_programs_for_the_cpu_import_no_cupy(tmp_path):
    program = """
import sys
import tensorgrad as torch
torch.manual_seed(0)
layer = torch.nn.Linear(3, 2)
layer(torch.randn(4, 3)).sum().backward()
torch.optim.Adam(layer.parameters()).step()
copied = layer.state_dict(), torch.ones(2).to("cpu").numpy(), repr(torch.ones(2)), torch.ones(2).half() + 1
torch.cuda.OutOfMemoryError, torch.device("cuda:1"), torch.get_default_device()
print("cupy" in sys.modules)
"""
    assert run(program, tmp_path, "raise SystemExit('CuPy was imported')") == "False"


@pytest.mark.parametrize(
    "call",
    [
        "torch.cuda.init()", "torch.cuda.current_device()", "torch.cuda.set_device(0)", "torch.cuda.get_device_name()",
        "torch.cuda.get_device_capability()", "torch.cuda.get_device_properties(0)", "torch.cuda.synchronize()",
        "torch.cuda.Stream()", "torch.cuda.Event()", "torch.cuda.current_stream()", "torch.cuda.mem_get_info()",
        "torch.cuda.set_sync_debug_mode('warn')", "torch.cuda.set_per_process_memory_fraction(0.5)",
        "torch.cuda.can_device_access_peer(0, 1)", "torch.ones(2).cuda()", "torch.ones(2).to('cuda:1')",
        "torch.nn.Linear(1, 1).cuda()", "torch.empty(1, device='cuda')",
        "torch.zeros_like(torch.ones(1), device='cuda')", "torch.cuda.CUDAGraph()", "torch.cuda.graph(None)",
    ],
)  # fmt: skip
def test_what_needs_a_gpu_says_so(call):
    torch = tensorgrad
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(RuntimeError, match=r"^device 'cuda' needs [^\n]*$"):
        eval(call, {"torch": torch})


FACTORIES = {
    "zeros": (2,), "ones": (2,), "empty": (2,), "full": ((2,), 1), "tensor": (2,), "arange": (2,), "eye": (2,),
    "linspace": (0, 1, 2), "logspace": (0, 1, 2), "scalar_tensor": (2,), "empty_strided": ((2,), (1,)),
    "empty_permuted": ((2,), (0,)), "rand": (2,), "randn": (2,), "randint": (2, (2,)), "randperm": (2,),
    "normal": (0.0, 1.0, (2,)), "hann_window": (2,), "kaiser_window": (2,), "tril_indices": (2, 2),
}  # fmt: skip


SPARSE = {
    "sparse_coo_tensor": ([[0, 1]], [1.0, 2.0]), "sparse_csr_tensor": ([0, 1, 2], [1, 0], [1.0, 2.0]),
    "sparse_bsc_tensor": ([0, 1], [0], [[[1.0, 2.0]]]),
}  # fmt: skip


def test_pinning_needs_a_gpu():
    torch = tensorgrad
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(RuntimeError, match="Cannot access accelerator device when none is available"):
        torch.ones(2).pin_memory()
    for name, args in FACTORIES.items():
        with pytest.raises(RuntimeError, match="pin_memory=True requires a CUDA or other accelerator backend"):
            getattr(torch, name)(*args, pin_memory=True)
    for name, args in SPARSE.items():
        with pytest.raises(RuntimeError, match="Cannot access accelerator device when none is available"):
            getattr(torch, name)(*args, pin_memory=True)
        with pytest.raises(TypeError):
            getattr(torch, name)(*args, pin_memory="a")
    with pytest.warns(UserWarning, match="no accelerator is found"):
        batches = list(torch.utils.data.DataLoader([torch.ones(2)] * 2, pin_memory=True))
    assert not batches[0].is_pinned()


def test_what_cuda_does_not_tell_is_one_line():
    torch = tensorgrad
    for name in ("utilization", "memory_usage", "temperature", "power_draw", "clock_rate", "list_gpu_processes"):
        with pytest.raises(NotImplementedError, match=rf"^torch.cuda.{name}: [^\n]*nvidia-smi$"):
            getattr(torch.cuda, name)()
    assert not torch.cuda.is_current_stream_capturing()
    with pytest.raises(NotImplementedError, match=r"^torch.cuda.jiterator [^\n]*$"):
        torch.cuda.jiterator._create_jit_fn("template <typename T> T f(T x) { return x; }")
    with pytest.raises(AttributeError, match="PyTorch has it, tensorgrad does not"):
        eval("torch.cuda.change_current_allocator", {"torch": torch})


def test_classes_of_errors():
    torch = tensorgrad
    assert torch.OutOfMemoryError is torch.cuda.OutOfMemoryError
    assert torch.OutOfMemoryError.__mro__[1:3] == (torch.AcceleratorError, RuntimeError)


def test_a_saved_gpu_tensor_says_how_to_load_it(tmp_path):
    torch = tensorgrad
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    file = tmp_path / "a.pt"
    torch.save(torch.ones(2), file)
    with pytest.raises(RuntimeError, match="map_location"):
        torch.load(file, map_location="cuda")
