"""`torch.save`."""

from __future__ import annotations

import pickle
from typing import Any

DEFAULT_PROTOCOL = 2


def save(
    obj: Any,
    f: Any,
    pickle_module: Any = pickle,
    pickle_protocol: int = DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
) -> None:
    """Saves tensors, and values that contain them, in PyTorch's format, which `torch.load` reads here and in PyTorch.

    Tensors that share memory share it again when they are loaded. An existing file is replaced atomically: after a
    crash the old one is still there.

    Args:
        obj: A tensor, a `state_dict`, or any nested lists, tuples and dicts of tensors and plain values. Objects of
            other classes are pickled under the names of their classes.
        f: A path, or an object with `write`.
        pickle_protocol: The protocol of the pickle inside.
        pickle_module: Accepted for compatibility.

    Raises:
        RuntimeError: If tensors of different dtypes share memory.

    >>> import io
    >>> file = io.BytesIO()
    >>> torch.save({"weight": torch.ones(2), "epoch": 3}, file)
    >>> _ = file.seek(0)
    >>> torch.load(file)
    {'weight': tensor([1., 1.]), 'epoch': 3}
    """
    from tensorgrad.serialization import writing

    writing.write(obj, f, pickle_protocol, _use_new_zipfile_serialization)
