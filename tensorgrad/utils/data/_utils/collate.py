"""An older path for `tensorgrad.utils.data.collate`."""

import re

from tensorgrad.utils.data.collate import (
    collate,
    collate_float_fn,
    collate_int_fn,
    collate_numpy_array_fn,
    collate_numpy_scalar_fn,
    collate_str_fn,
    collate_tensor_fn,
    default_collate,
    default_collate_fn_map,
    default_convert,
)

__all__ = [
    "collate", "collate_float_fn", "collate_int_fn", "collate_numpy_array_fn", "collate_numpy_scalar_fn",
    "collate_str_fn", "collate_tensor_fn", "default_collate", "default_collate_fn_map", "default_convert",
]  # fmt: skip

np_str_obj_array_pattern = re.compile(r"[SaUO]")  # kinds of NumPy arrays that cannot be tensors
