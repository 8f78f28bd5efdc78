# XOR, with the network's decision drawn while it learns:
# a picture that is saved again replaces the one before.
import tensorgrad as torch
from tensorgrad import nn

torch.manual_seed(0)
x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
y = torch.tensor([[0.0], [1.0], [1.0], [0.0]])
model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

side = torch.linspace(-0.5, 1.5, 32)
plane = torch.cartesian_prod(side, side)


def color(chance, light):
    return f"hsl({220 if chance < 0.5 else 30} 80% {light:.0f}%)"


def draw():
    with torch.no_grad():
        chances = torch.sigmoid(model(plane)).reshape(32, 32).tolist()
    parts = ["<title>Decision boundary</title><desc>Blue is 0, orange is 1</desc>"]
    for i, column in enumerate(chances):
        for j, p in enumerate(column):
            fill = color(p, 95 - 70 * abs(p - 0.5))
            place = f'x="{9 * i}" y="{279 - 9 * j}" width="9.5" height="9.5"'
            parts.append(f'<rect {place} fill="{fill}"/>')
    for (a, b), (c,) in zip(x.tolist(), y.tolist()):
        place = f'cx="{144 * a + 72:.0f}" cy="{216 - 144 * b:.0f}" r="9"'
        parts.append(f'<circle {place} fill="{color(c, 35)}" stroke="white" stroke-width="3"/>')
    with open("boundary.svg", "w") as file:
        size = 'width="288" height="288"'
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{"".join(parts)}</svg>')


for step in range(401):
    loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        draw()
        print(f"step {step:3}  loss {loss.item():.4f}")
print(torch.sigmoid(model(x)).detach().round().flatten())
