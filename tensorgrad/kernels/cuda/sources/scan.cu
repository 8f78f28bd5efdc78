// Cumulative sums over the middle dimension of an array (outer, n, inner), forwards or (`backwards`) from the end. Sums
// of two-byte floats are kept in float. Each element is read and written once.
//
// Rows (inner is 1): a block goes along a row, 256 threads times ITEMS adjacent elements at a time. Each thread adds up
// its own, lanes are added by shuffles, warps through shared memory; the sum so far is carried on.
// Source: W. D. Hillis and G. L. Steele, "Data parallel algorithms" (1986).

#ifdef WHOLE
typedef long long R;
#else
typedef A R;
#endif
const int ITEMS = 4, THREADS = 256;

// The sum over the lower lanes and this one.
__device__ inline R running(R value) {
    int lane = threadIdx.x % 32;
    for (int step = 1; step < 32; step *= 2) {
        R before = __shfl_up_sync(ALL_LANES, value, step);
        if (lane >= step) value += before;
    }
    return value;
}

extern "C" __global__ void rows(const T* x, OUT* out, long long rows, long long n, bool backwards) {
    __shared__ R warps[THREADS / 32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
        R carried = 0;
        for (long long start = 0; start < n; start += THREADS * ITEMS) {
            R mine[ITEMS], sum = 0;
            long long first = start + threadIdx.x * ITEMS;
            for (int k = 0; k < ITEMS; k++) {
                long long i = first + k;
                if (i < n) sum += widen(x[row * n + (backwards ? n - 1 - i : i)]);
                mine[k] = sum;
            }
            R up_to = running(sum);
            __syncthreads();  // no thread still reads the sums of the previous stretch
            if (lane == 31) warps[warp] = up_to;
            __syncthreads();
            R before = __shfl_up_sync(ALL_LANES, up_to, 1), all = carried;
            before = lane ? carried + before : carried;
            for (int other = 0; other < THREADS / 32; other++) {
                if (other < warp) before += warps[other];
                all += warps[other];
            }
            for (int k = 0; k < ITEMS; k++) {
                long long i = first + k;
                if (i < n) store(out + row * n + (backwards ? n - 1 - i : i), before + mine[k]);
            }
            carried = all;
        }
    }
}

// One thread per column.
extern "C" __global__ void columns(const T* x, OUT* out, long long outer, long long n, long long inner,
                                   bool backwards) {
    long long step = backwards ? -inner : inner;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < outer * inner;
         i += (long long)gridDim.x * blockDim.x) {
        long long at = i / inner * n * inner + i % inner + (backwards ? (n - 1) * inner : 0);
        R sum = 0;
        for (long long k = 0; k < n; k++, at += step) {
            sum += widen(x[at]);
            store(out + at, sum);
        }
    }
}
