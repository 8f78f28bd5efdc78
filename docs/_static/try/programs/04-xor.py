# XOR, with the network's decision drawn while it learns: a picture that is saved again replaces the one before.
import tensorgrad as torch
from tensorgrad import nn

torch.manual_seed(0)
x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
y = torch.tensor([[0.0], [1.0], [1.0], [0.0]])
model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

side = torch.linspace(-0.5, 1.5, 32)
plane = torch.cartesian_prod(side, side)


def draw():
    with torch.no_grad():
        chance = torch.sigmoid(model(plane)).reshape(32, 32).tolist()
    cells = "".join(
        f'<rect x="{9 * i}" y="{9 * (31 - j)}" width="9.5" height="9.5" fill="hsl({220 - 190 * p:.0f} 80% 60%)"/>'
        for i, row in enumerate(chance)
        for j, p in enumerate(row)
    )
    dots = "".join(
        f'<circle cx="{(a + 0.5) * 144:.0f}" cy="{(1.5 - b) * 144:.0f}" r="9" stroke="#fff" stroke-width="3"'
        f' fill="hsl({220 - 190 * c:.0f} 80% 35%)"/>'
        for (a, b), (c,) in zip(x.tolist(), y.tolist())
    )
    with open("boundary.svg", "w") as file:
        file.write('<svg xmlns="http://www.w3.org/2000/svg" width="288" height="288"><title>Decision boundary</title>')
        file.write(f"<desc>Blue is 0, orange is 1</desc>{cells}{dots}</svg>")


for step in range(401):
    loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        draw()
        print(f"step {step:3}  loss {loss.item():.4f}")
print(torch.sigmoid(model(x)).detach().round().flatten())
