"""The names by which ops, devices and dtypes are registered and looked up, for those who extend the library.

    @OpDispatch.register(OP.MUL, DEVICE.CPU)
    def my_mul(x, y): ...

A device of your own needs no constant: any string that names its storage will do.
"""


class DEVICE:
    """The types of devices that ship with the library."""

    CPU = "cpu"
    CUDA = "cuda"
    META = "meta"


class DTYPE:
    """The names of the element types."""

    BOOL = "bool"
    UINT8 = "uint8"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    COMPLEX64 = "complex64"
    COMPLEX128 = "complex128"


class OP:
    """The names of the ops, each of which is a row in a file of `ops/`."""

    # generated: python -m tensorgrad.stubs
