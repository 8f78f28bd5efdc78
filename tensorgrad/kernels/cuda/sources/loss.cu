// Cross-entropy of logits (N, C, L) with class indices (N, L), forward and backward, and negative log-likelihood.
//
// Forward reads the logits once and keeps log Σ exp of each row; backward reads them again and writes the gradient.
// Weights are of type A (0: all are 1). A class out of range has the loss nan, and no gradient. Source of the
// single-pass sum: M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax" (2018).

const int SOME = 16 / sizeof(T);

__device__ inline A infinite() { return (A)__int_as_float(0x7f800000); }

struct Tally { A top, sum; };  // a largest element, and Σ exp(x - top)

__device__ inline A scaled(Tally t, A top) { return t.top == top ? t.sum : t.sum * exp(t.top - top); }

template <int count> __device__ inline void add(Tally& t, const A* x) {
    A top = t.top;
    for (int k = 0; k < count; k++) top = Max::of(x[k], top);
    t.sum = scaled(t, top);
    if (top != -infinite())  // else there is nothing to add, and exp(-inf - -inf) would be nan
        for (int k = 0; k < count; k++) t.sum += exp(x[k] - top);
    t.top = top;
}

__device__ inline Tally over_group(Tally mine, bool warp) {  // the lanes of a warp, or all threads, get it
    A top = warp ? over_warp<Max>(mine.top) : over_block<Max>(mine.top, -infinite());
    A part = scaled(mine, top);
    Tally all = {top, warp ? over_warp<Sum>(part) : over_block<Sum>(part, (A)0)};
    return all;
}

// f(index, elements, how many) for one of `threads` threads of a row: packs from the first aligned address on.
template <class One, class Some> __device__ inline void over_row(const T* row, long long n, int thread, int threads,
                                                                 One one, Some some) {
    long long head = (16 - (unsigned long long)row % 16) % 16 / sizeof(T);
    if (head > n) head = n;
    long long packs = (n - head) / SOME, rest = head + packs * SOME;
    for (long long i = thread; i < head; i += threads) one(i);
    for (long long i = thread; i < packs; i += threads) some(head + i * SOME);
    for (long long i = rest + thread; i < n; i += threads) one(i);
}

// One element's loss, from its row's tally. `away` is Σ w (x - x[target]), `mass` Σ w over the classes.
__device__ inline A loss_of(A logsum, A hit, A w, A away, A mass, A smoothing, long long classes) {
    A loss = (logsum - hit) * w;
    if (smoothing == 0) return loss;
    return (1 - smoothing) * loss + smoothing / classes * (mass * (logsum - hit) - away);
}

__device__ inline A not_a_number() { return (A)__int_as_float(0x7fc00000); }

// Contiguous rows: a warp or (lanes = blockDim.x) a block for each.
extern "C" __global__ void __launch_bounds__(512) rows(
    const T* x, const long long* target, const A* weight, A* losses, A* weights, A* logsums, long long n,
    long long classes, long long ignored, A smoothing, A mass, int lanes) {
    bool warp = lanes == 32 && blockDim.x > 32;
    int lane = threadIdx.x % lanes, groups = blockDim.x / lanes;
    long long step = (long long)gridDim.x * groups;
    for (long long i = (long long)blockIdx.x * groups + threadIdx.x / lanes; i < n; i += step) {
        const T* row = x + i * classes;
        long long t = target[i];
        bool counts = t != ignored, known = t >= 0 && t < classes;
        A hit = counts && known ? widen(row[t]) : (A)0, away = 0;
        Tally mine = {-infinite(), 0};
        over_row(
            row, classes, lane, lanes,
            [&](long long k) {
                A value = widen(row[k]);
                add<1>(mine, &value);
                if (smoothing != 0) away += (value - hit) * (weight ? weight[k] : (A)1);
            },
            [&](long long k) {
                Packed<T, SOME> some = load_packed<SOME>(row + k);
                A values[SOME];
                for (int j = 0; j < SOME; j++) values[j] = widen(some.of[j]);
                add<SOME>(mine, values);
                if (smoothing != 0)
                    for (int j = 0; j < SOME; j++) away += (values[j] - hit) * (weight ? weight[k + j] : (A)1);
            });
        Tally all = over_group(mine, warp);
        if (smoothing != 0) away = warp ? over_warp<Sum>(away) : over_block<Sum>(away, (A)0);
        if (lane) continue;
        A logsum = all.top + log(all.sum), w = counts && known && weight ? weight[t] : (A)counts;
        logsums[i] = logsum;
        weights[i] = w;
        losses[i] = !counts ? (A)0 : known ? loss_of(logsum, hit, w, away, mass, smoothing, classes) : not_a_number();
    }
}

#define EACH_ROW \
    long long threads = (long long)gridDim.x * blockDim.x; \
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += threads)

// Classes `length` apart: one thread per row, adjacent rows in adjacent threads.
extern "C" __global__ void columns(
    const T* x, const long long* target, const A* weight, A* losses, A* weights, A* logsums, long long n,
    long long classes, long long length, long long ignored, A smoothing, A mass) {
    EACH_ROW {
        const T* row = x + i / length * classes * length + i % length;
        long long t = target[i];
        bool counts = t != ignored, known = t >= 0 && t < classes;
        A hit = counts && known ? widen(row[t * length]) : (A)0, away = 0;
        Tally mine = {-infinite(), 0};
        for (long long k = 0; k < classes; k++) {
            A value = widen(row[k * length]);
            add<1>(mine, &value);
            if (smoothing != 0) away += (value - hit) * (weight ? weight[k] : (A)1);
        }
        A logsum = mine.top + log(mine.sum), w = counts && known && weight ? weight[t] : (A)counts;
        logsums[i] = logsum;
        weights[i] = w;
        losses[i] = !counts ? (A)0 : known ? loss_of(logsum, hit, w, away, mass, smoothing, classes) : not_a_number();
    }
}

// The sum of all losses, divided by that of the weights if `mean`: one block.
extern "C" __global__ void __launch_bounds__(1024) total(
    const A* losses, const A* weights, T* out, A* all_weights, long long n, long long m, bool mean) {
    A loss = 0, weight = 0;
    for (long long i = threadIdx.x; i < n; i += blockDim.x) loss += losses[i];
    for (long long i = threadIdx.x; i < m; i += blockDim.x) weight += weights[i];
    loss = over_block<Sum>(loss, (A)0);
    weight = over_block<Sum>(weight, (A)0);
    if (threadIdx.x) return;
    store(out, mean ? loss / weight : loss);
    *all_weights = weight;
}

// --- backward ------------------------------------------------------------------------------------------------------

struct Slopes { A hit, all, even; };  // weights of the target's element, the softmax, and (by weight) every element

__device__ inline Slopes slopes_of(const T* g, bool each, long long i, bool counts, const A* divisor, A w, A smoothing,
                                   A mass, long long classes) {
    Slopes s = {0, 0, 0};
    if (!counts) return s;
    A one = widen(g[each ? i : 0]);
    if (divisor) one /= *divisor;
    s.hit = one * w * (1 - smoothing);
    s.even = one * smoothing / classes;
    s.all = s.hit + s.even * mass;
    return s;
}

extern "C" __global__ void __launch_bounds__(512) rows_grad(
    const T* g, const T* x, const A* logsums, const long long* target, const A* weight, const A* divisor, T* gx,
    long long n, long long classes, long long ignored, A smoothing, A mass, bool each) {
    for (long long i = blockIdx.x; i < n; i += gridDim.x) {
        const T* row = x + i * classes;
        T* out = gx + i * classes;
        bool alike = ((unsigned long long)out - (unsigned long long)row) % 16 == 0;  // x may begin anywhere
        long long t = target[i];
        bool counts = t != ignored && t >= 0 && t < classes;
        A logsum = logsums[i];
        A w = counts && weight ? weight[t] : (A)1;
        Slopes s = slopes_of(g, each, i, counts, divisor, w, smoothing, mass, classes);
        auto slope = [&](A value, long long k) {
            if (!counts) return (A)0;
            A share = exp(value - logsum) * s.all;
            if (k == t) share -= s.hit;
            return smoothing != 0 ? share - s.even * (weight ? weight[k] : (A)1) : share;
        };
        over_row(
            row, classes, threadIdx.x, blockDim.x, [&](long long k) { store(out + k, slope(widen(row[k]), k)); },
            [&](long long k) {
                Packed<T, SOME> some = load_packed<SOME>(row + k);
                for (int j = 0; j < SOME; j++) store(&some.of[j], slope(widen(some.of[j]), k + j));
                if (alike)
                    store_packed<SOME>(out + k, some);
                else
                    for (int j = 0; j < SOME; j++) out[k + j] = some.of[j];
            });
    }
}

extern "C" __global__ void columns_grad(
    const T* g, const T* x, const A* logsums, const long long* target, const A* weight, const A* divisor, T* gx,
    long long n, long long classes, long long length, long long ignored, A smoothing, A mass, bool each) {
    EACH_ROW {
        long long start = i / length * classes * length + i % length, t = target[i];
        bool counts = t != ignored && t >= 0 && t < classes;
        A logsum = logsums[i];
        A w = counts && weight ? weight[t] : (A)1;
        Slopes s = slopes_of(g, each, i, counts, divisor, w, smoothing, mass, classes);
        for (long long k = 0; k < classes; k++) {
            A share = 0;
            if (counts) {
                share = exp(widen(x[start + k * length]) - logsum) * s.all;
                if (k == t) share -= s.hit;
                if (smoothing != 0) share -= s.even * (weight ? weight[k] : (A)1);
            }
            store(gx + start + k * length, share);
        }
    }
}

// --- negative log-likelihood -----------------------------------------------------------------------------------------

extern "C" __global__ void nll(
    const T* logs, const long long* target, const A* weight, T* losses, T* weights, A* wide_losses,
    A* wide_weights, long long n, long long classes, long long length, long long ignored) {
    EACH_ROW {
        long long t = target[i];
        bool counts = t != ignored, known = t >= 0 && t < classes;
        A w = counts && known && weight ? weight[t] : (A)counts, loss = 0;
        if (counts) loss = known ? -w * widen(logs[(i / length * classes + t) * length + i % length]) : not_a_number();
        store(losses + i, loss);
        store(weights + i, w);
        wide_losses[i] = loss;
        wide_weights[i] = w;
    }
}

// Writes into zeros.
extern "C" __global__ void nll_grad(const T* g, const long long* target, const T* weights, T* gx, long long n,
                                    long long classes, long long length, long long ignored, bool each) {
    EACH_ROW {
        long long t = target[i];
        if (t == ignored || t < 0 || t >= classes) continue;
        store(gx + (i / length * classes + t) * length + i % length, -widen(g[each ? i : 0]) * widen(weights[i]));
    }
}
