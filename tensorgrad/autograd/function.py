"""Custom functions: differentiable functions whose derivative is written by the user."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from tensorgrad.autograd import modes
from tensorgrad.autograd.anomaly import ANOMALY
from tensorgrad.autograd.function_results import check_devices, keep_saved, link_results
from tensorgrad.autograd.graph import FREED, Node, next_sequence_nr
from tensorgrad.autograd.modes import GRAD
from tensorgrad.autograd.saved_tensors import raise_freed, unpack
from tensorgrad.autograd.views import edge_of
from tensorgrad.errors import warn
from tensorgrad.rows.switches import LOCAL
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.system.names_elsewhere import elsewhere
from tensorgrad.tensor import Tensor, wrap


class FunctionCtx(Node):
    """The context shared by `forward` and `backward` of a custom function, and the function's node in the graph.

    Arbitrary attributes may be set. `needs_input_grad[i]` says whether argument i needs a gradient.
    """

    __slots__ = ()

    runs_always = True

    function: type[Function]
    left_none: Collection[int]  # the outputs for which missing gradients stay None
    needs_input_grad: tuple[bool, ...]
    saved_edges: tuple

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Saves inputs or outputs (only these are checked for modification) for `saved_tensors` in `backward`."""
        self.to_save = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Saves inputs or outputs for `saved_tensors` in `jvp`.

        Raises:
            AssertionError: If one of them is neither a tensor nor None.
        """
        if not all(tensor is None or isinstance(tensor, Tensor) for tensor in tensors):
            raise AssertionError(
                "save_for_forward expects all arguments to be tensors; you should save non-tensors as attributes on "
                "ctx."
            )
        self.for_forward = tensors

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Marks inputs that `forward` modified in place; they must be among its results."""
        self.dirty_tensors = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Marks results that have no gradient."""
        self.non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Sets whether `backward` receives zeros (default) or None for results without a gradient."""
        self.materialize_grads = value

    @property
    def saved_tensors(self) -> tuple:
        """The tensors saved by `save_for_backward`.

        Raises:
            RuntimeError: If they were freed or modified in place.
        """
        if "for_forward" in self.__dict__:
            return self.for_forward
        if self.saved is FREED:
            raise_freed()
        # the edge of its own output is stored as a number: the pair would be a reference cycle
        edges = ((self, e) if isinstance(e, int) else e for e in self.saved_edges)
        with modes.enable_grad():  # always attached to the graph: `backward` may differentiate on its own
            return tuple(unpack(self, s, e) for s, e in zip(self.saved, edges, strict=True))

    saved_variables = saved_tensors

    def name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        return f"<torch.autograd.function.{self.name()} object at {id(self):#x}>"

    def apply(self, grads):
        """Runs the user's `backward`."""
        if self.saved is FREED:
            raise_freed()
        given = list(grads[: len(self.outputs)])
        if self.materialize_grads:
            for i, (shape, dtype, array_type) in enumerate(self.outputs):
                if given[i] is None and shape is not None and i not in self.left_none:
                    given[i] = _zeros(shape, dtype, array_type, given)
        if self.function.backward is not Function.backward and self.function.vjp not in (
            Function.vjp, self.function.backward,
        ):  # fmt: skip
            raise RuntimeError(
                "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only "
                "implement one of them."
            )
        results = self.function.backward(self, *given)
        results = list(results) if isinstance(results, tuple) else [results]
        while len(results) > len(self.edges) and results[-1] is None:
            results.pop()
        if len(results) != len(self.edges):
            raise RuntimeError(
                f"function {self.name()} returned an incorrect number of gradients (expected {len(self.edges)}, got "
                f"{len(results)})"
            )
        for i, (result, is_tensor) in enumerate(zip(results, self.tensor_arguments, strict=True)):
            if result is not None and not is_tensor:
                raise RuntimeError(
                    f"function {self.name()} returned a gradient different than None at position {i + 1}, but the "
                    "corresponding forward input was not a Variable"
                )
            if result is not None and not isinstance(result, Tensor):
                raise RuntimeError(
                    f"expected Variable or None (got {type(result).__name__}) as gradient {i} of {self.name()}"
                )
        check_devices(self, results)
        return results


def _zeros(shape, dtype, array_type, beside) -> Tensor:
    """Zeros in place of a missing gradient, on the device of one of the other gradients in `beside`."""
    storage = STORAGES[array_type]
    device = next((g.device for g in beside if g is not None), storage.current_device())
    made = storage.empty(shape, dtype, device)
    storage.write(made, 0)
    return wrap(made)


class Function:
    """Base class of custom differentiable functions: define static `forward` and `backward`, and call `apply`.

    `forward(ctx, *args)` computes the results; or define `forward(*args)` and `setup_context(ctx, inputs, output)`.
    `backward(ctx, *grads)` returns one gradient, or None, for each argument of `forward`.

    >>> class Cube(torch.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x * x * x
    ...     @staticmethod
    ...     def backward(ctx, g):
    ...         (x,) = ctx.saved_tensors
    ...         return g * 3 * x * x
    >>> x = torch.tensor(2.0, requires_grad=True)
    >>> Cube.apply(x).backward()
    >>> x.grad
    tensor(12.)
    """

    generate_vmap_rule = False  # whether `vmap` runs the function on batched tensors
    _backward_cls: type[FunctionCtx] = FunctionCtx  # class of the nodes that `apply` creates

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warn(
            f"{type(self)} should not be instantiated. Methods on autograd functions are all static, so you should "
            "invoke them on the class itself. Instantiating an autograd function will raise an error in a future "
            "version of PyTorch.",
            DeprecationWarning,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd "
            "function with static forward method. (Example: "
            "https://pytorch.org/docs/stable/autograd.html#torch.autograd.Function)"
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Computes the results from the arguments. To be overridden."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Stores on `ctx` what `backward` needs, when `forward` takes no `ctx`. To be overridden."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """Computes the gradients of the arguments. To be overridden."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with "
            "backward mode AD."
        )

    @staticmethod
    def vjp(ctx: Any, *grad_outputs: Any) -> Any:
        """An alternative name for `backward`."""
        raise NotImplementedError

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """Computes the tangents of the results from those of the arguments, for forward mode. To be overridden."""
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
        """Computes the results for a batch, for `torch.func.vmap`; returns them and their batch dimensions.

        `info` has the `batch_size` and the `randomness`; `in_dims` says where each argument has its batch, if it has
        one. To be overridden; or set `generate_vmap_rule = True`, and `forward` and `backward` run on batched tensors.
        """
        raise NotImplementedError(
            "To use autograd.Function with vmap, you must either override the vmap staticmethod or set "
            "generate_vmap_rule=True."
        )

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._backward_cls = type(f"{cls.__name__}Backward", (FunctionCtx,), {"__slots__": (), "__module__": __name__})
        if "vjp" in cls.__dict__ and "backward" not in cls.__dict__:
            cls.backward = cls.vjp

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Runs `forward` and records it in the graph; in forward mode also runs `jvp`."""
        results, ctx = cls._applied(args, kwargs)
        ctx.__dict__.pop("for_forward", None)
        return results

    @classmethod
    def _applied(cls, args: tuple, kwargs: dict) -> tuple:
        """The results, and the context that they were computed with."""
        if LOCAL.transforms:
            return LOCAL.transforms[-1].call_function(cls, *cls._bound(args, kwargs))
        return cls._recorded(args, kwargs)

    @classmethod
    def _recorded(cls, args: tuple, kwargs: dict) -> tuple:
        ctx = cls._backward_cls()
        ctx.function, ctx.op, ctx.hooks, ctx.args = cls, cls, None, ()
        ctx.to_save = ctx.dirty_tensors = ctx.non_differentiable = ()
        ctx.materialize_grads, ctx.left_none = True, ()
        separate = cls.setup_context is not Function.setup_context
        args, kwargs = cls._bound(args, kwargs)
        recording = GRAD.enabled
        edges = tuple(edge_of(a) if recording and isinstance(a, Tensor) else None for a in args)
        ctx.edges = edges
        ctx.tensor_arguments = tuple(isinstance(a, Tensor) for a in args)
        ctx.needs_input_grad = tuple(e is not None for e in edges)
        tracked = any(ctx.needs_input_grad)
        with modes.no_grad():
            if separate:
                results = cls.forward(*args, **kwargs)
                cls.setup_context(ctx, args, results)
            else:
                results = cls.forward(ctx, *args, **kwargs)
        several = isinstance(results, tuple)
        outputs = list(results) if several else [results]
        if tracked:
            if ANOMALY.enabled:
                from tensorgrad.autograd import tracebacks

                tracebacks.remember(ctx)
            ctx.sequence_nr = next_sequence_nr()
            ctx.outputs = tuple(
                (t._array.shape, t._array.dtype, t._array.__class__) if isinstance(t, Tensor) else (None, None, None)
                for t in outputs
            )
        else:
            ctx.outputs, ctx.sequence_nr = (), 0
        outputs = link_results(ctx, args, outputs, tracked)
        keep_saved(ctx, args, outputs, tracked)
        return (tuple(outputs) if several else outputs[0]), ctx

    @classmethod
    def _bound(cls, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """The arguments; if there is a `setup_context`, which receives all of them, with those left out."""
        if cls.setup_context is Function.setup_context:
            return args, kwargs
        bound = inspect.signature(cls.forward).bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.args, bound.kwargs


if TYPE_CHECKING:
    from tensorgrad.autograd.legacy_functions import InplaceFunction as InplaceFunction
    from tensorgrad.autograd.legacy_functions import once_differentiable as once_differentiable

# PyTorch defines them in this module; here they build on it.
elsewhere(__name__, dict.fromkeys(("InplaceFunction", "once_differentiable"), "tensorgrad.autograd.legacy_functions"))
