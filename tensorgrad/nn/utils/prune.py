"""Pruning: a mask keeps some elements of a parameter at zero.

The parameter is renamed to `name_orig`, its mask is the buffer `name_mask`, and a forward pre-hook sets `name` to
their product. A pruning method selects the elements to prune. If a tensor is pruned again, it gets a container of
methods, each of which selects among the elements that the previous ones left.
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import tensorgrad as torch
from tensorgrad.nn.module import Module
from tensorgrad.nn.utils.convert_parameters import parameters_to_vector
from tensorgrad.tensor import Tensor


class BasePruningMethod(ABC):
    """Base class of pruning methods: a subclass defines `compute_mask` and `PRUNING_TYPE`.

    The type determines what an already pruned tensor is pruned by: the remaining elements (`"unstructured"`), the
    remaining channels along the method's `dim` (`"structured"`), or all elements (`"global"`).

    >>> from tensorgrad.nn.utils import prune
    >>> class Negative(prune.BasePruningMethod):
    ...     PRUNING_TYPE = "unstructured"
    ...
    ...     def compute_mask(self, t, default_mask):
    ...         return default_mask * (t >= 0)
    >>> Negative().prune(torch.tensor([-1.0, 2.0]))
    tensor([-0., 2.])
    """

    PRUNING_TYPE: str
    _tensor_name: str

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Returns the mask, in the shape of `t`: 1 for the elements to keep.

        Args:
            t: the importance of each element, usually the parameter itself.
            default_mask: the mask of earlier prunings.
        """

    def apply_mask(self, module: Any) -> Tensor:
        """Returns the pruned tensor."""
        if getattr(self, "_tensor_name", None) is None:
            raise AssertionError(f"Module {module} has to be pruned")
        mask, original = (getattr(module, self._tensor_name + part) for part in ("_mask", "_orig"))
        return mask.to(dtype=original.dtype) * original

    @classmethod
    def apply(cls, module: Any, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any) -> Any:
        """Prunes the parameter `name` of `module`; returns the method, or the container of several methods.

        Args:
            args, kwargs: the arguments of the class.
            importance_scores: the importance of each element; by default the parameter itself.
        """
        method = cls._added_to_others(module, name, *args, **kwargs)
        original = getattr(module, name)
        if importance_scores is None:
            importance_scores = original
        elif importance_scores.shape != original.shape:
            raise AssertionError(
                f"importance_scores should have the same shape as parameter {name} of {module}, got "
                f"{importance_scores.shape} vs {original.shape}"
            )
        first = not isinstance(method, PruningContainer)
        if first:
            module.register_parameter(f"{name}_orig", original)
            del module._parameters[name]
            mask = torch.ones_like(original)
        else:
            mask = getattr(module, f"{name}_mask").detach().clone()
        try:
            module.register_buffer(f"{name}_mask", method.compute_mask(importance_scores, default_mask=mask))
            setattr(module, name, method.apply_mask(module))
            module.register_forward_pre_hook(method)
        except Exception:
            if first:
                module.register_parameter(name, getattr(module, f"{name}_orig"))
                del module._parameters[f"{name}_orig"]
            raise
        return method

    @classmethod
    def _added_to_others(cls, module: Any, name: str, *args: Any, **kwargs: Any) -> BasePruningMethod:
        """Returns the new method, or a container of it and the tensor's earlier methods, removed from the module."""
        hooks = module._forward_pre_hooks
        keys = [k for k, hook in hooks.items() if isinstance(hook, BasePruningMethod) and hook._tensor_name == name]
        if len(keys) > 1:
            raise AssertionError(
                f"Avoid adding multiple pruning hooks to the same tensor {name} of module {module}. Use a "
                "PruningContainer."
            )
        before = hooks.pop(keys[0]) if keys else None
        method = cls(*args, **kwargs)
        method._tensor_name = name
        if before is None:
            return method
        container = before if isinstance(before, PruningContainer) else PruningContainer(before)
        container.add_pruning_method(method)
        return container

    def prune(self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None) -> Tensor:
        """Returns a pruned copy of a tensor that does not belong to a module.

        Args:
            default_mask: the mask of earlier prunings; by default all ones.
            importance_scores: the importance of each element; by default `t` itself.
        """
        if importance_scores is None:
            importance_scores = t
        elif importance_scores.shape != t.shape:
            raise AssertionError(
                f"importance_scores should have the same shape as tensor t, got {importance_scores.shape} vs {t.shape}"
            )
        mask = torch.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(importance_scores, default_mask=mask)

    def remove(self, module: Any) -> None:
        """Makes the pruned tensor the parameter. Pruned elements are zero, but training can change them again."""
        name = getattr(self, "_tensor_name", None)
        if name is None:
            raise AssertionError(f"Module {module} has to be pruned before pruning can be removed")
        pruned = self.apply_mask(module)
        if hasattr(module, name):
            delattr(module, name)
        original = module._parameters[f"{name}_orig"]
        original.data = pruned.data
        del module._parameters[f"{name}_orig"]
        del module._buffers[f"{name}_mask"]
        setattr(module, name, original)


class PruningContainer(BasePruningMethod):
    """A sequence of methods that prune the same tensor.

    Args:
        args: the methods.

    Raises:
        TypeError: an argument is not a pruning method.
        ValueError: the methods prune different tensors.

    >>> from tensorgrad.nn.utils import prune
    >>> layer = prune.identity(torch.nn.Linear(2, 2), "weight")
    >>> method = prune.L1Unstructured.apply(layer, "weight", amount=1)
    >>> [type(m).__name__ for m in method]
    ['Identity', 'L1Unstructured']
    """

    def __init__(self, *args: Any) -> None:
        self._pruning_methods: tuple[Any, ...] = ()
        if len(args) == 1:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: Any) -> None:
        """Adds another method for the same tensor."""
        if not isinstance(method, BasePruningMethod) and method is not None:
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method is not None and self._tensor_name != method._tensor_name:
            raise ValueError(
                f"Can only add pruning methods acting on the parameter named '{self._tensor_name}' to PruningContainer "
                f"{self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: Any) -> Any:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Returns the mask of the last method, applied to the elements that `default_mask` keeps."""
        method: Any = self._pruning_methods[-1]
        kind, ndim = method.PRUNING_TYPE, t.dim()
        where: Any
        if kind == "unstructured":
            where = default_mask == 1
        elif kind == "structured":
            if not hasattr(method, "dim"):
                raise AttributeError(
                    'Pruning methods of PRUNING_TYPE "structured" need to have the attribute `dim` defined.'
                )
            dim = method.dim + ndim if method.dim < 0 else method.dim
            if dim < 0:
                raise IndexError(f"Index is out of bounds for tensor with dimensions {ndim}")
            where = _along(dim, ndim, default_mask.sum(dim=[d for d in range(ndim) if d != dim]) != 0)
        elif kind == "global":
            where = (slice(None),) * ndim
        else:
            raise ValueError(f"Unrecognized PRUNING_TYPE {kind}")
        mask = default_mask.to(dtype=t.dtype, copy=True)
        mask[where] = method.compute_mask(t[where], default_mask=default_mask[where]).to(dtype=mask.dtype)
        return mask


def _along(dim: int, ndim: int, index: Any) -> tuple:
    """Returns a tuple that indexes only the dimension `dim`."""
    where: list = [slice(None)] * ndim
    where[dim] = index
    return tuple(where)


# --- amounts ---------------------------------------------------------------------------------------------------------


# (Named as in PyTorch: user-defined pruning methods call these.)


def _validate_pruning_amount_init(amount: Any) -> None:
    """Raises TypeError or ValueError unless `amount` is a number of elements or a fraction of them."""
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    fraction = 0.0 if isinstance(amount, numbers.Integral) else float(amount)
    if float(amount) < 0 or fraction > 1:
        raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")


def _validate_pruning_amount(amount: Any, tensor_size: int) -> None:
    """Raises ValueError if `amount` is a number of elements larger than `tensor_size`."""
    if isinstance(amount, numbers.Integral) and int(amount) > tensor_size:
        raise ValueError(f"amount={amount} should be smaller than the number of parameters to prune={tensor_size}")


def _compute_nparams_toprune(amount: Any, tensor_size: int) -> int:
    """Returns how many of `tensor_size` elements to prune."""
    return int(amount) if isinstance(amount, numbers.Integral) else round(amount * tensor_size)


def _how_many(amount: Any, size: int) -> int:
    _validate_pruning_amount(amount, size)
    return _compute_nparams_toprune(amount, size)


def _channels(t: Tensor, amount: Any, dim: int) -> tuple[int, int]:
    """Returns the number of channels along `dim`, and how many of them to prune."""
    if t.dim() <= 1:
        raise ValueError(
            "Structured pruning can only be applied to multidimensional tensors. Found tensor of shape "
            f"{t.shape} with {t.dim()} dims"
        )
    if dim >= t.dim():
        raise IndexError(f"Invalid index {dim} for tensor of size {t.shape}")
    size = t.shape[dim]
    return size, _how_many(amount, size)


def _only(t: Tensor, dim: int, index: Tensor) -> Tensor:
    """Returns a mask in the shape of `t` that is 1 in the given channels only."""
    mask = torch.zeros_like(t)
    mask[_along(dim % t.dim(), t.dim(), index)] = 1
    return mask


# --- the methods -----------------------------------------------------------------------------------------------------


class Identity(BasePruningMethod):
    """Prunes nothing, but adds the mask.

    >>> from tensorgrad.nn.utils import prune
    >>> prune.Identity().prune(torch.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask

    @classmethod
    def apply(cls, module: Any, name: str) -> Any:  # type: ignore[override]
        return super().apply(module, name)


class RandomUnstructured(BasePruningMethod):
    """Prunes elements at random.

    Args:
        amount: the number of elements, or the fraction of them.

    >>> from tensorgrad.nn.utils import prune
    >>> int((prune.RandomUnstructured(amount=3).prune(torch.ones(10)) == 0).sum())
    3
    """

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: float) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        count = _how_many(self.amount, t.nelement())
        mask = default_mask.clone(memory_format=torch.contiguous_format)
        if count:
            mask.view(-1)[torch.topk(torch.rand_like(t).view(-1), k=count).indices] = 0
        return mask

    @classmethod
    def apply(cls, module: Any, name: str, amount: float) -> Any:  # type: ignore[override]
        return super().apply(module, name, amount=amount)


class L1Unstructured(BasePruningMethod):
    """Prunes the elements with the smallest absolute values.

    Args:
        amount: the number of elements, or the fraction of them.

    >>> from tensorgrad.nn.utils import prune
    >>> prune.L1Unstructured(amount=1).prune(torch.tensor([1.0, 3.0, -2.0]))
    tensor([ 0., 3., -2.])
    """

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: float) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        count = _how_many(self.amount, t.nelement())
        mask = default_mask.clone(memory_format=torch.contiguous_format)
        if count:
            mask.view(-1)[torch.topk(t.abs().view(-1), k=count, largest=False).indices] = 0
        return mask

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Any, name: str, amount: float, importance_scores: Tensor | None = None
    ) -> Any:
        return super().apply(module, name, amount=amount, importance_scores=importance_scores)


class RandomStructured(BasePruningMethod):
    """Prunes channels at random.

    Args:
        amount: the number of channels, or the fraction of them.
        dim: the dimension of the channels.

    >>> from tensorgrad.nn.utils import prune
    >>> prune.RandomStructured(amount=1, dim=0).prune(torch.ones(3, 2)).sum()
    tensor(4.)
    """

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1) -> None:
        _validate_pruning_amount_init(amount)
        self.amount, self.dim = amount, dim

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        size, count = _channels(t, self.amount, self.dim)
        if not count:
            return default_mask
        scores = torch.rand(size)
        mask = _only(t, self.dim, scores > scores.kthvalue(count).values)
        mask *= default_mask.to(dtype=mask.dtype)
        return mask

    @classmethod
    def apply(cls, module: Any, name: str, amount: float, dim: int = -1) -> Any:  # type: ignore[override]
        return super().apply(module, name, amount=amount, dim=dim)


class LnStructured(BasePruningMethod):
    """Prunes the channels with the smallest norms.

    Args:
        amount: the number of channels, or the fraction of them.
        n: the degree of the norm, as in `torch.norm`.
        dim: the dimension of the channels.

    >>> from tensorgrad.nn.utils import prune
    >>> prune.LnStructured(amount=1, n=2, dim=0).prune(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[0., 0.],
            [3., 4.]])
    """

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, n: Any, dim: int = -1) -> None:
        _validate_pruning_amount_init(amount)
        self.amount, self.n, self.dim = amount, n, dim

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        size, count = _channels(t, self.amount, self.dim)
        norms = torch.norm(t, p=self.n, dim=[d for d in range(t.dim()) if d != self.dim % t.dim()])
        kept = torch.topk(norms, k=size - count, largest=True).indices
        if not count:
            return default_mask
        mask = _only(t, self.dim, kept)
        mask *= default_mask.to(dtype=mask.dtype)
        return mask

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Any, name: str, amount: float, n: Any, dim: int, importance_scores: Tensor | None = None
    ) -> Any:
        return super().apply(module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores)


class CustomFromMask(BasePruningMethod):
    """Prunes by a given mask.

    Args:
        mask: 1 for the elements to keep, in the parameter's shape.

    >>> from tensorgrad.nn.utils import prune
    >>> prune.CustomFromMask(torch.tensor([1, 0])).prune(torch.tensor([5.0, 6.0]))
    tensor([5., 0.])
    """

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if default_mask.shape != self.mask.shape:
            raise AssertionError(
                f"default_mask shape {default_mask.shape} must match self.mask shape {self.mask.shape}"
            )
        return default_mask * self.mask.to(dtype=default_mask.dtype)

    @classmethod
    def apply(cls, module: Any, name: str, mask: Tensor) -> Any:  # type: ignore[override]
        return super().apply(module, name, mask=mask)


# --- functions -------------------------------------------------------------------------------------------------------


def identity(module: Any, name: str) -> Any:
    """Gives the parameter `name` a mask that prunes nothing; returns `module`.

    >>> from tensorgrad.nn.utils import prune
    >>> sorted(prune.identity(torch.nn.Linear(2, 2), "weight").state_dict())
    ['bias', 'weight_mask', 'weight_orig']
    """
    Identity.apply(module, name)
    return module


def random_unstructured(module: Any, name: str, amount: float) -> Any:
    """Prunes `amount` elements of the parameter `name` (a number or a fraction) at random; returns `module`.

    >>> from tensorgrad.nn.utils import prune
    >>> layer = prune.random_unstructured(torch.nn.Linear(2, 2), "weight", amount=0.5)
    >>> int(layer.weight_mask.sum())
    2
    """
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Any, name: str, amount: float, importance_scores: Tensor | None = None) -> Any:
    """Prunes the elements of the parameter `name` with the smallest absolute values; returns `module`.

    Args:
        amount: the number of elements, or the fraction of them.
        importance_scores: compared instead of the parameter's own values.

    >>> from tensorgrad.nn.utils import prune
    >>> layer = prune.l1_unstructured(torch.nn.Linear(2, 3), "weight", amount=2)
    >>> int((layer.weight == 0).sum()), sorted(layer.state_dict())
    (2, ['bias', 'weight_mask', 'weight_orig'])
    """
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: Any, name: str, amount: float, dim: int) -> Any:
    """Prunes `amount` channels along `dim` of the parameter `name` at random; returns `module`.

    >>> from tensorgrad.nn.utils import prune
    >>> layer = prune.random_structured(torch.nn.Linear(4, 3), "weight", amount=1, dim=0)
    >>> int(layer.weight_mask.sum())
    8
    """
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: Any, name: str, amount: float, n: Any, dim: int, importance_scores: Tensor | None = None
) -> Any:
    """Prunes the `amount` channels along `dim` whose norm of degree `n` is smallest; returns `module`.

    >>> from tensorgrad.nn.utils import prune
    >>> layer = prune.ln_structured(torch.nn.Linear(4, 3), "weight", amount=1, n=2, dim=0)
    >>> int(layer.weight_mask.sum())
    8
    """
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Any, name: str, mask: Tensor) -> Any:
    """Prunes the elements of the parameter `name` where `mask` is 0; returns `module`.

    >>> from tensorgrad.nn.utils import prune
    >>> layer = prune.custom_from_mask(torch.nn.Linear(2, 2), "bias", torch.tensor([1, 0]))
    >>> bool(layer.bias[1] == 0)
    True
    """
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Any, pruning_method: Any, importance_scores: dict | None = None, **kwargs: Any
) -> None:
    """Prunes several parameters as if they were one.

    Args:
        parameters: pairs (module, name).
        pruning_method: the class of an unstructured pruning method.
        importance_scores: for each pair, values to compare instead of the parameter's own.
        kwargs: the arguments of the class, such as `amount`.

    Raises:
        TypeError: `parameters` is not an iterable, `importance_scores` is not a dict, or the method is structured.

    >>> from tensorgrad.nn.utils import prune
    >>> a, b = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)
    >>> prune.global_unstructured([(a, "weight"), (b, "weight")], prune.L1Unstructured, amount=3)
    >>> int((a.weight == 0).sum() + (b.weight == 0).sum())
    3
    """
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    scores = {} if importance_scores is None else importance_scores
    if not isinstance(scores, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    pairs = list(parameters)
    values = [getattr(module, name) for module, name in pairs]
    masks = [getattr(m, f"{name}_mask", torch.ones_like(v)) for (m, name), v in zip(pairs, values, strict=True)]
    importance = [scores.get(pair, value) for pair, value in zip(pairs, values, strict=True)]
    container, method = PruningContainer(), pruning_method(**kwargs)
    container._tensor_name = method._tensor_name = "temp"
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
            f"{pruning_method} of type {method.PRUNING_TYPE}"
        )
    container.add_pruning_method(method)
    mask = container.compute_mask(parameters_to_vector(importance), parameters_to_vector(masks))
    for (module, name), value, part in zip(pairs, values, mask.split([v.numel() for v in values]), strict=True):
        custom_from_mask(module, name, mask=part.view_as(value))


def remove(module: Any, name: str) -> Any:
    """Makes the pruned tensor an ordinary parameter, in which pruned elements are zero. Returns `module`.

    Raises:
        ValueError: the parameter is not pruned.

    >>> from tensorgrad.nn.utils import prune
    >>> layer = prune.identity(torch.nn.Linear(2, 2), "weight")
    >>> sorted(prune.remove(layer, "weight").state_dict())
    ['bias', 'weight']
    """
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")


def is_pruned(module: Module) -> bool:
    """Returns whether any parameter of `module` or of its submodules is pruned.

    >>> from tensorgrad.nn.utils import prune
    >>> layer = torch.nn.Linear(2, 2)
    >>> prune.is_pruned(layer), prune.is_pruned(prune.identity(layer, "bias"))
    (False, True)
    """
    return any(
        isinstance(hook, BasePruningMethod)
        for submodule in module.modules()
        for hook in submodule._forward_pre_hooks.values()
    )
