"""`torch.utils.collect_env`: describes the machine for a bug report.

Run `python -m tensorgrad.utils.collect_env`.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple


class SystemEnv(NamedTuple):
    """Information about the machine; None for what could not be determined."""

    torch_version: str
    is_debug_build: str
    cuda_compiled_version: str | None
    gcc_version: str | None
    clang_version: str | None
    cmake_version: str | None
    os: str
    libc_version: str
    python_version: str
    python_platform: str
    is_cuda_available: str
    cuda_runtime_version: str | None
    cuda_module_loading: str
    nvidia_driver_version: str | None
    nvidia_gpu_models: str | None
    cudnn_version: str | None
    is_xpu_available: str
    pip_version: str
    pip_packages: str | None
    conda_packages: str | None
    hip_compiled_version: str
    hip_runtime_version: str
    miopen_runtime_version: str
    caching_allocator_config: str
    is_xnnpack_available: str
    cpu_info: str | None


# Packages listed in a report: those common in PyTorch programs and those that tensorgrad depends on.
PATTERNS = (
    "torch", "tensorgrad", "numpy", "numba", "llvmlite", "ml-dtypes", "ml_dtypes", "mypy", "flake8", "triton", "optree",
    "onnx", "cupy", "nvidia-", "threadpoolctl", "safetensors", "scipy",
)  # fmt: skip


def run(command: str | list[str]) -> tuple[int, str, str]:
    """Runs a command. Returns its exit status, output and error output; the status is 127 if it cannot be run.

    >>> from tensorgrad.utils import collect_env
    >>> collect_env.run("echo here")
    (0, 'here', '')
    """
    try:
        done = subprocess.run(
            command, shell=isinstance(command, str), capture_output=True, text=True, errors="replace", timeout=60
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, "", str(error)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def _found(run_lambda: Callable, command: str | list[str], pattern: str = r"(.*)") -> str | None:
    """Returns what the pattern's group matches in a command's output; None if it fails or nothing matches."""
    status, output, _ = run_lambda(command)
    match = re.search(pattern, output) if status == 0 else None
    return match[1] if match and match[1] else None


def _system() -> str:
    """Returns the operating system's own name, with the machine type."""
    machine = platform.machine()
    if sys.platform.startswith("linux"):
        try:
            name = platform.freedesktop_os_release()["PRETTY_NAME"]
        except (OSError, KeyError, AttributeError):
            name = platform.system()
        return f"{name} ({machine})"
    if sys.platform == "darwin":
        return f"macOS {platform.mac_ver()[0]} ({machine})"
    return f"{platform.system()} {platform.release()} ({machine})"


def get_cpu_info(run_lambda: Callable) -> str | None:
    """Returns a description of the processor. `run_lambda` runs commands, as `run` does."""
    if sys.platform.startswith("linux"):
        return _found(run_lambda, "LC_ALL=C lscpu", r"(?s)(.*)")
    if sys.platform == "darwin":
        return _found(run_lambda, ["sysctl", "-n", "machdep.cpu.brand_string"])
    return platform.processor() or None


def get_gpu_info(run_lambda: Callable) -> str | None:
    """Returns the names of NVIDIA's GPUs, one per line. `run_lambda` runs commands, as `run` does."""
    return _found(run_lambda, "nvidia-smi -L", r"(?s)(.*)")


def get_nvidia_driver_version(run_lambda: Callable) -> str | None:
    """Returns the version of NVIDIA's driver. `run_lambda` runs commands, as `run` does."""
    return _found(run_lambda, "nvidia-smi", r"Driver Version: (\S+)")


def get_gcc_version(run_lambda: Callable) -> str | None:
    """Returns the version of the compiler GCC. `run_lambda` runs commands, as `run` does."""
    return _found(run_lambda, "gcc --version", r"gcc (.*)")


def get_clang_version(run_lambda: Callable) -> str | None:
    """Returns the version of the compiler Clang. `run_lambda` runs commands, as `run` does."""
    return _found(run_lambda, "clang --version", r"clang version (.*)")


def get_cmake_version(run_lambda: Callable) -> str | None:
    """Returns the version of CMake. `run_lambda` runs commands, as `run` does."""
    return _found(run_lambda, "cmake --version", r"cmake (.*)")


def get_running_cuda_version(run_lambda: Callable) -> str | None:
    """Returns the version of CUDA's compiler. `run_lambda` runs commands, as `run` does."""
    return _found(run_lambda, "nvcc --version", r"release .+ V(.*)")


def _packages() -> str:
    """Lists the relevant installed packages, one per line."""
    from importlib import metadata

    found = {
        f"{name}=={package.version}"
        for package in metadata.distributions()
        if (name := package.metadata["Name"]) and any(pattern in name.lower() for pattern in PATTERNS)
    }
    return "\n".join(sorted(found, key=str.lower))


def get_env_info() -> SystemEnv:
    """Collects information about the machine.

    >>> from tensorgrad.utils import collect_env
    >>> collect_env.get_env_info().is_debug_build
    'False'
    """
    import tensorgrad as torch
    from tensorgrad import xpu
    from tensorgrad.backends import cudnn

    cuda = torch.cuda.is_available()
    bits = sys.maxsize.bit_length() + 1
    return SystemEnv(
        torch_version=f"{torch.__version__} (tensorgrad {torch.version.tensorgrad})",
        is_debug_build=str(bool(torch.version.debug)),
        cuda_compiled_version=torch.version.cuda,
        gcc_version=get_gcc_version(run),
        clang_version=get_clang_version(run),
        cmake_version=get_cmake_version(run),
        os=_system(),
        libc_version="-".join(platform.libc_ver()) if sys.platform.startswith("linux") else "N/A",
        python_version=f"{sys.version} ({bits}-bit runtime)".replace("\n", " "),
        python_platform=platform.platform(),
        is_cuda_available=str(cuda),
        cuda_runtime_version=get_running_cuda_version(run),
        cuda_module_loading=os.environ.get("CUDA_MODULE_LOADING", "LAZY") if cuda else "N/A",
        nvidia_driver_version=get_nvidia_driver_version(run),
        nvidia_gpu_models=get_gpu_info(run),
        cudnn_version=str(cudnn.version()) if cuda and cudnn.is_available() else None,
        is_xpu_available=str(xpu.is_available()),
        pip_version="pip3",
        pip_packages=_packages(),
        conda_packages=_conda_packages(),
        hip_compiled_version="N/A",
        hip_runtime_version="N/A",
        miopen_runtime_version="N/A",
        caching_allocator_config=os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "N/A"),
        is_xnnpack_available="False",
        cpu_info=get_cpu_info(run),
    )


def _conda_packages() -> str | None:
    status, output, _ = run([os.environ.get("CONDA_EXE", "conda"), "list"])
    lines = [line for line in output.splitlines() if line[:1] != "#" and any(p in line.lower() for p in PATTERNS)]
    return "\n".join(lines) if status == 0 and lines else None


_TEXT = """
PyTorch version: {torch_version}
Is debug build: {is_debug_build}
CUDA used to build PyTorch: {cuda_compiled_version}
ROCM used to build PyTorch: {hip_compiled_version}

OS: {os}
GCC version: {gcc_version}
Clang version: {clang_version}
CMake version: {cmake_version}
Libc version: {libc_version}

Python version: {python_version}
Python platform: {python_platform}
Is CUDA available: {is_cuda_available}
CUDA runtime version: {cuda_runtime_version}
CUDA_MODULE_LOADING set to: {cuda_module_loading}
GPU models and configuration: {nvidia_gpu_models}
Nvidia driver version: {nvidia_driver_version}
cuDNN version: {cudnn_version}
Is XPU available: {is_xpu_available}
HIP runtime version: {hip_runtime_version}
MIOpen runtime version: {miopen_runtime_version}
Is XNNPACK available: {is_xnnpack_available}
Caching allocator config: {caching_allocator_config}

CPU:
{cpu_info}

Versions of relevant libraries:
{pip_packages}
{conda_packages}
""".strip()


def pretty_str(envinfo: SystemEnv) -> str:
    """Formats a report as text.

    >>> from tensorgrad.utils import collect_env
    >>> print(collect_env.pretty_str(collect_env.get_env_info()))
    PyTorch version: 2...
    Is debug build: False
    ...
    """
    known: dict[str, Any] = {k: "Could not collect" if v is None else v for k, v in envinfo._asdict().items()}
    for field, mark in (("pip_packages", envinfo.pip_version), ("conda_packages", "conda")):
        known[field] = "\n".join(f"[{mark}] {line}" for line in str(known[field]).splitlines())
    if "\n" in str(envinfo.nvidia_gpu_models):
        known["nvidia_gpu_models"] = f"\n{envinfo.nvidia_gpu_models}\n"
    return _TEXT.format(**known)


def get_pretty_env_info() -> str:
    """Returns the report for this machine, as text."""
    return pretty_str(get_env_info())


def main() -> None:
    """Prints the report for this machine."""
    print("Collecting environment information...")
    print(get_pretty_env_info())


if __name__ == "__main__":
    from tensorgrad.system import command

    def prints(arguments: list[str]) -> int:
        main()
        return 0

    command.run(prints)
