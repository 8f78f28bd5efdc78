// Batch norm and group norm of an array (images, channels, length), forward and backward.
//
// Statistics are of "strips". For batch norm a strip is a channel: its elements are in `images` runs of `length`. For
// group norm it is a row: one image's group of channels, then images = 1 and channels stands for all such rows. W is
// the type of weight and bias. FAR: indices need 64 bits, whose division costs four times as much. BACKWARD selects the
// half that is compiled. Bytes per element: forward x twice and out; backward g and x twice and gx.

#ifdef FAR
typedef long long I;
#else
typedef unsigned I;
#endif
const int SOME = 16 / sizeof(T);

// Count, mean and sum of squared distances from it. Source: T. F. Chan, G. H. Golub and R. J. LeVeque, "Updating
// formulae and a pairwise algorithm for computing sample variances" (1979).
struct Moments { A n, mean, squares; };

__device__ inline Moments both(Moments a, Moments b) {
    A n = a.n + b.n;
    if (n == 0) return a;
    A away = b.mean - a.mean, share = b.n / n;
    Moments all = {n, a.mean + away * share, a.squares + b.squares + away * away * a.n * share};
    return all;
}

// A thread's sums of distances from its first element: no division, and hardly any cancellation.
struct Running {
    A first, n = 0, sum = 0, squares = 0;
    __device__ void add(A x) {
        if (n == 0) first = x;
        A away = x - first;
        n += 1, sum += away, squares += away * away;
    }
    __device__ Moments moments() const {
        Moments mine = {0, 0, 0};
        if (n == 0) return mine;
        A mean = sum / n, rest = squares - sum * mean;
        mine.n = n, mine.mean = first + mean, mine.squares = rest < 0 ? 0 : rest;
        return mine;
    }
};

struct Sums { A g, product; };
__device__ inline Sums both(Sums a, Sums b) {
    Sums all = {a.g + b.g, a.product + b.product};
    return all;
}

template <class V> __device__ inline V from_lane(V mine, int step) {  // of the lane whose number differs by `step`
    union { V value; unsigned words[sizeof(V) / 4]; } given, got;
    given.value = mine;
    for (int i = 0; i < sizeof(V) / 4; i++) got.words[i] = __shfl_xor_sync(ALL_LANES, given.words[i], step);
    return got.value;
}

template <class V> __device__ inline V over_threads(V mine, V none) {  // the first thread gets the block's result
    __shared__ V parts[32];
    for (int step = 1; step < 32; step *= 2) mine = both(mine, from_lane(mine, step));
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x < 32) {
        mine = threadIdx.x < blockDim.x / 32 ? parts[threadIdx.x] : none;
        for (int step = 1; step < 32; step *= 2) mine = both(mine, from_lane(mine, step));
    }
    return mine;
}

// The index in memory of a strip's i-th element.
struct Strip {
    I length, jump;  // from the end of a run to the next run's beginning
    long long start;
    __device__ Strip(long long strip, long long channels, long long length)
        : length((I)length), jump((I)((channels - 1) * length)), start(strip * length) {}
    __device__ long long at(long long i) const { return start + i + (long long)((I)i / length) * jump; }
};

// f(address) for a thread's elements of a piece of a strip, or for every `some`-th if they are aligned to packs.
template <class F> __device__ inline void over_strip(long long strip, long long channels, long long length,
                                                              long long first, long long last, int some, F f) {
    Strip where(strip, channels, length);
    for (long long i = first + threadIdx.x * some; i < last; i += blockDim.x * some) f(where.at(i));
}

// --- element by element --------------------------------------------------------------------------------------------

// The strip and the channel of an element: a strip is `width` adjacent elements, or (width 0) a channel.
struct Places { long long strip, channel; };
__device__ inline Places places_of(long long i, long long channels, long long length, long long width) {
    I run = (I)i / (I)length;
    Places found;
    found.channel = run % (I)channels;
    found.strip = width ? (long long)((I)i / (I)width) : found.channel;
    return found;
}

// `count` adjacent elements at a time: all in one channel (across = 0), or in adjacent channels (1).
#define ELEMENTWISE(count) \
    long long threads = (long long)gridDim.x * blockDim.x * count; \
    for (long long i = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * count; i < n; i += threads)

#ifndef BACKWARD
// --- statistics ----------------------------------------------------------------------------------------------------

// One block per piece of a strip: parts (channels, splits).
extern "C" __global__ void moments(const T* x, Moments* parts, long long images, long long channels, long long length,
                                   long long splits, long long piece, bool packed) {
    for (long long task = blockIdx.x; task < channels * splits; task += gridDim.x) {
        long long strip = task / splits, first = (task - strip * splits) * piece, n = images * length;
        long long last = first + piece < n ? first + piece : n;
        Running mine;
        if (packed)
            over_strip(strip, channels, length, first, last, SOME, [&](long long at) {
                Packed<T, SOME> some = load_packed<SOME>(x + at);
                for (int k = 0; k < SOME; k++) mine.add(widen(some.of[k]));
            });
        else
            over_strip(strip, channels, length, first, last, 1, [&](long long at) { mine.add(widen(x[at])); });
        Moments none = {0, 0, 0}, all = over_threads(mine.moments(), none);
        if (threadIdx.x == 0) parts[task] = all;
    }
}

// The same if length is 1: one thread per channel, in blocks of 32 channels and 8 lines.
extern "C" __global__ void moments_of_columns(const T* x, Moments* parts, long long images, long long channels,
                                              long long splits, long long piece) {
    __shared__ Moments held[8][32];
    long long blocks = (channels + 31) / 32;
    for (long long task = blockIdx.x; task < blocks * splits; task += gridDim.x) {
        long long split = task / blocks, channel = (task - split * blocks) * 32 + threadIdx.x, first = split * piece;
        long long last = first + piece < images ? first + piece : images;
        Running mine;
        if (channel < channels)
            for (long long i = first + threadIdx.y; i < last; i += 8) mine.add(widen(x[i * channels + channel]));
        __syncthreads();
        held[threadIdx.y][threadIdx.x] = mine.moments();
        __syncthreads();
        if (threadIdx.y || channel >= channels) continue;
        Moments all = held[0][threadIdx.x];
        for (int line = 1; line < 8; line++) all = both(all, held[line][threadIdx.x]);
        parts[channel * splits + split] = all;
    }
}

extern "C" __global__ void statistics(
    const Moments* parts, A* mean, A* rstd, A* var, long long channels, long long splits, A eps) {
    long long strip = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (strip >= channels) return;
    Moments all = parts[strip * splits];
    for (long long i = 1; i < splits; i++) all = both(all, parts[strip * splits + i]);
    A variance = all.squares / all.n;
    mean[strip] = all.mean;
    rstd[strip] = 1 / sqrt(variance + eps);
    if (var) var[strip] = variance;
}

// Moves the running statistics towards those of a batch: by `momentum`, the variance times `unbiased`.
extern "C" __global__ void move_running(W* running_mean, W* running_var, const A* mean, const A* var, A unbiased,
                                        A momentum, long long channels) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= channels) return;
    store(running_mean + i, widen(running_mean[i]) * (1 - momentum) + mean[i] * momentum);
    store(running_var + i, widen(running_var[i]) * (1 - momentum) + var[i] * unbiased * momentum);
}

template <int count, int across> __device__ inline void normalised(
    const T* x, const A* mean, const A* rstd, const W* weight, const W* bias, T* out, long long n, long long channels,
    long long length, long long width) {
    ELEMENTWISE(count) {
        Places in = places_of(i, channels, length, width);
        Packed<T, count> some = load_packed<count>(x + i);
        for (int k = 0; k < count; k++) {
            long long strip = in.strip + across * k, channel = in.channel + across * k;
            A factor = rstd[strip] * (weight ? widen(weight[channel]) : (A)1);
            A shift = bias ? widen(bias[channel]) : (A)0;
            store(&some.of[k], (widen(some.of[k]) - mean[strip]) * factor + shift);
        }
        store_packed<count>(out + i, some);
    }
}

#define NORMALISED(name, count, across) \
    extern "C" __global__ void name(const T* x, const A* mean, const A* rstd, const W* weight, const W* bias, T* out, \
                                    long long n, long long channels, long long length, long long width) { \
        normalised<count, across>(x, mean, rstd, weight, bias, out, n, channels, length, width); \
    }
NORMALISED(normalise, 1, 0)
NORMALISED(normalise_packed, SOME, 0)
NORMALISED(normalise_across, SOME, 1)
#endif

#ifdef BACKWARD
// --- backward ------------------------------------------------------------------------------------------------------

// Sums of g and of g (x - mean) over pieces of strips; `per` strips share a mean (the channels of a group).
extern "C" __global__ void sums(
    const T* g, const T* x, const A* mean, Sums* parts, long long images, long long channels, long long length,
    long long splits, long long piece, long long per, bool packed) {
    for (long long task = blockIdx.x; task < channels * splits; task += gridDim.x) {
        long long strip = task / splits, first = (task - strip * splits) * piece, n = images * length;
        long long last = first + piece < n ? first + piece : n;
        A middle = mean[strip / per];
        Sums mine = {0, 0}, none = {0, 0};
        auto add = [&](A one, A value) { mine.g += one, mine.product += one * (value - middle); };
        if (packed)
            over_strip(strip, channels, length, first, last, SOME, [&](long long at) {
                Packed<T, SOME> gs = load_packed<SOME>(g + at), xs = load_packed<SOME>(x + at);
                for (int k = 0; k < SOME; k++) add(widen(gs.of[k]), widen(xs.of[k]));
            });
        else
            over_strip(strip, channels, length, first, last, 1,
                                  [&](long long at) { add(widen(g[at]), widen(x[at])); });
        mine = over_threads(mine, none);
        if (threadIdx.x == 0) parts[task] = mine;
    }
}

extern "C" __global__ void sums_of_columns(const T* g, const T* x, const A* mean, Sums* parts, long long images,
                                           long long channels, long long splits, long long piece) {
    __shared__ Sums held[8][32];
    long long blocks = (channels + 31) / 32;
    for (long long task = blockIdx.x; task < blocks * splits; task += gridDim.x) {
        long long split = task / blocks, channel = (task - split * blocks) * 32 + threadIdx.x, first = split * piece;
        long long last = first + piece < images ? first + piece : images;
        Sums mine = {0, 0};
        if (channel < channels)
            for (long long i = first + threadIdx.y; i < last; i += 8) {
                A one = widen(g[i * channels + channel]);
                mine.g += one;
                mine.product += one * (widen(x[i * channels + channel]) - mean[channel]);
            }
        __syncthreads();
        held[threadIdx.y][threadIdx.x] = mine;
        __syncthreads();
        if (threadIdx.y || channel >= channels) continue;
        for (int line = 1; line < 8; line++) mine = both(mine, held[line][threadIdx.x]);
        parts[channel * splits + split] = mine;
    }
}

// gx = (x - mean) slope + g factor + shift, with
//   factor = rstd w,  slope = -rstd^2 factor mean(g (x - mean)),  shift = -factor mean(g)  (batch norm in training).
extern "C" __global__ void of_channels(
    const Sums* parts, const A* rstd, const W* weight, A* gw, A* gb, A* slope, A* shift, long long channels,
    long long splits, A count) {
    long long channel = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (channel >= channels) return;
    Sums all = parts[channel * splits];
    for (long long i = 1; i < splits; i++) all = both(all, parts[channel * splits + i]);
    A scale = rstd[channel], factor = scale * (weight ? widen(weight[channel]) : (A)1);
    gw[channel] = all.product * scale;
    gb[channel] = all.g;
    slope[channel] = -scale * scale * factor * all.product / count;
    shift[channel] = -factor * all.g / count;
}

// The same for groups: the sums are per image and channel, and are each image's contribution to gw and gb.
extern "C" __global__ void of_groups(
    const Sums* parts, const A* rstd, const W* weight, A* gw, A* gb, A* slope, A* shift, long long rows,
    long long groups, long long channels, long long splits, A count) {
    long long row = (long long)blockIdx.x * blockDim.x + threadIdx.x, per = channels / groups;
    if (row >= rows) return;
    A scale = rstd[row], sum = 0, product = 0;
    for (long long strip = row * per; strip < (row + 1) * per; strip++) {
        Sums all = parts[strip * splits];
        for (long long i = 1; i < splits; i++) all = both(all, parts[strip * splits + i]);
        A w = weight ? widen(weight[strip % channels]) : (A)1;
        gw[strip] = all.product * scale;
        gb[strip] = all.g;
        sum += all.g * w;
        product += all.product * w;
    }
    slope[row] = -scale * scale * scale * product / count;
    shift[row] = -scale * sum / count;
}

template <int count, int across> __device__ inline void of_input(
    const T* g, const T* x, const A* mean, const A* rstd, const W* weight, const A* slope, const A* shift, T* gx,
    long long n, long long channels, long long length, long long width) {
    ELEMENTWISE(count) {
        Places in = places_of(i, channels, length, width);
        Packed<T, count> gs = load_packed<count>(g + i), xs;
        if (slope) xs = load_packed<count>(x + i);  // else the statistics were not the batch's
        for (int k = 0; k < count; k++) {
            long long strip = in.strip + across * k, channel = in.channel + across * k;
            A made = widen(gs.of[k]) * rstd[strip] * (weight ? widen(weight[channel]) : (A)1);
            if (slope) made += (widen(xs.of[k]) - mean[strip]) * slope[strip] + shift[strip];
            store(&gs.of[k], made);
        }
        store_packed<count>(gx + i, gs);
    }
}

#define OF_INPUT(name, count, across) \
    extern "C" __global__ void name( \
        const T* g, const T* x, const A* mean, const A* rstd, const W* weight, const A* slope, const A* shift, T* gx, \
        long long n, long long channels, long long length, long long width) { \
        of_input<count, across>(g, x, mean, rstd, weight, slope, shift, gx, n, channels, length, width); \
    }
OF_INPUT(input, 1, 0)
OF_INPUT(input_packed, SOME, 0)
OF_INPUT(input_across, SOME, 1)
#endif
