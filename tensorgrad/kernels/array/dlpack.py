"""bfloat16 through DLPack, which NumPy's implementation of the protocol does not support.

A capsule of the protocol is a small record with the memory's address, dtype and shape. Memory that NumPy exports as
uint16 is relabeled bfloat16 in it, and imported bfloat16 is relabeled uint16 for NumPy.

Source: dlpack.h of https://github.com/dmlc/dlpack, versions 0 and 1.
"""

import ctypes

UINT, BFLOAT = 1, 4  # codes of dtype kinds
CUDA, CUDA_MANAGED = 2, 13  # codes of devices


class _Tensor(ctypes.Structure):
    """DLTensor up to its dtype."""

    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
    ]  # fmt: skip


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned: the fields before its tensor, and the tensor."""

    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _Tensor),
    ]  # fmt: skip


def _tensor_of(capsule):
    """Returns the record inside a capsule, for reading and writing."""
    api = ctypes.pythonapi
    api.PyCapsule_GetName.argtypes, api.PyCapsule_GetName.restype = [ctypes.py_object], ctypes.c_char_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    name = api.PyCapsule_GetName(capsule)
    address = api.PyCapsule_GetPointer(capsule, name)
    return _Versioned.from_address(address).tensor if name == b"dltensor_versioned" else _Tensor.from_address(address)


def export_bfloat16(array, options):
    """Returns the capsule of a bfloat16 array. `options` are those of `__dlpack__`."""
    capsule = array.view("uint16").__dlpack__(**options)
    _tensor_of(capsule).code = BFLOAT
    return capsule


def device_of(source) -> tuple[int, int]:
    """Returns the code and the index of the device of an object of the protocol, or of a bare capsule."""
    if hasattr(source, "__dlpack_device__"):
        code, number = source.__dlpack_device__()
        return int(code), int(number)
    tensor = _tensor_of(source)
    return tensor.device_type, tensor.device_id


class Relabelled:
    """Wraps an object of the protocol, or a bare capsule, so that NumPy sees bfloat16 as uint16.

    `bfloat16` records whether it did.
    """

    def __init__(self, source):
        self.source, self.bfloat16 = source, False

    def __dlpack__(self, **options):
        capsule = self.source.__dlpack__(**options) if hasattr(self.source, "__dlpack__") else self.source
        tensor = _tensor_of(capsule)
        if tensor.code == BFLOAT and tensor.bits == 16:
            tensor.code, self.bfloat16 = UINT, True
        return capsule

    def __dlpack_device__(self):
        return device_of(self.source)
