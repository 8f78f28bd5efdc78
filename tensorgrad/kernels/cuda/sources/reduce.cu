// Reductions of an array (outer, n, inner) over its middle dimension: rows are contiguous if inner is 1, else columns.
// Each element is read once. The order of sums depends on the sizes alone, so results are reproducible.
//
// OP is one of the structures below; OUT is the type of its result. If there are few results, n is split into `splits`
// pieces, whose tallies (..._split) are combined in a second launch (..._join).

#ifdef WHOLE
typedef long long R;
#else
typedef A R;
#endif

const int SOME = 16 / sizeof(T);

template <class V> __device__ inline V infinite() { return (V)__int_as_float(0x7f800000); }

// --- the ops: a Tally is the partial result of some elements -------------------------------------------------------

struct Plain { typedef R Tally; };

struct sum : Plain {
    static __device__ R none() { return 0; }
    static __device__ R with(R t, R x, long long, R) { return t + x; }
    static __device__ R both(R a, R b) { return a + b; }
    static __device__ void give(R t, OUT* out, long long*, long long, R) { store(out, t); }
};
struct mean : sum {
    static __device__ void give(R t, OUT* out, long long*, long long n, R) { store(out, t / (R)n); }
};
struct prod : Plain {
    static __device__ R none() { return 1; }
    static __device__ R with(R t, R x, long long, R) { return t * x; }
    static __device__ R both(R a, R b) { return a * b; }
    static __device__ void give(R t, OUT* out, long long*, long long, R) { store(out, t); }
};
struct any : Plain {
    static __device__ R none() { return 0; }
    static __device__ R with(R t, R x, long long, R) { return t != 0 || x != 0; }
    static __device__ R both(R a, R b) { return a != 0 || b != 0; }
    static __device__ void give(R t, OUT* out, long long*, long long, R) { store(out, (long long)(t != 0)); }
};
struct all : Plain {
    static __device__ R none() { return 1; }
    static __device__ R with(R t, R x, long long, R) { return t != 0 && x != 0; }
    static __device__ R both(R a, R b) { return a != 0 && b != 0; }
    static __device__ void give(R t, OUT* out, long long*, long long, R) { store(out, (long long)(t != 0)); }
};

#ifndef WHOLE
struct amax : Plain {
    static __device__ R none() { return -infinite<R>(); }
    static __device__ R with(R t, R x, long long, R) { return Max::of(t, x); }
    static __device__ R both(R a, R b) { return Max::of(a, b); }
    static __device__ void give(R t, OUT* out, long long*, long long, R) { store(out, t); }
};
struct amin : Plain {
    static __device__ R none() { return infinite<R>(); }
    static __device__ R with(R t, R x, long long, R) { return Min::of(t, x); }
    static __device__ R both(R a, R b) { return Min::of(a, b); }
    static __device__ void give(R t, OUT* out, long long*, long long, R) { store(out, t); }
};
struct norm1 : sum {
    static __device__ R with(R t, R x, long long, R) { return t + fabs(x); }
};
struct norm2 : sum {
    static __device__ R with(R t, R x, long long, R) { return t + x * x; }
    static __device__ void give(R t, OUT* out, long long*, long long, R) { store(out, sqrt(t)); }
};
struct norm_p : sum {
    static __device__ R with(R t, R x, long long, R p) { return t + pow(fabs(x), p); }
    static __device__ void give(R t, OUT* out, long long*, long long, R p) { store(out, pow(t, 1 / p)); }
};
struct norm_max : amax {
    static __device__ R none() { return 0; }
    static __device__ R with(R t, R x, long long, R) { return Max::of(t, fabs(x)); }
};

struct Place { R value; long long at; };
// The first of the largest elements, or of the nans; `larger` compares two of them.
template <class Larger> struct Extreme {
    typedef Place Tally;
    static __device__ Place none() { return {0, -1}; }
    static __device__ Place with(Place t, R x, long long i, R) { return both(t, {x, i}); }
    static __device__ Place both(Place a, Place b) {
        if (a.at < 0 || b.at < 0) return a.at < 0 ? b : a;
        bool a_nan = a.value != a.value, b_nan = b.value != b.value;
        if (a_nan != b_nan) return a_nan ? a : b;
        if (!a_nan && a.value != b.value) return Larger::is(a.value, b.value) ? a : b;
        return a.at < b.at ? a : b;
    }
    static __device__ void give(Place t, OUT* out, long long* at, long long, R) {
        if (out) store(out, t.value);
        *at = t.at;
    }
};
struct Greater { static __device__ bool is(R a, R b) { return a > b; } };
struct Less { static __device__ bool is(R a, R b) { return a < b; } };
struct argmax : Extreme<Greater> {};
struct argmin : Extreme<Less> {};

// Count, mean and sum of squared distances from it. Sources: B. P. Welford, "Note on a method for calculating corrected
// sums of squares and products" (1962); T. F. Chan et al., "Updating formulae and a pairwise algorithm" (1979).
struct Spread { R mean; double squares; long long n; };  // squares of numbers may exceed the range of R
struct var {
    typedef Spread Tally;
    static __device__ Spread none() { return {0, 0, 0}; }
    static __device__ Spread with(Spread t, R x, long long, R) {
        t.n += 1;
        R away = x - t.mean;
        t.mean += away / (R)t.n;
        t.squares += (double)away * (double)(x - t.mean);
        return t;
    }
    static __device__ Spread both(Spread a, Spread b) {
        if (!a.n || !b.n) return a.n ? a : b;
        long long n = a.n + b.n;
        R away = b.mean - a.mean, share = (R)b.n / (R)n;
        double apart = (double)away * (double)away * (double)share;
        return {a.mean + away * share, a.squares + b.squares + apart * (double)a.n, n};
    }
    static __device__ void give(Spread t, OUT* out, long long*, long long n, R correction) {
        double freedom = (double)n - (double)correction;
        store(out, (R)(t.squares / (freedom > 0 ? freedom : 0)));
    }
};

struct deviation : var {
    static __device__ void give(Spread t, OUT* out, long long*, long long n, R correction) {
        double freedom = (double)n - (double)correction;
        store(out, (R)sqrt(t.squares / (freedom > 0 ? freedom : 0)));
    }
};

struct Exponentials { R top, sum; };
struct logsumexp {
    typedef Exponentials Tally;
    static __device__ Exponentials none() { return {-infinite<R>(), 0}; }
    static __device__ Exponentials with(Exponentials t, R x, long long, R) { return both(t, {x, 1}); }
    static __device__ Exponentials both(Exponentials a, Exponentials b) {
        R top = Max::of(a.top, b.top);
        // Equal tops may be infinite: their difference is not computed.
        R left = a.top == top ? a.sum : a.sum * exp(a.top - top);
        R right = b.top == top ? b.sum : b.sum * exp(b.top - top);
        return {top, left + right};
    }
    static __device__ void give(Exponentials t, OUT* out, long long*, long long, R) {
        store(out, fabs(t.top) == infinite<R>() ? t.top : t.top + log(t.sum));
    }
};
#endif

typedef OP::Tally Tally;
struct Held { Tally tally; };  // in memory: the same type for any T

// --- combining parts -----------------------------------------------------------------------------------------------

__device__ inline Tally from_lane(Tally mine, int step) {  // the tally of the lane whose number differs by `step`
    union { Tally tally; unsigned words[sizeof(Tally) / 4]; } given, got;
    given.tally = mine;
    for (int i = 0; i < sizeof(Tally) / 4; i++) got.words[i] = __shfl_xor_sync(ALL_LANES, given.words[i], step);
    return got.tally;
}

// The lanes of a group get their combined tally. The lower lane's is on the left: the order of the elements.
__device__ inline Tally over_lanes(Tally mine, int lanes) {
    for (int step = 1; step < lanes; step *= 2) {
        Tally other = from_lane(mine, step);
        mine = threadIdx.x & step ? OP::both(other, mine) : OP::both(mine, other);
    }
    return mine;
}

__device__ inline Tally over_threads(Tally mine) {  // the first thread gets the block's result
    __shared__ Tally parts[32];
    mine = over_lanes(mine, 32);
    __syncthreads();  // no thread still reads the parts of the previous row
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x < 32) mine = over_lanes(threadIdx.x < blockDim.x / 32 ? parts[threadIdx.x] : OP::none(), 32);
    return mine;
}

// The tally with a pack of elements.
template <class V> __device__ inline V with_pack(V mine, const Packed<T, SOME>& some, long long i, R p) {
    for (int k = 0; k < SOME; k++) mine = OP::with(mine, widen(some.of[k]), i + k, p);
    return mine;
}
#ifndef WHOLE
__device__ inline Spread with_pack(Spread mine, const Packed<T, SOME>& some, long long, R) {  // one division for all
    Spread pack = {0, 0, SOME};
    for (int k = 0; k < SOME; k++) pack.mean += widen(some.of[k]) * ((R)1 / SOME);  // of large numbers, too
    for (int k = 0; k < SOME; k++) {
        double away = widen(some.of[k]) - pack.mean;
        pack.squares += away * away;
    }
    return var::both(mine, pack);
}
#endif

// Elements or tallies, from `first` up to `last`, as visited by one thread of `threads`; `by` is the step in memory.
__device__ inline Tally gathered(const T* x, long long first, long long last, int thread, int threads, bool packed,
                                 R p) {
    Tally mine = OP::none();
    if (packed) {
        for (long long i = first + thread * SOME; i < last; i += threads * SOME) {
            mine = with_pack(mine, load_packed<SOME>(x + i), i, p);
        }
    } else {
        for (long long i = first + thread; i < last; i += threads) mine = OP::with(mine, widen(x[i]), i, p);
    }
    return mine;
}
__device__ inline Tally gathered(const Held* x, long long first, long long last, int thread, int threads, bool, R) {
    Tally mine = OP::none();
    for (long long i = first + thread; i < last; i += threads) mine = OP::both(mine, x[i].tally);
    return mine;
}
template <int count> __device__ inline Packed<T, count> neighbours(const T* x) { return load_packed<count>(x); }
struct Alone { Held of[1]; };
template <int count> __device__ inline Alone neighbours(const Held* x) { return {{*x}}; }
__device__ inline Tally added(Tally mine, T x, long long i, R p) { return OP::with(mine, widen(x), i, p); }
__device__ inline Tally added(Tally mine, Held x, long long, R) { return OP::both(mine, x.tally); }

struct Results {
    OUT* out;
    long long *places, count;
    R p;
    __device__ void put(long long i, Tally t) const { OP::give(t, out ? out + i : out, places + i, count, p); }
};
struct Tallies {
    Held* out;
    __device__ void put(long long i, Tally t) const { out[i].tally = t; }
};

// --- rows ------------------------------------------------------------------------------------------------------------

// One block per piece of a row.
template <class To> __device__ void rows(const T* x, To to, long long rows, long long n, long long splits,
                                         long long piece, bool packed, R p) {
    for (long long task = blockIdx.x; task < rows * splits; task += gridDim.x) {
        long long row = task / splits, first = (task - row * splits) * piece;
        long long last = first + piece < n ? first + piece : n;
        Tally mine = over_threads(gathered(x + row * n, first, last, threadIdx.x, blockDim.x, packed, p));
        if (threadIdx.x == 0) to.put(task, mine);
    }
}

// A power of two of lanes, up to 32, per row.
template <class From, class To> __device__ void short_rows(const From* x, To to, long long rows, long long n, int lanes,
                                                           bool packed, R p) {
    int lane = threadIdx.x & (lanes - 1);
    long long each = blockDim.x / lanes;
    for (long long start = blockIdx.x * each; start < rows; start += gridDim.x * each) {
        long long row = start + threadIdx.x / lanes;
        // There is nothing to read beyond the last row, but other lanes of the warp wait.
        Tally mine = over_lanes(gathered(x + row * n, 0, row < rows ? n : 0, lane, lanes, packed, p), lanes);
        if (lane == 0 && row < rows) to.put(row, mine);
    }
}

// --- columns ---------------------------------------------------------------------------------------------------------

// A block of `wide` times `high` threads: each takes `count` adjacent columns, and every high-th row of a piece.
template <int count, class From, class To> __device__ void columns(
    const From* x, To to, long long outer, long long n, long long inner, long long splits, long long piece, R p) {
    __shared__ Tally held[256];
    int wide = blockDim.x, high = blockDim.y, column = threadIdx.x, line = threadIdx.y;
    long long blocks = (inner + wide * count - 1) / (wide * count);
    for (long long task = blockIdx.x; task < outer * splits * blocks; task += gridDim.x) {
        long long group = task / blocks, at = ((task - group * blocks) * wide + column) * count;
        long long lead = group / splits, first = (group - lead * splits) * piece;
        long long last = first + piece < n ? first + piece : n;
        Tally mine[count];
        for (int k = 0; k < count; k++) mine[k] = OP::none();
        if (at < inner)
            for (long long i = first + line; i < last; i += high) {
                auto some = neighbours<count>(x + (lead * n + i) * inner + at);
                for (int k = 0; k < count; k++) mine[k] = added(mine[k], some.of[k], i, p);
            }
        for (int k = 0; k < count; k++) {
            __syncthreads();  // no thread still reads the previous contents
            held[line * wide + column] = mine[k];
            __syncthreads();
            if (line || at >= inner) continue;
            Tally all = mine[k];
            for (int other = 1; other < high; other++) all = OP::both(all, held[other * wide + column]);
            to.put(group * inner + at + k, all);
        }
    }
}

// --- the kernels -----------------------------------------------------------------------------------------------------

// COLUMNS selects the half of the kernels that is compiled.
#define COMMA ,
#ifdef COLUMNS
#define REDUCTIONS(suffix, From, To, targets, ...) \
    extern "C" __global__ void columns##suffix(const From* x, targets, long long outer, long long n, long long inner, \
                                               long long splits, long long piece, R p) { \
        columns<1>(x, To __VA_ARGS__, outer, n, inner, splits, piece, p); \
    }
extern "C" __global__ void columns_packed_whole(
    const T* x, OUT* out, long long* places, long long count, long long outer, long long n, long long inner,
    long long splits, long long piece, R p) {
    columns<SOME>(x, Results{out, places, count, p}, outer, n, inner, splits, piece, p);
}
extern "C" __global__ void columns_packed_split(const T* x, Held* out, long long outer, long long n, long long inner,
                                                long long splits, long long piece, R p) {
    columns<SOME>(x, Tallies{out}, outer, n, inner, splits, piece, p);
}
#else
extern "C" __global__ void rows_whole(
    const T* x, OUT* out, long long* places, long long count, long long outer, long long n, long long splits,
    long long piece, bool packed, R p) {
    rows(x, Results{out, places, count, p}, outer, n, splits, piece, packed, p);
}
extern "C" __global__ void rows_split(const T* x, Held* out, long long outer, long long n, long long splits,
                                      long long piece, bool packed, R p) {
    rows(x, Tallies{out}, outer, n, splits, piece, packed, p);
}
#define REDUCTIONS(suffix, From, To, targets, ...) \
    extern "C" __global__ void short_rows##suffix(const From* x, targets, long long outer, long long n, int lanes, \
                                                  bool packed, R p) { \
        short_rows(x, To __VA_ARGS__, outer, n, lanes, packed, p); \
    }
#endif
REDUCTIONS(_whole, T, Results, OUT* out COMMA long long* places COMMA long long count, {out, places, count, p})
REDUCTIONS(_join, Held, Results, OUT* out COMMA long long* places COMMA long long count, {out, places, count, p})
REDUCTIONS(_split, T, Tallies, Held* out, {out})
