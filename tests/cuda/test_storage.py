"""The memory of tensors on GPUs: copies to and from the host keep values, dtype and layout; views share memory."""

import numpy as np
import pytest

import tensorgrad as torch
from tensorgrad.layouts import dense_order
from tensorgrad.storage.cuda.storage import CUDAStorage

DTYPES = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
    torch.float32, torch.float64, torch.complex64, torch.complex128,
)  # fmt: skip
LAYOUTS = {
    "rows": lambda x: x,
    "columns": lambda x: x.transpose(0, 2),
    "channels last": lambda x: x.permute(0, 2, 1).contiguous().permute(0, 2, 1),
    "gaps": lambda x: x[:, ::2],
    "gaps in columns": lambda x: x.transpose(0, 1)[::2],
    "expanded": lambda x: x[:1].expand(4, 3, 4),
    "no dimensions": lambda x: x[1, 1, 1],
    "empty": lambda x: x[:, :0],
    "empty in columns": lambda x: x[:, :0].transpose(0, 1),
    "an axis of one": lambda x: x[:, 1:2].transpose(0, 1),
}


def example(dtype):
    values = torch.arange(24).reshape(2, 3, 4)
    return (values * (1 - 2j) if dtype.is_complex else values % 2 if dtype is torch.bool else values).to(dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_there_and_back(dtype, layout, device):
    x = LAYOUTS[layout](example(dtype))
    there = x.to(device)
    assert there.dtype == x.dtype and there.shape == x.shape
    back = there.cpu()
    assert back.tolist() == x.tolist()
    if dense_order(x._array) is not None:  # a tensor without gaps keeps its layout, as in PyTorch
        assert there.stride() == back.stride() == x.stride()
    elif x.numel():
        assert there.is_contiguous() and back.is_contiguous()
    view = LAYOUTS[layout](example(dtype).to(device))  # the same, made on the GPU
    assert view.cpu().tolist() == view.tolist() == x.tolist()
    assert view.clone().tolist() == x.tolist()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_made_there(dtype, device):
    one = 1 if dtype is not torch.bool else True
    assert torch.zeros(2, 3, dtype=dtype, device=device).tolist() == [[0] * 3] * 2
    assert torch.ones(3, dtype=dtype, device=device).tolist() == [one] * 3
    assert torch.full((2,), one, dtype=dtype, device=device).tolist() == [one] * 2
    assert torch.empty(0, 2, dtype=dtype, device=device).shape == (0, 2)
    x = torch.zeros(2, 3, dtype=dtype, device=device)
    x.fill_(one)[:, 1] = 0
    assert x.tolist() == [[one, 0, one]] * 2
    x.copy_(torch.ones(3, dtype=dtype))
    assert x.tolist() == [[one] * 3] * 2
    assert x.zero_().sum().item() == 0


def test_no_memory_is_shared_with_the_host(device):
    host = torch.arange(4.0)
    there = host.to(device)
    host.zero_()
    assert there.tolist() == [0, 1, 2, 3]
    back = there.cpu()
    there.zero_()
    assert back.tolist() == [0, 1, 2, 3]


def test_views_share_memory(device):
    x = torch.arange(6, device=device).reshape(2, 3)
    view = x[1:, 1:]
    assert view.storage_offset() == 4 and view.data_ptr() - x.data_ptr() == 4 * 8
    assert view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() == x.data_ptr()
    view.zero_()
    assert x.tolist() == [[0, 1, 2], [3, 0, 0]] and x._version == view._version == 1
    other = torch.as_strided(x, (2, 2), (1, 2), 1)
    other[0, 0] = 9
    assert x[0, 1].item() == 9
    assert x.view(torch.int32).shape == (2, 6) and x.t().untyped_storage().nbytes() == 48
    assert torch.empty(0, device=device).data_ptr() == 0
    assert x[:, :0].storage_offset() == 0


def test_storages_grow_and_are_written(device):
    x = torch.arange(3.0, device=device)
    x.resize_(5)
    assert x.shape == (5,) and x[:3].tolist() == [0, 1, 2] and x.is_cuda
    storage = x.untyped_storage()
    assert storage.nbytes() >= 20 and storage.device == x.device
    y = torch.empty(0, device=device).set_(storage, 1, (2,))
    assert y.tolist() == [1, 2]
    copied = storage.clone()
    assert storage.is_cuda and storage.cuda() is storage and not storage.cpu().is_cuda
    assert storage.cpu().tolist() == storage.tolist() == storage.cpu().cuda().tolist()
    assert storage.cpu().pin_memory().is_pinned() and not storage.is_pinned()
    storage.fill_(0)
    assert x.tolist() == [0] * 5 and copied.data_ptr() != storage.data_ptr()
    z = torch.zeros(2, device=device)
    z.data = torch.ones(3, device=device)
    assert z.tolist() == [1, 1, 1]
    torch.add(x[:3], 1, out=z)
    assert z.tolist() == [1, 1, 1]


def test_numpy_needs_the_host(device):
    x = torch.ones(2, device=device)
    for convert in (torch.Tensor.numpy, np.asarray, np.array):
        with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
            convert(x)
    assert x.cpu().numpy().tolist() == x.numpy(force=True).tolist() == [1, 1]
    assert torch.from_numpy(np.arange(3)).to(device).tolist() == [0, 1, 2]
    assert torch.tensor(np.arange(3), device=device).device == x.device
    assert torch.as_tensor([1, 2], device=device).tolist() == [1, 2]


def test_numbers_beside_arrays_are_made_once(device):
    x = torch.ones(3, device=device, dtype=torch.float16)
    array = np.asarray(np.float16(0.3))
    assert CUDAStorage.number(array, x._array) is CUDAStorage.number(array.copy(), x._array)
    kept = (
        CUDAStorage.number(np.asarray(np.float16(0.0)), x._array),
        CUDAStorage.number(np.asarray(np.float16(-0.0)), x._array),
    )
    assert kept[0] is not kept[1]
    for _ in range(2):  # whatever is done with a result, the number stays
        assert (x * 0.5).add_(1).tolist() == [1.5] * 3
        assert torch.maximum(x * 0, torch.tensor(0.5)).mul_(2).tolist() == [1] * 3


# --- other libraries -------------------------------------------------------------------------------------------------


def test_dlpack(device):
    import cupy

    x = torch.arange(6.0, device=device).reshape(2, 3).t()
    assert x.__dlpack_device__() == (2, 0)
    for taken in (torch.from_dlpack(x), torch.from_dlpack(torch.to_dlpack(x)), torch.from_dlpack(cupy.from_dlpack(x))):
        assert taken.data_ptr() == x.data_ptr() and taken.stride() == (1, 3) and taken.device == x.device
    theirs = cupy.arange(3)
    mine = torch.from_dlpack(theirs)
    mine[0] = 7
    assert int(theirs[0]) == 7
    assert torch.from_dlpack(x, copy=True).data_ptr() != x.data_ptr()
    assert torch.from_dlpack(x, device="cpu").device.type == "cpu"
    half = torch.ones(2, device=device, dtype=torch.bfloat16)
    assert torch.from_dlpack(half).dtype == torch.bfloat16 and torch.from_dlpack(half).data_ptr() == half.data_ptr()
    with pytest.raises(BufferError, match="require gradient"):
        torch.ones(1, device=device, requires_grad=True).__dlpack__()
    with pytest.raises(TypeError, match="stream must be"):
        x.__dlpack__(stream="a")


def test_dlpack_waits_for_the_consumers_stream(device):
    emulated = pytest.importorskip("tests.emulator.dlpack", reason="looks at what the emulator was told")
    if not hasattr(__import__("cupy"), "EMULATED"):
        pytest.skip("looks at what the emulator was told")
    side = torch.cuda.Stream()
    x = torch.ones(2, device=device)
    emulated.WAITED.clear()
    x.__dlpack__(), x.__dlpack__(stream=-1), x.__dlpack__(stream=1)
    assert not emulated.WAITED
    x.__dlpack__(stream=side.cuda_stream)
    assert [stream for stream, _ in emulated.WAITED] == [side.cuda_stream]


def test_cuda_array_interface(device):
    import cupy

    x = torch.arange(6.0, device=device).reshape(2, 3)
    told = x.__cuda_array_interface__
    assert told["shape"] == (2, 3) and told["typestr"] == "<f4" and told["data"] == (x.data_ptr(), False)
    assert told["strides"] is None and x.t().__cuda_array_interface__["strides"] == (4, 12)
    assert not hasattr(torch.ones(1), "__cuda_array_interface__")
    with pytest.raises(RuntimeError, match="requires grad"):
        torch.ones(1, device=device, requires_grad=True).__cuda_array_interface__
    array = cupy.arange(3.0)
    shared, copied = torch.as_tensor(array), torch.tensor(array)
    shared[0] = 5
    assert float(array[0]) == 5 and copied.tolist() == [0, 1, 2] and shared.is_cuda and copied.is_cuda
    assert torch.as_tensor(array, device="cpu").tolist() == [5, 1, 2]
