"""The step of all optimizers whose update is element-wise.

Such an update is a plain function of arrays, written once (in its optimizer's file) with the array module's in-place
operations. This file decides how to run it: directly for small parameters; block by block for large ones, so that its
many passes stay in the cache; on float32 copies for 16-bit parameters; and on tensors, by `recorded.py`, if autograd
is to differentiate through the step (`differentiable=True`).

This is one of the few files outside the ops that access a tensor's array: an update is not recorded, and writing it
with tensor ops would cost ten times as much for a small model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

import tensorgrad as torch
from tensorgrad.dispatch.kernel_errors import check_one_device
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.optim import flags, optimizer
from tensorgrad.optim.optimizer import Optimizer, run_hooked
from tensorgrad.optim.settings import Settings
from tensorgrad.optim.state import begin, count
from tensorgrad.rows.kernel_tables import COMPILED, device_kernel
from tensorgrad.rows.switches import DISPATCH, LOCAL, SLOW
from tensorgrad.settings import SETTINGS
from tensorgrad.storage.cuda.capture import RUNNING
from tensorgrad.storage.sparse import SparseArray
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.storage.wrapper_subclass import NoMemory
from tensorgrad.system import numpy_faults
from tensorgrad.tensor import Tensor

# Elements per block. Measured on 4 M float32 elements, one thread, Adam: 16 K take 5.5 ms, 64 to 256 K 4.9-5.2 ms, all
# at once 6.5 ms (PyTorch 5.9 ms); and a layer of 784 × 128 is fastest (14 µs for SGD, PyTorch 18) as one block.
BLOCK = 131_072


class Elementwise(Optimizer):
    """An optimizer that moves every element by the same formula. A subclass defines three methods:

    - `_initial_state(group)` returns the state of a parameter under a group's settings, in PyTorch's order, as
      `{name: a function of the parameter that creates the entry}`.
    - `_coefficients(group, t)` returns the coefficients of step `t`, a named tuple; it has no argument `t` if
      they only depend on the settings. If the state has no `"step"`, `t` is whether this is the first step.
    - `_update(xp, x, g, ..., n, ...)` is the formula, which changes a parameter's array `x` in place. `xp` is the
      array module, `g` the gradient's array and `n` the coefficients. Between `g` and `n` are the arrays of the
      state by name, `None` for those that the settings do not need; after `n`, the temporary arrays that it needs.

    >>> from typing import NamedTuple
    >>> from tensorgrad.optim.elementwise import Elementwise
    >>> class Coefficients(NamedTuple):
    ...     lr: float
    ...     beta: float
    >>> class Signs(Elementwise):  # p -= lr · sign(m) with m = beta · m + g
    ...     def _initial_state(self, group):
    ...         return {"m": torch.zeros_like}
    ...
    ...     @staticmethod
    ...     def _coefficients(group):
    ...         return Coefficients(group["lr"], group["beta"])
    ...
    ...     @staticmethod
    ...     def _update(xp, x, g, m, n, s):
    ...         xp.add(xp.multiply(m, n.beta, m), g, m)
    ...         xp.subtract(x, xp.multiply(xp.sign(m, s), n.lr, s), x)
    >>> w = torch.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = Signs([w], {"lr": 0.5, "beta": 0.9})
    >>> (w**2).sum().backward()
    >>> optimizer.step()
    >>> w, optimizer.state[w]["m"]
    (tensor([ 0.5000, -1.5000], requires_grad=True), tensor([ 2., -4.]))
    """

    _initial_state: Callable[[dict[str, Any]], dict[str, Callable[[Tensor], Tensor]]]
    _coefficients: ClassVar[Callable[..., NamedTuple]]
    _update: ClassVar[Callable[..., None]]

    _count: ClassVar[Callable[..., Any]] = staticmethod(count)  # _count(state, group) counts a step and returns t
    # _counted_on_device(t, state, group) does the same for arrays, on the device that holds them (capturable.py), where
    # `t` was counted already; None if it, or `_coefficients`, cannot.
    _counted_on_device: ClassVar[Callable[..., Any] | None] = staticmethod(lambda t, state, group: t)
    _kernel_name = ""  # of a kernel that does the same for lists (kernels/compiled/table.py, kernels/cuda/table.py)
    _skips = False  # whether that kernel can leave it to the GPU whether to skip a step
    _refuses_sparse = ""  # the error for sparse gradients, if it says more than that they are not supported
    _complex_as_pairs = True  # whether real and imaginary parts of complex parameters are moved separately
    _flags: ClassVar[flags.Flags] = flags.Flags({}, state_scalars=())

    _state_arrays: ClassVar[tuple[str, ...]]  # the names in the update's signature
    _temporaries: ClassVar[int]  # how many are in the update's signature
    _needs_t: ClassVar[bool]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        code = cls._update.__code__
        parameters = code.co_varnames[: code.co_argcount]
        at = parameters.index("n")
        cls._state_arrays, cls._temporaries = parameters[3:at], len(parameters) - at - 1
        cls._needs_t = cls._coefficients.__code__.co_argcount == 2

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        self._forget()
        super().__init__(params, defaults)
        flags.check_new(defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._forget()
        flags.complete(self)

    def _forget(self) -> None:
        self._settings: dict[int, Settings] = {}  # by group number
        self._scratch: dict[tuple, tuple] = {}  # layout -> temporaries, shared by parameters of the same layout

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Moves the parameters that have a gradient by one step.

        Args:
            closure: computes the loss and its gradients, and returns the loss.

        Returns:
            The result of `closure`, or `None`.
        """
        if (
            self._optimizer_step_pre_hooks or self._optimizer_step_post_hooks
            or optimizer._global_pre_hooks or optimizer._global_post_hooks
        ):  # fmt: skip
            return run_hooked(Elementwise._step, (self,) if closure is None else (self, closure), {})
        return self._step(closure)

    step.runs_hooks = True  # type: ignore[attr-defined]

    def _step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._opt_called = True
        if RUNNING:
            from tensorgrad.optim import capturable

            capturable.check_capture(self)
        if SLOW and LOCAL.transforms:
            parameters = [p for group in self.param_groups for p in group["params"]]
            LOCAL.transforms[-1].optimizer_step(self, self._step_groups, parameters)
            return loss
        for i, group in enumerate(self.param_groups):
            self._step_group(i, group)
        return loss

    def _step_groups(self) -> None:
        for i, group in enumerate(self.param_groups):
            self._step_group(i, group)

    def _step_group(self, i: int, group: dict[str, Any]) -> None:
        """Moves the parameters of group number `i`."""
        settings = self._settings_of(i, group)
        if settings.flagged:
            flags.check(self, group, settings.starts)
            if group["differentiable"]:
                from tensorgrad.optim.recorded import step_group

                return step_group(self, group, settings)
            if group.get("capturable") and self._counted_on_device is not None:
                from tensorgrad.optim import capturable

                capturable.check_capture(self)
                return capturable.step_group(self, group, settings, _move_large)
        if DISPATCH and any([p._array.__class__ is NoMemory for p in group["params"]]):
            from tensorgrad.optim.recorded import step_group

            return step_group(self, group, settings)  # with ops, which the parameters' classes receive
        row, takes = self._kernel_for(group["params"])
        starts, names, ready = settings.starts, settings.names, settings.ready
        update, needs_t, states = self._update, self._needs_t, self.state
        count = self._count if "step" in starts else None
        state: dict[str, Any] = {}
        t: Any = None
        moved: list = []  # the parameters that a kernel for lists moves, with its arguments
        given: list = []
        scalars: list = []
        not_ready: Any = None, (), None
        skip = self._skip() if RUNNING else None
        for p in group["params"]:
            grad = p._grad
            if grad is None:
                continue
            x = p._array
            if grad._array.__class__ is not x.__class__ and isinstance(grad._array, SparseArray):
                self._step_sparse(p, grad, group)
                continue
            arrays = [x, grad._array, *names]
            if starts:
                state = states[p]
                first = state.get(names[0]) is None
                if first:
                    begin(state, p, starts)
                now = first if count is None else count(state, group)
                if needs_t:
                    t = now
                arrays = [x, grad._array, *[state[name]._array if name else None for name in names]]
            if row is not None and (takes is None or takes(x, arrays[1:])):
                moved.append(p)
                given += arrays
                scalars.append(settings.coefficients(self, group, t))
            else:
                if skip is not None:
                    self._cannot_skip()
                array, temporaries, constants = ready.get(p, not_ready)
                if array is not x:
                    self._move(p, arrays, settings, settings.coefficients(self, group, t), t)
                else:
                    if constants.t != t:
                        constants.become(t, settings.coefficients(self, group, t))
                    update(np, *arrays, constants.n, *temporaries)
            memory = p._memory
            if memory is not None:  # otherwise its version has not been read yet
                memory.version += 1
        if moved:
            left = row.ready(given, scalars) if skip is None else row.ready(given, scalars, skip)
            width = len(given) // len(moved)
            for n in left:
                self._move(moved[n], given[n * width : (n + 1) * width], settings, scalars[n], object())
        return None

    def _skip(self) -> Any:
        """Returns the array that prevents the step unless it is 0, or None: GradScaler sets it in a CUDA graph."""
        found = getattr(self, "found_inf", None)
        if found is not None and not self._skips:
            self._cannot_skip()
        return None if found is None else found._array

    def _cannot_skip(self) -> None:
        raise NotImplementedError(
            f"{type(self).__name__}: a step that GradScaler may skip can be captured in a CUDA graph only for SGD, "
            "Adam and AdamW, and dense parameters"
        )

    def _step_sparse(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        """Moves a parameter whose gradient is sparse. Raises: RuntimeError, unless a subclass can do it."""
        raise RuntimeError(self._refuses_sparse or f"{type(self).__name__} does not support sparse gradients")

    def _settings_of(self, i: int, group: dict[str, Any]) -> Settings:
        settings = self._settings.get(i)
        if settings is not None:
            try:
                settings.follow(self, group)
            except KeyError:  # a setting was removed
                settings = None
        if settings is None:
            settings = self._settings[i] = Settings(self, group)
        return settings

    def _coefficients_at(self, group: dict[str, Any], t: Any) -> Any:
        return self._coefficients(group, t) if self._needs_t else self._coefficients(group)

    def _kernel_for(self, params: list[Tensor]) -> tuple[Any, Callable | None]:
        """Returns the row of the kernel that moves all of these parameters together, and whether it takes arrays.

        The latter is `None` if the kernel itself finds that out. The row is `None` if there is none, or NumPy is to
        move them.
        """
        array_type = params[0]._array.__class__ if params else np.ndarray
        if array_type is not np.ndarray:
            row = device_kernel(self._kernel_name, STORAGES[array_type])
            return (None, None) if row is None else (row, row.takes)
        row = COMPILED.get(self._kernel_name)
        if row is None or SETTINGS.deterministic:
            return None, None
        if row.ready is not None:
            return row, None
        for p in params:  # a large one is worth loading it; then small ones join, since NumPy takes longer
            size = 0 if p._grad is None else p._array.size
            if size >= row.large_from and row.available():
                return row, None
        return None, None

    def _move(self, p: Tensor, given: list, settings: Settings, n: Any, t: Any) -> None:
        """Runs the update on a parameter's array that is large, of an unusual kind, or new.

        `given` are its array, the gradient's and the state's arrays, or `None`; all but the gradient's may be written.
        `n` are the coefficients of step `t`.
        """
        (x, *arrays), update, pairs = given, self._update, self._complex_as_pairs
        if x.__class__ is np.ndarray:
            constants = settings.constants(x.dtype, n)
            if constants.t != t:
                constants.become(t, n)
            n = constants.n
            if x.size <= BLOCK and _native(x.dtype, pairs):
                layout = x.shape, x.strides, x.dtype
                temporaries = self._scratch.get(layout)
                if temporaries is None:
                    temporaries = self._scratch[layout] = tuple(np.empty_like(x) for _ in range(self._temporaries))
                settings.ready[p] = x, temporaries, constants
                return update(np, x, *arrays, n, *temporaries)
        try:
            p._storage.guard(_move_large)(update, x, arrays, n, self._temporaries, pairs)
        except TypeError:
            check_one_device(f"{type(self).__name__}.step", [a for a in (x, *arrays) if a is not None])
            raise
        return None


# --- the parts of a formula -------------------------------------------------------------------------------------------


def descent(xp: Any, x: Any, g: Any, n: Any, s: Any, r: Any) -> Any:
    """Returns the gradient to descend along: negated to maximize, with the weight decay added unless it is `None`.

    The result is `g` or `r`; `s` is overwritten.
    """
    if n.maximize:
        g = numpy_faults.negative(xp, g, r)
    if n.decay is not None:
        g = xp.add(g, xp.multiply(x, n.decay, s), r)
    return g


def shrink_and_decay(group: dict[str, Any]) -> tuple[Any, Any]:
    """Returns the factor of weight decay on a parameter, and the fraction of the parameter it adds to the gradient.

    The first is used if weight decay is decoupled, the second otherwise; the unused one is `None`.
    """
    decay = group["weight_decay"]
    if decay == 0:
        return None, None
    return (1 - group["lr"] * decay, None) if group["decoupled_weight_decay"] else (None, decay)


# --- how an update is run ---------------------------------------------------------------------------------------------


def _native(dtype: np.dtype, pairs: bool) -> bool:
    """Returns whether an update can run on arrays of this dtype without conversion."""
    return (dtype.kind == "f" and dtype.itemsize > 2) or (dtype.kind == "c" and not pairs)


def _move_large(update: Callable, x: Any, arrays: list, n: Any, temporaries: int, pairs: bool) -> None:
    storage = STORAGES[x.__class__]
    xp = storage.xp
    if xp is None:
        if storage.device_type == "meta":
            return
        raise NotImplementedError(
            f"optimizers are not supported on device '{storage.device_type}', which has no array module"
        )
    if x.dtype.kind == "c" and pairs:
        part = "f4" if x.dtype.itemsize == 8 else "f8"
        x, *arrays = (None if a is None else a[..., None].view(part) for a in (x, *arrays))
    elif not _native(x.dtype, pairs):
        wide: list[Any] = [None if a is None else a.astype("float32") for a in (x, *arrays)]
        _move_large(update, wide[0], wide[1:], n, temporaries, pairs)
        grad = 1
        for i, (narrow, result) in enumerate(zip((x, *arrays), wide, strict=True)):
            if narrow is not None and i != grad:
                narrow[...] = result.astype(narrow.dtype)
        return

    if xp is np and x.size > BLOCK and all(a is None or a.flags.c_contiguous for a in (x, *arrays)):
        flat = [None if a is None else a.reshape(-1) for a in (x, *arrays)]

        def advance(first: int, last: int) -> None:
            scratch = [np.empty(BLOCK, x.dtype) for _ in range(temporaries)]
            for start in range(first * BLOCK, min(last * BLOCK, x.size), BLOCK):
                block: Any
                block, *others = (None if a is None else a[start : start + BLOCK] for a in flat)
                update(np, block, *others, n, *[t[: block.size] for t in scratch])

        if COMPILED:  # threads are enabled: NumPy's loops release the GIL
            thread_pool.run(advance, -(-x.size // BLOCK), (), x.size)
        else:
            advance(0, -(-x.size // BLOCK))
    else:
        update(xp, x, *arrays, n, *[xp.empty_like(x) for _ in range(temporaries)])
