"""The names of backends, and which of them can be used."""

from __future__ import annotations

from typing import Any, ClassVar

from tensorgrad import cuda
from tensorgrad.distributed.mpi import library
from tensorgrad.distributed.nccl import communicator as nccl

__all__ = [
    "Backend", "BackendConfig", "get_default_backend_for_device", "is_available",
    "is_backend_available", "is_gloo_available", "is_mpi_available", "is_nccl_available", "is_ucc_available",
    "is_xccl_available",
]  # fmt: skip


def is_available() -> bool:
    """Returns whether groups of several processes can be made: whether the package mpi4py is installed.

    >>> torch.distributed.is_available() == torch.distributed.is_mpi_available()
    True
    """
    return library.available()


def is_mpi_available() -> bool:
    """Returns whether the "mpi" backend can be used.

    >>> torch.distributed.is_mpi_available() in (True, False)
    True
    """
    return library.available()


def is_gloo_available() -> bool:
    """Returns whether the "gloo" backend can be used. It is another name of the MPI backend.

    >>> torch.distributed.is_gloo_available() == torch.distributed.is_mpi_available()
    True
    """
    return library.available()


def is_nccl_available() -> bool:
    """Returns whether the "nccl" backend can be used: whether there is a GPU, CuPy with NCCL, and mpi4py.

    >>> torch.cuda.is_available() or not torch.distributed.is_nccl_available()
    True
    """
    return library.available() and nccl.available()


def is_ucc_available() -> bool:
    """Returns whether the "ucc" backend can be used: no.

    >>> torch.distributed.is_ucc_available()
    False
    """
    return False


def is_xccl_available() -> bool:
    """Returns whether the "xccl" backend can be used: no.

    >>> torch.distributed.is_xccl_available()
    False
    """
    return False


class Backend(str):
    """The lower-case name of a backend: `Backend("GLOO")` is `"gloo"`.

    >>> import tensorgrad.distributed as dist
    >>> dist.Backend("GLOO"), dist.Backend.MPI
    ('gloo', 'mpi')
    """

    UNDEFINED, GLOO, NCCL, UCC, MPI, XCCL, FAKE = "undefined", "gloo", "nccl", "ucc", "mpi", "xccl", "fake"

    backend_list: ClassVar[list[str]] = [UNDEFINED, GLOO, NCCL, XCCL, UCC, MPI, FAKE]
    default_device_backend_map: ClassVar[dict[str, str]] = {"cpu": GLOO, "cuda": NCCL, "xpu": XCCL, "mps": GLOO}
    backend_capability: ClassVar[dict[str, list[str]]] = {
        GLOO: ["cpu", "cuda"], NCCL: ["cuda"], XCCL: ["xpu"], UCC: ["cpu", "cuda"], MPI: ["cpu", "cuda"],
        FAKE: ["cpu", "cuda", "hpu", "xpu"],
    }  # fmt: skip

    def __new__(cls, name: str) -> Any:
        if not isinstance(name, str):
            raise ValueError("Backend constructor parameter must be string-ish")
        return name.lower()

    @classmethod
    def register_backend(cls, name: str, func: Any, extended_api: bool = False, devices: Any = None) -> None:
        """Raises: RuntimeError. Backends of third parties are not supported.

        >>> import tensorgrad.distributed as dist
        >>> dist.Backend.register_backend("mine", None)
        Traceback (most recent call last):
            ...
        RuntimeError: Backend.register_backend: backends of third parties are not supported
        """
        raise RuntimeError("Backend.register_backend: backends of third parties are not supported")


class BackendConfig:
    """Which backend serves which kind of device.

    >>> import tensorgrad.distributed as dist
    >>> dist.BackendConfig("gloo")
    cpu:gloo,cuda:gloo
    """

    def __init__(self, backend: str) -> None:
        name = str(backend).lower()
        if name == Backend.UNDEFINED:
            device = "cuda" if cuda.is_available() else "cpu"
            self.device_backend_map = {device: Backend.default_device_backend_map[device]}
        elif ":" in name:
            self.device_backend_map = _pairs(name)
        else:
            devices = Backend.backend_capability.get(name, ["cpu", "cuda"])
            self.device_backend_map = dict.fromkeys(devices, name)

    def get_device_backend_map(self) -> dict[str, str]:
        """Returns the backends by device type.

        >>> import tensorgrad.distributed as dist
        >>> dist.BackendConfig("cpu:gloo,cuda:nccl").get_device_backend_map()
        {'cpu': 'gloo', 'cuda': 'nccl'}
        """
        return self.device_backend_map

    def __repr__(self) -> str:
        return ",".join(f"{device}:{backend}" for device, backend in self.device_backend_map.items())


def _pairs(text: str) -> dict[str, str]:
    """The devices and backends of "cpu:gloo,cuda:nccl". Raises: ValueError if it is written otherwise."""
    result: dict[str, str] = {}
    for part in text.split(","):
        device, colon, backend = part.partition(":")
        if not colon or not device or not backend or ":" in backend:
            raise ValueError(
                f"Invalid device:backend pairing: {part}. The custom backend string argument is invalid: {text}. It "
                "must be in the format '<device_type1>:<backend1>,<device_type2>:<backend2>...', e.g. "
                "'cpu:gloo,cuda:nccl'"
            )
        if device in result:
            raise ValueError(f"Duplicate device type {device} in backend string: {text}")
        result[device] = backend
    return result


def is_backend_available(backend: str) -> bool:
    """Returns whether a backend, or all those of "device:backend" pairs, can be used.

    >>> torch.distributed.is_backend_available("ucc")
    False
    """
    names = set(_pairs(backend.lower()).values()) if ":" in backend else {backend.lower()}
    if Backend.NCCL in names and not nccl.available():
        return False
    return names <= {Backend.GLOO, Backend.MPI, Backend.NCCL} and library.available()


def get_default_backend_for_device(device: Any) -> str:
    """Returns the name of the backend that PyTorch uses for a device.

    Raises:
        ValueError: there is none.

    >>> torch.distributed.get_default_backend_for_device("cpu")
    'gloo'
    """
    kind = str(getattr(device, "type", device)).partition(":")[0]
    if kind not in Backend.default_device_backend_map:
        raise ValueError(f"Default backend not registered for device : {device}")
    return Backend.default_device_backend_map[kind]


def check_available(backend: str) -> None:
    """Raises: RuntimeError if there is no such backend here."""
    if backend == Backend.UNDEFINED:
        return
    names = _pairs(backend) if ":" in backend else {"": backend}
    for device, name in names.items():
        if name == Backend.NCCL and device == "cpu":
            raise RuntimeError("NCCL does not communicate tensors on the CPU")
        if name == Backend.NCCL and not nccl.available() and (not device or cuda.is_available()):
            raise RuntimeError(
                "Distributed package doesn't have NCCL built in: it needs a GPU and CuPy (pip install "
                "'tensorgrad[cuda]'); the backend 'gloo' communicates tensors on the CPU, and copies those on a GPU"
            )
        if name not in (Backend.GLOO, Backend.MPI, Backend.NCCL):
            if name in Backend.backend_list:
                raise RuntimeError(f"Distributed package doesn't have {name.upper()} built in")
            raise AssertionError(f"Unknown backend type {name}")
