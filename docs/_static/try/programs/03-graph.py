# The graph that backward() walks through. A program whose last line is a picture shows it.
import tensorgrad as torch

w = torch.tensor([[0.5, -1.0], [2.0, 0.0]], requires_grad=True)
x = torch.tensor([[1.0, 2.0]])
loss = ((x @ w).tanh() ** 2).sum()

display(loss.render("backward", names={"w": w, "x": x}))
loss.render(names={"w": w, "x": x})
