// Scaled dot-product attention and its gradients, tile by tile: the scores of a tile stay in registers and are never
// written to memory. In the forward pass the softmax is updated along the keys: a larger maximum rescales the sums so
// far. It returns the result and the logarithm of each query's sum; the backward pass recomputes the weights from
// these. No two blocks add to the same element, so results are deterministic. Bytes: forward reads q and writes out
// once, and reads k and v once for every 64 queries (mostly from the cache).
//
// Sources: T. Dao, D. Fu, S. Ermon, A. Rudra and C. Ré, "FlashAttention" (2022); T. Dao, "FlashAttention-2" (2023);
// M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax" (2018).
//
// D: the head's width, rounded up to a multiple of 16. KEYS: rows of a tile of keys (of queries, in the gradient of
// keys and values), a multiple of 16. PACK: elements that are loaded together. MASK: 0 none, 1 boolean (true: attend),
// 2 added. CAUSAL: query i attends to keys 0 .. i. DROP: the weights are multiplied by an array. HALVES: T has 16 bits.
// GRAD_MASK: the gradient of an added mask is needed.

#ifndef D
#define D 64
#define KEYS 32
#define PACK 1
#define MASK 0
#define CAUSAL 0
#define DROP 0
#define HALVES 0
#define GRAD_MASK 0
#endif

#if MASK == 1
typedef bool M;
#else
typedef float M;
#endif

const int THREADS = 128, ROWS = 64;  // four warps, each with 16 rows of a tile
// Stride between the rows of a tile: the extra sixteen bytes keep rows in different banks of shared memory.
const int STEP = D + 16 / (int)sizeof(T), TURNED = KEYS + 16 / (int)sizeof(T);
const int BLOCKS_OF_D = D / 8, BLOCKS_OF_KEYS = KEYS / 8;

// Sizes, and strides in elements of batch, head and position; the features are contiguous.
struct Shape {
    long long q[3], k[3], v[3], out[3], grad[3], gq[3], gk[3], gv[3], mask[4];
    int batches, heads, queries, keys, width, width_of_values;
    float scale;
    int unused;
};

struct Place { long long lead; int batch, head, first; };  // the part that a block works on

__device__ inline Place place_of(const Shape& s, int rows) {
    int tiles = (rows + ROWS - 1) / ROWS;
    Place p;
    p.lead = blockIdx.x / tiles;
    p.batch = (int)(p.lead / s.heads), p.head = (int)(p.lead % s.heads);
    p.first = (tiles - 1 - (int)(blockIdx.x % tiles)) * ROWS;  // the last queries begin: with CAUSAL they do most
    return p;
}

template <class E> __device__ inline E* at(E* x, const long long* strides, const Place& p, int row) {
    return x + p.batch * strides[0] + p.head * strides[1] + row * strides[2];
}

// --- tiles in shared memory ------------------------------------------------------------------------------------------

// to[row][feature] from `count` rows that are `step` apart; zeros beyond.
template <int rows> __device__ void load_rows(T* to, const T* from, long long step, int count, int width) {
    for (int i = threadIdx.x; i < rows * (D / PACK); i += THREADS) {
        int row = i / (D / PACK), column = i % (D / PACK) * PACK;
        Packed<T, PACK> values = {};
        if (row < count && column < width) values = load_packed<PACK>(from + row * step + column);
        store_packed(to + row * STEP + column, values);
    }
}

// to[feature][row], the transpose.
__device__ inline void load_turned(T* to, const T* from, long long step, int count, int width) {
    for (int i = threadIdx.x; i < KEYS * (D / PACK); i += THREADS) {
        int row = i % KEYS, column = i / KEYS * PACK;
        Packed<T, PACK> values = {};
        if (row < count && column < width) values = load_packed<PACK>(from + row * step + column);
        for (int k = 0; k < PACK; k++) to[(column + k) * TURNED + row] = values.of[k];
    }
}

#if HALVES
// Nothing: the tensor cores' loads transpose.
__device__ inline void load_for_weights(T*, const T*, long long, int, int) {}
#else
__device__ inline void load_for_weights(T* turned, const T* from, long long step, int count, int width) {
    load_turned(turned, from, step, count, width);
}
#endif

// --- products --------------------------------------------------------------------------------------------------------
// A warp multiplies 16 rows of `a` by blocks of 8 rows of `b` (both tiles with `depth` contiguous elements): a b^T. As
// the tensor cores require, lane l holds rows l / 4 and l / 4 + 8 of each 16 by 8 block, and in them columns 2 (l % 4)
// and the next: sums[block] = {row, row; row + 8, row + 8}.

#if HALVES
#ifndef EMULATED  // the tests' emulator of a GPU defines these in C++
template <class E> __device__ inline void multiply_16_8_16(float* sums, const unsigned* a, unsigned b, unsigned c);
template <class E> __device__ inline unsigned pair_of(float first, float second);  // as two elements of 16 bits
#define TENSOR_CORES(type, name)                                                                                \
    template <>                                                                                                 \
    __device__ inline void multiply_16_8_16<type>(float* sums, const unsigned* a, unsigned b, unsigned c) {     \
        asm("mma.sync.aligned.m16n8k16.row.col.f32." name "." name ".f32 "                                      \
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                   \
            : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])                                        \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(c));                                      \
    }                                                                                                           \
    template <> __device__ inline unsigned pair_of<type>(float first, float second) {                           \
        unsigned pair;                                                                                          \
        asm("cvt.rn." name "x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));                        \
        return pair;                                                                                            \
    }
TENSOR_CORES(half, "f16")
TENSOR_CORES(bfloat16, "bf16")

// Four 8 by 8 matrices of 16 bits from shared memory: lane l gives the address of row l % 8 of matrix l / 8, and gets
// of each matrix the elements 2 (l % 4) and the next of row l / 4; `turned`, of the transposed matrices.
#define LOAD_MATRICES(name, way)                                                                                \
    __device__ inline void name(unsigned* to, const T* row) {                                                   \
        asm volatile("ldmatrix.sync.aligned.m8n8.x4" way ".shared.b16 {%0, %1, %2, %3}, [%4];"                  \
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])                                       \
                     : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");                                \
    }
LOAD_MATRICES(load_matrices, "")
LOAD_MATRICES(load_matrices_turned, ".trans")
#endif

template <int blocks, int depth>
__device__ void multiply(float (*sums)[4], const T* a, int a_step, const T* b, int b_step) {
    int lane = threadIdx.x % 32, row = lane % 8, matrix = lane / 8;
    const T* left_at = a + lane % 16 * a_step + lane / 16 * 8;
    const T* right_at = b + (matrix / 2 * 8 + row) * b_step + matrix % 2 * 8;
#pragma unroll
    for (int k = 0; k < depth; k += 16) {
        unsigned left[4], right[4];
        load_matrices(left, left_at + k);
#pragma unroll
        for (int block = 0; block < blocks; block += 2) {
            load_matrices(right, right_at + block * 8 * b_step + k);
            multiply_16_8_16<T>(sums[block], left, right[0], right[1]);
            multiply_16_8_16<T>(sums[block + 1], left, right[2], right[3]);
        }
    }
}

// 16 rows of weights (KEYS columns), as a product left them in registers, times a tile of rows (KEYS by D): the pairs
// that a lane holds are those that it needs as the left factor.
__device__ inline void weigh(float (*sums)[4], const float (*weights)[4], T*, const T* rows, const T*) {
    int lane = threadIdx.x % 32, matrix = lane / 8;
    const T* at = rows + (matrix % 2 * 8 + lane % 8) * STEP + matrix / 2 * 8;
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++) {
        unsigned left[4], right[4];
        for (int i = 0; i < 4; i++) {
            const float* pair = weights[2 * k + i / 2] + i % 2 * 2;
            left[i] = pair_of<T>(pair[0], pair[1]);
        }
#pragma unroll
        for (int block = 0; block < BLOCKS_OF_D; block += 2) {
            load_matrices_turned(right, at + k * 16 * STEP + block * 8);
            multiply_16_8_16<T>(sums[block], left, right[0], right[1]);
            multiply_16_8_16<T>(sums[block + 1], left, right[2], right[3]);
        }
    }
}
#else
template <int blocks, int depth>
__device__ void multiply(float (*sums)[4], const T* a, int a_step, const T* b, int b_step) {
    int row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    for (int k = 0; k < depth; k += 4) {
        const float *first = a + row * a_step + k, *second = first + 8 * a_step;
        Packed<float, 4> upper = load_packed<4>(first), lower = load_packed<4>(second);
#pragma unroll
        for (int block = 0; block < blocks; block++)
            for (int j = 0; j < 2; j++) {
                Packed<float, 4> other = load_packed<4>(b + (block * 8 + column + j) * b_step + k);
                for (int i = 0; i < 4; i++) {
                    sums[block][j] += upper.of[i] * other.of[i];
                    sums[block][2 + j] += lower.of[i] * other.of[i];
                }
            }
    }
}

// 16 rows of weights times the transpose of `turned` (D by KEYS), by way of the warp's part of a tile.
__device__ inline void weigh(float (*sums)[4], const float (*weights)[4], T* tile, const T*, const T* turned) {
    int row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    for (int block = 0; block < BLOCKS_OF_KEYS; block++)
        for (int i = 0; i < 4; i++)
            store(tile + (row + i / 2 * 8) * TURNED + block * 8 + column + i % 2, weights[block][i]);
    __syncwarp();
    multiply<BLOCKS_OF_D, KEYS>(sums, tile, TURNED, turned, TURNED);
    __syncwarp();
}
#endif

template <int blocks> __device__ void clear(float (*sums)[4]) {
    for (int block = 0; block < blocks; block++)
        for (int i = 0; i < 4; i++) sums[block][i] = 0;
}

// The sums of a warp as 16 rows in memory, of which `count` exist: a lane's upper row times one factor, its lower one
// times another.
__device__ inline void to_memory(T* to, long long step, int count, int width, const float (*sums)[4], float upper,
                                 float lower) {
    int row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    for (int block = 0; block < BLOCKS_OF_D; block++)
        for (int i = 0; i < 4; i++) {
            int r = row + i / 2 * 8, c = block * 8 + column + i % 2;
            if (r < count && c < width) store(to + r * step + c, sums[block][i] * (i < 2 ? upper : lower));
        }
}

// --- scores ----------------------------------------------------------------------------------------------------------

__device__ inline float infinity() { return __int_as_float(0x7f800000); }

#if HALVES  // the approximate exponential is more accurate than 16 bits
__device__ inline float exponential(float x) { return __expf(x); }
#else
__device__ inline float exponential(float x) { return expf(x); }
#endif

// Whether there are all pairs of these queries and keys, and none is masked.
__device__ inline bool complete(const Shape& s, int query, int queries, int key, int keys) {
    return !MASK && query + queries <= s.queries && key + keys <= s.keys && !(CAUSAL && key + keys - 1 > query);
}

// A product of a query and a key as a score: scaled, masked, -inf where there is no such pair.
__device__ inline float score(const Shape& s, const Place& p, const M* mask, float product, int query, int key,
                              bool complete) {
    if (complete) return product * s.scale;
    if (query >= s.queries || key >= s.keys || (CAUSAL && key > query)) return -infinity();
    float value = product * s.scale;
#if MASK
    M entry = mask[p.batch * s.mask[0] + p.head * s.mask[1] + query * s.mask[2] + key * s.mask[3]];
#if MASK == 1
    if (!entry) value = -infinity();
#else
    value += entry;
#endif
#endif
    return value;
}

// Applies dropout to the weight of a pair.
__device__ inline float kept(const Shape& s, const Place& p, const T* drop, int query, int key) {
#if DROP
    if (query < s.queries && key < s.keys) return widen(drop[(p.lead * s.queries + query) * s.keys + key]);
    return 0;
#else
    return 1;
#endif
}

// Over the four lanes that share a row.
template <class Op> __device__ inline float over_row(float value) {
    value = Op::of(value, __shfl_xor_sync(ALL_LANES, value, 1));
    return Op::of(value, __shfl_xor_sync(ALL_LANES, value, 2));
}

// --- forward ---------------------------------------------------------------------------------------------------------

extern "C" __global__ void __launch_bounds__(128) attention(
    const T* q, const T* k, const T* v, const M* mask, const T* drop, T* out, float* logs, Shape s) {
    SHARED(T, queries);
    T *keys = queries + ROWS * STEP, *values = keys + KEYS * STEP, *turned = values, *weights = turned + D * TURNED;
    Place p = place_of(s, s.queries);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = p.first + warp * 16 + lane / 4, column = lane % 4 * 2;
    load_rows<ROWS>(queries, at(q, s.q, p, p.first), s.q[2], s.queries - p.first, s.width);
    float sums[BLOCKS_OF_D][4], top[2] = {-infinity(), -infinity()}, total[2] = {0, 0};
    clear<BLOCKS_OF_D>(sums);
    int end = CAUSAL && p.first + ROWS < s.keys ? p.first + ROWS : s.keys;
    for (int first = 0; first < end; first += KEYS) {
        __syncthreads();  // no thread still reads the previous tile
        load_rows<KEYS>(keys, at(k, s.k, p, first), s.k[2], s.keys - first, s.width);
        if (HALVES) load_rows<KEYS>(values, at(v, s.v, p, first), s.v[2], s.keys - first, s.width_of_values);
        load_for_weights(turned, at(v, s.v, p, first), s.v[2], s.keys - first, s.width_of_values);
        __syncthreads();
        bool all = complete(s, p.first, ROWS, first, KEYS);
        float scores[BLOCKS_OF_KEYS][4];
        clear<BLOCKS_OF_KEYS>(scores);
        multiply<BLOCKS_OF_KEYS, D>(scores, queries + warp * 16 * STEP, STEP, keys, STEP);
        float highest[2] = {top[0], top[1]}, rescale[2], shift[2];
        for (int block = 0; block < BLOCKS_OF_KEYS; block++)
            for (int i = 0; i < 4; i++) {
                int key = first + block * 8 + column + i % 2;
                scores[block][i] = score(s, p, mask, scores[block][i], row + i / 2 * 8, key, all);
                highest[i / 2] = Max::of(highest[i / 2], scores[block][i]);
            }
        for (int j = 0; j < 2; j++) {
            highest[j] = over_row<Max>(highest[j]);
            shift[j] = highest[j] == -infinity() ? 0 : highest[j];  // no keys yet: exp(-inf - 0) = 0
            rescale[j] = exponential(top[j] - shift[j]);
            top[j] = highest[j];
            total[j] *= rescale[j];
        }
        for (int block = 0; block < BLOCKS_OF_KEYS; block++)
            for (int i = 0; i < 4; i++) {
                float weight = exponential(scores[block][i] - shift[i / 2]);
                total[i / 2] += weight;
                scores[block][i] = weight * kept(s, p, drop, row + i / 2 * 8, first + block * 8 + column + i % 2);
            }
        for (int block = 0; block < BLOCKS_OF_D; block++)
            for (int i = 0; i < 4; i++) sums[block][i] *= rescale[i / 2];
        weigh(sums, scores, weights + warp * 16 * TURNED, values, turned);
    }
    float factor[2];
    for (int j = 0; j < 2; j++) {
        total[j] = over_row<Sum>(total[j]);
        factor[j] = total[j] == 0 ? 0 : 1 / total[j];  // a query without any key gets 0
        int query = row + j * 8;
        if (lane % 4 == 0 && query < s.queries)
            logs[p.lead * s.queries + query] = total[j] == 0 ? infinity() : top[j] + logf(total[j]);
    }
    int first = p.first + warp * 16;
    to_memory(at(out, s.out, p, first), s.out[2], s.queries - first, s.width_of_values, sums, factor[0], factor[1]);
}

// --- gradients -------------------------------------------------------------------------------------------------------

// For each query the product of out and its gradient, which the gradients of all its weights share. One warp per row.
extern "C" __global__ void attention_common(const T* grad, const T* out, float* common, Shape s) {
    long long i = (long long)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (i >= (long long)s.batches * s.heads * s.queries) return;
    Place p = {i / s.queries, (int)(i / s.queries / s.heads), (int)(i / s.queries % s.heads), 0};
    const T *g = at(grad, s.grad, p, (int)(i % s.queries)), *o = at(out, s.out, p, (int)(i % s.queries));
    float sum = 0;
    for (int c = threadIdx.x % 32; c < s.width_of_values; c += 32) sum += widen(g[c]) * widen(o[c]);
    sum = over_warp<Sum>(sum);
    if (threadIdx.x % 32 == 0) common[i] = sum;
}

// The gradient of the queries (and of an added mask): a block has 64 queries and goes along the keys.
extern "C" __global__ void __launch_bounds__(128) attention_grad_queries(
    const T* grad, const T* q, const T* k, const T* v, const M* mask, const T* drop, const float* logs,
    const float* common, T* gq, T* gmask, Shape s) {
    SHARED(T, queries);
    T *grads = queries + ROWS * STEP, *keys = grads + ROWS * STEP, *values = keys + KEYS * STEP;
    T *turned = values + KEYS * STEP, *slopes = turned + D * TURNED;
    Place p = place_of(s, s.queries);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = p.first + warp * 16 + lane / 4, column = lane % 4 * 2;
    load_rows<ROWS>(queries, at(q, s.q, p, p.first), s.q[2], s.queries - p.first, s.width);
    load_rows<ROWS>(grads, at(grad, s.grad, p, p.first), s.grad[2], s.queries - p.first, s.width_of_values);
    float sums[BLOCKS_OF_D][4], log_of[2], common_of[2];
    clear<BLOCKS_OF_D>(sums);
    for (int j = 0; j < 2; j++) {
        int query = row + j * 8;
        bool there = query < s.queries;
        log_of[j] = there ? logs[p.lead * s.queries + query] : infinity();
        common_of[j] = there ? common[p.lead * s.queries + query] : 0;
    }
    int end = CAUSAL && !GRAD_MASK && p.first + ROWS < s.keys ? p.first + ROWS : s.keys;
    for (int first = 0; first < end; first += KEYS) {
        __syncthreads();
        load_rows<KEYS>(keys, at(k, s.k, p, first), s.k[2], s.keys - first, s.width);
        load_rows<KEYS>(values, at(v, s.v, p, first), s.v[2], s.keys - first, s.width_of_values);
        load_for_weights(turned, at(k, s.k, p, first), s.k[2], s.keys - first, s.width);
        __syncthreads();
        bool all = complete(s, p.first, ROWS, first, KEYS);
        float scores[BLOCKS_OF_KEYS][4], slope[BLOCKS_OF_KEYS][4];
        clear<BLOCKS_OF_KEYS>(scores), clear<BLOCKS_OF_KEYS>(slope);
        multiply<BLOCKS_OF_KEYS, D>(scores, queries + warp * 16 * STEP, STEP, keys, STEP);
        multiply<BLOCKS_OF_KEYS, D>(slope, grads + warp * 16 * STEP, STEP, values, STEP);
        for (int block = 0; block < BLOCKS_OF_KEYS; block++)
            for (int i = 0; i < 4; i++) {
                int query = row + i / 2 * 8, key = first + block * 8 + column + i % 2;
                float weight = exponential(score(s, p, mask, scores[block][i], query, key, all) - log_of[i / 2]);
                slope[block][i] = weight * (slope[block][i] * kept(s, p, drop, query, key) - common_of[i / 2]);
#if GRAD_MASK
                if (query < s.queries && key < s.keys)
                    store(gmask + (p.lead * s.queries + query) * s.keys + key, slope[block][i]);
#endif
            }
        weigh(sums, slope, slopes + warp * 16 * TURNED, keys, turned);
    }
    int first = p.first + warp * 16;
    to_memory(at(gq, s.gq, p, first), s.gq[2], s.queries - first, s.width, sums, s.scale, s.scale);
}

// The gradients of keys and values: a block has 64 keys and goes along the queries. Rows are keys here.
extern "C" __global__ void __launch_bounds__(128) attention_grad_keys(
    const T* grad, const T* q, const T* k, const T* v, const M* mask, const T* drop, const float* logs,
    const float* common, T* gk, T* gv, Shape s) {
    SHARED(T, keys);
    T *values = keys + ROWS * STEP, *queries = values + ROWS * STEP, *grads = queries + KEYS * STEP;
    float *logs_of = (float*)(grads + KEYS * STEP), *commons_of = logs_of + KEYS;
    T *queries_turned = (T*)(commons_of + KEYS), *grads_turned = queries_turned + D * TURNED;
    T* tile = grads_turned + D * TURNED;
    Place p = place_of(s, s.keys);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = p.first + warp * 16 + lane / 4, column = lane % 4 * 2;
    load_rows<ROWS>(keys, at(k, s.k, p, p.first), s.k[2], s.keys - p.first, s.width);
    load_rows<ROWS>(values, at(v, s.v, p, p.first), s.v[2], s.keys - p.first, s.width_of_values);
    float of_keys[BLOCKS_OF_D][4], of_values[BLOCKS_OF_D][4];
    clear<BLOCKS_OF_D>(of_keys), clear<BLOCKS_OF_D>(of_values);
    T* mine = tile + warp * 16 * TURNED;
    for (int first = CAUSAL ? p.first / KEYS * KEYS : 0; first < s.queries; first += KEYS) {
        __syncthreads();
        load_rows<KEYS>(queries, at(q, s.q, p, first), s.q[2], s.queries - first, s.width);
        load_rows<KEYS>(grads, at(grad, s.grad, p, first), s.grad[2], s.queries - first, s.width_of_values);
        load_for_weights(queries_turned, at(q, s.q, p, first), s.q[2], s.queries - first, s.width);
        load_for_weights(grads_turned, at(grad, s.grad, p, first), s.grad[2], s.queries - first, s.width_of_values);
        if (threadIdx.x < KEYS) {
            int query = first + threadIdx.x;
            bool there = query < s.queries;
            logs_of[threadIdx.x] = there ? logs[p.lead * s.queries + query] : infinity();
            commons_of[threadIdx.x] = there ? common[p.lead * s.queries + query] : 0;
        }
        __syncthreads();
        bool all = complete(s, first, KEYS, p.first, ROWS);
        float weights[BLOCKS_OF_KEYS][4], slope[BLOCKS_OF_KEYS][4];
        clear<BLOCKS_OF_KEYS>(weights), clear<BLOCKS_OF_KEYS>(slope);
        multiply<BLOCKS_OF_KEYS, D>(weights, keys + warp * 16 * STEP, STEP, queries, STEP);
        multiply<BLOCKS_OF_KEYS, D>(slope, values + warp * 16 * STEP, STEP, grads, STEP);
        for (int block = 0; block < BLOCKS_OF_KEYS; block++)
            for (int i = 0; i < 4; i++) {
                int key = row + i / 2 * 8, other = block * 8 + column + i % 2, query = first + other;
                float weight = exponential(score(s, p, mask, weights[block][i], query, key, all) - logs_of[other]);
                float part = kept(s, p, drop, query, key);
                slope[block][i] = weight * (slope[block][i] * part - commons_of[other]);
                weights[block][i] = weight * part;
            }
        weigh(of_values, weights, mine, grads, grads_turned);
        weigh(of_keys, slope, mine, queries, queries_turned);
    }
    int first = p.first + warp * 16;
    to_memory(at(gk, s.gk, p, first), s.gk[2], s.keys - first, s.width, of_keys, s.scale, s.scale);
    to_memory(at(gv, s.gv, p, first), s.gv[2], s.keys - first, s.width_of_values, of_values, 1, 1);
}
