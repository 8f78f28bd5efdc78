// Pooling over three spatial dimensions (the first of length 1 if there are fewer), one thread per result: forward a
// window's maximum or mean; backward, for each element of the input, the sum of its windows' gradients. So no two
// threads write to the same element, and sums have a fixed order.
//
// EVEN: the windows are those of adaptive pooling, window i from floor(i d / p) to ceil((i + 1) d / p); else they begin
// at i s - b and have k taps, e apart. LAST: channels are last in memory. INDEX: the type of counts, 64 bits wide only
// if 32 do not suffice, since 64-bit division is slow.

#define GEOMETRY                                                                                                      \
    int d0, int d1, int d2, int p0, int p1, int p2, int k0, int k1, int k2, int s0, int s1, int s2, int b0, int b1,    \
        int b2, int e0, int e1, int e2

// d: size of the input, p: of the output, k: of the window; s: stride, b: padding (border), e: dilation (expansion).

__device__ inline float lowest(float) { return __int_as_float(0xff800000); }
__device__ inline double lowest(double) { return lowest(0.0f); }
__device__ inline int lowest(int) { return -2147483647 - 1; }
__device__ inline long long lowest(long long) { return -9223372036854775807LL - 1; }

// One of many planes, and coordinates in it.
struct Spot { INDEX image; int channel, c0, c1, c2; };

__device__ inline Spot spot_of(INDEX i, int channels, int n0, int n1, int n2) {
    Spot at;
#if LAST
    at.channel = (int)(i % channels), i /= channels;
#endif
    at.c2 = (int)(i % n2), i /= n2;
    at.c1 = (int)(i % n1), i /= n1;
    at.c0 = (int)(i % n0), i /= n0;
#if !LAST
    at.channel = (int)(i % channels), i /= channels;
#endif
    at.image = i;
    return at;
}

// The plane's beginning, and the distance between its elements.
__device__ inline long long start_of(Spot at, int channels, long long size) {
    return LAST ? (long long)at.image * size * channels + at.channel : ((long long)at.image * channels + at.channel) * size;
}
__device__ inline int apart(int channels) { return LAST ? channels : 1; }

// The elements under a window in one dimension: from, from + step, ... below `to`.
struct Reach { int from, to, step; };

__device__ inline Reach under(int window, int d, int p, int k, int s, int b, int e) {
    Reach reach;
#if EVEN
    reach.from = (int)((long long)window * d / p);
    reach.to = (int)(((long long)(window + 1) * d + p - 1) / p);
    reach.step = 1;
#else
    reach.from = window * s - b;
    reach.to = min(reach.from + (k - 1) * e + 1, d);
    if (reach.from < 0) reach.from += (-reach.from + e - 1) / e * e;
    reach.step = e;
#endif
    return reach;
}

// The windows that may contain an element: from ... below `to`.
__device__ inline Reach over(int position, int d, int p, int k, int s, int b, int e) {
    Reach reach;
#if EVEN
    reach.from = (int)((long long)position * p / d);
    reach.to = (int)(((long long)(position + 1) * p + d - 1) / d);
#else
    int last = position + b - (k - 1) * e;
    reach.from = last <= 0 ? 0 : (last + s - 1) / s;
    reach.to = min((position + b) / s + 1, p);
#endif
    reach.step = 1;
    return reach;
}

// How many elements a window counts in one dimension: including those in the padding, if `padded`.
__device__ inline int length(int window, int d, int p, int k, int s, int b, int padded) {
#if EVEN
    Reach reach = under(window, d, p, k, s, b, 1);
    return reach.to - reach.from;
#else
    int from = window * s - b, to = min(from + k, d + b);
    return padded ? to - from : min(to, d) - max(from, 0);
#endif
}

// The maximum of each window, and its index in the plane: the first of equal ones, but the last NaN.
// Reads every element once for each window over it (mostly from the cache); writes one T and eight bytes.
extern "C" __global__ void max_pool(const T* x, T* values, long long* places, long long count, int channels, GEOMETRY) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= count) return;
    Spot at = spot_of((INDEX)i, channels, p0, p1, p2);
    const T* plane = x + start_of(at, channels, (long long)d0 * d1 * d2);
    Reach r0 = under(at.c0, d0, p0, k0, s0, b0, e0), r1 = under(at.c1, d1, p1, k1, s1, b1, e1),
          r2 = under(at.c2, d2, p2, k2, s2, b2, e2);
    A best = lowest((A)0);
    long long place = -1;
    for (int u = r0.from; u < r0.to; u += r0.step)
        for (int v = r1.from; v < r1.to; v += r1.step)
            for (int w = r2.from; w < r2.to; w += r2.step) {
                long long here = ((long long)u * d1 + v) * d2 + w;
                A value = widen(plane[here * apart(channels)]);
                if (value > best || value != value || place < 0) best = value, place = here;
            }
    if (place < 0) {  // all taps of a dilated window miss the input: the index must still be valid
        place = ((long long)(at.c0 * s0 - b0) * d1 + at.c1 * s1 - b1) * d2 + at.c2 * s2 - b2;
        place = max(0LL, min(place, (long long)d0 * d1 * d2 - 1));
    }
    store(values + i, best);
    places[i] = place;
}

// The sum of the gradients of all windows whose maximum an element is.
extern "C" __global__ void max_pool_grad(const T* g, const long long* places, T* out, long long count, int channels,
                                         GEOMETRY) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= count) return;
    Spot at = spot_of((INDEX)i, channels, d0, d1, d2);
    long long begin = start_of(at, channels, (long long)p0 * p1 * p2), mine = ((long long)at.c0 * d1 + at.c1) * d2 + at.c2;
    Reach r0 = over(at.c0, d0, p0, k0, s0, b0, e0), r1 = over(at.c1, d1, p1, k1, s1, b1, e1),
          r2 = over(at.c2, d2, p2, k2, s2, b2, e2);
    A sum = 0;
    for (int u = r0.from; u < r0.to; u++)
        for (int v = r1.from; v < r1.to; v++)
            for (int w = r2.from; w < r2.to; w++) {
                long long there = begin + (((long long)u * p1 + v) * p2 + w) * apart(channels);
                if (places[there] == mine) sum += widen(g[there]);
            }
    store(out + i, sum);
}

// The divisor of a window's sum; `divisor` other than 0 overrides it.
__device__ inline A divisor_of(int c0, int c1, int c2, int padded, long long divisor, GEOMETRY) {
    if (divisor) return (A)divisor;
    return (A)length(c0, d0, p0, k0, s0, b0, padded) * (A)length(c1, d1, p1, k1, s1, b1, padded)
         * (A)length(c2, d2, p2, k2, s2, b2, padded);
}

#define GIVEN d0, d1, d2, p0, p1, p2, k0, k1, k2, s0, s1, s2, b0, b1, b2, e0, e1, e2

// The mean of each window.
extern "C" __global__ void avg_pool(const T* x, T* out, long long count, int channels, int padded, long long divisor,
                                    GEOMETRY) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= count) return;
    Spot at = spot_of((INDEX)i, channels, p0, p1, p2);
    const T* plane = x + start_of(at, channels, (long long)d0 * d1 * d2);
    Reach r0 = under(at.c0, d0, p0, k0, s0, b0, 1), r1 = under(at.c1, d1, p1, k1, s1, b1, 1),
          r2 = under(at.c2, d2, p2, k2, s2, b2, 1);
    A sum = 0;
    for (int u = r0.from; u < r0.to; u++)
        for (int v = r1.from; v < r1.to; v++)
            for (int w = r2.from; w < r2.to; w++)
                sum += widen(plane[(((long long)u * d1 + v) * d2 + w) * apart(channels)]);
    store(out + i, sum / divisor_of(at.c0, at.c1, at.c2, padded, divisor, GIVEN));
}

#if !LAST

// The same for large windows, above all one over the whole plane: a warp for each, its lanes adjacent in memory.
extern "C" __global__ void avg_pool_wide(const T* x, T* out, long long count, int channels, int padded,
                                         long long divisor, GEOMETRY) {
    long long i = (blockIdx.x * (long long)blockDim.x + threadIdx.x) / 32;
    if (i >= count) return;  // a whole warp
    Spot at = spot_of((INDEX)i, channels, p0, p1, p2);
    const T* plane = x + start_of(at, channels, (long long)d0 * d1 * d2);
    Reach r0 = under(at.c0, d0, p0, k0, s0, b0, 1), r1 = under(at.c1, d1, p1, k1, s1, b1, 1),
          r2 = under(at.c2, d2, p2, k2, s2, b2, 1);
    int wide = r2.to - r2.from, high = r1.to - r1.from, all = max(0, r0.to - r0.from) * max(0, high) * max(0, wide);
    A sum = 0;
    for (int t = threadIdx.x % 32; t < all; t += 32) {
        int w = r2.from + t % wide, v = r1.from + t / wide % high, u = r0.from + t / wide / high;
        sum += widen(plane[((long long)u * d1 + v) * d2 + w]);
    }
    sum = over_warp<Sum>(sum);
    if (threadIdx.x % 32 == 0) store(out + i, sum / divisor_of(at.c0, at.c1, at.c2, padded, divisor, GIVEN));
}

#endif

// Every element gets the gradient of each window over it, with the divisor of the window's sum.
extern "C" __global__ void avg_pool_grad(const T* g, T* out, long long count, int channels, int padded,
                                         long long divisor, GEOMETRY) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= count) return;
    Spot at = spot_of((INDEX)i, channels, d0, d1, d2);
    const T* plane = g + start_of(at, channels, (long long)p0 * p1 * p2);
    Reach r0 = over(at.c0, d0, p0, k0, s0, b0, 1), r1 = over(at.c1, d1, p1, k1, s1, b1, 1),
          r2 = over(at.c2, d2, p2, k2, s2, b2, 1);
    A sum = 0;
    for (int u = r0.from; u < r0.to; u++)
        for (int v = r1.from; v < r1.to; v++)
            for (int w = r2.from; w < r2.to; w++)
                sum += widen(plane[(((long long)u * p1 + v) * p2 + w) * apart(channels)])
                     / divisor_of(u, v, w, padded, divisor, GIVEN);
    store(out + i, sum);
}
