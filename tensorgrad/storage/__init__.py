"""The memory of tensors: one `Storage` class per device, chosen by the class of the array."""

from tensorgrad.storage import cpu, meta, recycling
from tensorgrad.storage.stubs import STORAGES, Storage, storage_class
from tensorgrad.system.lazy_modules import whole

_VALUES = (
    "TypedStorage", "UntypedStorage", "_dtype_to_storage_type_map", "_get_always_warn_typed_storage_removal",
    "_reset_warn_typed_storage_removal", "_set_always_warn_typed_storage_removal", "_storage_type_to_dtype_map",
)  # fmt: skip


def __getattr__(name: str):
    if name in _VALUES:  # defined in a higher layer, which imports this one
        from importlib import import_module

        return getattr(import_module("tensorgrad.ops.pytorch.storage_values"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


def __dir__():
    return sorted({*globals(), *_VALUES})


whole(__name__)

__all__ = ["STORAGES", "Storage", "cpu", "meta", "recycling", "storage_class"]
