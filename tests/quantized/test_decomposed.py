"""`torch.ops.quantized_decomposed`: quantization as operators on tensors of integers."""

import importlib

import pytest

from tests.support.alike import alike


def ops(torch):
    importlib.import_module(f"{torch.__name__}.ao.quantization.fx._decomposed")
    return torch.ops.quantized_decomposed


def values(torch):
    return torch.linspace(-3, 5, 24).reshape(2, 3, 4)


@alike
def test_one_scale_for_all(torch):
    q, x = ops(torch), values(torch)
    found = []
    for dtype, low, high in ((torch.uint8, 0, 255), (torch.int8, -128, 127), (torch.int16, -1000, 1000)):
        made = q.quantize_per_tensor(x, 0.05, 3, low, high, dtype)
        found += [made, q.dequantize_per_tensor(made, 0.05, 3, low, high, dtype)]
    scale, zero = torch.tensor(0.1), torch.tensor(2)
    made = q.quantize_per_tensor.tensor(x.half(), scale, zero, 0, 255, torch.uint8)
    found += [made, q.dequantize_per_tensor.tensor(made, scale, zero, 0, 255, torch.uint8, out_dtype=torch.float16)]
    limits = torch.tensor(0), torch.tensor(255)
    found.append(q.quantize_per_tensor.tensor2(x, scale, zero, *limits, torch.uint8))
    found.append(q.dequantize_per_tensor.tensor2(made, scale, zero, *limits, torch.uint8))
    return found


@alike
def test_scales_for_channels_and_rows(torch):
    q, x = ops(torch), values(torch)
    scales, zeros = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0, 1, 2])
    made = q.quantize_per_channel(x, scales, zeros, 1, -128, 127, torch.int8)
    found = [made, q.dequantize_per_channel(made, scales, zeros, 1, -128, 127, torch.int8)]
    found.append(q.dequantize_per_channel(made, scales, None, 1, -128, 127, torch.int8))
    for choose in (q.choose_qparams_per_token, q.choose_qparams_per_token_asymmetric):
        scale, zero = choose(x, torch.int8)
        made = q.quantize_per_token(x, scale, zero, -128, 127, torch.int8)
        found += [scale, zero, made, q.dequantize_per_token(made, scale, zero, -128, 127, torch.int8, torch.float32)]
    return found


@alike
def test_scales_are_chosen(torch):
    q, x = ops(torch), values(torch)
    found = []
    for dtype, low, high in ((torch.uint8, 0, 255), (torch.int8, -128, 127)):
        for choose in (q.choose_qparams.tensor, q.choose_qparams_symmetric.tensor):
            found += [*choose(x, low, high, 1e-6, dtype), *choose(x - 10, low, high, 1e-6, dtype)]
    return found


@alike
def test_wrong_calls(torch):
    q, x, found = ops(torch), values(torch), []
    for call in (
        lambda: q.quantize_per_tensor(x.double(), 0.1, 0, 0, 255, torch.uint8),
        lambda: q.quantize_per_tensor(x, 0.1, 0, -1, 255, torch.uint8),
        lambda: q.quantize_per_tensor(x, 0.1, 0, 0, 256, torch.uint8),
        lambda: q.quantize_per_tensor(x, 0.1, 0, 0, 255, torch.int64),
        lambda: q.dequantize_per_tensor(x, 0.1, 0, 0, 255, torch.uint8),
        lambda: q.quantize_per_channel(x, torch.ones(3), torch.zeros(3), 3, 0, 255, torch.uint8),
        lambda: q.quantize_per_token(x, torch.ones(3), torch.zeros(3), 0, 255, torch.uint8),
        lambda: q.choose_qparams.tensor(x, 3, 2, 1e-6, torch.uint8),
    ):
        with pytest.raises((AssertionError, ValueError)) as error:
            call()
        found.append((type(error.value).__name__, str(error.value)))
    return found


def test_a_program_adds_operators():
    import tensorgrad
    from tensorgrad.ao.quantization.fx._decomposed import quantized_decomposed_lib

    quantized_decomposed_lib.impl(
        quantized_decomposed_lib.define("case_twice(Tensor x) -> Tensor"), lambda x: 2 * x, "CompositeExplicitAutograd"
    )
    assert tensorgrad.ops.quantized_decomposed.case_twice(tensorgrad.ones(1)).item() == 2
