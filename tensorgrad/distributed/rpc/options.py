"""Settings of remote calls."""

from __future__ import annotations

import enum
from typing import Any

from tensorgrad.devices import device as check_device

__all__ = ["BackendType", "RpcBackendOptions", "TensorPipeRpcBackendOptions"]

TIMEOUT = 60.0  # seconds
THREADS = 16


class BackendType(enum.Enum):
    """How calls travel. There is one way, which has the name of PyTorch's."""

    TENSORPIPE = "TENSORPIPE"

    def __repr__(self) -> str:
        return f"BackendType.{self.name}"


class RpcBackendOptions:
    """Settings of remote calls.

    Args:
        rpc_timeout: for how many seconds a call may run; 0 for any time.
        init_method: how the processes find each other (`torch.distributed.rendezvous`).
    """

    def __init__(self, rpc_timeout: float = TIMEOUT, init_method: str = "env://") -> None:
        self.rpc_timeout, self.init_method = rpc_timeout, init_method


class TensorPipeRpcBackendOptions(RpcBackendOptions):
    """Settings of remote calls.

    Args:
        num_worker_threads: how many calls of others this process runs at the same time.
        rpc_timeout: for how many seconds a call may run; 0 for any time.
        init_method: how the processes find each other.
        device_maps: must be empty: tensors of a GPU arrive on the GPU of the same number.
        devices: GPUs that calls use; checked, but not used.

    Raises:
        NotImplementedError: If there are `device_maps`.
        ValueError: If one of the devices is not a GPU.

    >>> options = torch.distributed.rpc.TensorPipeRpcBackendOptions(num_worker_threads=4, rpc_timeout=20)
    >>> options.rpc_timeout, options.init_method
    (20, 'env://')
    """

    def __init__(
        self,
        *,
        num_worker_threads: int = THREADS,
        rpc_timeout: float = TIMEOUT,
        init_method: str = "env://",
        device_maps: dict[str, dict[Any, Any]] | None = None,
        devices: list[Any] | None = None,
        _transports: list | None = None,
        _channels: list | None = None,
    ) -> None:
        super().__init__(rpc_timeout, init_method)
        self.num_worker_threads = num_worker_threads
        for to, device_map in (device_maps or {}).items():
            self.set_device_map(to, device_map)
        self.set_devices(devices or [])

    def set_device_map(self, to: str, device_map: dict[Any, Any]) -> None:
        """Raises: NotImplementedError: tensors of a GPU arrive on the GPU of the same number."""
        raise NotImplementedError(
            f"set_device_map({to!r}, {device_map}): tensors of a GPU arrive on the GPU of the same number; move them"
        )

    def set_devices(self, devices: list[Any]) -> None:
        """Sets the GPUs that calls use. Raises: ValueError if one of them is not a GPU."""
        made = [check_device(device) for device in devices]
        for device in made:
            if device.type != "cuda":
                raise ValueError(f"`set_devices` expect a list of CUDA devices, but got device type {device.type}.")
        self.devices = made
