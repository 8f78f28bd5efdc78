"""Docstrings answer where they are read: in a tooltip nobody follows "the arguments are those of `Adam`"."""

import inspect
import re

import pytest

import tensorgrad as torch

DEAD_END = re.compile(r"[Aa]rguments (are|as) those (of|in)|[Aa]rguments( and formula)?: `")
PLACES = {
    "torch": torch, "Tensor": torch.Tensor, "nn": torch.nn, "functional": torch.nn.functional, "optim": torch.optim,
    "lr_scheduler": torch.optim.lr_scheduler, "swa_utils": torch.optim.swa_utils, "linalg": torch.linalg,
    "fft": torch.fft, "special": torch.special, "data": torch.utils.data, "distributions": torch.distributions,
    "init": torch.nn.init, "func": torch.func, "nn.utils": torch.nn.utils,
}  # fmt: skip


def public(place) -> dict:
    values = {name: getattr(place, name) for name in dir(place) if name[0] != "_" and name != "Any"}
    return {name: value for name, value in values.items() if inspect.isclass(value) or inspect.isroutine(value)}


@pytest.mark.parametrize("place", PLACES)
def test_no_docstring_sends_its_reader_elsewhere(place):
    found = public(PLACES[place])
    assert found
    assert not [name for name, value in found.items() if DEAD_END.search(inspect.getdoc(value) or "")]


# --- arguments -----------------------------------------------------------------------------------------------------

# Parameters that mean the same everywhere, and those that PyTorch has replaced by `reduction`.
COMMON = {"self", "device", "dtype", "size_average", "reduce", "args", "kwargs", "options", "last_epoch", "foreach"}
# Classes whose docstring does not name every argument: layers that are another one but for the size that they find out
# themselves, and old names.
LAZY = {f"Lazy{kind}{n}d" for kind in ("BatchNorm", "Conv", "ConvTranspose", "InstanceNorm") for n in (1, 2, 3)}
NOT_YET: dict[str, set[str]] = {
    "nn": LAZY | {"Hardtanh", "NLLLoss2d", "SyncBatchNorm"}, "optim": set(), "lr_scheduler": set(),
}  # fmt: skip


def missing(cls) -> list[str]:
    """The parameters of a class or function that the section `Args` of its docstring does not name."""
    section = re.search(r"^Args:\n((?:    .*\n|\n)*)", (inspect.getdoc(cls) or "") + "\n", flags=re.M)
    named = re.findall(r"^    (\S[^:]*):", section[1], flags=re.M) if section else []
    names = {name.strip(" *`\n") for each in named for name in each.split(",")}
    parameters = inspect.signature(cls).parameters.values()
    given = [one.name for one in parameters if not one.name.startswith("_") and one.kind is not one.VAR_KEYWORD]
    return [name for name in given if name not in names | COMMON]


@pytest.mark.parametrize("place", NOT_YET)
def test_every_class_says_what_its_arguments_are(place):
    """All layers, losses, optimizers and schedules but the few that are listed, which may only become fewer."""
    classes = {n: v for n, v in public(PLACES[place]).items() if inspect.isclass(v)}
    lacking = {name: missing(cls) for name, cls in classes.items() if missing(cls)}
    assert set(lacking) == NOT_YET[place], {n: v for n, v in lacking.items() if n not in NOT_YET[place]}


# What programs of PyTorch's users call most often. Arguments that mean the same everywhere need no explanation.
MOST_USED = """
    Tensor.backward nn.Module nn.Module.parameters nn.Linear nn.Module.zero_grad optim.Optimizer.step Tensor.item
    Tensor.view Tensor.size optim.Adam no_grad zeros tensor Tensor.to nn.Sequential cat cuda.is_available
    manual_seed ones utils.data.DataLoader Tensor.sum randn device Tensor.detach nn.Module.state_dict nn.Module.eval
    nn.functional.relu Tensor.mean save nn.Module.train Tensor.unsqueeze Tensor.type Tensor.numpy nn.Parameter
    nn.ReLU nn.CrossEntropyLoss Tensor.float nn.Conv2d nn.Embedding arange LongTensor optim.SGD from_numpy
    nn.Module.load_state_dict Tensor.cpu log load Tensor FloatTensor autograd.Variable rand exp
    nn.functional.softmax nn.Dropout Tensor.cuda nn.Tanh Tensor.pow tanh stack Tensor.transpose nn.Module.apply
    nn.Module.register_buffer Tensor.squeeze max linspace nn.MSELoss Tensor.max nn.functional.log_softmax
    Tensor.reshape Tensor.clone Tensor.numel Tensor.contiguous sum Tensor.fill_ zeros_like randint multinomial
    Tensor.expand utils.data.Dataset nn.ModuleList nn.LeakyReLU sqrt sin matmul Tensor.exp optim.AdamW
    nn.utils.clip_grad_norm_ nn.functional.cross_entropy Tensor.clamp nn.MaxPool2d nn.Sigmoid Tensor.add empty
    Tensor.tolist Tensor.view_as Tensor.flatten Tensor.requires_grad_ nn.init.normal_ Tensor.copy_ ones_like
    accelerator.current_accelerator Tensor.abs mean Tensor.add_ nn.init.constant_ tril accelerator.is_available
    nn.RNN nn.LayerNorm nn.Module.named_parameters min Tensor.t pow sigmoid cuda.FloatTensor nn.BatchNorm2d abs
    autograd.Function autograd.grad nn.init.zeros_ Tensor.sqrt Tensor.zero_ nn.BatchNorm1d Tensor.eq nn.LSTM
    randperm nn.NLLLoss Tensor.masked_fill where nn.functional.nll_loss eye nn.BCELoss nn.LazyLinear Tensor.flip
    nn.ModuleDict Tensor.argmax cos Tensor.type_as Tensor.mul Tensor.gather nn.Softmax Tensor.log
    nn.functional.max_pool2d topk Tensor.long dot nn.functional.mse_loss Tensor.div mm distributions.Categorical
    nn.functional.smooth_l1_loss as_tensor allclose nn.functional.softplus Tensor.permute flatten clamp nn.Flatten
    sort cuda.manual_seed utils.data.RandomSampler Tensor.all Tensor.split nn.init.uniform_ utils.data.TensorDataset
    nn.functional.sigmoid utils.data.dataloader.DataLoader all nn.Dropout2d nn.functional.linear
    cuda.manual_seed_all Tensor.norm Tensor.dim is_tensor Tensor.std distributions.Normal Tensor.nelement
    Tensor.mul_ nn.GRU nn.Upsample Tensor.any Tensor.double Tensor.diag ceil Tensor.var nn.Module.named_modules
    reshape sign Tensor.chunk nn.functional.pad Tensor.normal_ Tensor.reshape_as nn.functional.tanh nn.Conv1d
    linalg.solve Tensor.repeat enable_grad isfinite Tensor.movedim Tensor.ndimension meshgrid rand_like normal
    optim.RMSprop unsqueeze Tensor.unique autograd.functional.vjp inference_mode roll searchsorted nn.GELU
    Tensor.new_zeros Generator as_strided nn.functional.dropout full Tensor.mm Tensor.uniform_ linalg.norm
    linalg.vecdot outer nn.init.orthogonal_ norm serialization.safe_globals Size nn.init.xavier_uniform_
    Tensor.reciprocal Tensor.tile cuda.synchronize is_complex is_floating_point nextafter promote_types
    nn.functional.avg_pool2d nn.modules.dropout.Dropout nn.modules.linear.Linear nn.modules.sparse.Embedding gather
    nn.AvgPool2d optim.Adadelta randn_like nn.modules.activation.MultiheadAttention nn.modules.container.ModuleList
    nn.modules.linear.NonDynamicallyQuantizableLinear nn.modules.normalization.LayerNorm nn.modules.rnn.GRU
    nn.modules.rnn.LSTM nn.modules.rnn.RNN nn.modules.transformer.TransformerEncoder
    nn.modules.transformer.TransformerEncoderLayer optim.lr_scheduler.StepLR Tensor.expand_as nn.Module.children
    nn.Module.register_forward_hook Tensor.masked_fill_ argmax func.functional_call nn.Transformer onnx.export
    einsum nn.Identity split nn.SiLU softmax func.vmap isnan Tensor.topk Tensor.logsumexp nn.functional.elu
    nn.Module.modules Tensor.sin nn.utils.weight_norm logsumexp
"""
EVERYWHERE = COMMON | {
    "input", "out", "layout", "requires_grad", "pin_memory", "memory_format", "size", "names", "generator",
    "old", "fill", "more",  # what PyTorch takes by position, too
}  # fmt: skip


def of_name(name: str):
    """What a program means by `torch.` and this name."""
    found = torch
    for part in name.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("name", MOST_USED.split())
def test_what_is_used_most_says_what_its_arguments_are(name):
    value = of_name(name)
    doc = inspect.getdoc(value) or ""
    assert doc
    if not doc.startswith("In-place version of `"):  # whose arguments are those of the other, which it names
        assert not [one for one in missing(value) if one not in EVERYWHERE]


@pytest.mark.parametrize("place", PLACES)
def test_errors_of_calls_are_in_a_section(place):
    found = public(PLACES[place])
    assert not [name for name, value in found.items() if re.search(r". Raises \w+Error", inspect.getdoc(value) or "")]


@pytest.mark.parametrize("place", NOT_YET)
def test_every_class_has_an_example(place):
    classes = {n: v for n, v in public(PLACES[place]).items() if inspect.isclass(v)}
    assert not [name for name, cls in classes.items() if ">>>" not in (cls.__doc__ or "")]
