# Gradients: operations are recorded, and backward() goes through them in reverse.
import tensorgrad as torch

x = torch.tensor([0.5, 0.75], requires_grad=True)
y = torch.log(x[0] * x[1]) * torch.sin(x[1])
y.backward()
print("y     ", y)
print("x.grad", x.grad)

# The same by small steps, for comparison.
step = 1e-3
for i in range(2):
    up, down = x.detach().clone(), x.detach().clone()
    up[i] += step
    down[i] -= step
    f = lambda x: torch.log(x[0] * x[1]) * torch.sin(x[1])
    print(f"by steps, x[{i}]:", ((f(up) - f(down)) / (2 * step)).item())
