# Each line that says `wrong` has one mistake, which editors and type checkers are to find; no other line has one.
# `here only`: to PyTorch's types these functions are unknown.
import torch

u, s, vh = torch.linalg.svd(torch.eye(2), full_matrix=False)  # wrong: here only
low = torch.linalg.eigh(torch.eye(2)).values  # wrong: here only
x = torch.zeros(2)
x + "a"  # wrong
torch.sigmoid("a")  # wrong
x.sum(dims=0)  # wrong
torch.save(x)  # wrong
