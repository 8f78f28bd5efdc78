"""`torch.cuda`'s devices: how many GPUs there are, which one is the current one, and what they are."""

from __future__ import annotations

import uuid
from typing import Any, ClassVar

from tensorgrad import devices
from tensorgrad.storage.stubs import BY_DEVICE, storage_class

__all__ = [
    "CudaError", "can_device_access_peer", "check_error", "cudaStatus", "current_device", "device", "device_count",
    "device_of", "get_arch_list", "get_device_capability", "get_device_name", "get_device_properties",
    "get_gencode_flags", "get_sync_debug_mode", "init", "is_available", "is_bf16_supported", "is_initialized",
    "is_tf32_supported", "set_device", "set_sync_debug_mode",
]  # fmt: skip


def module() -> Any:
    """CuPy, if it is installed and finds a GPU. Raises: RuntimeError that says what is missing."""
    storage_class(devices.device("cuda"))  # says what is missing
    import cupy

    return cupy


def module_or_none() -> Any:
    """CuPy, if it is installed and finds a GPU."""
    try:
        return module()
    except RuntimeError:
        return None


def index_of(device=None) -> int:
    """The number of the device that is meant (an int, a name, a `torch.device`): the current one for None.

    Raises: ValueError for a device that is no GPU.
    """
    if device is None:
        return current_device()
    if isinstance(device, int):
        return device
    if isinstance(device, _Device):
        return device.idx
    found = devices.device(device)
    if found.type != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {found}")
    return current_device() if found.index is None else found.index


def checked_index_of(device=None) -> int:
    """The number of a device that exists. Raises: AssertionError for one that does not."""
    index = index_of(device)
    if not 0 <= index < device_count():
        raise AssertionError("Invalid device id")
    return index


# --- what there is ---------------------------------------------------------------------------------------------------


def is_available() -> bool:
    """Whether tensors can be put on a GPU.

    >>> import tensorgrad as torch
    >>> device = "cuda" if torch.cuda.is_available() else "cpu"
    """
    return module_or_none() is not None


def device_count() -> int:
    """The number of GPUs that can be used.

    >>> import tensorgrad as torch
    >>> for index in range(torch.cuda.device_count()):
    ...     _ = torch.cuda.get_device_name(index)
    """
    cupy = module_or_none()
    return 0 if cupy is None else int(cupy.cuda.runtime.getDeviceCount())


def is_initialized() -> bool:
    """Whether a GPU is in use by this process.

    >>> import tensorgrad as torch
    >>> torch.cuda.is_initialized() and not torch.cuda.is_available()
    False
    """
    return "cuda" in BY_DEVICE


def init() -> None:
    """Prepares the GPU. Raises: RuntimeError without one.

    >>> import tensorgrad as torch
    >>> if torch.cuda.is_available():
    ...     torch.cuda.init()
    """
    module()


# --- the current one -------------------------------------------------------------------------------------------------


def current_device() -> int:
    """The number of the current GPU. Raises: RuntimeError without one.

    >>> import tensorgrad as torch
    >>> if torch.cuda.is_available():
    ...     index = torch.cuda.current_device()
    """
    return int(module().cuda.runtime.getDevice())


def set_device(device) -> None:
    """Makes a GPU the current one; a negative number changes nothing. Raises: RuntimeError without one.

    >>> import tensorgrad as torch
    >>> if torch.cuda.is_available():
    ...     torch.cuda.set_device(0)
    """
    cuda = module().cuda
    index = index_of(device)
    if index >= cuda.runtime.getDeviceCount():
        raise RuntimeError(
            "CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs?"
        )
    if index >= 0:
        cuda.Device(index).use()


class _Device:
    """A `with` block in which another GPU is the current one."""

    def __init__(self, index: int):
        self.idx, self.prev_idx = index, -1

    def __enter__(self):
        if self.idx >= 0 and is_available():
            self.prev_idx = current_device()
            set_device(self.idx)

    def __exit__(self, *exception):
        if self.prev_idx >= 0:
            set_device(self.prev_idx)
        return False


class device(_Device):
    """A `with` block in which another GPU is the current one. Does nothing for None and for a negative number.

    >>> import tensorgrad as torch
    >>> with torch.cuda.device(0 if torch.cuda.is_available() else -1):
    ...     x = torch.ones(2)
    """

    def __init__(self, device: Any):
        super().__init__(-1 if device is None else index_of(device))


class device_of(_Device):
    """A `with` block in which the GPU of a tensor or storage is the current one; nothing for one that is on no GPU.

    >>> import tensorgrad as torch
    >>> with torch.cuda.device_of(torch.ones(2)):
    ...     y = torch.ones(2)
    """

    def __init__(self, obj):
        super().__init__(obj.device.index if obj.device.type == "cuda" else -1)


# --- what they are ---------------------------------------------------------------------------------------------------


class _CudaDeviceProperties:
    """What `get_device_properties` tells; memory is in bytes, clock rates are in kHz."""

    _FIELDS: ClassVar[dict[str, str]] = {
        "major": "major", "minor": "minor", "total_memory": "totalGlobalMem",
        "multi_processor_count": "multiProcessorCount", "warp_size": "warpSize",
        "max_threads_per_block": "maxThreadsPerBlock",
        "max_threads_per_multi_processor": "maxThreadsPerMultiProcessor",
        "shared_memory_per_block": "sharedMemPerBlock", "shared_memory_per_block_optin": "sharedMemPerBlockOptin",
        "shared_memory_per_multiprocessor": "sharedMemPerMultiprocessor",
        "regs_per_multiprocessor": "regsPerMultiprocessor", "L2_cache_size": "l2CacheSize",
        "is_multi_gpu_board": "isMultiGpuBoard", "is_integrated": "integrated", "clock_rate": "clockRate",
        "memory_clock_rate": "memoryClockRate", "memory_bus_width": "memoryBusWidth", "pci_bus_id": "pciBusID",
        "pci_device_id": "pciDeviceID", "pci_domain_id": "pciDomainID",
    }  # fmt: skip

    major: int
    minor: int
    total_memory: int
    multi_processor_count: int

    def __init__(self, told: dict):
        name = told["name"]
        self.name = name.decode() if isinstance(name, bytes) else str(name)
        for field, theirs in self._FIELDS.items():
            if theirs in told:  # newer drivers no longer tell the clock rates
                setattr(self, field, int(told[theirs]))
        self.gcnArchName = self.name
        number = told.get("uuid", b"")  # its bytes, or the C structure around them; C drops zeros at the end
        number = number["bytes"] if isinstance(number, dict) else number
        self.uuid = uuid.UUID(bytes=bytes(number)[:16].ljust(16, b"\0"))

    def __repr__(self) -> str:
        pci = "".join(
            f"{field}={getattr(self, field, 0)}, " for field in ("pci_bus_id", "pci_device_id", "pci_domain_id")
        )
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory // 2**20}MB, multi_processor_count={self.multi_processor_count}, "
            f"uuid={self.uuid}, {pci}L2_cache_size={getattr(self, 'L2_cache_size', 0) // 2**20}MB)"
        )


def get_device_properties(device=None) -> _CudaDeviceProperties:
    """Name, memory and size of a GPU. Raises: RuntimeError without one, AssertionError for one that does not exist.

    >>> import tensorgrad as torch
    >>> if torch.cuda.is_available():
    ...     gigabytes = torch.cuda.get_device_properties().total_memory / 2**30
    """
    runtime = module().cuda.runtime
    return _CudaDeviceProperties(runtime.getDeviceProperties(checked_index_of(device)))


def get_device_name(device=None) -> str:
    """The name of a GPU. Raises: RuntimeError without one.

    >>> import tensorgrad as torch
    >>> name = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    """
    return get_device_properties(device).name


def get_device_capability(device=None) -> tuple[int, int]:
    """The (major, minor) compute capability of a GPU. Raises: RuntimeError without one.

    >>> import tensorgrad as torch
    >>> if torch.cuda.is_available():
    ...     major, minor = torch.cuda.get_device_capability()
    """
    properties = get_device_properties(device)
    return properties.major, properties.minor


def can_device_access_peer(device, peer_device) -> bool:
    """Whether one GPU reads the memory of another directly. Raises: AssertionError for one that does not exist.

    >>> import tensorgrad as torch
    >>> if torch.cuda.device_count() > 1:
    ...     direct = torch.cuda.can_device_access_peer(0, 1)
    """
    runtime = module().cuda.runtime
    first, second = checked_index_of(device), index_of(peer_device)
    if not 0 <= second < device_count():
        raise AssertionError("Invalid peer device id")
    return first != second and bool(runtime.deviceCanAccessPeer(first, second))


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the GPU computes with bfloat16.

    >>> import tensorgrad as torch
    >>> dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    """
    return is_available() and get_device_capability()[0] >= (5 if including_emulation else 8)


def is_tf32_supported() -> bool:
    """Whether the GPU can multiply float32 matrices in the shorter format TF32.

    >>> import tensorgrad as torch
    >>> torch.backends.cuda.matmul.allow_tf32 = torch.cuda.is_tf32_supported()
    >>> torch.backends.cuda.matmul.allow_tf32 = False
    """
    return is_available() and get_device_capability()[0] >= 8


def get_arch_list() -> list[str]:
    """The architectures that kernels were compiled for: none beforehand, they are compiled when they are needed.

    >>> import tensorgrad as torch
    >>> torch.cuda.get_arch_list()
    []
    """
    return []


def get_gencode_flags() -> str:
    """What the compiler was told beforehand: nothing, see `get_arch_list`.

    >>> import tensorgrad as torch
    >>> torch.cuda.get_gencode_flags()
    ''
    """
    return ""


# --- errors, and what waits ------------------------------------------------------------------------------------------


class cudaStatus:
    """Results of the CUDA runtime.

    >>> import tensorgrad as torch
    >>> torch.cuda.cudaStatus.SUCCESS
    0
    """

    SUCCESS: int = 0
    ERROR_NOT_READY: int = 34


class CudaError(RuntimeError):
    """What a result of the CUDA runtime other than success says.

    >>> import tensorgrad as torch
    >>> issubclass(torch.cuda.CudaError, RuntimeError)
    True
    """

    def __init__(self, code: int) -> None:
        super().__init__(f"{module().cuda.runtime.CUDARuntimeError(code)} ({code})")


def check_error(res: int) -> None:
    """Raises: CudaError unless a result of the CUDA runtime means success.

    >>> import tensorgrad as torch
    >>> torch.cuda.check_error(torch.cuda.cudaStatus.SUCCESS)
    """
    if res != cudaStatus.SUCCESS:
        raise CudaError(res)


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """What happens where the host waits for the GPU (`.item()`, `.cpu()`, printing): "default" (0) lets it, "warn" (1)
    warns, "error" (2) raises. It finds what makes a training step wait.

    Raises: RuntimeError without a GPU, and for another mode.

    >>> import tensorgrad as torch
    >>> if torch.cuda.is_available():
    ...     torch.cuda.set_sync_debug_mode("default")
    """
    module()
    if isinstance(debug_mode, str):
        modes = {"default": 0, "warn": 1, "error": 2}
        if debug_mode not in modes:
            raise RuntimeError("invalid value of debug_mode, expected one of `default`, `warn`, `error`")
        debug_mode = modes[debug_mode]
    if debug_mode not in (0, 1, 2):
        raise RuntimeError("invalid value of debug_mode, expected one of 0,1,2")
    from tensorgrad.storage.cuda import set_sync_mode

    set_sync_mode(debug_mode)


def get_sync_debug_mode() -> int:
    """What `set_sync_debug_mode` was last told, as a number. Raises: RuntimeError without a GPU.

    >>> import tensorgrad as torch
    >>> torch.cuda.get_sync_debug_mode() if torch.cuda.is_available() else 0
    0
    """
    module()
    from tensorgrad.storage.cuda import State

    return State.sync_mode
