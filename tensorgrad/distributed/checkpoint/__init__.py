"""Checkpoints that all processes write and read together: `save`, `load` and `async_save`.

metadata.py, metadata_file.py   what a checkpoint holds, and the file that says so
planner.py, default_planner.py  who writes and reads what
boxes.py, local_pieces.py       the pieces of sharded tensors
nested.py                       nested dicts as flat ones
storage.py, filesystem.py       where the pieces are kept
steps.py                        steps that succeed or fail in all processes
state_dict_saver.py, state_dict_loader.py   `save`, `async_save`, `load`
optimizer.py                    `load_sharded_optimizer_state_dict`
state_dict.py                   state dicts of distributed models, to be saved or loaded
parameter_names.py, whole_tensors.py, optimizer_states.py   what it consists of
format_utils.py                 from and to files of `torch.save`
hf_storage.py, _hf_utils.py     pieces in files of safetensors
_consolidate_hf_safetensors.py  whole tensors from them
"""

from tensorgrad.distributed.checkpoint.api import CheckpointException
from tensorgrad.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from tensorgrad.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from tensorgrad.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from tensorgrad.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorStorageMetadata,
)
from tensorgrad.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict
from tensorgrad.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner, WriteItem
from tensorgrad.distributed.checkpoint.state_dict_loader import load
from tensorgrad.distributed.checkpoint.state_dict_saver import async_save, save
from tensorgrad.distributed.checkpoint.stateful import Stateful
from tensorgrad.distributed.checkpoint.storage import StorageReader, StorageWriter
from tensorgrad.system.lazy_modules import later as _later
from tensorgrad.system.not_included import stand_in as _stand_in

_later(__name__, ("format_utils", "state_dict"))  # modules that run when they are first used

__all__ = [
    "BytesStorageMetadata", "CheckpointException", "ChunkStorageMetadata", "DefaultLoadPlanner", "DefaultSavePlanner",
    "FileSystemReader", "FileSystemWriter", "HuggingFaceStorageReader", "HuggingFaceStorageWriter", "LoadPlan",
    "LoadPlanner", "Metadata", "MetadataIndex", "ReadItem", "SavePlan", "SavePlanner", "Stateful", "StorageReader",
    "StorageWriter", "TensorStorageMetadata", "WriteItem", "async_save", "load", "load_sharded_optimizer_state_dict",
    "save",
]  # fmt: skip

_ABSENT = {
    "QuantizedHuggingFaceStorageReader": "read the files by HuggingFaceStorageReader, and multiply by the scales",
    "load_state_dict": "use torch.distributed.checkpoint.load",
    "save_state_dict": "use torch.distributed.checkpoint.save",
}
for _name, _advice in _ABSENT.items():
    globals()[_name] = _stand_in(_name, _advice, __name__, f"distributed.checkpoint.{_name}")
__all__ += _ABSENT
