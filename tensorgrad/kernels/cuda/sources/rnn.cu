// LSTM and GRU layers: all time steps in one launch. A block computes ROWS sequences of the batch from the first step to
// the last, with their states in shared memory; only the weights are read again at each step. All sequences have the
// same length: row t * batch + b of an array belongs to step t of sequence b.
//
// The input's part of the gates, and the gradients of weights and input, are matrix products for all steps, outside.
// Arrays of gates have G * hidden columns, gate after gate.

// state[r] (hidden) times a matrix (hidden, columns): adds each product to the sums of a column. Adjacent threads have
// adjacent columns, so each line of the matrix is read whole.
__device__ inline void multiply(const T* matrix, const A* state, int hidden, int columns, int column, A* sums) {
    #pragma unroll 8
    for (int k = 0; k < hidden; k++) {
        A weight = matrix[(long long)k * columns + column];
        for (int r = 0; r < ROWS; r++) sums[r] += state[r * hidden + k] * weight;
    }
}

// The same with the transposed matrix (columns, hidden), as the gradient of the state needs it: GATES threads share a
// column, each has the lines of one gate. `parts` is space for GATES * ROWS * hidden sums.
template <int GATES> __device__ inline void multiply_back(const T* matrix, const A* slopes, int hidden, A* parts) {
    for (int i = threadIdx.x; i < GATES * hidden; i += blockDim.x) {
        int gate = i / hidden, column = i - gate * hidden;
        A sums[ROWS] = {};
        const T* lines = matrix + (long long)gate * hidden * hidden + column;
        #pragma unroll 8
        for (int k = 0; k < hidden; k++) {
            A weight = lines[(long long)k * hidden];
            for (int r = 0; r < ROWS; r++) sums[r] += slopes[(r * GATES + gate) * hidden + k] * weight;
        }
        for (int r = 0; r < ROWS; r++) parts[(gate * ROWS + r) * hidden + column] = sums[r];
    }
}

// --- LSTM: gates in the order input, forget, cell, output -----------------------------------------------------------

// `acts` holds the input's part of the gates, and receives the gates. `weight` is (hidden, 4 hidden).
extern "C" __global__ void lstm(T* acts, const T* weight, const T* h0, const T* c0, T* out, T* cells, T* h_n, T* c_n,
                                long long steps, int batch, int hidden, bool reverse) {
    SHARED(A, space);
    A *h = space, *c = h + ROWS * hidden, *gates = c + ROWS * hidden;
    int first = blockIdx.x * ROWS, rows = batch - first < ROWS ? batch - first : ROWS, columns = 4 * hidden;
    for (int i = threadIdx.x; i < ROWS * hidden; i += blockDim.x) {
        bool real = i < rows * hidden;
        h[i] = real ? h0[(long long)first * hidden + i] : 0;
        c[i] = real ? c0[(long long)first * hidden + i] : 0;
    }
    __syncthreads();
    for (long long step = 0; step < steps; step++) {
        long long row = (reverse ? steps - 1 - step : step) * batch + first;
        for (int j = threadIdx.x; j < columns; j += blockDim.x) {
            A sums[ROWS];
            for (int r = 0; r < ROWS; r++) sums[r] = r < rows ? acts[(row + r) * columns + j] : 0;
            multiply(weight, h, hidden, columns, j, sums);
            bool cell = j >= 2 * hidden && j < 3 * hidden;
            for (int r = 0; r < ROWS; r++) {
                A value = cell ? tanh(sums[r]) : sigmoid(sums[r]);
                gates[r * columns + j] = value;
                if (r < rows) acts[(row + r) * columns + j] = value;
            }
        }
        __syncthreads();
        for (int i = threadIdx.x; i < rows * hidden; i += blockDim.x) {
            int r = i / hidden, k = i - r * hidden;
            const A* gate = gates + r * columns + k;
            A cell = gate[hidden] * c[i] + gate[0] * gate[2 * hidden];
            c[i] = cell;
            cells[row * hidden + i] = cell;
            h[i] = gate[3 * hidden] * tanh(cell);
            out[row * hidden + i] = h[i];
        }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < rows * hidden; i += blockDim.x) {
        h_n[(long long)first * hidden + i] = h[i];
        c_n[(long long)first * hidden + i] = c[i];
    }
}

// `g` are the gradients of `out`; `dh` and `dc` hold those of the last states, and receive those of the first. `slopes`
// receives the gradients of the gates before their sigmoid or tanh. `weight` is (4 hidden, hidden).
extern "C" __global__ void lstm_grad(const T* g, T* dh, T* dc, const T* acts, const T* cells, const T* c0,
                                     const T* weight, T* slopes, long long steps, int batch, int hidden, bool reverse) {
    SHARED(A, space);
    A *to_h = space, *to_c = to_h + ROWS * hidden, *slope = to_c + ROWS * hidden, *parts = slope + ROWS * 4 * hidden;
    int first = blockIdx.x * ROWS, rows = batch - first < ROWS ? batch - first : ROWS, columns = 4 * hidden;
    for (int i = threadIdx.x; i < ROWS * hidden; i += blockDim.x) {
        bool real = i < rows * hidden;
        to_h[i] = real ? dh[(long long)first * hidden + i] : 0;
        to_c[i] = real ? dc[(long long)first * hidden + i] : 0;
    }
    for (int i = threadIdx.x; i < ROWS * columns; i += blockDim.x) slope[i] = 0;
    __syncthreads();
    for (long long step = steps - 1; step >= 0; step--) {
        long long place = reverse ? steps - 1 - step : step, row = place * batch + first;
        long long before = (reverse ? place + 1 : place - 1) * batch + first;
        for (int i = threadIdx.x; i < rows * hidden; i += blockDim.x) {
            int r = i / hidden, k = i - r * hidden;
            const T* gate = acts + (row + r) * columns + k;
            A in = gate[0], forget = gate[hidden], cell = gate[2 * hidden], open = gate[3 * hidden];
            A inner = tanh(cells[row * hidden + i]);
            A old = step ? cells[before * hidden + i] : c0[(long long)first * hidden + i];
            A outer = g[row * hidden + i] + to_h[i], through = to_c[i] + outer * open * (1 - inner * inner);
            A* made = slope + r * columns + k;
            made[0] = through * cell * in * (1 - in);
            made[hidden] = through * old * forget * (1 - forget);
            made[2 * hidden] = through * in * (1 - cell * cell);
            made[3 * hidden] = outer * inner * open * (1 - open);
            to_c[i] = through * forget;
            T* kept = slopes + (row + r) * columns + k;
            for (int gate = 0; gate < 4; gate++) kept[gate * hidden] = made[gate * hidden];
        }
        __syncthreads();
        multiply_back<4>(weight, slope, hidden, parts);
        __syncthreads();
        for (int i = threadIdx.x; i < ROWS * hidden; i += blockDim.x) {
            A sum = 0;
            for (int gate = 0; gate < 4; gate++) sum += parts[gate * ROWS * hidden + i];
            to_h[i] = sum;
        }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < rows * hidden; i += blockDim.x) {
        dh[(long long)first * hidden + i] = to_h[i];
        dc[(long long)first * hidden + i] = to_c[i];
    }
}

// --- GRU: gates in the order reset, update, new ---------------------------------------------------------------------

// `gates_x` (3 hidden columns) is the input's part of the gates. `acts` (4 hidden columns) receives the gates, and the
// hidden state's part of the new gate. `bias`, of the hidden state's part, may be 0. `weight` is (hidden, 3 hidden).
extern "C" __global__ void gru(const T* gates_x, const T* weight, const T* bias, const T* h0, T* out, T* acts, T* h_n,
                               long long steps, int batch, int hidden, bool reverse) {
    SHARED(A, space);
    A *h = space, *inner = h + ROWS * hidden;
    int first = blockIdx.x * ROWS, rows = batch - first < ROWS ? batch - first : ROWS, columns = 3 * hidden;
    for (int i = threadIdx.x; i < ROWS * hidden; i += blockDim.x)
        h[i] = i < rows * hidden ? h0[(long long)first * hidden + i] : 0;
    __syncthreads();
    for (long long step = 0; step < steps; step++) {
        long long row = (reverse ? steps - 1 - step : step) * batch + first;
        for (int j = threadIdx.x; j < columns; j += blockDim.x) {
            A sums[ROWS];
            for (int r = 0; r < ROWS; r++) sums[r] = bias ? bias[j] : 0;
            multiply(weight, h, hidden, columns, j, sums);
            for (int r = 0; r < ROWS; r++) inner[r * columns + j] = sums[r];
        }
        __syncthreads();
        for (int i = threadIdx.x; i < rows * hidden; i += blockDim.x) {
            int r = i / hidden, k = i - r * hidden;
            const A* part = inner + r * columns + k;
            const T* given = gates_x + (row + r) * columns + k;
            A reset = sigmoid(given[0] + part[0]), update = sigmoid(given[hidden] + part[hidden]);
            A made = tanh(given[2 * hidden] + reset * part[2 * hidden]);
            T* kept = acts + (row + r) * 4 * hidden + k;
            kept[0] = reset;
            kept[hidden] = update;
            kept[2 * hidden] = made;
            kept[3 * hidden] = part[2 * hidden];
            h[i] = made + update * (h[i] - made);
            out[row * hidden + i] = h[i];
        }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < rows * hidden; i += blockDim.x) h_n[(long long)first * hidden + i] = h[i];
}

// `gates` receives the gradients of the gates' sums as the input sees them, `inside` as the hidden state does (the new
// gate's differs). `dh` holds the gradient of the last state, and receives that of the first. `weight` is
// (3 hidden, hidden).
extern "C" __global__ void gru_grad(const T* g, T* dh, const T* acts, const T* out, const T* h0, const T* weight,
                                    T* gates, T* inside, long long steps, int batch, int hidden, bool reverse) {
    SHARED(A, space);
    A *to_h = space, *slope = to_h + ROWS * hidden, *parts = slope + ROWS * 3 * hidden;
    int first = blockIdx.x * ROWS, rows = batch - first < ROWS ? batch - first : ROWS, columns = 3 * hidden;
    for (int i = threadIdx.x; i < ROWS * hidden; i += blockDim.x)
        to_h[i] = i < rows * hidden ? dh[(long long)first * hidden + i] : 0;
    for (int i = threadIdx.x; i < ROWS * columns; i += blockDim.x) slope[i] = 0;
    __syncthreads();
    for (long long step = steps - 1; step >= 0; step--) {
        long long place = reverse ? steps - 1 - step : step, row = place * batch + first;
        long long before = (reverse ? place + 1 : place - 1) * batch + first;
        for (int i = threadIdx.x; i < rows * hidden; i += blockDim.x) {
            int r = i / hidden, k = i - r * hidden;
            const T* gate = acts + (row + r) * 4 * hidden + k;
            A reset = gate[0], update = gate[hidden], made = gate[2 * hidden], inner = gate[3 * hidden];
            A old = step ? out[before * hidden + i] : h0[(long long)first * hidden + i];
            A outer = g[row * hidden + i] + to_h[i];
            A d_new = outer * (1 - update) * (1 - made * made);
            A d_update = outer * (old - made) * update * (1 - update), d_reset = d_new * inner * reset * (1 - reset);
            A* used = slope + r * columns + k;
            used[0] = d_reset;
            used[hidden] = d_update;
            used[2 * hidden] = d_new * reset;
            T *seen = gates + (row + r) * columns + k, *kept = inside + (row + r) * columns + k;
            seen[0] = kept[0] = d_reset;
            seen[hidden] = kept[hidden] = d_update;
            seen[2 * hidden] = d_new;
            kept[2 * hidden] = d_new * reset;
            to_h[i] = outer * update;
        }
        __syncthreads();
        multiply_back<3>(weight, slope, hidden, parts);
        __syncthreads();
        for (int i = threadIdx.x; i < ROWS * hidden; i += blockDim.x)
            for (int gate = 0; gate < 3; gate++) to_h[i] += parts[gate * ROWS * hidden + i];
        __syncthreads();
    }
    for (int i = threadIdx.x; i < rows * hidden; i += blockDim.x) dh[(long long)first * hidden + i] = to_h[i];
}
