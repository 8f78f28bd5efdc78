"""Devices: names such as "cpu" or "cuda:0" as objects. What a device can do is up to its storage (storage/)."""

from __future__ import annotations

TYPES = {"cpu", "cuda", "meta"}  # a storage for another device adds its name (storage/stubs.py)
# PyTorch's own: programs compare with `torch.device("mps")` where there is none. Those without a storage hold nothing.
KNOWN = (
    "cpu", "cuda", "ipu", "xpu", "mkldnn", "opengl", "opencl", "ideep", "hip", "ve", "fpga", "maia", "xla", "lazy",
    "vulkan", "mps", "meta", "hpu", "mtia", "privateuseone",
)  # fmt: skip


class device:
    """The location of a tensor: a device type and, for types with several devices, an index.

    Args:
        type: "cpu", "cuda", "meta", …, also with an index, as in "cuda:1"; or a device.
        index: which one of its type; None for the current one.

    >>> torch.device("cuda", 1), torch.device("cpu")
    (device(type='cuda', index=1), device(type='cpu'))

    Raises: RuntimeError for an unknown type or a malformed string.
    """

    __slots__ = ("index", "type")

    type: str
    index: int | None

    def __init__(self, type=None, index: int | None = None):
        if type is None:
            raise TypeError("device(): argument 'type' must be str, int or device, not None")
        if isinstance(type, device):
            type, index = type.type, type.index if index is None else index
        elif isinstance(type, int) and not isinstance(type, bool):
            if not -(1 << 63) <= type < 1 << 63:
                raise ValueError(f"Overflow when unpacking long long: the index of a device is {type}")
            type, index = "cuda", type
        elif not isinstance(type, str):
            raise TypeError(f"device(): argument 'type' must be str, int or device, not {type.__class__.__name__}")
        elif ":" in type:
            if index is not None:
                raise RuntimeError(
                    f"type (string) must not include an index because index was passed explicitly: {type}"
                )
            type, _, number = type.partition(":")
            if not number.isdigit() or (number[0] == "0" and number != "0"):
                raise RuntimeError(f"Invalid device string: '{type}:{number}'")
            index = int(number)
        if index is not None and index < 0:
            raise RuntimeError("Device index must not be negative")
        if type not in TYPES and type not in KNOWN:
            known = ", ".join((*KNOWN, *sorted(TYPES.difference(KNOWN))))
            raise RuntimeError(f"Expected one of {known} device type at start of device string: {type}")
        object.__setattr__(self, "type", type)
        object.__setattr__(self, "index", index)

    def __setattr__(self, name, value):
        raise AttributeError(f"attribute '{name}' of 'torch.device' objects is not writable")

    def __eq__(self, other) -> bool:
        return isinstance(other, device) and self.type == other.type and self.index == other.index

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        return f"device(type='{self.type}'" + (")" if self.index is None else f", index={self.index})")

    def __reduce__(self):
        return device, (self.type, self.index)


CPU = device("cpu")
META = device("meta")
