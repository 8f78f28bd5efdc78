"""The memory of tensors: one `Storage` class per device, chosen by the class of the array."""

from tensorgrad.storage import cpu, meta, recycling
from tensorgrad.storage.stubs import STORAGES, Storage, storage_class
from tensorgrad.system.names_elsewhere import elsewhere

_VALUES = (
    "TypedStorage", "UntypedStorage", "_dtype_to_storage_type_map", "_get_always_warn_typed_storage_removal",
    "_reset_warn_typed_storage_removal", "_set_always_warn_typed_storage_removal", "_storage_type_to_dtype_map",
)  # fmt: skip


elsewhere(__name__, dict.fromkeys(_VALUES, "tensorgrad.ops.pytorch.storage_values"))

__all__ = ["STORAGES", "Storage", "cpu", "meta", "recycling", "storage_class"]
