"""`torch.cuda.jiterator`: the functions exist, and raise an error that says what to use instead."""

from __future__ import annotations

__all__: list[str] = []


def _create_jit_fn(code_string: str, **kwargs):
    """Would create an op from CUDA C source. Raises: NotImplementedError."""
    raise NotImplementedError(
        "torch.cuda.jiterator cannot create kernels; write the function with tensor ops, or call cupy.RawKernel in a "
        "torch.autograd.Function"
    )


def _create_multi_output_jit_fn(code_string: str, num_outputs: int, **kwargs):
    """Would create an op with several results from CUDA C source. Raises: NotImplementedError."""
    _create_jit_fn(code_string)
