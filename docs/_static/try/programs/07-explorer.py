# Step through a backward pass: the arrow keys work, too, after a click into the picture.
import tensorgrad as torch
from tensorgrad import viz

w = torch.tensor([[0.5, -1.0], [2.0, 0.0]], requires_grad=True)
x = torch.tensor([[1.0, 2.0]])
viz.explore(((x @ w).tanh() ** 2).sum(), "explorer.html", names={"w": w, "x": x})
