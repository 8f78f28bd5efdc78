"""A neural ordinary differential equation whose gradients come from solving the adjoint equation backwards."""

import torch
from torch import nn
from torch.autograd import Function


def rk4_step(f, t, y, dt):
    """One step of the classic Runge-Kutta method; `y` is a tuple of tensors."""

    def shifted(k, h):
        return tuple(a + h * b for a, b in zip(y, k))

    k1 = f(t, y)
    k2 = f(t + dt / 2, shifted(k1, dt / 2))
    k3 = f(t + dt / 2, shifted(k2, dt / 2))
    k4 = f(t + dt, shifted(k3, dt))
    return tuple(a + dt / 6 * (p + 2 * q + 2 * r + s) for a, p, q, r, s in zip(y, k1, k2, k3, k4))


class ODEAdjoint(Function):
    """Solves dy/dt = func(t, y) and keeps only the states at the asked times (Chen et al., 2018)."""

    @staticmethod
    def forward(ctx, y0, times, func, *params):
        states = [y0]
        with torch.no_grad():
            for t0, t1 in zip(times[:-1], times[1:]):
                (y,) = rk4_step(lambda t, y: (func(t, y[0]),), t0, (states[-1],), t1 - t0)
                states.append(y)
        ctx.func = func
        solution = torch.stack(states)
        ctx.save_for_backward(solution, times, *params)
        return solution

    @staticmethod
    def backward(ctx, grad_output):
        solution, times, *params = ctx.saved_tensors
        func = ctx.func

        def augmented(t, state):
            y, a, *_ = state
            with torch.enable_grad():
                y = y.detach().requires_grad_(True)
                dy = func(t, y)
                grads = torch.autograd.grad(dy, (y, *params), -a, allow_unused=True)
            grads = [torch.zeros_like(p) if g is None else g for g, p in zip(grads, (y, *params))]
            return (dy.detach(), *grads)

        adjoint = grad_output[-1]
        grad_params = tuple(torch.zeros_like(p) for p in params)
        for i in range(len(times) - 1, 0, -1):
            dt = times[i - 1] - times[i]
            state = rk4_step(augmented, times[i], (solution[i], adjoint, *grad_params), dt)
            adjoint, grad_params = state[1] + grad_output[i - 1], state[2:]
        return (adjoint, None, None, *grad_params)


class Dynamics(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 2))
        for m in self.net.modules():
            if isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, mean=0, std=0.1)
                nn.init.constant_(m.bias, val=0)

    def forward(self, t, y):
        return self.net(y**3)


def odeint_adjoint(func, y0, times):
    return ODEAdjoint.apply(y0, times, func, *func.parameters())


def main(steps=20):
    torch.manual_seed(2)
    true_A = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])
    times = torch.linspace(0.0, 2.0, 21)
    with torch.no_grad():
        truth = [torch.tensor([[2.0, 0.0]])]
        for t0, t1 in zip(times[:-1], times[1:]):
            truth.append(rk4_step(lambda t, y: (torch.mm(y[0] ** 3, true_A),), t0, (truth[-1],), t1 - t0)[0])
        truth = torch.stack(truth)

    func = Dynamics()
    optimizer = torch.optim.RMSprop(func.parameters(), lr=2e-3)
    losses = []
    for _ in range(steps):
        start = torch.randperm(len(times) - 8)[:6]
        batch_y = torch.stack([truth[start + i] for i in range(8)])
        optimizer.zero_grad()
        pred_y = odeint_adjoint(func, batch_y[0], times[:8])
        loss = torch.mean(torch.abs(pred_y - batch_y))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(main()):
        print(f"step {step}: loss {loss:.4f}")
