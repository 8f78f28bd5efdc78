// Layer norm and root-mean-square norm over contiguous rows, forward and backward.
//
// A row is kept in registers (register_rows.cuh), so that it is read once. CENTRED: the mean is subtracted (layer norm). W is
// the type of weight and bias. There are two passes over a row, for the mean and for the squares: no cancellation.
// Bytes per element: forward x and out; backward g, x and gx, and the sums over rows are computed along the way.

#include "register_rows.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) forward(
    const T* x, const W* weight, const W* bias, T* out, A* means, A* rstds, long long rows, int n, A eps) {
    for (long long row = first_row(); row < rows; row += row_step()) {
        Held<T> held;
        hold(held, x + row * n, n);
        A mean = 0, squares = 0;
#ifdef CENTRED
        each(n, [&](int, int k, int j) { mean += widen(held.of[k].of[j]); });
        mean = summed(mean) / n;
#endif
        each(n, [&](int, int k, int j) {
            A away = widen(held.of[k].of[j]) - mean;
            squares += away * away;
        });
        A rstd = rsqrt(summed(squares) / n + eps);
        if (place() == 0) {
            if (means) means[row] = mean;
            rstds[row] = rstd;
        }
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            int at = start(k);
            if (at >= n) continue;
            A made[COUNT];
            for (int j = 0; j < COUNT; j++) made[j] = (widen(held.of[k].of[j]) - mean) * rstd;
            if (weight) {
                Packed<W, COUNT> w = load_packed<COUNT>(weight + at);
                for (int j = 0; j < COUNT; j++) made[j] *= widen(w.of[j]);
            }
            if (bias) {
                Packed<W, COUNT> b = load_packed<COUNT>(bias + at);
                for (int j = 0; j < COUNT; j++) made[j] += widen(b.of[j]);
            }
            for (int j = 0; j < COUNT; j++) store(&held.of[k].of[j], made[j]);
            store_packed<COUNT>(out + row * n + at, held.of[k]);
        }
    }
}

// gx = rstd (g w - mean(g w) - normal mean(g w normal)), normal = (x - mean) rstd. Sums of g normal and of g over the
// rows of a group of threads go to its own line of `weights` and `biases` (0: not needed); gx may be 0, too.
const int FEWER = sizeof(T) < 4 ? 256 : 512;  // the sums take registers: norm.py declines longer rows

extern "C" __global__ void __launch_bounds__(THREADS < FEWER ? THREADS : FEWER) backward(
    const T* g, const T* x, const W* weight, const A* means, const A* rstds, T* gx, A* weights, A* biases,
    long long rows, int n) {
    A gw[PACKS][COUNT] = {}, gb[PACKS][COUNT] = {};
    for (long long row = first_row(); row < rows; row += row_step()) {
        Held<T> gs, xs;
        hold(gs, g + row * n, n);
        hold(xs, x + row * n, n);
        A mean = 0, rstd = rstds[row], shift = 0, slope = 0;
#ifdef CENTRED
        mean = means[row];
#endif
        A scaled[PACKS][COUNT];  // g w
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            if (start(k) >= n) continue;
            Packed<W, COUNT> w;
            if (weight) w = load_packed<COUNT>(weight + start(k));
            for (int j = 0; j < COUNT; j++) {
                A one = widen(gs.of[k].of[j]), normal = (widen(xs.of[k].of[j]) - mean) * rstd;
                gw[k][j] += one * normal;
                gb[k][j] += one;
                scaled[k][j] = weight ? one * widen(w.of[j]) : one;
                shift += scaled[k][j];
                slope += scaled[k][j] * normal;
            }
        }
        if (!gx) continue;
        slope = summed(slope) / n;
#ifdef CENTRED
        shift = summed(shift) / n;
#else
        shift = 0;
#endif
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            if (start(k) >= n) continue;
            for (int j = 0; j < COUNT; j++) {
                A normal = (widen(xs.of[k].of[j]) - mean) * rstd;
                store(&gs.of[k].of[j], rstd * (scaled[k][j] - shift - normal * slope));
            }
            store_packed<COUNT>(gx + row * n + start(k), gs.of[k]);
        }
    }
    each(n, [&](int i, int k, int j) {
        if (weights) weights[first_row() * n + i] = gw[k][j];
        if (biases) biases[first_row() * n + i] = gb[k][j];
    });
}
