"""`torch.library`: operators of your own, with kernels, derivatives and rules for batches.

`custom_op` makes one of a Python function; `Library.define` and `impl` are the long way. An operator has a schema
(`schema.py`, `inference.py`), is found in `torch.ops` (`operators.py`), and is one step for autograd and transforms
(`derivatives.py`). `opcheck` tests one (`checking.py`).
"""

from __future__ import annotations

from typing import Any

from tensorgrad.library.checking import OpCheckError, opcheck
from tensorgrad.library.custom_ops import CustomOpDef, custom_op
from tensorgrad.library.definitions import (
    Library,
    _scoped_library,
    define,
    fallthrough_kernel,
    impl,
    impl_abstract,
    register_autocast,
    register_autograd,
    register_fake,
    register_kernel,
    register_vmap,
)
from tensorgrad.library.inference import infer_schema

__all__ = [
    "CustomOpDef", "Library", "custom_op", "define", "fallthrough_kernel", "get_ctx", "get_kernel", "impl",
    "impl_abstract", "infer_schema", "opcheck", "register_autocast", "register_autograd", "register_fake",
    "register_kernel", "register_torch_dispatch", "register_vmap", "triton_op", "wrap_triton",
]  # fmt: skip


def get_ctx() -> Any:
    """Raises: NotImplementedError. In PyTorch, it makes sizes that a fake kernel does not know.

    >>> torch.library.get_ctx()
    Traceback (most recent call last):
    NotImplementedError: library.get_ctx: sizes are plain numbers; a fake kernel must know them
    """
    raise NotImplementedError("library.get_ctx: sizes are plain numbers; a fake kernel must know them")


def get_kernel(op: Any, dispatch_key: Any) -> Any:
    """Returns the kernel of an operator for a dispatch key. Raises: RuntimeError if there is none.

    >>> torch.library.define("docs11::f", "(Tensor x) -> Tensor")
    >>> torch.library.impl("docs11::f", "cpu", lambda x: x + 1)
    >>> torch.library.get_kernel("docs11::f", "CPU")(torch.ones(2))
    tensor([2., 2.])
    """
    from tensorgrad.library import definitions, operators

    operator = operators.find(definitions._named(op))
    if str(dispatch_key) not in operator.kernels:
        raise RuntimeError(f"{operator.qualname} has no kernel for {dispatch_key}")
    return operator.kernels[str(dispatch_key)]


def register_torch_dispatch(op: Any, torch_dispatch_class: Any, func: Any = None, /, *, lib: Any = None) -> Any:
    """Raises: NotImplementedError. A class defines its `__torch_dispatch__` itself, and modes see no operators.

    >>> torch.library.register_torch_dispatch("ns::f", None)
    Traceback (most recent call last):
    NotImplementedError: library.register_torch_dispatch: classes define ...
    """
    raise NotImplementedError(
        "library.register_torch_dispatch: classes define their __torch_dispatch__; a rule for one operator is not kept"
    )


def triton_op(name: str, fn: Any = None, /, *, mutates_args: Any, schema: str | None = None) -> Any:
    """Raises: NotImplementedError. Triton's kernels need PyTorch; use `custom_op`.

    >>> torch.library.triton_op("ns::f", mutates_args=())
    Traceback (most recent call last):
    NotImplementedError: library.triton_op: Triton's kernels need PyTorch; use torch.library.custom_op
    """
    raise NotImplementedError("library.triton_op: Triton's kernels need PyTorch; use torch.library.custom_op")


def wrap_triton(triton_kernel: Any, /) -> Any:
    """Raises: NotImplementedError. Triton's kernels need PyTorch.

    >>> torch.library.wrap_triton(None)
    Traceback (most recent call last):
    NotImplementedError: library.wrap_triton: Triton's kernels need PyTorch
    """
    raise NotImplementedError("library.wrap_triton: Triton's kernels need PyTorch")
