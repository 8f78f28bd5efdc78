// CUDA's vector types and built-in functions, for g++: as overloads, as CUDA has them, without the C library's headers
// (which would declare names that kernels use for themselves).

#define EMULATED_VECTORS(type, name, size) \
    struct name##1 { type x; }; \
    struct __attribute__((aligned(2 * size))) name##2 { type x, y; }; \
    struct name##3 { type x, y, z; }; \
    struct __attribute__((aligned(4 * size > 16 ? 16 : 4 * size))) name##4 { type x, y, z, w; }; \
    inline name##1 make_##name##1(type x) { return {x}; } \
    inline name##2 make_##name##2(type x, type y) { return {x, y}; } \
    inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; } \
    inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
EMULATED_VECTORS(signed char, char, 1) EMULATED_VECTORS(unsigned char, uchar, 1)
EMULATED_VECTORS(short, short, 2) EMULATED_VECTORS(unsigned short, ushort, 2)
EMULATED_VECTORS(int, int, 4) EMULATED_VECTORS(unsigned, uint, 4)
EMULATED_VECTORS(long long, longlong, 8) EMULATED_VECTORS(unsigned long long, ulonglong, 8)
EMULATED_VECTORS(float, float, 4) EMULATED_VECTORS(double, double, 8)

// --- bits -------------------------------------------------------------------------------------------------------

template <class To, class From> inline To emulated_bits(From x) {
    static_assert(sizeof(To) == sizeof(From), "of one size");
    To y;
    __builtin_memcpy(&y, &x, sizeof(To));
    return y;
}
inline float __int_as_float(int x) { return emulated_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return emulated_bits<float>(x); }
inline int __float_as_int(float x) { return emulated_bits<int>(x); }
inline unsigned __float_as_uint(float x) { return emulated_bits<unsigned>(x); }
inline double __longlong_as_double(long long x) { return emulated_bits<double>(x); }
inline long long __double_as_longlong(double x) { return emulated_bits<long long>(x); }
inline int __mulhi(int x, int y) { return (int)((long long)x * y >> 32); }
inline unsigned __umulhi(unsigned x, unsigned y) { return (unsigned)((unsigned long long)x * y >> 32); }
inline long long __mul64hi(long long x, long long y) { return (long long)((__int128)x * y >> 64); }
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return (unsigned long long)((unsigned __int128)x * y >> 64);
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
    unsigned y = 0;
    for (int i = 0; i < 32; i++) y |= (x >> i & 1) << (31 - i);
    return y;
}

// --- half precision, by arithmetic on bits ---------------------------------------------------------------------------

struct half { unsigned short bits; };

inline float widen(half x) {
    unsigned sign = (unsigned)(x.bits & 0x8000) << 16, exponent = x.bits >> 10 & 31, fraction = x.bits & 1023;
    if (exponent == 31) return __uint_as_float(sign | 0x7f800000 | fraction << 13);
    float size = exponent ? __uint_as_float((exponent + 112) << 23 | fraction << 13)
                          : fraction * __uint_as_float(0x33800000);  // times 2^-24
    return sign ? -size : size;
}
inline half as_half(float x) {
    unsigned bits = __float_as_uint(x), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    half value;
    if (size > 0x7f800000) {
        value.bits = 0x7fff;  // what the GPU makes of every nan
    } else if (size >= 0x477ff000) {
        value.bits = sign | 0x7c00;  // 65,520 and above
    } else if (size < 0x38800000) {  // below 2^-14: adding a half's unit of 2^-24, in float's terms, rounds to it
        value.bits = sign | (__float_as_uint(__uint_as_float(size) + 0.5f) - 0x3f000000);
    } else {
        value.bits = sign | ((size + 0xfff + (size >> 13 & 1) - 0x38000000) >> 13);
    }
    return value;
}

// --- functions ------------------------------------------------------------------------------------------------------

#define EMULATED_UNARY(name) \
    inline float name(float x) { return __builtin_##name##f(x); } \
    inline double name(double x) { return __builtin_##name(x); } \
    inline float name##f(float x) { return __builtin_##name##f(x); }
EMULATED_UNARY(exp) EMULATED_UNARY(exp2) EMULATED_UNARY(expm1) EMULATED_UNARY(log) EMULATED_UNARY(log2)
EMULATED_UNARY(log10) EMULATED_UNARY(log1p) EMULATED_UNARY(sqrt) EMULATED_UNARY(cbrt) EMULATED_UNARY(sin)
EMULATED_UNARY(cos) EMULATED_UNARY(tan) EMULATED_UNARY(asin) EMULATED_UNARY(acos) EMULATED_UNARY(atan)
EMULATED_UNARY(sinh) EMULATED_UNARY(cosh) EMULATED_UNARY(tanh) EMULATED_UNARY(asinh) EMULATED_UNARY(acosh)
EMULATED_UNARY(atanh) EMULATED_UNARY(erf) EMULATED_UNARY(erfc) EMULATED_UNARY(floor) EMULATED_UNARY(ceil)
EMULATED_UNARY(trunc) EMULATED_UNARY(round) EMULATED_UNARY(rint) EMULATED_UNARY(nearbyint) EMULATED_UNARY(fabs)
EMULATED_UNARY(lgamma) EMULATED_UNARY(tgamma)
#define EMULATED_BINARY(name) \
    inline float name(float x, float y) { return __builtin_##name##f(x, y); } \
    inline double name(double x, double y) { return __builtin_##name(x, y); } \
    inline float name##f(float x, float y) { return __builtin_##name##f(x, y); }
EMULATED_BINARY(pow) EMULATED_BINARY(fmod) EMULATED_BINARY(remainder) EMULATED_BINARY(atan2)
EMULATED_BINARY(copysign) EMULATED_BINARY(nextafter) EMULATED_BINARY(fmax) EMULATED_BINARY(fmin)
inline float hypot(float x, float y) { return __builtin_hypotf(x, y); }
inline double hypot(double x, double y) {  // CUDA's is infinite next to the largest number
    double found = __builtin_hypot(x, y);
    return found > 0x1p1023 ? __builtin_inf() : found;
}
inline float fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
inline double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
inline float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
inline float ldexp(float x, int n) { return __builtin_ldexpf(x, n); }
inline double ldexp(double x, int n) { return __builtin_ldexp(x, n); }
inline float frexp(float x, int* n) { return __builtin_frexpf(x, n); }
inline double frexp(double x, int* n) { return __builtin_frexp(x, n); }
inline float ldexpf(float x, int n) { return __builtin_ldexpf(x, n); }
inline void sincosf(float x, float* s, float* c) { *s = __builtin_sinf(x), *c = __builtin_cosf(x); }
inline void sincos(double x, double* s, double* c) { *s = __builtin_sin(x), *c = __builtin_cos(x); }
inline void __sincosf(float x, float* s, float* c) { sincosf(x, s, c); }
// Of half turns: exact at the multiples of a quarter turn.
inline double sinpi(double x) {
    double r = x - 2 * __builtin_rint(x / 2);  // in [-1, 1]
    return r == 1 || r == -1 ? 0 : r == 0.5 ? 1 : r == -0.5 ? -1 : __builtin_sin(3.14159265358979323846 * r);
}
inline double cospi(double x) { return sinpi(__builtin_fabs(x - 2 * __builtin_rint(x / 2)) + 0.5); }
inline float sinpif(float x) { return (float)sinpi((double)x); }
inline float cospif(float x) { return (float)cospi((double)x); }
inline void sincospi(double x, double* s, double* c) { *s = sinpi(x), *c = cospi(x); }
inline void sincospif(float x, float* s, float* c) { *s = sinpif(x), *c = cospif(x); }
inline double normcdf(double x) { return 0.5 * __builtin_erfc(-x * 0.70710678118654752440); }
inline float normcdff(float x) { return (float)normcdf((double)x); }
inline float rsqrt(float x) { return 1 / __builtin_sqrtf(x); }
inline double rsqrt(double x) { return 1 / __builtin_sqrt(x); }
inline float rsqrtf(float x) { return rsqrt(x); }
inline bool isnan(float x) { return x != x; }
inline bool isnan(double x) { return x != x; }
inline bool isinf(float x) { return __builtin_isinf(x); }
inline bool isinf(double x) { return __builtin_isinf(x); }
inline bool isfinite(float x) { return __builtin_isfinite(x); }
inline bool isfinite(double x) { return __builtin_isfinite(x); }
inline bool signbit(float x) { return __builtin_signbit(x); }
inline bool signbit(double x) { return __builtin_signbit(x); }
inline float abs(float x) { return __builtin_fabsf(x); }
inline double abs(double x) { return __builtin_fabs(x); }
inline int abs(int x) { return x < 0 ? -x : x; }
inline long long abs(long long x) { return x < 0 ? -x : x; }
inline long long llabs(long long x) { return x < 0 ? -x : x; }
inline long long llrint(float x) { return __builtin_llrintf(x); }
inline long long llrint(double x) { return __builtin_llrint(x); }

#define EMULATED_LIMITS(type) \
    inline type min(type x, type y) { return y < x ? y : x; } \
    inline type max(type x, type y) { return x < y ? y : x; }
EMULATED_LIMITS(int) EMULATED_LIMITS(unsigned) EMULATED_LIMITS(long) EMULATED_LIMITS(unsigned long)
EMULATED_LIMITS(long long) EMULATED_LIMITS(unsigned long long)
inline float min(float x, float y) { return __builtin_fminf(x, y); }
inline float max(float x, float y) { return __builtin_fmaxf(x, y); }
inline double min(double x, double y) { return __builtin_fmin(x, y); }
inline double max(double x, double y) { return __builtin_fmax(x, y); }

// The quick ones are exact here: a test must not depend on how wrong they are.
inline float __expf(float x) { return __builtin_expf(x); }
inline float __exp10f(float x) { return __builtin_powf(10.0f, x); }
inline float __logf(float x) { return __builtin_logf(x); }
inline float __log2f(float x) { return __builtin_log2f(x); }
inline float __log10f(float x) { return __builtin_log10f(x); }
inline float __sinf(float x) { return __builtin_sinf(x); }
inline float __cosf(float x) { return __builtin_cosf(x); }
inline float __tanf(float x) { return __builtin_tanf(x); }
inline float __powf(float x, float y) { return __builtin_powf(x, y); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1) : 0; }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fmaf_rn(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1 / x; }
inline float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
inline float __frsqrt_rn(float x) { return 1 / __builtin_sqrtf(x); }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dsub_rn(double x, double y) { return x - y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __fma_rn(double x, double y, double z) { return __builtin_fma(x, y, z); }
inline int __float2int_rn(float x) { return (int)__builtin_rintf(x); }
inline int __float2int_rz(float x) { return (int)x; }
inline int __float2int_rd(float x) { return (int)__builtin_floorf(x); }
inline float __int2float_rn(int x) { return (float)x; }
inline float __uint2float_rn(unsigned x) { return (float)x; }
inline float __ull2float_rn(unsigned long long x) { return (float)x; }
