"""An older path for `tensorgrad.utils.data.collate`."""

from tensorgrad.utils.data.collate import collate, default_collate, default_collate_fn_map, default_convert

__all__ = ["collate", "default_collate", "default_collate_fn_map", "default_convert"]
