"""Names of PyTorch's that libraries use, which no test of another part reaches."""

import collections
import importlib
import inspect

import pytest

import tensorgrad as tg
from tensorgrad import compat
from tensorgrad.nn.parallel import scatter_gather
from tests.support.alike import alike, error
from tests.support.processes import output_of


def test_modes_know_initializers_by_their_module():
    program = """
        from tensorgrad import compat
        compat.install()
        import torch
        class Without(torch.overrides.TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                if func.__module__ == "torch.nn.init":
                    return (kwargs or {}).get("tensor", args[0] if args else None)
                return func(*args, **(kwargs or {}))
        torch.manual_seed(0)
        before = torch.get_rng_state()
        with Without():
            torch.nn.Linear(3, 3)
        print(torch.equal(before, torch.get_rng_state()), torch.nn.init.ones_.__module__)
        compat.uninstall()
        from tensorgrad.nn import init
        print(init.ones_.__module__)
    """
    assert output_of(inspect.cleandoc(program)).split() == ["True", "torch.nn.init", "tensorgrad.nn.init"]


def test_a_tensor_is_known_by_the_module_of_its_class():
    """As eagerpy does, which imports no framework. What names the class (annotations, pickles) leads back to it."""
    program = """
        import pickle
        import tensorgrad
        from tensorgrad import compat
        compat.install()
        import torch
        from torch import fx, nn
        assert torch.ones(1).__class__.__module__ == "torch" and torch.typename(torch.Tensor) == "torch.Tensor"
        assert repr(torch.Tensor) == "<class 'torch.Tensor'>" and repr(list[torch.Tensor]) == "list[torch.Tensor]"
        assert pickle.loads(pickle.dumps(torch.Tensor)) is torch.Tensor
        assert pickle.loads(pickle.dumps(torch.ones(2))).tolist() == [1, 1]
        class Net(nn.Module):
            def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
                return x + 1
        print(fx.symbolic_trace(Net()).code)
        compat.uninstall()
        print(repr(tensorgrad.Tensor))
    """
    printed = output_of(inspect.cleandoc(program))
    assert "x : torch.Tensor" in printed and "-> torch.Tensor" in printed
    assert printed.splitlines()[-1] == "<class 'tensorgrad.tensor.Tensor'>"


def test_torch_is_called_torch_after_install_only():
    program = """
        import tensorgrad
        from tensorgrad import compat
        before = tensorgrad.__name__
        compat.install()
        import torch, importlib, pickle
        from torch import nn, special
        importlib.import_module("torch.nn.functional")
        during = torch.__name__
        assert importlib.import_module(during) is torch and pickle.loads(pickle.dumps(torch.float32)) is torch.float32
        compat.uninstall()
        print(before, during, tensorgrad.__name__)
    """
    assert output_of(inspect.cleandoc(program)).split() == ["tensorgrad", "torch", "tensorgrad"]
    started = "from tensorgrad.compat.import_hook import start; start(); import torch; print(torch.__name__)"
    assert output_of(started).split() == ["torch"]


@alike
def test_a_class_may_disable_torch_function(torch):
    class Plain(torch.Tensor):
        __torch_function__ = torch._C._disabled_torch_function_impl

    class Marked(torch.Tensor):
        pass

    one = torch.ones(2).as_subclass(Plain)
    assert isinstance(one, Plain) and torch.overrides.has_torch_function((one,)) is False
    both = one + torch.ones(2).as_subclass(Marked)
    return type(one + 1).__name__, type(one.sum()).__name__, type(both).__name__, (one + 1).tolist()


@alike
def test_operators_that_users_write_in_another_way(torch):
    x, aten = torch.arange(12.0).reshape(3, 4), torch.ops.aten
    copy = aten._to_copy.default(x, dtype=torch.float64)
    same = aten._to_copy(x)
    view = aten.alias(x)
    view[0, 0] = 5
    assert copy.dtype == torch.float64 and same.data_ptr() != x.data_ptr() and view.data_ptr() == x.data_ptr()
    sparse = torch.eye(3).to_sparse()
    return (
        x, copy, same, aten.slice.Tensor(x, 1, 1, -1, 2), aten.slice(x), aten.slice(x, -1, start=2),
        aten.index.Tensor(x, [None, torch.tensor([1, 2])]), aten.index(x, [torch.tensor([0, 2])]),
        aten._sparse_addmm.default(torch.ones(3, 4), sparse, x, beta=2), str(aten.slice.Tensor),
        error(lambda: aten.slice(x, 0, 0, 2, 0)),
    )  # fmt: skip


@alike
def test_groups_by_device_and_dtype(torch):
    group = __import__(torch.__name__ + ".utils._foreach_utils", fromlist=["x"])._group_tensors_by_device_and_dtype
    first = [torch.ones(1), torch.ones(2, dtype=torch.float64), torch.ones(3)]
    steps = [torch.tensor(1.0), None, torch.tensor(2.0)]

    def told(groups):
        return {f"{device} {dtype}": groups[device, dtype] for device, dtype in sorted(groups, key=str)}

    found = [told(group([first, steps, first, []], with_indices=True)), told(group([first]))]
    calls = (
        lambda: group([[None], [torch.ones(1)]]),
        lambda: group([[torch.ones(1)], [torch.ones(1, dtype=torch.int64)]]),
    )
    return found, [error(call) for call in calls]


@pytest.mark.parametrize("lists", [[], [[]], [[tg.ones(1)], [tg.ones(1), tg.ones(1)]]])
def test_lists_that_cannot_be_grouped(lists):
    from tensorgrad.utils._foreach_utils import _group_tensors_by_device_and_dtype

    with pytest.raises(RuntimeError, match="_group_tensors_by_device_and_dtype: expected"):
        _group_tensors_by_device_and_dtype(lists)


def test_batches_are_scattered_and_gathered():
    Pair = collections.namedtuple("Pair", "a b")
    given = {"x": tg.arange(5), "pair": Pair(tg.arange(4).reshape(2, 2), "text"), "list": [tg.ones(2), 3], "none": ()}
    parts = scatter_gather.scatter(given, ["cpu", "cpu"])
    assert [part["x"].tolist() for part in parts] == [[0, 1, 2], [3, 4]]
    assert parts[1]["pair"].a.tolist() == [[2, 3]] and parts[1]["pair"].b == "text" and type(parts[0]["pair"]) is Pair
    assert [part["list"] for part in parts] == [[tg.ones(1), 3]] * 2 and parts[0]["none"] == ()
    joined = scatter_gather.gather([{"x": p["x"], "y": [p["pair"].a, None]} for p in parts], "cpu")
    assert joined["x"].tolist() == [0, 1, 2, 3, 4] and joined["y"][0].tolist() == [[0, 1], [2, 3]]
    assert scatter_gather.gather([Pair(tg.tensor(1.0), tg.ones(1))] * 2, "cpu").a.tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match="same number of keys"):
        scatter_gather.gather([{"x": tg.ones(1)}, {}], "cpu")
    assert scatter_gather.scatter_kwargs((), {"k": tg.arange(2)}, ["cpu", "cpu"]) == (
        ((), ()), ({"k": tg.tensor([0])}, {"k": tg.tensor([1])})
    )  # fmt: skip


def test_gradients_flow_through_scatter_and_gather():
    x = tg.arange(3.0).requires_grad_()
    parts = scatter_gather.scatter(x, ["cpu", "cpu"])
    (scatter_gather.gather([parts[1] * 2, parts[0] * 3], "cpu") * tg.tensor([1.0, 10.0, 100.0])).sum().backward()
    assert x.grad.tolist() == [30.0, 300.0, 2.0]


@alike
def test_values_as_text(torch):
    text = __import__(torch.__name__ + "._tensor_str", fromlist=["x"])._tensor_str
    many = torch.arange(2000.0).reshape(40, 50)
    return [text(torch.tensor(v), 3) for v in ([[1.0, 2.5], [3.0, 4.0]], [], 3.5, [True], [1e9, 1.0])], text(many, 0)


@alike
def test_optimizers_of_others(torch):
    class Wrapping(torch.optim.Optimizer):
        def __init__(self, inner):
            self.inner = inner
            self._optimizer_step_pre_hooks = collections.OrderedDict()
            self._optimizer_step_post_hooks = collections.OrderedDict()
            self._patch_step_function()

        def step(self):
            self.inner.step()

    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.sum().backward()
    optimizer, seen = Wrapping(torch.optim.SGD([parameter], lr=0.5)), []
    optimizer.register_step_post_hook(lambda *_: seen.append("after"))
    optimizer.step()
    return parameter, seen


def test_small_names():
    assert tg.Future is tg.futures.Future and isinstance(tg.futures.Future(), tg.Future)
    compat.install()
    try:
        import torch
        from torch.distributed._composable.fsdp import FSDPModule, fully_shard
        from torch.distributed._tensor.experimental import implicit_replication
        from torch.jit import _overload, _overload_method
        from torch.utils.data.dataloader import _collate_fn_t, _worker_init_fn_t

        assert FSDPModule is torch.distributed.fsdp.FSDPModule and fully_shard is torch.distributed.fsdp.fully_shard
        assert _overload(len) is len and _overload_method(len) is len and _collate_fn_t and _worker_init_fn_t
        assert implicit_replication is torch.distributed.tensor.experimental.implicit_replication
    finally:
        compat.uninstall()


@alike
def test_row_numbers_and_where_rows_begin(torch):
    rows, columns = torch.tensor([0, 0, 2]), torch.tensor([1, 0, 1])
    begins = torch._convert_indices_from_coo_to_csr(rows, 4)
    back = torch._convert_indices_from_csr_to_coo
    return (
        begins, torch._convert_indices_from_coo_to_csr(rows[:0], 2), back(begins, columns),
        torch._convert_indices_from_coo_to_csr(rows.int(), 3, out_int32=True),
        back(begins, columns, out_int32=True, transpose=True),
        error(lambda: torch._convert_indices_from_coo_to_csr(rows[None], 4)),
        torch._segment_reduce(torch.arange(4.0), "max", offsets=torch.tensor([0, 1, 4])),
    )  # fmt: skip


@alike
def test_files_of_layers_have_their_own_names(torch):
    import importlib

    found = {}
    for name in ("activation", "conv", "loss", "normalization", "pooling", "utils"):
        file = importlib.import_module(f"{torch.__name__}.nn.modules.{name}")
        assert set(file.__all__) <= set(vars(file))
        found[name] = sorted(file.__all__)
    state = torch.nn.DataParallel(torch.nn.Sequential(torch.nn.Linear(2, 1))).state_dict()
    file.consume_prefix_in_state_dict_if_present(state, "module.")
    return found, list(state), sorted(state._metadata)


@alike
def test_layers_share_the_bases_that_programs_ask_for(torch):
    """Counters of operations and the like ask `isinstance(layer, _MaxPoolNd)`."""
    import importlib

    bases = {
        "batchnorm": "_BatchNorm _NormBase _LazyNormBase", "conv": "_ConvNd _ConvTransposeNd _LazyConvXdMixin",
        "dropout": "_DropoutNd", "instancenorm": "_InstanceNorm", "loss": "_Loss _WeightedLoss",
        "padding": "_CircularPadNd _ConstantPadNd _ReflectionPadNd _ReplicationPadNd",
        "pooling": "_MaxPoolNd _MaxUnpoolNd _AvgPoolNd _LPPoolNd _AdaptiveMaxPoolNd _AdaptiveAvgPoolNd",
    }  # fmt: skip
    layers = [value for name, value in sorted(vars(torch.nn).items()) if isinstance(value, type)]
    found = {}
    for name, names in bases.items():
        file = importlib.import_module(f"{torch.__name__}.nn.modules.{name}")
        for base in names.split():
            found[base] = [c.__name__ for c in layers if issubclass(c, getattr(file, base))]
    return found


@alike
def test_logspace_between_tensors(torch):
    return torch.logspace(torch.tensor(0.0), torch.tensor(2.0), 3), torch.logspace(0, 2, 3, dtype=torch.int64)


@alike
def test_samples_of_wishart_as_peft_draws_them(torch):
    torch.manual_seed(0)
    wishart = torch.distributions.Wishart(torch.tensor(4.0), torch.eye(3))
    return wishart._bartlett_sampling(torch.Size()), wishart._bartlett_sampling(torch.Size((2,)))


@alike
def test_tensors_of_subclasses_are_rebuilt_as_files_say(torch):
    class Named(torch.Tensor):
        pass

    made = torch._tensor._rebuild_from_type_v2(torch.zeros, Named, (2,), ({"name_": "a"}, None))
    return type(made).__name__, made.name_, made.tolist(), torch._tensor.Tensor is torch.Tensor


@alike
def test_wrappers_that_shard_are_modules_also_to_mocks(torch):
    from unittest.mock import Mock

    wrapper = importlib.import_module(f"{torch.__name__}.distributed.fsdp").FullyShardedDataParallel
    model = Mock(spec=wrapper)
    model.modules.return_value = [model]
    told = issubclass(wrapper, torch.nn.Module), isinstance(model, wrapper), isinstance(torch.nn.Linear(1, 1), wrapper)
    return *told, len(model.modules())
