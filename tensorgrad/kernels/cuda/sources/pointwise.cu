// One pointwise op of up to three operands: reads each operand once and writes the result once, sixteen bytes at a time
// if memory allows. An operand is an array, or a scalar (then its address is 0).
//
// EXPRESSION is computed from a, b, c and p, q, r; OPERANDS is the number of operands, TA, TB, TC are their types in
// memory, OUT is the type of the result. WHOLE: T is an integer.

#define N(number) ((A)(number))
#ifndef TB
#define TB T
#endif
#ifndef TC
#define TC T
#endif

const int SOME = 16 / sizeof(T);  // elements per thread

template <class E> struct Wide { typedef A type; };
template <> struct Wide<bool> { typedef bool type; };

#ifndef WHOLE
__device__ inline A limited(A x, A low, A high) {  // a nan is kept, and the upper limit takes precedence
    A raised = x < low ? low : x;
    return raised > high ? high : raised;
}
__device__ inline A mish_gate(A x) {  // tanh(softplus(x)) without a logarithm, and without cancellation
    A e = exp(x > 40 ? (A)40 : x), n = e * (e + 2);
    return n / (n + 2);
}
__device__ inline A floor_rest(A rest, A y) {  // of C's remainder: with the divisor's sign, but a zero has the dividend's
    return rest != 0 && (y < 0) != (rest < 0) ? rest + y : rest;
}
__device__ inline A floor_divided(A x, A y) {  // without the error of the quotient, which may round up to the next number
    if (y == 0) return x / y;
    A rest = fmod(x, y), quotient = (x - rest) / y;
    if (rest != 0 && (y < 0) != (rest < 0)) quotient -= 1;
    if (quotient == 0) return copysign(N(0), x / y);
    A below = floor(quotient);
    return quotient - below > N(0.5) ? below + 1 : below;
}
__device__ inline A hypotenuse(A x, A y) {  // CUDA's of the largest numbers is infinite
    const A large = N(1267650600228229401496703205376.0);  // 2^100
    if (fabs(x) > large || fabs(y) > large) return large * hypot(x / large, y / large);
    return hypot(x, y);
}
__device__ inline A gelu_tanh_slope(A x, A slope, A cubic) {
    A t = tanh(slope * (x + cubic * x * x * x));
    return N(0.5) * (1 + t) + N(0.5) * x * (1 - t * t) * slope * (1 + 3 * cubic * x * x);
}
#endif

// COMPUTED: up to here is what expressions may use.
__device__ inline auto computed(Wide<TA>::type a, Wide<TB>::type b, Wide<TC>::type c, A p, A q, A r) {
    return EXPRESSION;
}

template <int count, class E> __device__ inline void take(const E* at, A number, typename Wide<E>::type* to) {
    if (at) {
        Packed<E, count> some = load_packed<count>(at);
        for (int k = 0; k < count; k++) to[k] = widen(some.of[k]);
    } else {
        for (int k = 0; k < count; k++) to[k] = number;
    }
}

template <int count> __device__ inline void compute(OUT* out, const TA* a_at, A a_number, const TB* b_at, A b_number,
                                                    const TC* c_at, A c_number, A p, A q, A r) {
    Wide<TA>::type a[count];
    Wide<TB>::type b[count] = {};
    Wide<TC>::type c[count] = {};
    take<count>(a_at, a_number, a);
    if (OPERANDS > 1) take<count>(b_at, b_number, b);
    if (OPERANDS > 2) take<count>(c_at, c_number, c);
    Packed<OUT, count> made;
    for (int k = 0; k < count; k++) store(&made.of[k], computed(a[k], b[k], c[k], p, q, r));
    store_packed<count>(out, made);
}

// All arrays have the same elements in the same order, at addresses that are multiples of sixteen bytes.
extern "C" __global__ void whole(OUT* out, long long n, const TA* a, A a_number, const TB* b, A b_number,
                                 const TC* c, A c_number, A p, A q, A r) {
    long long threads = (long long)gridDim.x * blockDim.x;
    long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    for (long long i = first * SOME; i + SOME <= n; i += threads * SOME)
        compute<SOME>(out + i, a ? a + i : a, a_number, b ? b + i : b, b_number, c ? c + i : c, c_number, p, q, r);
    long long rest = n - n % SOME + first;
    if (rest < n)
        compute<1>(out + rest, a ? a + rest : a, a_number, b ? b + rest : b, b_number, c ? c + rest : c, c_number, p,
                   q, r);
}

// Arrays of up to four dimensions, broadcast with steps of 0. I is the type of an index: 64-bit division costs four
// times as much. `count` adjacent elements at a time: n3 is a multiple of it, and steps in the last dimension are 0 or
// 1.
struct Steps { long long s0, s1, s2, s3; };

template <int count, class I, class E> __device__ inline void take_at(
    const E* at, A number, Steps by, I i0, I i1, I i2, I i3, typename Wide<E>::type* to) {
    const E* here = at + (i0 * by.s0 + i1 * by.s1 + i2 * by.s2 + i3 * by.s3);
    if (count > 1 && at && !by.s3) {
        for (int k = 0; k < count; k++) to[k] = widen(*here);
    } else {
        take<count>(at ? here : at, number, to);
    }
}

template <int count, class I> __device__ inline void over(
    OUT* out, I n, I n1, I n2, I n3, const TA* a_at, A a_number, Steps a_by, const TB* b_at, A b_number, Steps b_by,
    const TC* c_at, A c_number, Steps c_by, A p, A q, A r) {
    I threads = (I)gridDim.x * blockDim.x, inner = n3 / count;
    for (I i = (I)blockIdx.x * blockDim.x + threadIdx.x; i < n / count; i += threads) {
        I rest = i / inner, i3 = (i - rest * inner) * count, i1 = rest / n2, i2 = rest - i1 * n2, i0 = i1 / n1;
        i1 -= i0 * n1;
        Wide<TA>::type a[count];
        Wide<TB>::type b[count] = {};
        Wide<TC>::type c[count] = {};
        take_at<count, I>(a_at, a_number, a_by, i0, i1, i2, i3, a);
        if (OPERANDS > 1) take_at<count, I>(b_at, b_number, b_by, i0, i1, i2, i3, b);
        if (OPERANDS > 2) take_at<count, I>(c_at, c_number, c_by, i0, i1, i2, i3, c);
        Packed<OUT, count> made;
        for (int k = 0; k < count; k++) store(&made.of[k], computed(a[k], b[k], c[k], p, q, r));
        store_packed<count>(out + (long long)i * count, made);
    }
}

#define STEPS(x) long long x##0, long long x##1, long long x##2, long long x##3
#define BROADCAST(name, count, I) \
    extern "C" __global__ void name(OUT* out, long long n, const TA* a, A a_number, const TB* b, A b_number, \
                                    const TC* c, A c_number, A p, A q, A r, long long n1, long long n2, long long n3, \
                                    STEPS(a), STEPS(b), STEPS(c)) { \
        over<count, I>(out, n, n1, n2, n3, a, a_number, {a0, a1, a2, a3}, b, b_number, {b0, b1, b2, b3}, c, c_number, \
                       {c0, c1, c2, c3}, p, q, r); \
    }
BROADCAST(broadcast, 1, unsigned)
BROADCAST(broadcast_packed, SOME, unsigned)
BROADCAST(broadcast_far, 1, long long)
