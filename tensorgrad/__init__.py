"""tensorgrad: PyTorch's programming model in pure Python. `import tensorgrad as torch`, and your program runs."""

__version__ = "0.1.0"

from tensorgrad.tensor import Tensor
from tensorgrad.ops import create, pointwise, reduce, shape, copy
from tensorgrad.autograd import backward as _b
from tensorgrad.ops.kinds import FUNCTIONS
from tensorgrad.dtypes import *
from tensorgrad.autograd.modes import *
globals().update(FUNCTIONS)
