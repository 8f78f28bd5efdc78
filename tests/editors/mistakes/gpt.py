# Each line that says `wrong` has one mistake, which editors and type checkers are to find; no other line has one.
import torch
from torch.nn import functional as F

x = torch.randn(2, 3, dtypo=torch.float32)  # wrong
z = torch.randn(2, 3)
values, indices = torch.topk(z, 2)
first = torch.topk(z, 2).indicess  # wrong
best = z.max(dim=1).value  # wrong
y = F.cross_entropy(z, torch.tensor([0, 1]), reduction_="mean")  # wrong
