"""An older path for `tensorgrad.utils.data.collate`."""

import re

from tensorgrad.utils.data.collate import collate, default_collate, default_collate_fn_map, default_convert

__all__ = ["collate", "default_collate", "default_collate_fn_map", "default_convert"]

np_str_obj_array_pattern = re.compile(r"[SaUO]")  # kinds of NumPy arrays that cannot be tensors
