"""`torch.utils._pytree`: flattens nested lists, tuples and dicts into a list of leaves and a description."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tensorgrad.nn.members import Members
from tensorgrad.return_types import all_return_types
from tensorgrad.size import Size

PyTree = Any
Context = Any
FlattenFn = Callable[[Any], tuple[list, Any]]
UnflattenFn = Callable[[Iterable, Any], Any]


# --- keys: the steps of the way to a leaf ----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class SequenceKey:
    """The step to an item of a list or tuple."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Any) -> Any:
        """The item."""
        return sequence[self.idx]


@dataclasses.dataclass(frozen=True, slots=True)
class MappingKey:
    """The step to a value of a dict."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        """The value."""
        return mapping[self.key]


@dataclasses.dataclass(frozen=True, slots=True)
class GetAttrKey:
    """The step to an attribute."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj: Any) -> Any:
        """The attribute."""
        return getattr(obj, self.name)


KeyEntry = SequenceKey | MappingKey | GetAttrKey
KeyPath = tuple[KeyEntry, ...]


def keystr(kp: KeyPath) -> str:
    """Returns the way to a leaf as Python writes it.

    >>> from tensorgrad.utils._pytree import keystr, tree_leaves_with_path
    >>> [keystr(path) for path, _ in tree_leaves_with_path({"a": [1, 2]})]
    ["['a'][0]", "['a'][1]"]
    """
    return "".join(map(str, kp))


def key_get(obj: Any, kp: KeyPath) -> Any:
    """Returns what is at the end of a way."""
    for key in kp:
        obj = key.get(obj)
    return obj


# --- containers ------------------------------------------------------------------------------------------------------


class NodeDef(NamedTuple):
    """How a kind of container is taken apart and put together."""

    type: Any
    flatten_fn: FlattenFn
    unflatten_fn: UnflattenFn
    flatten_with_keys_fn: Callable | None


def is_namedtuple_class(cls: Any) -> bool:
    """Returns whether a class was made by `namedtuple`, or derives from one that was."""
    fields = getattr(cls, "_fields", None)
    return (
        isinstance(cls, type)
        and issubclass(cls, tuple)
        and type(fields) is tuple
        and all(type(name) is str for name in fields)
    )


def is_namedtuple_instance(obj: Any) -> bool:
    """Returns whether a value is a named tuple."""
    return is_namedtuple_class(type(obj))


def is_namedtuple(obj: Any) -> bool:
    """Returns whether a value is a named tuple, or a class of named tuples."""
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def _sequence(values: Any, context: Any) -> NodeDef:
    """The row of a kind of sequence, from its constructor `values(children, context)` and its context."""
    return NodeDef(None, lambda tree: (list(tree), context(tree)), values, _with_indices(context))


def _with_indices(context: Any) -> Callable:
    return lambda tree: ([(SequenceKey(i), child) for i, child in enumerate(tree)], context(tree))


def _mapping(values: Any, context: Any) -> NodeDef:
    """The row of a kind of dict."""
    return NodeDef(
        None,
        lambda tree: (list(tree.values()), context(tree)),
        values,
        lambda tree: ([(MappingKey(key), child) for key, child in tree.items()], context(tree)),
    )


def _nothing(tree: Any) -> None:
    return None


SUPPORTED_NODES: dict[Any, NodeDef] = {
    tuple: _sequence(lambda children, context: tuple(children), _nothing),
    list: _sequence(lambda children, context: list(children), _nothing),
    dict: _mapping(lambda children, keys: dict(zip(keys, children, strict=True)), list),
    namedtuple: NodeDef(
        None,
        lambda tree: (list(tree), type(tree)),
        lambda children, cls: cls(*children),
        lambda tree: ([(GetAttrKey(name), child) for name, child in zip(tree._fields, tree, strict=True)], type(tree)),
    ),
    OrderedDict: _mapping(lambda children, keys: OrderedDict(zip(keys, children, strict=True)), list),
    defaultdict: _mapping(
        lambda children, context: defaultdict(context[0], zip(context[1], children, strict=True)),
        lambda tree: [tree.default_factory, list(tree)],
    ),
    Size: _sequence(lambda children, context: Size(children), _nothing),
    deque: _sequence(lambda children, longest: deque(children, maxlen=longest), lambda tree: tree.maxlen),
}
for _kind, _definition in SUPPORTED_NODES.items():
    SUPPORTED_NODES[_kind] = _definition._replace(type=_kind)
SUPPORTED_NODES[Members] = SUPPORTED_NODES[dict]  # a module's tables, which are dicts in PyTorch
# Those of dict: transformers and diffusers register their own classes of dicts with them.
_, _dict_flatten, _dict_unflatten, _dict_flatten_with_keys = SUPPORTED_NODES[dict]
_registered: set[type] = set()
# Serialized names, and what turns contexts into JSON and back, where it is not what JSON itself does.
_names: dict[Any, str] = {}
_contexts: dict[Any, tuple[Callable, Callable]] = {
    namedtuple: (lambda cls: f"{cls.__module__}.{cls.__qualname__}", lambda name: _named(name)),
    defaultdict: (
        lambda context: [context[0] and f"{context[0].__module__}.{context[0].__qualname__}", context[1]],
        lambda context: [context[0] and _named(context[0]), context[1]],
    ),
}


def register_pytree_node(
    cls: type,
    flatten_fn: FlattenFn,
    unflatten_fn: UnflattenFn,
    *,
    serialized_type_name: str | None = None,
    to_dumpable_context: Callable | None = None,
    from_dumpable_context: Callable | None = None,
    flatten_with_keys_fn: Callable | None = None,
) -> None:
    """Registers a container type with the functions of this module.

    Args:
        cls: the container type; subclasses are not included.
        flatten_fn: `flatten_fn(value)` returns `(children, context)`.
        unflatten_fn: `unflatten_fn(children, context)` rebuilds the value.
        serialized_type_name: its name in `treespec_dumps`.
        to_dumpable_context: makes a context something that JSON can hold, for `treespec_dumps`.
        from_dumpable_context: the reverse.
        flatten_with_keys_fn: `flatten_with_keys_fn(value)` returns `([(key, child), ...], context)`.

    Raises:
        ValueError: If the type is registered, or only one of the two functions of contexts is given.

    >>> from tensorgrad.utils._pytree import register_pytree_node, tree_leaves
    >>> class Pair:
    ...     def __init__(self, first, second):
    ...         self.both = [first, second]
    >>> register_pytree_node(Pair, lambda pair: (pair.both, None), lambda both, _: Pair(*both))
    >>> tree_leaves([Pair(1, 2), 3])
    [1, 2, 3]
    """
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    if (to_dumpable_context is None) is not (from_dumpable_context is None):
        raise ValueError(f"Both to_dumpable_context and from_dumpable_context for {cls} must be None or registered.")
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)
    _registered.add(cls)
    if serialized_type_name is not None:
        _names[cls] = serialized_type_name
    if to_dumpable_context is not None and from_dumpable_context is not None:
        _contexts[cls] = to_dumpable_context, from_dumpable_context


def _register_pytree_node(cls: type, flatten_fn: Any, unflatten_fn: Any, *ignored: Any, **options: Any) -> None:
    """The former name of `register_pytree_node`."""
    register_pytree_node(cls, flatten_fn, unflatten_fn, **options)


def _deregister_pytree_node(cls: type) -> None:
    """Undoes `register_pytree_node`. Raises: KeyError if the type is not registered."""
    _registered.remove(cls)
    del SUPPORTED_NODES[cls]
    _names.pop(cls, None)
    _contexts.pop(cls, None)


def register_dataclass(
    cls: type,
    *,
    field_names: list[str] | None = None,
    drop_field_names: list[str] | None = None,
    serialized_type_name: str | None = None,
) -> None:
    """Registers a dataclass, or a class that is constructed like one: its fields are the children.

    Args:
        cls: the class.
        field_names: the names of the fields; by default those of the dataclass.
        drop_field_names: fields that `field_names` leaves out, and that get their defaults.
        serialized_type_name: its name in `treespec_dumps`.

    Raises:
        ValueError: If the names are not those of the dataclass, or missing.

    >>> from dataclasses import dataclass
    >>> from tensorgrad.utils._pytree import register_dataclass, tree_map
    >>> @dataclass
    ... class Pair:
    ...     a: int
    ...     b: int
    >>> register_dataclass(Pair)
    >>> tree_map(lambda x: x + 1, Pair(1, 2))
    Pair(a=2, b=3)
    """
    dropped = drop_field_names or []
    own = [f.name for f in dataclasses.fields(cls) if f.init] if dataclasses.is_dataclass(cls) else None
    if own is None and field_names is None:
        raise ValueError(f"register_dataclass: field_names must be specified with a list of all fields of {cls}")
    names = list(own or ()) if field_names is None else list(field_names)
    if own is not None and field_names is not None and set(own) - set(dropped) != set(names):
        raise ValueError(
            f"field_names does not include all dataclass fields. {cls} has {own}, of which {dropped} are in "
            f"drop_field_names; field_names are {names}"
        )

    def flatten(value: Any) -> tuple[list, Any]:
        given = [name for name in names if getattr(value, name) is not None]
        return [getattr(value, name) for name in given], [given, [name for name in names if name not in given]]

    def with_keys(value: Any) -> tuple[list, Any]:
        children, context = flatten(value)
        return [(GetAttrKey(name), child) for name, child in zip(context[0], children, strict=True)], context

    def unflatten(children: Iterable, context: Any) -> Any:
        return cls(**dict(zip(context[0], children, strict=True)), **dict.fromkeys(context[1]))

    register_pytree_node(
        cls, flatten, unflatten, serialized_type_name=serialized_type_name, flatten_with_keys_fn=with_keys
    )


class ConstantNode(NamedTuple):
    """The context of a value without leaves: the value itself."""

    value: Any


CONSTANT_NODES: set[type] = set()


def register_constant(cls: type) -> None:
    """Registers a class whose values are part of the description, and have no leaves.

    Raises:
        TypeError: If its values cannot be compared and hashed by what they are.

    >>> from tensorgrad.utils._pytree import register_constant, tree_leaves
    >>> class Name(str):
    ...     pass
    >>> register_constant(Name)
    >>> tree_leaves([Name("a"), 1])
    [1]
    """
    if cls.__eq__ is object.__eq__:
        raise TypeError("register_constant(cls) expects `cls` to have a non-default `__eq__` implementation.")
    if cls.__hash__ is None:
        raise TypeError("register_constant(cls) expects `cls` to have a non-default `__hash__` implementation.")
    register_pytree_node(
        cls,
        lambda value: ([], ConstantNode(value)),
        lambda _, context: context.value,
        flatten_with_keys_fn=lambda value: ([], ConstantNode(value)),
    )
    CONSTANT_NODES.add(cls)


def is_constant_class(cls: Any) -> bool:
    """Returns whether a class was registered by `register_constant`."""
    return isinstance(cls, type) and cls in CONSTANT_NODES


def is_structseq_class(cls: Any) -> bool:
    """Returns whether a class is a named result of Python's own, such as `time.struct_time`."""
    counts = ("n_fields", "n_sequence_fields", "n_unnamed_fields")
    own = isinstance(cls, type) and cls.__bases__ == (tuple,)
    return own and all(isinstance(getattr(cls, name, None), int) for name in counts)


def is_structseq_instance(obj: Any) -> bool:
    """Returns whether a value is a named result of Python's own."""
    return is_structseq_class(type(obj))


def is_structseq(obj: Any) -> bool:
    """Returns whether a value is a named result of Python's own, or a class of them."""
    return is_structseq_class(obj if isinstance(obj, type) else type(obj))


def _get_node_type(tree: Any) -> Any:
    """Returns the kind of container that a value is: its type, or `namedtuple`."""
    row = SUPPORTED_NODES.get(type(tree))
    if row is not None:
        return row.type
    return namedtuple if is_namedtuple_class(type(tree)) else type(tree)


def row_of(tree: Any) -> NodeDef | None:
    """Returns the row of the container that a value is; None if it is a leaf."""
    kind = type(tree)
    row = SUPPORTED_NODES.get(kind)
    return _row(_get_node_type(tree)) if row is None and issubclass(kind, tuple) else row


def _row(kind: Any) -> NodeDef | None:
    """Returns the row of a kind of container. Named results of ops get theirs when they are first seen."""
    row = SUPPORTED_NODES.get(kind)
    if row is None and kind in all_return_types:
        row = SUPPORTED_NODES[kind] = _sequence(lambda children, context: kind(children), _nothing)._replace(type=kind)
    return row


def tree_is_leaf(tree: Any, is_leaf: Callable | None = None) -> bool:
    """Returns whether a value is a leaf: not a container, or one for which `is_leaf` returns True."""
    return (is_leaf is not None and is_leaf(tree)) or row_of(tree) is None


_is_leaf = tree_is_leaf
_is_namedtuple_instance = is_namedtuple_instance
_private_register_pytree_node = _register_pytree_node
BUILTIN_TYPES = frozenset((tuple, list, dict, namedtuple, OrderedDict, defaultdict, deque))
STANDARD_DICT_TYPES = frozenset((dict, OrderedDict, defaultdict))


def _names_of_rows() -> dict[str, Callable]:
    """The functions of the containers of Python's own, by PyTorch's names: `_dict_flatten`, ..."""
    named = {
        "tuple": tuple, "list": list, "dict": dict, "namedtuple": namedtuple, "ordereddict": OrderedDict,
        "defaultdict": defaultdict, "deque": deque,
    }  # fmt: skip
    found: dict[str, Any] = {}
    for name, kind in named.items():
        row = SUPPORTED_NODES[kind]
        found[f"_{name}_flatten"], found[f"_{name}_unflatten"] = row.flatten_fn, row.unflatten_fn
        found[f"_{name}_flatten_with_keys"] = row.flatten_with_keys_fn
    found["_odict_flatten"], found["_odict_unflatten"] = found["_ordereddict_flatten"], found["_ordereddict_unflatten"]
    return found


globals().update(_names_of_rows())


# --- descriptions ----------------------------------------------------------------------------------------------------


class TreeSpec:
    """Describes the nesting of leaves: a container's type (None for a leaf), its context, and its children."""

    __slots__ = ("children_specs", "context", "num_children", "num_leaves", "num_nodes", "type")

    def __init__(self, type: Any, context: Any, children_specs: Iterable[TreeSpec]):
        self.type, self.context, self.children_specs = type, context, list(children_specs)
        self.num_children = len(self.children_specs)
        nodes, leaves = 1, 1 if type is None else 0
        for child in self.children_specs:
            nodes, leaves = nodes + child.num_nodes, leaves + child.num_leaves
        self.num_nodes, self.num_leaves = nodes, leaves

    def children(self) -> list[TreeSpec]:
        """Returns the descriptions of the children."""
        return list(self.children_specs)

    def child(self, index: int) -> TreeSpec:
        """Returns the description of one child."""
        return self.children_specs[index]

    def is_leaf(self) -> bool:
        """Returns whether this describes a leaf."""
        return self.type is None

    def unflatten(self, leaves: Iterable) -> Any:
        """Returns `tree_unflatten(leaves, self)`."""
        return tree_unflatten(leaves, self)

    def flatten_up_to(self, tree: Any) -> list:
        """Flattens a value just as far as this description goes.

        Raises:
            ValueError: If the value differs in the type, length or keys of a container.
        """
        if self.type is None:
            return [tree]
        kind = _get_node_type(tree)
        dicts = (dict, OrderedDict, defaultdict)
        if kind is not self.type and not (kind in dicts and self.type in dicts):
            raise ValueError(f"Node type mismatch; expected {self.type!r}, but got {kind!r}.")
        children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
        children = list(children)
        if kind in dicts:
            wanted = self.context[1] if self.type is defaultdict else self.context
            missing, extra = set(wanted) - set(tree), set(tree) - set(wanted)
            if missing or extra:
                difference = f"; missing key(s): {missing}" * bool(missing) + f"; extra key(s): {extra}" * bool(extra)
                raise ValueError(f"Node keys mismatch{difference}.")
            children = [tree[key] for key in wanted]
        elif len(children) != self.num_children:
            raise ValueError(f"Node arity mismatch; expected {self.num_children}, but got {len(children)}.")
        elif context != self.context and kind is not deque:  # of a deque: its greatest length
            raise ValueError(f"Node context mismatch for custom node type {self.type!r}.")
        return [
            leaf
            for spec, child in zip(self.children_specs, children, strict=True)
            for leaf in spec.flatten_up_to(child)
        ]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TreeSpec):
            return NotImplemented
        mine = self.type, self.context, self.children_specs
        return self is other or mine == (other.type, other.context, other.children_specs)

    def __hash__(self) -> int:
        return hash((self.type, tuple(self.children_specs)))

    def __repr__(self) -> str:
        return self._shown(0)

    def _shown(self, indent: int) -> str:
        if self.type is None:
            return "*"
        children = [child._shown(indent + 2) for child in self.children_specs]
        inside = (",\n" + " " * (indent + 2)).join(children)
        return f"TreeSpec({self.type.__name__}, {self.context}, [{inside}])"

    def __reduce__(self) -> tuple:
        return TreeSpec, (self.type, self.context, self.children_specs)


class _LeafType(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, TreeSpec) and value.is_leaf()


class LeafSpec(TreeSpec, metaclass=_LeafType):
    """Describes a leaf. `LeafSpec()` is `treespec_leaf()`."""

    __slots__ = ()

    def __new__(cls) -> Any:
        return _LEAF


_LEAF = _LEAF_SPEC = TreeSpec(None, None, [])
PyTreeSpec = TreeSpec


def treespec_leaf() -> TreeSpec:
    """Returns the description of a leaf."""
    return _LEAF


def treespec_tuple(iterable: Iterable[TreeSpec] = (), /) -> TreeSpec:
    """Returns the description of a tuple."""
    return TreeSpec(tuple, None, iterable)


def treespec_dict(mapping: Mapping | Iterable = (), /, **kwargs: TreeSpec) -> TreeSpec:
    """Returns the description of a dict."""
    specs = dict(mapping, **kwargs)
    return TreeSpec(dict, list(specs), specs.values())


def treespec_dumps(treespec: TreeSpec, protocol: int | None = None) -> str:
    """Returns a description as JSON, in PyTorch's form.

    Raises:
        NotImplementedError: If a registered type has no serialized name.
        ValueError: If the protocol is not 1.

    >>> from tensorgrad.utils._pytree import tree_structure, treespec_dumps, treespec_loads
    >>> spec = tree_structure([1, (2, 3)])
    >>> treespec_loads(treespec_dumps(spec)) == spec
    True
    """
    import json

    if protocol not in (None, 1):
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: [1]")
    return json.dumps((1, _as_json(treespec)))


def treespec_loads(serialized: str) -> TreeSpec:
    """Returns the description that `treespec_dumps` wrote. Only names of registered types are looked up.

    Raises:
        NotImplementedError: If it has a type that is not registered.
        ValueError: If the protocol is not 1.
    """
    import json

    protocol, schema = json.loads(serialized)
    if protocol != 1:
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: [1]")
    return _of_json(schema)


def _name(kind: Any) -> str:
    if kind in _registered and kind not in _names:
        raise NotImplementedError(
            f"No registered serialization name for {kind} found. Please update your _register_pytree_node call with a "
            "`serialized_type_name` kwarg."
        )
    return _names.get(kind, f"{getattr(kind, '__module__', '')}.{kind.__qualname__}")


def _as_json(spec: TreeSpec) -> dict[str, Any]:
    import json

    if spec.type is None:
        return {"type": None, "context": None, "children_spec": []}
    encode = _contexts.get(spec.type, (None,))[0]
    context = json.dumps(encode(spec.context) if encode else spec.context)
    return {"type": _name(spec.type), "context": context, "children_spec": [_as_json(c) for c in spec.children_specs]}


def _of_json(schema: dict[str, Any]) -> TreeSpec:
    import json

    if schema["type"] is None:
        return _LEAF
    kinds = {_name(kind): kind for kind in SUPPORTED_NODES if kind not in _registered or kind in _names}
    if schema["type"] not in kinds:
        raise NotImplementedError(f"Deserializing {schema['type']!r} in pytree is not registered.")
    kind, context = kinds[schema["type"]], json.loads(schema["context"])
    decode = _contexts.get(kind, (None, None))[1]
    return TreeSpec(kind, decode(context) if decode else context, map(_of_json, schema["children_spec"]))


def _named(name: str) -> Any:
    """Returns a loaded module's class. Nothing is imported: the text may come from a file."""
    import sys

    module, _, qualname = name.rpartition(".")
    found = getattr(sys.modules.get(module), qualname, None)
    if not isinstance(found, type):
        raise NotImplementedError(f"Deserializing {name!r} in pytree: its module is not loaded, or has no such class.")
    return found


def treespec_pprint(treespec: TreeSpec) -> str:
    """Returns the containers that are described, with `*` for leaves."""
    from pprint import pformat

    class Star:
        def __repr__(self) -> str:
            return "*"

    return pformat(tree_unflatten([Star()] * treespec.num_leaves, treespec), sort_dicts=False)


# --- flattening ------------------------------------------------------------------------------------------------------


def tree_flatten(tree: Any, is_leaf: Callable | None = None) -> tuple[list, TreeSpec]:
    """Flattens nested containers. Returns `(leaves, description)`.

    >>> from tensorgrad.utils._pytree import tree_flatten, tree_unflatten
    >>> leaves, spec = tree_flatten({"a": 1, "b": (2, 3)})
    >>> leaves, tree_unflatten(leaves, spec)
    ([1, 2, 3], {'a': 1, 'b': (2, 3)})
    """
    leaves: list = []
    return leaves, _described(tree, is_leaf, leaves)


# Functions that call themselves are not nested: they would hold themselves, and leaves, until the collector runs.
def _described(tree: Any, is_leaf: Callable | None, leaves: list) -> TreeSpec:
    """Returns the description of a value, and adds its leaves to the list."""
    row = None if is_leaf is not None and is_leaf(tree) else row_of(tree)
    if row is None:
        leaves.append(tree)
        return _LEAF
    children, context = row.flatten_fn(tree)
    specs = []
    for child in children:
        kind = child.__class__
        if is_leaf is None and kind not in SUPPORTED_NODES and not issubclass(kind, tuple):  # no call for most leaves
            leaves.append(child)
            specs.append(_LEAF)
        else:
            specs.append(_described(child, is_leaf, leaves))
    return TreeSpec(row.type, context, specs)


def tree_unflatten(leaves: Iterable, treespec: TreeSpec) -> Any:
    """Rebuilds the nested containers that `tree_flatten` flattened.

    Raises:
        TypeError: If the description is none.
        ValueError: If the number of leaves does not match the description.
    """
    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"Expected `treespec` to be an instance of PyTreeSpec but got item of type {type(treespec)}.")
    leaves = list(leaves)
    if len(leaves) != treespec.num_leaves:
        raise ValueError(
            f"treespec.unflatten(leaves): `leaves` has length {len(leaves)} but the spec refers to a pytree that holds "
            f"{treespec.num_leaves} items ({treespec})."
        )
    return _built(treespec, iter(leaves))


def _built(spec: TreeSpec, leaves: Iterator) -> Any:
    """Rebuilds what is described, from the next leaves."""
    if spec.type is None:
        return next(leaves)
    children = [next(leaves) if c.type is None else _built(c, leaves) for c in spec.children_specs]
    return SUPPORTED_NODES[spec.type].unflatten_fn(children, spec.context)


def tree_iter(tree: Any, is_leaf: Callable | None = None) -> Iterable:
    """Yields the leaves."""
    row = None if is_leaf is not None and is_leaf(tree) else row_of(tree)
    if row is None:
        yield tree
    else:
        for child in row.flatten_fn(tree)[0]:
            yield from tree_iter(child, is_leaf)


def tree_leaves(tree: Any, is_leaf: Callable | None = None) -> list:
    """Returns the leaves as a flat list."""
    return list(tree_iter(tree, is_leaf))


def arg_tree_leaves(*args: Any, **kwargs: Any) -> list:
    """Returns the leaves of all arguments as a flat list."""
    return [leaf for value in (*args, *kwargs.values()) for leaf in tree_iter(value)]


def tree_structure(tree: Any, is_leaf: Callable | None = None) -> TreeSpec:
    """Returns the description of the nesting, without the leaves."""
    return tree_flatten(tree, is_leaf)[1]


def tree_leaves_with_path(tree: Any, is_leaf: Callable | None = None) -> list[tuple[KeyPath, Any]]:
    """Returns `(way to the leaf, leaf)` of all leaves.

    Raises:
        ValueError: If a registered container was registered without keys.
    """
    found: list = []
    _walk(tree, is_leaf, (), found)
    return found


def _walk(node: Any, is_leaf: Callable | None, path: KeyPath, found: list) -> None:
    """Adds `(way to the leaf, leaf)` of all leaves to the list."""
    row = None if is_leaf is not None and is_leaf(node) else row_of(node)
    if row is None:
        found.append((path, node))
        return
    if row.flatten_with_keys_fn is None:
        raise ValueError(
            f"Did not find a flatten_with_keys_fn for type: {row.type}. Please pass a flatten_with_keys_fn "
            "argument to register_pytree_node."
        )
    for key, child in row.flatten_with_keys_fn(node)[0]:
        _walk(child, is_leaf, (*path, key), found)


def tree_flatten_with_path(tree: Any, is_leaf: Callable | None = None) -> tuple[list, TreeSpec]:
    """Returns `(tree_leaves_with_path(tree), description)`."""
    return tree_leaves_with_path(tree, is_leaf), tree_structure(tree, is_leaf)


# --- functions of leaves ---------------------------------------------------------------------------------------------


def tree_map(func: Callable, tree: Any, *rests: Any, is_leaf: Callable | None = None) -> Any:
    """Applies `func` to every leaf (and what is in its place in `rests`), and keeps the nesting.

    Raises:
        ValueError: If the nesting of one of `rests` differs.
    """
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [spec.flatten_up_to(rest) for rest in rests]
    return tree_unflatten(list(map(func, leaves, *others)), spec)


def tree_map_with_path(func: Callable, tree: Any, *rests: Any, is_leaf: Callable | None = None) -> Any:
    """Like `tree_map`, with the way to the leaf as the first argument of `func`."""
    leaves, spec = tree_flatten_with_path(tree, is_leaf)
    others = [spec.flatten_up_to(rest) for rest in rests]
    return tree_unflatten([func(*pair, *more) for pair, *more in zip(leaves, *others, strict=True)], spec)


def tree_map_(func: Callable, tree: Any, *rests: Any, is_leaf: Callable | None = None) -> Any:
    """Calls `func` for every leaf, as `tree_map` does, and returns the tree itself."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [spec.flatten_up_to(rest) for rest in rests]
    for values in zip(leaves, *others, strict=True):
        func(*values)
    return tree


def _selects(wanted: Any) -> Callable[[Any], bool]:
    """The test for leaves of a type, of several types, or for which a function returns True."""
    if isinstance(wanted, type | tuple) or not callable(wanted):
        return lambda leaf: isinstance(leaf, wanted)
    return wanted


def tree_map_only(type_or_types_or_pred: Any, func: Callable, tree: Any, is_leaf: Callable | None = None) -> Any:
    """Like `tree_map`, but applies `func` only to leaves of the given types, or for which a function returns True."""
    selects = _selects(type_or_types_or_pred)
    return tree_map(lambda leaf: func(leaf) if selects(leaf) else leaf, tree, is_leaf=is_leaf)


def tree_map_only_(type_or_types_or_pred: Any, func: Callable, tree: Any, is_leaf: Callable | None = None) -> Any:
    """Like `tree_map_`, but calls `func` only for leaves of the given types, or for which a function returns True."""
    selects = _selects(type_or_types_or_pred)
    return tree_map_(lambda leaf: func(leaf) if selects(leaf) else leaf, tree, is_leaf=is_leaf)


def map_only(type_or_types_or_pred: Any, /) -> Callable:
    """Returns a decorator: the function then returns leaves of other types unchanged.

    >>> from tensorgrad.utils._pytree import map_only, tree_map
    >>> tree_map(map_only(int)(lambda x: x + 1), [1, "a"])
    [2, 'a']
    """
    selects = _selects(type_or_types_or_pred)
    return lambda func: lambda leaf: func(leaf) if selects(leaf) else leaf


def tree_any(pred: Callable, tree: Any, is_leaf: Callable | None = None) -> bool:
    """Returns whether the predicate holds for any leaf."""
    return any(map(pred, tree_iter(tree, is_leaf)))


def tree_all(pred: Callable, tree: Any, is_leaf: Callable | None = None) -> bool:
    """Returns whether the predicate holds for all leaves."""
    return all(map(pred, tree_iter(tree, is_leaf)))


def tree_any_only(type_or_types: Any, /, pred: Callable, tree: Any, is_leaf: Callable | None = None) -> bool:
    """Returns whether the predicate holds for any leaf of the given types."""
    return any(pred(leaf) for leaf in tree_iter(tree, is_leaf) if isinstance(leaf, type_or_types))


def tree_all_only(type_or_types: Any, /, pred: Callable, tree: Any, is_leaf: Callable | None = None) -> bool:
    """Returns whether the predicate holds for all leaves of the given types."""
    return all(pred(leaf) for leaf in tree_iter(tree, is_leaf) if isinstance(leaf, type_or_types))


def _broadcast_to_and_flatten(tree: Any, treespec: TreeSpec, is_leaf: Callable | None = None) -> list | None:
    """Expands a prefix of a nested structure to one value for each leaf; None if it is not a prefix."""
    if tree_is_leaf(tree, is_leaf):
        return [tree] * treespec.num_leaves
    children, context = SUPPORTED_NODES[_get_node_type(tree)].flatten_fn(tree)
    children = list(children)
    if treespec.type is not _get_node_type(tree) or context != treespec.context:
        return None
    if len(children) != treespec.num_children:
        return None
    parts = [_broadcast_to_and_flatten(c, s, is_leaf) for c, s in zip(children, treespec.children_specs, strict=True)]
    return None if None in parts else [value for part in parts for value in part]  # type: ignore[union-attr]
