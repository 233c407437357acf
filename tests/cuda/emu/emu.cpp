/* tests/cuda/emu/emu.cpp: blocks, fibers, barriers and shared memory of the emulation. */
#include "fiber.h"
#include "cuda_runtime.h"
#include "warp.h"

#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

dim3 threadIdx, blockIdx, blockDim, gridDim;

enum { MAX_THREADS = 1024, DEFAULT_SHARED = 48 * 1024, MAX_SHARED = 99 * 1024, MAX_GRID_YZ = 65535 };

enum state { RUNNABLE, AT_BARRIER, IN_WARP_OP, DONE };

struct copy {
    unsigned char *to;
    const unsigned char *from;
    int bytes, valid;
};
struct thread_state {
    state at;
    int site; /* of the barrier it waits at */
    std::vector<copy> open; /* copies not yet committed */
    std::vector<std::vector<copy>> groups;
};

static std::mutex one_at_a_time; /* ranks of a test may be threads */
static const char *launch_name = "";
static std::map<const void *, int> allowed_shared;
static cudaError_t last_error;
static unsigned long launch_count;
static unsigned thread_order;

static emu_fiber *fibers[MAX_THREADS];
static thread_state threads[MAX_THREADS];
static int current, thread_count;
static const std::function<void()> *body;

static unsigned char *dynamic_shared;
static std::map<const void *, unsigned char *> static_shared;

void emu_fail(const char *what)
{
    fprintf(stderr, "emulation: kernel %s, block (%u, %u, %u), thread (%u, %u, %u): %s\n", launch_name, blockIdx.x,
            blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z, what);
    abort();
}

void emu_order(unsigned order)
{
    thread_order = order;
}
unsigned long emu_launches(void)
{
    return launch_count;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}
cudaError_t cudaMemsetAsync(void *ptr, int value, size_t bytes, cudaStream_t)
{
    memset(ptr, value, bytes);
    return cudaSuccess;
}
cudaError_t emu_allow_shared(const void *kernel, int bytes)
{
    std::lock_guard<std::mutex> turn(one_at_a_time);
    if (bytes < 0 || bytes > MAX_SHARED)
        return cudaErrorInvalidValue;
    allowed_shared[kernel] = bytes;
    return cudaSuccess;
}

/* malloc of exactly these bytes, filled with NaN. */
static unsigned char *poisoned(size_t bytes)
{
    unsigned char *p = NULL;
    if (posix_memalign((void **)&p, 128, bytes ? bytes : 1) != 0)
        emu_fail("out of host memory");
    memset(p, 0xff, bytes);
    return p;
}
void *emu_shared_dynamic(void)
{
    return dynamic_shared;
}
void *emu_shared_static(const void *tag, size_t bytes)
{
    unsigned char *&p = static_shared[tag];
    if (p == NULL)
        p = poisoned(bytes);
    return p;
}

/* ---- one thread waits ------------------------------------------------------------------------------ */
int emu_lane(void)
{
    return current % 32;
}
int emu_warp_index(void)
{
    return current / 32;
}
void emu_wait_in_warp(void)
{
    threads[current].at = IN_WARP_OP;
    emu_fiber_leave();
}
void emu_wake_lane(int lane)
{
    threads[current / 32 * 32 + lane].at = RUNNABLE;
}
void emu_barrier(int site)
{
    threads[current].at = AT_BARRIER;
    threads[current].site = site;
    emu_fiber_leave();
}

/* ---- asynchronous copies ---------------------------------------------------------------------------- */
void emu_cp_async(void *shared, const void *global, int bytes, int valid)
{
    if ((uintptr_t)shared % (unsigned)bytes || (uintptr_t)global % (unsigned)bytes)
        emu_fail("cp.async at an address that is no multiple of its size");
    memset(shared, 0xff, (size_t)bytes);
    threads[current].open.push_back({ (unsigned char *)shared, (const unsigned char *)global, bytes, valid });
}
void emu_cp_async_commit(void)
{
    threads[current].groups.push_back(threads[current].open);
    threads[current].open.clear();
}
void emu_cp_async_wait(int groups_left)
{
    std::vector<std::vector<copy>> &groups = threads[current].groups;
    while ((int)groups.size() > groups_left) {
        for (const copy &c : groups.front()) {
            memset(c.to, 0, (size_t)c.bytes);
            if (c.valid > 0)
                memcpy(c.to, c.from, (size_t)c.valid);
        }
        groups.erase(groups.begin());
    }
}

/* ---- a block ----------------------------------------------------------------------------------------- */
static void run_thread(void)
{
    (*body)();
    threads[current].at = DONE;
}

static void release_barrier(void)
{
    int site = 0, waiting = 0;
    for (int t = 0; t < thread_count; t++)
        if (threads[t].at == AT_BARRIER) {
            if (waiting++ > 0 && threads[t].site != site)
                emu_fail("threads wait at different block barriers");
            site = threads[t].site;
        } else if (threads[t].at == IN_WARP_OP) {
            emu_fail("some threads wait at a block barrier and others in a warp operation for ever");
        } else {
            emu_fail("a thread ended while others wait at a block barrier");
        }
    for (int t = 0; t < thread_count; t++)
        threads[t].at = RUNNABLE;
}

static void run_block(const std::vector<int> &order)
{
    int done = 0;
    for (int t = 0; t < thread_count; t++) {
        threads[t].at = RUNNABLE;
        threads[t].open.clear();
        threads[t].groups.clear();
        emu_fiber_start(fibers[t], run_thread);
    }
    while (done < thread_count) {
        bool ran = false;
        for (int t : order) {
            if (threads[t].at != RUNNABLE)
                continue;
            current = t;
            threadIdx = dim3((unsigned)t % blockDim.x, (unsigned)t / blockDim.x % blockDim.y,
                             (unsigned)t / (blockDim.x * blockDim.y));
            emu_fiber_enter(fibers[t]);
            ran = true;
            done += threads[t].at == DONE;
        }
        if (!ran)
            release_barrier();
    }
}

/* A permutation of 0..n-1 for the chosen order. */
static std::vector<int> permutation(int n, unsigned salt)
{
    std::vector<int> order((size_t)n);
    for (int i = 0; i < n; i++)
        order[(size_t)i] = thread_order == 1 ? n - 1 - i : i;
    if (thread_order > 1) {
        uint32_t x = thread_order * 2654435761u + salt;
        for (int i = n - 1; i > 0; i--) {
            x = x * 1664525u + 1013904223u;
            std::swap(order[(size_t)i], order[(x >> 8) % (unsigned)(i + 1)]);
        }
    }
    return order;
}

void emu_launch(const char *name, const void *kernel, dim3 grid, dim3 block, size_t shared_bytes,
                const std::function<void()> &thread)
{
    std::lock_guard<std::mutex> turn(one_at_a_time);
    unsigned long per_block = (unsigned long)block.x * block.y * block.z;
    auto allowed = allowed_shared.find(kernel);
    size_t limit = allowed == allowed_shared.end() ? (size_t)DEFAULT_SHARED : (size_t)allowed->second;

    launch_name = name;
    launch_count++;
    if (per_block == 0 || per_block > MAX_THREADS || grid.x == 0 || grid.x > 0x7fffffffu || grid.y == 0 || grid.z == 0 ||
        grid.y > MAX_GRID_YZ || grid.z > MAX_GRID_YZ || shared_bytes > limit) {
        last_error = cudaErrorInvalidConfiguration;
        return;
    }
    blockDim = block;
    gridDim = grid;
    thread_count = (int)per_block;
    body = &thread;
    for (int t = 0; t < thread_count; t++)
        if (fibers[t] == NULL)
            fibers[t] = emu_fiber_make();

    std::vector<int> order = permutation(thread_count, 1);
    for (int b : permutation((int)(grid.x * grid.y * grid.z), 2)) {
        unsigned u = (unsigned)b;
        blockIdx = dim3(u % grid.x, u / grid.x % grid.y, u / (grid.x * grid.y));
        dynamic_shared = poisoned(shared_bytes);
        run_block(order);
        free(dynamic_shared);
        for (auto &s : static_shared)
            free(s.second);
        static_shared.clear();
    }
}
