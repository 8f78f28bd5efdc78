"""The emulator of a GPU runs CUDA C as a GPU would, and refuses what one would only seem to get away with."""

import shutil

import cupy
import numpy as np
import pytest

from tests.cuda.conftest import MODE

pytestmark = [
    pytest.mark.skipif(MODE != "emulator", reason="about the emulator of a GPU, not about a GPU"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="the emulator of a GPU needs g++"),
]


def launch(code, *args, grid=1, block=64, name="kernel", **options):
    kernel = cupy.RawModule(code=f'extern "C" __global__ void {code}').get_function(name)
    kernel((grid,) if isinstance(grid, int) else grid, (block,) if isinstance(block, int) else block, args, **options)


def floats(n=64):
    return cupy.asarray(np.arange(n, dtype=np.float32))


# --- what a GPU does ------------------------------------------------------------------------------------------------


def test_places_in_three_dimensions():
    out = cupy.zeros((2 * 3 * 2, 4 * 2 * 3), np.int32)
    launch(
        """kernel(int* out) {
            int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
            int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
            out[block * blockDim.x * blockDim.y * blockDim.z + thread] = block * 100 + thread;
        }""",
        out, grid=(2, 3, 2), block=(4, 2, 3),
    )  # fmt: skip
    assert np.array_equal(out.get(), np.arange(12)[:, None] * 100 + np.arange(24))


@pytest.mark.parametrize("threads", [32, 64, 1024])
def test_barriers_let_threads_see_each_other(threads):
    x = floats(threads)
    launch(
        """__launch_bounds__(1024) kernel(float* x) {
            SHARED(float, held);
            held[threadIdx.x] = x[threadIdx.x];
            __syncthreads();
            for (int half = blockDim.x / 2; half > 0; half /= 2) {
                if (threadIdx.x < half) held[threadIdx.x] += held[threadIdx.x + half];
                __syncthreads();
            }
            x[threadIdx.x] = held[0];
        }""",
        x, block=threads, shared_mem=4 * threads,
    )  # fmt: skip
    assert np.array_equal(x.get(), np.full(threads, threads * (threads - 1) / 2))


def test_shuffles_and_votes():
    out = cupy.zeros((6, 64), np.int32)
    launch(
        """kernel(int* out) {
            int lane = threadIdx.x % 32, i = threadIdx.x;
            unsigned all = 0xffffffffu;
            out[i] = __shfl_xor_sync(all, i, 5);
            out[64 + i] = __shfl_down_sync(all, i, 3, 8);
            out[128 + i] = __shfl_up_sync(all, i, 3);
            out[192 + i] = __shfl_sync(all, i, 7);
            out[256 + i] = __ballot_sync(all, i % 3 == 0);
            if (lane < 16) out[320 + i] = __any_sync(0xffffu, lane == 3) + 2 * __all_sync(0xffffu, lane == 3);
        }""",
        out,
    )  # fmt: skip
    i = np.arange(64)
    lane, warp = i % 32, i // 32 * 32
    votes = [sum(1 << j for j in range(32) if (w * 32 + j) % 3 == 0) for w in range(2)]
    want = [
        i ^ 5, np.where(lane % 8 + 3 < 8, i + 3, i), np.where(lane >= 3, i - 3, i), warp + 7,
        np.array(votes, np.uint32).view(np.int32)[i // 32], np.where(lane < 16, 1, 0),
    ]  # fmt: skip
    assert np.array_equal(out.get(), np.stack(want))


def test_atomics():
    counts, total = cupy.zeros(4, np.int32), cupy.zeros(1, np.float64)
    launch(
        """kernel(int* counts, double* total) {
            atomicAdd(counts, 1); atomicMax(counts + 1, (int)threadIdx.x); atomicMin(counts + 2, -(int)threadIdx.x);
            atomicCAS(counts + 3, 0, 7);
            atomicAdd(total, 0.5);
        }""",
        counts, total, grid=3,
    )  # fmt: skip
    assert counts.get().tolist() == [192, 63, -63, 7] and total.get().tolist() == [96.0]


def test_threads_that_leave_do_not_hold_up_the_others():
    x = floats()
    launch(
        """kernel(float* x) {
            if (threadIdx.x >= 40) return;
            __shared__ float held[64];
            held[threadIdx.x] = x[threadIdx.x];
            __syncthreads();
            x[threadIdx.x] = held[39 - threadIdx.x];
        }""",
        x,
    )
    assert np.array_equal(x.get(), [*range(39, -1, -1), *range(40, 64)])


def test_half_precision_is_rounded_as_by_numpy():
    bits = np.arange(65536, dtype=np.uint16).view(np.float16)
    wide = np.random.default_rng(0).integers(0, 2**32, 100_000, dtype=np.uint64).astype(np.uint32)
    wide[::2] = wide[::2] & 0x8FFFFFFF | 0x30000000  # near what a half can hold
    wide = wide.view(np.float32)
    code = """kernel(const half* x, float* y, const float* wide, half* z, long long n, long long m) {
        for (long long i = threadIdx.x; i < n; i += blockDim.x) y[i] = widen(x[i]);
        for (long long i = threadIdx.x; i < m; i += blockDim.x) z[i] = as_half(wide[i]);
    }"""
    y, z = cupy.empty(bits.size, np.float32), cupy.empty(wide.size, np.float16)
    launch(code, cupy.asarray(bits), y, cupy.asarray(wide), z, np.int64(bits.size), np.int64(wide.size))
    with np.errstate(all="ignore"):
        assert np.array_equal(y.get(), bits.astype(np.float32), equal_nan=True)
        assert np.array_equal(z.get(), wide.astype(np.float16), equal_nan=True)


def test_memory_behind_addresses_in_memory():
    a, b = floats(8), floats(8)
    table = cupy.asarray(np.array([a.data.ptr, b.data.ptr], np.int64))
    launch("kernel(const long long* table) { ((float*)table[blockIdx.x])[threadIdx.x] += 1; }", table, grid=2, block=8)
    assert np.array_equal(a.get(), np.arange(1, 9)) and np.array_equal(b.get(), np.arange(1, 9))


# --- what it refuses ------------------------------------------------------------------------------------------------

WRONG = {
    "a write behind the end": ("kernel(float* x) { x[threadIdx.x + 1] = 0; }", "outside the arrays: byte 256"),
    "a read before the beginning": ("kernel(float* x) { x[0] = x[(long long)threadIdx.x - 1]; }", "byte -4"),
    "a crooked address": ("kernel(float* x) { float4 v = *(float4*)(x + 1); x[0] = v.x; }", "no multiple"),
    "an index beyond a small array": (
        "kernel(float* x) { float v[4] = {}; v[threadIdx.x] = 1; x[0] = v[3]; }", "index 4 is beyond",
    ),
    "integers divided by zero": ("kernel(float* x) { x[0] = 1 / (int)threadIdx.x; }", "divided by zero"),
    "a barrier that some never reach": (
        "kernel(float* x) { if (threadIdx.x < 40) __syncthreads(); else __shfl_sync(~0u, 1, 0); }", "deadlock",
    ),
    "two barriers for one": (
        "kernel(float* x) {\nif (threadIdx.x < 40)\n__syncthreads();\nelse\n__syncthreads(); }", "different barriers",
    ),
    "a lane outside its own mask": ("kernel(float* x) { __syncwarp(1); }", "not in the mask"),
    "a shuffle from nobody": (
        "kernel(float* x) { if (threadIdx.x % 32 < 16) x[threadIdx.x] = __shfl_xor_sync(0xffffu, 1.0f, 16); }",
        "takes no part",
    ),
    "no barrier between write and read": (
        "kernel(float* x) { __shared__ float h[64]; h[threadIdx.x] = 1; x[threadIdx.x] = h[63 - threadIdx.x]; }",
        "race in shared memory",
    ),
    "no barrier between read and write": (
        """kernel(float* x) {
            __shared__ float h[64];
            h[threadIdx.x] = 1;
            __syncthreads();
            float other = h[63 - threadIdx.x];
            h[threadIdx.x] = other;
        }""",
        "race in shared memory",
    ),
    "a warp that relies on its lanes' pace": (
        "kernel(float* x) { __shared__ float h[64]; h[threadIdx.x] = 1; x[threadIdx.x] = h[threadIdx.x ^ 1]; }",
        "race in shared memory",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_refuses(what):
    code, message = WRONG[what]
    with pytest.raises(RuntimeError, match=message):
        launch(code, floats())


def test_refuses_shared_memory_beyond_what_was_asked_for():
    code = "kernel(float* x) { SHARED(float, held); held[threadIdx.x] = x[0]; }"
    launch(code, floats(), shared_mem=256)
    with pytest.raises(RuntimeError, match="of shared memory, of which there are 252"):
        launch(code, floats(), shared_mem=252)


def test_a_barrier_within_the_warp_is_enough_for_a_warp():
    x = floats()
    launch(
        """kernel(float* x) {
            __shared__ float held[64];
            held[threadIdx.x] = x[threadIdx.x];
            __syncwarp();
            x[threadIdx.x] = held[threadIdx.x ^ 1];
        }""",
        x,
    )
    assert np.array_equal(x.get(), np.arange(64) ^ 1)


@pytest.mark.parametrize(
    "args, message",
    [
        ((np.float32(1), np.int64(1)), "argument 0 is f4"),
        (("floats", np.int32(1)), r"argument 1 is i4 \(np.int32\(1\)\), the kernel takes i8"),
        (("doubles", np.int64(1)), "argument 0 is an array of float64"),
        (("floats",), "takes 2 arguments"),
        (("floats", 1.0), "argument 1 is f8"),
    ],
)
def test_refuses_arguments_of_other_types(args, message):
    made = {"floats": floats(), "doubles": cupy.zeros(64)}
    with pytest.raises(TypeError, match=message):
        launch(
            "kernel(float* x, long long n) { x[0] = n; }", *(made.get(a, a) if isinstance(a, str) else a for a in args)
        )


@pytest.mark.parametrize(
    "options", [{"grid": 0}, {"grid": (1, 65536)}, {"block": 1025}, {"block": (1, 1, 65)}, {"shared_mem": 50_000}]
)
def test_refuses_sizes_that_a_gpu_has_not(options):
    with pytest.raises(RuntimeError, match="INVALID_VALUE"):
        launch("kernel(float* x) { x[0] = 0; }", floats(), **options)


def test_many_threads_have_to_be_announced():
    """The compiler gives each thread up to 255 registers: of 65,536 that is enough for 256 threads, and no more."""
    with pytest.raises(RuntimeError, match="OUT_OF_RESOURCES"):
        launch("kernel(float* x) { x[0] = 0; }", floats(), block=512)
    with pytest.raises(RuntimeError, match="512 threads, where __launch_bounds__ says 256"):
        launch("__launch_bounds__(256) kernel(float* x) { x[0] = 0; }", floats(), block=512)
    launch("__launch_bounds__(512, 2) kernel(float* x) { x[threadIdx.x % 64] = 1; }", floats(), block=512)


def test_more_shared_memory_for_those_who_ask():
    kernel = cupy.RawModule(
        code='extern "C" __global__ void kernel(float* x) { SHARED(float, held); held[20000] = 1; x[0] = held[20000]; }'
    ).get_function("kernel")
    kernel.max_dynamic_shared_size_bytes = 100_000
    x = floats()
    kernel((1,), (1,), (x,), shared_mem=100_000)
    assert x.get()[0] == 1


def test_what_does_not_compile_is_told():
    with pytest.raises(Exception, match="expected"):
        launch("kernel(float* x) { x[0] = ; }", floats())
