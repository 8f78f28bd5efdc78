"""The names of PyTorch's that are not here: those that are missing, and those for which something stands in.

Whoever asks for a missing name is told so (missing_names.py). Libraries import some names that mean nothing here; after
`import torch`, compat/stand_ins.py makes these, and the modules that they are in. One a line, in alphabetical order,
with the libraries that need it. What a name is instead of PyTorch's:

    REFUSES  a class: may be imported, passed to `isinstance` and subclassed; raises an error when it is called
    SAME     a decorator: returns the function that it is given
    NOTHING  a function that accepts anything, does nothing and returns None
    NO       a function that accepts anything and returns False
    VALUE    a plain value: the third entry
    MADE     the function of that name in compat/absent_values.py
    FOUND    what this package has by another name: the third entry
"""

from __future__ import annotations

from typing import Any

REFUSES, SAME, NOTHING, NO, VALUE, MADE, FOUND = "REFUSES", "SAME", "NOTHING", "NO", "VALUE", "MADE", "FOUND"

_COMPILED = "programs are recorded while they run (torch.compile), so there is no tracing to be told about"
_CORE = "an entry to PyTorch's C++ core: torch.ops has the operators that libraries define"
_EXPORT = "save the state_dict, or the program with torch.export"
_EXPORT_ONNX = "torch.onnx exports without symbolic functions for TorchScript's graphs"
_EXTENSION = "C++ code cannot be compiled against tensorgrad, which is Python"
_FUNCTIONAL = "what is written in place is seen where programs are recorded (torch.compile)"
_GPU = "a kernel of GPUs: use torch.matmul"
_HERE_COMPILED = "integers are multiplied without saturation on every processor"
_HISTORY = "open what torch.cuda.memory._dump_snapshot writes in the viewer at pytorch.org/memory_viz"
_MATCHER = "use torch.fx.replace_pattern"
_OWN_VMAP = "torch.vmap keeps its batches in its own way"
_RPC = "gradients do not flow through remote calls: use torch.distributed.nn"
_SCRIPTED = "what torch.jit.script compiles is kept by the functions and modules alone"
_SHARDED = "use torch.distributed.tensor.DTensor"
_SOURCES = "nodes of graphs do not remember the functions that they come from"
_SYMBOLIC = "sizes are plain numbers"
_SYMMETRIC = "memory that GPUs share: use the collectives of torch.distributed"
_TRITON = "there are no kernels in Triton"
_TWO_OF_FOUR = "kernels for two of four elements are NVIDIA's; use to_sparse_csr()"

# Every attribute that PyTorch's module has but the one here lacks, by module (PyTorch 2.13); those in the table below
# are not repeated.
MISSING: dict[str, str] = {
    "": """
        AVG AggregationType AliasDb Argument ArgumentSpec AwaitType BenchmarkConfig BenchmarkExecutionStats
        Block BufferDict CallStack Capsule ClassType Code CompilationUnit CompleteArgumentSpec
        ConcreteModuleType ConcreteModuleTypeBuilder DeepCopyMemoTable DeserializationStorageContext
        DispatchKey DispatchKeySet EnumType ErrorReport Event ExcludeDispatchKeyGuard
        ExecutionPlan FatalError FileCheck FunctionSchema Future FutureType Gradient Graph GraphExecutorState
        IODescriptor InferredType InterfaceType JITException LiteScriptModule LockingLogger LoggerBase
        ModuleDict Node NoopLogger OperatorInfo ParameterDict PyObjectType PyTorchFileWriter QInt32Storage
        QInt8Storage QUInt2x4Storage QUInt4x2Storage QUInt8Storage RRefType SUM ScriptClass ScriptClassFunction
        ScriptDict ScriptDictIterator ScriptDictKeyIterator ScriptFunction ScriptList ScriptListIterator
        ScriptModuleSerializer ScriptObjectProperty SerializationStorageContext StaticModule Storage StorageBase
        Stream SymBoolType SymIntType ThroughputBenchmark TracingState Type UnionType Use Value
        batch_norm_backward_elemt batch_norm_backward_reduce batch_norm_elemt batch_norm_gather_stats
        batch_norm_gather_stats_with_counts batch_norm_stats batch_norm_update_stats bit ccol_indices_copy
        choose_qparams_optimized classes classproperty col_indices_copy cpp crow_indices_copy
        cudnn_affine_grid_generator cudnn_batch_norm cudnn_convolution cudnn_convolution_add_relu
        cudnn_convolution_relu cudnn_convolution_transpose cudnn_grid_sampler cudnn_is_acceptable dsmm
        empty_quantized export fbgemm_linear_fp16_weight fbgemm_linear_fp16_weight_fp32_activation
        fbgemm_linear_int8_weight fbgemm_linear_int8_weight_fp32_activation fbgemm_linear_quantize_weight
        fbgemm_pack_gemm_matrix_fp16 fbgemm_pack_quantized_matrix float8_e4m3fn float8_e4m3fnuz float8_e5m2
        float8_e5m2fnuz float8_e8m0fnu fork get_autocast_ipu_dtype get_autocast_xla_dtype has_lapack has_mkl
        has_openmp has_spectral hsmm hspmm import_ir_module import_ir_module_from_buffer indices_copy
        init_num_threads is_autocast_ipu_enabled is_autocast_xla_enabled is_vulkan_available library
        merge_type_from_type_comment miopen_batch_norm miopen_convolution miopen_convolution_add_relu
        miopen_convolution_relu miopen_convolution_transpose miopen_ctc_loss miopen_depthwise_convolution
        miopen_rnn mkldnn_adaptive_avg_pool2d mkldnn_convolution mkldnn_linear_backward_weights
        mkldnn_max_pool2d mkldnn_max_pool3d mkldnn_rnn_layer monitor mtia native_norm package parse_ir
        parse_schema parse_type_comment prepare_multiprocessing_environment
        profiler_allow_cudagraph_cupti_lazy_reinit_cuda12 quantized_batch_norm quantized_gru quantized_gru_cell
        quantized_lstm quantized_lstm_cell quantized_max_pool1d quantized_max_pool2d quantized_max_pool3d
        quantized_rnn_relu_cell quantized_rnn_tanh_cell resize_as_sparse_ row_indices_copy saddmm
        set_autocast_ipu_dtype set_autocast_ipu_enabled set_autocast_xla_dtype set_autocast_xla_enabled smm
        sspaddmm sym_constrain_range sym_constrain_range_for_size sym_fresh_size thread_safe_generator
        unify_type_list values_copy wait windows
    """,
    "autograd": """
        DeviceType NestedIOFunction ProfilerActivity ProfilerConfig ProfilerEvent ProfilerState
        anomaly_mode enforce_grad_layout_policy handle_torch_function has_torch_function is_tensor_like
        profiler_legacy profiler_util
    """,
    "cuda": """
        BFloat16Storage BoolStorage ByteStorage CUDAPluggableAllocator CharStorage ComplexDoubleStorage
        ComplexFloatStorage DeferredCudaCallError DoubleStorage FloatStorage GreenContext HalfStorage IntStorage
        LongStorage ShortStorage caching_allocator_disabled caching_allocator_enable change_current_allocator
        classproperty current_blas_handle current_solver_handle gds green_contexts has_half has_magma
        host_memory_stats_as_nested_dict memory_snapshot nccl reset_accumulated_host_memory_stats
        reset_peak_host_memory_stats sparse tunable
    """,
    "distributed": """
        AllToAllOptions AllreduceCoalescedOptions AllreduceOptions BarrierOptions BroadcastOptions
        GatherOptions GroupName Logger ProcessGroupGloo RankType ReduceOptions ReduceScatterOptions Reducer
        ScatterOptions algorithms autograd c10d_logger config remote_device
    """,
    "jit": """
        Attribute CompilationUnit Future ONNXTracedModule RecursiveScriptClass
        TracingCheckError enable_onednn_fusion export_opnames fork frontend fuser interface jit_module_from_flatbuffer
        last_executed_optimized_graph onednn_fusion_enabled optimized_execution run_frozen_optimizations
        save_jit_module_to_flatbuffer set_fusion_strategy set_module strict_fusion wait
    """,
    "nn": "intrinsic qat quantizable quantized",
    "nn.functional": """
        assert_int_or_pair scaled_mm
    """,
    "utils": """
        ThroughputBenchmark backcompat backend_registration cpp_backtrace
        generate_methods_for_privateuse1_backend get_cpp_backtrace rename_privateuse1_backend set_module
        throughput_benchmark
    """,
}

# name -> (what it is, the libraries that import it, what to do or know instead; of VALUE and MADE: see above)
ABSENT: dict[str, tuple[str, str, Any]] = {
    "torch._C.Graph": (REFUSES, "transformers", _EXPORT),
    "torch._C.Value": (REFUSES, "transformers, snntorch", _EXPORT),
    "torch._C._GLIBCXX_USE_CXX11_ABI": (VALUE, "setup scripts of flash-attention, detectron2", True),
    "torch._C._cpu._init_amx": (NO, "torchao", _HERE_COMPILED),
    "torch._C._debug_set_autodiff_subgraph_inlining": (NOTHING, "Megatron-LM, NeMo", _EXPORT),
    "torch._C._distributed_c10d.FileStore": (
        FOUND, "libraries of training", "tensorgrad.distributed.stores.file_store.FileStore"),
    "torch._C._distributed_c10d.GradBucket": (
        FOUND, "libraries of training", "tensorgrad.distributed.grad_bucket.GradBucket"),
    "torch._C._distributed_c10d.HashStore": (
        FOUND, "libraries of training", "tensorgrad.distributed.stores.store.HashStore"),
    "torch._C._distributed_c10d.PrefixStore": (
        FOUND, "libraries of training", "tensorgrad.distributed.stores.store.PrefixStore"),
    "torch._C._distributed_c10d.ProcessGroup": (
        FOUND, "libraries of training", "tensorgrad.distributed.group.ProcessGroup"),
    "torch._C._distributed_c10d.ReduceOp": (
        FOUND, "libraries of training", "tensorgrad.distributed.reduce_op.ReduceOp"),
    "torch._C._distributed_c10d.Store": (
        FOUND, "libraries of training", "tensorgrad.distributed.stores.store.Store"),
    "torch._C._distributed_c10d.TCPStore": (
        FOUND, "libraries of training", "tensorgrad.distributed.stores.tcp_store.TCPStore"),
    "torch._C._distributed_c10d.Work": (
        FOUND, "libraries of training", "tensorgrad.distributed.work.Work"),
    "torch._C._distributed_c10d._SymmetricMemory": (REFUSES, "vllm, torchtitan", _SYMMETRIC),
    "torch._C._distributed_rpc.PyRRef": (FOUND, "torchrl", "tensorgrad.distributed.rpc.references.PyRRef"),
    "torch._C._functorch._add_batch_dim": (MADE, "tensordict", "add_batch_dim"),
    "torch._C._functorch._remove_batch_dim": (MADE, "tensordict", "remove_batch_dim"),
    "torch._C._functorch.get_unwrapped": (REFUSES, "tensordict", _OWN_VMAP),
    "torch._C._functorch.is_batchedtensor": (MADE, "tensordict", "is_batched"),
    "torch._C._jit_clear_class_registry": (NOTHING, "nni, torchani", _SCRIPTED),
    "torch._C._jit_get_operation": (MADE, "mmcv, brevitas", "operation"),
    "torch._C._jit_get_schemas_for_operator": (REFUSES, "nni, brevitas", _CORE),
    "torch._C._jit_override_can_fuse_on_cpu": (NOTHING, "Megatron-LM, torchani", _EXPORT),
    "torch._C._jit_override_can_fuse_on_gpu": (NOTHING, "Megatron-LM, NeMo", _EXPORT),
    "torch._C._jit_set_nvfuser_enabled": (NO, "Megatron-LM, torchani", _EXPORT),
    "torch._C._jit_set_profiling_executor": (NO, "timm, speechbrain, NeMo", _EXPORT),
    "torch._C._jit_set_profiling_mode": (NO, "timm, speechbrain, NeMo", _EXPORT),
    "torch._C._jit_set_texpr_fuser_enabled": (NOTHING, "Megatron-LM, torchani", _EXPORT),
    "torch._amp_foreach_non_finite_check_and_unscale_": (MADE, "deepspeed, colossalai", "amp_unscale"),
    "torch._amp_update_scale_": (MADE, "deepspeed, fairscale", "amp_update_scale"),
    "torch._custom_ops.get_ctx": (REFUSES, "torchvision", _SYMBOLIC),
    "torch._decomp.core_aten_decompositions": (REFUSES, "executorch", _COMPILED),
    "torch._decomp.get_decompositions": (REFUSES, "optimum", _COMPILED),
    "torch._disable_dynamo": (SAME, "torchao, unsloth", _COMPILED),
    "torch._dynamo.OptimizedModule": (FOUND, "Lightning, accelerate", "tensorgrad.capture.compiled.OptimizedModule"),
    "torch._dynamo._trace_wrapped_higher_order_op.TransformGetItemToIndex": (MADE, "transformers", "index_as_they_are"),
    "torch._dynamo.allow_in_graph": (SAME, "transformers, einops", _COMPILED),
    "torch._dynamo.assume_constant_result": (SAME, "transformers", _COMPILED),
    "torch._dynamo.config.cache_size_limit": (VALUE, "programs, which set it", 8),
    "torch._dynamo.config.capture_scalar_outputs": (VALUE, "accelerate, which sets it", False),
    "torch._dynamo.config.skip_fwd_side_effects_in_bwd_under_checkpoint": (VALUE, "accelerate, which sets it", False),
    "torch._dynamo.config.suppress_errors": (VALUE, "programs, which set it", False),
    "torch._dynamo.decorators.mark_unbacked": (NOTHING, "torchrec, torchtitan", _COMPILED),
    "torch._dynamo.disable": (MADE, "transformers, Lightning", "disable"),
    "torch._dynamo.disallow_in_graph": (SAME, "programs", _COMPILED),
    "torch._dynamo.eval_frame.OptimizedModule": (FOUND, "accelerate", "tensorgrad.capture.compiled.OptimizedModule"),
    "torch._dynamo.eval_frame.is_dynamo_supported": (NO, "Lightning", _COMPILED),
    "torch._dynamo.explain": (MADE, "programs", "explain"),
    "torch._dynamo.export": (REFUSES, "transformers", _EXPORT),
    "torch._dynamo.external_utils.is_compiling": (NO, "diffusers", _COMPILED),
    "torch._dynamo.graph_break": (MADE, "programs", "graph_break"),
    "torch._dynamo.is_compiling": (NO, "transformers, torchvision", _COMPILED),
    "torch._dynamo.is_dynamo_supported": (NO, "kornia", _COMPILED),
    "torch._dynamo.list_backends": (MADE, "kornia", "list_backends"),
    "torch._dynamo.mark_dynamic": (NOTHING, "transformers", _COMPILED),
    "torch._dynamo.mark_static_address": (NOTHING, "transformers", _COMPILED),
    "torch._dynamo.maybe_mark_dynamic": (NOTHING, "transformers", _COMPILED),
    "torch._dynamo.optimize": (REFUSES, "programs", _COMPILED),
    "torch._dynamo.reset": (MADE, "programs", "reset"),
    "torch._dynamo.run": (SAME, "programs", _COMPILED),
    "torch._dynamo.testing.CompileCounter": (REFUSES, "pytorch-optimizer", _COMPILED),
    "torch._dynamo.utils.is_compile_supported": (NO, "torchvision", _COMPILED),
    "torch._dynamo.utils.warn_once": (MADE, "torchao", "warn_once"),
    "torch._export.utils.remove_proxy_from_state_dict": (REFUSES, "torchao", _EXPORT),
    "torch._functorch.aot_autograd.aot_function": (REFUSES, "programs", _COMPILED),
    "torch._functorch.aot_autograd.aot_module_simplified": (REFUSES, "deepspeed", _COMPILED),
    "torch._functorch.apis.grad": (FOUND, "programs", "tensorgrad.func.derivatives.grad"),
    "torch._functorch.apis.vmap": (FOUND, "programs", "tensorgrad.func.vmap.vmap"),
    "torch._functorch.config.activation_memory_budget": (VALUE, "programs, which set it", 1.0),
    "torch._functorch.config.donated_buffer": (VALUE, "programs, which set it", False),
    "torch._functorch.make_functional.make_functional": (
        FOUND, "programs", "tensorgrad.func.make_functional.make_functional"),
    "torch._functorch.make_functional.make_functional_with_buffers": (
        FOUND, "programs", "tensorgrad.func.make_functional.make_functional_with_buffers"),
    "torch._guards.active_fake_mode": (FOUND, "tensordict", "tensorgrad._subclasses.fake_tensor.active_fake_mode"),
    "torch._guards.detect_fake_mode": (FOUND, "transformers", "tensorgrad._subclasses.fake_tensor.detect_fake_mode"),
    "torch._higher_order_ops.associative_scan.associative_scan": (REFUSES, "transformers", _COMPILED),
    "torch._higher_order_ops.flex_attention.flex_attention": (REFUSES, "transformers", _COMPILED),
    "torch._higher_order_ops.inline_asm_elementwise.inline_asm_elementwise": (REFUSES, "torchao", _GPU),
    "torch._higher_order_ops.out_dtype.out_dtype": (REFUSES, "torchao", _COMPILED),
    "torch._inductor.config.fallback_random": (VALUE, "programs, which set it", False),
    "torch._inductor.config.max_autotune_gemm_search_space": (VALUE, "torchao, where triton is installed", "DEFAULT"),
    "torch._inductor.config.triton": (MADE, "programs, which set what is in it", "TritonSettings"),
    "torch._inductor.decomposition.register_decomposition": (SAME, "torchao", _COMPILED),
    "torch._inductor.ir.TensorBox": (REFUSES, "torchao, deepspeed", _COMPILED),
    "torch._inductor.lowering.register_lowering": (SAME, "torchao, deepspeed", _COMPILED),
    "torch._inductor.utils.clear_inductor_caches": (NOTHING, "torchao", _COMPILED),
    "torch._inductor.utils.do_bench_using_profiling": (REFUSES, "torchao", "use torch.utils.benchmark"),
    "torch._inductor.utils.fresh_inductor_cache": (MADE, "torchao, axolotl", "fresh_cache"),
    "torch._inductor.utils.run_and_get_code": (REFUSES, "torchao", _COMPILED),
    "torch._inductor.virtualized.V": (REFUSES, "torchao, deepspeed", _COMPILED),
    "torch._library.infer_schema.infer_schema": (MADE, "torchao", "infer_schema"),
    "torch._logging.set_logs": (NOTHING, "torchao, torchtitan", _COMPILED),
    "torch._logging.trace_structured": (NOTHING, "torchrec, torchtitan", _COMPILED),
    "torch._nested_compute_contiguous_strides_offsets": (MADE, "tensordict, torchrl", "nested_strides_offsets"),
    "torch._nested_tensor_from_mask": (MADE, "programs", "nested_tensor_from_mask"),
    "torch._nested_view_from_buffer": (MADE, "tensordict, torchrl", "nested_view_from_buffer"),
    "torch._prims_common.is_contiguous_or_false": (REFUSES, "transformers", _SYMBOLIC),
    "torch._prims_common.make_contiguous_strides_for": (MADE, "torchao", "contiguous_strides"),
    "torch._prims_common.suggest_memory_format": (REFUSES, "torchao", _COMPILED),
    "torch._scaled_mm": (MADE, "torchao, xformers", "scaled_mm"),
    "torch._subclasses.functional_tensor.FunctionalTensor": (REFUSES, "tensordict", _FUNCTIONAL),
    "torch._subclasses.functional_tensor.FunctionalTensorMode": (REFUSES, "optimum, executorch", _FUNCTIONAL),
    "torch._utils.is_compiling": (NO, "deepspeed, detectron2", _COMPILED),
    "torch.classes.load_library": (REFUSES, "torchaudio", "compiled classes need PyTorch's C++ core"),
    "torch.cpu._is_amx_tile_supported": (NO, "torchao", _HERE_COMPILED),
    "torch.cpu._is_vnni_supported": (NO, "torchao", _HERE_COMPILED),
    "torch.cuda._lazy_call": (MADE, "deepspeed, fairscale", "when_cuda_is_used"),
    "torch.cuda._memory_viz.profile_plot": (REFUSES, "accelerate, torchtune", _HISTORY),
    "torch.cuda._memory_viz.segment_plot": (REFUSES, "programs", _HISTORY),
    "torch.cuda._memory_viz.trace_plot": (REFUSES, "programs", _HISTORY),
    "torch.cuda.amp.autocast_mode.autocast": (FOUND, "fairseq, MONAI", "tensorgrad.cuda.amp.autocast"),
    "torch.cuda.amp.autocast_mode.custom_bwd": (FOUND, "programs", "tensorgrad.amp.autocast_mode.custom_bwd"),
    "torch.cuda.amp.autocast_mode.custom_fwd": (FOUND, "programs", "tensorgrad.amp.autocast_mode.custom_fwd"),
    "torch.cuda.amp.grad_scaler.GradScaler": (FOUND, "nerfstudio, composer", "tensorgrad.cuda.amp.GradScaler"),
    "torch.cuda.amp.grad_scaler.OptState": (FOUND, "composer, NeMo", "tensorgrad.amp.grad_scaler.OptState"),
    "torch.distributed._all_gather_base": (
        FOUND, "Megatron-LM, fairscale", "tensorgrad.distributed.collectives.gathers.all_gather_into_tensor"),
    "torch.distributed._reduce_scatter_base": (
        FOUND, "Megatron-LM, fairscale", "tensorgrad.distributed.collectives.reductions.reduce_scatter_tensor"),
    "torch.distributed._shard.sharded_tensor.ShardedTensor": (REFUSES, "composer, NeMo", _SHARDED),
    "torch.distributed._symmetric_memory.empty": (REFUSES, "vllm, torchtitan", _SYMMETRIC),
    "torch.distributed._symmetric_memory.enable_symm_mem_for_group": (REFUSES, "vllm, torchtitan", _SYMMETRIC),
    "torch.distributed._symmetric_memory.get_symm_mem_workspace": (REFUSES, "torchao", _SYMMETRIC),
    "torch.distributed._symmetric_memory.rendezvous": (REFUSES, "vllm, torchtitan", _SYMMETRIC),
    "torch.distributed.autograd.context": (REFUSES, "torchopt", _RPC),
    "torch.distributed.autograd.is_available": (NO, "torchopt", _RPC),
    "torch.distributed.checkpoint.utils.CheckpointException": (
        FOUND, "libraries of training", "tensorgrad.distributed.checkpoint.api.CheckpointException"),
    "torch.distributed.distributed_c10d._get_global_rank": (
        FOUND, "deepspeed, fairscale", "tensorgrad.distributed.group.get_global_rank"),
    "torch.distributed.fsdp._common_utils.FSDP_WRAPPED_MODULE": (
        FOUND, "accelerate, composer", "tensorgrad.distributed.fsdp.model_states.WRAPPED"),
    "torch.distributed.fsdp._common_utils.clean_tensor_name": (
        FOUND, "composer", "tensorgrad.distributed.fsdp.model_states.clean"),
    "torch.fx._compatibility.compatibility": (SAME, "nni, torchrec", "it only marks functions"),
    "torch.fx.experimental.proxy_tensor.disable_proxy_modes_tracing": (MADE, "optimum, brevitas", "no_proxy_modes"),
    "torch.fx.experimental.symbolic_shapes.ShapeEnv": (MADE, "deepspeed, nnsight", "PlainSizes"),
    "torch.fx.experimental.symbolic_shapes.guard_size_oblivious": (SAME, "diffusers", _SYMBOLIC),
    "torch.fx.passes.utils.matcher_utils.InternalMatch": (
        FOUND, "torchao, executorch", "tensorgrad.fx.subgraph_rewriter.InternalMatch"),
    "torch.fx.passes.utils.matcher_utils.SubgraphMatcher": (REFUSES, "torchao, executorch", _MATCHER),
    "torch.fx.passes.utils.source_matcher_utils.SourcePartition": (REFUSES, "executorch, nncf", _SOURCES),
    "torch.fx.passes.utils.source_matcher_utils.get_source_partitions": (REFUSES, "executorch, nncf", _SOURCES),
    "torch.jit._recursive.ConcreteTypeStore": (MADE, "nni, torchani", "TypeStore"),
    "torch.jit._recursive.concrete_type_store": (MADE, "nni, torchani", "type_store"),
    "torch.jit._state._clear_class_state": (NOTHING, "nni, torchani", _SCRIPTED),
    "torch.masked.maskedtensor.core.MaskedTensor": (FOUND, "tensordict", "tensorgrad.masked.MaskedTensor"),
    "torch.masked.maskedtensor.core.is_masked_tensor": (FOUND, "tensordict", "tensorgrad.masked.is_masked_tensor"),
    "torch.nn.functional.ScalingType": (REFUSES, "torchao", _COMPILED),
    "torch.nn.functional.SwizzleType": (REFUSES, "torchao", _COMPILED),
    "torch.nn.functional.scaled_grouped_mm": (REFUSES, "torchao", _COMPILED),
    "torch.nn.modules.module._addindent": (MADE, "torchrec, nnsight", "indented"),
    "torch.onnx.symbolic_helper.parse_args": (SAME, "torchvision", _EXPORT_ONNX),
    "torch.onnx.symbolic_opset11.select": (REFUSES, "torchvision", _EXPORT_ONNX),
    "torch.onnx.symbolic_opset11.squeeze": (REFUSES, "torchvision", _EXPORT_ONNX),
    "torch.onnx.symbolic_opset11.unsqueeze": (REFUSES, "torchvision", _EXPORT_ONNX),
    "torch.optim.optimizer._use_grad_for_differentiable": (MADE, "timm, axolotl", "with_gradients_if_differentiable"),
    "torch.package.PackageExporter": (REFUSES, "programs", "use torch.save"),
    "torch.package.PackageImporter": (REFUSES, "programs", "use torch.load"),
    "torch.serialization.default_restore_location": (MADE, "fairseq", "restore_location"),
    "torch.set_vital": (NOTHING, "torchdata", "nothing is counted about how a program runs"),
    "torch.sparse.SparseSemiStructuredTensor": (REFUSES, "torchao", _TWO_OF_FOUR),
    "torch.sparse.SparseSemiStructuredTensorCUSPARSELT": (REFUSES, "torchao", _TWO_OF_FOUR),
    "torch.sparse.SparseSemiStructuredTensorCUTLASS": (REFUSES, "torchao", _TWO_OF_FOUR),
    "torch.sparse._triton_ops_meta.get_meta": (REFUSES, "torchao", _TRITON),
    "torch.sparse._triton_ops_meta.minimize": (REFUSES, "torchao", _TRITON),
    "torch.sparse._triton_ops_meta.update": (REFUSES, "torchao", _TRITON),
    "torch.testing._internal.common_utils.TestCase": (FOUND, "timm's tests", "tensorgrad.testing.case.TestCase"),
    "torch.testing._internal.common_utils.run_tests": (FOUND, "libraries' tests", "tensorgrad.testing.case.run_tests"),
    "torch.testing._internal.optests.generate_opcheck_tests": (NOTHING, "torchvision's tests", _COMPILED),
    "torch.testing._internal.optests.opcheck": (MADE, "torchvision's tests", "opcheck"),
    "torch.utils._sympy.functions.FloorDiv": (MADE, "deepspeed, torchtitan", "FloorDiv"),
    "torch.utils._triton.has_triton": (NO, "accelerate, PyTorch Geometric", _COMPILED),
    "torch.utils.cpp_extension.BuildExtension": (MADE, "setup scripts of libraries", "BuildExtension"),
    "torch.utils.cpp_extension.CUDAExtension": (REFUSES, "setup scripts of libraries", _EXTENSION),
    "torch.utils.cpp_extension.CUDA_HOME": (VALUE, "libraries, which ask whether there is CUDA's compiler", None),
    "torch.utils.cpp_extension.CppExtension": (REFUSES, "setup scripts of libraries", _EXTENSION),
    "torch.utils.cpp_extension.ROCM_HOME": (VALUE, "libraries, which ask whether there is ROCm's compiler", None),
    "torch.utils.cpp_extension._get_build_directory": (MADE, "gsplat, nncf", "build_directory"),
    "torch.utils.cpp_extension.include_paths": (REFUSES, "torchopt, gsplat", _EXTENSION),
    "torch.utils.cpp_extension.load": (REFUSES, "peft, which goes on without", _EXTENSION),
    "torch.utils.cpp_extension.load_inline": (REFUSES, "programs", _EXTENSION),
    "torch.utils.mobile_optimizer.optimize_for_mobile": (REFUSES, "programs", _EXPORT),
    "torch.xpu.is_current_stream_capturing": (NO, "transformers", "there is no XPU"),
}  # fmt: skip

# PyTorch's operators that libraries name when they are imported, such as torchao's tables of what its quantized tensors
# do: they do not exist here, and say so when they are called. Name -> its overloads (`torch.ops`).
OPERATORS: dict[str, str] = {
    "_c10d_functional::_wrap_tensor_autograd": "default",
    "_c10d_functional::all_gather_into_tensor": "default",
    "_c10d_functional::wait_tensor": "default",
    "c10d::scatter_": "default",
    "c10d_functional::all_gather_into_tensor": "default",
    "c10d_functional::wait_tensor": "default",
}
