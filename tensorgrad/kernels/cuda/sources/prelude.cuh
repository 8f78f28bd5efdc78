// Shared by all programs: the two half-precision types, and sums and maxima over a warp and over a block.
//
// No CUDA header is included, so that a program compiles in a twentieth of a second and wherever NVRTC is installed.

struct bfloat16 { unsigned short bits; };

#ifndef EMULATED  // the tests' emulator of a GPU defines these in C++
struct half { unsigned short bits; };

#define SHARED(type, name) extern __shared__ __align__(16) unsigned char name##_bytes[]; type* name = (type*)name##_bytes

__device__ inline float widen(half x) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x.bits));
    return value;
}
__device__ inline half as_half(float x) {
    half value;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(value.bits) : "f"(x));
    return value;
}
#endif

__device__ inline float widen(bfloat16 x) { return __uint_as_float((unsigned)x.bits << 16); }
__device__ inline bfloat16 as_bfloat16(float x) {  // to the nearest, ties to even; a NaN is kept
    bfloat16 value;
#if !defined(EMULATED) && __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(value.bits) : "f"(x));
#else
    unsigned bits = __float_as_uint(x);
    value.bits = x != x ? 0x7fff : (unsigned short)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
#endif
    return value;
}

// A value from memory in the type of the computation, and back: store(address, value).
__device__ inline float widen(float x) { return x; }
__device__ inline double widen(double x) { return x; }
__device__ inline long long widen(long long x) { return x; }
__device__ inline int widen(int x) { return x; }
__device__ inline int widen(short x) { return x; }
__device__ inline int widen(signed char x) { return x; }
__device__ inline int widen(unsigned char x) { return x; }
__device__ inline int widen(bool x) { return x; }
__device__ inline void store(float* to, float x) { *to = x; }
__device__ inline void store(double* to, double x) { *to = x; }
__device__ inline void store(half* to, float x) { *to = as_half(x); }
__device__ inline void store(bfloat16* to, float x) { *to = as_bfloat16(x); }
__device__ inline void store(long long* to, long long x) { *to = x; }
__device__ inline void store(int* to, long long x) { *to = (int)x; }
__device__ inline void store(short* to, long long x) { *to = (short)x; }
__device__ inline void store(signed char* to, long long x) { *to = (signed char)x; }
__device__ inline void store(unsigned char* to, long long x) { *to = (unsigned char)x; }
__device__ inline void store(bool* to, long long x) { *to = x != 0; }

// Several adjacent elements that are loaded or stored together: sixteen bytes for full memory throughput. The address
// must be a multiple of their size.
template <class E, int count> struct __align__(sizeof(E) * count) Packed { E of[count]; };
template <int count, class E> __device__ inline Packed<E, count> load_packed(const E* from) {
    return *(const Packed<E, count>*)from;
}
template <int count, class E> __device__ inline void store_packed(E* to, const Packed<E, count>& values) {
    *(Packed<E, count>*)to = values;
}

template <class V> __device__ inline V sigmoid(V x) { return 1 / (1 + exp(-x)); }

const unsigned ALL_LANES = 0xffffffffu;

struct Sum {
    template <class V> static __device__ V of(V a, V b) { return a + b; }
};
struct Max {  // a NaN wins
    template <class V> static __device__ V of(V a, V b) { return a > b || a != a ? a : b; }
};
struct Min {  // a NaN wins
    template <class V> static __device__ V of(V a, V b) { return a < b || a != a ? a : b; }
};

// Every lane gets the result over its warp of 32.
template <class Op, class V> __device__ V over_warp(V value) {
    for (int step = 16; step > 0; step /= 2) value = Op::of(value, __shfl_xor_sync(ALL_LANES, value, step));
    return value;
}

// Every thread gets the result over its block (of whole warps). `neutral` is the neutral element.
template <class Op, class V> __device__ V over_block(V value, V neutral) {
    __shared__ V parts[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    value = over_warp<Op>(value);
    __syncthreads();  // no thread still reads the parts of the previous call
    if (lane == 0) parts[warp] = value;
    __syncthreads();
    value = lane < warps ? parts[lane] : neutral;
    return over_warp<Op>(value);
}
