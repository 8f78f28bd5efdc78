"""Where views without elements begin in memory, and their strides: what is made of them later writes there."""

import io

import pytest

from tests.support.alike import alike

WAYS = (
    """
x[4:] | x[2:2] | x[4:, 1:] | x[1:, 3:] | x[:, 3:] | x[:, :, 5:] | x[2:2, 1] | x[1, 3:] | x[..., 2:2] | x[None, 4:]
x[4:, None] | x[:, 3:, None, ::2] | x[3::2][1:] | x[1:][2:2] | x[4::2] | x[1:1:3, ::2] | x[4:9] | x[3:1] | x[-1:-3]
x[-2:, -1, 5:] | x[1:, 2:][3:] | x[::2][2:] | x[::2, 3::2] | x[0:0][0:0] | x[torch.tensor(2):torch.tensor(2)]
x.narrow(0, 4, 0) | x.narrow(1, 2, 0) | x.narrow(2, 5, 0) | x.split([0, 4], 0)[0] | x.split([4, 0], 0)[1]
x.split([1, 0, 3])[1] | x.split(2)[1][2:] | x.chunk(4)[3][1:] | x[4:].chunk(2)[-1] | x[4:].split(2)[0]
x.tensor_split((4,))[1] | x.tensor_split((2, 1))[1] | x.hsplit([3])[1] | x.vsplit([4])[1] | x.dsplit([5])[1]
x[:, 3:].select(0, 2) | x.select(0, 1)[3:] | x.select(2, 1)[:, 3:] | x[:, 3:].unbind(0)[2]
x.unfold(0, 0, 1) | x[1:].unfold(0, 0, 2) | x[3:3].unfold(1, 2, 1) | x.unfold(0, 2, 1)[3:]
x.as_strided((0, 2), (3, 1), 7) | x.as_strided((0,), (1,), 60) | x[1:].as_strided((2, 0), (1, 1))
x[4:].as_strided((0, 2), (1, 2)) | x[3:3].as_strided((2, 2), (1, 2), 3)
x[4:].expand(0, 3, 5) | x[1:1].expand(2, 0, 3, 5) | x[0, 0, :1][:, None].expand(1, 0) | x[2:2].expand_as(x[2:2])
torch.broadcast_tensors(x[2:2, :1], x[:1])[0] | torch.meshgrid(x[0, 0, 4:4], x[0, 0], indexing="ij")[1]
x[4:].diagonal() | x.diagonal(5) | x.diagonal(-7) | x[:, 3:].diagonal(0) | x[1:].diagonal(3)
x.diagonal(1, 2, 1)[:, 5:]
x[4:].mT | x[4:].transpose(0, 2) | x[2:2].permute(2, 0, 1) | x[4:].movedim(0, 1) | x.mT[:, 5:] | x.adjoint()[4:]
x[4:].view(-1) | x[2:2].view(0, 7) | x[2:2].reshape(5, 0) | x[:, 2:2].reshape(-1) | x[:, 2:2].flatten()
x[2:2].unflatten(0, (0, 2)) | x[4:].unsqueeze(0) | x[4:].unsqueeze(-1) | x[2:2, :1].squeeze(1) | x[2:2].squeeze()
x[2:2].detach() | x[2:2].data | x[2:2].view_as(x[2:2]) | x[2:2].contiguous() | x[2:2].real | x[2:2].view(torch.int16)
x[2:2].view(torch.int32) | x[4:].detach().resize_(0, 2) | x[2:2].detach().transpose_(0, 1)
x[2:2].detach().squeeze_(0) | x[2:2].detach().unsqueeze_(0) | x[2:2].detach().as_strided_((0, 2), (1, 1), 4)
x.detach().set_(x.detach()[4:]) | torch.view_as_real(x.detach().to(torch.complex64)[2:2])
torch.empty(0)[0:] | torch.empty(0, 3)[:, 1:] | torch.empty(0, 3)[:, 1] | torch.empty(3, 0)[1]
torch.empty(3, 0)[1:, 0:]
torch.empty(2, 0, 3)[1, :, 1:] | torch.empty(2, 0, 3).select(2, 2) | torch.empty(2, 0, 3).unbind(2)[1]
torch.empty(0, 4)[:, 1::3] | torch.zeros(0, 4).chunk(2, 1)[1] | torch.zeros(2, 3, 0).sum(2)[2:]
""".replace("\n", " | ")
    .strip(" |")
    .split(" | ")
)

TENSORS = {
    "leaf": lambda torch: torch.arange(60.0).reshape(4, 3, 5).requires_grad_(),
    "computed": lambda torch: torch.arange(60.0).reshape(4, 3, 5).requires_grad_() * 2,
    "integers": lambda torch: torch.arange(60).reshape(4, 3, 5),
    "permuted": lambda torch: torch.arange(60.0).reshape(5, 3, 4).permute(2, 1, 0),
    "a part": lambda torch: torch.arange(120.0).reshape(5, 4, 6)[1:, 1:, :5],
    "bfloat16": lambda torch: torch.arange(60).reshape(4, 3, 5).to(torch.bfloat16),
    "float8": lambda torch: torch.zeros(4, 3, 5).to(torch.float8_e5m2),
    "meta": lambda torch: torch.empty(4, 3, 5, device="meta"),
}


@pytest.mark.parametrize("way", WAYS)
def test_empty_views_begin_where_theirs_do(way):
    def scenario(torch):
        found = []
        for name, make in TENSORS.items():
            x = make(torch)
            try:
                view = eval(way, {"torch": torch, "x": x})
            except (RuntimeError, NotImplementedError) as error:
                found.append((name, type(error).__name__))
            else:
                found.append((name, tuple(view.shape), view.stride(), view.storage_offset(), bool(view.data_ptr())))
        return found

    alike(scenario_named(scenario))()


def scenario_named(scenario):
    scenario.__name__ = "test_of_a_view"
    return scenario


GROWN = {
    "resize_": lambda torch, e: e.resize_(2, 4).fill_(1),
    "resize_as_": lambda torch, e: e.resize_as_(torch.ones(2)).zero_(),
    "as_strided": lambda torch, e: e.as_strided((2,), (2,)).fill_(7),
    "out of add": lambda torch, e: torch.add(torch.ones(2), 1, out=e),
    "out of cat": lambda torch, e: torch.cat([torch.ones(1), torch.ones(1)], out=e),
    "data": lambda torch, e: e.data.resize_(3).neg_(),
    "set_": lambda torch, e: torch.empty(0).set_(e).resize_(2).fill_(9),
    "as_strided_": lambda torch, e: e.as_strided_((2,), (1,)).fill_(5),
}


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("grown", GROWN)
def test_what_is_made_of_an_empty_view_writes_in_its_place(grown):
    def scenario(torch):
        found = []
        for place in (slice(2, 2), slice(7, 7), slice(9, 9)):
            x = torch.arange(12.0)
            empty = x[place]
            GROWN[grown](torch, empty)
            memory = x.untyped_storage().nbytes()
            found += [x, tuple(empty.shape), empty.storage_offset(), memory]
        return found

    alike(scenario_named(scenario))()


@alike
def test_gradients_pass_through_what_is_made_of_an_empty_view(torch):
    x = torch.arange(12.0).requires_grad_()
    y = x * 1
    y[4:4].as_strided((2,), (3,), 1).mul_(3)
    y.sum().backward()
    z = torch.arange(3.0).requires_grad_()
    shown = z[3:].as_strided((2,), (1,), 0)
    shown.sum().backward()
    return x.grad, y, shown, z.grad


@alike
def test_empty_tensors_overlap_with_nothing(torch):
    x = torch.arange(12.0).reshape(3, 4)
    x[1:1].copy_(x[2:2])
    torch.mul(x[3:], x[1:1], out=x[0:0])
    torch.cat([x[1:1], x[2:2]], out=x[1:1])
    return x


@alike
def test_an_empty_view_is_saved_with_its_place(torch):
    x = torch.arange(12.0)
    file = io.BytesIO()
    torch.save([x, x[5:5], x[12:]], file)
    file.seek(0)
    loaded = torch.load(file)
    loaded[1].resize_(2).fill_(100)
    return loaded[0], [t.storage_offset() for t in loaded]
