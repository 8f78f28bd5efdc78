// Rows and elements at indices: reading, and adding to them.
//
// An array is viewed as (outer, n, inner): an index selects one of n, with `inner` contiguous elements. Every index is
// checked where it is used: if one is out of bounds, element 0 is read, nothing is written, and it is recorded for the
// host (kernels/cuda/runtime/bounds.py). Bytes: reading rows reads and writes each element once, and the indices;
// adding reads the terms and updates the sums.
//
// I: the type of indices. C: the type of sums. PACK: elements that `take_rows` copies together. SCALED: the terms added
// to a row are divided by how often the row occurs.

#ifndef I
#define I long long
#define C A
#define PACK 1
#define SCALED 0
#endif

// note = {found, index, least, size, dimension}
__device__ inline long long checked(long long i, long long least, long long size, long long dim,
                                    volatile long long* note) {
    if (i < least || i >= size) {
        note[1] = i, note[2] = least, note[3] = size, note[4] = dim;
        __threadfence_system();
        note[0] = 1;
        return 0;
    }
    return i < 0 ? i + size : i;
}

extern "C" __global__ void check(const I* index, long long count, long long least, long long size, long long dim,
                                 long long* note) {
    long long k = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (k < count) checked(index[k], least, size, dim, note);
}

// --- reading ---------------------------------------------------------------------------------------------------------

// out[o, k, :] = x[o, index[k], :]. Threads with the same y share a row of `units` packs; `rows` is outer * count.
extern "C" __global__ void take_rows(const T* x, const I* index, T* out, long long rows, long long count, long long n,
                                     long long units, long long least, long long dim, long long* note) {
    long long row = (long long)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    long long outer = rows == count ? 0 : row / count, k = row - outer * count;
    const T* from = x + (outer * n + checked(index[k], least, n, dim, note)) * units * PACK;
    T* to = out + row * units * PACK;
    for (long long u = threadIdx.x; u < units; u += blockDim.x)
        store_packed(to + u * PACK, load_packed<PACK>(from + u * PACK));
}

// out[o, k, i] = x[o, index[o, k, i], i]
extern "C" __global__ void take_each(const T* x, const I* index, T* out, long long total, long long count, long long n,
                                     long long inner, long long dim, long long* note) {
    long long e = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= total) return;
    long long outer = e / (count * inner), i = inner == 1 ? 0 : e % inner;
    out[e] = x[(outer * n + checked(index[e], 0, n, dim, note)) * inner + i];
}

// out[o, index[o, k, i], i] = src[o, k, i] (or the one element of src); of several, an arbitrary one remains.
extern "C" __global__ void put_each(const T* src, const I* index, T* out, long long total, long long count, long long n,
                                    long long inner, int single, long long dim, long long* note) {
    long long e = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= total) return;
    long long outer = e / (count * inner), i = inner == 1 ? 0 : e % inner, chosen = index[e];
    long long place = checked(chosen, 0, n, dim, note);
    if (chosen == place) out[(outer * n + place) * inner + i] = src[single ? 0 : e];
}

// out[place[k]] = src[k], where the last of several remains: `order` sorts the indices.
extern "C" __global__ void put_last(const T* src, const long long* place, const long long* order, T* out,
                                    long long count, long long size, int single) {
    long long k = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= count) return;
    long long from = order[k], to = place[from];
    if (k + 1 < count && place[order[k + 1]] == to) return;
    if (to >= 0 && to < size) out[to] = src[single ? 0 : from];
}

// --- adding ----------------------------------------------------------------------------------------------------------

__device__ inline void add(float* to, float x) { atomicAdd(to, x); }
__device__ inline void add(double* to, double x) { atomicAdd(to, x); }
__device__ inline void add(int* to, int x) { atomicAdd(to, x); }
__device__ inline void add(long long* to, long long x) { atomicAdd((unsigned long long*)to, (unsigned long long)x); }

// uses[r] = how often r occurs
extern "C" __global__ void count_uses(const I* index, int* uses, long long count, long long n, long long* note) {
    long long k = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (k < count) atomicAdd(uses + checked(index[k], 0, n, 0, note), 1);
}

__device__ inline C shared_among(C value, const int* uses, long long row) {
#if SCALED
    return value / uses[row];
#else
    return value;
#endif
}

// out[o, index[k], :] += g[o, k, :], in any order of threads; row `left_out` (-1: none) gets nothing.
extern "C" __global__ void add_rows(const T* g, const I* index, C* out, const int* uses, long long rows,
                                    long long count, long long n, long long inner, long long least,
                                    long long left_out, C factor, long long dim, long long* note) {
    long long row = (long long)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    long long outer = rows == count ? 0 : row / count, k = row - outer * count;
    long long chosen = index[k], place = checked(chosen, least, n, dim, note);
    if (chosen < least || chosen >= n || place == left_out) return;
    C* to = out + (outer * n + place) * inner;
    for (long long i = threadIdx.x; i < inner; i += blockDim.x)
        add(to + i, shared_among((C)widen(g[row * inner + i]) * factor, uses, place));
}

// out[o, index[o, k, i], i] += g[o, k, i]
extern "C" __global__ void add_each(const T* g, const I* index, C* out, long long total, long long count, long long n,
                                    long long inner, long long dim, long long* note) {
    long long e = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= total) return;
    long long outer = e / (count * inner), i = inner == 1 ? 0 : e % inner, chosen = index[e];
    long long place = checked(chosen, 0, n, dim, note);
    if (chosen == place) add(out + (outer * n + place) * inner + i, (C)widen(g[e]));
}

// The same as `add_rows` for one outer row, in the order of the indices, so that results are deterministic: `order`
// sorts the indices, and the first of each run of equal ones adds up the run.
extern "C" __global__ void add_runs(const T* g, const I* index, const long long* order, C* out, const int* uses,
                                    long long count, long long n, long long inner, long long least, long long left_out,
                                    C factor, long long dim, long long* note) {
    long long k = (long long)blockIdx.x * blockDim.y + threadIdx.y;
    if (k >= count) return;
    long long chosen = index[order[k]];
    if (k && index[order[k - 1]] == chosen) return;
    long long place = checked(chosen, least, n, dim, note);
    if (chosen < least || chosen >= n || place == left_out) return;
    for (long long i = threadIdx.x; i < inner; i += blockDim.x) {
        C sum = out[place * inner + i];
        for (long long next = k; next < count && index[order[next]] == chosen; next++)
            sum += shared_among((C)widen(g[order[next] * inner + i]) * factor, uses, place);
        out[place * inner + i] = sum;
    }
}
