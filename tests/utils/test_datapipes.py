"""Datapipes: what they yield, raise and warn of; how DataLoader shuffles them and shares them out. As in PyTorch."""

import copy
import functools
import importlib
import json
import pickle
import warnings

import pytest

from tests.support.alike import alike

WORKERS = pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="this system starts processes otherwise")


def names(torch):
    """The names that the rows below use."""
    data = torch.utils.data
    part = functools.partial(importlib.import_module, package=f"{torch.__name__}.utils.data")
    found = {"torch": torch, "data": data, "dm": part(".datapipes.map"), "di": part(".datapipes.iter")}
    found |= {name: getattr(found["di"], name) for name in found["di"].__all__}
    found |= {"graph": part(".graph"), "settings": part(".graph_settings"), "copy": copy, "pickle": pickle}
    found |= {"SHARE": part(".datapipes.iter.sharding").SHARDING_PRIORITIES, "functools": functools, "load": load}
    found |= {"common": part(".datapipes.utils.common"), "decoder": part(".datapipes.utils.decoder")}

    class Pipe(data.IterDataPipe):
        def __init__(self, samples, error=None):
            self.samples, self.error = samples, error

        def __iter__(self):
            yield from self.samples
            if self.error:
                raise self.error

    class Whole(data.IterDataPipe):
        def __iter__(self):
            return iter([1, 2])

    def shared(n, i, *group, pipe=None):
        pipe = found["IterableWrapper"](range(12)).sharding_filter() if pipe is None else pipe
        return found["settings"].apply_sharding(pipe, n, i, *group)

    def tree(graph):
        return [(type(pipe).__name__, tree(inner)) for pipe, inner in graph.values()]

    def first(pipe, n):
        iterator = iter(pipe)
        return [next(iterator) for _ in range(n)]

    found |= {"Pipe": Pipe, "Whole": Whole, "I": lambda n=5: found["IterableWrapper"](range(n)), "shared": shared}
    found |= {"M": lambda n=5: found["dm"].SequenceWrapper(list(range(n))), "tree": tree, "first": first}
    return found | {"W": lambda rows: found["IterableWrapper"](rows), "rows": [(1, 2, 3), (4, 5, 6)]}


def load(torch, pipe, **options):
    """Two passes of a loader, and the random number after them."""
    torch.manual_seed(0)
    loader = torch.utils.data.DataLoader(pipe, **options)
    return list(loader), list(loader), torch.rand(1).item()


def observe(torch, code, scope):
    """The result or error of an expression, and what it warned of."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        torch.manual_seed(0)
        try:
            result = eval(code, dict(scope))
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
            if isinstance(error, AttributeError):
                result = result.rstrip("'")  # PyTorch's message ends without the quotation mark
    return [code, result, [str(each.message) for each in warned]]


def compared(rows):
    def scenario(torch):
        scope = names(torch)
        return [observe(torch, row, scope) for row in rows.strip().splitlines()]

    return scenario


CHAINS = """
list(I().batch(2))
list(I().batch(2, drop_last=True))
I().batch(0)
[type(x).__name__ for x in I(4).batch(2)] + [type(x).__name__ for x in I(4).batch(2, wrapper_class=tuple)]
next(iter(I().batch(2))).as_str('--')
list(next(iter(I(8).batch(2).batch(2))).raw_iterator())
list(I(8).batch(2).batch(2).unbatch())
list(I(8).batch(2).batch(2).unbatch(2))
list(I(8).batch(2).batch(2).unbatch(-1))
list(I(8).batch(2).unbatch(-2))
list(I(8).batch(2).unbatch(3))
list(I(8).unbatch(0))
list(I().map(str))
list(I().map(lambda x: x + 1))
list(I().filter(lambda x: x % 2))
list(I().filter(lambda x: x > 2))
list(W(rows).map(lambda *a: sum(a), input_col=0))
list(W(rows).map(lambda *a: sum(a), input_col=[0, 1]))
list(W(rows).map(lambda *a: sum(a), input_col=[0, 2], output_col=0))
list(W(rows).map(lambda *a: sum(a), input_col=0, output_col=-1))
list(W(rows).map(max, input_col=(0, 1), output_col=(1,)))
list(W(rows).map(str, output_col=0))
list(W(rows).map(max, input_col=[0, 1], output_col=[0, 1]))
list(W(rows).map(str, input_col=5))
list(W([{'a': 1, 'b': 2}]).map(max, input_col=['a', 'b']))
list(W([{'a': 1, 'b': 2}]).map(max, input_col=['a', 'b'], output_col='z'))
list(W(rows).map(lambda a: a, input_col=[0, 1]))
list(W(rows).map(lambda a, b, c: a, input_col=[0, 1]))
list(W(rows).map(lambda a, *b, k=3: a, input_col=[0, 1]))
list(W(rows).map(lambda a, *, k: a, input_col=[0]))
list(I(3).map(lambda: 1))
list(W(rows).filter(lambda a, b: a > 1, input_col=[0, 1]))
I(3).map(3)
I(3).map(input_col=3)
I(3).filter(3)
list(I(3).map(functools.partial(max, 1)))
list(I().batch(2).collate())
list(I().batch(2).collate(collate_fn=len))
list(I(3).concat(I(2)))
Concater()
Concater([1])
list(I(3).zip(I(4), I(2)))
Zipper([1])
list(Multiplexer(I(3), I(5)))
[len(Multiplexer(I(3), I(5))), len(Concater(I(3), I(5))), len(Zipper(I(3), I(5)))]
[len(I(5).batch(2)), len(I().shuffle())]
len(I(5).filter(bool))
len(W(iter([1])))
list(I(7).groupby(lambda x: x % 3))
list(I(7).groupby(lambda x: x % 3, keep_key=True))
list(I(7).groupby(lambda x: x % 3, group_size=2))
list(I(7).groupby(lambda x: x % 3, group_size=2, drop_remaining=True))
list(I(9).groupby(lambda x: x % 3, buffer_size=4))
list(I(9).groupby(lambda x: x % 3, buffer_size=4, group_size=3))
list(I(9).groupby(lambda x: x % 3, buffer_size=4, group_size=3, guaranteed_group_size=2))
list(I(9).groupby(lambda x: x % 3, buffer_size=4, group_size=3, drop_remaining=True))
I(9).groupby(bool, buffer_size=4, group_size=3, guaranteed_group_size=4)
I(9).groupby(bool, buffer_size=2, group_size=3)
list(W([1, 0, 0, 1, 1]).groupby(bool))
[str(I()), repr(I().batch(2)), repr(I().map(str).fork(2))]
I().nothing
list(I() + I(2))
I()[0]
'map' in dir(I(3))
list(I(10).shuffle())
list(I(10).shuffle(buffer_size=3))
list(I(10).shuffle().set_seed(5))
list(I(10).shuffle().set_shuffle(False))
list(I(10).batch(3).shuffle(unbatch_level=1))
(lambda pipe: [list(pipe), list(pipe)])(I(6).shuffle().set_seed(1))
I(10).shuffle(buffer_size=0)
list(di.Sampler(I(4), data.RandomSampler))
di.Sampler(I(4).filter(bool))
list(W(x for x in range(3)))
(lambda y: [W(y).map(lambda x: x.append(3)), y])([[1]])[1]
(lambda p: [list(pickle.loads(pickle.dumps(p))), list(copy.deepcopy(p)), list(copy.copy(p))])(I().map(str).batch(2))
(lambda forks: [list(x) for x in pickle.loads(pickle.dumps(forks))])(I(3).fork(2))
sorted(I().map(str).__getstate__())
"""


MAPS = """
list(M().map(str))
list(M().batch(2))
list(M().batch(2, drop_last=True))
[M().batch(2)[0], M().batch(2)[-1], len(M().batch(2)), type(M().batch(2)[0]).__name__]
M().batch(2)[7]
M().batch(0)
list(M(3).concat(M(2)))
M(3).concat(M(2))[5]
list(M(3).zip(M(2)))
M(3).zip(M(2))[2]
[len(M(3).zip(M(2))), len(M(3).concat(M(2))), len(M(3).shuffle())]
dm.Concater()
dm.Concater([1])
dm.Zipper(I(3))
list(M(8).shuffle())
list(M(8).shuffle(indices=[3, 1]))
list(M(8).shuffle().set_shuffle(False))
list(M(8).shuffle().set_seed(3))
M(3).filter(bool)
M(3).map(3)
list(M(3) + M(2))
dm.SequenceWrapper({'a': 1})['a']
"""


ITERATORS = """
(lambda p: (lambda a: [next(a), first(p, 1), next(a)])(iter(p)))(I())
(lambda p: (lambda a: [next(a), first(p, 1), next(a)])(iter(p)))(I().map(str))
(lambda p: (lambda a: [next(a), first(p, 1), next(a)])(iter(p)))(Whole())
(lambda p: [list(p), list(p), p._number_of_samples_yielded])(Whole())
list(zip(*[I(3)] * 1))
(lambda p: list(Zipper(p, p)))(I(3))
list(Pipe([1], KeyError('oops')))
list(Pipe([1], ValueError()))
list(Pipe([1], ValueError('a', 3)).map(str).batch(2))
list(Pipe([], StopIteration()))
[list(x) for x in I(4).fork(2)]
[list(x) for x in I(4).fork(2, buffer_size=2)]
first(I(4).fork(2, buffer_size=2)[0], 2)
(lambda a, b: [list(zip(a, b)), list(zip(a, b))])(*I(4).fork(2, buffer_size=-1))
(lambda a, b: (lambda i: [next(i), list(b), list(i), list(a)])(iter(a)))(*I(4).fork(2))
(lambda a, b: (lambda i, j: [next(i), next(j), first(a, 1), next(j)])(iter(a), iter(b)))(*I(4).fork(2))
[x is y for x, y in zip(*W([[1], [2]]).fork(2))]
[x is y for x, y in zip(*W([[1], [2]]).fork(2, copy='deep'))]
I(4).fork(0)
str(I(4).fork(1))
I(4).fork(2, copy='x')
[list(x) for x in I(6).demux(2, lambda x: x % 2)]
[list(x) for x in I(6).demux(2, lambda x: x % 3)]
[list(x) for x in I(6).demux(2, lambda x: None if x % 3 == 2 else x % 3)]
[list(x) for x in I(6).demux(2, lambda x: None if x % 3 == 2 else x % 3, drop_none=True)]
[list(x) for x in I(60).demux(2, lambda x: int(x < 30), buffer_size=4)]
first(I(60).demux(2, lambda x: x % 2, buffer_size=3)[0], 5)
len(I(6).demux(2, lambda x: x % 2)[0])
I(3).demux(0, bool)
I(3).demux(1, 3)
"""


SETTINGS = """
tree(graph.traverse_dps(I(3).map(str).batch(2)))
tree(graph.traverse_dps(Zipper(*I(3).fork(2))))
tree(graph.traverse(I(3).map(str)))
tree(graph.traverse(I(3).map(str), only_datapipe=True))
tree(graph.traverse_dps(W([I(3), (I(4), {'x': I(5)}), data.ChainDataset([I(2)])])))
tree(graph.traverse(W([I(3), data.ChainDataset([I(2)])]), only_datapipe=False))
graph.traverse_dps(3)
[str(p) for p in settings.get_all_graph_pipes(graph.traverse_dps(Zipper(*I(3).fork(2))))]
list(settings.apply_shuffle_settings(I(10), True))
list(settings.apply_shuffle_settings(I(10).shuffle().map(str), False))
list(settings.apply_shuffle_settings(I(10).shuffle().map(str), None))
list(settings.apply_random_seed(I(10).shuffle().map(str), torch.Generator().manual_seed(4)))
list(settings.apply_shuffle_seed(I(10).shuffle(), torch.Generator().manual_seed(4)))
(lambda p: [list(p), len(p)])(shared(5, 1))
(lambda p: [list(shared(2, 0, pipe=p)), len(p)])(shared(3, 1))
list(shared(2, 1, SHARE.MULTIPROCESSING, pipe=shared(3, 1, SHARE.DISTRIBUTED)))
list(shared(3, 1, SHARE.DISTRIBUTED, pipe=shared(2, 1, SHARE.MULTIPROCESSING)))
shared(2, 1, pipe=shared(3, 1, SHARE.DISTRIBUTED))
shared(3, 5)
shared(3, 1, pipe=Zipper(I(10).sharding_filter(), I(10)).sharding_filter())
list(shared(3, 1, SHARE.DISTRIBUTED, pipe=I(12).sharding_filter(SHARE.MULTIPROCESSING)))
"""


LOADERS = """
load(torch, I(10).shuffle().sharding_filter())
load(torch, I(10).shuffle().sharding_filter(), shuffle=True, batch_size=2)
load(torch, I(10).shuffle().sharding_filter(), shuffle=False, batch_size=3)
load(torch, I(6), batch_size=None, shuffle=True)
load(torch, M(10).shuffle(), batch_size=None, shuffle=True)
load(torch, M(10).shuffle(), batch_size=None, shuffle=False)
load(torch, M(10).map(str), batch_size=3, shuffle=True)
[len(data.DataLoader(I(5), batch_size=2)), len(data.DataLoader(M(5), batch_size=2))]
data.DataLoader(I(3), sampler=[1])
data.DataLoader(I(3), batch_sampler=[1])
type(data.DataLoader(I(3)).dataset).__name__
type(data.DataLoader(M(3)).dataset).__name__
(lambda g: [list(data.DataLoader(I(6).shuffle(), generator=g)), torch.rand(1, generator=g)])(torch.Generator())
list(data.DataLoader(shared(2, 0, SHARE.MULTIPROCESSING)))
"""


WITH_WORKERS = """
load(torch, I(10).shuffle().sharding_filter(), batch_size=None, num_workers=2)
load(torch, I(10).shuffle().sharding_filter(), batch_size=2, num_workers=2, persistent_workers=True, shuffle=True)
load(torch, I(10).sharding_filter().shuffle(), batch_size=None, num_workers=2, shuffle=False)
load(torch, M(6).map(str), batch_size=3, num_workers=1)
"""


test_chains = alike(compared(CHAINS))
test_datapipes_with_indices = alike(compared(MAPS))
test_one_iterator_at_a_time = alike(compared(ITERATORS))
test_settings_of_a_graph = alike(compared(SETTINGS))
test_loaders = alike(compared(LOADERS))
test_loaders_with_workers = WORKERS(alike(compared(WITH_WORKERS)))


@alike
def test_methods_of_ones_own_and_determinism(torch):
    data = torch.utils.data
    results = []

    def tried(function, *args):
        try:
            results.append(str(function(*args)))
        except Exception as error:
            results.append(f"{type(error).__name__}: {error}")

    @data.functional_datapipe("times_of_this_test")
    class Times(data.IterDataPipe):
        """Times."""

        def __init__(self, source, k=1):
            self.source, self.k = source, k

        def __iter__(self):
            for x in self.source:
                yield x * self.k

    @data.functional_datapipe("plus_of_this_test")
    class Plus(data.MapDataPipe):
        def __init__(self, source):
            self.source = source

        def __getitem__(self, i):
            return self.source[i] + 1

        def __len__(self):
            return len(self.source)

    scope = names(torch)
    try:
        tried(lambda: list(scope["I"]().times_of_this_test(3)))
        tried(lambda: list(scope["I"]().times_of_this_test(k=2)))
        tried(lambda: scope["I"]().times_of_this_test.__doc__)
        tried(lambda: list(scope["M"]().plus_of_this_test().map(str)))
        tried(data.functional_datapipe("times_of_this_test"), Times)
    finally:
        del data.IterDataPipe.functions["times_of_this_test"], data.MapDataPipe.functions["plus_of_this_test"]

    @data.non_deterministic
    class Always(data.IterDataPipe):
        def __iter__(self):
            yield 1

    @data.non_deterministic(lambda x: x > 0)
    class Sometimes(data.IterDataPipe):
        def __init__(self, x):
            self.x = x

        def __iter__(self):
            yield self.x

    for make, *args in ((Always,), (Sometimes, 1), (Sometimes, 0)):
        tried(lambda: list(make(*args)))
        with data.guaranteed_datapipes_determinism():
            tried(lambda: list(make(*args)))
    tried(data.non_deterministic, 3)
    tried(data.non_deterministic, int)
    tried(data.argument_validation(_annotated(data.IterDataPipe)), 3)
    data.IterDataPipe.set_getstate_hook(lambda state: "hooked")
    try:
        tried(scope["I"]().__getstate__)
        tried(data.IterDataPipe.set_getstate_hook, str)
    finally:
        data.IterDataPipe.set_getstate_hook(None)
    data.IterDataPipe.set_reduce_ex_hook(lambda pipe: (int, ("3",)))
    try:
        tried(lambda: pickle.loads(pickle.dumps(scope["I"]())))
    finally:
        data.IterDataPipe.set_reduce_ex_hook(None)
    return results


def _annotated(kind):
    def function(pipe):
        return pipe

    function.__annotations__["pipe"] = kind
    return function


def test_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    for name in ("a.txt", "b.txt", "c.json", "sub/e.txt"):
        (tmp_path / name).write_text(f"{name}\nline2")
    (tmp_path / "j.json").write_text(json.dumps({"a": 1}))
    (tmp_path / "n.cls").write_text("7")
    (tmp_path / "p.pyd").write_bytes(pickle.dumps([1]))

    @alike
    def test_rows(torch):
        return compared("""
list(FileLister('.'))
list(FileLister(['.', 'sub'], '*.txt'))
list(FileLister('.', ['*.json', '*.cls'], recursive=True))
list(FileLister('.', recursive=True))
list(W(['.']).list_files(masks='*.json'))
list(FileLister('a.txt'))
list(FileLister('nowhere'))
len(FileLister('.', length=3))
len(FileLister('.'))
[(path, type(file).__name__, file.read()) for path, file in FileOpener(FileLister('.', '*.txt'))]
[(path, file.read()) for path, file in W(['a.txt']).open_files(mode='b')]
FileOpener(I(), mode='z')
FileOpener(I(), mode='rb', encoding='utf8')
list(FileOpener(W([3])))
list(StreamReader(FileOpener(W(['a.txt', 'b.txt']))))
list(FileOpener(W(['a.txt']), mode='rb').read_from_stream(4))
list(FileOpener(W(['j.json', 'n.cls', 'a.txt', 'p.pyd']), mode='rb').routed_decode())
[(e, decoder.basichandlers(e, b'12')) for e in ('txt', 'cls', 'json', 'inp', 'index', 'id', 'class', 'zz')]
[decoder.extension_extract_fn(x) for x in ('a/b.txt', 'b.tar.gz', 'x')]
[decoder.handle_extension('jpg', len)(x, 'abc') for x in ('a.JPG', 'gif', 'jpg')]
decoder.imagehandler('zzz')
sorted(decoder.imagespecs.items())
[common.match_masks('a.txt', x) for x in ('', '*.txt', ['*.x', '*.txt'], ['*.x'])]
""")(torch)

    test_rows()


def test_images(tmp_path):
    image = pytest.importorskip("PIL.Image")
    import numpy as np

    image.fromarray((np.arange(12) * 20).astype("u1").reshape(2, 2, 3)).save(tmp_path / "i.png")
    content = (tmp_path / "i.png").read_bytes()

    @alike
    def test_kinds(torch):
        decoder = names(torch)["decoder"]
        kinds = ("l8", "rgb8", "rgba8", "l", "rgb", "rgba", "torchrgb8", "torchrgb", "torchrgba", "pil", "pill")
        found = [decoder.imagehandler(kind)("png", content) for kind in kinds]
        return [x if isinstance(x, torch.Tensor) else (np.asarray(x).dtype.name, np.asarray(x).tolist()) for x in found]

    test_kinds()
