// The machine on which a program of CUDA C runs (cuda_host.h): its threads as fibers, barriers, warps, and the checks of
// every access to memory.
#include <setjmp.h>
#include <stdarg.h>
#include <ucontext.h>
extern "C" int vsnprintf(char*, unsigned long, const char*, va_list);
#include "cuda_host.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emulated {

enum State { ABSENT, READY, AT_BARRIER, IN_WARP, DONE };
struct Thread {
    State state;
    int line, kind, source, worker;
    unsigned mask;
    unsigned long long value, result;
};
struct Worker { jmp_buf at; int thread; bool begun; };

const int MOST = 1024;
const Launch* launch;
unsigned char* shared_memory;
int current;
static void (*body)();
static Thread threads[MOST];
static Worker workers[MOST];
static jmp_buf scheduler, failure;
static int total, started, finished, barrier_count, barrier_total, barrier_result, barrier_line, begun_workers;
static bool backwards;
static unsigned epoch = 1;  // counts the barriers

[[noreturn]] void fail(const char* format, ...) {
    va_list values;
    va_start(values, format);
    vsnprintf(launch->message, 512, format, values);
    va_end(values);
    _longjmp(failure, 1);
}

// --- fibers ------------------------------------------------------------------------------------------------------

static void become(int thread) {
    current = thread;
    threadIdx.x = thread % blockDim.x;
    threadIdx.y = thread / blockDim.x % blockDim.y;
    threadIdx.z = thread / (blockDim.x * blockDim.y);
}

__attribute__((noinline)) static void to_scheduler(Worker* worker) {
    if (!_setjmp(worker->at)) _longjmp(scheduler, 1);
}

__attribute__((noinline)) static void wait_as(State state) {
    int thread = current;
    threads[thread].state = state;
    to_scheduler(&workers[threads[thread].worker]);
    become(thread);
}

static void meet(int warp);

static void release_barrier() {
    if (!barrier_count || barrier_count + finished < total) return;
    barrier_result = barrier_total;
    barrier_count = barrier_total = 0;
    epoch++;
    for (int t = 0; t < total; t++)
        if (threads[t].state == AT_BARRIER) threads[t].state = READY;
}

static void run_threads(int number) {
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
static void worker_main(int number) { run_threads(number); }

__attribute__((noinline)) static void resume(int number) {
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

static bool ordered(const Touch& touch) {
    if (touch.epoch != epoch || touch.thread == current) return true;
    return touch.thread >= 0 && touch.thread / 32 == current / 32 && touch.warp_epoch < warp_epochs[current / 32];
}

static void touch_cell(Cell& cell, unsigned long long offset, bool writes) {
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

void check(unsigned long long at, unsigned long long size, bool writes) {
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
    extern "C" void __asan_load##size##_noabort(unsigned long long at) { emulated::check(at, size, false); } \
    extern "C" void __asan_store##size##_noabort(unsigned long long at) { emulated::check(at, size, true); }
EMULATED_ACCESS(1) EMULATED_ACCESS(2) EMULATED_ACCESS(4) EMULATED_ACCESS(8) EMULATED_ACCESS(16)
extern "C" void __asan_loadN_noabort(unsigned long long at, unsigned long long size) {
    emulated::check(at, size, false);
}
extern "C" void __asan_storeN_noabort(unsigned long long at, unsigned long long size) {
    emulated::check(at, size, true);
}
extern "C" void __asan_handle_no_return() {}
extern "C" void __asan_before_dynamic_init(const char*) {}
extern "C" void __asan_after_dynamic_init() {}
extern "C" void __ubsan_handle_type_mismatch_v1(void*, unsigned long long at) {
    emulated::fail("an address that is no multiple of the access's size: %#llx; " EMULATED_PLACE, at, EMULATED_WHERE);
}
extern "C" void __ubsan_handle_out_of_bounds(void*, unsigned long long index) {
    emulated::fail("index %lld is beyond the end of an array; " EMULATED_PLACE, (long long)index, EMULATED_WHERE);
}
extern "C" void __ubsan_handle_divrem_overflow(void*, unsigned long long, unsigned long long) {
    emulated::fail("an integer divided by zero; " EMULATED_PLACE, EMULATED_WHERE);
}

// --- barriers and warps -----------------------------------------------------------------------------------------------

namespace emulated {

int barrier(int line, int vote) {
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
static void complete(int warp, int first) {
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

static void meet(int warp) {
    for (int t = warp * 32; t < warp * 32 + 32 && t < total; t++)
        if (threads[t].state == IN_WARP) complete(warp, t % 32);
}

unsigned long long in_warp(
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

static void describe_deadlock() {
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

static void run_block() {
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

int run(const Launch* asked, void (*kernel)()) {
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

}  // namespace emulated
