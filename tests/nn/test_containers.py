"""Containers of modules against PyTorch: Sequential, ModuleList, ModuleDict, ParameterList and ParameterDict."""

import re
from collections import OrderedDict

import pytest

import tensorgrad as tg
from tensorgrad import nn

try:
    import torch
except ImportError:
    torch = None

needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is the oracle of this test and is not installed")


def _containers(n, lib):
    """One story for both libraries, told in text."""
    log = []
    s = n.Sequential(n.Linear(1, 2), n.ReLU(), n.Linear(2, 1))
    log += [repr(s[1:]), repr(s[-1]), len(s), repr(s + n.Sequential(n.Tanh())), repr(s * 2)]
    s.append(n.Tanh()).insert(0, n.Flatten()).extend([n.Sigmoid()])
    log.append(repr(s))
    s[1] = n.Linear(1, 2, bias=False)
    del s[0]
    del s[1:3]
    log += [repr(s), repr(s.pop(-1)), repr(s), list(s.state_dict())]
    s += n.Sequential(n.ReLU())
    s *= 2
    log.append(repr(s))
    named = n.Sequential(OrderedDict([("first", n.Linear(1, 1)), ("second", n.ReLU())]))
    log += [repr(named), repr(named[0]), repr(named.first), repr(named[:1])]

    items = n.ModuleList([n.Linear(1, 1), n.Linear(1, 1), n.ReLU()])
    log += [repr(items), repr(items[:2]), len(items), repr(items[-1]), repr(items + [n.Tanh()])]
    items.insert(1, n.Tanh())
    items.append(n.Sigmoid())
    items += [n.ReLU()]
    items[0] = n.Identity()
    del items[2]
    log += [repr(items), repr(items.pop(0)), [type(m).__name__ for m in items], repr(n.ModuleList())]

    d = n.ModuleDict({"a": n.Linear(1, 1), "b": n.ReLU()})
    d["c"] = n.Tanh()
    d.update([("d", n.Sigmoid())])
    log += [repr(d), list(d), list(d.keys()), [k for k, _ in d.items()], len(d), "a" in d, repr(d.pop("a"))]
    del d["b"]
    log += [repr(d), [type(m).__name__ for m in d.values()]]
    d.clear()
    log.append(repr(d))

    p = n.ParameterList([lib.ones(2), n.Parameter(lib.zeros(1, 3)), "text"])
    p.append(lib.ones(1))
    p[0] = lib.zeros(4)
    p += [lib.ones(1)]
    log += [repr(p), len(p), [x if isinstance(x, str) else x.tolist() for x in p[1:3]], list(p.state_dict())]
    q = n.ParameterDict({"b": lib.ones(2), "a": lib.zeros(1)})
    q["c"] = 3
    log += [repr(q), list(q), list(q.keys()), "a" in q, q.get("x", 5), q.setdefault("d", lib.ones(1)).tolist()]
    log += [q.pop("a").tolist(), q.popitem()[0], list(q), len(q), list(q.copy()), list(q.state_dict())]
    log += [list(q | n.ParameterDict({"z": lib.ones(1)})), list(q.fromkeys(["u"], lib.ones(1))), list(reversed(q))]
    q.clear()
    log.append(len(q))

    for attempt in (
        lambda: s[9], lambda: items[9], lambda: s + 3, lambda: s * "x", lambda: s * 0, lambda: s.insert(9, n.ReLU()),
        lambda: s.insert(0, 3), lambda: items.extend(3), lambda: d.update(3), lambda: d.update([3]), lambda: p(),
        lambda: d.update([(1, 2, 3)]), lambda: p[9], lambda: q[3], lambda: q(1), lambda: d["nothing"],
        lambda: p.extend(lib.ones(2)), lambda: d.update({"keys": n.ReLU()}),
    ):  # fmt: skip
        try:
            attempt()
        except Exception as error:
            log.append((type(error).__name__, re.sub(r"'(torch|tensorgrad)\.\S*'", "", str(error))))
    return log


@needs_torch
def test_containers():
    for mine, theirs in zip(_containers(nn, tg), _containers(torch.nn, torch), strict=True):
        assert mine == theirs
