// Softmax and log-softmax over contiguous rows, and their gradients.
//
// With COUNT a row is kept in registers (register_rows.cuh), so that memory is read once. Longer rows are read twice, with a
// block per row: once for the maximum and the sum of exponentials (rescaled when a larger element comes), once to
// write. With COLUMNS the elements of a row are `inner` apart and neighboring rows adjacent: a thread per row.
// Source: M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax" (2018).

__device__ inline A infinity() { return (A)__int_as_float(0x7f800000); }

#ifdef COUNT
#include "register_rows.cuh"

// f(element, its index) for each element of the row, stored.
template <class F> __device__ inline void write(Held<T>& held, T* out, int n, F f) {
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        if (start(k) >= n) continue;
        for (int j = 0; j < COUNT; j++) store(&held.of[k].of[j], f(widen(held.of[k].of[j]), k, j));
        store_packed<COUNT>(out + start(k), held.of[k]);
    }
}

// The row, its largest element, and the sum of exp(x - that).
__device__ inline A totals(Held<T>& held, const T* row, int n, A& top) {
    hold(held, row, n);
    A most = -infinity(), sum = 0;
    each(n, [&](int, int k, int j) { most = Max::of(most, widen(held.of[k].of[j])); });
    top = over_row<Max>(most, -infinity());
    each(n, [&](int, int k, int j) { sum += exp(widen(held.of[k].of[j]) - top); });
    return summed(sum);
}

extern "C" __global__ void __launch_bounds__(THREADS) softmax(const T* x, T* out, long long rows, int n) {
    for (long long row = first_row(); row < rows; row += row_step()) {
        Held<T> held;
        A top, scale = 1 / totals(held, x + row * n, n, top);
        write(held, out + row * n, n, [&](A value, int, int) { return exp(value - top) * scale; });
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) log_softmax(const T* x, T* out, long long rows, int n) {
    for (long long row = first_row(); row < rows; row += row_step()) {
        Held<T> held;
        A top, shift = log(totals(held, x + row * n, n, top));
        write(held, out + row * n, n, [&](A value, int, int) { return value - top - shift; });
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) softmax_grad(
    const T* g, const T* y, T* out, long long rows, int n) {
    for (long long row = first_row(); row < rows; row += row_step()) {
        Held<T> gs, ys;
        hold(gs, g + row * n, n);
        hold(ys, y + row * n, n);
        A dot = 0;
        each(n, [&](int, int k, int j) { dot += widen(gs.of[k].of[j]) * widen(ys.of[k].of[j]); });
        dot = summed(dot);
        write(gs, out + row * n, n, [&](A value, int k, int j) { return (value - dot) * widen(ys.of[k].of[j]); });
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) log_softmax_grad(
    const T* g, const T* y, T* out, long long rows, int n) {
    for (long long row = first_row(); row < rows; row += row_step()) {
        Held<T> gs, ys;
        hold(gs, g + row * n, n);
        hold(ys, y + row * n, n);
        A sum = 0;
        each(n, [&](int, int k, int j) { sum += widen(gs.of[k].of[j]); });
        sum = summed(sum);
        write(gs, out + row * n, n, [&](A value, int k, int j) { return value - exp(widen(ys.of[k].of[j])) * sum; });
    }
}
#else
struct Tally { A top, sum; };

__device__ inline void add(Tally& t, A x) {
    if (!(x <= t.top)) {  // larger, or nan
        t.sum = t.top == -infinity() ? (A)0 : t.sum * exp(t.top - x);
        t.top = x;
    }
    if (t.top != -infinity()) t.sum += exp(x - t.top);
}
#endif

#ifdef COLUMNS
#define EACH_COLUMN \
    long long threads = (long long)gridDim.x * blockDim.x; \
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < rows; i += threads)

__device__ inline long long first_of(long long i, long long n, long long inner) {
    return i / inner * n * inner + i % inner;
}

__device__ inline Tally column(const T* x, long long n, long long inner) {
    Tally all = {-infinity(), 0};
    for (long long k = 0; k < n; k++) add(all, widen(x[k * inner]));
    return all;
}

extern "C" __global__ void softmax(const T* x, T* out, long long rows, long long n, long long inner) {
    EACH_COLUMN {
        long long at = first_of(i, n, inner);
        Tally all = column(x + at, n, inner);
        A scale = 1 / all.sum;
        for (long long k = 0; k < n; k++, at += inner) store(out + at, exp(widen(x[at]) - all.top) * scale);
    }
}

extern "C" __global__ void log_softmax(const T* x, T* out, long long rows, long long n, long long inner) {
    EACH_COLUMN {
        long long at = first_of(i, n, inner);
        Tally all = column(x + at, n, inner);
        A shift = log(all.sum);
        for (long long k = 0; k < n; k++, at += inner) store(out + at, widen(x[at]) - all.top - shift);
    }
}

extern "C" __global__ void softmax_grad(const T* g, const T* y, T* out, long long rows, long long n, long long inner) {
    EACH_COLUMN {
        long long first = first_of(i, n, inner), last = first + n * inner;
        A dot = 0;
        for (long long at = first; at < last; at += inner) dot += widen(g[at]) * widen(y[at]);
        for (long long at = first; at < last; at += inner) store(out + at, (widen(g[at]) - dot) * widen(y[at]));
    }
}

extern "C" __global__ void log_softmax_grad(
    const T* g, const T* y, T* out, long long rows, long long n, long long inner) {
    EACH_COLUMN {
        long long first = first_of(i, n, inner), last = first + n * inner;
        A sum = 0;
        for (long long at = first; at < last; at += inner) sum += widen(g[at]);
        for (long long at = first; at < last; at += inner) store(out + at, widen(g[at]) - exp(widen(y[at])) * sum);
    }
}
#elif !defined COUNT
__device__ inline Tally tally_of(const T* row, long long n) {
    Tally mine = {-infinity(), 0};
    for (long long i = threadIdx.x; i < n; i += blockDim.x) add(mine, widen(row[i]));
    A top = over_block<Max>(mine.top, -infinity());
    Tally all = {top, over_block<Sum>(mine.top == -infinity() ? (A)0 : mine.sum * exp(mine.top - top), (A)0)};
    return all;
}

extern "C" __global__ void __launch_bounds__(1024) softmax(const T* x, T* out, long long rows, long long n) {
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
        const T* from = x + row * n;
        T* to = out + row * n;
        Tally all = tally_of(from, n);
        A scale = 1 / all.sum;
        for (long long i = threadIdx.x; i < n; i += blockDim.x) store(to + i, exp(widen(from[i]) - all.top) * scale);
    }
}

extern "C" __global__ void __launch_bounds__(1024) log_softmax(const T* x, T* out, long long rows, long long n) {
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
        const T* from = x + row * n;
        T* to = out + row * n;
        Tally all = tally_of(from, n);
        A shift = log(all.sum);
        for (long long i = threadIdx.x; i < n; i += blockDim.x) store(to + i, widen(from[i]) - all.top - shift);
    }
}

extern "C" __global__ void __launch_bounds__(1024) softmax_grad(
    const T* g, const T* y, T* out, long long rows, long long n) {
    for (long long row = blockIdx.x, at = row * n; row < rows; row += gridDim.x, at = row * n) {
        A dot = 0;
        for (long long i = at + threadIdx.x; i < at + n; i += blockDim.x) dot += widen(g[i]) * widen(y[i]);
        dot = over_block<Sum>(dot, (A)0);
        for (long long i = at + threadIdx.x; i < at + n; i += blockDim.x)
            store(out + i, (widen(g[i]) - dot) * widen(y[i]));
    }
}

extern "C" __global__ void __launch_bounds__(1024) log_softmax_grad(
    const T* g, const T* y, T* out, long long rows, long long n) {
    for (long long row = blockIdx.x, at = row * n; row < rows; row += gridDim.x, at = row * n) {
        A sum = 0;
        for (long long i = at + threadIdx.x; i < at + n; i += blockDim.x) sum += widen(g[i]);
        sum = over_block<Sum>(sum, (A)0);
        for (long long i = at + threadIdx.x; i < at + n; i += blockDim.x)
            store(out + i, widen(g[i]) - exp(widen(y[i])) * sum);
    }
}
#endif
