# Functions of functions: gradients of gradients, Jacobians, and one gradient for each sample.
import tensorgrad as torch
from tensorgrad import viz
from tensorgrad.func import grad, jacrev, vmap

x = torch.linspace(-3, 3, 121)
f = torch.tanh
curves = {"tanh": f(x)}
for order in range(1, 4):
    f = grad(f)
    curves[f"derivative {order}"] = vmap(f)(x)

polar = lambda p: torch.stack((p[0] * torch.cos(p[1]), p[0] * torch.sin(p[1])))
print("Jacobian of polar coordinates:", jacrev(polar)(torch.tensor([2.0, 0.5])), sep="\n")

error = lambda w, x, y: ((x @ w - y) ** 2).sum()
w, xs, ys = torch.randn(3), torch.randn(5, 3), torch.randn(5)
print("a gradient for each of five samples:", vmap(grad(error), (None, 0, 0))(w, xs, ys), sep="\n")

lists = {name: values.tolist() for name, values in curves.items()}
viz.curves(lists, title="tanh and its derivatives on [-3, 3]")
