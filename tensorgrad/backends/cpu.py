"""`torch.backends.cpu`: capabilities of the processor."""

import importlib


def get_cpu_capability() -> str:
    """Returns the widest vector instructions that NumPy uses, under PyTorch's names.

    >>> torch.backends.cpu.get_cpu_capability() in ("DEFAULT", "AVX2", "AVX512")
    True
    """
    try:
        features = importlib.import_module("numpy._core._multiarray_umath").__cpu_features__
    except ImportError:
        return "DEFAULT"
    return "AVX512" if features.get("AVX512F") else "AVX2" if features.get("AVX2") else "DEFAULT"
