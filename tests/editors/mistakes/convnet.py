# Each line that says `wrong` has one mistake, which editors and type checkers are to find; no other line has one.
import torch
import torch.nn.functional as F
from torch import nn

conv = nn.Conv2d(1, 8, kernelsize=3)  # wrong
pool = nn.MaxPol2d(2)  # wrong
x = torch.rand(1, 1, 28, 28)
y = F.reluu(x)  # wrong
z = F.max_pool2d(x, kernel_size=2, strides=2)  # wrong
