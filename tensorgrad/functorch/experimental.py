"""`functorch.experimental`: functions that have been in `torch.func` since PyTorch 2.0."""

from tensorgrad.func import functionalize, hessian, jacfwd, jvp, replace_all_batch_norm_modules_

__all__ = ["functionalize", "hessian", "jacfwd", "jvp", "replace_all_batch_norm_modules_"]
