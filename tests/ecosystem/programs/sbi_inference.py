"""sbi: flows and a mixture learn a posterior from simulations, a flow the likelihood, a classifier the ratio of both."""

import json
import os
import sys
import tempfile
import warnings

import torch
from sbi.inference import NPE, NRE
from sbi.neural_nets import classifier_nn, likelihood_nn, posterior_nn
from sbi.utils import BoxUniform
from shared.training import saved_and_loaded, some, three_steps

warnings.simplefilter("ignore")


def simulated(count):
    theta = BoxUniform(low=-2 * torch.ones(3), high=2 * torch.ones(3)).sample((count,))
    return theta, theta + 0.1 * torch.randn(count, 3)


torch.manual_seed(0)
theta, x = simulated(100)
losses, numbers = [], {}
for kind in ("maf", "nsf", "mdn"):
    torch.manual_seed(1)
    net = posterior_nn(kind, hidden_features=10, num_transforms=2, num_components=3)(theta, x)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    losses += three_steps(optimizer, lambda net=net: net.loss(theta, condition=x).mean())
    with torch.no_grad():
        numbers[kind] = net.log_prob(theta[None, :5], condition=x[:5]).flatten().tolist()
        torch.manual_seed(2)
        numbers[f"{kind} samples"] = some(net.sample((3,), condition=x[:2]))
    if kind == "maf":
        again = posterior_nn(kind, hidden_features=10, num_transforms=2)(theta, x)
        folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
        again = saved_and_loaded(net, again, folder)
        with torch.no_grad():
            numbers["loaded"] = again.log_prob(theta[None, :5], condition=x[:5]).flatten().tolist()

torch.manual_seed(1)
net = likelihood_nn("maf", hidden_features=10, num_transforms=2)(theta, x)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
losses += three_steps(optimizer, lambda: net.loss(x, condition=theta).mean())

torch.manual_seed(1)
net = classifier_nn("resnet", hidden_features=10)(theta, x)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
apart = torch.nn.functional.binary_cross_entropy_with_logits
losses += three_steps(
    optimizer,
    lambda: apart(net(theta, x), torch.ones(100)) + apart(net(theta.roll(1, 0), x), torch.zeros(100)),
)
with torch.no_grad():
    numbers["ratio"] = net(theta[:5], x[:5]).tolist()

os.chdir(tempfile.mkdtemp())  # its own training writes a log into the current folder
prior = BoxUniform(low=-2 * torch.ones(3), high=2 * torch.ones(3))
for method, options in ((NPE, {"density_estimator": "maf"}), (NRE, {"classifier": "resnet"})):
    torch.manual_seed(3)
    theta, x = simulated(100)
    inference = method(prior=prior, show_progress_bars=False, **options)
    net = inference.append_simulations(theta, x).train(max_num_epochs=2, training_batch_size=45)
    numbers[method.__name__] = [*inference.summary["training_loss"], *inference.summary["validation_loss"]]
    if method is NPE:
        torch.manual_seed(4)
        posterior = inference.build_posterior(net)
        numbers["posterior"] = some(posterior.sample((4,), x=x[0], show_progress_bars=False))
    else:  # learned but for a constant: its loss is a softmax, so Adam moves the last bias by what rounding leaves
        with torch.no_grad():
            ratio = net(theta[:5], x[:5]).flatten()
        numbers["NRE ratio"] = (ratio - ratio.mean()).tolist()
print(json.dumps({"losses": losses, "numbers": numbers}))
