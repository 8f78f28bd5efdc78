import tensorgrad

import sys  # isort: skip

# Separates three clouds of points with a Module that contains one Linear layer (softmax regression).
# Change the first line to "import torch as tensorgrad" and it runs under PyTorch. With --device cuda it runs on a GPU.


class Classifier(tensorgrad.nn.Module):
    """One linear layer: two coordinates in, a score for each of three classes out."""

    def __init__(self):
        super().__init__()
        self.linear = tensorgrad.nn.Linear(2, 3)

    def forward(self, x):
        return self.linear(x)


if "--device" in sys.argv:
    tensorgrad.set_default_device(sys.argv[sys.argv.index("--device") + 1])
tensorgrad.manual_seed(0)
centers = tensorgrad.tensor([[2.0, 0.0], [-1.0, 2.0], [-1.0, -2.0]])
y = tensorgrad.arange(150) % 3
x = centers[y] + 0.7 * tensorgrad.randn(150, 2)

model = Classifier()
loss_fn = tensorgrad.nn.CrossEntropyLoss()
optimizer = tensorgrad.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)

for step in range(1, 101):
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
    loss.backward()
    optimizer.step()
    if step == 1 or step % 10 == 0:
        print(f"step {step:3d}  loss {loss.item():.6f}")

with tensorgrad.no_grad():
    predictions = model(x).argmax(dim=1)
print("predictions", predictions[:15].tolist())
print(f"accuracy {(predictions == y).float().mean().item():.3f}")
