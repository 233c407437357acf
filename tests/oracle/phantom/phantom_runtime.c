/* phantom_runtime.c: the CUDA runtime calls a framework makes, answered without a device. See phantom.h. */
#define _GNU_SOURCE
#include "phantom.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MAX_DEVICES 16
#define SEGMENT_ALIGN ((size_t)2 << 20) /* cudaMalloc of large sizes returns 2 MiB aligned addresses */
#define COPY_LIMIT ((size_t)1 << 20)    /* larger device copies carry no data: nothing reads them */
#define DRIVER_VERSION 13020

/* ---- configuration ------------------------------------------------------------------------------------------ */

static struct {
    int devices;
    size_t memory_bytes;
    size_t context_bytes;
    bool late_events;
    bool a100;
    FILE *log;
} config;

static pthread_once_t config_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static size_t env_size(const char *name, size_t fallback)
{
    const char *text = getenv(name);
    return text && *text ? (size_t)strtoull(text, NULL, 10) : fallback;
}

static bool env_is(const char *name, const char *value)
{
    const char *text = getenv(name);
    return text && strcmp(text, value) == 0;
}

static void config_load(void)
{
    config.devices = (int)env_size("PHANTOM_DEVICES", 1);
    if (config.devices < 1 || config.devices > MAX_DEVICES)
        config.devices = 1;
    config.memory_bytes = env_size("PHANTOM_MEMORY", (size_t)80 << 30);
    config.context_bytes = env_size("PHANTOM_CONTEXT", 0);
    config.late_events = env_is("PHANTOM_EVENTS", "late");
    config.a100 = env_is("PHANTOM_GPU", "a100");
    const char *path = getenv("PHANTOM_LOG");
    if (path && *path)
        config.log = fopen(path, "w");
}

static void start(void) { pthread_once(&config_once, config_load); }

void phantom_reload(void)
{
    start();
    config_load();
}

void phantom_log(const char *format, ...)
{
    start();
    if (!config.log)
        return;
    va_list args;
    va_start(args, format);
    flockfile(config.log);
    vfprintf(config.log, format, args);
    fputc('\n', config.log);
    fflush(config.log);
    funlockfile(config.log);
    va_end(args);
}

void phantom_mark(const char *name) { phantom_log("{\"event\": \"mark\", \"name\": \"%s\"}", name); }

/* ---- devices ------------------------------------------------------------------------------------------------- */

static __thread int current_device;

int phantom_current_device(void) { return current_device; }

PHANTOM_EXPORT cudaError_t cudaGetDeviceCount(int *count)
{
    start();
    *count = config.devices;
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaGetDevice(int *device)
{
    *device = current_device;
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaSetDevice(int device)
{
    start();
    if (device < 0 || device >= config.devices)
        return cudaErrorInvalidDevice;
    current_device = device;
    return cudaSuccess;
}

/* NVIDIA H100 SXM and A100 SXM values: CUDA programming guide, "Compute Capabilities" tables, and the data sheets. */
PHANTOM_EXPORT cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    start();
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "%s", config.a100 ? "NVIDIA A100-SXM4-80GB" : "NVIDIA H100 80GB HBM3");
    p->totalGlobalMem = config.memory_bytes;
    p->sharedMemPerBlock = 49152;
    p->regsPerBlock = 65536;
    p->warpSize = 32;
    p->memPitch = 2147483647;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 2147483647;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->totalConstMem = 65536;
    p->major = config.a100 ? 8 : 9;
    p->minor = 0;
    p->textureAlignment = 512;
    p->texturePitchAlignment = 32;
    p->multiProcessorCount = config.a100 ? 108 : 132;
    p->canMapHostMemory = 1;
    p->concurrentKernels = 1;
    p->ECCEnabled = 1;
    p->pciBusID = device + 1;
    p->asyncEngineCount = 3;
    p->unifiedAddressing = 1;
    p->memoryBusWidth = 5120;
    p->l2CacheSize = config.a100 ? 41943040 : 52428800;
    p->maxThreadsPerMultiProcessor = 2048;
    p->streamPrioritiesSupported = 1;
    p->globalL1CacheSupported = p->localL1CacheSupported = 1;
    p->sharedMemPerMultiprocessor = config.a100 ? 167936 : 233472;
    p->sharedMemPerBlockOptin = config.a100 ? 166912 : 232448;
    p->reservedSharedMemPerBlock = 1024;
    p->regsPerMultiprocessor = 65536;
    p->managedMemory = 1;
    p->concurrentManagedAccess = 1;
    p->computePreemptionSupported = 1;
    p->canUseHostPointerForRegisteredMem = 1;
    p->cooperativeLaunch = 1;
    p->maxBlocksPerMultiProcessor = 32;
    p->hostRegisterSupported = 1;
    p->clusterLaunch = config.a100 ? 0 : 1;
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    struct cudaDeviceProp p;
    cudaGetDeviceProperties(&p, device);
    switch ((int)attr) {
    case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = (int)p.sharedMemPerBlock; break;
    case cudaDevAttrWarpSize: *value = p.warpSize; break;
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = (int)p.sharedMemPerMultiprocessor; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)p.sharedMemPerBlockOptin; break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = (int)p.reservedSharedMemPerBlock; break;
    case cudaDevAttrMaxRegistersPerBlock: *value = p.regsPerBlock; break;
    case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
    case cudaDevAttrMaxGridDimX: *value = p.maxGridSize[0]; break;
    case cudaDevAttrMaxGridDimY: *value = p.maxGridSize[1]; break;
    case cudaDevAttrMaxGridDimZ: *value = p.maxGridSize[2]; break;
    case cudaDevAttrMaxBlockDimX: *value = p.maxThreadsDim[0]; break;
    case cudaDevAttrCooperativeLaunch: *value = 1; break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = p.maxBlocksPerMultiProcessor; break;
    default: *value = 0; break;
    }
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    *can = device != peer;
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    (void)peer, (void)flags;
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaDeviceGetPCIBusId(char *id, int len, int device)
{
    snprintf(id, (size_t)len, "0000:%02x:00.0", (unsigned)(device + 1));
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaDriverGetVersion(int *version)
{
    *version = DRIVER_VERSION;
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = DRIVER_VERSION;
    return cudaSuccess;
}

/* ---- errors -------------------------------------------------------------------------------------------------- */

static __thread cudaError_t last_error = cudaSuccess;

static cudaError_t failed(cudaError_t error)
{
    last_error = error;
    return error;
}

PHANTOM_EXPORT cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

PHANTOM_EXPORT cudaError_t cudaPeekAtLastError(void) { return last_error; }

PHANTOM_EXPORT const char *cudaGetErrorName(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaError";
}

PHANTOM_EXPORT const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorNotReady: return "device not ready";
    default: return "phantom device error";
    }
}

/* ---- memory -------------------------------------------------------------------------------------------------- */

enum place { PLACE_DEVICE, PLACE_HOST };

typedef struct {
    char *base;
    size_t bytes;
    int device;
    enum place place;
} block;

static block *blocks;
static size_t block_count, block_capacity;
static size_t used_bytes[MAX_DEVICES];

/* Pages appear only when touched, and no kernel touches them: an 80 GiB device costs no host memory. */
static void *map_bytes(size_t bytes)
{
    char *raw = mmap(NULL, bytes + SEGMENT_ALIGN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED)
        return NULL;
    char *base = (char *)(((uintptr_t)raw + SEGMENT_ALIGN - 1) / SEGMENT_ALIGN * SEGMENT_ALIGN);
    if (base > raw)
        munmap(raw, (size_t)(base - raw));
    size_t tail = SEGMENT_ALIGN - (size_t)(base - raw);
    if (tail)
        munmap(base + bytes, tail);
    return base;
}

static size_t page_round(size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

static void *block_add(size_t bytes, int device, enum place place)
{
    size_t size = page_round(bytes ? bytes : 1);
    char *base = map_bytes(size);
    if (!base)
        return NULL;
    pthread_mutex_lock(&lock);
    if (block_count == block_capacity) {
        block_capacity = block_capacity ? 2 * block_capacity : 256;
        blocks = realloc(blocks, block_capacity * sizeof *blocks);
    }
    blocks[block_count++] = (block){.base = base, .bytes = size, .device = device, .place = place};
    pthread_mutex_unlock(&lock);
    return base;
}

static bool block_remove(void *base, block *out)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (size_t i = block_count; i-- > 0;)
        if (blocks[i].base == (char *)base) {
            *out = blocks[i];
            blocks[i] = blocks[--block_count];
            found = true;
            break;
        }
    pthread_mutex_unlock(&lock);
    if (found)
        munmap(base, out->bytes);
    return found;
}

static bool block_find(const void *address, block *out)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < block_count && !found; i++)
        if ((const char *)address >= blocks[i].base && (const char *)address < blocks[i].base + blocks[i].bytes) {
            *out = blocks[i];
            found = true;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

static bool on_device(const void *address)
{
    block b;
    return block_find(address, &b) && b.place == PLACE_DEVICE;
}

/* Takes bytes off a device's budget; false when it is full. */
static bool budget_take(int device, size_t bytes)
{
    start();
    pthread_mutex_lock(&lock);
    bool fits = used_bytes[device] + bytes + config.context_bytes <= config.memory_bytes;
    if (fits)
        used_bytes[device] += bytes;
    pthread_mutex_unlock(&lock);
    return fits;
}

static void budget_give(int device, size_t bytes)
{
    pthread_mutex_lock(&lock);
    used_bytes[device] -= bytes;
    pthread_mutex_unlock(&lock);
}

PHANTOM_EXPORT cudaError_t cudaMalloc(void **out, size_t bytes)
{
    bytes = page_round(bytes ? bytes : 1);
    if (!budget_take(current_device, bytes)) {
        phantom_log("{\"event\": \"malloc_failed\", \"device\": %d, \"bytes\": %zu}", current_device, bytes);
        return failed(cudaErrorMemoryAllocation);
    }
    void *base = block_add(bytes, current_device, PLACE_DEVICE);
    if (!base) {
        budget_give(current_device, bytes);
        return failed(cudaErrorMemoryAllocation);
    }
    phantom_log("{\"event\": \"malloc\", \"device\": %d, \"bytes\": %zu}", current_device, bytes);
    *out = base;
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaFree(void *base)
{
    block b;
    if (!base)
        return cudaSuccess;
    if (!block_remove(base, &b))
        return failed(cudaErrorInvalidValue);
    budget_give(b.device, b.bytes);
    phantom_log("{\"event\": \"free\", \"device\": %d, \"bytes\": %zu}", b.device, b.bytes);
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    start();
    *total_bytes = config.memory_bytes;
    pthread_mutex_lock(&lock);
    *free_bytes = config.memory_bytes - config.context_bytes - used_bytes[current_device];
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags)
{
    (void)flags;
    *out = block_add(bytes, current_device, PLACE_HOST);
    phantom_log("{\"event\": \"host_alloc\", \"bytes\": %zu}", bytes);
    return *out ? cudaSuccess : failed(cudaErrorMemoryAllocation);
}

PHANTOM_EXPORT cudaError_t cudaMallocHost(void **out, size_t bytes) { return cudaHostAlloc(out, bytes, 0); }

PHANTOM_EXPORT cudaError_t cudaFreeHost(void *base)
{
    block b;
    if (base && block_remove(base, &b))
        phantom_log("{\"event\": \"host_free\", \"bytes\": %zu}", b.bytes);
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaHostRegister(void *base, size_t bytes, unsigned flags)
{
    (void)base, (void)bytes, (void)flags;
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaHostUnregister(void *base)
{
    (void)base;
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *address)
{
    block b;
    memset(a, 0, sizeof *a);
    a->type = cudaMemoryTypeUnregistered;
    a->device = -2;
    if (block_find(address, &b)) {
        a->type = b.place == PLACE_DEVICE ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
        a->device = b.device;
        a->devicePointer = (void *)(uintptr_t)address;
        a->hostPointer = b.place == PLACE_DEVICE ? NULL : (void *)(uintptr_t)address;
    }
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
    (void)kind;
    if (bytes <= COPY_LIMIT || (!on_device(dst) && !on_device(src)))
        memmove(dst, src, bytes);
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    (void)stream;
    return cudaMemcpy(dst, src, bytes, kind);
}

PHANTOM_EXPORT cudaError_t cudaMemcpyPeerAsync(void *dst, int dst_device, const void *src, int src_device, size_t bytes, cudaStream_t stream)
{
    (void)dst_device, (void)src_device;
    return cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, stream);
}

PHANTOM_EXPORT cudaError_t cudaMemset(void *dst, int value, size_t bytes)
{
    if (bytes <= COPY_LIMIT)
        memset(dst, value, bytes);
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    return cudaMemset(dst, value, bytes);
}

static char symbol_space[1 << 16]; /* stands for every __device__ variable */

PHANTOM_EXPORT cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *src, size_t bytes, size_t offset, enum cudaMemcpyKind kind)
{
    (void)symbol, (void)src, (void)bytes, (void)offset, (void)kind;
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaGetSymbolAddress(void **out, const void *symbol)
{
    (void)symbol;
    *out = symbol_space;
    return cudaSuccess;
}

/* ---- streams and events -------------------------------------------------------------------------------------- */

/* Work is numbered in the order the host issues it; `completed` is what the host knows to be done. */
static uint64_t issued, completed;

typedef struct {
    unsigned index;
    int priority;
} phantom_stream;

typedef struct {
    uint64_t position;
} phantom_event;

static unsigned stream_total;

static uint64_t work_issue(void) { return __atomic_add_fetch(&issued, 1, __ATOMIC_SEQ_CST); }

static void work_wait(uint64_t position)
{
    uint64_t seen = __atomic_load_n(&completed, __ATOMIC_SEQ_CST);
    while (seen < position && !__atomic_compare_exchange_n(&completed, &seen, position, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
}

unsigned phantom_stream_index(const void *stream)
{
    return (uintptr_t)stream < 4096 ? 0 : ((const phantom_stream *)stream)->index; /* 0, 1, 2 name default streams */
}

PHANTOM_EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority)
{
    (void)flags;
    phantom_stream *s = calloc(1, sizeof *s);
    s->index = __atomic_add_fetch(&stream_total, 1, __ATOMIC_SEQ_CST);
    s->priority = priority;
    *out = (cudaStream_t)s;
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags) { return cudaStreamCreateWithPriority(out, flags, 0); }
PHANTOM_EXPORT cudaError_t cudaStreamCreate(cudaStream_t *out) { return cudaStreamCreateWithPriority(out, 0, 0); }

PHANTOM_EXPORT cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    free(stream);
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority)
{
    *priority = (uintptr_t)stream < 4096 ? 0 : ((phantom_stream *)stream)->priority;
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    (void)stream;
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    (void)stream;
    work_wait(work_issue());
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaDeviceSynchronize(void) { return cudaStreamSynchronize(NULL); }

PHANTOM_EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void)stream, (void)event, (void)flags;
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    (void)stream;
    *status = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                                    cudaGraph_t *graph, const cudaGraphNode_t **dependencies,
                                                    const cudaGraphEdgeData **edges, size_t *count)
{
    (void)stream, (void)graph, (void)dependencies, (void)edges, (void)count;
    *status = cudaStreamCaptureStatusNone;
    if (id)
        *id = 0;
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    *mode = cudaStreamCaptureModeGlobal;
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *data)
{
    (void)stream;
    fn(data);
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t fn, void *data, unsigned flags)
{
    (void)flags;
    fn(stream, cudaSuccess, data);
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    (void)flags;
    *out = (cudaEvent_t)calloc(1, sizeof(phantom_event));
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaEventCreate(cudaEvent_t *out) { return cudaEventCreateWithFlags(out, 0); }

PHANTOM_EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    (void)stream;
    ((phantom_event *)event)->position = work_issue();
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
    (void)flags;
    return cudaEventRecord(event, stream);
}

PHANTOM_EXPORT cudaError_t cudaEventQuery(cudaEvent_t event)
{
    start();
    if (!config.late_events || ((phantom_event *)event)->position <= __atomic_load_n(&completed, __ATOMIC_SEQ_CST))
        return cudaSuccess;
    return cudaErrorNotReady;
}

PHANTOM_EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    work_wait(((phantom_event *)event)->position);
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    (void)from, (void)to;
    *ms = 0.0f;
    return cudaSuccess;
}

/* ---- kernels ------------------------------------------------------------------------------------------------- */

/* The compiler's host stubs reach these; their prototypes are in crt/host_runtime.h, which only C++ can include. */
PHANTOM_EXPORT void **__cudaRegisterFatBinary(void *binary);
PHANTOM_EXPORT void __cudaRegisterFatBinaryEnd(void **handle);
PHANTOM_EXPORT void __cudaUnregisterFatBinary(void **handle);
PHANTOM_EXPORT void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit, void *tid, void *bid,
                                           void *block_dim, void *grid_dim, int *warp);
PHANTOM_EXPORT void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext, size_t size, int constant, int global);
PHANTOM_EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 threads, size_t shared, void *stream);
PHANTOM_EXPORT cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *threads, size_t *shared, void *stream);
PHANTOM_EXPORT cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *host);
PHANTOM_EXPORT cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 threads, void **args, size_t shared, cudaStream_t stream);

static void *binary_handle;

void **__cudaRegisterFatBinary(void *binary)
{
    (void)binary;
    return &binary_handle;
}

void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
void __cudaUnregisterFatBinary(void **handle) { (void)handle; }

void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit, void *tid, void *bid,
                            void *block_dim, void *grid_dim, int *warp)
{
    (void)handle, (void)host, (void)device, (void)name, (void)limit, (void)tid, (void)bid, (void)block_dim, (void)grid_dim, (void)warp;
}

void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext, size_t size, int constant, int global)
{
    (void)handle, (void)host, (void)device, (void)name, (void)ext, (void)size, (void)constant, (void)global;
}

static __thread struct {
    dim3 grid, threads;
    size_t shared;
    void *stream;
} pushed;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 threads, size_t shared, void *stream)
{
    pushed.grid = grid;
    pushed.threads = threads;
    pushed.shared = shared;
    pushed.stream = stream;
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *threads, size_t *shared, void *stream)
{
    *grid = pushed.grid;
    *threads = pushed.threads;
    *shared = pushed.shared;
    *(void **)stream = pushed.stream;
    return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *host)
{
    *out = (cudaKernel_t)(uintptr_t)host;
    return cudaSuccess;
}

static cudaError_t launch(void)
{
    work_issue();
    return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 threads, void **args, size_t shared, cudaStream_t stream)
{
    (void)kernel, (void)grid, (void)threads, (void)args, (void)shared, (void)stream;
    return launch();
}

PHANTOM_EXPORT cudaError_t cudaLaunchKernel(const void *fn, dim3 grid, dim3 threads, void **args, size_t shared, cudaStream_t stream)
{
    (void)fn, (void)grid, (void)threads, (void)args, (void)shared, (void)stream;
    return launch();
}

PHANTOM_EXPORT cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *how, const void *fn, void **args)
{
    (void)how, (void)fn, (void)args;
    return launch();
}

PHANTOM_EXPORT cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *fn)
{
    (void)fn;
    start();
    memset(a, 0, sizeof *a);
    a->maxThreadsPerBlock = 1024;
    a->numRegs = 32;
    a->ptxVersion = a->binaryVersion = config.a100 ? 80 : 90;
    a->maxDynamicSharedSizeBytes = 49152;
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaFuncSetAttribute(const void *fn, enum cudaFuncAttribute attr, int value)
{
    (void)fn, (void)attr, (void)value;
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, enum cudaFuncAttribute attr, int value, int device)
{
    (void)kernel, (void)attr, (void)value, (void)device;
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *out, const void *fn, int threads, size_t shared, unsigned flags)
{
    (void)fn, (void)shared, (void)flags;
    *out = threads > 0 && threads < 2048 ? 2048 / threads : 1;
    return cudaSuccess;
}

PHANTOM_EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *out, const void *fn, int threads, size_t shared)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out, fn, threads, shared, 0);
}

PHANTOM_EXPORT cudaError_t cudaProfilerStart(void) { return cudaSuccess; }
PHANTOM_EXPORT cudaError_t cudaProfilerStop(void) { return cudaSuccess; }

/* ---- the driver calls reached through the runtime ------------------------------------------------------------- */

PHANTOM_EXPORT CUresult cuInit(unsigned flags)
{
    (void)flags;
    return CUDA_SUCCESS;
}

PHANTOM_EXPORT CUresult cuDriverGetVersion(int *version)
{
    *version = DRIVER_VERSION;
    return CUDA_SUCCESS;
}

PHANTOM_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
    (void)device;
    *flags = 0;
    *active = 1;
    return CUDA_SUCCESS;
}

PHANTOM_EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return CUDA_SUCCESS;
}

static char context_of[MAX_DEVICES];

PHANTOM_EXPORT CUresult cuCtxGetCurrent(CUcontext *out)
{
    *out = (CUcontext)(void *)&context_of[current_device];
    return CUDA_SUCCESS;
}

PHANTOM_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
    *out = (CUcontext)(void *)&context_of[device];
    return CUDA_SUCCESS;
}

PHANTOM_EXPORT CUresult cuCtxSetCurrent(CUcontext context)
{
    (void)context;
    return CUDA_SUCCESS;
}

PHANTOM_EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attr, CUdevice device)
{
    (void)attr, (void)device;
    *value = 0;
    return CUDA_SUCCESS;
}

PHANTOM_EXPORT CUresult cuGetErrorString(CUresult error, const char **text)
{
    (void)error;
    *text = "phantom driver error";
    return CUDA_SUCCESS;
}

/* Virtual memory management, for expandable segments: reserve an address range, then map physical granules. */
#define GRANULE ((size_t)2 << 20)

PHANTOM_EXPORT CUresult cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option)
{
    (void)prop, (void)option;
    *out = GRANULE;
    return CUDA_SUCCESS;
}

PHANTOM_EXPORT CUresult cuMemAddressReserve(CUdeviceptr *out, size_t bytes, size_t align, CUdeviceptr hint, unsigned long long flags)
{
    (void)align, (void)hint, (void)flags;
    *out = (CUdeviceptr)(uintptr_t)block_add(bytes, current_device, PLACE_DEVICE);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

PHANTOM_EXPORT CUresult cuMemAddressFree(CUdeviceptr base, size_t bytes)
{
    block b;
    (void)bytes;
    block_remove((void *)(uintptr_t)base, &b);
    return CUDA_SUCCESS;
}

typedef struct {
    size_t bytes;
    int device;
} granule;

PHANTOM_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes, const CUmemAllocationProp *prop, unsigned long long flags)
{
    (void)flags;
    int device = prop->location.id;
    if (!budget_take(device, bytes)) {
        phantom_log("{\"event\": \"malloc_failed\", \"device\": %d, \"bytes\": %zu}", device, bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    granule *g = malloc(sizeof *g);
    *g = (granule){.bytes = bytes, .device = device};
    phantom_log("{\"event\": \"malloc\", \"device\": %d, \"bytes\": %zu}", device, bytes);
    *out = (CUmemGenericAllocationHandle)(uintptr_t)g;
    return CUDA_SUCCESS;
}

PHANTOM_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    granule *g = (granule *)(uintptr_t)handle;
    budget_give(g->device, g->bytes);
    phantom_log("{\"event\": \"free\", \"device\": %d, \"bytes\": %zu}", g->device, g->bytes);
    free(g);
    return CUDA_SUCCESS;
}

PHANTOM_EXPORT CUresult cuMemMap(CUdeviceptr base, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    (void)base, (void)bytes, (void)offset, (void)handle, (void)flags;
    return CUDA_SUCCESS;
}

PHANTOM_EXPORT CUresult cuMemUnmap(CUdeviceptr base, size_t bytes)
{
    (void)base, (void)bytes;
    return CUDA_SUCCESS;
}

PHANTOM_EXPORT CUresult cuMemSetAccess(CUdeviceptr base, size_t bytes, const CUmemAccessDesc *desc, size_t count)
{
    (void)base, (void)bytes, (void)desc, (void)count;
    return CUDA_SUCCESS;
}

static CUresult unsupported(void) { return CUDA_ERROR_NOT_SUPPORTED; }

PHANTOM_EXPORT cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **out, unsigned version, unsigned long long flags,
                                                            enum cudaDriverEntryPointQueryResult *status)
{
#define ENTRY(name) {#name, (void *)(uintptr_t)name}
    static const struct {
        const char *name;
        void *fn;
    } entries[] = {
        ENTRY(cuInit), ENTRY(cuDriverGetVersion), ENTRY(cuDevicePrimaryCtxGetState), ENTRY(cuDeviceGet), ENTRY(cuCtxGetCurrent),
        ENTRY(cuCtxSetCurrent), ENTRY(cuDeviceGetAttribute), ENTRY(cuGetErrorString), ENTRY(cuMemGetAllocationGranularity),
        ENTRY(cuMemAddressReserve), ENTRY(cuMemAddressFree), ENTRY(cuMemCreate), ENTRY(cuMemRelease), ENTRY(cuMemMap), ENTRY(cuMemUnmap),
        ENTRY(cuMemSetAccess), ENTRY(cuDevicePrimaryCtxRetain),
    };
#undef ENTRY
    (void)version, (void)flags;
    *out = (void *)(uintptr_t)unsupported;
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++)
        if (strcmp(symbol, entries[i].name) == 0)
            *out = entries[i].fn;
    if (status)
        *status = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}
