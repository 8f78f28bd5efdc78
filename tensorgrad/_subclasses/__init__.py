"""Tensors that stand for others: `torch._subclasses`, of which programs use fake tensors.

fake_tensor.py        tensors with a shape, a dtype and a device, and without memory
fake_devices.py       on which device the results of a call are
fake_exceptions.py    what is raised where values would be needed
"""

from tensorgrad._subclasses.fake_exceptions import DynamicOutputShapeException, UnsupportedFakeTensorException
from tensorgrad._subclasses.fake_tensor import FakeTensor, FakeTensorMode

__all__ = ["DynamicOutputShapeException", "FakeTensor", "FakeTensorMode", "UnsupportedFakeTensorException"]
