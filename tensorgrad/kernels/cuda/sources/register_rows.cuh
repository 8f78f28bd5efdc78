// Contiguous rows, each kept in the registers of a warp (WARP) or of a block: up to four packs of COUNT elements per
// thread. COUNT is sixteen bytes' worth, or 1 if rows do not begin at multiples of that. Rows are divided among all
// groups of threads.

const int PACKS = 4;
#ifdef WARP
const int THREADS = 128;
#else
const int THREADS = 1024;  // at most: these share the registers of a multiprocessor
#endif

template <class V> struct Held { Packed<V, COUNT> of[PACKS]; };

#ifdef WARP
__device__ inline int place() { return threadIdx.x % 32; }
__device__ inline int places() { return 32; }
__device__ inline long long first_row() { return (long long)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; }
__device__ inline long long row_step() { return (long long)gridDim.x * (blockDim.x / 32); }
template <class Op> __device__ inline A over_row(A x, A) { return over_warp<Op>(x); }
#else
__device__ inline int place() { return threadIdx.x; }
__device__ inline int places() { return blockDim.x; }
__device__ inline long long first_row() { return blockIdx.x; }
__device__ inline long long row_step() { return gridDim.x; }
template <class Op> __device__ inline A over_row(A x, A neutral) { return over_block<Op>(x, neutral); }
#endif

__device__ inline A summed(A x) { return over_row<Sum>(x, (A)0); }

// Where the k-th pack of this thread begins in a row.
__device__ inline int start(int k) { return (k * places() + place()) * COUNT; }

template <class V> __device__ inline void hold(Held<V>& held, const V* row, int n) {
#pragma unroll
    for (int k = 0; k < PACKS; k++)
        if (start(k) < n) held.of[k] = load_packed<COUNT>(row + start(k));
}

// f(element's index in the row, number of the pack, index in the pack) for each element of this thread.
template <class F> __device__ inline void each(int n, F f) {
#pragma unroll
    for (int k = 0; k < PACKS; k++)
        if (start(k) < n)
            for (int j = 0; j < COUNT; j++) f(start(k) + j, k, j);
}
