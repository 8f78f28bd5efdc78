import tensorgrad

import sys  # isort: skip

# Linear regression with a one-layer Sequential: recovers y = 2 a - 3 b + 0.5 from noisy samples.
# Change the first line to "import torch as tensorgrad" and it runs under PyTorch. With --device cuda it runs on a GPU.

if "--device" in sys.argv:
    tensorgrad.set_default_device(sys.argv[sys.argv.index("--device") + 1])
tensorgrad.manual_seed(0)
x = tensorgrad.randn(128, 2)
y = x @ tensorgrad.tensor([[2.0], [-3.0]]) + 0.5 + 0.1 * tensorgrad.randn(128, 1)

model = tensorgrad.nn.Sequential(tensorgrad.nn.Linear(2, 1))
loss_fn = tensorgrad.nn.MSELoss()
optimizer = tensorgrad.optim.SGD(model.parameters(), lr=0.1)

for step in range(1, 101):
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
    loss.backward()
    optimizer.step()
    if step == 1 or step % 10 == 0:
        print(f"step {step:3d}  loss {loss.item():.6f}")

layer = model[0]
print("weight", [round(w, 2) for w in layer.weight.flatten().tolist()], "bias", round(layer.bias.item(), 2))
with tensorgrad.no_grad():
    corners = tensorgrad.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    print("predictions", [round(p, 2) for p in model(corners).squeeze(1).tolist()])
