# Each line that says `wrong` has one mistake, which editors and type checkers are to find; no other line has one.
import torch
from torch.distributions import Categorical, Gaussian  # wrong
from torch.distributions import Normal

normal = Normal(torch.zeros(2), torch.ones(2), validate=False)  # wrong
normal.logprob(torch.zeros(2))  # wrong
Categorical(probabilities=torch.ones(3))  # wrong
