"""The message types in TensorBoard's files, from the package tensorboard, which is imported on first use."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from tensorgrad.tensor import Tensor


def absent() -> ModuleNotFoundError:
    """Returns the error to raise if the package is not installed."""
    return ModuleNotFoundError(
        "torch.utils.tensorboard needs the package tensorboard: pip install tensorboard (or install the extra "
        "tensorgrad[tensorboard])",
        name="tensorboard",
    )


@cache
def messages() -> SimpleNamespace:
    """Returns the message classes by name. Raises: ModuleNotFoundError if tensorboard is not installed."""
    try:
        import tensorboard  # noqa: F401
    except ModuleNotFoundError as error:
        raise (absent() if error.name == "tensorboard" else error) from None
    from tensorboard.compat.proto.attr_value_pb2 import AttrValue
    from tensorboard.compat.proto.config_pb2 import RunMetadata
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog, TaggedRunMetadata
    from tensorboard.compat.proto.graph_pb2 import GraphDef
    from tensorboard.compat.proto.node_def_pb2 import NodeDef
    from tensorboard.compat.proto.step_stats_pb2 import DeviceStepStats, NodeExecStats, StepStats
    from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.compat.proto.versions_pb2 import VersionDef
    from tensorboard.util.tensor_util import make_tensor_proto

    return SimpleNamespace(
        Event=Event,
        SessionLog=SessionLog,
        Histogram=HistogramProto,
        Summary=Summary,
        Metadata=SummaryMetadata,
        tensor=make_tensor_proto,
        AttrValue=AttrValue,
        DeviceStepStats=DeviceStepStats,
        GraphDef=GraphDef,
        NodeDef=NodeDef,
        NodeExecStats=NodeExecStats,
        RunMetadata=RunMetadata,
        StepStats=StepStats,
        TaggedRunMetadata=TaggedRunMetadata,
        TensorShapeProto=TensorShapeProto,
        VersionDef=VersionDef,
    )


def metadata(plugin: str, content: bytes = b"") -> Any:
    """Returns metadata that assigns a value to a TensorBoard plugin, with the data that the plugin needs."""
    kind = messages().Metadata
    return kind(plugin_data=kind.PluginData(plugin_name=plugin, content=content))


def array_of(x: Any) -> np.ndarray:
    """Converts a tensor, array or number to an array. Raises: NotImplementedError for anything else."""
    if isinstance(x, np.ndarray):
        return x
    if np.isscalar(x):
        return np.array([x])
    if isinstance(x, Tensor):
        x = x.detach().cpu()
        return (x.float() if str(x.dtype) == "torch.bfloat16" else x).numpy()
    raise NotImplementedError(f"Got {type(x)}, but numpy array or torch tensor are expected.")
