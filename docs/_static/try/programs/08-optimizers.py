# Optimizers on the way down Rosenbrock's valley, from the same start.
import tensorgrad as torch
from tensorgrad import optim, viz


def valley(p):
    return (1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2


runs = {}
for name, make in {
    "SGD": lambda p: optim.SGD(p, lr=1e-3),
    "SGD, momentum": lambda p: optim.SGD(p, lr=1e-3, momentum=0.9),
    "RMSprop": lambda p: optim.RMSprop(p, lr=0.01),
    "Adam": lambda p: optim.Adam(p, lr=0.05),
}.items():
    point = torch.tensor([-1.5, 2.0], requires_grad=True)
    optimizer, heights = make([point]), []
    for _ in range(400):
        height = valley(point)
        optimizer.zero_grad()
        height.backward()
        optimizer.step()
        heights.append(height.item())
    runs[name] = heights
    print(f"{name:14} height {heights[-1]:.6f} at {[round(v, 3) for v in point.tolist()]}")

viz.curves(runs, title="Height above the lowest point", log=True)
