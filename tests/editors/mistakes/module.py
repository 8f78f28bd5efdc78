# Each line that says `wrong` has one mistake, which editors and type checkers are to find; no other line has one.
import torch
from torch import nn

model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
model.zero_grad(set_to_nil=True)  # wrong
handle = model.register_forward_hook(None)  # wrong
weight = nn.Parameter(torch.ones(2), require_grad=False)  # wrong
size: int = torch.ones(2).shape  # wrong
