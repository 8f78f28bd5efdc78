"""Private names and behaviour that stopped libraries: bitsandbytes, deepspeed, torch-fidelity, torchdata."""

import pytest

from tensorgrad.compat import absent_values
from tensorgrad.compat.names_here import PRESENT, REFUSED, found
from tests.support.alike import alike
from tests.support.processes import output_of


def message_of(function, *args):
    try:
        return function(*args)
    except ValueError as error:
        return str(error)


@alike
def test_helpers_of_sizes(torch):
    utils = __import__(f"{torch.__name__}.nn.modules.utils", fromlist=["_ntuple"])
    makers = [utils._single, utils._pair, utils._triple, utils._quadruple, utils._ntuple(5), utils._ntuple(2, "two")]
    return (
        [[make(value) for value in (3, (1, 2), "ab", None, range(3))] for make in makers],
        [make.__name__ for make in makers],
        [utils._reverse_repeat_tuple((1, 2, 3), n) for n in (0, 1, 2)],
        [utils._list_with_default(size, [4, 5, 6]) for size in (3, [None, 3], [None])],
        message_of(utils._list_with_default, [1, 2, 3], [4, 5]),
    )


@alike
def test_modules_of_absent_devices(torch):
    def result(device, name, *args):
        try:
            return name, getattr(getattr(torch, device), name)(*args)
        except (RuntimeError, AssertionError) as error:
            return name, type(error).__name__, str(error)

    def entered(context):
        try:
            with context as inside:
                return inside
        except NotImplementedError as error:
            return str(error)

    mps = "current_allocated_memory driver_allocated_memory recommended_max_memory empty_cache synchronize seed"
    xpu = """current_device current_stream get_device_name get_device_properties get_device_capability init initial_seed
        mem_get_info synchronize empty_cache seed seed_all memory_allocated max_memory_allocated memory_reserved
        max_memory_reserved is_bf16_supported is_initialized is_available device_count get_rng_state"""
    return (
        [result("mps", name) for name in mps.split()],
        [result("xpu", name) for name in xpu.split()],
        [result("xpu", name, 0) for name in ("set_device", "manual_seed", "manual_seed_all", "set_stream")],
        result("mps", "set_rng_state", torch.zeros(8, dtype=torch.uint8)),
        [result("xpu", name) for name in ("Stream", "Event")],
        entered(torch.xpu.stream(None)),
        entered(torch.xpu.device(0)),
    )


@alike
def test_a_parameter_class_that_packs_its_values_when_it_moves(torch):
    class Packed(torch.nn.Parameter):
        def __new__(cls, data, packed=False, scale=None):
            self = torch.Tensor._make_subclass(cls, data, False)
            self.packed, self.scale = packed, scale
            return self

        def to(self, *args, **options):
            device, dtype, _, _ = torch._C._nn._parse_to(*args, **options)
            if not self.packed and device is not None:
                values = self.data.contiguous().to(device)
                self.scale, self.packed = values.max().item(), True
                self.data = (values / self.scale * 255).to(torch.uint8).reshape(-1, 1)
                return self
            return Packed(super().to(device=device, dtype=dtype), self.packed, self.scale)

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return super().__torch_function__(func, types, args, kwargs or {})

    def seen(weight):
        return type(weight).__name__, str(weight.dtype).split(".")[1], list(weight.shape), weight.packed, weight.scale

    def layer():
        made = torch.nn.Linear(3, 2)
        made.weight = Packed(torch.full((2, 3), 2.0))
        return made

    moves = [
        lambda m: m,
        lambda m: m.to("cpu"),
        lambda m: m.to("cpu").to("cpu"),
        lambda m: m.half(),
        lambda m: m.to("cpu", torch.float16),
        lambda m: m.to("cpu").to(torch.float64),
    ]
    packed = layer().to("cpu")
    packed.load_state_dict(packed.state_dict())
    weight = packed.weight
    kinds = [weight.data, weight.detach(), weight + 1, weight.t(), weight.clone(), weight[0]]
    return [seen(move(layer()).weight) for move in moves], seen(weight), [type(kind).__name__ for kind in kinds]


@alike
def test_what_a_parameter_class_makes_is_a_plain_tensor(torch):
    class Own(torch.nn.Parameter):
        pass

    class Asks(torch.nn.Parameter):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return super().__torch_function__(func, types, args, kwargs or {})

    class OfTensor(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return super().__torch_function__(func, types, args, kwargs or {})

    made = [Own(torch.ones(2)), Asks(torch.ones(2)), torch.ones(2).as_subclass(OfTensor)]
    uses = [
        lambda x: x + 1,
        lambda x: x.data,
        lambda x: x.detach(),
        lambda x: torch.stack([x, x]),
        lambda x: x.sum(),
        lambda x: torch.nn.functional.relu(x),
        lambda x: x.max(0).values,
    ]
    return [[type(use(x)).__name__ for use in uses] for x in made]


SCHEMAS = """
    f(Tensor! out) -> ()
    f(Tensor x, Tensor! out) -> ()
    f(Tensor(a!) x) -> Tensor(a!)
    f(Tensor(a) x) -> Tensor(a)
    f(Tensor(a->*) x) -> Tensor(a)[]
    f(Tensor! x, Tensor(b!) y, Tensor! z) -> Tensor
    f(Tensor(z0!) x, Tensor! y) -> ()
    f(Tensor[] xs, Tensor?[] ys, int[2] k, int[2]? s=None) -> Tensor[]
    f(Tensor(a!)[] out) -> ()
    f(Tensor![] out) -> ()
    f(Tensor!? out) -> ()
    f(Tensor(a!)? out=None) -> ()
    f(Tensor(a! -> a) x) -> ()
    f(Tensor(a! ) x) -> ()
    f(Tensor x, *, Tensor(a!) out) -> Tensor(a!)
    f(Tensor! x, int n, *, Tensor!? y=None) -> Tensor?
    f.out(Tensor x,Tensor! y)->Tensor
    f(SymInt x, SymInt[] y, float z=1.5, str s="a, b", bool b=True) -> (Tensor, int)
    f(int[] d=[1, 2], float[] e=[], Scalar a=1) -> (Tensor y, Tensor z)
    f(ScalarType? dtype=None, Device? d=None, Layout? l=None, bool? p=None) -> Tensor
    f(str r="mean", float e=1e-05, float x=1e10, float y=0.1, float z=2, int n=-1) -> ()
    f() -> ()
    f(Tensor x) -> None
    f(Tensor x) -> Tensor!
    f(Foo x) -> ()
"""


def test_schemas_are_read_as_torch_reads_them():
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle and is not installed")
    from tensorgrad.library.schema import parse

    def seen(read, text):
        try:
            schema = read(text)
        except RuntimeError as error:
            return "unknown type" in str(error)
        flags = [(a.name, a.kwarg_only, a.has_default_value()) for a in schema.arguments]
        writes = [
            (a.is_write if read is parse else bool(a.alias_info and a.alias_info.is_write)) for a in schema.arguments
        ]
        return str(schema), flags, writes, schema.is_mutable, [a.is_out for a in schema.arguments]

    for line in SCHEMAS.strip().splitlines():
        text = f"ns::{line.strip()}"
        assert seen(parse, text) == seen(torch._C.parse_schema, text), text


@alike
def test_exceptions_of_workers_are_raised_again(torch):
    utils = __import__(f"{torch.__name__}._utils", fromlist=["ExceptionWrapper"])

    class TwoArguments(Exception):
        def __init__(self, one, two):
            super().__init__(one, two)

    def again(error):
        try:
            raise error
        except Exception:
            wrapped = utils.ExceptionWrapper(where="in a worker")
        try:
            wrapped.reraise()
        except Exception as error:
            lines = str(error).splitlines()
            return type(error).__name__, lines[0], lines[1], lines[-1]

    return [again(error) for error in (ValueError("no"), KeyError("key"), TwoArguments(1, 2), OSError(3, "text"))]


@alike
def test_helpers_of_checkpoints(torch):
    import warnings

    tools = __import__(f"{torch.__name__}.utils.checkpoint", fromlist=["detach_variable"])
    x = torch.ones(2, requires_grad=True)
    made = tools.detach_variable((x, x * 2, torch.zeros(1), 3))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tools.check_backward_validity([x])
        tools.check_backward_validity([torch.ones(1), 2])
    try:
        tools.detach_variable([x])
        message = None
    except RuntimeError as error:
        message = str(error).split("input type")[0]
    return [(v.requires_grad, v.is_leaf) for v in made[:3]], made[3], [str(w.message) for w in caught], message


@alike
def test_helpers_of_optimizers(torch):
    optimizer = __import__(f"{torch.__name__}.optim.optimizer", fromlist=["Optimizer"])
    plain, whole = [torch.ones(2), torch.nn.Parameter(torch.ones(1))], [torch.ones(2, dtype=torch.int64)]
    groups = torch.optim.Optimizer._group_tensors_by_device_and_dtype([plain, [None, None]])
    return (
        [
            optimizer._default_to_fused_or_foreach(p, d, f)
            for p in (plain, whole)
            for d in (True, False)
            for f in (0, 1)
        ],
        "cuda" in optimizer._get_capturable_supported_devices(),
        len(groups),
        [len(lists) for lists, _ in groups.values()],
    )


def loss_scaling():
    """deepspeed calls the two ops behind `GradScaler`."""

    @alike
    def scenario(torch):
        if torch.__name__ == "torch":
            update, unscale = torch._amp_update_scale_, torch._amp_foreach_non_finite_check_and_unscale_
        else:
            update, unscale = absent_values.amp_update_scale, absent_values.amp_unscale
        found = []
        for infinite, tracked, start in ((0.0, 1, 8.0), (0.0, 0, 8.0), (1.0, 1, 8.0), (0.0, 1, 3e38)):
            scale, tracker = torch.tensor([start]), torch.tensor([tracked], dtype=torch.int32)
            update(scale, tracker, torch.tensor([infinite]), 2.0, 0.5, 2)
            found += [scale, tracker]
        for value in (1.0, float("inf"), float("nan")):
            gradients, flag = [torch.tensor([2.0, value]), torch.tensor(4.0)], torch.tensor([0.0])
            unscale(gradients, flag, torch.tensor(0.5))
            found += [*gradients, flag]
        return found

    return scenario


test_loss_scaling = loss_scaling()


@alike
def test_named_results_exist_before_the_first_call(torch):
    first = ("linalg_", "max", "sort", "lu_", "qr", "svd")
    names = [name for name in vars(torch.return_types) if name.startswith(first) and not name.endswith("_out")]
    made = [getattr(torch.return_types, name) for name in sorted(names)]
    return sorted(names), [made_of(torch, each) for each in made]


def made_of(torch, kind):
    return kind.__name__, kind.n_fields, list(kind.__match_args__)


def test_every_named_result_can_be_read_by_another_process():
    program = "import tensorgrad as torch; print([t.__name__ for t in torch.return_types.all_return_types])"
    assert "'linalg_svd'" in output_of(program) and "'triangular_solve'" in output_of(program)


@alike
def test_fetchers_as_torchdata_uses_them(torch):
    data = torch.utils.data

    class Numbers(data.IterableDataset):
        def __iter__(self):
            return iter(range(5))

    def all_of(fetcher, index):
        found = []
        while True:
            try:
                found.append(fetcher.fetch(index))
            except StopIteration:
                return found, fetcher.ended

    make, kind = data._DatasetKind.create_fetcher, data._DatasetKind
    return (
        make(kind.Map, [1, 2, 3], True, list, False).fetch([2, 0]),
        make(kind.Map, [1, 2, 3], False, str, False).fetch(1),
        [all_of(make(kind.Iterable, Numbers(), True, list, drop), [None] * 2) for drop in (True, False)],
        all_of(make(kind.Iterable, Numbers(), False, str, False), None),
        next(iter(data.dataloader._InfiniteConstantSampler())),
    )


def test_a_class_that_only_refuses_is_not_counted_as_present():
    state, place, reason = found("torch.distributed.fsdp.DataParallelMeshDims.shard")
    assert (state, place) == (REFUSED, "torch.distributed.fsdp.DataParallelMeshDims") and "fully_shard" in reason
    assert found("torch.distributed.fsdp.FullyShardedDataParallel.state_dict_type").state == PRESENT
    assert found("torch.utils.data.graph_settings.apply_sharding").state == PRESENT
