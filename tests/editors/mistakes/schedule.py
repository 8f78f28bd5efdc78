# Each line that says `wrong` has one mistake, which editors and type checkers are to find; no other line has one.
import torch
from torch import nn, optim
from torch.optim.lr_scheduler import StepLR

model = nn.Linear(2, 2)
adam = optim.Adam(model.parameters(), learning_rate=1e-3)  # wrong
sgd = optim.SDG(model.parameters(), lr=0.1)  # wrong
schedule = StepLR(adam, step=10)  # wrong
adam.zero_grads()  # wrong
torch.nn.utils.clip_grad_norm_(model.parameters())  # wrong
