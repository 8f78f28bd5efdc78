"""mace: energies and forces of atoms, three steps, saved and loaded."""

import json
import os
import sys
import tempfile

os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"  # for the constants of e3nn 0.4

import numpy as np
import torch
from ase import Atoms
from e3nn import o3
from mace import data, modules, tools
from mace.tools import torch_geometric
from shared.training import saved_and_loaded, some

torch.set_default_dtype(torch.float64)
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
table = tools.AtomicNumberTable([1, 8])
noise = np.random.default_rng(0)


def configuration(i):
    places = np.array([[0.0, -2.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]) + 0.1 * noise.normal(size=(3, 3))
    atoms = Atoms("OHH", places)
    atoms.info["REF_energy"] = -1.5 + 0.1 * i
    atoms.arrays["REF_forces"] = 0.1 * noise.normal(size=(3, 3))
    return data.config_from_atoms(atoms, key_specification=data.KeySpecification.from_defaults())


configurations = [configuration(i) for i in range(4)]
sets = [data.AtomicData.from_config(c, z_table=table, cutoff=3.0) for c in configurations]
batch = next(iter(torch_geometric.dataloader.DataLoader(sets, batch_size=4, shuffle=False))).to_dict()


def model(kind=modules.ScaleShiftMACE, **more):
    torch.manual_seed(0)
    return kind(
        r_max=3.0, num_bessel=4, num_polynomial_cutoff=5, max_ell=2, num_interactions=2, num_elements=2,
        interaction_cls=modules.interaction_classes["RealAgnosticResidualInteractionBlock"],
        interaction_cls_first=modules.interaction_classes["RealAgnosticResidualInteractionBlock"],
        hidden_irreps=o3.Irreps("8x0e + 8x1o"), MLP_irreps=o3.Irreps("8x0e"), gate=torch.nn.functional.silu,
        atomic_energies=np.array([-0.5, -1.0]), avg_num_neighbors=2, atomic_numbers=table.zs, correlation=2, **more,
    )  # fmt: skip


losses, numbers = [], {}
for name, make in {
    "plain": lambda: model(modules.MACE),
    "scaled": lambda: model(atomic_inter_scale=1.5, atomic_inter_shift=0.2),
}.items():
    net = make()
    optimizer = torch.optim.Adam(net.parameters(), 1e-3, eps=1e-4, amsgrad=True)
    loss_of = modules.WeightedEnergyForcesLoss(1.0, 10.0)
    for _ in range(3):
        optimizer.zero_grad()
        found = net(batch, training=True)
        loss = loss_of(pred=found, ref=torch_geometric.Batch.from_data_list(sets))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    again = saved_and_loaded(net, make(), folder, f"{name}.pt")
    out = again(batch, training=False, compute_stress=False)
    numbers[name] = [out["energy"].tolist(), some(out["forces"]), some(out["node_feats"])]
print(json.dumps({"losses": losses, "numbers": numbers}))
