"""Where the bytes live: one `Storage` class per device, chosen by the class of the array."""

from tensorgrad.storage import cpu, meta
from tensorgrad.storage.stubs import STORAGES, Storage, storage_class

__all__ = ["STORAGES", "Storage", "cpu", "meta", "storage_class"]
