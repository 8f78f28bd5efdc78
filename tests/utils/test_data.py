"""Data sets, samplers, collating and the loader against PyTorch: the same seed gives the same batches."""

import pickle
import re
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Mapping
from itertools import product
from types import MappingProxyType

import numpy as np
import pytest

import tensorgrad as tg
from tensorgrad.utils import data

try:
    import torch
    import torch.utils.data as torch_data
except ImportError:
    torch = None

needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is the oracle of this test and is not installed")

Point = namedtuple("Point", "x y")


def plain(value):
    """Converts a batch to plain data: tensors become (dtype, list), other values are kept."""
    if hasattr(value, "tolist") and hasattr(value, "dtype") and not isinstance(value, np.ndarray | np.generic):
        return str(value.dtype), value.tolist()
    if isinstance(value, Mapping):
        return type(value).__name__, {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | deque):
        return type(value).__name__, [plain(v) for v in value]
    return value


def yielded_by_both(story):
    """Returns what a story yields with each library from one seed, and the random value that follows."""
    found = []
    for lib, d in ((tg, data), (torch, torch_data)):
        lib.manual_seed(11)
        found.append([plain(x) for x in story(lib, d)] + [lib.rand(1).item()])
    return found


def assert_same_batches(story):
    mine, theirs = yielded_by_both(story)
    assert mine == theirs


def tensors(lib, d, n=10):
    return d.TensorDataset(lib.arange(n).float().reshape(n, 1) * 0.5, lib.arange(n))


LOADERS = {
    "default": {},
    "batches": {"batch_size": 3},
    "drop last": {"batch_size": 3, "drop_last": True},
    "shuffled": {"batch_size": 4, "shuffle": True},
    "shuffled, drop last": {"batch_size": 4, "shuffle": True, "drop_last": True},
    "samples": {"batch_size": None},
    "samples, shuffled": {"batch_size": None, "shuffle": True},
    "own function": {"batch_size": 2, "collate_fn": len},
    "pinned": {"batch_size": 5, "pin_memory": False, "persistent_workers": False, "in_order": True},
}


@needs_torch
@pytest.mark.parametrize("options", LOADERS.values(), ids=LOADERS)
def test_loader(options):
    def story(lib, d):
        loader = d.DataLoader(tensors(lib, d), **options)
        yield len(loader)
        for _ in range(3):
            yield from loader
        first = iter(loader)
        yield next(first), next(iter(loader)), len(first)

    assert_same_batches(story)


@needs_torch
@pytest.mark.parametrize("what", ["list", "subset", "concat", "getitems", "chunked dictionary", "requires grad"])
def test_loader_of(what):
    def story(lib, d):
        if what == "list":
            dataset = [(lib.ones(2) * i, i, "text", float(i)) for i in range(7)]
        elif what == "subset":
            dataset = d.Subset(d.Subset(tensors(lib, d), [8, 6, 4, 2, 0]), [3, 1, 0])
        elif what == "concat":
            dataset = tensors(lib, d, 3) + tensors(lib, d, 4)
        elif what == "getitems":
            dataset = d.StackDataset(tensors(lib, d), d.Subset(range(20, 30), range(10)))
        elif what == "requires grad":
            dataset = d.TensorDataset(lib.arange(4.0).requires_grad_(), lib.arange(4))
        else:
            dataset = d.StackDataset(a=range(5), b=[f"s{i}" for i in range(5)])
        yield from d.DataLoader(dataset, batch_size=3, shuffle=True)

    if what == "requires grad":
        for x, _ in data.DataLoader(data.TensorDataset(tg.ones(4, requires_grad=True), tg.arange(4)), batch_size=2):
            assert x.requires_grad
    assert_same_batches(story)


@needs_torch
def test_loader_with_a_generator():
    def story(lib, d):
        g = lib.Generator().manual_seed(3)
        loader = d.DataLoader(tensors(lib, d), batch_size=4, shuffle=True, generator=g)
        yield from loader
        yield from loader
        yield lib.randint(1000, (3,), generator=g)

    assert_same_batches(story)


@needs_torch
def test_loader_with_samplers():
    def story(lib, d):
        ds = tensors(lib, d)
        yield from d.DataLoader(ds, batch_size=3, sampler=d.RandomSampler(ds, replacement=True, num_samples=70))
        yield from d.DataLoader(ds, batch_size=3, sampler=d.RandomSampler(ds, num_samples=25))
        yield from d.DataLoader(ds, batch_size=3, sampler=d.SubsetRandomSampler([5, 6, 7, 9]))
        yield from d.DataLoader(ds, batch_sampler=d.BatchSampler(d.SequentialSampler(ds), 4, False))
        yield from d.DataLoader(ds, batch_sampler=[[1, 2], [3]])
        yield from d.DataLoader(ds, sampler=[4, 2])
        weights = [0.1, 0.5, 0.2, 0.9, 0.0]
        yield list(d.WeightedRandomSampler(weights, 6))
        yield list(d.WeightedRandomSampler(weights, 3, replacement=False))
        yield len(d.BatchSampler(range(7), 3, True)), len(d.BatchSampler(range(7), 3, False))
        yield list(d.BatchSampler(range(7), 3, True)), list(d.BatchSampler(range(7), 3, False))

    assert_same_batches(story)


@needs_torch
def test_samplers_at_every_size():
    def story(lib, d):
        for n, generator in product((1, 5, 40), (None, lib.Generator().manual_seed(4))):
            for replacement, number in product((False, True), (None, 1, 3, 32, 33, 64, 150)):
                yield list(d.RandomSampler(range(n), replacement, number, generator))
            yield list(d.SubsetRandomSampler(range(n), generator))
            weights = [i + 1.0 for i in range(n)]
            yield list(d.WeightedRandomSampler(weights, 7, True, generator))
            yield list(d.WeightedRandomSampler(weights, min(n, 4), False, generator))
            for size, drop_last in product((1, 3, 7), (False, True)):
                sampler = d.BatchSampler(d.RandomSampler(range(n), generator=generator), size, drop_last)
                yield list(sampler), len(sampler)

    assert_same_batches(story)


@needs_torch
def test_distributed_sampler():
    def story(lib, d):
        for n, replicas, drop_last, shuffle in product((0, 1, 3, 7, 10), (1, 2, 4, 12), (False, True), (False, True)):
            if n == 0 and not drop_last:
                continue
            for rank in range(replicas):
                sampler = d.distributed.DistributedSampler(
                    range(n), replicas, rank, shuffle=shuffle, drop_last=drop_last, seed=5
                )
                sampler.set_epoch(3)
                yield len(sampler), sampler.total_size, list(sampler)
        yield from d.DataLoader(range(7), batch_size=2, sampler=d.DistributedSampler(range(7), 2, 1))
        for replicas, rank in ((2, 2), (3, -1)):
            with pytest.raises(ValueError) as error:
                d.DistributedSampler(range(3), replicas, rank)
            yield str(error.value)

    assert_same_batches(story)


@pytest.mark.parametrize("available", [False, True])
def test_distributed_sampler_without_a_group(available, monkeypatch):
    monkeypatch.setattr("tensorgrad.distributed.mpi.library.available", lambda: available)
    expected = (
        "Default process group has not been init" if available else "Requires distributed package to be available"
    )
    with pytest.raises(ValueError if available else RuntimeError, match=expected):
        data.DistributedSampler(range(3), rank=0)


def test_distributed_sampler_takes_its_share_from_the_group():
    dist = tg.distributed
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        assert list(data.DistributedSampler(range(3), shuffle=False)) == [0, 1, 2]
    finally:
        dist.destroy_process_group()


@needs_torch
def test_when_random_numbers_are_drawn():
    """A sampler, and an iterable data set, that shuffle as soon as their iterator is created."""

    def story(lib, d):
        class Eager(d.Sampler):
            def __init__(self):
                pass

            def __iter__(self):
                return iter(lib.randperm(6).tolist())

            def __len__(self):
                return 6

        class Stream(d.IterableDataset):
            def __iter__(self):
                return iter(lib.randperm(6).tolist())

        for dataset, options in ((range(6), {"sampler": Eager()}), (Stream(), {})):
            loader = d.DataLoader(dataset, batch_size=2, **options)
            iterator = iter(loader)
            yield lib.rand(1)
            yield from iterator
            yield from loader

    assert_same_batches(story)


@needs_torch
def test_an_error_does_not_end_the_pass():
    def story(lib, d):
        class Bad(d.Dataset):
            def __len__(self):
                return 6

            def __getitem__(self, i):
                if i == 2:
                    raise ValueError("two")
                return i

        class Stream(d.IterableDataset):
            def __iter__(self):
                return iter(range(7))

        def picky(batch):
            if 2 in batch:
                raise ValueError("two")
            return batch

        for loader in (d.DataLoader(Bad(), batch_size=2), d.DataLoader(Stream(), batch_size=2, collate_fn=picky)):
            iterator = iter(loader)
            for _ in range(6):
                try:
                    yield next(iterator)
                except (ValueError, StopIteration) as error:
                    yield repr(error)

    assert_same_batches(story)


@needs_torch
def test_iterable_datasets():
    def story(lib, d):
        class Counting(d.IterableDataset):
            def __init__(self, n):
                self.n = n

            def __iter__(self):
                return iter(range(self.n))

            def __len__(self):
                return self.n

        yield from d.DataLoader(Counting(5), batch_size=2)
        yield from d.DataLoader(Counting(5), batch_size=2, drop_last=True)
        yield from d.DataLoader(Counting(3), batch_size=None)
        chain = Counting(2) + Counting(3)
        yield len(chain), list(chain)
        yield len(d.DataLoader(chain, batch_size=2)), len(d.DataLoader(chain, batch_size=2, drop_last=True))
        for arguments in ({"shuffle": True}, {"sampler": [1]}, {"batch_sampler": [[1]]}):
            with pytest.raises(ValueError) as error:
                d.DataLoader(Counting(3), **arguments)
            yield str(error.value)

    assert_same_batches(story)


def test_length_of_an_iterable_dataset_that_promises_too_little():
    class Liar(data.IterableDataset):
        def __iter__(self):
            return iter(range(3))

        def __len__(self):
            return 1

    loader = data.DataLoader(Liar(), batch_size=None)
    assert len(loader) == 1
    with pytest.warns(UserWarning, match=r"was reported to be 1\(when accessing len\(dataloader\)\), but 2 samples"):
        assert list(loader) == [0, 1, 2]


@needs_torch
def test_random_split():
    def story(lib, d):
        ds = tensors(lib, d)
        for lengths in ([7, 3], [0.5, 0.5], [0.33, 0.33, 0.34], [0.25, 0.75]):
            for part in d.random_split(ds, lengths):
                yield len(part), part.indices, part[0]
        g = lib.Generator().manual_seed(1)
        yield [list(part.indices) for part in d.random_split(range(6), [2, 4], generator=g)]
        for wrong in ([7, 4], [1.5, -0.5]):
            with pytest.raises(ValueError) as error:
                d.random_split(ds, wrong)
            yield str(error.value)
        with pytest.warns(UserWarning, match="Length of split at index 1 is 0"):
            d.random_split(range(2), [0.9, 0.1])

    assert_same_batches(story)


SAMPLES = {
    "tensors": lambda lib: [lib.ones(2), lib.zeros(2)],
    "numbers": lambda lib: [1, 2, 3],
    "bools": lambda lib: [True, False],
    "floats": lambda lib: [0.5, 1.5],
    "numpy scalars": lambda lib: [np.float32(1), np.float32(2)],
    "numpy doubles": lambda lib: [np.float64(1), np.float64(2)],
    "numpy integers": lambda lib: [np.int64(1), np.int64(2)],
    "arrays": lambda lib: [np.ones(2, "float32"), np.zeros(2, "float32")],
    "arrays without dimensions": lambda lib: [np.array(1.5), np.array(2.5)],
    "arrays that are views": lambda lib: [np.ones((3, 4), "float32").T] * 2,
    "numpy bools": lambda lib: [np.bool_(True), np.bool_(False)],
    "complex numbers of numpy": lambda lib: [np.complex64(1j), np.complex64(2)],
    "texts of numpy": lambda lib: [np.str_("a"), np.str_("b")],
    "tensors without dimensions": lambda lib: [lib.tensor(1), lib.tensor(2)],
    "whole and other numbers": lambda lib: [1, 2.5],
    "a dictionary that has less than the second": lambda lib: [{"a": 1}, {"a": 2, "b": 3}],
    "dictionaries with defaults": lambda lib: [defaultdict(int, a=1), defaultdict(int, a=2)],
    "dictionaries for reading": lambda lib: [MappingProxyType({"a": 1}), MappingProxyType({"a": 2})],
    "queues": lambda lib: [deque([1, 2]), deque([3, 4])],
    "ranges": lambda lib: [range(3), range(3)],
    "empty lists": lambda lib: [[], []],
    "empty dictionaries": lambda lib: [{}, {}],
    "everything": lambda lib: [{"a": [Point((1, 2.0), "s"), {"z": lib.zeros(2)}]}] * 3,
    "strings": lambda lib: ["a", "b"],
    "bytes": lambda lib: [b"a", b"b"],
    "tuples": lambda lib: [(1, lib.ones(1)), (2, lib.zeros(1))],
    "lists": lambda lib: [[1, 2.0], [3, 4.0]],
    "dictionaries": lambda lib: [{"a": 1, "b": (1, 2)}, {"a": 3, "b": (4, 5)}],
    "ordered dictionaries": lambda lib: [OrderedDict(a=1), OrderedDict(a=2)],
    "named tuples": lambda lib: [Point(1, 2.0), Point(3, 4.0)],
    "empty tuples": lambda lib: [(), ()],
}


@needs_torch
@pytest.mark.parametrize("samples", SAMPLES.values(), ids=SAMPLES)
def test_collate(samples):
    assert_same_batches(lambda lib, d: [d.default_collate(samples(lib))])
    assert_same_batches(lambda lib, d: [d.default_convert(samples(lib))])


@needs_torch
def test_collate_errors():
    cases = [
        ([object()], TypeError), ([[1, 2], [3]], RuntimeError), ([np.array(["a"])], TypeError), ([None], TypeError),
        ([1j], TypeError), ([{1}], TypeError), ([{"a": 1, "b": 2}, {"a": 1}], KeyError), ([], IndexError),
        ([np.datetime64("2020-01-01")], TypeError),
    ]  # fmt: skip
    for samples, error in cases:
        with pytest.raises(error) as theirs:
            torch_data.default_collate(samples)
        with pytest.raises(error, match=re.escape(str(theirs.value))):
            data.default_collate(samples)


def test_collate_functions_of_ones_own():
    class Own:
        pass

    from tensorgrad.utils.data._utils.collate import collate, default_collate_fn_map

    functions = {Own: lambda batch, *, collate_fn_map: len(batch), **default_collate_fn_map}
    assert collate([{"a": Own(), "b": 1}] * 3, collate_fn_map=functions)["a"] == 3


@needs_torch
@pytest.mark.parametrize(
    "options",
    [
        {"shuffle": True, "sampler": [1]}, {"batch_sampler": [[1]], "batch_size": 2},
        {"batch_size": None, "drop_last": True},
        {"batch_size": 0}, {"batch_size": "2"}, {"num_workers": -1}, {"timeout": -1}, {"prefetch_factor": 2},
        {"persistent_workers": True}, {"multiprocessing_context": "spawn"}, {"drop_last": 1},
        {"num_workers": 1, "prefetch_factor": -1}, {"num_workers": 1, "multiprocessing_context": "thread"},
    ],
    ids=str,
)  # fmt: skip
def test_loader_errors(options):
    with pytest.raises(ValueError) as theirs:
        torch_data.DataLoader([1, 2, 3], **options)
    with pytest.raises(ValueError, match=re.escape(str(theirs.value))):
        data.DataLoader([1, 2, 3], **options)


@needs_torch
def test_other_errors():
    attempts = [
        lambda lib, d: d.TensorDataset(lib.ones(2), lib.ones(3)),
        lambda lib, d: d.RandomSampler(range(3), replacement=1),
        lambda lib, d: d.RandomSampler([]),
        lambda lib, d: d.RandomSampler(range(3), num_samples=0),
        lambda lib, d: d.WeightedRandomSampler([1.0], True),
        lambda lib, d: d.WeightedRandomSampler([[1.0]], 1),
        lambda lib, d: d.WeightedRandomSampler([1.0], 1, replacement=1),
        lambda lib, d: d.StackDataset(),
        lambda lib, d: d.StackDataset([1], a=[1]),
        lambda lib, d: d.StackDataset([1], [1, 2]),
        lambda lib, d: d.ConcatDataset([]),
        lambda lib, d: d.ConcatDataset([[1]])[-2],
        lambda lib, d: d.Dataset()[0],
        lambda lib, d: setattr(d.DataLoader([1]), "batch_size", 3),
        lambda lib, d: type("Sub", (d.Subset,), {"__getitem__": lambda self, i: 1})([1], [0]),
    ]
    for attempt in attempts:
        with pytest.raises(Exception) as theirs:
            attempt(torch, torch_data)
        with pytest.raises(type(theirs.value), match=re.escape(str(theirs.value))):
            attempt(tg, data)


def test_timeout_needs_workers():
    with pytest.raises(AssertionError, match="_SingleProcessDataLoaderIter requires timeout == 0"):
        iter(data.DataLoader([1], timeout=1))
    with pytest.raises(AssertionError, match="prefetch_factor must be greater than 0"):
        iter(data.DataLoader([1], num_workers=1, prefetch_factor=0))
    with pytest.raises(TypeError, match="should be a valid context object or a string"):
        data.DataLoader([1], num_workers=1, multiprocessing_context=3)


def test_an_iterator_is_not_pickled():
    with pytest.raises(NotImplementedError, match="_SingleProcessDataLoaderIter cannot be pickled"):
        pickle.dumps(iter(data.DataLoader([1])))


class Pinned:
    def pin_memory(self):
        return "pinned"


def test_pin_memory(monkeypatch):
    with pytest.warns(UserWarning, match="no accelerator is found, then device pinned memory won't be used"):
        assert list(data.DataLoader([1.0], pin_memory=True, collate_fn=list)) == [[1.0]]
    monkeypatch.setattr(tg.accelerator, "is_available", lambda: True)
    sample = {"a": [Pinned(), 1], "b": (Pinned(), "text"), "c": Point(Pinned(), b"bytes")}
    (batch,) = data.DataLoader([sample], batch_size=None, collate_fn=lambda x: x, pin_memory=True)
    assert batch == {"a": ["pinned", 1], "b": ("pinned", "text"), "c": Point("pinned", b"bytes")}
    assert type(batch["b"]) is tuple


def test_whole_rows_are_copies():
    x = tg.zeros(4, 2)
    (batch,) = next(iter(data.DataLoader(data.TensorDataset(x), batch_size=4)))
    batch += 1
    assert x.sum() == 0
    assert type(batch) is tg.Tensor
