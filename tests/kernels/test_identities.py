"""Comparisons of objects by machine code: each says what Python's `is` says, whatever is changed, and back again."""

import collections
import gc
import random
from types import MappingProxyType

import pytest

from tensorgrad.kernels.compiled.runtime import identities
from tensorgrad.kernels.compiled.runtime.identities import Comparisons

pytestmark = pytest.mark.skipif(not identities.usable(), reason="needs the compiled kernels")
ABSENT = object()


class Slotted:
    __slots__ = ("__dict__", "first", "second")


class Below(Slotted):
    pass


class Many(dict):
    def __missing__(self, key):
        return None


class Plain:
    kind = "a class attribute"


def item(owner, key, value):
    comparisons = Comparisons()
    assert comparisons.item(owner, key, value, ABSENT)
    return comparisons.function()


@pytest.mark.parametrize("make", [dict, collections.OrderedDict, Many, lambda: Plain().__dict__, lambda: globals()])
def test_an_item_of_a_dictionary(make):
    owner, value = make(), [1]
    owner["some name"] = value
    same, absent = item(owner, "some name", value), item(owner, "another name", ABSENT)
    assert same() and absent()
    owner["some name"] = [1]  # equal, and another object
    assert not same()
    owner["some name"] = value
    assert same()
    for i in range(100):  # the dictionary moves its items
        owner[f"{i}th"] = i
    assert same()
    del owner["some name"]
    assert not same()
    owner["some name"], owner["another name"] = value, None
    assert same() and not absent()
    for name in ("some name", "another name", *(f"{i}th" for i in range(100))):
        del owner[name]
    assert not same() and absent()


def test_an_item_of_an_object_whose_attributes_have_no_dictionary_yet():
    some = Plain()
    some.a = value = [1]
    same = item(some.__dict__, "a", value)
    assert same()
    some.a = [1]
    assert not same()
    some.a = value
    assert same()
    del some.a
    assert not same()


@pytest.mark.parametrize("seed", range(10))
def test_items_of_a_dictionary_that_move(seed):
    """Each is looked for first where it was."""
    rng = random.Random(seed)
    owner = {f"key {n}": [n] for n in range(6)}
    known = dict(owner)
    checks = {key: item(owner, key, value) for key, value in known.items()}
    for _ in range(200):
        key = rng.choice([*known, "another"])
        if rng.random() < 0.5:
            owner.pop(key, None)
        else:
            owner[key] = known.get(key) if rng.random() < 0.8 else [1]
        for key, same in checks.items():
            assert same() == (owner.get(key) is known[key])


def test_an_attribute_of_a_class():
    before = Plain.__dict__["kind"]
    same, absent = item(Plain.__dict__, "kind", before), item(Plain.__dict__, "other", ABSENT)
    try:
        assert same() and absent()
        Plain.kind, Plain.other = "another", 1
        assert not same() and not absent()
        Plain.kind = before
        assert same()
    finally:
        Plain.kind = before
        del Plain.other
    assert same() and absent()


def test_keys_that_are_not_strings_are_left_to_python():
    assert not Comparisons().item({1: 2}, 1, 2, ABSENT)
    assert not Comparisons().item([], "a", 2, ABSENT)
    assert Comparisons().function() is None


@pytest.mark.parametrize("make", [dict, collections.OrderedDict, lambda: Plain().__dict__])
def test_the_length_of_a_dictionary(make):
    owner = make()
    owner |= {"a": 1, "b": 2}
    comparisons = Comparisons()
    assert comparisons.length(owner, 2)
    same = comparisons.function()
    assert same()
    owner["c"] = 3
    assert not same()
    del owner["a"]
    assert same()
    owner.clear()
    assert not same()


@pytest.mark.parametrize("make", [list, set])
def test_the_length_of_a_list_and_a_set(make):
    owner = make(range(5))
    comparisons = Comparisons()
    assert comparisons.length(owner, 5)
    same = comparisons.function()
    for change in (lambda: owner.remove(3), lambda: owner.clear()):
        assert same()
        change()
        assert not same()
        owner.clear()
        (owner.extend if make is list else owner.update)(range(7, 12))


@pytest.mark.parametrize("make", [dict, Many, lambda: Plain().__dict__, lambda: type("Made", (), {}).__dict__])
@pytest.mark.parametrize("keys", [0, 1, 3, 40])
def test_all_items_of_a_dictionary(make, keys):
    """Keys, their order, and values; where any value will do, only the key."""
    owner = make()
    of_class = type(owner) is MappingProxyType
    held = next(d for d in gc.get_referents(owner) if d.__class__ is dict) if of_class else owner
    before = {f"key {n}": [n] for n in range(keys)}
    held.update(before)
    known = dict(held)
    comparisons = Comparisons()
    free = {"key 1"} & known.keys()
    assert comparisons.items(owner, {k: ABSENT if k in free else v for k, v in known.items()}, ABSENT)
    same = comparisons.function()
    assert same()
    for key, value in known.items():
        held[key] = [*value] if value.__class__ is list else "another"
        assert same() is (key in free)
        held[key] = value
        assert same()
        del held[key]
        assert not same()
        held[key] = value  # at the end now
        assert same() is (key == [*known][-1])
        for other in known:
            held[other] = held.pop(other)
    held["new"] = 1
    assert not same()
    del held["new"]
    assert same()


def test_dictionaries_that_give_their_keys_in_an_order_of_their_own_are_left_to_python():
    assert not Comparisons().items(collections.OrderedDict(a=1), {"a": 1}, ABSENT)


def test_the_elements_of_a_list():
    first, second = [1], [2]
    owner = [first, second]
    comparisons = Comparisons()
    assert comparisons.elements(owner, (first, second)) and not comparisons.elements((first,), (first,))
    same = comparisons.function()
    for new in ([second, first], [first], [], [first, [2]], [first, second, first], [first] * 1000):
        assert same()
        owner[:] = new
        assert not same()
        owner[:] = [first, second]


@pytest.mark.parametrize("cls", [Slotted, Below])
def test_a_slot(cls):
    example = Slotted()
    example.first = example.second = None
    places = [identities.slot(example, name) for name in ("first", "second")]
    assert None not in places and places[0] != places[1] and example.first is None
    owner = cls()
    owner.first, owner.second = value, _ = [1], None
    comparisons = Comparisons()
    assert comparisons.attribute(owner, "first", value, places[0])
    assert (
        comparisons.attribute(owner, "second", None, places[1], False)
        and comparisons.attribute(owner, "x", 1, None) is False
    )
    same = comparisons.function()
    assert not same()  # the second is None
    owner.second = 0
    assert same()
    owner.first = [1]
    assert not same()
    owner.first = value
    assert same()


def test_the_content_of_a_cell():
    value = [1]

    def change(new):
        nonlocal value
        if new is ABSENT:
            del value
        else:
            value = new

    (cell,) = change.__closure__
    first = value
    full, empty = Comparisons(), Comparisons()
    assert full.content(cell, first, ABSENT) and empty.content(cell, ABSENT, ABSENT)
    full, empty = full.function(), empty.function()
    for new, (a, b) in [(first, (True, False)), ([1], (False, False)), (ABSENT, (False, True)), (first, (True, False))]:
        change(new)
        assert (full(), empty()) == (a, b)


@pytest.mark.parametrize("name", ["__code__", "__defaults__", "__kwdefaults__"])
@pytest.mark.parametrize("has", [True, False])
def test_a_part_of_a_function(name, has):
    def function(a=1.5, *, b=2.5):
        return a, b

    def bare():
        return 1

    def other(a=3.5, *, b=4.5):
        return b, a

    some = function if has else bare
    before = getattr(some, name)
    comparisons = Comparisons()
    assert comparisons.part(some, name, before)
    same = comparisons.function()
    assert same()
    setattr(some, name, getattr(other, name))
    assert not same()
    setattr(some, name, before)
    assert same()
    if name != "__code__" and has:
        setattr(some, name, None)
        assert not same()


def test_all_comparisons_together_are_no_if_one_is():
    owners = [{"a": i} for i in range(50)]
    comparisons = Comparisons()
    for i, owner in enumerate(owners):
        assert comparisons.item(owner, "a", owner["a"], ABSENT) and comparisons.length(owner, 1), i
    same = comparisons.function()
    assert same()
    for owner in owners:
        before = owner["a"]
        owner["a"] = None
        assert not same()
        owner["a"] = before
        owner["b"] = 0
        assert not same()
        del owner["b"]
    assert same()
