// Random numbers with arrays of parameters, drawn by rejection: one thread per element, each with its own stream. These
// are not PyTorch's numbers. All is computed in double, also for T = float. Each element's parameters are read and its
// sample written, but the arithmetic takes most of the time.

#include "philox.cuh"

// The words of one element, from its position in the stream on.
struct Stream {
    Long counter, element, seed;
    unsigned words[4];
    int used;
    __device__ Stream(Long offset, Long element, Long seed)
        : counter(offset / 4), element(element), seed(seed), used(4) {}
    __device__ unsigned word() {
        if (used == 4) {
            Words w = philox(counter++, element, seed);
            words[0] = w.x, words[1] = w.y, words[2] = w.z, words[3] = w.w;
            used = 0;
        }
        return words[used++];
    }
    __device__ double uniform() {  // in (0, 1]
        unsigned low = word();
        return unit(low, word());
    }
    __device__ double normal() { return sqrt(-2.0 * log(uniform())) * sinpi(2.0 * uniform()); }
};

__device__ inline float not_a_number() { return __int_as_float(0x7fc00000); }

// The element of a thread, or -1.
__device__ inline long long element_of(long long n) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    return i < n ? i : -1;
}

// Source: G. Marsaglia and W. W. Tsang, "A simple method for generating gamma variables", ACM TOMS 26 (2000). For shape
// parameters below 1 it is the sample of one more, times a power of a uniform.
__device__ inline double gamma_variate(double alpha, Stream& stream) {
    double boost = alpha < 1 ? pow(stream.uniform(), 1 / alpha) : 1, d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3;
    double c = 1 / sqrt(9 * d);
    for (;;) {
        double x = stream.normal(), v = 1 + c * x;
        if (v <= 0) continue;
        v = v * v * v;
        if (log(stream.uniform()) < 0.5 * x * x + d * (1 - v + log(v))) return boost * d * v;
    }
}

extern "C" __global__ void standard_gamma(const T* alpha, T* out, long long n, PLACE) {
    FIND
    long long i = element_of(n);
    if (i < 0) return;
    const T least = sizeof(T) == 8 ? (T)2.2250738585072014e-308 : (T)1.17549435e-38f;  // 0 has no logarithm
    Stream stream(offset, i, seed);
    T shape = alpha[i], value = shape > 0 ? (T)gamma_variate(shape, stream) : 0;
    out[i] = !(shape >= 0) ? (T)not_a_number() : value < least ? least : value;
}

// Source: D. Knuth for small rates: the number of uniforms until their product is below exp(-rate); W. Hörmann, "The
// transformed rejection method for generating Poisson random variables" (1993), algorithm PTRS, for large ones.
__device__ inline double poisson_variate(double rate, Stream& stream) {
    if (rate < 10) {
        double product = stream.uniform(), bound = exp(-rate);
        int count = 0;
        while (product > bound) product *= stream.uniform(), count++;
        return count;
    }
    double root = sqrt(rate), b = 0.931 + 2.53 * root, a = -0.059 + 0.02483 * b;
    double inverse = 1.1239 + 1.1328 / (b - 3.4), squeeze = 0.9277 - 3.6224 / (b - 2);
    for (;;) {
        double u = stream.uniform() - 0.5, v = stream.uniform(), us = 0.5 - fabs(u);
        double k = floor((2 * a / us + b) * u + rate + 0.43);
        if (us >= 0.07 && v <= squeeze) return k;
        if (k < 0 || (us < 0.013 && v > us)) continue;
        if (log(v * inverse / (a / (us * us) + b)) <= k * log(rate) - rate - lgamma(k + 1)) return k;
    }
}

extern "C" __global__ void poisson(const T* rate, T* out, long long n, PLACE) {
    FIND
    long long i = element_of(n);
    if (i < 0) return;
    Stream stream(offset, i, seed);
    T wanted = rate[i];
    out[i] = wanted >= 0 ? (T)poisson_variate(wanted, stream) : (T)not_a_number();
}

// If few successes are expected, the trials from one success to the next are drawn; else W. Hörmann, "The generation of
// binomial random variates", J. Stat. Comput. Simul. 46 (1993), algorithm BTRS. p <= 1/2.
__device__ inline double binomial_variate(double count, double p, Stream& stream) {
    if (count * p < 10) {
        double tosses = 0, scale = log1p(-p);
        for (int heads = 0;; heads++) {
            tosses += ceil(log(stream.uniform()) / scale);
            if (tosses > count) return heads;
        }
    }
    double deviation = sqrt(count * p * (1 - p)), b = 1.15 + 2.53 * deviation, a = -0.0873 + 0.0248 * b + 0.01 * p;
    double middle = count * p + 0.5, squeeze = 0.92 - 4.2 / b, alpha = (2.83 + 5.1 / b) * deviation;
    double mode = floor((count + 1) * p), odds = log(p / (1 - p)), top = lgamma(mode + 1) + lgamma(count - mode + 1);
    for (;;) {
        double u = stream.uniform() - 0.5, v = stream.uniform(), us = 0.5 - fabs(u);
        double k = floor((2 * a / us + b) * u + middle);
        if (us >= 0.07 && v <= squeeze) return k;
        if (k < 0 || k > count) continue;
        double likelihood = top - lgamma(k + 1) - lgamma(count - k + 1) + (k - mode) * odds;
        if (log(v * alpha / (a / (us * us) + b)) <= likelihood) return k;
    }
}

extern "C" __global__ void binomial(const T* counts, const T* chances, T* out, long long n, PLACE) {
    FIND
    long long i = element_of(n);
    if (i < 0) return;
    Stream stream(offset, i, seed);
    T count = counts[i], p = chances[i];
    if (count != count || p != p) out[i] = count + p;
    else if (count <= 0 || p <= 0) out[i] = 0;
    else if (p >= 1) out[i] = count;
    else if (p <= (T)0.5) out[i] = (T)binomial_variate(count, p, stream);
    else out[i] = count - (T)binomial_variate(count, 1 - (double)p, stream);
}
