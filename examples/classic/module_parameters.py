import tensorgrad

import sys  # isort: skip

# A layer written by hand: a Module whose weight and bias are plain Parameters, multiplied with mm.
# Change the first line to "import torch as tensorgrad" and it runs under PyTorch. With --device cuda it runs on a GPU.


class Logistic(tensorgrad.nn.Module):
    """Which side of a line is a point on? One score per point, turned into a probability."""

    def __init__(self):
        super().__init__()
        self.weight = tensorgrad.nn.Parameter(tensorgrad.randn(2, 1))
        self.bias = tensorgrad.nn.Parameter(tensorgrad.zeros(1))

    def forward(self, x):
        return tensorgrad.sigmoid(x.mm(self.weight) + self.bias)


if "--device" in sys.argv:
    tensorgrad.set_default_device(sys.argv[sys.argv.index("--device") + 1])
tensorgrad.manual_seed(0)
x = tensorgrad.randn(128, 2)
y = (x[:, :1] + 2 * x[:, 1:] > 0.3).float()

model = Logistic()
loss_fn = tensorgrad.nn.BCELoss()
optimizer = tensorgrad.optim.Adam(model.parameters(), lr=0.1)

for step in range(1, 101):
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
    loss.backward()
    optimizer.step()
    if step == 1 or step % 10 == 0:
        print(f"step {step:3d}  loss {loss.item():.6f}")

with tensorgrad.no_grad():
    predictions = (model(x) > 0.5).float()
print("predictions", predictions[:15].squeeze(1).int().tolist())
print(f"accuracy {(predictions == y).float().mean().item():.3f}")
