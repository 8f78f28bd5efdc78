"""Kernels in the form that other processors get: registers of 4, 8 and 16 numbers, 16 and 32 of them.

The form depends on the processor's features. Where they are only pretended, the compiler makes of each wide register
several of those that there are, so the blocks are run as they would be there; their instructions are not.
"""

import pytest

from tests.support.processes import environment, run_python

pytest.importorskip("numba", reason="the package numba is optional: pip install '.[fast]'")

from tensorgrad.kernels.numba.runtime import internals, native

CODE = """
import platform, sys
import tensorgrad
from tensorgrad.kernels.numba.runtime import compiler, native
compiler.serving = True
features, machine = {features}, {machine!r}
if features is not None:
    native.has = features.__contains__
real = platform.machine
platform.machine = lambda: machine or real()
from tensorgrad.kernels.numba.simd import vectors
platform.machine = real
from tensorgrad.kernels.numba import compiling, verify
from tensorgrad.kernels.numba.runtime import cache, loading
assert (vectors.LANES, vectors.MANY) == {form}, (vectors.LANES, vectors.MANY)
where = cache.place()
for kernel in {kernels}:
    compiling.compile_into(kernel, where)  # compares it with NumPy
    assert verify.uses(kernel, loading.loaded[kernel]), kernel
print("right")
"""
# Each kernel whose blocks depend on it, once.
KERNELS = [
    "matmul.matmul", "conv.conv", "conv.conv_grad_weight", "attention.attention", "rnn.gru", "pool.max_pool",
    "reduce.sum", "reduce.vector_norm",
]  # fmt: skip
BASELINE = {"NUMBA_CPU_NAME": "x86-64-v2", "NUMBA_CPU_FEATURES": ""}
AVX2 = {"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma,+bmi,+bmi2,+lzcnt,+movbe,+f16c"}
# Features (None: what is found), the machine's name, the variables of the environment, lanes and whether there are 32.
FORMS = {
    "x86-64-v2": (None, None, BASELINE, (4, False)),
    "x86-64-v3": (None, None, AVX2, (8, False)),
    "x86-64-v4, pretended": ({"avx", "avx2", "avx512f"}, None, {}, (16, True)),
    "aarch64, pretended": ({"neon"}, None, {}, (4, True)),
    "macOS on arm64 without features, pretended": (set(), "arm64", {}, (4, True)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
def test_every_form_gives_the_results_of_numpy(name, tmp_path):
    features, machine, variables, form = FORMS[name]
    if "NUMBA_CPU_NAME" in variables and not internals.triple().startswith("x86_64"):
        pytest.skip("this is no x86-64 processor")
    if variables is AVX2 and not (native.has("avx512f") and native.has("fma")):
        pytest.skip("this processor has no AVX2, or every other test runs this form")
    kernels = KERNELS if machine is None else []  # the same form as another one's
    code = CODE.format(features=features, machine=machine, form=form, kernels=kernels)
    own = {"TENSORGRAD_CACHE": str(tmp_path), "TENSORGRAD_FAST": "1"}
    done = run_python(code, env=environment("NUMBA_CPU", **{**variables, **own}), timeout=500)
    assert done.stdout.strip() == "right", done.stderr[-2000:]
