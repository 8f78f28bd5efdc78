import tensorgrad

import sys  # isort: skip

# No module, no optimizer: fits a cubic to a sine with two tensors and a hand-written update rule.
# Change the first line to "import torch as tensorgrad" and it runs under PyTorch. With --device cuda it runs on a GPU.

if "--device" in sys.argv:
    tensorgrad.set_default_device(sys.argv[sys.argv.index("--device") + 1])
tensorgrad.manual_seed(0)
x = tensorgrad.linspace(-1.0, 1.0, 100).unsqueeze(1)
y = tensorgrad.sin(3.0 * x) + 0.05 * tensorgrad.randn(100, 1)
powers = tensorgrad.cat([x, x**2, x**3], dim=1)

w = tensorgrad.randn(3, 1, requires_grad=True)
b = tensorgrad.zeros(1, requires_grad=True)
lr = 0.3

for step in range(1, 501):
    loss = ((powers.mm(w) + b - y) ** 2).mean()
    loss.backward()
    with tensorgrad.no_grad():
        w -= lr * w.grad
        b -= lr * b.grad
        w.grad.zero_()
        b.grad.zero_()
    if step == 1 or step % 50 == 0:
        print(f"step {step:3d}  loss {loss.item():.6f}")

print("weights", [round(v, 2) for v in w.flatten().tolist()], "bias", round(b.item(), 2))
with tensorgrad.no_grad():
    print("predictions", [round(p, 2) for p in (powers.mm(w) + b)[::20].squeeze(1).tolist()])
