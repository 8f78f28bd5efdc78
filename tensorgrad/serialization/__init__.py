"""`torch.save` and `torch.load`: checkpoints in PyTorch's own format, in both directions.

saving.py         `save`
writing.py        what it does
loading.py        `load`, and what its arguments mean
reading.py        what it does: finds the format, and a place for each storage
allowed_names.py  what a program lets a file name besides data
defaults.py       what `load` does where neither the file nor the call says it
tables.py         what the names in a checkpoint mean
unpickler.py      reads a pickle as data: it never imports or runs what a file names
pickler.py        writes one
describe.py       values in messages
archive.py        the zip archive around it, and replacing a file in one step
legacy.py         the format before PyTorch 1.6
"""

from tensorgrad.serialization.allowed_names import (
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    safe_globals,
)
from tensorgrad.serialization.defaults import (
    LoadEndianness,
    get_default_load_endianness,
    get_default_mmap_options,
    set_default_load_endianness,
    set_default_mmap_options,
)
from tensorgrad.serialization.loading import MAP_LOCATION, get_unsafe_globals_in_checkpoint, load
from tensorgrad.serialization.saving import DEFAULT_PROTOCOL, save

__all__ = [
    "LoadEndianness", "add_safe_globals", "clear_safe_globals", "get_default_load_endianness",
    "get_default_mmap_options", "get_safe_globals", "get_unsafe_globals_in_checkpoint", "load", "safe_globals", "save",
    "set_default_load_endianness", "set_default_mmap_options",
]  # fmt: skip

for _name in __all__:
    globals()[_name].__module__ = __name__  # the name by which they are pickled, as in PyTorch
del _name
