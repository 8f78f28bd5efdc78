"""roma: rotations that are found by descent, and averaged, mapped and interpolated."""

import json

import roma
import torch
from shared.training import some, three_steps

torch.manual_seed(0)
true = roma.random_rotmat(4)
points = torch.randn(4, 10, 3)
vector = (0.1 * torch.randn(4, 3)).requires_grad_()
losses = three_steps(
    torch.optim.Adam([vector], lr=0.1),
    lambda: (points @ roma.rotvec_to_rotmat(vector).mT - points @ true.mT).square().mean(),
)
raw = torch.randn(4, 3, 3, requires_grad=True)
nearest = roma.special_procrustes(raw)
nearest.square().mul(torch.arange(9.0).view(3, 3)).sum().backward()
a, b = roma.rotmat_to_unitquat(true), roma.random_unitquat(4)
rigid = roma.Rigid(true, torch.randn(4, 3))
found, translation = roma.rigid_points_registration(points, points @ true.mT + 1)
numbers = {
    "random": some(true), "quaternions": some(a), "vectors": some(roma.rotmat_to_rotvec(true)), "nearest": [*some(nearest), *some(raw.grad)],
    "slerp": some(roma.unitquat_slerp(a, b, torch.linspace(0, 1, 5))), "mean": some(roma.special_procrustes(true.mean(0))),
    "angle": roma.rotmat_geodesic_distance(true, roma.unitquat_to_rotmat(b)).tolist(), "product": some(roma.quat_product(a, b)),
    "euler": [*some(roma.rotmat_to_euler("XYZ", true)), *some(roma.euler_to_rotmat("zxz", torch.rand(2, 3), degrees=False))],
    "six": some(roma.special_gramschmidt(torch.randn(4, 3, 2))), "moved": some(rigid.apply(points[:, 0])), "inverse": some((rigid @ rigid.inverse()).linear),
    "registered": [*some(found), *some(translation)], "symmetric": some(roma.symmatrixvec_to_unitquat(torch.randn(4, 10))),
    "action": some(roma.quat_action(a, points[:, 0])),
}  # fmt: skip
print(json.dumps({"losses": losses, "numbers": numbers}))
