"""Proximal policy optimisation with a Gaussian policy: push a point on a line to the origin and keep it there."""

import torch
import torch.nn as nn
from torch.distributions import Independent, Normal, kl_divergence


class PointMass:
    """Many copies at once; the state is position and velocity, the reward is less the farther away."""

    def __init__(self, n):
        self.n = n

    def reset(self):
        self.state = torch.empty(self.n, 2).uniform_(-1, 1)
        return self.state

    def step(self, force):
        position, velocity = self.state.unbind(dim=1)
        velocity = 0.95 * velocity + 0.1 * force.squeeze(1).clamp(-2, 2)
        self.state = torch.stack((position + 0.1 * velocity, velocity), dim=1)
        return self.state, -(self.state**2).sum(dim=1)


def layer_init(layer, std=2**0.5, bias=0.0):
    # An orthogonal matrix would be the usual choice; LAPACK's signs differ between builds, so a scaled normal one.
    nn.init.normal_(layer.weight, std=std / layer.in_features**0.5)
    nn.init.constant_(layer.bias, bias)
    return layer


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(layer_init(nn.Linear(2, 32)), nn.Tanh(), layer_init(nn.Linear(32, 1), std=1.0))
        self.actor_mean = nn.Sequential(layer_init(nn.Linear(2, 32)), nn.Tanh(), layer_init(nn.Linear(32, 1), std=0.1))
        self.actor_logstd = nn.Parameter(torch.zeros(1, 1))

    def policy(self, x):
        mean = self.actor_mean(x)
        return Independent(Normal(mean, self.actor_logstd.expand_as(mean).exp()), 1)


def rollout(agent, env, length=12):
    """States, actions, their log-probabilities, rewards and values, each (length, copies, ...)."""
    record = []
    state = env.reset()
    with torch.no_grad():
        for _ in range(length):
            pi = agent.policy(state)
            action = pi.sample()
            next_state, reward = env.step(action)
            record.append((state, action, pi.log_prob(action), reward, agent.critic(state).squeeze(-1)))
            state = next_state
        last_value = agent.critic(state).squeeze(-1)
    return (*map(torch.stack, zip(*record)), last_value)


def advantages_of(rewards, values, last_value, gamma=0.95, lam=0.9):
    """Generalised advantage estimates (Schulman et al., 2016)."""
    advantages, running = torch.zeros_like(rewards), 0.0
    for t in reversed(range(len(rewards))):
        next_value = last_value if t == len(rewards) - 1 else values[t + 1]
        delta = rewards[t] + gamma * next_value - values[t]
        advantages[t] = running = delta + gamma * lam * running
    return advantages


def main(steps=20, clip=0.2):
    torch.manual_seed(17)
    env, agent = PointMass(8), Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3, eps=1e-5)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1.0, end_factor=0.2, total_iters=30)
    losses = []
    while len(losses) < steps:
        states, actions, old_log_probs, rewards, values, last_value = rollout(agent, env)
        advantages = advantages_of(rewards, values, last_value)
        data = [x.flatten(0, 1) for x in (states, actions, old_log_probs, advantages, advantages + values)]
        old_policy = agent.policy(data[0].clone())
        old_policy = Independent(Normal(old_policy.mean.detach(), old_policy.stddev.detach()), 1)
        for batch in torch.randperm(len(data[0])).split(48):
            s, a, old, advantage, returns = (x[batch] for x in data)
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            pi = agent.policy(s)
            ratio = (pi.log_prob(a) - old).exp()
            policy_loss = -torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()
            value_loss = 0.5 * (agent.critic(s).squeeze(-1) - returns).pow(2).mean()
            loss = policy_loss + 0.5 * value_loss - 0.01 * pi.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
            losses.append(loss.item())
        drift = kl_divergence(old_policy, agent.policy(data[0])).mean()
        losses[-1] += drift.item()
        scheduler.step()
    return losses[:steps]


if __name__ == "__main__":
    for step, loss in enumerate(main()):
        print(f"step {step}: loss {loss:.4f}")
