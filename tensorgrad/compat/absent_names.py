"""Names of PyTorch's that libraries import and that mean nothing here, with the libraries that need each.

One name a line, in alphabetical order. What a name is instead of PyTorch's:

    REFUSES  a class: may be imported, passed to `isinstance` and subclassed; raises an error when it is called
    SAME     a decorator: returns the function that it is given
    NOTHING  a function that accepts anything, does nothing and returns None
    NO       a function that accepts anything and returns False
    VALUE    a plain value: the third entry

`stand_ins.py` makes them, and the modules that they are in.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from typing import Any

REFUSES, SAME, NOTHING, NO, VALUE = "REFUSES", "SAME", "NOTHING", "NO", "VALUE"

_BITS = "NumPy has no integers of fewer than eight bits"
_COMPILED = "nothing is compiled: torch.compile returns the function or module itself"
_EXPORT = "save the state_dict: there is no format for whole programs"
_EXPORT_ONNX = "torch.onnx.export is not included"
_EXTENSION = "C++ code cannot be compiled against tensorgrad, which is Python"
_FAKE = 'use tensors of torch.device("meta"), which have a shape and no values'
_HERE_ANYWAY = contextlib.nullcontext  # under vmap, tensors of one number index as they are
_HERE_COMPILED = "integers are multiplied without saturation on every processor"
_HALF = "NumPy has no complex numbers of 16-bit parts"
_OWN_VMAP = "torch.vmap keeps its batches in its own way"
_PIPES = "use a Dataset or an IterableDataset with a DataLoader, which shuffles"
_QUANTIZED = "there are no quantized tensors"
_RPC = "use the collectives of torch.distributed"
_SYMBOLIC = "sizes are plain numbers"
_TRITON = "there are no kernels in Triton"
_TWO_OF_FOUR = "kernels for two of four elements are NVIDIA's; use to_sparse_csr()"


def _is_batched(tensor: Any) -> bool:
    """Returns whether a tensor is one sample within `torch.vmap`."""
    from tensorgrad.transforms.batch import BatchedArray

    return isinstance(tensor._array, BatchedArray)


def _add_batch_dim(tensor: Any, in_dim: int, vmap_level: Any) -> Any:
    """Returns what stands for one sample within `torch.vmap`."""
    from tensorgrad._functorch import vmap

    return vmap._add_batch_dim(tensor, in_dim, vmap_level)


def _remove_batch_dim(tensor: Any, vmap_level: Any, batch_size: int, out_dim: int) -> Any:
    """Returns all samples of a tensor that stands for one."""
    from tensorgrad._functorch import vmap

    return vmap._remove_batch_dim(tensor, vmap_level, batch_size, out_dim)


def _infer_schema(*args: Any, **kwargs: Any) -> str:
    """`torch.library.infer_schema`, by another name."""
    from tensorgrad.library import infer_schema

    return infer_schema(*args, **kwargs)


def _contiguous_strides(shape: Any, row_major: bool = True) -> tuple[int, ...]:
    """Returns the strides of a contiguous tensor, or of matrices that are stored column by column."""
    sizes = [max(n, 1) for n in shape]
    strides = [math.prod(sizes[i:]) for i in range(1, len(sizes) + 1)]
    if not row_major and len(sizes) > 1:
        strides[-2:] = [1, sizes[-2]]
    return tuple(strides)


def _nested_strides_offsets(nested_size: Any) -> tuple[Any, Any]:
    """Returns the strides of pieces of these shapes that are stored row by row, and where each begins."""
    from tensorgrad.nested._internal.strided import StridedNestedTensor

    pieces = StridedNestedTensor(nested_size, [tuple(size) for size in nested_size.tolist()])
    return pieces._nested_tensor_strides(), pieces._nested_tensor_storage_offsets()


def _nested_view_from_buffer(self: Any, nested_size: Any, nested_strides: Any, offsets: Any) -> Any:
    """Returns the nested tensor of the strided layout whose pieces lie so in a tensor of one dimension: a view."""
    from tensorgrad.serialization.nested import rebuild_strided

    return rebuild_strided(self.view(-1), nested_size, nested_strides, offsets)


def _nested_tensor_from_mask(t: Any, mask: Any, mask_check: bool = True) -> Any:
    """Returns the nested tensor of what a mask keeps of each row: the beginning of it."""
    from tensorgrad.nested import as_nested_tensor

    lengths = mask.sum(1).tolist()
    if mask_check and any(not mask[i, :n].all() for i, n in enumerate(lengths)):
        raise RuntimeError("Expected _nested_tensor_from_mask_left_aligned(t, mask) to be true, but got false.")
    return as_nested_tensor([row[:n] for row, n in zip(t.unbind(), lengths)])


def _opcheck(*args: Any, **kwargs: Any) -> Any:
    """`torch.library.opcheck`, by another name."""
    from tensorgrad.library import opcheck

    return opcheck(*args, **kwargs)


def _warn_once(message: str, *_: Any, **__: Any) -> None:
    """Warns; Python shows a warning of one place once."""
    warnings.warn(message, stacklevel=2)


# name -> (what it is, the libraries that import it, what to do or know instead; of a VALUE: the value)
ABSENT: dict[str, tuple[str, str, Any]] = {
    "torch.SymBool": (REFUSES, "transformers", _SYMBOLIC),
    "torch.SymFloat": (REFUSES, "PyTorch Geometric", _SYMBOLIC),
    "torch._C.Graph": (REFUSES, "transformers", _EXPORT),
    "torch._C.Value": (REFUSES, "transformers, snntorch", _EXPORT),
    "torch._C._cpu._init_amx": (NO, "torchao", _HERE_COMPILED),
    "torch._C._distributed_rpc.PyRRef": (REFUSES, "torchrl", _RPC),
    "torch._C._functorch._add_batch_dim": (VALUE, "tensordict", _add_batch_dim),
    "torch._C._functorch._remove_batch_dim": (VALUE, "tensordict", _remove_batch_dim),
    "torch._C._functorch.get_unwrapped": (REFUSES, "tensordict", _OWN_VMAP),
    "torch._C._functorch.is_batchedtensor": (VALUE, "tensordict", _is_batched),
    "torch._custom_ops.get_ctx": (REFUSES, "torchvision", _SYMBOLIC),
    "torch._dynamo.OptimizedModule": (REFUSES, "Lightning, accelerate", _COMPILED),
    "torch._dynamo._trace_wrapped_higher_order_op.TransformGetItemToIndex": (VALUE, "transformers", _HERE_ANYWAY),
    "torch._dynamo.allow_in_graph": (SAME, "transformers, einops", _COMPILED),
    "torch._dynamo.assume_constant_result": (SAME, "transformers", _COMPILED),
    "torch._dynamo.config.cache_size_limit": (VALUE, "programs, which set it", 8),
    "torch._dynamo.config.capture_scalar_outputs": (VALUE, "accelerate, which sets it", False),
    "torch._dynamo.config.skip_fwd_side_effects_in_bwd_under_checkpoint": (VALUE, "accelerate, which sets it", False),
    "torch._dynamo.config.suppress_errors": (VALUE, "programs, which set it", False),
    "torch._dynamo.disable": (SAME, "transformers, Lightning", _COMPILED),
    "torch._dynamo.disallow_in_graph": (SAME, "programs", _COMPILED),
    "torch._dynamo.eval_frame.OptimizedModule": (REFUSES, "accelerate", _COMPILED),
    "torch._dynamo.eval_frame.is_dynamo_supported": (NO, "Lightning", _COMPILED),
    "torch._dynamo.explain": (REFUSES, "programs", _COMPILED),
    "torch._dynamo.export": (REFUSES, "transformers", _EXPORT),
    "torch._dynamo.external_utils.is_compiling": (NO, "diffusers", _COMPILED),
    "torch._dynamo.graph_break": (NOTHING, "programs", _COMPILED),
    "torch._dynamo.is_compiling": (NO, "transformers, torchvision", _COMPILED),
    "torch._dynamo.is_dynamo_supported": (NO, "kornia", _COMPILED),
    "torch._dynamo.list_backends": (VALUE, "kornia", lambda exclude_tags=(): []),
    "torch._dynamo.mark_dynamic": (NOTHING, "transformers", _COMPILED),
    "torch._dynamo.mark_static_address": (NOTHING, "transformers", _COMPILED),
    "torch._dynamo.maybe_mark_dynamic": (NOTHING, "transformers", _COMPILED),
    "torch._dynamo.optimize": (REFUSES, "programs", _COMPILED),
    "torch._dynamo.reset": (NOTHING, "programs", _COMPILED),
    "torch._dynamo.run": (SAME, "programs", _COMPILED),
    "torch._dynamo.testing.CompileCounter": (REFUSES, "pytorch-optimizer", _COMPILED),
    "torch._dynamo.utils.is_compile_supported": (NO, "torchvision", _COMPILED),
    "torch._dynamo.utils.warn_once": (VALUE, "torchao", _warn_once),
    "torch._export.utils.remove_proxy_from_state_dict": (REFUSES, "torchao", _EXPORT),
    "torch._guards.active_fake_mode": (NOTHING, "tensordict", _FAKE),
    "torch._guards.detect_fake_mode": (NOTHING, "transformers", _FAKE),
    "torch._higher_order_ops.associative_scan.associative_scan": (REFUSES, "transformers", _COMPILED),
    "torch._higher_order_ops.flex_attention.flex_attention": (REFUSES, "transformers", _COMPILED),
    "torch._higher_order_ops.out_dtype.out_dtype": (REFUSES, "torchao", _COMPILED),
    "torch._inductor.config.fallback_random": (VALUE, "programs, which set it", False),
    "torch._inductor.config.triton": (REFUSES, "programs", _COMPILED),
    "torch._inductor.decomposition.register_decomposition": (SAME, "torchao", _COMPILED),
    "torch._library.infer_schema.infer_schema": (VALUE, "torchao", _infer_schema),
    "torch._nested_compute_contiguous_strides_offsets": (VALUE, "tensordict, torchrl", _nested_strides_offsets),
    "torch._nested_tensor_from_mask": (VALUE, "programs", _nested_tensor_from_mask),
    "torch._nested_view_from_buffer": (VALUE, "tensordict, torchrl", _nested_view_from_buffer),
    "torch._prims_common.is_contiguous_or_false": (REFUSES, "transformers", _SYMBOLIC),
    "torch._prims_common.make_contiguous_strides_for": (VALUE, "torchao", _contiguous_strides),
    "torch._prims_common.suggest_memory_format": (REFUSES, "torchao", _COMPILED),
    "torch._subclasses.FakeTensor": (REFUSES, "transformers, safetensors", _FAKE),
    "torch._subclasses.FakeTensorMode": (REFUSES, "transformers, torchvision", _FAKE),
    "torch._subclasses.fake_tensor.FakeTensor": (REFUSES, "transformers, accelerate", _FAKE),
    "torch._subclasses.fake_tensor.FakeTensorMode": (REFUSES, "transformers, accelerate", _FAKE),
    "torch._subclasses.fake_tensor.is_fake": (NO, "kornia", _FAKE),
    "torch._subclasses.functional_tensor.FunctionalTensor": (REFUSES, "tensordict", _FAKE),
    "torch.ao.nn.quantized.Linear": (REFUSES, "torch-pruning", _QUANTIZED),
    "torch.ao.quantization.DeQuantStub": (REFUSES, "torchvision", _QUANTIZED),
    "torch.ao.quantization.QConfig": (REFUSES, "Lightning", _QUANTIZED),
    "torch.ao.quantization.QuantStub": (REFUSES, "torchvision", _QUANTIZED),
    "torch.ao.quantization.convert": (REFUSES, "torchvision", _QUANTIZED),
    "torch.ao.quantization.default_qconfig": (VALUE, "torchvision", None),
    "torch.ao.quantization.fuse_modules": (REFUSES, "torchvision", _QUANTIZED),
    "torch.ao.quantization.fuse_modules_qat": (REFUSES, "torchvision", _QUANTIZED),
    "torch.ao.quantization.get_default_qat_qconfig": (REFUSES, "torchvision", _QUANTIZED),
    "torch.ao.quantization.get_default_qconfig": (REFUSES, "torchvision", _QUANTIZED),
    "torch.ao.quantization.prepare": (REFUSES, "torchvision", _QUANTIZED),
    "torch.ao.quantization.prepare_qat": (REFUSES, "torchvision", _QUANTIZED),
    "torch.ao.quantization.quantize_dynamic": (REFUSES, "programs", _QUANTIZED),
    "torch.chalf": (REFUSES, "kornia", _HALF),
    "torch.classes.load_library": (REFUSES, "torchaudio", "compiled classes need PyTorch's C++ core"),
    "torch.complex32": (REFUSES, "kornia", _HALF),
    "torch.cpu._is_amx_tile_supported": (NO, "torchao", _HERE_COMPILED),
    "torch.cpu._is_vnni_supported": (NO, "torchao", _HERE_COMPILED),
    "torch.distributed.rpc.RRef": (REFUSES, "Lightning", _RPC),
    "torch.distributed.rpc.init_rpc": (REFUSES, "programs", _RPC),
    "torch.distributed.rpc.rpc_async": (REFUSES, "programs", _RPC),
    "torch.distributed.rpc.rpc_sync": (REFUSES, "programs", _RPC),
    "torch.export.Dim": (REFUSES, "transformers, torchvision", _EXPORT),
    "torch.export.ExportedProgram": (REFUSES, "transformers, optimum", _EXPORT),
    "torch.export.export": (REFUSES, "transformers, optimum", _EXPORT),
    "torch.export.load": (REFUSES, "programs", _EXPORT),
    "torch.export.register_dataclass": (NOTHING, "transformers", _EXPORT),
    "torch.export.save": (REFUSES, "programs", _EXPORT),
    "torch.fx.experimental.symbolic_shapes.guard_size_oblivious": (SAME, "diffusers", _SYMBOLIC),
    "torch.int1": (REFUSES, "diffusers, torchao", _BITS),
    "torch.int2": (REFUSES, "diffusers, torchao", _BITS),
    "torch.int3": (REFUSES, "diffusers, torchao", _BITS),
    "torch.int4": (REFUSES, "diffusers, torchao", _BITS),
    "torch.int5": (REFUSES, "diffusers, torchao", _BITS),
    "torch.int6": (REFUSES, "diffusers, torchao", _BITS),
    "torch.int7": (REFUSES, "diffusers, torchao", _BITS),
    "torch.nn.functional.ScalingType": (REFUSES, "torchao", _COMPILED),
    "torch.nn.functional.scaled_grouped_mm": (REFUSES, "torchao", _COMPILED),
    "torch.onnx.register_custom_op_symbolic": (NOTHING, "torchvision", _EXPORT_ONNX),
    "torch.onnx.symbolic_helper.parse_args": (SAME, "torchvision", _EXPORT_ONNX),
    "torch.onnx.symbolic_opset11.select": (REFUSES, "torchvision", _EXPORT_ONNX),
    "torch.onnx.symbolic_opset11.squeeze": (REFUSES, "torchvision", _EXPORT_ONNX),
    "torch.onnx.symbolic_opset11.unsqueeze": (REFUSES, "torchvision", _EXPORT_ONNX),
    "torch.package.PackageExporter": (REFUSES, "programs", "use torch.save"),
    "torch.package.PackageImporter": (REFUSES, "programs", "use torch.load"),
    "torch.qint32": (REFUSES, "tensordict", _QUANTIZED),
    "torch.qint8": (REFUSES, "tensordict", _QUANTIZED),
    "torch.quantization.DeQuantStub": (REFUSES, "programs", _QUANTIZED),
    "torch.quantization.QuantStub": (REFUSES, "programs", _QUANTIZED),
    "torch.quantization.convert": (REFUSES, "programs", _QUANTIZED),
    "torch.quantization.fuse_modules": (REFUSES, "programs", _QUANTIZED),
    "torch.quantization.get_default_qconfig": (REFUSES, "programs", _QUANTIZED),
    "torch.quantization.prepare": (REFUSES, "programs", _QUANTIZED),
    "torch.quantization.quantize_dynamic": (REFUSES, "programs", _QUANTIZED),
    "torch.quint2x4": (REFUSES, "tensordict", _QUANTIZED),
    "torch.quint4x2": (REFUSES, "tensordict", _QUANTIZED),
    "torch.quint8": (REFUSES, "tensordict", _QUANTIZED),
    "torch.sparse.SparseSemiStructuredTensor": (REFUSES, "torchao", _TWO_OF_FOUR),
    "torch.sparse.SparseSemiStructuredTensorCUSPARSELT": (REFUSES, "torchao", _TWO_OF_FOUR),
    "torch.sparse.SparseSemiStructuredTensorCUTLASS": (REFUSES, "torchao", _TWO_OF_FOUR),
    "torch.sparse._triton_ops_meta.get_meta": (REFUSES, "torchao", _TRITON),
    "torch.sparse._triton_ops_meta.minimize": (REFUSES, "torchao", _TRITON),
    "torch.sparse._triton_ops_meta.update": (REFUSES, "torchao", _TRITON),
    "torch.testing._internal.optests.generate_opcheck_tests": (NOTHING, "torchvision's tests", _COMPILED),
    "torch.testing._internal.optests.opcheck": (VALUE, "torchvision's tests", _opcheck),
    "torch.uint1": (REFUSES, "diffusers, torchao", _BITS),
    "torch.uint2": (REFUSES, "diffusers, torchao", _BITS),
    "torch.uint3": (REFUSES, "diffusers, torchao", _BITS),
    "torch.uint4": (REFUSES, "diffusers, torchao", _BITS),
    "torch.uint5": (REFUSES, "diffusers, torchao", _BITS),
    "torch.uint6": (REFUSES, "diffusers, torchao", _BITS),
    "torch.uint7": (REFUSES, "diffusers, torchao", _BITS),
    "torch.utils._triton.has_triton": (NO, "accelerate, PyTorch Geometric", _COMPILED),
    "torch.utils.cpp_extension.BuildExtension": (REFUSES, "setup scripts of libraries", _EXTENSION),
    "torch.utils.cpp_extension.CUDAExtension": (REFUSES, "setup scripts of libraries", _EXTENSION),
    "torch.utils.cpp_extension.CUDA_HOME": (VALUE, "libraries, which ask whether there is CUDA's compiler", None),
    "torch.utils.cpp_extension.CppExtension": (REFUSES, "setup scripts of libraries", _EXTENSION),
    "torch.utils.cpp_extension.load": (REFUSES, "peft, which goes on without", _EXTENSION),
    "torch.utils.cpp_extension.load_inline": (REFUSES, "programs", _EXTENSION),
    "torch.utils.data.datapipes.iter.combinatorics.ShufflerIterDataPipe": (REFUSES, "accelerate", _PIPES),
    "torch.utils.mobile_optimizer.optimize_for_mobile": (REFUSES, "programs", _EXPORT),
    "torch.xpu.is_current_stream_capturing": (NO, "transformers", "there is no XPU"),
}  # fmt: skip
