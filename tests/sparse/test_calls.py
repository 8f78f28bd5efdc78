"""Calls on tensors of every sparse layout: what torch computes is computed here, in the same layout.

A call is an expression of `T` (the library), `x` and `y` (tensors of one layout). Where torch raises an error nothing
is compared: some calls work here that do not there.
"""

import re

import numpy as np
import pytest

import tensorgrad
from tests.sparse.cases import HYBRID, HYBRID_SECOND, LAYOUTS, SECOND, coo, numbers, shown, thinned

torch = pytest.importorskip("torch", reason="torch is the oracle of these tests")
pytestmark = pytest.mark.filterwarnings("ignore")


def of_batch(method, *block):
    def make(T):
        one = thinned((4, 6), 3)
        return getattr(T.tensor(np.stack([one, one[::-1] * 2])), method)(*block)

    return make


def of_array(function):
    return lambda T: T.tensor(function(thinned((4, 6), 3))).to_sparse()


GIVEN = {
    **LAYOUTS, **HYBRID, "batch csr": of_batch("to_sparse_csr"), "batch bsr": of_batch("to_sparse_bsr", (2, 2)),
    "bool": of_array(lambda x: x != 0),
    "int": of_array(lambda x: (x * 10).astype(np.int64)), "complex": of_array(lambda x: x * (1 + 1j)),
    "3d": coo(2, 3, 4), "1d": coo(6), "empty": lambda T: T.sparse_coo_tensor((4, 6)),
}  # fmt: skip
OTHER = {**GIVEN, **SECOND, **HYBRID_SECOND}

CALLS = {
    "indexing": """
        x[0] | x[-1] | x[0:2] | x[1:] | x[::2] | x[...] | x[:] | x[None] | x[0,1] | x[:,1] | x[:,1:3] | x[0:2,1:3] |
        x[...,0] | x[[0,1]] | x[index(T, 0,1)] | x[0][0]
    """,
    "selecting and properties": """
        x.select(0,1) | x.select(1,1) | x.select(-1,0) | x.select(2,0) | x.narrow(0,0,2) | x.narrow(1,1,2) |
        x.narrow_copy(0,0,2) | x.narrow_copy(1,1,2) | x.unbind() | x.unbind(1) | list(x) | len(x) | x.split(2) |
        x.chunk(2) | x.numel() | x.size() | x.shape | x.dim() | x.contiguous() | x.element_size() | x.nbytes |
        x.is_floating_point() | x.is_complex() | x.is_nonzero() | bool(x) | x.item() | x.tolist() | x.numpy() |
        x.is_same_size(x) | x.is_signed()
    """,
    "reductions": """
        x.norm() | x.norm(2) | x.norm(1) | x.norm(float('inf')) | x.norm(dim=0) | x.norm(p=2,dim=1) | T.native_norm(x) |
        T.native_norm(x,2) | T.linalg.vector_norm(x) | T.linalg.norm(x) | x.sum() | x.sum(0) | x.sum(-1) | x.sum((0,1))
        | x.sum(0,keepdim=True) | x.sum(dtype=T.float32) | x.mean() | x.mean(0) | x.prod() | x.prod(0) | x.amax() |
        x.amin() | x.max() | x.min() | x.max(0) | x.min(0) | x.argmax() | x.argmin() | x.any() | x.all() | x.any(0) |
        x.all(0) | x.var() | x.std() | x.cumsum(0) | x.logsumexp(0) | x.count_nonzero() | x.nonzero() | x.median() |
        x.amax(0) | x.amax(1) | x.softmax(0) | x.softmax(1) | x.log_softmax(1) | T.softmax(x,0) |
        T.nn.functional.softmax(x,0) | x.trace() | x.diagonal() | x.diag() | x.tril() | x.triu() | x.nansum()
    """,
    "like-functions": """
        T.zeros_like(x) | T.empty_like(x) | T.ones_like(x) | T.full_like(x,2) | T.rand_like(x) | T.randn_like(x) |
        T.randint_like(x,3) | T.zeros_like(x,layout=T.strided) | T.ones_like(x,layout=T.strided) |
        T.empty_like(x,layout=T.strided).shape | T.zeros_like(x,layout=T.sparse_coo) |
        T.zeros_like(x,layout=T.sparse_csr) | T.zeros_like(x,layout=T.sparse_csc) | T.zeros_like(x,layout=T.sparse_bsr)
        | T.zeros_like(x,dtype=T.int32) | T.randn_like(x,layout=T.strided).shape | x.new_zeros(2,3) |
        x.new_empty(2,3).shape | x.new_ones(2) | x.new_tensor([1.]) | x.new_full((2,),1) | x.new() | x.new(2,3)
    """,
    "comparisons": """
        x==x | x!=x | x==0 | x!=0 | x>0 | x<0 | x>=0 | x==1 | x==y | x!=y | x<y | x==x.to_dense() | x.to_dense()==x |
        x.equal(x) | T.equal(x,y) | x.eq(x) | T.allclose(x,x) | T.isclose(x,x) | T.isclose(x,y) |
        T.allclose(x.to_dense(),x) | x.isnan() | x.isinf() | x.isfinite() | x.isposinf() | x.isneginf() | x.signbit() |
        x.logical_not() | x.logical_and(y) | x.logical_or(y) | ~x | x&y | x|y
    """,
    "arithmetic": """
        x+y | x-y | x*y | x/y | x+1 | 1+x | x-1 | 1-x | x*2 | 2*x | x/2 | 2/x | x//2 | x%2 | x**2 | x**0.5 | x**1 |
        x**-1 | 2**x | -x | +x | abs(x) | x+x.to_dense() | x.to_dense()+x | x-x.to_dense() | x.to_dense()-x |
        x*x.to_dense() | x.to_dense()*x | x/x.to_dense() | x.to_dense()/x | x.add(y,alpha=2) | x.mul(index(T, 2.)) |
        x*index(T, 2)[0] | x/index(T, 2.)[0] | x.div(2,rounding_mode='floor') | x.div(2,rounding_mode='trunc') |
        x.floor_divide(2) | x.true_divide(2) | x.remainder(2) | x.fmod(2) | T.maximum(x,y) | T.minimum(x,y) |
        T.lerp(x,y,0.5) | T.addcmul(x,x,x) | T.where(x>0,x,x) | x.rsub(1)
    """,
    "in place": """
        x.add_(y) | x.sub_(y) | x.mul_(2) | x.mul_(y) | x.div_(2) | x.neg_() | x.sin_() | x.zero_() | x.fill_(0) |
        x.fill_(1) | x.copy_(y) | x.copy_(y.to_dense()) | x.to_dense().copy_(x) | x.to_dense().add_(x) |
        x.to_dense().mul_(x) | x.to_dense().sub_(x) | x.add_(x.to_dense()) | x.t_() | x.transpose_(0,1) |
        x.resize_as_(y) | x.requires_grad_() | x.pow_(2) | x.floor_divide_(2) | x.relu_() | x.abs_() | x.sqrt_() |
        x.log1p_() | x.round_() | x.conj_physical_() | x.nan_to_num_() | x.clamp_(-1,1) | x.unsqueeze_(0) |
        x.squeeze_(0) | x.swapaxes(0,1)
    """,
    "shapes and dtypes": """
        x.t() | x.T | x.mT | x.H | x.mH | x.transpose(0,1) | x.transpose(-1,-2) | x.transpose(0,-1) | x.permute(1,0) |
        x.permute(0,1) | x.permute(2,0,1) | x.swapdims(0,1) | x.movedim(0,1) | x.unsqueeze(0) | x.unsqueeze(1) |
        x.unsqueeze(-1) | x.squeeze() | x.unsqueeze(0).squeeze(0) | x.view(-1) | x.reshape(-1) | x.reshape(x.shape) |
        x.flatten() | x.flatten(0,1) | x.expand(x.shape) | x.expand(2,*x.shape) | x.broadcast_to((2,*x.shape)) |
        x.repeat(2,1) | x.flip(0) | x.roll(1,0) | x.clone() | x.detach() | x.coalesce() | x.data | x.to(T.float32) |
        x.float() | x.half() | x.double() | x.int() | x.bool() | x.long() | x.to(T.complex128) | x.cpu() |
        x.type(T.float32) | x.type() | x.to(y) | x.type_as(y) | x.layout | x.is_sparse | x.is_sparse_csr | x.is_leaf |
        x.real | x.imag | x.conj() | x.resolve_conj() | x.angle() | x.view_as_real() | T.view_as_real(x) | T.real(x) |
        T.imag(x)
    """,
    "joining and picking": """
        T.cat([x,y]) | T.cat([x,y],1) | T.cat([x,y],-1) | T.stack([x,y]) | T.stack([x,y],1) | T.stack([x,y],-1) |
        T.hstack([x,y]) | T.vstack([x,y]) | T.dstack([x,y]) | T.column_stack([x,y]) | T.concat([x,y]) |
        T.row_stack([x,y]) | x.index_select(0,index(T, 1,0,1)) | x.index_select(1,index(T, 1,0,1)) |
        x.index_select(-1,index(T, 0)) | x.index_select(0,index(T, -1)) | x.index_add(0,index(T, 0),x) |
        T.take(x,index(T, 0)) | x.gather(0,index(T, 0)) | x.masked_fill(x>0,0) | x.masked_select(x>0) |
        x.scatter(0,index(T, 0),1)
    """,
    "layouts and parts": """
        x.to_dense() | x.to_sparse() | x.to_sparse(1) | x.to_sparse(2) | x.to_sparse_coo() | x.to_sparse_csr() |
        x.to_sparse_csc() | x.to_sparse_bsr((2,2)) | x.to_sparse_bsc((2,2)) | x.to_sparse_bsr((1,2)) |
        x.to_sparse(layout=T.sparse_csr) | x.to_sparse(layout=T.sparse_coo) | x.to_dense().to_sparse() |
        x.to_dense().to_sparse_csr() | x.to_dense(T.float32) | x.values() | x.indices() | x._values() | x._indices() |
        x.crow_indices() | x.col_indices() | x.ccol_indices() | x.row_indices() | x._nnz() | x.sparse_dim() |
        x.dense_dim() | x.is_coalesced() | x.sparse_mask(y) | x.to_dense().sparse_mask(x) | x._dimI() | x._dimV() |
        x._coalesced_(False)
    """,
    "products": """
        x@right(T, x) | left(T, x)@x | x.mm(right(T, x)) | T.mm(left(T, x),x) | x.matmul(right(T, x)) |
        T.matmul(left(T, x),x) | x@x.t() | x.mm(x.t()) | x.t()@left(T, x).t() | x.mv(row(T, x)) | x@row(T, x) |
        column(T, x)@x | x.dot(x) | T.addmm(added(T, x),x,right(T, x)) |
        T.addmm(added(T, x),x,right(T, x),beta=2,alpha=3) | T.addmm(added(T, x),x,right(T, x),beta=0) | x.addmm(x,x) |
        T.addmm(x.to_dense()*float("nan"),x,x,beta=0) |
        added(T, x).addmm_(x,right(T, x)) | added(T, x).addmm(x,right(T, x)) | T.addmm(added(T, x),right(T, x),x) |
        T.addmv(column(T, x),x,row(T, x)) | T.sspaddmm(x,x,square(T, x)) | x.sspaddmm(x,square(T, x)) |
        T.smm(x,right(T, x)) | x.smm(right(T, x)) | T.hspmm(x,right(T, x)) | T.hsmm(x,right(T, x)) |
        T.spmm(x,right(T, x)) | T.dsmm(x,right(T, x)) | T.saddmm(x,x,square(T, x)) | T.bmm(x,batch(T, x)) |
        x@batch(T, x) | T.baddbmm(batch(T, x),x,batch(T, x)) | T.sparse.mm(x,right(T, x)) | T.sparse.mm(left(T, x),x) |
        T.sparse.mm(x,x.t()) | T.sparse.mm(x,right(T, x),'mean') | T.sparse.addmm(added(T, x),x,right(T, x)) |
        T.sparse.addmm(added(T, x),x,right(T, x),beta=2,alpha=3) | T.sparse.sampled_addmm(x,left(T, x).t(),left(T, x)) |
        T.sparse.sampled_addmm(x,batch(T, x),x) | T.select_copy(x,0,1).values() | T.select_copy(x,1,0).indices() |
        T.empty_like(x,layout=T.sparse_csc).shape | T.rand_like(x,layout=T.sparse_bsr).shape |
        T.sparse.sum(x) | T.sparse.sum(x,0) | T.sparse.sum(x,(0,1)) | T.sparse.sum(x,dtype=T.float32) |
        T.sparse.softmax(x,0) | T.sparse.softmax(x,1) | T.sparse.softmax(x,1,dtype=T.float32) |
        T.sparse.log_softmax(x,0) | T.nn.functional.linear(right(T, x).t(),x) |
        T.nn.functional.linear(x,right(T, x).t()) | T.outer(x,x) | T.einsum('ij,jk->ik',x,right(T, x)) |
        T.tensordot(x,right(T, x),1) | T.kron(x,x) | T.linalg.inv(x) | x.inverse() | T.mul(x,column(T, x)[:,None]) |
        T.mul(x,row(T, x)) | x*row(T, x) | row(T, x)*x
    """,
    "functions of one element": """
        T.nn.functional.relu(x) | T.nn.functional.dropout(x,0.) | T.nn.functional.gelu(x) |
        T.nn.functional.leaky_relu(x) | T.tanh(x) | T.sigmoid(x) | T.exp(x) | T.log(x) | T.cos(x) | T.erf(x) |
        T.rsqrt(x) | T.reciprocal(x) | T.abs(x) | T.sign(x) | T.clamp(x,-1,1) | T.clamp(x,min=0.) | x.square() |
        x.is_conj() | x.is_neg() | T.is_tensor(x) | T.is_nonzero(x) | T.numel(x) | T.positive(x) | T.threshold(x,0.,0.)
        | T.sgn(x) | T.nan_to_num(x) | T.frac(x)
    """,
}
EXPRESSIONS = [call.strip() for group in CALLS.values() for call in re.sub(r"\s+", " ", group).split("|")]

# What differs, and why.
KNOWN = {
    "x.unbind(1)": ("bsc",),  # torch does not store the zeros of a block
    "x.signbit()": ("bsr", "bsc", "batch bsr"),  # torch keeps the sign of a zero in a block
    "x.mul_(2)": ("coo", "hybrid", "int", "complex", "3d", "1d"),  # torch forgets that it is coalesced
    "T.mul(x,column(T, x)[:,None])": ("1d",),  # whether it is marked as coalesced
    **dict.fromkeys(("x+y", "x-y", "x.add(y,alpha=2)", "x.add_(y)", "x.sub_(y)"), ("loose hybrid",)),  # how often a
    # coordinate is stored that both store
    "x.__repr__()": ("bsr", "bsc", "batch bsr"), "x.half().__repr__()": ("bsr", "bsc", "batch bsr"),  # zeros' signs
    "T.zeros_like(x).__repr__()": ("bool", "int"),  # the dtype is named
}  # fmt: skip
RANDOM = ("rand", "normal_", "bernoulli", "uniform", "empty_like(x)")


def index(T, *values):
    return T.tensor(values)


def right(T, x):
    return T.tensor(numbers((x.shape[1], 3), 31)).to(x.dtype)


def left(T, x):
    return T.tensor(numbers((3, x.shape[0]), 32)).to(x.dtype)


def square(T, x):
    return T.tensor(numbers((x.shape[1], x.shape[1]), 33)).to(x.dtype)


def row(T, x):
    return T.tensor(numbers((x.shape[-1],), 34)).to(x.dtype)


def column(T, x):
    return T.tensor(numbers((x.shape[0],), 35)).to(x.dtype)


def added(T, x):
    return T.tensor(numbers((x.shape[0], 3), 36)).to(x.dtype)


def batch(T, x):
    return T.tensor(numbers((x.shape[0], x.shape[2], 3), 37)).to(x.dtype)


def result(T, call, kind):
    """What the call gives, or the exception."""
    T.manual_seed(0)
    try:
        return call(T, GIVEN[kind](T), OTHER[kind](T))
    except Exception as error:
        return error


def comparable(T, value):
    if isinstance(value, T.Tensor):
        return shown(value.detach().resolve_conj())
    if isinstance(value, list | tuple) and not isinstance(value, T.Size):
        return [comparable(T, v) for v in value]
    return value.tolist() if isinstance(value, np.ndarray) else str(value).replace("tensorgrad", "torch")


def same(a, b, random):
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(same(v, w, random) for v, w in zip(a, b))
    if isinstance(a, tuple):
        (about, values), (about_here, values_here) = a, b
        return about == about_here and (random or np.allclose(values, values_here, 1e-5, 1e-7, equal_nan=True))
    return a == b


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_calls(expression):
    call = eval(f"lambda T, x, y: {expression}", globals())
    random = any(word in expression for word in RANDOM)
    for kind in GIVEN:
        theirs = result(torch, call, kind)
        if isinstance(theirs, Exception) or kind in KNOWN.get(expression, ()):
            continue
        mine = result(tensorgrad, call, kind)
        if isinstance(mine, Exception):
            raise mine
        try:
            a = comparable(torch, theirs)
        except (RuntimeError, IndexError):
            continue  # torch made a tensor whose parts do not fit each other
        b = comparable(tensorgrad, mine)
        assert same(a, b, random), f"{kind}: torch gives {a}, here it is {b}"
