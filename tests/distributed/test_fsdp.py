"""Training with divided parameters."""

import dataclasses
import importlib
import importlib.util
import inspect
import warnings

import pytest

from tests.distributed.launch import HERE, needs_mpi, run
from tests.support.alike import alike


@pytest.mark.together
@needs_mpi
@pytest.mark.parametrize("size", [2, 3, 4])
def test_fully_shard_trains_like_one_process(size):
    run(size, [HERE / "fsdp_cases.py"])


@pytest.mark.together
@needs_mpi
def test_fully_shard_with_tensor_parallelism_trains_like_one_process():
    run(4, [HERE / "fsdp_tensor_parallel.py"])


@pytest.mark.together
@needs_mpi
@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_wrapper_trains_like_one_process(size):
    run(size, [HERE / "fsdp_wrapper_cases.py"])


@needs_mpi
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_the_wrapper_is_like_torch_itself(tmp_path):
    run(2, [HERE / "fsdp_wrapper_beside_torch.py", tmp_path / "store"])


def test_the_wrapper_has_all_methods_of_pytorch():
    pytest.importorskip("torch", reason="torch is not installed: nothing to compare with")
    from torch.distributed.fsdp import FullyShardedDataParallel as theirs

    from tensorgrad.distributed.fsdp import FullyShardedDataParallel as ours

    public = [name for name in vars(theirs) if not name.startswith("_")]
    assert public and not [name for name in public if not hasattr(ours, name)]
    for name in ("__init__", *public):
        if callable(getattr(theirs, name)):
            expected, got = (list(inspect.signature(getattr(cls, name)).parameters) for cls in (theirs, ours))
            assert expected[:3] == got[:3] if name == "state_dict" else expected == got, name


def test_fsdp_module_has_all_methods_of_pytorch():
    torch = pytest.importorskip("torch", reason="torch is not installed: nothing to compare with")
    from torch.distributed.fsdp import FSDPModule as theirs

    from tensorgrad.distributed.fsdp import FSDPModule as ours

    assert torch.distributed.is_available()
    assert not [name for name in vars(theirs) if not name.startswith("_") and not hasattr(ours, name)]


@pytest.mark.together
@needs_mpi
def test_training_on_gpus():
    """On emulated ones, which communicate by NCCL."""
    run(2, [HERE / "gpu_cases.py"], DEVICE="emulator")


@alike
def test_the_sharded_scaler(torch):
    dist = torch.distributed
    scalers = importlib.import_module(f"{torch.__name__}.distributed.fsdp.sharded_grad_scaler")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    groups = importlib.import_module(f"{torch.__name__}.distributed.distributed_c10d")._pg_map
    found = [[dist.group.WORLD in groups, len(groups), dist.new_group([0]) in groups, len(groups)]]
    try:
        w = torch.nn.Parameter(torch.tensor([1.0, 2.0], dtype=torch.float16))
        scaler = scalers.ShardedGradScaler("cpu", init_scale=8.0, growth_interval=2)
        optimizer = torch.optim.SGD([w], lr=0.5)
        for factor in (1.0, 1e38, 0.5, 0.25, 2.0):
            optimizer.zero_grad()
            scaler.scale((w.float() * factor).sum()).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            found.append([scaler.get_scale(), w.tolist()])
        found.append(scaler.state_dict())
    finally:
        dist.destroy_process_group()
    return found, len(groups)


@alike
def test_the_settings_of_the_wrapper(torch):
    fsdp, found = torch.distributed.fsdp, []
    for name in (
        "MixedPrecision", "CPUOffload", "StateDictConfig", "FullStateDictConfig", "LocalStateDictConfig",
        "ShardedStateDictConfig", "OptimStateDictConfig", "FullOptimStateDictConfig", "LocalOptimStateDictConfig",
        "ShardedOptimStateDictConfig", "StateDictSettings",
    ):  # fmt: skip
        kind = getattr(fsdp, name)
        fields = dataclasses.fields(kind)
        defaults = [f.default for f in fields if f.default is None or isinstance(f.default, bool)]
        found.append([name, kind.__mro__[1].__name__, [f.name for f in fields], defaults])
    made = fsdp.MixedPrecision(param_dtype=torch.float16), fsdp.FullStateDictConfig(rank0_only=True)
    assert torch.distributed.fsdp.fully_sharded_data_parallel.MixedPrecision is fsdp.MixedPrecision
    scaled = torch.distributed._make_nccl_premul_sum(2.0) == torch.distributed.ReduceOp.PREMUL_SUM
    return found, made[0].param_dtype == torch.float16, made[1].offload_to_cpu, scaled


@alike
def test_the_wrapper_in_one_process(torch):
    """Nothing is divided then."""
    dist, nn, fsdp = torch.distributed, torch.nn, importlib.import_module(f"{torch.__name__}.distributed.fsdp")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    found = []
    try:
        for keeps in (False, True):
            torch.manual_seed(0)
            inner = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                model = fsdp.FullyShardedDataParallel(inner, device_id=torch.device("cpu"), use_orig_params=keeps)
            found.append([str(w.message) for w in caught if "NO_SHARD" in str(w.message)])
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            for _ in range(2):
                model(torch.arange(6.0).reshape(2, 3)).square().sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            found.append([(name, tuple(p.shape), p.requires_grad) for name, p in model.named_parameters()])
            found.append(list(model.state_dict()))
            found.append([type(model[0]).__name__, model.training, model.module is inner])
            state = fsdp.FullyShardedDataParallel.optim_state_dict(model, optimizer)
            found.append([sorted(state["state"]), {tuple(v) for v in state["state"].values()}])
            key = fsdp.OptimStateKeyType
            plain = nn.Linear(2, 2)
            adam = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.5)
            plain(torch.ones(1, 2)).sum().backward()
            adam.step()
            for kind in (key.PARAM_NAME, key.PARAM_ID):
                new = model.rekey_optim_state_dict(adam.state_dict(), kind, plain, optim=adam)
                found.append([list(new["state"]), new["param_groups"][0]["params"]])
            answer = model.load_state_dict({"0.weight": torch.zeros(4, 3), "other": torch.ones(1)}, strict=False)
            found.append([sorted(answer.missing_keys), answer.unexpected_keys])
    finally:
        dist.destroy_process_group()
    return found
