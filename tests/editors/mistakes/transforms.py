# Each line that says `wrong` has one mistake, which editors and type checkers are to find; no other line has one.
import torch
from torch.func import grad, jacobian_reverse  # wrong
from torch.func import vmap

slope = grad(torch.sin, argnum=0)  # wrong
each = vmap(torch.sin, in_dim=0)  # wrong
text: str = torch.zeros(2).sum()  # wrong
