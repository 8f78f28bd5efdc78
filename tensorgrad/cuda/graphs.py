"""`torch.cuda`'s graphs: the GPU work of a step is recorded once and then launched as a whole.

A launch of a graph takes the host a few microseconds, however many kernels it contains, so small models are no longer
limited by Python's speed. What must hold meanwhile is in `storage/cuda/capture.py`.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from tensorgrad.cuda.devices import current_device, module
from tensorgrad.cuda.memory import empty_cache
from tensorgrad.cuda.streams import Stream, StreamContext, synchronize
from tensorgrad.errors import AcceleratorError
from tensorgrad.random import philox
from tensorgrad.storage.cuda import State, capture
from tensorgrad.storage.cuda import memory as device_memory
from tensorgrad.storage.stubs import BY_DEVICE
from tensorgrad.system import forks

__all__ = ["CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables"]

_numbers = itertools.count(1)  # of pools
_lock = forks.lock()
VERBOSE = 1  # cudaGraphDebugDotFlagsVerbose


def is_current_stream_capturing() -> bool:
    """Returns whether the current stream is being captured; False without a GPU.

    >>> torch.cuda.is_current_stream_capturing()
    False
    """
    if "cuda" not in BY_DEVICE:
        return False
    cuda = module().cuda
    return bool(cuda.runtime.streamIsCapturing(cuda.get_current_stream().ptr))


def graph_pool_handle() -> tuple[int, int]:
    """Returns a token for a new pool of memory, which several graphs can share: see the argument `pool` of `graph`.

    >>> torch.cuda.graph_pool_handle() != torch.cuda.graph_pool_handle()
    True
    """
    return 0, next(_numbers)


class CUDAGraph:
    """Recorded work of a GPU, which can be replayed. Usually it is recorded with `torch.cuda.graph`.

    A replay reads and writes the same memory as the recorded work: new inputs are copied into the tensors that were
    the inputs, and results are read from the tensors that were the results. The memory that the recorded work
    allocated belongs to the graph until `reset`, or until the graph is deleted.

    Args:
        keep_graph: Whether the recorded graph (`raw_cuda_graph`) is kept after it was made executable; it then becomes
            executable by `instantiate`, or at the first replay.

    Raises:
        RuntimeError: If there is no GPU.

    >>> if torch.cuda.is_available():
    ...     x = torch.ones(3, device="cuda")
    ...     g = torch.cuda.CUDAGraph()
    ...     with torch.cuda.graph(g):
    ...         y = x * 2
    ...     _ = x.fill_(5)
    ...     g.replay()
    ...     assert y.tolist() == [10, 10, 10]
    """

    def __init__(self, keep_graph: bool = False):
        module()
        self._keep_graph, self._debug = keep_graph, False
        self._generators: list[Any] = []
        self._clear()

    def _clear(self) -> None:
        self._graph = self._executable = 0
        self._pool: capture.Pool | None = None
        self._kept: list[Any] = []
        self._draws: dict[Any, philox.Draws] = {}
        self._running: capture.Capture | None = None
        self._device = -1
        self._last: Any = None  # the stream of the last replay

    # --- capturing ---

    def register_generator_state(self, generator) -> None:
        """Registers a generator, other than the GPU's default one, that the work to be recorded draws from."""
        self._generators.append(generator)

    def capture_begin(
        self, pool=None, capture_error_mode: str = "global", check_input_liveness: bool = False
    ) -> None:  # fmt: skip
        """Begins to record the work of the current stream, instead of running it.

        Args:
            pool: The pool to allocate memory from, a token of `graph_pool_handle` or `pool()`. By default a new one.
            capture_error_mode: Whether calls that are unsafe during a capture fail in all threads ("global"), in those
                that capture ("thread_local") or never ("relaxed"). (The library's own calls are safe.)
            check_input_liveness: Not supported.

        Raises:
            RuntimeError: If the stream is the default one, the graph was recorded already, or the mode is unknown.
            NotImplementedError: For `check_input_liveness`.
        """
        if check_input_liveness:
            raise NotImplementedError("torch.cuda.CUDAGraph: check_input_liveness is not supported")
        if self._graph or self._executable or self._running is not None:
            raise RuntimeError(
                "This CUDAGraph instance already owns a captured graph. To capture a new graph, create a new instance."
            )
        if capture_error_mode not in capture.MODES:
            raise RuntimeError(
                f"Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got {capture_error_mode}"
            )
        cuda = module().cuda
        stream = cuda.get_current_stream()
        if stream.ptr in (0, 1):
            raise RuntimeError(
                "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to replay them "
                "on the default stream.)"
            )
        self._device = current_device()
        generators = dict.fromkeys([philox.default(self._device), *self._generators])
        places = module().empty((len(generators), 2), "uint64")
        draws = {g: philox.Draws(places.data.ptr + 16 * i) for i, g in enumerate(generators)}
        with _lock:
            self._pool = _pool(pool)
            device_memory.share_limits(module())
            running = capture.Capture(cuda, stream, self._pool, draws)
            running.kept.append(places)
            running.undo = contextlib.ExitStack()
            try:
                _prepare(running)
                cuda.runtime.streamBeginCapture(stream.ptr, capture.MODES[capture_error_mode])
            except BaseException:
                running.undo.close()
                self._pool.leave()
                self._clear()
                raise
            self._running = running
            capture.RUNNING.append(running)

    def capture_end(self) -> None:
        """Ends the recording. Afterwards the graph can be replayed.

        Raises:
            RuntimeError: If nothing is being recorded, another stream is the current one, or something that cannot be
                recorded was done meanwhile.
        """
        running = self._running
        if running is None:
            raise RuntimeError("Called CUDAGraph::capture_end without a preceding capture_begin.")
        cuda = running.cuda
        if cuda.get_current_stream().ptr != running.stream.ptr:
            raise RuntimeError("Capture must end on the same stream it began on.")
        try:
            self._graph = cuda.runtime.streamEndCapture(running.stream.ptr)
        except cuda.runtime.CUDARuntimeError as error:
            self._abandon()
            raise AcceleratorError(
                f"CUDA error: operation failed due to a previous error during capture ({error})"
            ) from error
        finally:
            self._stop()
        if not self._graph:
            self._abandon()
            raise RuntimeError("Invalid capture.")
        self._kept, self._draws = running.kept, running.draws
        if _is_empty(self._graph):
            warnings.warn(
                "The CUDA Graph is empty. This usually means that the graph was attempted to be captured on wrong "
                "device or stream.",
                stacklevel=2,
            )
        if not self._keep_graph:
            self.instantiate()
            if not self._debug:
                self._destroy_graph()

    def _stop(self) -> None:
        """Restores what was changed for the capture."""
        running, self._running = self._running, None
        if running is not None:
            with _lock:
                capture.RUNNING.remove(running)
                running.undo.close()
                device_memory.share_limits(module())

    def _give_up(self) -> None:
        """Ends a capture whose `with` block failed."""
        running = self._running
        if running is not None:
            with contextlib.suppress(running.cuda.runtime.CUDARuntimeError):
                self._graph = running.cuda.runtime.streamEndCapture(running.stream.ptr)
            self._stop()
            self._abandon()

    def _abandon(self) -> None:
        self._stop()
        self.reset()

    def _destroy_graph(self) -> None:
        if self._graph:
            module().cuda.runtime.graphDestroy(self._graph)
        self._graph = 0

    # --- replaying ---

    def instantiate(self) -> None:
        """Makes the recorded graph executable: needed only with `keep_graph`.

        Raises:
            RuntimeError: If nothing was recorded.
        """
        if not self._graph:
            raise RuntimeError("Called CUDAGraph::instantiate without a preceding successful capture.")
        runtime = module().cuda.runtime
        before, self._executable = self._executable, 0
        if before:
            runtime.graphExecDestroy(before)
        with module().cuda.Device(self._device):
            self._executable = runtime.graphInstantiate(self._graph)

    def replay(self) -> None:
        """Queues the recorded work in the current stream.

        Raises:
            RuntimeError: If nothing was recorded.
        """
        if not self._executable:
            if not self._graph:
                raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
            self.instantiate()
        if State.arrived is not None:
            State.arrived()  # raises what an earlier replay found: indices out of bounds
        cuda = module().cuda
        if cuda.get_device_id() != self._device:
            with cuda.Device(self._device):
                return self._launch(cuda)
        return self._launch(cuda)

    def _launch(self, cuda) -> None:
        stream = cuda.get_current_stream()
        for generator, draws in self._draws.items():
            if draws.count:
                capture.refuse("replaying a graph that draws random numbers")
                from tensorgrad.kernels.cuda import random

                random.begin(draws.address, *generator.take(draws.count))
        cuda.runtime.graphLaunch(self._executable, stream.ptr)
        self._last = stream

    def reset(self) -> None:
        """Deletes the recorded work, and releases its memory, except where tensors are left in it."""
        if self._running is not None:
            self._give_up()
        runtime = module().cuda.runtime
        if self._executable:
            runtime.graphExecDestroy(self._executable)
        self._destroy_graph()
        if self._last is not None:
            device_memory.keep_until_done(self._kept, self._last)
        pool = self._pool
        self._clear()
        if pool is not None:
            with _lock:
                pool.leave()
                device_memory.share_limits(module())

    def __del__(self, ending=sys.is_finalizing):
        if not ending() and hasattr(self, "_pool") and not State.forked:
            self.reset()

    # --- what it is ---

    def pool(self) -> tuple[int, int]:
        """Returns the token of the pool that the graph's memory is from, which another graph can share.

        Raises:
            RuntimeError: If nothing was recorded.
        """
        if self._pool is None:
            raise RuntimeError("Called CUDAGraph::pool() without a preceding successful capture.")
        return self._pool.id

    def enable_debug_mode(self) -> None:
        """Keeps the recorded graph for `debug_dump`; to be called before the capture."""
        self._debug = True

    def debug_dump(self, debug_path: str) -> None:
        """Writes the recorded graph to a file, as a graph of Graphviz; needs `enable_debug_mode` or `keep_graph`."""
        if not (self._debug or self._keep_graph):
            warnings.warn("CUDA Graphs debug not enabled, set with [graph].enable_debug_mode()", stacklevel=2)
        elif self._graph:
            module().cuda.runtime.graphDebugDotPrint(self._graph, str(debug_path), VERBOSE)
            if not self._keep_graph:
                self._destroy_graph()
        else:
            warnings.warn("CUDA Graph has no captured graph to dump", stacklevel=2)

    def raw_cuda_graph(self) -> int:
        """Returns the CUDA runtime's handle of the recorded graph.

        Raises:
            RuntimeError: Without `keep_graph`, or if nothing was recorded.
        """
        if not self._keep_graph:
            raise RuntimeError(
                "You cannot access the raw cudaGraph_t instance unless CUDAGraph was initialized with keep_graph=true"
            )
        if not self._graph:
            raise RuntimeError("You cannot access the raw cudaGraph_t instance until capture_end() has been called")
        return self._graph

    def raw_cuda_graph_exec(self) -> int:
        """Returns the CUDA runtime's handle of the executable graph.

        Raises:
            RuntimeError: If it was not made yet.
        """
        if not self._executable:
            raise RuntimeError("You cannot access the raw cudaGraphExec_t instance until instantiate() has been called")
        return self._executable


# --- what a capture changes ------------------------------------------------------------------------------------------


def _pool(id) -> capture.Pool:
    """Returns the pool of a token, or a new one, with one more graph in it."""
    id = (next(_numbers), 0) if id is None else tuple(id)
    found = capture.POOLS.get(id)
    if found is None:
        found = capture.POOLS[id] = capture.Pool(id)
    found.graphs += 1
    return found


def _prepare(running: capture.Capture) -> None:
    """Changes what must be different during a capture; `running.undo` changes it back."""
    from tensorgrad.kernels.cuda.runtime import bounds, cublas, libraries, xp

    bounds.note()
    undo = running.undo
    if libraries.present("cublas"):
        handle = cublas.handle()
        undo.callback(handle.use_workspaces, None)
        handle.use_workspaces(running.pool.workspaces)
    if not capture.RUNNING:
        cupy = module()
        allocate, before = device_memory.allocator_of_captures(cupy)
        cupy.cuda.set_allocator(allocate)
        xp.while_captured(True)

        def restore() -> None:  # once no other capture is running
            if not capture.RUNNING:
                cupy.cuda.set_allocator(before)
                xp.while_captured(False)
                _restore.clear()

        _restore[:] = [restore]
    undo.callback(lambda: [restore() for restore in _restore[:]])
    driver = libraries.load("cuda")
    running.relax = partial(capture.exchange_mode, driver, capture.MODES["relaxed"])
    undo.callback(capture.exchange_mode, driver, running.relax())


_restore: list[Callable[[], None]] = []


def _is_empty(graph: int) -> bool:
    from tensorgrad.kernels.cuda.runtime import libraries

    count = ctypes.c_size_t(1)
    libraries.load("cuda").cuGraphGetNodes(ctypes.c_void_p(graph), None, ctypes.byref(count))
    return not count.value


class graph:
    """Records the GPU work of a `with` block in a `CUDAGraph`. (Inside the block, nothing is run.)

    Args:
        cuda_graph: The graph.
        pool: The pool of memory that the block allocates from, a token of `graph_pool_handle` or of another graph's
            `pool()`. Graphs that share a pool must be replayed in the order in which they were recorded, never at the
            same time. By default the graph has a pool of its own.
        stream: The stream that is recorded; by default one that all graphs share.
        capture_error_mode: See `CUDAGraph.capture_begin`.
        enable_annotations, check_input_liveness: Not supported.

    Raises:
        RuntimeError: If there is no GPU. In the block: for everything that needs a value on the host, since there are
            none yet, or that copies from the host (except from pinned memory, with `non_blocking=True`).
        NotImplementedError: For the arguments that are not supported.

    >>> if torch.cuda.is_available():
    ...     g = torch.cuda.CUDAGraph()
    ...     with torch.cuda.graph(g):
    ...         noise = torch.randn(3, device="cuda")
    ...     g.replay()
    ...     before = noise.clone()
    ...     g.replay()
    ...     assert (noise != before).any().item()
    """

    default_capture_stream: ClassVar[Stream | None] = None

    def __init__(
        self,
        cuda_graph: CUDAGraph,
        pool=None,
        stream: Stream | None = None,
        capture_error_mode: str = "global",
        enable_annotations: bool = False,
        check_input_liveness: bool = False,
    ):
        if enable_annotations:
            raise NotImplementedError("torch.cuda.graph: enable_annotations is not supported")
        shared = graph.default_capture_stream
        if stream is None and (shared is None or shared.device_index != current_device()):
            shared = graph.default_capture_stream = Stream()
        self.capture_stream = shared if stream is None else stream
        self.pool: tuple[Any, ...] = () if pool is None else (pool,)
        self.stream_ctx = StreamContext(self.capture_stream)
        self.cuda_graph = cuda_graph
        self.capture_error_mode = capture_error_mode
        self.check_input_liveness = check_input_liveness

    def __enter__(self) -> None:
        synchronize()
        empty_cache()
        self.stream_ctx.__enter__()
        try:
            self.cuda_graph.capture_begin(
                self.pool[0] if self.pool else None, self.capture_error_mode, self.check_input_liveness
            )
        except BaseException:
            self.stream_ctx.__exit__()
            raise

    def __exit__(self, kind=None, *exception) -> None:
        try:
            if kind is None:
                self.cuda_graph.capture_end()
        finally:
            self.cuda_graph._give_up()  # if the block failed, or the recording could not be ended
            self.stream_ctx.__exit__()


# --- graphs as functions ---------------------------------------------------------------------------------------------


def make_graphed_callables(
    callables, sample_args, num_warmup_iters: int = 3, allow_unused_input: bool = False, pool=None
):  # fmt: skip
    """Records the forward and backward passes of modules or functions of tensors, and returns what replays them.

    The results can be used in place of the callables, with tensors like the samples. A module is changed in place: its
    `forward` replays the graph while its mode (training or evaluation) is that of the recording. Each call copies its
    arguments to the samples; results are overwritten by the next call. Gradients cannot be differentiated again.

    Args:
        callables: A module or function, or a tuple of them, in the order in which they are going to be called.
        sample_args: Its arguments, a tuple of tensors, with `requires_grad` as later; or a tuple of such tuples.
        num_warmup_iters: How often everything runs before it is recorded.
        allow_unused_input: Whether there may be arguments and parameters that the results do not depend on.
        pool: The pool that the graphs allocate memory from: see `graph`.

    Raises:
        RuntimeError: In an `autocast` block that caches casts; and as `graph` does.
        AssertionError: If a module has hooks, or a buffer that requires grad, or an argument is not a tensor.

    >>> if torch.cuda.is_available():
    ...     model = torch.nn.Linear(3, 2, device="cuda")
    ...     model = torch.cuda.make_graphed_callables(model, (torch.randn(5, 3, device="cuda"),))
    ...     model(torch.randn(5, 3, device="cuda")).sum().backward()
    """
    import tensorgrad as torch

    if torch.is_autocast_enabled() and torch.is_autocast_cache_enabled():
        raise RuntimeError(
            "make_graphed_callables does not support the autocast caching. Please set `cache_enabled=False`."
        )
    several = isinstance(callables, tuple)
    if not several:
        callables, sample_args = (callables,), (sample_args,)
    parts = [_Part(function, args) for function, args in zip(callables, sample_args, strict=True)]
    pool = graph_pool_handle() if pool is None else pool
    synchronize()
    with StreamContext(Stream()):
        for part in parts:
            for _ in range(num_warmup_iters):
                part.gradients(part.outputs(), allow_unused_input)
    synchronize()
    # In the order in which they will be replayed: each may overwrite what the ones before it have freed.
    for part in parts:
        part.record_forward(pool)
    for part in reversed(parts):
        part.record_backward(pool, allow_unused_input)
    made = tuple([part.replaying() for part in parts])
    return made if several else made[0]


class _Part:
    """One callable of `make_graphed_callables`, with its samples."""

    def __init__(self, function, args):
        from tensorgrad.nn.module import Module
        from tensorgrad.tensor import Tensor
        from tensorgrad.utils import _pytree as pytree

        self.function, self.args, self.pytree = function, args, pytree
        parameters: tuple = ()
        if isinstance(function, Module):
            if function._backward_hooks or function._forward_hooks or function._forward_pre_hooks:
                raise AssertionError(
                    "Modules must not have hooks registered at the time they are passed. However, registering hooks on "
                    "modules after passing them through make_graphed_callables is allowed."
                )
            if any(buffer.requires_grad for buffer in function.buffers()):
                raise AssertionError(
                    "In any :class:`~torch.nn.Module` passed to :func:`~make_graphed_callables`, only parameters may "
                    "be trainable. All buffers must have ``requires_grad=False``."
                )
            parameters = tuple(function.parameters())
        flat = tuple(pytree.arg_tree_leaves(*args))
        if not all(isinstance(arg, Tensor) for arg in flat):
            raise AssertionError(
                "In the beta API, sample_args for each callable must contain only Tensors. Other types are not allowed."
            )
        self.count, self.parameters, self.inputs = len(flat), parameters, (*flat, *parameters)
        self.module = isinstance(function, Module)

    def outputs(self) -> list:
        return self.pytree.tree_leaves(self.function(*self.args))

    def gradients(self, outputs, allow_unused: bool, given=None) -> list:
        """Returns the inputs' gradients (None where there is none), from those of the outputs, or any."""
        import tensorgrad as torch

        wanted = [x for x in self.inputs if x.requires_grad]
        moving = [y for y in outputs if y.requires_grad]
        if not (wanted and moving):
            return [None] * len(self.inputs)
        if given is None:
            given = [torch.empty_like(y) if y.requires_grad else None for y in outputs]
        found = iter(
            torch.autograd.grad(
                moving, wanted, [g for g in given if g is not None], only_inputs=True, allow_unused=allow_unused
            )
        )
        return [next(found) if x.requires_grad else None for x in self.inputs]

    def record_forward(self, pool) -> None:
        self.forward_graph = CUDAGraph()
        with graph(self.forward_graph, pool=pool):
            made = self.function(*self.args)
        self.made, self.spec = self.pytree.tree_flatten(made)

    def record_backward(self, pool, allow_unused: bool) -> None:
        import tensorgrad as torch

        self.backward_graph = None
        self.given = [torch.empty_like(y) if y.requires_grad else None for y in self.made]
        if any(x.requires_grad for x in self.inputs) and any(g is not None for g in self.given):
            self.backward_graph = CUDAGraph()
            with graph(self.backward_graph, pool=pool):
                self.grads = self.gradients(self.made, allow_unused, self.given)
        else:
            self.grads = [None] * len(self.inputs)
        self.made = [y.detach() for y in self.made]

    def replaying(self):
        """Returns the function, or the module, that replays the graphs."""
        run, pytree = _replaying(self), self.pytree

        def graphed(*args):
            flat = pytree.arg_tree_leaves(*args)
            return pytree.tree_unflatten(run(*flat, *self.parameters), self.spec)

        if not self.module:
            return graphed
        module, training, plain = self.function, self.function.training, self.function.forward

        def forward(*args, **kwargs):
            return graphed(*args, **kwargs) if module.training == training else plain(*args, **kwargs)

        module.forward = forward
        return module


def _replaying(part: _Part) -> Callable:
    """Returns the graphs of a part as a differentiable function of its flat arguments and parameters."""
    from tensorgrad.autograd.function import Function
    from tensorgrad.autograd.legacy_functions import once_differentiable

    class Graphed(Function):
        @staticmethod
        def forward(ctx, *inputs):
            for static, x in zip(part.inputs[: part.count], inputs):
                _renew(static, x)
            part.forward_graph.replay()
            return tuple([y.detach() for y in part.made])

        @staticmethod
        @once_differentiable
        def backward(ctx, *grads):
            for static, g in zip(part.given, grads, strict=True):
                if static is not None:
                    _renew(static, g)
            if part.backward_graph is not None:
                part.backward_graph.replay()
            return tuple([None if g is None else g.detach() for g in part.grads])

    return Graphed.apply


def _renew(static, values) -> None:
    """Copies new values to a tensor that a graph reads, unless they are there."""
    import tensorgrad as torch

    if static.data_ptr() != values.data_ptr():
        with torch.no_grad():
            static.copy_(values)
