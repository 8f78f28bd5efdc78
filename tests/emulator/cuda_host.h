// CUDA C on the CPU: what a program of kernels/cuda/ needs in order to compile with g++, and the machine that runs it.
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
#include <setjmp.h>
#include <stdarg.h>
#include <ucontext.h>
extern "C" int vsnprintf(char*, unsigned long, const char*, va_list);
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

typedef uint3 dim3;
static uint3 threadIdx, blockIdx;
static dim3 blockDim, gridDim;
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

enum State { ABSENT, READY, AT_BARRIER, IN_WARP, DONE };
enum Meeting { SYNC, SHUFFLE, VOTE, MATCH };
struct Thread {
    State state;
    int line, kind, source, worker;
    unsigned mask;
    unsigned long long value, result;
};
struct Worker { jmp_buf at; int thread; bool begun; };

const int MOST = 1024;
static const Launch* launch;
static unsigned char* shared_memory;
static void (*body)();
static Thread threads[MOST];
static Worker workers[MOST];
static jmp_buf scheduler, failure;
static int total, started, finished, current, barrier_count, barrier_total, barrier_result, barrier_line,
    begun_workers;
static bool backwards;
static unsigned epoch = 1;  // counts the barriers

[[noreturn]] UNWATCHED static void fail(const char* format, ...) {
    va_list values;
    va_start(values, format);
    vsnprintf(launch->message, 512, format, values);
    va_end(values);
    _longjmp(failure, 1);
}
#define EMULATED_PLACE "block (%u, %u, %u), thread (%u, %u, %u)"
#define EMULATED_WHERE blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z

// --- fibers ------------------------------------------------------------------------------------------------------

UNWATCHED static void become(int thread) {
    current = thread;
    threadIdx.x = thread % blockDim.x;
    threadIdx.y = thread / blockDim.x % blockDim.y;
    threadIdx.z = thread / (blockDim.x * blockDim.y);
}

UNWATCHED __attribute__((noinline)) static void to_scheduler(Worker* worker) {
    if (!_setjmp(worker->at)) _longjmp(scheduler, 1);
}

UNWATCHED __attribute__((noinline)) static void wait_as(State state) {
    int thread = current;
    threads[thread].state = state;
    to_scheduler(&workers[threads[thread].worker]);
    become(thread);
}

UNWATCHED static void meet(int warp);

UNWATCHED static void release_barrier() {
    if (!barrier_count || barrier_count + finished < total) return;
    barrier_result = barrier_total;
    barrier_count = barrier_total = 0;
    epoch++;
    for (int t = 0; t < total; t++)
        if (threads[t].state == AT_BARRIER) threads[t].state = READY;
}

UNWATCHED static void run_threads(int number) {
    for (;;) {
        while (started < total) {
            int thread = backwards ? total - 1 - started : started;
            started++;
            threads[thread].state = READY;
            threads[thread].worker = number;
            workers[number].thread = thread;
            become(thread);
            body();
            threads[workers[number].thread].state = DONE;
            finished++;
            if (begun_workers > 1 || barrier_count) {  // others may have waited for this one alone
                release_barrier();
                meet(workers[number].thread / 32);
            }
        }
        workers[number].thread = -1;
        to_scheduler(&workers[number]);
    }
}
UNWATCHED static void worker_main(int number) { run_threads(number); }

UNWATCHED __attribute__((noinline)) static void resume(int number) {
    Worker* worker = &workers[number];
    if (_setjmp(scheduler)) return;
    if (worker->begun) _longjmp(worker->at, 1);
    worker->begun = true;
    begun_workers = begun_workers > number + 1 ? begun_workers : number + 1;
    static ucontext_t fresh;
    getcontext(&fresh);
    fresh.uc_stack.ss_sp = launch->stacks + number * launch->stack_bytes;
    fresh.uc_stack.ss_size = launch->stack_bytes;
    fresh.uc_link = nullptr;
    makecontext(&fresh, (void (*)())worker_main, 1, number);
    setcontext(&fresh);
}

// --- shared memory: who touched it since the last barrier -------------------------------------------------------

struct Touch { unsigned epoch, warp_epoch; short thread; };  // thread -1: several, of different warps
struct Cell { Touch write, read; };
const int SHARED_MOST = 228 * 1024;
static Cell dynamic_cells[SHARED_MOST];
static unsigned warp_epochs[32];
extern "C" char __bss_start __attribute__((visibility("hidden")));
extern "C" char _end __attribute__((visibility("hidden")));
extern "C" char __ehdr_start __attribute__((visibility("hidden")));

UNWATCHED static bool ordered(const Touch& touch) {
    if (touch.epoch != epoch || touch.thread == current) return true;
    return touch.thread >= 0 && touch.thread / 32 == current / 32 && touch.warp_epoch < warp_epochs[current / 32];
}

UNWATCHED static void touch_cell(Cell& cell, unsigned long long offset, bool writes) {
    if (!ordered(cell.write))
        fail("race in shared memory at byte %llu: thread %d wrote it, and thread %d %s it with no barrier in between; "
             EMULATED_PLACE, offset, cell.write.thread, current, writes ? "writes" : "reads", EMULATED_WHERE);
    Touch mine = {epoch, warp_epochs[current / 32], (short)current};
    if (writes) {
        if (!ordered(cell.read))
            fail("race in shared memory at byte %llu: thread %d read it, and thread %d writes it with no barrier in "
                 "between; " EMULATED_PLACE, offset, cell.read.thread, current, EMULATED_WHERE);
        cell.write = mine;
    } else {
        bool others = cell.read.epoch == epoch && (cell.read.thread < 0 || cell.read.thread / 32 != current / 32);
        if (others) mine.thread = -1;
        // Of two lanes that read between the same barriers of their warp either speaks for both.
        cell.read = mine;
    }
}

// --- every access to memory ---------------------------------------------------------------------------------------

const unsigned long long STATIC_MOST = 64 * 1024;
static Cell static_cells[STATIC_MOST];  // of small static shared arrays: looked up by address, modulo

UNWATCHED __attribute__((noinline)) static void check(unsigned long long at, unsigned long long size, bool writes) {
    static unsigned long long low = 1, high = 0;  // where the access before was
    static const Launch* seen = nullptr;
    if (seen == launch && at >= low && at + size <= high) return;
    unsigned long long shared = (unsigned long long)launch->shared, stacks = (unsigned long long)launch->stacks;
    if (at >= shared && at < shared + SHARED_MOST) {
        if (at + size > shared + launch->shared_bytes)
            fail("%s of %llu bytes at byte %llu of shared memory, of which there are %llu; " EMULATED_PLACE,
                 writes ? "write" : "read", size, at - shared, launch->shared_bytes, EMULATED_WHERE);
        for (unsigned long long i = at - shared; i < at - shared + size; i++) touch_cell(dynamic_cells[i], i, writes);
        return;
    }
    if (at >= stacks && at < stacks + MOST * launch->stack_bytes) return;
    if (at >= (unsigned long long)&__ehdr_start && at < (unsigned long long)&_end) {
        if (at >= (unsigned long long)&__bss_start)
            for (unsigned long long i = at; i < at + size; i++) 
                touch_cell(static_cells[i % STATIC_MOST], i - (unsigned long long)&__bss_start, writes);
        return;
    }
    for (long long i = 0; i < launch->arguments; i++)
        if (at >= launch->range[i].start && at + size <= launch->range[i].end) {
            low = launch->range[i].start, high = launch->range[i].end, seen = launch;
            return;
        }
    long long first = launch->arguments, last = launch->ranges;
    while (first < last) {  // memory whose address was read from memory
        long long middle = (first + last) / 2;
        if (launch->range[middle].end <= at) first = middle + 1; else last = middle;
    }
    if (first < launch->ranges && at >= launch->range[first].start && at + size <= launch->range[first].end) return;
    long long nearest = -1, away = 0;
    for (long long i = 0; i < launch->arguments; i++) {
        long long d = (long long)(at - launch->range[i].start);
        long long size_of = launch->range[i].end - launch->range[i].start;
        long long distance = d < 0 ? -d : d > size_of ? d - size_of : 0;
        if (nearest < 0 || distance < away) nearest = i, away = distance;
    }
    if (nearest < 0) fail("%s of %llu bytes, and the kernel was given no memory", writes ? "write" : "read", size);
    fail("%s of %llu bytes outside the arrays: byte %lld of array argument %lld, which has %llu; " EMULATED_PLACE,
         writes ? "write" : "read", size, (long long)(at - launch->range[nearest].start), nearest,
         launch->range[nearest].end - launch->range[nearest].start, EMULATED_WHERE);
}

}  // namespace emulated

#define EMULATED_ACCESS(size) \
    extern "C" UNWATCHED void __asan_load##size##_noabort(unsigned long long at) { emulated::check(at, size, false); } \
    extern "C" UNWATCHED void __asan_store##size##_noabort(unsigned long long at) { emulated::check(at, size, true); }
EMULATED_ACCESS(1) EMULATED_ACCESS(2) EMULATED_ACCESS(4) EMULATED_ACCESS(8) EMULATED_ACCESS(16)
extern "C" UNWATCHED void __asan_loadN_noabort(unsigned long long at, unsigned long long size) {
    emulated::check(at, size, false);
}
extern "C" UNWATCHED void __asan_storeN_noabort(unsigned long long at, unsigned long long size) {
    emulated::check(at, size, true);
}
extern "C" UNWATCHED void __asan_handle_no_return() {}
extern "C" UNWATCHED void __asan_before_dynamic_init(const char*) {}
extern "C" UNWATCHED void __asan_after_dynamic_init() {}
extern "C" UNWATCHED void __ubsan_handle_type_mismatch_v1(void*, unsigned long long at) {
    emulated::fail("an address that is no multiple of the access's size: %#llx; " EMULATED_PLACE, at, EMULATED_WHERE);
}
extern "C" UNWATCHED void __ubsan_handle_out_of_bounds(void*, unsigned long long index) {
    emulated::fail("index %lld is beyond the end of an array; " EMULATED_PLACE, (long long)index, EMULATED_WHERE);
}
extern "C" UNWATCHED void __ubsan_handle_divrem_overflow(void*, unsigned long long, unsigned long long) {
    emulated::fail("an integer divided by zero; " EMULATED_PLACE, EMULATED_WHERE);
}

// --- barriers and warps -----------------------------------------------------------------------------------------------

namespace emulated {

UNWATCHED __attribute__((noinline)) static int barrier(int line, int vote) {
    if (barrier_count && barrier_line != line)
        fail("threads of a block wait at different barriers, in lines %d and %d; " EMULATED_PLACE, barrier_line, line,
             EMULATED_WHERE);
    threads[current].line = barrier_line = line;
    barrier_count++;
    barrier_total += vote;
    if (barrier_count + finished < total) {
        wait_as(AT_BARRIER);
    } else {
        release_barrier();
        threads[current].state = READY;
    }
    return barrier_result;
}

// If all lanes of the meeting that a lane waits for have come, each gets what it came for.
UNWATCHED static void complete(int warp, int first) {
    Thread* lanes = threads + warp * 32;
    int present = total - warp * 32 < 32 ? total - warp * 32 : 32;
    unsigned mask = lanes[first].mask, took_part = 0, votes = 0;
    for (int i = 0; i < present; i++) {
        if (!(mask >> i & 1) || lanes[i].state == DONE) continue;
        if (lanes[i].state != IN_WARP || lanes[i].mask != mask || lanes[i].line != lanes[first].line
            || lanes[i].kind != lanes[first].kind) return;
        took_part |= 1u << i;
        votes |= (unsigned)(lanes[i].value != 0) << i;
    }
    for (int i = 0; i < present; i++) {
        if (!(took_part >> i & 1)) continue;
        Thread& lane = lanes[i];
        lane.state = READY;
        if (lane.kind == SHUFFLE) {
            if (!(took_part >> lane.source & 1))
                fail("lane %d of warp %d shuffles from lane %d, which takes no part (line %d); block (%u, %u, %u)", i,
                     warp, lane.source, lane.line, blockIdx.x, blockIdx.y, blockIdx.z);
            lane.result = lanes[lane.source].value;
        } else if (lane.kind == MATCH) {
            lane.result = 0;
            for (int j = 0; j < present; j++)
                if ((took_part >> j & 1) && lanes[j].value == lane.value) lane.result |= 1u << j;
        } else {
            lane.result = votes;
        }
    }
    if (lanes[first].kind == SYNC) warp_epochs[warp]++;
}

UNWATCHED static void meet(int warp) {
    for (int t = warp * 32; t < warp * 32 + 32 && t < total; t++)
        if (threads[t].state == IN_WARP) complete(warp, t % 32);
}

UNWATCHED __attribute__((noinline)) static unsigned long long in_warp(
    int line, Meeting kind, unsigned mask, unsigned long long value, int source) {
    Thread& mine = threads[current];
    if (!(mask >> current % 32 & 1))
        fail("lane %d is not in the mask %#x that it passes (line %d); " EMULATED_PLACE, current % 32, mask, line,
             EMULATED_WHERE);
    mine.line = line, mine.kind = kind, mine.mask = mask, mine.value = value, mine.source = source;
    int thread = current;
    mine.state = IN_WARP;
    complete(thread / 32, thread % 32);
    if (threads[thread].state == IN_WARP) wait_as(IN_WARP);
    return threads[thread].result;
}

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

UNWATCHED static void describe_deadlock() {
    for (int t = 0; t < total; t++) {
        if (threads[t].state != AT_BARRIER && threads[t].state != IN_WARP) continue;
        int other = t;
        while (other < total && (threads[other].state == threads[t].state && threads[other].line == threads[t].line))
            other++;
        if (other == total || threads[other].state == DONE) other = -1;
        fail("deadlock: thread %d waits %s (line %d)%s; block (%u, %u, %u)", t,
             threads[t].state == AT_BARRIER ? "at a barrier" : "for the other lanes of its warp", threads[t].line,
             other < 0 ? ", for threads that never come" : ", while others wait elsewhere", blockIdx.x, blockIdx.y,
             blockIdx.z);
    }
    fail("deadlock");
}

UNWATCHED static void run_block() {
    started = finished = barrier_count = barrier_total = 0;
    for (int t = 0; t < total; t++) threads[t].state = ABSENT;
    epoch++;
    if (launch->shared_bytes) __builtin_memset(launch->shared, 0xff, launch->shared_bytes);  // nan, or -1
    int round = 0;
    while (finished < total) {
        bool moved = false;
        // Every other round in the other order, so that a barrier that is missing is missed.
        for (int i = 0; i < begun_workers; i++) {
            int number = round & 1 ? begun_workers - 1 - i : i;
            if (workers[number].thread >= 0 && threads[workers[number].thread].state == READY) {
                moved = true;
                resume(number);
            }
        }
        for (int number = 0; started < total && number < MOST; number++)
            if (!workers[number].begun || workers[number].thread < 0) {
                moved = true;
                resume(number);
            }
        if (!moved && finished < total) describe_deadlock();
        round++;
    }
}

UNWATCHED static int run(const Launch* asked, void (*kernel)()) {
    launch = asked;
    shared_memory = asked->shared;
    body = kernel;
    blockDim = {asked->block[0], asked->block[1], asked->block[2]};
    gridDim = {asked->grid[0], asked->grid[1], asked->grid[2]};
    total = blockDim.x * blockDim.y * blockDim.z;
    for (int i = 0; i < begun_workers; i++) workers[i].begun = false, workers[i].thread = -1;
    for (int i = begun_workers; i < MOST; i++) workers[i].thread = -1;
    begun_workers = 0;
    if (_setjmp(failure)) return 1;
    backwards = false;
    for (blockIdx.z = 0; blockIdx.z < gridDim.z; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < gridDim.y; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++) {
                run_block();
                backwards = !backwards;
            }
    return 0;
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
