// Philox 4x32-10, and the conversion of its words to uniforms and normals: included by the programs that draw.
//
// Philox scrambles a 128-bit counter under a 64-bit key. Source: J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw,
// "Parallel random numbers: as easy as 1, 2, 3", SC'11. As in cuRAND, the upper half of the counter is the number of
// the thread, and the lower half counts the blocks of four words that this thread has drawn.

template <class V> struct Real { typedef float type; };
template <> struct Real<double> { typedef double type; };
typedef Real<T>::type R;  // the type in which samples of T are computed
typedef unsigned long long Long;

// Where a launch begins in the stream of numbers: as a kernel's parameters, and the first statement of its body. In a
// graph (CAPTURED), seed and offset are read from memory, since they differ at each replay.
#ifdef CAPTURED
#define PLACE const Long *place, Long within
#define FIND const Long seed = place[0], offset = place[1] + within;
#else
#define PLACE Long seed, Long offset
#define FIND
#endif

struct Words { unsigned x, y, z, w; };

__device__ inline Words philox(Long counter, Long thread, Long seed) {
    Words c = {(unsigned)counter, (unsigned)(counter >> 32), (unsigned)thread, (unsigned)(thread >> 32)};
    unsigned key = (unsigned)seed, other = (unsigned)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        Long first = (Long)0xD2511F53u * c.x, second = (Long)0xCD9E8D57u * c.z;
        Words next = {(unsigned)(second >> 32) ^ c.y ^ key, (unsigned)second,
                      (unsigned)(first >> 32) ^ c.w ^ other, (unsigned)first};
        c = next;
        key += 0x9E3779B9u, other += 0xBB67AE85u;
    }
    return c;
}

// --- from words to numbers, as cuRAND does ---------------------------------------------------------------------------

__device__ inline float unit(unsigned word) { return (float)word * 0x1p-32f + 0x1p-33f; }  // in (0, 1]
__device__ inline double unit(unsigned low, unsigned high) {
    return (double)((Long)low ^ ((Long)high << 21)) * 0x1p-53 + 0x1p-54;
}

// A pair of normals. Source: G. E. P. Box and M. E. Muller, "A note on the generation of random normal deviates", 1958.
__device__ inline void normals(unsigned a, unsigned b, float* pair) {
    const float turn = 0x1p-32f * 6.2831855f;
    float angle = (float)b * turn + turn / 2, radius = sqrtf(-2.0f * logf(unit(a)));
    __sincosf(angle, pair, pair + 1);
    pair[0] *= radius, pair[1] *= radius;
}
__device__ inline void normals(Words w, double* pair) {
    double half_turns = (double)((Long)w.z ^ ((Long)w.w << 21)) * 0x1p-52 + 0x1p-53;
    double radius = sqrt(-2.0 * log(unit(w.x, w.y)));
    sincospi(half_turns, pair, pair + 1);
    pair[0] *= radius, pair[1] *= radius;
}
