// Random numbers: PyTorch's CUDA samples, number for number, from a seed and an offset.
//
// Each element costs its own size in bytes written, and nothing read.
//
// PACK: how many adjacent elements a thread of `dropout` takes at a time.

#ifndef PACK
#define PACK 1
#endif

#include "philox.cuh"

// Four (double: two) numbers from four words.
struct Uniform {
    static __device__ void draw(Words w, float* to) {
        to[0] = unit(w.x), to[1] = unit(w.y), to[2] = unit(w.z), to[3] = unit(w.w);
    }
    static __device__ void draw(Words w, double* to) { to[0] = unit(w.x, w.y), to[1] = unit(w.z, w.w); }
};
struct Normal {
    static __device__ void draw(Words w, float* to) { normals(w.x, w.y, to), normals(w.z, w.w, to + 2); }
    static __device__ void draw(Words w, double* to) { normals(w, to); }
};
struct Bits {
    static __device__ void draw(Words w, unsigned* to) { to[0] = w.x, to[1] = w.y, to[2] = w.z, to[3] = w.w; }
    static __device__ void draw(Words w, Long* to) { to[0] = (Long)w.x << 32 | w.y, to[1] = (Long)w.z << 32 | w.w; }
};

// PyTorch computes these of float32 with the GPU's fast approximations.
__device__ inline float quick_log(float x) { return __logf(x); }
__device__ inline double quick_log(double x) { return log(x); }
__device__ inline float quick_exp(float x) { return __expf(x); }
__device__ inline double quick_exp(double x) { return exp(x); }

// Anything as an element of memory.
template <class V, class X> __device__ inline void put(V* to, X x) { *to = (V)x; }
template <class X> __device__ inline void put(half* to, X x) { *to = as_half((float)x); }
template <class X> __device__ inline void put(bfloat16* to, X x) { *to = as_bfloat16((float)x); }

// Which thread draws which of n numbers: the order of PyTorch's kernels. Thread t of S writes the elements t, t + S, t
// + 2S, t + 3S from its first four words, and so on.
template <class Draw, class V, class Function>
__device__ inline void over_elements(long long n, Long seed, Long offset, Function write) {
    const int many = 16 / sizeof(V);
    Long thread = (Long)blockIdx.x * blockDim.x + threadIdx.x, threads = (Long)gridDim.x * blockDim.x;
    Long counter = offset / 4;
    for (long long i = thread; i < n; i += threads * many) {
        V drawn[many];
        Draw::draw(philox(counter++, thread, seed), drawn);
        for (int k = 0; k < many; k++)
            if (i + (long long)(k * threads) < n) write(i + k * threads, drawn[k]);
    }
}

// --- the kernels -----------------------------------------------------------------------------------------------------

// Where the random numbers of a graph begin: written before each replay, and read by its kernels (PLACE).
extern "C" __global__ void begin(Long* place, Long seed, Long offset) { place[0] = seed, place[1] = offset; }

extern "C" __global__ void uniform(T* out, long long n, PLACE, R low, R high, R range) {
    FIND
    over_elements<Uniform, R>(n, seed, offset, [=](long long i, R u) {
        T value;
        put(&value, u * range + low);
        if (widen(value) == high) put(&value, low);  // u may be 1; the interval excludes its end
        out[i] = value;
    });
}

extern "C" __global__ void normal(T* out, long long n, PLACE, R mean, R deviation) {
    FIND
    over_elements<Normal, R>(n, seed, offset, [=](long long i, R z) { put(out + i, z * deviation + mean); });
}

extern "C" __global__ void log_normal(T* out, long long n, PLACE, R mean, R deviation) {
    FIND
    over_elements<Normal, R>(n, seed, offset, [=](long long i, R z) { put(out + i, quick_exp(z * deviation + mean)); });
}

extern "C" __global__ void exponential(T* out, long long n, PLACE, R rate) {
    FIND
    const R tiny = sizeof(R) == 8 ? (R)0x1p-53 : (R)0x1p-24;
    over_elements<Uniform, R>(n, seed, offset, [=](long long i, R u) {
        // Near 1 the approximate logarithm may be 0, which is not a valid sample.
        put(out + i, (R)-1 / rate * (u >= 1 - tiny ? -tiny : quick_log(u)));
    });
}

__device__ inline float of_turn(float u) {
    const float least = 0x1p-23f;  // beyond, the approximate tangent is infinite
    u = u > 1 - least ? 1 - least : u < least ? least : u;
    return __tanf(3.14159265f * (u - 0.5f));
}
__device__ inline double of_turn(double u) { return tan(3.14159265358979323846 * (u - 0.5)); }

extern "C" __global__ void cauchy(T* out, long long n, PLACE, R median, R sigma) {
    FIND
    over_elements<Uniform, R>(n, seed, offset, [=](long long i, R u) { put(out + i, median + sigma * of_turn(u)); });
}

// Dropout: x / keep with probability `keep`, else 0. Reads and writes each element once; no mask is kept, since the
// same call on the gradient, with the same seed and offset, is the derivative. PACK = 1 is the order of
// `over_elements`. Words are converted to float here, also for T = double.
extern "C" __global__ void dropout(const T* x, T* out, long long n, PLACE, R keep) {
    FIND
    const R scale = (R)(1.0 / keep);
#if PACK == 1
    over_elements<Uniform, float>(n, seed, offset, [=](long long i, float u) {
        put(out + i, widen(x[i]) * (R)(u < keep) * scale);
    });
#else
    Long thread = (Long)blockIdx.x * blockDim.x + threadIdx.x, threads = (Long)gridDim.x * blockDim.x;
    Long counter = offset / 4;
    for (long long i = thread; i < n / PACK; i += threads) {
        Packed<T, PACK> given = load_packed<PACK>(x + i * PACK), made;
        for (int start = 0; start < PACK; start += 4) {
            float u[4];
            Uniform::draw(philox(counter++, thread, seed), u);
            for (int k = 0; k < 4 && k < PACK; k++)
                put(made.of + start + k, widen(given.of[start + k]) * (R)(u[k] < keep) * scale);
        }
        store_packed(out + i * PACK, made);
    }
#endif
}

// Checks that weights are finite and at least 0 (`positive`: above 0); if one is not, that is recorded (bounds.py).
extern "C" __global__ void check_weights(const T* weights, long long n, int positive, volatile long long* note) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    R weight = widen(weights[i]);
    if (!(positive ? weight > 0 : weight >= 0) || weight - weight != 0) note[0] = 1;
}

// Indices drawn by their shares: each sample looks up a uniform number in the cumulative sums of its row.
extern "C" __global__ void multinomial(const T* sums, const T* shares, long long* out, long long rows, int count,
                                       int samples, PLACE) {
    FIND
    int across = gridDim.x * blockDim.x, mine = blockIdx.x * blockDim.x + threadIdx.x;
    Long thread = (Long)blockIdx.y * across + mine, counter = offset / 4;
    for (long long row = blockIdx.y; row < rows; row += gridDim.y)
        for (int sample = mine; sample < samples; sample += across) {
            T value;
            put(&value, unit(philox(counter++, thread, seed).x));
            const T *sum = sums + row * count, *share = shares + row * count;
            int low = 0, high = count;
            while (low < high) {
                int middle = low + (high - low) / 2;
                if (widen(sum[middle]) < widen(value)) low = middle + 1; else high = middle;
            }
            if (low == count) low = count - 1;
            while (low > 0 && widen(share[low]) == 0) low--;  // an index with a share of 0 is never drawn
            out[row * samples + sample] = low;
        }
}

extern "C" __global__ void bernoulli(T* out, long long n, PLACE, R p) {
    FIND
    over_elements<Uniform, R>(n, seed, offset, [=](long long i, R u) { put(out + i, (R)(u < p)); });
}

extern "C" __global__ void geometric(T* out, long long n, PLACE, R p) {
    FIND
    over_elements<Uniform, R>(n, seed, offset, [=](long long i, R u) {
        put(out + i, ceil(quick_log(u) / quick_log((R)1 - p)));
    });
}

// (word % range) + low, for words of 32 and of 64 bits; a range of 0 (2**32, 2**64) stands for all words.
extern "C" __global__ void below_32(T* out, long long n, PLACE, Long range, long long low) {
    FIND
    unsigned span = (unsigned)range;
    over_elements<Bits, unsigned>(n, seed, offset, [=](long long i, unsigned word) {
        put(out + i, (long long)((Long)(span ? word % span : word) + (Long)low));
    });
}
extern "C" __global__ void below_64(T* out, long long n, PLACE, Long range, long long low) {
    FIND
    over_elements<Bits, Long>(n, seed, offset, [=](long long i, Long word) {
        put(out + i, (long long)((range ? word % range : word) + (Long)low));
    });
}

// Each probability decides one element; a thread takes four adjacent ones.
extern "C" __global__ void __launch_bounds__(512) bernoulli_each(
    const R* p, T* out, long long n, PLACE) {
    FIND
    Long thread = (Long)blockIdx.x * blockDim.x + threadIdx.x;
    float u[4];
    Uniform::draw(philox(offset / 4, thread, seed), u);
    for (int k = 0; k < 4; k++) {
        long long i = (long long)thread * 4 + k;
        if (i < n) put(out + i, (R)(u[k] <= p[i]));
    }
}

// Values with equal keys (under `mask`) are adjacent, in their original order: each such run is shuffled. Source: R. A.
// Fisher and F. Yates, 1938, in the form of R. Durstenfeld, "Algorithm 235", 1964.
extern "C" __global__ void __launch_bounds__(512) shuffle_ties(
    const Long* keys, T* values, long long n, Long mask, PLACE) {
    FIND
    long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (first >= n - 1 || ((keys[first] ^ keys[first + 1]) & mask)) return;
    if (first && !((keys[first] ^ keys[first - 1]) & mask)) return;
    int size = 1;
    while (first + size < n && !((keys[first] ^ keys[first + size]) & mask)) size++;
    values += first;
    unsigned words[4];
    for (int i = size - 1, used = 0; i > 0; i--, used++) {
        if (used % 4 == 0) Bits::draw(philox(offset / 4 + used / 4, first, seed), words);
        unsigned other = words[used % 4] % (unsigned)(i + 1);
        T kept = values[i];
        values[i] = values[other];
        values[other] = kept;
    }
}
