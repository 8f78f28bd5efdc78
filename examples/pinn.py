import tensorgrad as torch

__doc__ = """A network solves a differential equation that it is not shown a single solution of: a damped oscillation.

    python examples/pinn.py

The network is a function x(t). What is minimized is how far it is from obeying x'' + 2 d x' + w^2 x = 0 at random
times. Its derivatives by t are computed in forward mode: a `jvp` gives the velocity, a `jvp` of that the acceleration,
in one run of the network. The gradient by the weights then goes back through all of this. out/pinn.svg shows the
network's curve beside the exact one, and velocity and acceleration.

Measured after 600 steps: off by 0.009 on average under both libraries; 4 s under tensorgrad and 10 s under torch.
Processor time.

M. Raissi, P. Perdikaris and G. E. Karniadakis, Physics-informed neural networks, Journal of Computational Physics 378,
2019.
"""

import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from common import Checkpoint, make_parser, progress, run, say, seconds, start
from picture import save_panels

nn = torch.nn
DAMPING, FREQUENCY, END = 0.8, 3.0, 2.0


def exact(t):
    """The solution that starts at 1, at rest."""
    w = math.sqrt(FREQUENCY**2 - DAMPING**2)
    return (-DAMPING * t).exp() * ((w * t).cos() + DAMPING / w * (w * t).sin())


class Position(nn.Module):
    """x(t) = 1 + t² N(t): whatever the network N is, x(0) = 1 and x'(0) = 0."""

    def __init__(self, width):
        super().__init__()
        layers = [nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)]
        self.net = nn.Sequential(*layers)

    def forward(self, t):
        return 1 + t**2 * self.net(2 * t / END - 1)


def motion(position, t):
    """Position, velocity and acceleration at the times t."""
    one = torch.ones_like(t)

    def moving(t):
        return torch.func.jvp(position, (t,), (one,))

    (x, velocity), (_, acceleration) = torch.func.jvp(moving, (t,), (one,))
    return x, velocity, acceleration


def loss_of(position, t):
    """How far the equation is from being obeyed, relative to the greatest force."""
    x, velocity, acceleration = motion(position, t)
    return ((acceleration + 2 * DAMPING * velocity + FREQUENCY**2 * x) / FREQUENCY**2).square().mean()


def main():
    parser = make_parser(__doc__, "pinn", steps=600, batch_size=64, width=32)
    parser.add_argument("--lr", type=float, default=1e-2, help="learning rate of the first step (%(default)s)")
    options = start(torch, parser)

    position = Position(options.width).to(options.device)
    optimizer = torch.optim.Adam(position.parameters(), lr=options.lr)
    checkpoint = Checkpoint(torch, options, position=position, optimizer=optimizer)
    grid = torch.linspace(0, END, 200, device=options.device)[:, None]

    def error():
        with torch.no_grad():
            return (position(grid) - exact(grid)).abs().mean().item()

    every = max(1, options.steps // 10)
    for step in progress(options.steps, checkpoint.done):
        optimizer.param_groups[0]["lr"] = options.lr * (1 - step / options.steps)
        loss = loss_of(position, (END * torch.rand(options.batch_size, 1)).to(options.device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step < 3:
            say(f"step {step + 1}  loss {loss.item():.6f}")
        if (step + 1) % every == 0:
            say(f"step {step + 1}  loss {loss.item():.6f}  off by {error():.4f}  {seconds(options)}")
            checkpoint.save(step + 1, loss=loss.item(), error=error())

    with torch.no_grad():  # forward mode needs no graph
        x, velocity, acceleration = (part.flatten().tolist() for part in motion(position, grid))
    t = grid.flatten().tolist()
    solution = {"exact": (t, exact(grid).flatten().tolist()), "network": (t, x)}
    derivatives = {"velocity": (t, velocity), "acceleration": (t, acceleration)}
    file = options.out / "pinn.svg"
    save_panels([{"title": "Position", "lines": solution}, {"title": "Its derivatives", "lines": derivatives}], file)
    print(f"off by {error():.4f} on average; {seconds(options)} in all")
    print(f"picture: {file}; weights: {checkpoint.file}")


if __name__ == "__main__":
    run(main)
