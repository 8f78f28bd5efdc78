"""Where the bytes live: one `Storage` class per device, chosen by the class of the array."""

from tensorgrad.storage import cpu, meta, recycling
from tensorgrad.storage.stubs import STORAGES, Storage, storage_class

__all__ = ["STORAGES", "Storage", "cpu", "meta", "recycling", "storage_class"]

recycling.start()
