// Optimizer steps over all parameters of a group, and operations on all gradients together: one launch each.
//
// The arrays come as a table in the GPU's memory, with one job per parameter. A block works on one piece of one job,
// which it finds by bisection. Everything is read once and written once; bytes for a float32 parameter: SGD 12, with
// momentum 20, Adam 28, AMSGrad 36; norm 4, scaling 8.

struct Job {
    T* array[5];  // the parameter, then the arrays the update reads: gradient and state, if any
    long long size;   // elements of each
    long long first;  // the number of the job's first block
    float* step;      // the number of the parameter's steps, if it is kept here
};

struct Addresses { T* at[448]; };

// Puts the addresses of gradients into one column of `count` jobs: they differ from step to step.
extern "C" __global__ void tell(Job* jobs, int first, int count, int column, Addresses gradients) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) jobs[first + i].array[column] = gradients.at[i];
}

const int PIECE = 16384;  // elements; kernels/cuda/optim.py computes the number of blocks from it
const int LANES = 16 / sizeof(T);

struct alignas(16) Pack { T at[LANES]; };

// The last job that begins at this block or before.
__device__ inline Job job_of_block(const Job* jobs, int count) {
    int low = 0, high = count - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (jobs[middle].first <= (long long)blockIdx.x) low = middle; else high = middle - 1;
    }
    return jobs[low];
}

// Calls each(values) for every element of the block's piece, with its value in the first ARRAYS arrays of the job;
// those whose bit is set in WRITTEN are then stored.
template <int ARRAYS, int WRITTEN, class Each> __device__ void over_piece(const Job* jobs, int count, Each each) {
    Job job = job_of_block(jobs, count);
    long long start = (blockIdx.x - job.first) * PIECE, end = job.size - start < PIECE ? job.size : start + PIECE;
    bool aligned = true;
    for (int k = 0; k < ARRAYS; k++) aligned = aligned && (unsigned long long)job.array[k] % sizeof(Pack) == 0;
    long long whole = aligned ? start + (end - start) / LANES * LANES : start;
    A values[ARRAYS];
    for (long long i = start + threadIdx.x * LANES; i < whole; i += blockDim.x * LANES) {
        Pack packs[ARRAYS];
        for (int k = 0; k < ARRAYS; k++) packs[k] = *(const Pack*)(job.array[k] + i);
        for (int lane = 0; lane < LANES; lane++) {
            for (int k = 0; k < ARRAYS; k++) values[k] = widen(packs[k].at[lane]);
            each(values);
            for (int k = 0; k < ARRAYS; k++)
                if (WRITTEN >> k & 1) store(&packs[k].at[lane], values[k]);
        }
        for (int k = 0; k < ARRAYS; k++)
            if (WRITTEN >> k & 1) *(Pack*)(job.array[k] + i) = packs[k];
    }
    for (long long i = whole + threadIdx.x; i < end; i += blockDim.x) {
        for (int k = 0; k < ARRAYS; k++) values[k] = widen(job.array[k][i]);
        each(values);
        for (int k = 0; k < ARRAYS; k++)
            if (WRITTEN >> k & 1) store(job.array[k] + i, values[k]);
    }
}

// --- steps: the formulas of tensorgrad/optim/sgd.py and adam.py, in the same order of operations ---------------------

// The gradient to descend along. A decay of 0 must not be multiplied by an infinite parameter.
__device__ inline A descent(A x, A g, A decay, A sign) { return decay != 0 ? sign * g + decay * x : sign * g; }

__device__ inline void sgd_of(const Job* jobs, int count, A lr, A decay, A sign) {
    over_piece<2, 1>(jobs, count, [=](A* v) { v[0] -= lr * descent(v[0], v[1], decay, sign); });
}

__device__ inline void sgd_momentum_of(
    const Job* jobs, int count, A lr, A decay, A sign, A momentum, A take, bool fresh, bool nesterov
) {
    over_piece<3, 5>(jobs, count, [=](A* v) {
        A slope = descent(v[0], v[1], decay, sign);
        v[2] = fresh ? slope : momentum * v[2] + take * slope;
        v[0] -= lr * (nesterov ? slope + momentum * v[2] : v[2]);
    });
}

extern "C" __global__ void sgd(const Job* jobs, int count, A lr, A decay, A sign) {
    sgd_of(jobs, count, lr, decay, sign);
}

extern "C" __global__ void sgd_momentum(
    const Job* jobs, int count, A lr, A decay, A sign, A momentum, A take, bool fresh, bool nesterov
) {
    sgd_momentum_of(jobs, count, lr, decay, sign, momentum, take, fresh, nesterov);
}

// The same in a graph, unless a gradient overflowed (`skip`).
extern "C" __global__ void sgd_unless(const Job* jobs, int count, const float* skip, A lr, A decay, A sign) {
    if (*skip == 0) sgd_of(jobs, count, lr, decay, sign);
}

extern "C" __global__ void sgd_momentum_unless(
    const Job* jobs, int count, const float* skip, A lr, A decay, A sign, A momentum, A take, bool fresh, bool nesterov
) {
    if (*skip == 0) sgd_momentum_of(jobs, count, lr, decay, sign, momentum, take, fresh, nesterov);
}

struct Adam {
    A rate, eps, shrink, decay, take1, keep2, take2, sign;

    // Leaves the mean square in v[3], by which `move` divides.
    __device__ void average(A* v) const {
        v[0] *= shrink;
        A slope = descent(v[0], v[1], decay, sign);
        v[2] += take1 * (slope - v[2]);
        v[3] = keep2 * v[3] + take2 * (slope * slope);
    }
    __device__ void move(A* v, A square) const { v[0] -= rate * (v[2] / (sqrt(square) + eps)); }
};

extern "C" __global__ void adam(
    const Job* jobs, int count, A rate, A eps, A shrink, A decay, A take1, A keep2, A take2, A sign
) {
    Adam adam = {rate, eps, shrink, decay, take1, keep2, take2, sign};
    over_piece<4, 13>(jobs, count, [=](A* v) {
        adam.average(v);
        adam.move(v, v[3]);
    });
}

extern "C" __global__ void adam_amsgrad(
    const Job* jobs, int count, A rate, A eps, A shrink, A decay, A take1, A keep2, A take2, A sign
) {
    Adam adam = {rate, eps, shrink, decay, take1, keep2, take2, sign};
    over_piece<5, 29>(jobs, count, [=](A* v) {
        adam.average(v);
        v[4] = Max::of(v[4], v[3]);
        adam.move(v, v[4]);
    });
}

// Adam for graphs: what changes from step to step is read here, in the GPU's memory, not given by the host. `skip`, if
// not null, is whether to do nothing (a gradient overflowed); `rate`, if not null, is the learning rate.

extern "C" __global__ void count_steps(const Job* jobs, int count, const float* skip) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count && !(skip && *skip != 0)) *jobs[i].step += 1;
}

__device__ inline Adam adam_at(float step, const float* rate, double lr, double beta1, double beta2, double eps,
                               double decay, bool decoupled, A sign) {
    if (rate) lr = *rate;
    double root = sqrt(1 - pow(beta2, (double)step));
    return {(A)(lr * root / (1 - pow(beta1, (double)step))), (A)(eps * root), (A)(decoupled ? 1 - lr * decay : 1),
            (A)(decoupled ? 0 : decay), (A)(1 - beta1), (A)beta2, (A)(1 - beta2), sign};
}

#define COUNTED_ADAM(name, arrays, written, square) \
    extern "C" __global__ void name( \
        const Job* jobs, int count, const float* skip, const float* rate, double lr, double beta1, double beta2, \
        double eps, double decay, bool decoupled, A sign \
    ) { \
        if (skip && *skip != 0) return; \
        __shared__ Adam shared; \
        if (threadIdx.x == 0) \
            shared = adam_at(*job_of_block(jobs, count).step, rate, lr, beta1, beta2, eps, decay, decoupled, sign); \
        __syncthreads(); \
        Adam adam = shared; \
        over_piece<arrays, written>(jobs, count, [=](A* v) { \
            adam.average(v); \
            square; \
        }); \
    }

COUNTED_ADAM(adam_counted, 4, 13, adam.move(v, v[3]))
COUNTED_ADAM(adam_amsgrad_counted, 5, 29, v[4] = Max::of(v[4], v[3]); adam.move(v, v[4]))

// --- all gradients together ------------------------------------------------------------------------------------------

// The root of the sum of all squares. The block that finishes last adds up the sums of all blocks, in their order, so
// that the result depends on nothing else. `ended` is 0 before, and again afterwards.
extern "C" __global__ void total_norm(const Job* jobs, int count, double* parts, unsigned* ended, T* out) {
    __shared__ bool last;
    A sum = 0;
    over_piece<1, 0>(jobs, count, [&](A* v) { sum += v[0] * v[0]; });
    double piece = over_block<Sum>((double)sum, 0.0);
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = piece;
        __threadfence();
        last = atomicAdd(ended, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    double mine = 0;
    for (unsigned i = threadIdx.x; i < gridDim.x; i += blockDim.x) mine += *(const volatile double*)(parts + i);
    mine = over_block<Sum>(mine, 0.0);
    if (threadIdx.x == 0) {
        store(out, (A)sqrt(mine));
        *ended = 0;
    }
}

// Scales gradients of the norm `total` to the norm `limit`, if they exceed it.
extern "C" __global__ void clip(const Job* jobs, int count, const T* total, A limit) {
    A factor = limit / (widen(*total) + (A)1e-6);
    if (factor > 1) factor = 1;  // a NaN is kept
    over_piece<1, 1>(jobs, count, [=](A* v) { v[0] *= factor; });
}

// Multiplies by *inverse; *found becomes 1 if a gradient was infinite or NaN before.
extern "C" __global__ void unscale(const Job* jobs, int count, const float* inverse, float* found) {
    A factor = *inverse;
    bool finite = true;
    over_piece<1, 1>(jobs, count, [&](A* v) {
        finite = finite && v[0] - v[0] == 0;
        v[0] *= factor;
    });
    if (!finite) *found = 1;  // all writers write the same value
}

// The loss scale after a step: smaller if it overflowed, larger after `interval` steps that did not.
extern "C" __global__ void rescale(
    float* scale, int* steps, const float* found, float growth, float backoff, int interval
) {
    if (*found != 0) {
        *scale *= backoff;
        *steps = 0;
    } else if (++*steps == interval) {
        float grown = *scale * growth;
        if (grown - grown == 0) *scale = grown;
        *steps = 0;
    }
}
