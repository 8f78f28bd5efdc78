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
    long long q[3], k[3], v[3], out[3], grad[3], mask[4];
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

// --- products --------------------------------------------------------------------------------------------------------
// A warp multiplies 16 rows of `a` by blocks of 8 rows of `b` (both tiles with `depth` contiguous elements): a b^T. As
// the tensor cores require, lane l holds rows l / 4 and l / 4 + 8 of each 16 by 8 block, and in them columns 2 (l % 4)
// and the next: sums[block] = {row, row; row + 8, row + 8}.

#if HALVES
#ifndef EMULATED
template <class E> __device__ inline void multiply_16_8_16(float* sums, const unsigned* a, unsigned b, unsigned c);
#define TENSOR_CORES(type, name)                                                                                \
    template <>                                                                                                 \
    __device__ inline void multiply_16_8_16<type>(float* sums, const unsigned* a, unsigned b, unsigned c) {     \
        asm("mma.sync.aligned.m16n8k16.row.col.f32." name "." name ".f32 "                                      \
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                   \
            : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])                                        \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(c));                                      \
    }
TENSOR_CORES(half, "f16")
TENSOR_CORES(bfloat16, "bf16")
#endif
template <int blocks, int depth>
__device__ void multiply(float (*sums)[4], const T* a, int a_step, const T* b, int b_step) {
    int row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    for (int k = column; k < depth; k += 16) {
        const T *upper = a + row * a_step + k, *lower = upper + 8 * a_step;
        unsigned left[4] = {*(const unsigned*)upper, *(const unsigned*)lower,
                            *(const unsigned*)(upper + 8), *(const unsigned*)(lower + 8)};
#pragma unroll
        for (int block = 0; block < blocks; block++) {
            const T* other = b + (block * 8 + row) * b_step + k;
            multiply_16_8_16<T>(sums[block], left, *(const unsigned*)other, *(const unsigned*)(other + 8));
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
#endif

template <int blocks> __device__ void clear(float (*sums)[4]) {
    for (int block = 0; block < blocks; block++)
        for (int i = 0; i < 4; i++) sums[block][i] = 0;
}

// The sums of a warp as 16 rows of a tile.
template <int blocks> __device__ void to_tile(T* to, int step, const float (*sums)[4]) {
    int row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    for (int block = 0; block < blocks; block++)
        for (int i = 0; i < 4; i++) store(to + (row + i / 2 * 8) * step + block * 8 + column + i % 2, sums[block][i]);
}

// ... and as rows in memory, of which `count` exist: a lane's upper row times one factor, its lower one times another.
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

// A product of a query and a key as a score: scaled, masked, -inf where there is no such pair.
__device__ inline float score(const Shape& s, const Place& p, const M* mask, float product, int query, int key) {
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
    T *keys = queries + ROWS * STEP, *values = keys + KEYS * STEP, *weights = values + D * TURNED;
    Place p = place_of(s, s.queries);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = p.first + warp * 16 + lane / 4, column = lane % 4 * 2;
    load_rows<ROWS>(queries, at(q, s.q, p, p.first), s.q[2], s.queries - p.first, s.width);
    float sums[BLOCKS_OF_D][4], top[2] = {-infinity(), -infinity()}, total[2] = {0, 0};
    clear<BLOCKS_OF_D>(sums);
    int end = CAUSAL && p.first + ROWS < s.keys ? p.first + ROWS : s.keys;
    for (int first = 0; first < end; first += KEYS) {
        __syncthreads();  // no thread still reads the previous tile
        load_rows<KEYS>(keys, at(k, s.k, p, first), s.k[2], s.keys - first, s.width);
        load_turned(values, at(v, s.v, p, first), s.v[2], s.keys - first, s.width_of_values);
        __syncthreads();
        float scores[BLOCKS_OF_KEYS][4];
        clear<BLOCKS_OF_KEYS>(scores);
        multiply<BLOCKS_OF_KEYS, D>(scores, queries + warp * 16 * STEP, STEP, keys, STEP);
        float highest[2] = {top[0], top[1]}, rescale[2], shift[2];
        for (int block = 0; block < BLOCKS_OF_KEYS; block++)
            for (int i = 0; i < 4; i++) {
                int key = first + block * 8 + column + i % 2;
                scores[block][i] = score(s, p, mask, scores[block][i], row + i / 2 * 8, key);
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
        T* mine = weights + warp * 16 * TURNED;
        to_tile<BLOCKS_OF_KEYS>(mine, TURNED, scores);
        __syncwarp();
        multiply<BLOCKS_OF_D, KEYS>(sums, mine, TURNED, values, TURNED);
        __syncwarp();
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
        load_turned(turned, at(k, s.k, p, first), s.k[2], s.keys - first, s.width);
        __syncthreads();
        float scores[BLOCKS_OF_KEYS][4], slope[BLOCKS_OF_KEYS][4];
        clear<BLOCKS_OF_KEYS>(scores), clear<BLOCKS_OF_KEYS>(slope);
        multiply<BLOCKS_OF_KEYS, D>(scores, queries + warp * 16 * STEP, STEP, keys, STEP);
        multiply<BLOCKS_OF_KEYS, D>(slope, grads + warp * 16 * STEP, STEP, values, STEP);
        for (int block = 0; block < BLOCKS_OF_KEYS; block++)
            for (int i = 0; i < 4; i++) {
                int query = row + i / 2 * 8, key = first + block * 8 + column + i % 2;
                float weight = exponential(score(s, p, mask, scores[block][i], query, key) - log_of[i / 2]);
                slope[block][i] = weight * (slope[block][i] * kept(s, p, drop, query, key) - common_of[i / 2]);
#if GRAD_MASK
                if (query < s.queries && key < s.keys)
                    store(gmask + (p.lead * s.queries + query) * s.keys + key, slope[block][i]);
#endif
            }
        T* mine = slopes + warp * 16 * TURNED;
        to_tile<BLOCKS_OF_KEYS>(mine, TURNED, slope);
        __syncwarp();
        multiply<BLOCKS_OF_D, KEYS>(sums, mine, TURNED, turned, TURNED);
        __syncwarp();
    }
    int first = p.first + warp * 16;
    T* to = gq + (p.lead * s.queries + first) * s.width;
    to_memory(to, s.width, s.queries - first, s.width, sums, s.scale, s.scale);
}

// The gradients of keys and values: a block has 64 keys and goes along the queries. Rows are keys here.
extern "C" __global__ void __launch_bounds__(128) attention_grad_keys(
    const T* grad, const T* q, const T* k, const T* v, const M* mask, const T* drop, const float* logs,
    const float* common, T* gk, T* gv, Shape s) {
    SHARED(T, keys);
    T *values = keys + ROWS * STEP, *queries = values + ROWS * STEP, *grads = queries + KEYS * STEP;
    T *queries_turned = grads + KEYS * STEP, *grads_turned = queries_turned + D * TURNED;
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
        load_turned(queries_turned, at(q, s.q, p, first), s.q[2], s.queries - first, s.width);
        load_turned(grads_turned, at(grad, s.grad, p, first), s.grad[2], s.queries - first, s.width_of_values);
        __syncthreads();
        float weights[BLOCKS_OF_KEYS][4], slope[BLOCKS_OF_KEYS][4];
        clear<BLOCKS_OF_KEYS>(weights), clear<BLOCKS_OF_KEYS>(slope);
        multiply<BLOCKS_OF_KEYS, D>(weights, keys + warp * 16 * STEP, STEP, queries, STEP);
        multiply<BLOCKS_OF_KEYS, D>(slope, values + warp * 16 * STEP, STEP, grads, STEP);
        for (int block = 0; block < BLOCKS_OF_KEYS; block++)
            for (int i = 0; i < 4; i++) {
                int key = row + i / 2 * 8, query = first + block * 8 + column + i % 2;
                bool there = query < s.queries;
                float log_of = there ? logs[p.lead * s.queries + query] : infinity();
                float common_of = there ? common[p.lead * s.queries + query] : 0;
                float weight = exponential(score(s, p, mask, weights[block][i], query, key) - log_of);
                float part = kept(s, p, drop, query, key);
                slope[block][i] = weight * (slope[block][i] * part - common_of);
                weights[block][i] = weight * part;
            }
        to_tile<BLOCKS_OF_KEYS>(mine, TURNED, weights);
        __syncwarp();
        multiply<BLOCKS_OF_D, KEYS>(of_values, mine, TURNED, grads_turned, TURNED);
        __syncwarp();
        to_tile<BLOCKS_OF_KEYS>(mine, TURNED, slope);
        __syncwarp();
        multiply<BLOCKS_OF_D, KEYS>(of_keys, mine, TURNED, queries_turned, TURNED);
        __syncwarp();
    }
    int first = p.first + warp * 16;
    long long place = p.lead * s.keys + first;
    to_memory(gk + place * s.width, s.width, s.keys - first, s.width, of_keys, s.scale, s.scale);
    to_memory(gv + place * s.width_of_values, s.width_of_values, s.keys - first, s.width_of_values, of_values, 1, 1);
}
