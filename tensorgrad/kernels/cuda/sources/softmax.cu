// Softmax and log-softmax over rows that lie side by side, and their gradients: one block per row.
//
// A row is read twice: once for its maximum and the sum of exponentials (which is scaled when a larger element comes),
// once to write. Source: M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax" (2018).

struct Tally { A top, sum; };

__device__ inline A infinity() { return (A)__int_as_float(0x7f800000); }

__device__ inline Tally joined(Tally a, Tally b) {
    A top = Max::of(a.top, b.top);
    Tally both;
    both.top = top;
    // exp(-inf - -inf) would be NaN: an empty tally adds nothing.
    both.sum = (a.top == -infinity() ? (A)0 : a.sum * exp(a.top - top))
             + (b.top == -infinity() ? (A)0 : b.sum * exp(b.top - top));
    return both;
}

__device__ inline Tally tally_of(const T* row, long long n) {
    Tally mine = {-infinity(), 0};
    for (long long i = threadIdx.x; i < n; i += blockDim.x) {
        Tally one = {widen(row[i]), 1};
        mine = joined(mine, one);
    }
    A top = over_block<Max>(mine.top, -infinity());
    A scaled = mine.top == -infinity() ? (A)0 : mine.sum * exp(mine.top - top);
    Tally all = {top, over_block<Sum>(scaled, (A)0)};
    return all;
}

extern "C" __global__ void softmax(const T* x, T* out, long long n) {
    x += blockIdx.x * n;
    out += blockIdx.x * n;
    Tally all = tally_of(x, n);
    A scale = 1 / all.sum;
    for (long long i = threadIdx.x; i < n; i += blockDim.x) store(out + i, exp(widen(x[i]) - all.top) * scale);
}

extern "C" __global__ void log_softmax(const T* x, T* out, long long n) {
    x += blockIdx.x * n;
    out += blockIdx.x * n;
    Tally all = tally_of(x, n);
    A shift = log(all.sum);
    for (long long i = threadIdx.x; i < n; i += blockDim.x) store(out + i, widen(x[i]) - all.top - shift);
}

extern "C" __global__ void softmax_grad(const T* g, const T* y, T* out, long long n) {
    g += blockIdx.x * n, y += blockIdx.x * n, out += blockIdx.x * n;
    A dot = 0;
    for (long long i = threadIdx.x; i < n; i += blockDim.x) dot += widen(g[i]) * widen(y[i]);
    dot = over_block<Sum>(dot, (A)0);
    for (long long i = threadIdx.x; i < n; i += blockDim.x) store(out + i, (widen(g[i]) - dot) * widen(y[i]));
}

extern "C" __global__ void log_softmax_grad(const T* g, const T* y, T* out, long long n) {
    g += blockIdx.x * n, y += blockIdx.x * n, out += blockIdx.x * n;
    A sum = 0;
    for (long long i = threadIdx.x; i < n; i += blockDim.x) sum += widen(g[i]);
    sum = over_block<Sum>(sum, (A)0);
    for (long long i = threadIdx.x; i < n; i += blockDim.x) store(out + i, widen(g[i]) - exp(widen(y[i])) * sum);
}
