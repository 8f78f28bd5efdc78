"""`torch.save` and `torch.load`: checkpoints in PyTorch's own format, in both directions.

saving.py         `save`
writing.py        its implementation
loading.py        `load`, and the meaning of its arguments
reading.py        its implementation: detects the format, and places each storage on its device
allowed_names.py  names that the program allows in addition to those of plain data
defaults.py       defaults of `load` for what neither the file nor the call specifies
tables.py         the meaning of the names in a checkpoint
unpickler.py      reads a pickle as data: never imports or runs what a file names
pickler.py        writes one
describe.py       formats values for messages
archive.py        the zip archive around the pickle, and atomic file replacement
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
    globals()[_name].__module__ = __name__  # the name under which they are pickled, as in PyTorch
del _name
