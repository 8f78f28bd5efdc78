"""evotorch: evolution strategies and genetic algorithms on functions, networks, and batches of searches."""

import json
import math

import torch
from evotorch import Problem
from evotorch.algorithms import CEM, CMAES, PGPE, SNES, XNES, Cosyne, GeneticAlgorithm, MAPElites
from evotorch.algorithms.functional import cem, cem_ask, cem_tell, pgpe, pgpe_ask, pgpe_tell
from evotorch.decorators import vectorized
from evotorch.neuroevolution import SupervisedNE
from evotorch.operators import GaussianMutation, OnePointCrossOver, PolynomialMutation, SimulatedBinaryCrossOver
from torch import nn


@vectorized
def rastrigin(x):
    return 10 * x.shape[1] + (x**2 - 10 * torch.cos(2 * math.pi * x)).sum(1)


@vectorized
def two_goals(x):
    return torch.stack([(x**2).sum(1), ((x - 1) ** 2).sum(1)], 1)


@vectorized
def with_features(x):
    return torch.cat([(x**2).sum(1, keepdim=True), x[:, :2]], 1)


def problem(function=rastrigin, objective="min", **more):
    return Problem(objective, function, solution_length=6, seed=1, **({"initial_bounds": (-2, 2)} | more))


def goals():
    return problem(two_goals, ["min", "min"], bounds=(-2, 2), initial_bounds=None)


losses, numbers = [], {}
SEARCHES = {
    "snes": lambda: SNES(problem(), popsize=12, stdev_init=1.0),
    "xnes": lambda: XNES(problem(), popsize=12, stdev_init=1.0),
    "cem": lambda: CEM(problem(), popsize=12, parenthood_ratio=0.5, stdev_init=1.0),
    "pgpe": lambda: PGPE(
        problem(), popsize=12, center_learning_rate=0.1, stdev_learning_rate=0.1, stdev_init=1.0, optimizer="clipup",
        optimizer_config={"max_speed": 0.2},
    ),
    "cmaes": lambda: CMAES(problem(), popsize=12, stdev_init=1.0),
    "genetic": lambda: GeneticAlgorithm(
        problem(), popsize=12,
        operators=[
            SimulatedBinaryCrossOver(problem(), tournament_size=3, eta=10),
            GaussianMutation(problem(), stdev=0.1),
        ],
    ),
    "goals": lambda: GeneticAlgorithm(
        goals(), popsize=12,
        operators=[
            OnePointCrossOver(goals(), tournament_size=3),
            PolynomialMutation(goals(), eta=20, mutation_probability=0.5),
        ],
    ),
    "cosyne": lambda: Cosyne(problem(), popsize=12, tournament_size=3, mutation_stdev=0.2, num_elites=2),
    "map": lambda: MAPElites(
        problem(with_features, eval_data_length=2),
        operators=[GaussianMutation(problem(with_features, eval_data_length=2), stdev=0.2)],
        feature_grid=MAPElites.make_feature_grid([-2, -2], [2, 2], 3, device="cpu", dtype=torch.float32),
    ),
}  # fmt: skip
for name, made in SEARCHES.items():
    torch.manual_seed(0)
    search = made()
    for _ in range(3):
        search.step()
        best = search.population.evals[:, 0]
        losses.append(best[~best.isnan()].min().item())
    numbers[name] = [search.population.values.norm().item(), search.population.values[0].tolist()]

torch.manual_seed(0)
inputs = torch.randn(32, 3)
data = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True).sin())
network = SupervisedNE(
    data, nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)), nn.MSELoss(), minibatch_size=16
)
search = SNES(network, popsize=10, radius_init=1.0)
search.run(3)
trained = network.make_net(search.status["center"])
losses.append(search.status["mean_eval"])
with torch.no_grad():
    numbers["network"] = [trained(inputs).norm().item(), float(search.status["best_eval"])]

torch.manual_seed(0)
state = cem(center_init=torch.full((3, 4), 1.5), parenthood_ratio=0.5, stdev_init=1.0, objective_sense="min")
for _ in range(3):
    population = cem_ask(state, popsize=10)
    fitness = (population**2).sum(-1)
    state = cem_tell(state, population, fitness)
    losses.append(fitness.mean().item())
numbers["a batch"] = state.center.tolist()
state = pgpe(
    center_init=torch.full((2, 4), 1.5), center_learning_rate=0.1, stdev_learning_rate=0.1, stdev_init=0.5,
    objective_sense="min", optimizer="adam",
)  # fmt: skip
for _ in range(3):
    population = pgpe_ask(state, popsize=10)
    fitness = (population**2).sum(-1)
    state = pgpe_tell(state, population, fitness)
    losses.append(fitness.mean().item())
numbers["another"] = state.optimizer_state.center.tolist()
print(json.dumps({"losses": losses, "numbers": numbers}))
