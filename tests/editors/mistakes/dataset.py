# Each line that says `wrong` has one mistake, which editors and type checkers are to find; no other line has one.
import torch
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(6, 2), torch.arange(6))
loader = DataLoader(data, batchsize=4)  # wrong
other = DataLoader(data, batch_size="4")  # wrong
print(data.tensor)  # wrong
