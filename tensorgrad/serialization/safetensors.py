"""The safetensors format: a dict of named tensors, without executable content. Needs the package safetensors.

from tensorgrad.serialization.safetensors import load_file, save_file
save_file(model.state_dict(), "model.safetensors")
model.load_state_dict(load_file("model.safetensors"))
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from tensorgrad import dtypes
from tensorgrad.serialization.archive import replacing
from tensorgrad.serialization.describe import described, problem
from tensorgrad.tensor import Tensor, wrap

# The names of dtypes in files.
NAMES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U8": "uint8", "U16": "uint16", "U32": "uint32", "U64": "uint64", "BOOL": "bool",
    "C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
}  # fmt: skip


def _package() -> Any:
    try:
        import safetensors.numpy
    except ImportError:
        raise ImportError("this needs the package safetensors: pip install '.[safetensors]' (or safetensors)") from None
    return safetensors


def save(tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    """Returns named tensors as the contents of a file. Each is written whole and contiguous.

    Args:
        metadata: Strings to store with them.

    Raises: TypeError if a value is not a tensor, ImportError without the package safetensors.
    """
    package, host = _package(), {}
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"safetensors: {name!r} is a {type(tensor).__name__}, expected a tensor")
        if tensor.dtype.name not in NAMES.values():
            raise TypeError(f"safetensors: {name!r} has the dtype {tensor.dtype}, for which the format has no name")
        # Not np.ascontiguousarray, which makes 0-dimensional arrays 1-dimensional.
        host[name] = np.array(tensor.detach().cpu()._array, order="C")
    return package.numpy.save(host, metadata)


def load(data: bytes, device: Any = "cpu") -> dict[str, Tensor]:
    """Returns the tensors in the contents of a file.

    Raises:
        RuntimeError: If the contents are damaged.
        ImportError: Without the package safetensors.
    """
    package, found = _package(), {}
    try:
        entries = package.deserialize(data)
        entries.reverse()
        while entries:  # frees each entry before the next one is read
            name, entry = entries.pop()
            if entry["dtype"] not in NAMES:
                raise ValueError(f"{described(name)} has the unknown dtype {described(entry['dtype'])}")
            content, dtype = entry.pop("data"), dtypes.BY_NAME[NAMES[entry["dtype"]]].numpy
            content = np.frombuffer(content if isinstance(content, bytearray) else bytearray(content), np.uint8)
            found[name] = wrap(content.view(dtype).reshape(entry["shape"])).to(device)
    except Exception as error:
        raise RuntimeError(f"safetensors: the data is damaged ({problem(error)})") from None
    return found


def save_file(tensors: dict[str, Tensor], filename: Any, metadata: dict[str, str] | None = None) -> None:
    """Writes named tensors to a file, atomically replacing an existing one; see `save`."""
    content = save(tensors, metadata)
    with replacing(filename) as file:
        file.write(content)


def load_file(filename: str | os.PathLike, device: Any = "cpu") -> dict[str, Tensor]:
    """Returns the tensors in a file, by name; see `load`."""
    with open(filename, "rb") as file:
        return load(file.read(), device)
