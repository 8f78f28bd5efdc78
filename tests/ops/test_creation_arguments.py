"""What functions that create tensors refuse, and what they warn of: sequences, `out=`, devices, ranges, copies."""

import functools
import warnings

import numpy as np

from tests.support.alike import alike


def told(call):
    """What a call returns, or its error; and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            made = call()
            result = made, getattr(made, "dtype", None), tuple(getattr(made, "shape", ()))
        except Exception as error:
            result = type(error).__name__, str(error)
    return result, [(w.category.__name__, str(w.message).partition(" (Triggered")[0]) for w in caught]


class Items:
    """A sequence by its methods alone."""

    def __init__(self, items, length):
        self.items, self.length = items, length

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        return self.items[i]


@alike
def test_sequences_of_every_kind(torch):
    loop = [0]
    loop += [loop]
    inside = [[1, 2], [3]]
    inside[1].append(inside[1])
    values = [
        Items([1.0, 2.0], 2), Items([1, 2], 1), Items([1.0], 2), Items([], 1), [Items([1, 2], 2), [3, 4]],
        Items([[1], [2]], 2), (Items([True], 1),), loop, inside, [0, "a"], {0: 1}, {1},
    ]  # fmt: skip
    makers = torch.tensor, torch.as_tensor, torch.asarray
    return [told(lambda make=make, value=value: make(value)) for value in values for make in makers]


@alike
def test_what_cannot_be_shared_is_not_copied_in_silence(torch):
    x, array = torch.ones(2), np.ones(2)
    calls = [
        lambda: torch.asarray(x, dtype=torch.float64, copy=False), lambda: torch.asarray(x, device="meta", copy=False),
        lambda: torch.asarray(array, dtype=torch.int64, copy=False), lambda: torch.asarray(np.float64(0.5), copy=False),
        lambda: torch.asarray(np.float64(0.5)), lambda: torch.asarray([1], copy=False),
        lambda: torch.asarray(array, copy=False), lambda: torch.asarray(x, dtype=torch.float32, copy=False),
        lambda: torch.asarray(x, dtype=torch.float64), lambda: torch.asarray(x, dtype=torch.float64, copy=True),
    ]  # fmt: skip
    return [told(call) for call in calls]


@alike
def test_legacy_constructors_stay_on_their_device(torch):
    x, found = torch.ones(2), []
    for device in ("cpu", "meta"):
        found += [
            told(lambda: torch.FloatTensor([2.0], device=device)), told(lambda: torch.LongTensor([2], device=device)),
            told(lambda: torch.Tensor([2.0], device=device)), told(lambda: x.new([2.0], device=device)),
        ]  # fmt: skip
    return found


@alike
def test_out_is_what_is_asked_for(torch):
    found = []
    for name in ("zeros", "ones"):
        make, out = getattr(torch, name), torch.ones(2)
        for options in ({"dtype": torch.int64}, {"device": "meta"}, {"layout": torch.sparse_coo}, {"dtype": out.dtype}):
            found.append(told(lambda make=make, out=out, options=options: make(2, out=out, **options)))
    for size in (0, 2, 3):
        found.append(told(lambda size=size: torch.arange(3, out=torch.ones(size))))
    found.append(told(lambda: torch.range(0, 2)))
    found.append(told(lambda: torch.empty([0, 4, 2**61], dtype=torch.float32)))
    found.append(told(lambda: torch.empty([2, 4, 2**29, 2**29], dtype=torch.float64)))
    return found


@alike
def test_grids_are_of_one_device(torch):
    return told(lambda: torch.meshgrid(torch.ones(2), torch.ones(2, device="meta"), indexing="ij"))


@alike
def test_integers_that_a_dtype_cannot_hold_are_told(torch):
    found = []
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.int64):
        for bounds in ((0, 200), (0, 259), (-2051, 0), (0, 2051), (-(2**24) - 1, 2**24 + 2), (-(2**60), 2**60), (5, 5)):
            _, warned = told(lambda: torch.empty(2, dtype=dtype).random_(*bounds))
            found.append(warned)
    return found


@alike
def test_booleans_scale_only_booleans(torch):
    found = []
    for kind in (True, 1, 1.5):
        for alpha in (True, False, 2, 2.5, 2j):
            x = torch.tensor([kind])
            for op in (torch.add,) if kind is True else (torch.add, torch.sub):
                result, _ = told(lambda op=op, x=x, alpha=alpha: op(x, x, alpha=alpha))
                found.append(result)
    x = torch.tensor([True])
    return found, told(lambda: torch.rsub(x, x))[0]


@alike
def test_transposing_sparse_tensors_of_more_dimensions(torch):
    x = torch.ones(2, 2, 2)
    calls = x.t, x.to_sparse().t, x.to_sparse(1).t, x[0].to_sparse(1).t, x[0].to_sparse().t().to_dense
    return [told(call)[0][-1] for call in calls]


@alike
def test_tensors_of_tests(torch):
    found = []
    names = "bool", "uint8", "int16", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "float8_e5m2"
    options = (
        {}, {"noncontiguous": True}, {"memory_format": torch.channels_last}, {"low": -1, "high": 1.5}, {"high": 1e9},
        {"low": 1, "high": 1}, {"low": 2, "high": 1}, {"low": float("nan")}, {"low": 1e30, "high": 2e30},
        {"low": -float("inf"), "high": float("inf")}, {"requires_grad": True},
        {"noncontiguous": True, "memory_format": torch.channels_last}, {"low": 0, "high": 2, "exclude_zero": True},
    )  # fmt: skip
    for name in names:
        for given in options if name != "float8_e5m2" else options[:2]:
            torch.manual_seed(0)
            make = functools.partial(torch.testing.make_tensor, (2, 3, 2, 2), dtype=getattr(torch, name), device="cpu")
            result, warned = told(functools.partial(make, **given))
            if not isinstance(result[0], str):
                made = result[0]
                result = made.detach().to(torch.complex128), made.dtype, made.stride(), made.requires_grad
            found.append((result, warned))
    shapes = (), (1,), (0, 2), (2, 3, 4, 5, 6)
    for shape in shapes:
        made = torch.testing.make_tensor(*shape, dtype=torch.float32, device="cpu", noncontiguous=True)
        found.append((tuple(made.shape), made.stride(), made.storage_offset()))
    return found
