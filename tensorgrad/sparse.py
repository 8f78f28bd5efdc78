"""`torch.sparse`: sparse layouts are not included; functions that make sparse tensors raise an error."""

from __future__ import annotations

from typing import Any

_FUNCTIONS = (
    "addmm", "as_sparse_gradcheck", "log_softmax", "mm", "sampled_addmm", "softmax", "spdiags", "spsolve", "sum",
    "to_sparse_semi_structured",
)  # fmt: skip
_TYPES = tuple(f"{n}Tensor" for n in ("BFloat16", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short"))


def _refusing(name: str, called: str) -> Any:
    def function(*args: Any, **options: Any) -> Any:
        raise NotImplementedError(
            f"{called}: sparse layouts are not included, tensors are strided. A dense tensor does the same if it "
            "fits into memory, as torch.zeros(size).index_put(tuple(indices), values, accumulate=True)"
        )

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""Not supported: there are no sparse tensors.

    Raises:
        NotImplementedError: Always.

    >>> import tensorgrad as torch
    >>> torch.{called}()
    Traceback (most recent call last):
        ...
    NotImplementedError: {called}: sparse layouts are not included, tensors are strided...
    """
    return function


for _name in (*_FUNCTIONS, *_TYPES):
    globals()[_name] = _refusing(_name, f"sparse.{_name}")

sparse_bsc_tensor = _refusing("sparse_bsc_tensor", "sparse_bsc_tensor")
sparse_bsr_tensor = _refusing("sparse_bsr_tensor", "sparse_bsr_tensor")
sparse_compressed_tensor = _refusing("sparse_compressed_tensor", "sparse_compressed_tensor")
sparse_coo_tensor = _refusing("sparse_coo_tensor", "sparse_coo_tensor")
sparse_csc_tensor = _refusing("sparse_csc_tensor", "sparse_csc_tensor")
sparse_csr_tensor = _refusing("sparse_csr_tensor", "sparse_csr_tensor")

__all__ = [*_FUNCTIONS, *_TYPES]
