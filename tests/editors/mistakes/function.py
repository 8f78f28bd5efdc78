# Each line that says `wrong` has one mistake, which editors and type checkers are to find; no other line has one.
import torch
from torch.autograd import Function, gradchek  # wrong

x = torch.ones(2, requires_grad=True)
z = torch.ones(2, require_grad=True)  # wrong
y = x.pow(2).sum()
y.backward(retain_graphs=True)  # wrong
(g,) = torch.autograd.grad(y, x, creates_graph=True)  # wrong
print(Function, x.gradient)  # wrong
