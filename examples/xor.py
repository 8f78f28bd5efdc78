import tensorgrad

# XOR, the smallest problem a single layer cannot solve, learned by a 2-8-2 network.
# The program uses nothing beyond PyTorch's own names: change the first line to
# "import torch as tensorgrad" and it runs under PyTorch, printing the same losses.

SEED, STEPS, LEARNING_RATE = 0, 5000, 0.5


class MLP(tensorgrad.nn.Module):
    """Two inputs, eight hidden units, one score for each of the two classes."""

    def __init__(self):
        super().__init__()
        self.hidden = tensorgrad.nn.Linear(2, 8)
        self.relu = tensorgrad.nn.ReLU()
        self.out = tensorgrad.nn.Linear(8, 2)

    def forward(self, x):
        return self.out(self.relu(self.hidden(x)))


tensorgrad.manual_seed(SEED)
x = tensorgrad.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
y = tensorgrad.tensor([0, 1, 1, 0])

model = MLP()
loss_fn = tensorgrad.nn.CrossEntropyLoss()
optimizer = tensorgrad.optim.SGD(model.parameters(), lr=LEARNING_RATE)

for step in range(1, STEPS + 1):
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
    loss.backward()
    optimizer.step()
    if step == 1 or step % 500 == 0:
        print(f"step {step:4d}  loss {loss.item():.6f}")

with tensorgrad.no_grad():
    predictions = model(x).argmax(dim=1)
for inputs, answer in zip(x.tolist(), predictions.tolist(), strict=True):
    print(f"{inputs[0]:.0f} xor {inputs[1]:.0f} = {answer}")
