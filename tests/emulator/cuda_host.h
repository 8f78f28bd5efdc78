// CUDA C on the CPU: what a program of kernels/cuda/ needs in order to compile with g++. The machine that runs it is
// cuda_machine.cpp, which is compiled once, and linked to every program.
//
// Blocks run one after another, in one thread of the CPU. The threads of a block are fibers: one runs until it waits
// (at a barrier, or for the other lanes of its warp), then the next. Threads that wait for nothing run as a plain loop.
//
// It is stricter than a GPU. These end the launch with an error, where a GPU may hang, or seem to work:
//   - a read or write outside the arrays that the kernel was given, or outside its shared memory;
//   - an address that is no multiple of the access's size; an index beyond the end of a small array;
//   - threads that wait for others that never come; a shuffle that reads a lane that takes no part;
//   - two threads that touch the same shared memory, one of them writing, with no barrier in between (where the
//     compiler does not see the address beforehand: a single shared variable is not watched).
// g++ calls a function before each access (-fsanitize=kernel-address), and that is where these checks are.
#include "cuda_math.h"

#define EMULATED 1
#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __shared__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __grid_constant__
#define SHARED(type, name) type* name = (type*)emulated::shared_memory
#define UNWATCHED __attribute__((no_sanitize("kernel-address", "undefined")))

#pragma GCC visibility push(hidden)  // all of it is in one library
typedef uint3 dim3;
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
static const int warpSize = 32;

namespace emulated {

struct Range { unsigned long long start, end; };
struct Launch {  // as in native.py
    unsigned grid[3], block[3];
    unsigned long long shared_bytes;
    unsigned char* shared;
    unsigned char* stacks;
    unsigned long long stack_bytes;
    long long ranges;   // the arrays among the arguments come first, then other live memory in order of address
    long long arguments;
    const Range* range;
    char* message;      // of 512 bytes
    void** values;
};

enum Meeting { SYNC, SHUFFLE, VOTE, MATCH };
extern const Launch* launch;
extern unsigned char* shared_memory;
extern int current;  // the thread that runs
extern "C" char __bss_start, _end, __ehdr_start;  // of the library

// Ends the launch with a message.
[[noreturn]] void fail(const char* format, ...);
#define EMULATED_PLACE "block (%u, %u, %u), thread (%u, %u, %u)"
#define EMULATED_WHERE blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z
// Looks at an access to memory, as every one of a kernel is looked at.
void check(unsigned long long at, unsigned long long size, bool writes);
// Waits for the other threads of the block. Returns how many of them have a vote.
int barrier(int line, int vote);
// Waits for the other lanes of the warp. Returns what the lane came for.
unsigned long long in_warp(int line, Meeting kind, unsigned mask, unsigned long long value, int source);
// Runs a launch. Returns 1 if it was ended with a message.
int run(const Launch* asked, void (*kernel)());

template <class V> UNWATCHED V shuffle(int line, unsigned mask, V value, int source, int width, int kind) {
    static_assert(sizeof(V) <= 8, "shuffles move 4 or 8 bytes");
    int lane = current % 32, segment = lane & ~(width - 1), from = lane;
    if (kind == 0) from = segment + (source & (width - 1));
    if (kind == 1) from = lane - source < segment ? lane : lane - source;
    if (kind == 2) from = lane + source >= segment + width ? lane : lane + source;
    if (kind == 3) from = (lane ^ source) >= segment + width ? lane : lane ^ source;
    unsigned long long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(V));
    bits = in_warp(line, SHUFFLE, mask, bits, from);
    __builtin_memcpy(&value, &bits, sizeof(V));
    return value;
}

// A kernel's parameters, as letters for native.py: kind and size, "*" before what is pointed to.
template <class P> struct Letter { static const char kind = 's'; };
#define EMULATED_LETTER(type, letter) template <> struct Letter<type> { static const char kind = letter; };
EMULATED_LETTER(bool, 'b') EMULATED_LETTER(char, 'i') EMULATED_LETTER(signed char, 'i') EMULATED_LETTER(short, 'i')
EMULATED_LETTER(int, 'i') EMULATED_LETTER(long, 'i') EMULATED_LETTER(long long, 'i')
EMULATED_LETTER(unsigned char, 'u') EMULATED_LETTER(unsigned short, 'u') EMULATED_LETTER(unsigned, 'u')
EMULATED_LETTER(unsigned long, 'u') EMULATED_LETTER(unsigned long long, 'u')
EMULATED_LETTER(float, 'f') EMULATED_LETTER(double, 'f')
template <class P> struct Bare { typedef P type; };
template <class P> struct Bare<const P> { typedef P type; };
template <class P> struct Describe {
    UNWATCHED static void into(char*& to) {
        *to++ = Letter<P>::kind;
        int size = sizeof(P);
        if (size >= 1000) *to++ = '0' + size / 1000;
        if (size >= 100) *to++ = '0' + size / 100 % 10;
        if (size >= 10) *to++ = '0' + size / 10 % 10;
        *to++ = '0' + size % 10;
    }
};
template <> struct Describe<void> {
    UNWATCHED static void into(char*& to) { *to++ = 'v', *to++ = '0'; }
};
template <class P> struct Describe<P*> {
    UNWATCHED static void into(char*& to) { *to++ = '*', Describe<typename Bare<P>::type>::into(to); }
};
template <class... P> UNWATCHED void describe(void (*)(P...), char* to) {
    ((Describe<typename Bare<P>::type>::into(to), *to++ = ' '), ...);
    *to = 0;
}
template <int... I> struct Numbers {};
template <int n, int... I> struct Count : Count<n - 1, n - 1, I...> {};
template <int... I> struct Count<0, I...> { typedef Numbers<I...> type; };
template <class... P, int... I> UNWATCHED inline void apply(void (*kernel)(P...), Numbers<I...>) {
    kernel(*(P*)launch->values[I]...);
}
template <class... P> UNWATCHED inline void invoke(void (*kernel)(P...)) {
    apply(kernel, typename Count<sizeof...(P)>::type());
}

}  // namespace emulated
#pragma GCC visibility pop

#define EMULATED_KERNEL(name, most) \
    namespace emulated { UNWATCHED static void body_of_##name() { invoke(&::name); } } \
    extern "C" __attribute__((visibility("default"))) UNWATCHED int run__##name(const emulated::Launch* launch) { \
        return emulated::run(launch, emulated::body_of_##name); \
    } \
    extern "C" __attribute__((visibility("default"))) UNWATCHED int parameters__##name(char* to) { \
        emulated::describe(&::name, to); \
        return most; \
    }

#define __syncthreads() ((void)emulated::barrier(__LINE__, 0))
#define __syncthreads_or(p) (emulated::barrier(__LINE__, (p) != 0) != 0)
#define __syncthreads_count(p) emulated::barrier(__LINE__, (p) != 0)
#define __syncwarp(...) ((void)emulated::in_warp(__LINE__, emulated::SYNC, emulated::whole(__VA_ARGS__), 0, 0))
namespace emulated {
inline unsigned whole(unsigned mask = 0xffffffffu) { return mask; }
}

// A line tells which lanes meet each other, so these are functions that are told theirs.
#define EMULATED_SHUFFLE(name, kind) \
    template <class V> inline V name(unsigned mask, V value, int source, int width = 32, int line = __builtin_LINE()) { \
        return emulated::shuffle(line, mask, value, source, width, kind); \
    }
EMULATED_SHUFFLE(__shfl_sync, 0) EMULATED_SHUFFLE(__shfl_up_sync, 1)
EMULATED_SHUFFLE(__shfl_down_sync, 2) EMULATED_SHUFFLE(__shfl_xor_sync, 3)
inline unsigned __ballot_sync(unsigned mask, int p, int line = __builtin_LINE()) {
    return emulated::in_warp(line, emulated::VOTE, mask, p != 0, 0);
}
inline int __any_sync(unsigned mask, int p, int line = __builtin_LINE()) { return __ballot_sync(mask, p, line) != 0; }
inline int __all_sync(unsigned mask, int p, int line = __builtin_LINE()) { return !__ballot_sync(mask, !p, line); }
template <class V> inline unsigned __match_any_sync(unsigned mask, V value, int line = __builtin_LINE()) {
    unsigned long long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(V));
    return emulated::in_warp(line, emulated::MATCH, mask, bits, 0);
}

// What a tensor core does for the 32 lanes of a warp: sums += a b^T for 16 rows of a and 8 of b, 16 elements each. Lane
// l has of a the rows l / 4 and l / 4 + 8 (elements 2 (l % 4) and the next; then those 8 further), and of b row l / 4.
template <class E> UNWATCHED inline void multiply_16_8_16(float* sums, const unsigned* a, unsigned b, unsigned c) {
    typedef unsigned long long Pair;
    int lane = threadIdx.x % 32, row = lane / 4, column = lane % 4 * 2;
    for (int k = 0; k < 4; k++) {
        Pair left[2], right[2];
        for (int i = 0; i < 2; i++) {
            left[i] = __shfl_sync(0xffffffffu, (Pair)a[i] | (Pair)a[i + 2] << 32, row * 4 + k);
            right[i] = __shfl_sync(0xffffffffu, (Pair)b | (Pair)c << 32, (column + i) * 4 + k);
        }
        for (int i = 0; i < 4; i++)
            for (int bits = 0; bits < 64; bits += 16) {
                E one, other;
                one.bits = (unsigned short)(left[i / 2] >> bits), other.bits = (unsigned short)(right[i % 2] >> bits);
                sums[i] += widen(one) * widen(other);
            }
    }
}
// Two numbers rounded to 16 bits each, the first in the lower half.
template <class E> inline unsigned pair_of(float first, float second) {
    E one, other;
    store(&one, first), store(&other, second);
    return one.bits | (unsigned)other.bits << 16;
}
// Four 8 by 8 matrices of 16 bits: lane l gives the address of row l % 8 of matrix l / 8, and gets of each matrix the
// elements 2 (l % 4) and the next of row l / 4, or of column l / 4.
template <class E> inline void load_matrices(unsigned* to, const E* row) {
    int lane = threadIdx.x % 32;
    if ((unsigned long long)row % 16) emulated::fail("a row of a matrix is at no multiple of 16 bytes; " EMULATED_PLACE, EMULATED_WHERE);
    for (int i = 0; i < 4; i++) {
        const E* at = (const E*)__shfl_sync(0xffffffffu, (unsigned long long)row, i * 8 + lane / 4);
        to[i] = at[lane % 4 * 2].bits | (unsigned)at[lane % 4 * 2 + 1].bits << 16;
    }
}
template <class E> inline void load_matrices_turned(unsigned* to, const E* row) {
    int lane = threadIdx.x % 32;
    if ((unsigned long long)row % 16) emulated::fail("a row of a matrix is at no multiple of 16 bytes; " EMULATED_PLACE, EMULATED_WHERE);
    for (int i = 0; i < 4; i++) {
        const E* first = (const E*)__shfl_sync(0xffffffffu, (unsigned long long)row, i * 8 + lane % 4 * 2);
        const E* next = (const E*)__shfl_sync(0xffffffffu, (unsigned long long)row, i * 8 + lane % 4 * 2 + 1);
        to[i] = first[lane / 4].bits | (unsigned)next[lane / 4].bits << 16;
    }
}
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
template <class V> inline V __ldg(const V* at) { return *at; }
template <class V> inline V __ldcs(const V* at) { return *at; }
template <class V> inline void __stcs(V* at, V value) { *at = value; }

// --- atomics --------------------------------------------------------------------------------------------------------

namespace emulated {
template <class V> UNWATCHED inline V fetched(const V* at) {
    unsigned long long place = (unsigned long long)at, shared = (unsigned long long)launch->shared;
    if (place % sizeof(V)) fail("an atomic at an address that is no multiple of its size; " EMULATED_PLACE, EMULATED_WHERE);
    bool inside = (place >= shared && place + sizeof(V) <= shared + launch->shared_bytes)
        || (place >= (unsigned long long)&__bss_start && place < (unsigned long long)&_end);
    if (!inside) check(place, sizeof(V), true);  // atomics on shared memory are ordered among themselves
    return *at;
}
}
#define EMULATED_ATOMIC(name, type, result) \
    UNWATCHED inline type name(type* at, type x) { \
        type old = emulated::fetched(at); \
        *at = (type)(result); \
        return old; \
    }
#define EMULATED_CAS(type) \
    UNWATCHED inline type atomicCAS(type* at, type expected, type x) { \
        type old = emulated::fetched(at); \
        if (old == expected) *at = x; \
        return old; \
    }
EMULATED_CAS(int) EMULATED_CAS(unsigned) EMULATED_CAS(unsigned long long) EMULATED_CAS(unsigned short)
EMULATED_ATOMIC(atomicAdd, int, old + x) EMULATED_ATOMIC(atomicAdd, unsigned, old + x)
EMULATED_ATOMIC(atomicAdd, unsigned long long, old + x) EMULATED_ATOMIC(atomicAdd, float, old + x)
EMULATED_ATOMIC(atomicAdd, double, old + x)
EMULATED_ATOMIC(atomicSub, int, old - x) EMULATED_ATOMIC(atomicSub, unsigned, old - x)
EMULATED_ATOMIC(atomicMax, int, old > x ? old : x) EMULATED_ATOMIC(atomicMax, unsigned, old > x ? old : x)
EMULATED_ATOMIC(atomicMax, long long, old > x ? old : x)
EMULATED_ATOMIC(atomicMax, unsigned long long, old > x ? old : x)
EMULATED_ATOMIC(atomicMin, int, old < x ? old : x) EMULATED_ATOMIC(atomicMin, unsigned, old < x ? old : x)
EMULATED_ATOMIC(atomicMin, long long, old < x ? old : x)
EMULATED_ATOMIC(atomicMin, unsigned long long, old < x ? old : x)
EMULATED_ATOMIC(atomicExch, int, x) EMULATED_ATOMIC(atomicExch, unsigned, x)
EMULATED_ATOMIC(atomicExch, unsigned long long, x) EMULATED_ATOMIC(atomicExch, float, x)
EMULATED_ATOMIC(atomicAnd, int, old & x) EMULATED_ATOMIC(atomicAnd, unsigned, old & x)
EMULATED_ATOMIC(atomicAnd, unsigned long long, old & x)
EMULATED_ATOMIC(atomicOr, int, old | x) EMULATED_ATOMIC(atomicOr, unsigned, old | x)
EMULATED_ATOMIC(atomicOr, unsigned long long, old | x)
EMULATED_ATOMIC(atomicXor, int, old ^ x) EMULATED_ATOMIC(atomicXor, unsigned, old ^ x)
EMULATED_ATOMIC(atomicInc, unsigned, old >= x ? 0 : old + 1)
