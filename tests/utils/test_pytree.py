"""`torch.utils._pytree`: the same calls in both libraries."""

import warnings
from collections import OrderedDict, defaultdict, deque, namedtuple

import pytest

import tensorgrad
from tensorgrad.utils import _pytree as ours

torch = pytest.importorskip("torch", reason="torch is not installed: nothing to compare with")
theirs = pytest.importorskip("torch.utils._pytree")

Point = namedtuple("Point", "x y")


class Box:
    def __init__(self, value):
        self.value = value


TREES = {
    "leaf": 1, "none": None, "empty": (), "nested": [1, (2, {"b": 3, "a": [4]})], "ordered": OrderedDict(b=1, a=2),
    "default": defaultdict(list, {"z": [1]}), "deque": deque([1, 2], maxlen=3), "named": Point(1, [2]),
    "box": Box(1),
}  # fmt: skip


@pytest.mark.parametrize("name", TREES)
def test_descriptions_and_ways(name):
    def story(p):
        tree = TREES[name]
        leaves, spec = p.tree_flatten(tree)
        with_path = p.tree_leaves_with_path(tree)
        back = p.tree_unflatten(leaves, spec)
        yield repr(leaves), spec.num_leaves, spec.num_nodes, spec.num_children, spec.is_leaf(), spec.type, spec.context
        yield repr(spec), type(back), repr(back), p._get_node_type(tree), p.tree_is_leaf(tree)
        yield [(p.keystr(path), repr(path), leaf, p.key_get(tree, path)) for path, leaf in with_path]
        yield spec == p.tree_structure(back), hash(spec) == hash(p.tree_structure(back))
        yield repr(p.tree_map_with_path(lambda path, leaf: (p.keystr(path), leaf), tree))
        yield list(p.tree_iter(tree)) == leaves, p.arg_tree_leaves(tree, x=tree)
        if name not in ("named", "default"):
            yield p.treespec_dumps(spec), p.treespec_loads(p.treespec_dumps(spec)) == spec
            yield p.treespec_pprint(spec)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert list(story(ours)) == list(story(theirs))


CALLS = {
    "fewer": lambda p: p.tree_map(lambda a, b: a, [1, 2], [1]),
    "another type": lambda p: p.tree_map(lambda a, b: a, [1, 2], (1, 2)),
    "other keys": lambda p: p.tree_map(lambda a, b: a, {"a": 1}, {"b": 1}),
    "order of keys": lambda p: p.tree_map(lambda a, b: (a, b), {"a": 1, "b": 2}, {"b": 3, "a": 4}),
    "a tree for a leaf": lambda p: p.tree_map(lambda a, b: (a, b), [1, 2], [[3, 4], {}]),
    "too few leaves": lambda p: p.tree_unflatten([1], p.tree_structure([1, 2])),
    "no description": lambda p: p.tree_unflatten([1], 3),
    "registered": lambda p: p.register_pytree_node(list, None, None),
    "only types": lambda p: p.tree_map_only((int,), lambda x: x + 1, [1, "a"]),
    "only where": lambda p: p.tree_map_only(lambda x: x == 1, lambda x: x + 1, [1, "a"]),
    "in place": lambda p: p.tree_map_(lambda x: x, [1]),
    "all only": lambda p: p.tree_all_only(int, lambda x: x > 0, [1, "a"]),
    "any only": lambda p: p.tree_any_only(int, lambda x: x > 1, [1, "a"]),
    "up to": lambda p: p.tree_structure([1, 2]).flatten_up_to([1, [2]]),
    "specs": lambda p: repr((p.treespec_tuple([p.treespec_leaf()]), p.treespec_dict(a=p.LeafSpec()))),
    "made": lambda p: repr(p.TreeSpec(list, None, [p.LeafSpec(), p.LeafSpec()])),
    "leaf": lambda p: (isinstance(p.tree_structure(3), p.LeafSpec), isinstance(p.tree_structure([3]), p.LeafSpec)),
    "broadcast": lambda p: p._broadcast_to_and_flatten([1, (2, 3)], p.tree_structure([[1, 2], (3, [4, 5])])),
    "no prefix": lambda p: p._broadcast_to_and_flatten([1, 2], p.tree_structure([1])),
    "namedtuple": lambda p: (p.is_namedtuple(Point(1, 2)), p.is_namedtuple_class(Point), p.is_namedtuple_class(tuple)),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_calls(name):
    def told(p):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return CALLS[name](p)
            except Exception as error:
                return type(error), str(error)

    assert told(ours) == told(theirs)


def test_registration():
    def story(p):
        p.register_pytree_node(Box, lambda box: ([box.value], None), lambda children, _: Box(*children))
        try:
            yield repr(p.tree_structure([Box(1)])), p.tree_map(lambda x: x + 1, Box(1)).value
            for call in (
                lambda: p.tree_flatten_with_path(Box(1)),
                lambda: p.register_pytree_node(Box, None, None),
            ):
                with pytest.raises(ValueError) as found:
                    call()
                yield str(found.value)
        finally:
            p._deregister_pytree_node(Box)
        yield p.tree_is_leaf(Box(1))

    assert list(story(ours)) == list(story(theirs))


def test_sizes_are_containers():
    for library, p in ((tensorgrad, ours), (torch, theirs)):
        assert p.tree_map(lambda n: n + 1, library.Size([1, 2])) == library.Size([2, 3])


def test_named_results_are_containers():
    for library, p in ((tensorgrad, ours), (torch, theirs)):
        found = library.max(library.ones(2, 2), 0)
        assert [type(t) for t in p.tree_leaves(found)] == [library.Tensor] * 2
        assert type(p.tree_map(lambda t: t, found)) is type(found)


def test_functions_of_the_containers_by_name():
    def story(p):
        for name, tree in {"dict": {"a": 1, "b": 2}, "list": [1, 2], "tuple": (1, 2), "namedtuple": Point(1, 2),
                           "ordereddict": OrderedDict(a=1), "defaultdict": defaultdict(int, a=1),
                           "deque": deque([1, 2])}.items():  # fmt: skip
            children, context = getattr(p, f"_{name}_flatten")(tree)
            keyed, same = getattr(p, f"_{name}_flatten_with_keys")(tree)
            yield list(children), repr(context), repr(keyed), repr(same)
            yield repr(getattr(p, f"_{name}_unflatten")(children, context))
        yield p.is_structseq_instance(tree), p.is_structseq_class(type(__import__("time").localtime()))

    assert list(story(ours)) == list(story(theirs))


def test_dataclasses_and_constants():
    import dataclasses

    def story(p):
        @dataclasses.dataclass
        class Pair:
            a: int
            b: int | None = None
            c: int = 7

        @dataclasses.dataclass(frozen=True)
        class Name:
            text: str

        for wrong in (["a"], ["a", "b", "c", "d"]):
            with pytest.raises(ValueError, match="field_names does not include all dataclass fields"):
                p.register_dataclass(Pair, field_names=wrong)
        p.register_dataclass(Pair, field_names=["a", "b"], drop_field_names=["c"])
        p.register_constant(Name)
        tree = [Pair(1, 2, 3), Pair(4), Name("x")]
        leaves, spec = p.tree_flatten(tree)
        yield leaves, repr(p.tree_unflatten(leaves, spec)), spec == p.tree_structure(tree), p.is_constant_class(Name)
        yield [p.keystr(path) for path, _ in p.tree_leaves_with_path(tree)]
        yield spec == p.tree_structure([Pair(1, 2, 3), Pair(4), Name("y")])
        yield repr(p.tree_map(p.map_only(int)(lambda x: -x), tree))
        with pytest.raises(ValueError):
            p.register_dataclass(type("Plain", (), {}))
        with pytest.raises(TypeError):
            p.register_constant(type("Plain", (), {}))

    assert [str(x).replace("test_dataclasses", "") for x in story(ours)] == [
        str(x).replace("test_dataclasses", "") for x in story(theirs)
    ]


def test_the_steps_of_ways_are_not_tuples():
    """Libraries tell ways from steps by that: torchrl names files after them."""

    def story(p):
        for (key,), _ in p.tree_leaves_with_path([1]) + p.tree_leaves_with_path({"a": 1}):
            yield isinstance(key, tuple), hash(key) == hash(type(key)(*[getattr(key, n) for n in key.__slots__]))
            try:
                setattr(key, key.__slots__[0], 2)
            except AttributeError as refused:
                yield type(refused).__name__, str(refused)

    assert list(story(ours)) == list(story(theirs))


def test_the_tables_of_modules_are_dicts():
    """PyTorch's are; ours mirror their entries as attributes of the module."""

    def story(lib, p):
        module = lib.nn.Linear(2, 3)
        for table in (module._parameters, module._buffers, {"inside": [module._modules, module._parameters]}):
            leaves, spec = p.tree_flatten(table)
            yield (
                len(leaves),
                repr(spec),
                spec == p.tree_structure(p.tree_unflatten(leaves, spec)),
                p.tree_is_leaf(table),
            )
            yield [p.keystr(path) for path, _ in p.tree_leaves_with_path(table)], p._get_node_type(table)
        kept = {name: value.detach().clone() for name, value in module._parameters.items()}
        yield list(p.tree_map(lambda a, b: (a == b).all().item(), module._parameters, kept).values())
        yield (
            type(p.tree_map(lambda a: a, module._parameters)),
            p.tree_map(lambda a, b: a is b, kept, module._parameters),
        )
        yield p.treespec_loads(p.treespec_dumps(p.tree_structure(module._parameters))) == p.tree_structure(kept)

    assert list(story(tensorgrad, ours)) == list(story(torch, theirs))
