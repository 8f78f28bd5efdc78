"""`torch.func`: function transforms. Derivatives, maps over a batch, modules as functions of their parameters.

They may be nested: the gradient of a gradient, the Jacobian of each sample's gradient, and so on. Gradients are built
on `autograd.grad`, products with tangents on forward mode (`transforms/forward.py`), maps over a batch on tensors that
know their batch dimension (`transforms/batch.py`).
"""

from tensorgrad.func.derivatives import grad, grad_and_value, jacrev, vjp
from tensorgrad.func.forward import hessian, jacfwd, jvp, linearize
from tensorgrad.func.modules import functional_call, replace_all_batch_norm_modules_, stack_module_state
from tensorgrad.func.utilities import debug_unwrap, functionalize, rearrange
from tensorgrad.func.vmap import vmap
from tensorgrad.transforms.batch_rules import looped as looped_ops

__all__ = [
    "debug_unwrap",
    "functional_call",
    "functionalize",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "looped_ops",
    "rearrange",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
    "vjp",
    "vmap",
]
