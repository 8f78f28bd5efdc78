"""Steps of optimizers over all parameters at once, norms of gradients: the numbers of the CPU, in few launches."""

import copy
import os
import threading

import numpy as np
import pytest

import tensorgrad as torch
from tensorgrad.kernels.cuda.runtime import launch, program

cupy = pytest.importorskip("cupy")
SHAPES = [(3,), (129, 130), (), (1, 7, 5), (0, 4)]  # one of them more than one block, one empty
emulated = pytest.mark.skipif(os.environ.get("DEVICE") != "emulator", reason="counts what the emulator launches")

SETTINGS = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "weight_decay": 0.01, "maximize": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}),
    ("Adam", {"lr": 0.01}),
    ("Adam", {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-4, "weight_decay": 0.1, "maximize": True}),
    ("Adam", {"lr": 0.01, "amsgrad": True}),
    ("AdamW", {"lr": 0.01, "weight_decay": 0.1}),
    ("AdamW", {"lr": 0.01, "weight_decay": 0.1, "amsgrad": True, "maximize": True}),
]
NAMES = [f"{name} {', '.join(f'{k} {v}' for k, v in given.items())}" for name, given in SETTINGS]
TOLERANCE = {"float32": 2e-6, "float64": 1e-13, "float16": 2e-3, "bfloat16": 2e-2}


def values(seed, shapes=SHAPES):
    generator = np.random.default_rng(seed)
    return [generator.standard_normal(shape).astype(np.float32) for shape in shapes]


def trained(name, settings, device, dtype="float32", steps=3, shapes=SHAPES):
    """The parameters and the optimizer after some steps with the same gradients everywhere."""
    dtype = getattr(torch, dtype)
    made = [torch.tensor(x, dtype=dtype, device=device, requires_grad=True) for x in values(0, shapes)]
    optimizer = getattr(torch.optim, name)(made, **settings)
    for step in range(steps):
        for p, g in zip(made, values(step + 1, shapes)):
            p.grad = torch.tensor(g, dtype=dtype, device=device)
        if step == 1:
            made[0].grad = None  # it falls behind: its count of steps differs from then on
        optimizer.step()
    return made, optimizer


def assert_near(here, there, dtype="float32"):
    tolerance = TOLERANCE[dtype]
    for a, b in zip(here, there, strict=True):
        assert a.dtype is b.dtype and a.shape == b.shape
        np.testing.assert_allclose(
            a.detach().cpu().double().numpy(), b.detach().cpu().double().numpy(), tolerance, tolerance
        )


class Names(list):
    told = 0


@pytest.fixture
def launched(monkeypatch):
    """The names of the kernels that were launched, in their order; `told` counts launches that only carry addresses."""
    names = Names()
    function = program.function

    def watched(family, name, *rest, **settings):
        class Watched(launch.Function):
            def __call__(self, *given, **options):
                if (family, name) == ("optim", "tell"):
                    names.told += 1
                else:
                    names.append(f"{family}.{name}")
                super().__call__(*given, **options)

        return Watched(function(family, name, *rest, **settings).raw)

    monkeypatch.setattr(program, "function", watched)
    return names


@pytest.mark.parametrize(("name", "settings"), SETTINGS, ids=NAMES)
def test_a_step_moves_parameters_as_on_the_cpu(name, settings, device):
    here, optimizer = trained(name, settings, device)
    there, reference = trained(name, settings, "cpu")
    assert_near(here, there)
    for p, q in zip(here, there):
        kept, expected = optimizer.state[p], reference.state[q]
        assert list(kept) == list(expected)
        assert_near(kept.values(), expected.values())


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize(("name", "settings"), [SETTINGS[3], SETTINGS[8]], ids=["SGD", "AdamW"])
def test_a_step_in_other_dtypes(name, settings, dtype, device):
    assert_near(trained(name, settings, device, dtype)[0], trained(name, settings, "cpu", dtype)[0], dtype)


@pytest.mark.parametrize(("name", "settings"), SETTINGS[2:9:2], ids=NAMES[2:9:2])
def test_a_step_agrees_with_pytorch(name, settings, device):
    reference = pytest.importorskip("torch")
    there = [reference.tensor(x, requires_grad=True) for x in values(0)]
    optimizer = getattr(reference.optim, name)(there, **settings)
    for step in range(3):
        for p, g in zip(there, values(step + 1)):
            p.grad = reference.tensor(g)
        if step == 1:
            there[0].grad = None
        optimizer.step()
    for a, b in zip(trained(name, settings, device)[0], there):
        np.testing.assert_allclose(a.detach().cpu().numpy(), b.detach().numpy(), 1e-5, 1e-6)


@pytest.mark.parametrize(("name", "settings"), SETTINGS, ids=NAMES)
def test_a_group_is_one_launch(name, settings, device, launched):
    made, optimizer = trained(name, settings, device, steps=1)
    launched.clear()
    for p in made:
        p.grad = torch.ones_like(p)
    optimizer.step()
    assert len(launched) == 1 and launched[0].startswith("optim.")


def test_parameters_with_gaps_or_mixed_dtypes_go_the_general_way(device):
    def moved(device):
        base = torch.tensor(values(0, [(6, 8)])[0], device=device)
        gaps = base[:, ::2].requires_grad_()
        plain = torch.tensor(values(1, [(4,)])[0], device=device, requires_grad=True)
        gaps.grad, plain.grad = torch.ones(6, 4, device=device), torch.ones(4, device=device)
        torch.optim.Adam([gaps, plain], lr=0.1).step()
        return [base, plain]

    assert_near(moved(device), moved("cpu"))


def test_orders_of_dimensions_that_differ(device, launched):
    def moved(device):
        w, images, x = (torch.tensor(v, device=device) for v in values(0, [(5, 7), (6, 4, 3, 3), (8, 5)]))
        w = w.T.requires_grad_()  # a parameter that is itself transposed
        v = torch.tensor(values(1, [(5, 7)])[0], device=device, requires_grad=True)
        last = images.to(memory_format=torch.channels_last).requires_grad_()
        ((x @ w.T).square().sum() + (x.T @ x).mm(v).sum() + (last * last).sum()).backward()
        v.grad = v.grad.T.contiguous().T  # in another order than v
        optimizer = torch.optim.Adam([w, v, last], lr=0.1)
        launched.clear()
        total = torch.nn.utils.clip_grad_norm_([w, v, last], 1.0)
        optimizer.step()
        return [w, v, last, total]

    here = moved(device)
    assert launched == ["optim.total_norm", "optim.clip", "optim.adam"]
    assert_near(here, moved("cpu"))


def test_an_infinite_parameter_without_decay_stays(device):
    p = torch.tensor([np.inf, 1.0], device=device, requires_grad=True)
    p.grad = torch.ones(2, device=device)
    torch.optim.SGD([p], lr=0.5).step()
    assert p.tolist() == [np.inf, 0.5]


def test_pieces_of_one_memory_are_aligned_as_they_come(device):
    def moved(device):
        base = torch.tensor(values(0, [(103,)])[0], device=device)
        pieces = [base[1:50].requires_grad_(), base[50:53].requires_grad_(), base[54:].requires_grad_()]
        for p in pieces:
            p.grad = torch.ones_like(p)
        torch.optim.SGD(pieces, lr=0.1, momentum=0.9).step()
        return [base]

    assert_near(moved(device), moved("cpu"))


def test_a_step_counts_as_a_write(device):
    x = torch.ones(3, device=device, requires_grad=True)
    loss = (x * x).sum()
    x.grad = torch.ones(3, device=device)
    torch.optim.SGD([x], lr=0.1).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_state_is_saved_and_read(device):
    made, optimizer = trained("Adam", {"lr": 0.01}, device)
    saved = copy.deepcopy(optimizer.state_dict())
    others = [p.detach().clone().requires_grad_() for p in made]
    other = torch.optim.Adam(others, lr=0.01)
    other.load_state_dict(saved)
    for p, q, g in zip(made, others, values(9)):
        p.grad, q.grad = torch.tensor(g, device=device), torch.tensor(g, device=device)
    optimizer.step()
    other.step()
    assert_near(made, others)


@pytest.mark.filterwarnings("ignore:This instance was constructed with capturable=True")
@pytest.mark.parametrize("flag", ["fused", "capturable"])
def test_counts_of_steps_on_the_gpu_are_counted_there(flag, device):
    made, optimizer = trained("Adam", {"lr": 0.01, flag: True}, device)
    steps = [optimizer.state[p]["step"] for p in made]
    assert all(step.device.type == "cuda" for step in steps)
    assert [step.item() for step in steps] == [2.0, 3.0, 3.0, 3.0, 3.0]
    assert_near(made, trained("Adam", {"lr": 0.01}, "cpu")[0])
    steps[1].fill_(100.0)  # by somebody else
    optimizer.step()
    assert [step.item() for step in steps] == [3.0, 101.0, 4.0, 4.0, 4.0]


@pytest.mark.parametrize("name", ["RMSprop", "Adagrad", "NAdam", "Adadelta", "ASGD", "Rprop", "RAdam", "Adamax"])
def test_other_optimizers_run_by_array_operations(name, device):
    assert_near(trained(name, {"lr": 0.01}, device)[0], trained(name, {"lr": 0.01}, "cpu")[0])


# --- gradients -------------------------------------------------------------------------------------------------------


def with_gradients(device, scale=1.0, dtype="float32"):
    made = []
    for x in values(5):
        p = torch.zeros(x.shape, dtype=getattr(torch, dtype), device=device, requires_grad=True)
        p.grad = torch.tensor(x * scale, dtype=getattr(torch, dtype), device=device)
        made.append(p)
    return made


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("limit", [1.0, 1e9])
def test_gradients_are_clipped_as_on_the_cpu(limit, dtype, device):
    here, there = with_gradients(device, 0.25, dtype), with_gradients("cpu", 0.25, dtype)
    norms = [torch.nn.utils.clip_grad_norm_(each, limit) for each in (here, there)]
    assert norms[0].device.type == "cuda" and norms[0].shape == ()
    tolerance = 1e-5 if dtype in ("float32", "float64") else TOLERANCE[dtype]
    assert norms[0].dtype is norms[1].dtype and abs(norms[0].item() / norms[1].item() - 1) < tolerance
    for p, q in zip(here, there):
        np.testing.assert_allclose(p.grad.cpu().double().numpy(), q.grad.double().numpy(), tolerance, tolerance)


def test_clipping_is_two_launches_and_waits_for_nothing(device, launched):
    made = with_gradients(device)
    torch.nn.utils.clip_grad_norm_(made, 1.0)
    assert launched == ["optim.total_norm", "optim.clip"]
    with pytest.raises(RuntimeError, match="non-finite"):
        made[0].grad[0] = np.nan
        torch.nn.utils.clip_grad_norm_(made, 1.0, error_if_nonfinite=True)


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_a_norm_that_is_not_finite_scales_as_on_the_cpu(value, device):
    here, there = with_gradients(device), with_gradients("cpu")
    for made in (here, there):
        made[1].grad[3, 3] = value
        torch.nn.utils.clip_grad_norm_(made, 1.0)
    for p, q in zip(here, there):
        np.testing.assert_array_equal(p.grad.cpu().numpy(), q.grad.numpy())


def test_other_norms_and_a_norm_from_elsewhere(device):
    here, there = with_gradients(device)[:4], with_gradients("cpu")[:4]
    for degree in (1.0, float("inf"), 3.0):
        a, b = (torch.nn.utils.clip_grad_norm_(made, 0.5, degree) for made in (here, there))
        assert abs(a.item() / b.item() - 1) < 1e-5
    for made in (here, there):
        torch.nn.utils.clip_grads_with_norm_(made, 0.1, torch.tensor(2.0, device=made[0].device))
    for p, q in zip(here, there):
        np.testing.assert_allclose(p.grad.cpu().numpy(), q.grad.numpy(), 1e-5, 1e-7)


def test_the_norm_does_not_depend_on_the_run(device):
    made = with_gradients(device)
    assert len({torch.nn.utils.get_total_norm([p.grad for p in made]).item() for _ in range(5)}) == 1


def test_parameters_on_two_gpus_are_two_launches(device, launched):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")

    def moved(*devices):
        made = [torch.tensor(x, device=d, requires_grad=True) for x, d in zip(values(0), devices)]
        for p, g in zip(made, values(1)):
            p.grad = torch.tensor(g, device=p.device)
        total = torch.nn.utils.clip_grad_norm_(made, 1.0)
        torch.optim.AdamW(made, lr=0.1).step()
        return [*made, total]

    here = moved("cuda:1", "cuda:0", "cuda:1")
    assert launched.count("optim.adam") == 2 and [p.device.index for p in here] == [1, 0, 1, 1]
    assert_near(here, moved("cpu", "cpu", "cpu"))
    scaler, p = torch.amp.GradScaler("cuda", init_scale=4.0), here[0]
    scaler.scale(here[1].sum())  # its scale is on the other GPU
    p.grad = torch.full_like(p, 8.0)
    optimizer = torch.optim.SGD([p], lr=1.0)
    scaler.unscale_(optimizer)
    assert p.grad.tolist() == [2.0, 2.0, 2.0]
    p.grad[0] = float("inf")
    scaler.update()
    assert scaler.get_scale() == 4.0


@pytest.mark.parametrize("name", ["RMSprop", "Adafactor", "Muon", "Adam"])
def test_optimizers_move_parameters_of_a_gpu_that_is_not_the_current_one(name, device):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")

    def moved(device):
        p = torch.tensor(values(0, [(4, 6)])[0].T.copy(), device=device, requires_grad=True)
        optimizer = getattr(torch.optim, name)([p], lr=0.1)

        def closure():
            optimizer.zero_grad()
            loss = (p * p).sum() * 0.5
            loss.backward()
            return loss

        for _ in range(2):
            optimizer.step(closure)
        gaps = torch.ones(4, 6, device=device)[:, ::2].requires_grad_()  # what no kernel takes
        gaps.grad = torch.ones(4, 3, device=device)
        getattr(torch.optim, name)([gaps], lr=0.1).step()
        return [p, gaps]

    assert_near(moved("cuda:1"), moved("cpu"))


# --- the machine -----------------------------------------------------------------------------------------------------


@emulated
def test_a_step_and_clipping_copy_nothing_to_the_host(device):
    import cupyx

    made, optimizer = trained("AdamW", {"lr": 0.01, "fused": True}, device)
    with cupyx.allow_synchronize(False):
        for p in made:
            p.grad = torch.ones_like(p)
        torch.nn.utils.clip_grad_norm_(made, 1.0)
        optimizer.step()


def test_addresses_of_gradients_are_told_when_they_change(device, launched):
    x, y = (torch.nn.Parameter(torch.ones(3, device=device)) for _ in range(2))
    optimizer = torch.optim.SGD([x, y], lr=0.5)
    x.grad, y.grad = torch.full_like(x, 1.0), torch.full_like(y, 2.0)
    optimizer.step()
    optimizer.step()
    assert launched == ["optim.sgd"] * 2 and launched.told == 1
    x.grad, y.grad = y.grad, x.grad
    optimizer.step()
    assert launched.told == 2
    assert x.tolist() == [-1.0] * 3 and y.tolist() == [-1.5] * 3


def test_more_parameters_than_addresses_in_a_launch(device, launched):
    from tensorgrad.kernels.cuda import optim

    count = optim.TOLD + 3
    made = [torch.nn.Parameter(torch.full((2,), float(i), device=device)) for i in range(count)]
    for i, p in enumerate(made):
        p.grad = torch.full_like(p, float(i))
    torch.optim.SGD(made, lr=1.0).step()
    assert launched == ["optim.sgd"] and launched.told == 2
    assert all(p.tolist() == [0.0, 0.0] for p in made)
    total = torch.nn.utils.clip_grad_norm_(made, 1.0)
    assert float(total) == pytest.approx((2 * sum(i * i for i in range(count))) ** 0.5, rel=1e-6)


def test_threads_tell_tables_of_their_own(device):
    """Gradients of the same sizes in several threads: between telling addresses and clipping there may be others'."""
    wrong = []

    def work(scale):
        p = torch.nn.Parameter(torch.ones(4, device=device))
        for _ in range(20):
            p.grad = torch.full_like(p, scale)
            if float(torch.nn.utils.clip_grad_norm_([p], 1e9)) != pytest.approx(2 * scale):
                wrong.append(scale)

    threads = [threading.Thread(target=work, args=(float(i + 1),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_error_between_two_launches_changes_no_later_step(monkeypatch):
    """The gradients' addresses reach the GPU's table by a launch that may fail, as when memory is short."""
    from tensorgrad.kernels.cuda import optim

    p = torch.zeros(7, device="cuda", requires_grad=True)
    optimizer = torch.optim.SGD([p], lr=1.0)
    p.grad = torch.ones_like(p)
    optimizer.step()
    first, p.grad = p.grad, torch.full_like(p, 2.0)  # the first is kept, so that it has another address
    with monkeypatch.context() as patch:
        patch.setattr(optim.program, "function", lambda *given: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            optimizer.step()
    optimizer.step()
    assert first.cpu().tolist() == [1.0] * 7 and p.detach().cpu().tolist() == [-3.0] * 7
