# A small ConvNet learns digits that are moved and blurred by noise.
import tensorgrad as torch
from tensorgrad import nn, viz

torch.manual_seed(0)
FONT = """
.###. ..#.. .###. ####. #..#. ##### .###. ##### .###. .###.
#...# .##.. #...# ....# #..#. #.... #.... ....# #...# #...#
#...# ..#.. ...#. .###. ##### ####. ####. ...#. .###. .####
#...# ..#.. ..#.. ....# ...#. ....# #...# ..#.. #...# ....#
.###. .###. ##### ####. ...#. ####. .###. ..#.. .###. .###.
"""
rows = [line.split() for line in FONT.split("\n") if line]
glyphs = torch.tensor([[[float(c == "#") for c in row[d]] for row in rows] for d in range(10)])


def batch(size):
    digits = torch.randint(0, 10, (size,))
    images = torch.zeros(size, 1, 10, 10)
    for i, digit in enumerate(digits.tolist()):
        top, left = torch.randint(0, 6, (2,)).tolist()
        images[i, 0, top : top + 5, left : left + 5] = glyphs[digit]
    return images + 0.25 * torch.randn_like(images), digits


model = nn.Sequential(
    nn.Conv2d(1, 16, 5, padding=2),
    nn.ReLU(),
    nn.Conv2d(16, 32, 5),
    nn.ReLU(),
    nn.AdaptiveMaxPool2d(1),
    nn.Flatten(),
    nn.Linear(32, 10),
)
print(nn.summary(model, (32, 1, 10, 10)))
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
losses = []
for step in range(1, 241):
    images, digits = batch(32)
    loss = nn.functional.cross_entropy(model(images), digits)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if step % 40 == 0:
        print(f"step {step}  loss {sum(losses[-40:]) / 40:.3f}")

with torch.no_grad():
    images, digits = batch(500)
    right = (model(images).argmax(dim=1) == digits).float().mean().item()
print(f"{right:.0%} of 500 new digits are recognized")
viz.curves({"loss": losses}, title="Loss", smooth=0.9)
