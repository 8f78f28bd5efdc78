"""PyTorch 2.13 has no named tensors any more: no names, no dimensions by name. So it is here."""

import pytest

import tensorgrad
from tests.support.alike import alike, error

GONE = (
    "align_as", "align_to", "has_names", "names", "refine_names", "rename", "rename_", "_update_names",
)  # fmt: skip
FACTORIES = {
    "as_tensor": "[1.0]", "arange": "3", "empty": "2, 3", "eye": "3", "full": "(2, 3), 1.0", "linspace": "0, 1, 3",
    "ones": "2, 3", "rand": "2, 3", "randint": "3, (2,)", "randn": "2, 3", "randperm": "3", "tensor": "[1.0]",
    "zeros": "2, 3", "empty_like": "x", "full_like": "x, 1.0", "ones_like": "x", "rand_like": "x", "randn_like": "x",
    "zeros_like": "x",
}  # fmt: skip
CALLS = """
x.all('N') x.amax('N') x.any('N') x.argmax('N') x.argsort('N') x.chunk(2,'N') x.count_nonzero('N') x.cummax('N')
x.cumprod('N') x.cumsum('N') x.diagonal(0,'N','C') x.flatten('N','C') x.flatten(['N','C'],'F') x.flatten(0,1,'F')
x.flip('N') x.gather('N',i) x.index_add('N',i[0],x) x.index_fill('N',i[0],1.0) x.index_select('N',i[0])
x.kthvalue(1,'N') x.logcumsumexp('N') x.logsumexp('N') x.log_softmax('N') x.max('N') x.mean('N') x.median('N')
x.min(dim='N') x.mode('N') x.movedim('N','C') x.narrow('N',0,1) x.norm(2,'N') x.permute('N','C') x.prod('N')
x.renorm(2,'N',1.0) x.roll(1,'N') x.scatter('N',i,1.0) x.select('N',0) x.size('N') x.softmax('N') x.sort('N')
x.split(1,'N') x.squeeze('N') x.std('N') x.stride('N') x.sum('N') x.sum(('N',)) x.swapdims('N','C') x.topk(1,'N')
x.transpose('N','C') x.unbind('N') x.unflatten('N',(1,2)) x.unflatten(0,(('a',1),('b',2)))
x.unflatten(0,(1,2),('a','b')) x.unfold('N',1,1) x.unsqueeze('N') x.var('N') torch.cat([x,x],'N')
torch.stack([x,x],'N') torch.softmax(x,'N') torch.sum(x,dim='N') torch.split(x,1,dim='N')
torch.nn.functional.softmax(x,'N') torch.nn.Softmax('N')(x) torch.nn.Unflatten('N',(('a',1),('b',2)))
"""


@alike
def test_tensors_have_no_names(torch):
    x = torch.zeros(2, 3)
    made = [[hasattr(x, name), hasattr(torch.Tensor, name), error(getattr, x, name)] for name in GONE]
    modules = (torch, "align_tensors"), (torch, "_namedtensor_internals"), (torch._C, "_NamesGuard")
    return made + [hasattr(module, name) for module, name in modules]


@alike
def test_no_factory_takes_names(torch):
    x = torch.zeros(2, 3)
    values = {"torch": torch, "x": x}
    kinds = []
    for name, given in FACTORIES.items():
        for names in (None, ("N", "C")):
            said = error(eval, f"torch.{name}({given}, names={names})", values)
            kinds.append([name, said.partition(":")[0], "names" in said])
    return kinds


@alike
def test_no_dimension_goes_by_name(torch):
    values = {"torch": torch, "x": torch.zeros(2, 3), "i": torch.tensor([[0]])}
    return [[call, error(eval, call, values).partition(":")[0]] for call in CALLS.split()]


@pytest.mark.parametrize("call", ["x.size('N')", "x.stride('N')", "x.sum('N')", "x.softmax('N')", "x.select('N', 0)"])
def test_the_error_names_function_argument_and_type(call):
    name = call.split(".")[1].partition("(")[0]
    place = r" \(position 1\)" if name not in ("size", "stride") else ""
    with pytest.raises(TypeError, match=rf"{name}\(\): argument 'dim'{place} must be int, not str"):
        eval(call, {"x": tensorgrad.zeros(2, 3)})
