"""Errors for missing module attributes: they suggest what was probably meant, or say that only PyTorch has it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import ModuleType

from tensorgrad.system.lazy_modules import loaded

# Every attribute that PyTorch's module has but the one here lacks, by module (PyTorch 2.13).
ONLY_IN_TORCH: dict[str, str] = {
    "": """
        AVG AggregationType AliasDb AnyType Argument ArgumentSpec AwaitType BenchmarkConfig
        BenchmarkExecutionStats Block BoolType BufferDict CallStack Capsule ClassType Code CompilationUnit
        CompleteArgumentSpec ComplexType ConcreteModuleType ConcreteModuleTypeBuilder DeepCopyMemoTable
        DeserializationStorageContext DeviceObjType DictType
        DispatchKey DispatchKeySet EnumType ErrorReport Event ExcludeDispatchKeyGuard ExecutionPlan FatalError
        FileCheck FloatType FunctionSchema Future FutureType Gradient Graph GraphExecutorState IODescriptor
        InferredType IntType InterfaceType JITException ListType LiteScriptModule LockingLogger LoggerBase
        ModuleDict Node NoneType NoopLogger NumberType OperatorInfo OptionalType ParameterDict PyObjectType
        PyTorchFileWriter QInt32Storage QInt8Storage QUInt2x4Storage QUInt4x2Storage
        QUInt8Storage RRefType SUM ScriptClass ScriptClassFunction ScriptDict ScriptDictIterator
        ScriptDictKeyIterator ScriptFunction ScriptList ScriptListIterator ScriptMethod
        ScriptModuleSerializer ScriptObject ScriptObjectProperty SerializationStorageContext StaticModule
        Storage StorageBase Stream StreamObjType StringType SymBool SymBoolType SymFloat SymIntType
        TensorType ThroughputBenchmark TracingState TupleType Type UnionType Use Value ao
        batch_norm_backward_elemt batch_norm_backward_reduce batch_norm_elemt batch_norm_gather_stats
        batch_norm_gather_stats_with_counts batch_norm_stats batch_norm_update_stats bit bits16 bits1x8 bits2x4
        bits4x2 bits8 ccol_indices_copy chalf choose_qparams_optimized classes classproperty col_indices_copy
        complex32 cond cpp crow_indices_copy cudnn_affine_grid_generator cudnn_batch_norm cudnn_convolution
        cudnn_convolution_add_relu cudnn_convolution_relu cudnn_convolution_transpose cudnn_grid_sampler
        cudnn_is_acceptable dequantize dsmm empty_quantized export fake_quantize_per_channel_affine
        fake_quantize_per_tensor_affine fbgemm_linear_fp16_weight fbgemm_linear_fp16_weight_fp32_activation
        fbgemm_linear_int8_weight fbgemm_linear_int8_weight_fp32_activation fbgemm_linear_quantize_weight
        fbgemm_pack_gemm_matrix_fp16 fbgemm_pack_quantized_matrix float4_e2m1fn_x2 float8_e4m3fn float8_e4m3fnuz
        float8_e5m2 float8_e5m2fnuz float8_e8m0fnu fork fused_moving_avg_obs_fake_quant
        get_autocast_ipu_dtype get_autocast_xla_dtype has_lapack has_mkl has_openmp has_spectral hsmm hspmm
        import_ir_module import_ir_module_from_buffer indices_copy init_num_threads int1 int2 int3 int4 int5
        int6 int7 int_repr is_autocast_ipu_enabled is_autocast_xla_enabled is_vulkan_available library
        merge_type_from_type_comment miopen_batch_norm miopen_convolution miopen_convolution_add_relu
        miopen_convolution_relu miopen_convolution_transpose miopen_ctc_loss miopen_depthwise_convolution
        miopen_rnn mkldnn_adaptive_avg_pool2d mkldnn_convolution mkldnn_linear_backward_weights
        mkldnn_max_pool2d mkldnn_max_pool3d mkldnn_rnn_layer monitor mtia native_norm package parse_ir
        parse_schema parse_type_comment prepare_multiprocessing_environment
        profiler_allow_cudagraph_cupti_lazy_reinit_cuda12 q_per_channel_axis q_per_channel_scales
        q_per_channel_zero_points q_scale q_zero_point qint32 qint8 qscheme quantization quantize_per_channel
        quantize_per_tensor quantize_per_tensor_dynamic quantized_batch_norm quantized_gru quantized_gru_cell
        quantized_lstm quantized_lstm_cell quantized_max_pool1d quantized_max_pool2d quantized_max_pool3d
        quantized_rnn_relu_cell quantized_rnn_tanh_cell quint2x4 quint4x2 quint8 resize_as_sparse_
        row_indices_copy saddmm set_autocast_ipu_dtype set_autocast_ipu_enabled set_autocast_xla_dtype
        set_autocast_xla_enabled smm sspaddmm sym_constrain_range sym_constrain_range_for_size sym_fresh_size
        thread_safe_generator uint1 uint2 uint3 uint4 uint5 uint6 uint7 unify_type_list values_copy wait
        while_loop windows
    """,
    "autograd": """
        DeviceType NestedIOFunction ProfilerActivity ProfilerConfig ProfilerEvent ProfilerState
        anomaly_mode enforce_grad_layout_policy handle_torch_function has_torch_function is_tensor_like
        profiler_legacy profiler_util
    """,
    "cuda": """
        BFloat16Storage BoolStorage ByteStorage CUDAPluggableAllocator CharStorage ComplexDoubleStorage
        ComplexFloatStorage DeferredCudaCallError DoubleStorage FloatStorage GreenContext HalfStorage IntStorage
        LongStorage MemPool ShortStorage caching_allocator_disabled caching_allocator_enable change_current_allocator
        classproperty cudart current_blas_handle current_solver_handle gds green_contexts has_half has_magma
        host_memory_stats_as_nested_dict memory_snapshot nccl reset_accumulated_host_memory_stats
        reset_peak_host_memory_stats sparse tunable use_mem_pool
    """,
    "distributed": """
        AllToAllOptions AllreduceCoalescedOptions AllreduceOptions BarrierOptions BroadcastOptions
        GatherOptions GroupName Logger ProcessGroupGloo RankType ReduceOptions ReduceScatterOptions Reducer
        ScatterOptions algorithms autograd c10d_logger config remote_device rpc
    """,
    "jit": """
        Attribute CompilationUnit Error Future ONNXTracedModule RecursiveScriptClass
        TracingCheckError enable_onednn_fusion export_opnames fork frontend fuser interface jit_module_from_flatbuffer
        last_executed_optimized_graph onednn_fusion_enabled optimized_execution run_frozen_optimizations
        save_jit_module_to_flatbuffer set_fusion_strategy set_module strict_fusion wait
    """,
    "nn": "intrinsic qat quantizable quantized",
    "nn.functional": """
        ScalingType SwizzleType assert_int_or_pair grouped_mm scaled_grouped_mm scaled_mm
    """,
    "utils": """
        ThroughputBenchmark backcompat backend_registration cpp_backtrace
        generate_methods_for_privateuse1_backend get_cpp_backtrace rename_privateuse1_backend set_module
        throughput_benchmark
    """,
    "utils.data": """
        DFIterDataPipe DataChunk IterDataPipe MapDataPipe argument_validation datapipes functional_datapipe graph
        graph_settings guaranteed_datapipes_determinism non_deterministic runtime_validation runtime_validation_disabled
    """,
}
# Where to look for a name that is in none of PyTorch's modules above: `torch.Linear` is `torch.nn.Linear`.
_MODULES = (
    "", "nn", "nn.functional", "optim", "optim.lr_scheduler", "linalg", "fft", "special", "distributions", "func",
)  # fmt: skip


def no_attribute(module: str, name: str) -> AttributeError:
    """Returns the error that a module's `__getattr__` raises for a missing name.

    Names that begin with `_` are looked up by programs rather than people: they get no advice, which would take time.

    >>> from tensorgrad.system.missing_names import no_attribute
    >>> no_attribute("tensorgrad.nn", "Lineer")
    AttributeError("module 'tensorgrad.nn' has no attribute 'Lineer'; did you mean 'Linear'?")
    """
    text = f"module {module!r} has no attribute {name!r}"
    return AttributeError(text if name[:1] in ("", "_") else _WithAdvice(text, module, name), name=name)


class _WithAdvice(str):
    """The text of an error, to which advice is added when it is read: most of these errors only answer `hasattr`."""

    def __new__(cls, text: str, module: str, name: str) -> _WithAdvice:
        made = super().__new__(cls, text)
        made._missing = module, name
        return made

    _missing: tuple[str, str]

    def __str__(self) -> str:
        module, name = self._missing
        no_advice = is_file(module, name)
        return super().__str__() + ("" if no_advice else advice(module.removeprefix("tensorgrad").lstrip("."), name))

    def __repr__(self) -> str:
        return repr(str(self))

    def __reduce__(self) -> tuple:
        return str, (str(self),)


def is_file(module: str, name: str) -> bool:
    """Whether a package has a file of this name: `from package import file` tries the attribute before the file."""
    from importlib.machinery import PathFinder

    return PathFinder.find_spec(f"{module}.{name}", getattr(sys.modules.get(module), "__path__", [])) is not None


def advice(module: str, name: str) -> str:
    """Returns the text to append to the error.

    >>> from tensorgrad.system.missing_names import advice
    >>> advice("", "quantize_per_tensor")
    ' (PyTorch has it, tensorgrad does not: run `python -m tensorgrad.coverage` to see what is available)'
    >>> import tensorgrad.nn
    >>> advice("nn", "Lineer"), advice("", "no_such_thing_at_all")
    ("; did you mean 'Linear'?", '')
    """
    if name in ONLY_IN_TORCH.get(module, "").split():
        return " (PyTorch has it, tensorgrad does not: run `python -m tensorgrad.coverage` to see what is available)"
    for other in _MODULES:  # only loaded modules: loading the others would take too long for a hint
        candidate = sys.modules.get(f"tensorgrad.{other}".rstrip("."))
        if candidate is not None and other != module and name in dir(candidate):
            return f"; did you mean 'torch.{other}.{name}'?".replace("..", ".")
    here = sys.modules.get(f"tensorgrad.{module}".rstrip("."))
    return suggestion(name, _known(here, name)) if here is not None else ""


def _known(module: ModuleType, name: str) -> list[str]:
    """Candidates for a misspelled name; without modules if it is capitalized like a class."""
    own = loaded(module)
    names = {*dir(module), *own.get("__all__", ())}
    return [n for n in sorted(names) if not (name[0].isupper() and isinstance(own.get(n), ModuleType))]


def suggestion(name: str, known: Iterable[str]) -> str:
    """Returns the text to append to an error about an unknown name.

    >>> from tensorgrad.system.missing_names import suggestion
    >>> suggestion("mull", ["add", "mul"]), suggestion("xyz", ["add", "mul"])
    ("; did you mean 'mul'?", '')
    """
    near = closest(name, known)
    return f"; did you mean {near!r}?" if near else ""


def closest(name: str, known: Iterable[str]) -> str | None:
    """Returns the name that this is probably a misspelling of; None if there is none.

    >>> from tensorgrad.system.missing_names import closest
    >>> closest("LogSoftMax", ["LogSoftmax", "Softmax"]), closest("crossentropy", ["cross_entropy", "entropy"])
    ('LogSoftmax', 'cross_entropy')
    >>> closest("tesnor", ["tensor", "Tensor"]), closest("xyz", ["tensor"])
    ('tensor', None)
    """
    from difflib import get_close_matches

    def plain(word: str) -> str:
        return word.replace("_", "").lower()

    public = [word for word in known if not word.startswith("_")]
    wanted = plain(name)
    same = [word for word in public if plain(word) == wanted]
    if same:
        return min(same, key=lambda word: (word[:1].isupper() != name[:1].isupper(), word))
    near = [word for word in public if abs(len(word) - len(name)) <= 2 and (word[0] == name[0] or word[-1] == name[-1])]
    return next(iter(get_close_matches(name, near, 1, 0.75 if len(name) > 4 else 0.8)), None)
