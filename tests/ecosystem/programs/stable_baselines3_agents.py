"""Agents of stable-baselines3: PPO and A2C on CartPole, DQN on CartPole, SAC on Pendulum, saved and loaded."""

import json
import os
import sys
import tempfile

import torch
from stable_baselines3 import A2C, DQN, PPO, SAC
from stable_baselines3.common.evaluation import evaluate_policy

torch.set_num_threads(1)
losses, numbers = [], {}
agents = {
    "ppo": PPO("MlpPolicy", "CartPole-v1", n_steps=32, batch_size=16, n_epochs=2, seed=0, device="cpu"),
    "a2c": A2C("MlpPolicy", "CartPole-v1", n_steps=8, seed=0, device="cpu"),
    "dqn": DQN("MlpPolicy", "CartPole-v1", learning_starts=16, train_freq=4, batch_size=8, seed=0, device="cpu"),
    "sac": SAC("MlpPolicy", "Pendulum-v1", learning_starts=16, batch_size=8, seed=0, device="cpu"),
}
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
for name, agent in agents.items():
    agent.learn(total_timesteps=24 if name == "sac" else 64)
    logged = agent.logger.name_to_value
    losses.append(float(logged.get("train/loss", logged.get("train/value_loss", logged.get("train/critic_loss", 0.0)))))
    numbers[name] = [float(p.detach().abs().sum()) for p in agent.policy.parameters()]
    file = os.path.join(folder, f"{name}.zip")
    if not os.path.exists(file):
        agent.save(file)
    again = type(agent).load(file, device="cpu")
    observation = agent.observation_space.sample()
    assert (
        again.predict(observation, deterministic=True)[0] == agent.predict(observation, deterministic=True)[0]
    ).all()
    for one, other in zip(again.policy.parameters(), agent.policy.parameters()):
        torch.testing.assert_close(one, other)
numbers["reward"] = list(evaluate_policy(agents["ppo"], agents["ppo"].get_env(), n_eval_episodes=2))
print(json.dumps({"losses": losses, "numbers": numbers}))
