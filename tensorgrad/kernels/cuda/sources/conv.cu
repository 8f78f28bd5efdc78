// Convolution without cuDNN: windows written out as columns for a matrix product, and added back; and depthwise
// convolution, whose matrix products would be tiny, directly from its definition.
//
// All have three spatial dimensions (the first of length 1 if there are fewer). A complex number is two numbers
// (PARTS), which are copied and added separately. INDEX: the type of counts, 64 bits wide only if 32 do not suffice,
// since 64-bit division is slow.

#define GEOMETRY                                                                                                      \
    int d0, int d1, int d2, int p0, int p1, int p2, int k0, int k1, int k2, int s0, int s1, int s2, int b0, int b1,    \
        int b2, int e0, int e1, int e2

// d: size of the input, p: of the output, k: of the kernel; s: stride, b: padding (border), e: dilation (expansion).

struct Place { long long image; int c0, c1, c2; };  // one of many planes, and coordinates within it

__device__ inline Place place_of(INDEX i, int n0, int n1, int n2) {
    Place at;
    at.c2 = (int)(i % n2), i /= n2;
    at.c1 = (int)(i % n1), i /= n1;
    at.c0 = (int)(i % n0), at.image = (long long)(i / n0);
    return at;
}

// The output point whose tap `k` is at `position`, or -1.
__device__ inline int point(int position, int k, int size, int stride, int border, int dilation) {
    int from = position + border - k * dilation;
    if (from < 0 || from % stride) return -1;
    from /= stride;
    return from < size ? from : -1;
}

// columns[image * image_step + (channel * taps + tap) * row_step + point] = input under that tap, or 0.
// Reads each element once per tap (mostly from the cache), writes taps elements for each.
extern "C" __global__ void gather(const T* x, T* columns, long long count, int channels, long long image_step,
                                  long long row_step, GEOMETRY) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= count) return;
    int part = (int)(i % PARTS);
    Place at = place_of((INDEX)(i / PARTS), p0, p1, p2);
    int taps = k0 * k1 * k2, channel = (int)(at.image % channels);
    const T* plane = x + at.image * d0 * d1 * d2 * PARTS + part;
    T* to = columns + at.image / channels * image_step + (long long)channel * taps * row_step
          + ((at.c0 * p1 + at.c1) * (long long)p2 + at.c2) * PARTS + part;
    for (int a = 0; a < k0; a++)
        for (int b = 0; b < k1; b++)
            for (int c = 0; c < k2; c++, to += row_step) {
                int u = at.c0 * s0 - b0 + a * e0, v = at.c1 * s1 - b1 + b * e1, w = at.c2 * s2 - b2 + c * e2;
                bool inside = u >= 0 && u < d0 && v >= 0 && v < d1 && w >= 0 && w < d2;
                *to = inside ? plane[((u * (long long)d1 + v) * d2 + w) * PARTS] : T();
            }
}

// The reverse: every element of the input is the sum of all its copies in the columns. No two threads write to the same
// element. Columns are kept in the type of sums.
extern "C" __global__ void collect(const A* columns, T* x, long long count, int channels, long long image_step,
                                   long long row_step, GEOMETRY) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= count) return;
    int part = (int)(i % PARTS);
    Place at = place_of((INDEX)(i / PARTS), d0, d1, d2);
    int taps = k0 * k1 * k2, channel = (int)(at.image % channels);
    const A* from = columns + at.image / channels * image_step + (long long)channel * taps * row_step + part;
    A sum = 0;
    for (int a = 0; a < k0; a++) {
        int u = point(at.c0, a, p0, s0, b0, e0);
        if (u < 0) continue;
        for (int b = 0; b < k1; b++) {
            int v = point(at.c1, b, p1, s1, b1, e1);
            if (v < 0) continue;
            for (int c = 0; c < k2; c++) {
                int w = point(at.c2, c, p2, s2, b2, e2);
                if (w < 0) continue;
                sum += from[((a * k1 + b) * k2 + c) * row_step + ((u * (long long)p1 + v) * p2 + w) * PARTS];
            }
        }
    }
    store(x + i, sum);
}

#if PARTS == 1

// Depthwise: channel c of the input makes channels c * times ... of the output. One thread per output point.
extern "C" __global__ void depthwise(const T* x, const T* weights, const T* bias, T* out, long long count,
                                     int channels, int times, GEOMETRY) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= count) return;
    Place at = place_of((INDEX)i, p0, p1, p2);
    int outputs = channels * times, channel = (int)(at.image % outputs);
    const T* plane = x + (at.image / outputs * channels + channel / times) * d0 * d1 * d2;
    const T* taps = weights + (long long)channel * k0 * k1 * k2;
    A sum = bias ? widen(bias[channel]) : (A)0;
    for (int a = 0; a < k0; a++)
        for (int b = 0; b < k1; b++)
            for (int c = 0; c < k2; c++, taps++) {
                int u = at.c0 * s0 - b0 + a * e0, v = at.c1 * s1 - b1 + b * e1, w = at.c2 * s2 - b2 + c * e2;
                if (u >= 0 && u < d0 && v >= 0 && v < d1 && w >= 0 && w < d2)
                    sum += widen(*taps) * widen(plane[(u * (long long)d1 + v) * d2 + w]);
            }
    store(out + i, sum);
}

// One thread per element of the input.
extern "C" __global__ void depthwise_input(const T* g, const T* weights, T* out, long long count, int channels,
                                           int times, GEOMETRY) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= count) return;
    Place at = place_of((INDEX)i, d0, d1, d2);
    int channel = (int)(at.image % channels);
    A sum = 0;
    for (int t = 0; t < times; t++) {
        int output = channel * times + t;
        const T* plane = g + (at.image / channels * channels * times + output) * p0 * p1 * p2;
        const T* taps = weights + (long long)output * k0 * k1 * k2;
        for (int a = 0; a < k0; a++)
            for (int b = 0; b < k1; b++)
                for (int c = 0; c < k2; c++, taps++) {
                    int u = point(at.c0, a, p0, s0, b0, e0), v = point(at.c1, b, p1, s1, b1, e1),
                        w = point(at.c2, c, p2, s2, b2, e2);
                    if (u >= 0 && v >= 0 && w >= 0)
                        sum += widen(*taps) * widen(plane[(u * (long long)p1 + v) * p2 + w]);
                }
    }
    store(out + i, sum);
}

// One block per weight: the sum over all images and points.
extern "C" __global__ void depthwise_weight(const T* g, const T* x, T* out, int images, int channels, int times,
                                            GEOMETRY) {
    int taps = k0 * k1 * k2, output = blockIdx.x / taps, tap = blockIdx.x % taps, outputs = channels * times;
    int a = tap / (k1 * k2), b = tap / k2 % k1, c = tap % k2;
    long long points = (long long)p0 * p1 * p2;
    A sum = 0;
    for (long long i = threadIdx.x; i < images * points; i += blockDim.x) {
        Place at = place_of((INDEX)i, p0, p1, p2);
        int u = at.c0 * s0 - b0 + a * e0, v = at.c1 * s1 - b1 + b * e1, w = at.c2 * s2 - b2 + c * e2;
        if (u >= 0 && u < d0 && v >= 0 && v < d1 && w >= 0 && w < d2)
            sum += widen(g[(at.image * outputs + output) * points + ((long long)at.c0 * p1 + at.c1) * p2 + at.c2])
                 * widen(x[(at.image * channels + output / times) * d0 * d1 * d2 + (u * (long long)d1 + v) * d2 + w]);
    }
    sum = over_block<Sum>(sum, (A)0);
    if (threadIdx.x == 0) store(out + blockIdx.x, sum);
}

#endif
