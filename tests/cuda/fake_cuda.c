/* The runtime, NVML, handles and order of the fake. One lock guards all of it. */
#include "tests/cuda/fake_impl.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CLOCKS = 64, MOST_ACCESSES = 16384, MOST_NAMES = 128 };

typedef struct {
    unsigned long at[MOST_CLOCKS];
} clocks;

struct CUstream_st {
    int number, priority;
    clocks seen; /* seen.at[number] is its own time */
};
struct CUevent_st {
    bool recorded, timing;
    clocks seen;
    double time_ms;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sf_cuda_api table;
static fake_cuda_setup setup;
static size_t used_bytes;
static double now_ms; /* one millisecond per operation */

static struct {
    fake_kind kind;
    void *ptr;
    size_t bytes;
} handles[4096];
static int n_handles, n_streams;

static struct {
    const char *name;
    int calls, fail_at, code;
} names[MOST_NAMES];
static int n_names;

static struct {
    const char *from, *to;
    int stream;
    unsigned long time;
    bool write;
    const char *what;
} accesses[MOST_ACCESSES];
static int n_accesses;
static char race[400];

static clocks host; /* what the host has waited for */

/* ---- calls ---- */
void fake_die(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fputs("fake CUDA: ", stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}

static int name_of(const char *name)
{
    for (int i = 0; i < n_names; i++)
        if (strcmp(names[i].name, name) == 0)
            return i;
    if (n_names == MOST_NAMES)
        fake_die("too many function names");
    memset(&names[n_names], 0, sizeof names[0]);
    names[n_names].name = name;
    return n_names++;
}

bool fake_called(const char *name, int *code)
{
    pthread_mutex_lock(&lock);
    int i = name_of(name);
    bool fails = ++names[i].calls == names[i].fail_at;
    *code = names[i].code;
    pthread_mutex_unlock(&lock);
    return fails;
}
void fake_cuda_fail(const char *name, int nth, int code)
{
    int i = name_of(name);
    names[i].fail_at = names[i].calls + nth;
    names[i].code = code;
}
int fake_cuda_calls(const char *name)
{
    return names[name_of(name)].calls;
}

/* ---- handles ---- */
void *fake_make(fake_kind kind, size_t bytes)
{
    void *p = NULL;
    size_t rounded = (bytes + 255) / 256 * 256;
    pthread_mutex_lock(&lock);
    p = kind == FAKE_DEVICE_MEMORY ? aligned_alloc(256, rounded) : calloc(1, bytes);
    if (p == NULL || n_handles == (int)(sizeof handles / sizeof handles[0]))
        fake_die("no memory");
    if (kind == FAKE_DEVICE_MEMORY) {
        memset(p, 0xff, rounded); /* what cudaMalloc gives is not zeroed */
        used_bytes += bytes;
    }
    handles[n_handles].kind = kind;
    handles[n_handles].bytes = bytes;
    handles[n_handles++].ptr = p;
    pthread_mutex_unlock(&lock);
    return p;
}
static int index_of(fake_kind kind, const void *handle, const char *who)
{
    for (int i = 0; i < n_handles; i++)
        if (handles[i].ptr == handle && handles[i].kind == kind)
            return i;
    fake_die("%s got a handle that was released or never made", who);
}
void *fake_get(fake_kind kind, const void *handle, const char *who)
{
    pthread_mutex_lock(&lock);
    void *p = handles[index_of(kind, handle, who)].ptr;
    pthread_mutex_unlock(&lock);
    return p;
}
void fake_drop(fake_kind kind, void *handle, const char *who)
{
    pthread_mutex_lock(&lock);
    int i = index_of(kind, handle, who);
    if (kind == FAKE_DEVICE_MEMORY)
        used_bytes -= handles[i].bytes;
    handles[i] = handles[--n_handles];
    free(handle);
    pthread_mutex_unlock(&lock);
}
int fake_cuda_handles(void)
{
    return n_handles;
}

/* ---- order ---- */
static void join(clocks *into, const clocks *other)
{
    for (int i = 0; i < MOST_CLOCKS; i++)
        if (other->at[i] > into->at[i])
            into->at[i] = other->at[i];
}

static __thread struct CUstream_st *op_stream;
static __thread const char *op_what;

void fake_op_begin(cudaStream_t stream, const char *what)
{
    if (stream == NULL)
        fake_die("%s is put on the default stream, which waits for all others", what);
    op_stream = fake_get(FAKE_STREAM, stream, what);
    op_what = what;
    pthread_mutex_lock(&lock);
    join(&op_stream->seen, &host); /* it is issued after what the host has waited for */
    op_stream->seen.at[op_stream->number]++;
    now_ms += 1.0;
}
void fake_op_access(const void *at, size_t bytes, bool write)
{
    const char *from = at, *to = from + bytes;
    if (bytes == 0)
        return;
    for (int i = 0; i < n_accesses; i++)
        if (from < accesses[i].to && accesses[i].from < to && (write || accesses[i].write) &&
            accesses[i].time > op_stream->seen.at[accesses[i].stream] && race[0] == '\0')
            snprintf(race, sizeof race, "%s on stream %d %s bytes that %s on stream %d %s, and nothing orders the two", op_what,
                     op_stream->number, write ? "writes" : "reads", accesses[i].what, accesses[i].stream,
                     accesses[i].write ? "writes" : "reads");
    if (n_accesses == MOST_ACCESSES)
        fake_die("too many accesses without a wait for the device");
    accesses[n_accesses].from = from;
    accesses[n_accesses].to = to;
    accesses[n_accesses].stream = op_stream->number;
    accesses[n_accesses].time = op_stream->seen.at[op_stream->number];
    accesses[n_accesses].write = write;
    accesses[n_accesses++].what = op_what;
}
void fake_op_end(void)
{
    pthread_mutex_unlock(&lock);
}
void fake_cuda_access(cudaStream_t stream, const void *at, size_t bytes, bool write, const char *what)
{
    fake_op_begin(stream, what);
    fake_op_access(at, bytes, write);
    fake_op_end();
}
const char *fake_cuda_race(void)
{
    return race[0] != '\0' ? race : NULL;
}
int fake_cuda_priority(cudaStream_t stream)
{
    return ((struct CUstream_st *)fake_get(FAKE_STREAM, stream, "fake_cuda_priority"))->priority;
}

/* ---- the runtime ---- */
static cudaError_t get_device_count(int *count)
{
    FAKE_CALLED(cudaError_t, cudaGetDeviceCount);
    *count = setup.devices;
    return cudaSuccess;
}
static cudaError_t set_device(int device)
{
    FAKE_CALLED(cudaError_t, cudaSetDevice);
    return device < setup.devices ? cudaSuccess : cudaErrorInvalidDevice;
}
static cudaError_t get_properties(struct cudaDeviceProp *prop, int device)
{
    FAKE_CALLED(cudaError_t, cudaGetDeviceProperties);
    memset(prop, 0, sizeof *prop);
    snprintf(prop->name, sizeof prop->name, "Fake GPU %d", device);
    prop->major = setup.cc_major;
    prop->minor = setup.cc_minor;
    prop->multiProcessorCount = 132;
    prop->totalGlobalMem = setup.memory_bytes;
    return cudaSuccess;
}
static cudaError_t get_bus_id(char *text, int size, int device)
{
    FAKE_CALLED(cudaError_t, cudaDeviceGetPCIBusId);
    snprintf(text, (size_t)size, "0000:%02x:00.0", device + 1);
    return cudaSuccess;
}
static cudaError_t runtime_version(int *version)
{
    FAKE_CALLED(cudaError_t, cudaRuntimeGetVersion);
    *version = CUDART_VERSION;
    return cudaSuccess;
}
static cudaError_t driver_version(int *version)
{
    FAKE_CALLED(cudaError_t, cudaDriverGetVersion);
    *version = CUDART_VERSION;
    return cudaSuccess;
}
static const char *error_name(cudaError_t error)
{
    static char text[32];
    snprintf(text, sizeof text, "cudaError%d", (int)error);
    return text;
}
static const char *error_string(cudaError_t error)
{
    return error == cudaSuccess ? "no error" : "a made-up failure";
}
static cudaError_t mem_get_info(size_t *free_bytes, size_t *total_bytes)
{
    FAKE_CALLED(cudaError_t, cudaMemGetInfo);
    *free_bytes = setup.memory_bytes - used_bytes;
    *total_bytes = setup.memory_bytes;
    return cudaSuccess;
}
static cudaError_t device_malloc(void **out, size_t bytes)
{
    FAKE_CALLED(cudaError_t, cudaMalloc);
    if (used_bytes + bytes > setup.memory_bytes)
        return cudaErrorMemoryAllocation;
    *out = fake_make(FAKE_DEVICE_MEMORY, bytes);
    return cudaSuccess;
}
static cudaError_t device_free(void *p)
{
    FAKE_CALLED(cudaError_t, cudaFree);
    fake_drop(FAKE_DEVICE_MEMORY, p, "cudaFree");
    return cudaSuccess;
}
static cudaError_t host_malloc(void **out, size_t bytes)
{
    FAKE_CALLED(cudaError_t, cudaMallocHost);
    *out = fake_make(FAKE_PINNED_MEMORY, bytes);
    return cudaSuccess;
}
static cudaError_t host_free(void *p)
{
    FAKE_CALLED(cudaError_t, cudaFreeHost);
    fake_drop(FAKE_PINNED_MEMORY, p, "cudaFreeHost");
    return cudaSuccess;
}
static cudaError_t memcpy_async(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    FAKE_CALLED(cudaError_t, cudaMemcpyAsync);
    (void)kind;
    fake_op_begin(stream, "cudaMemcpyAsync");
    fake_op_access(from, bytes, false);
    fake_op_access(to, bytes, true);
    fake_op_end();
    memcpy(to, from, bytes);
    return cudaSuccess;
}
static cudaError_t memset_async(void *at, int byte, size_t bytes, cudaStream_t stream)
{
    FAKE_CALLED(cudaError_t, cudaMemsetAsync);
    fake_op_begin(stream, "cudaMemsetAsync");
    fake_op_access(at, bytes, true);
    fake_op_end();
    memset(at, byte, bytes);
    return cudaSuccess;
}
static cudaError_t launch_host(cudaStream_t stream, cudaHostFn_t fn, void *arg)
{
    FAKE_CALLED(cudaError_t, cudaLaunchHostFunc);
    fake_op_begin(stream, "cudaLaunchHostFunc");
    fake_op_end();
    fn(arg);
    return cudaSuccess;
}
static cudaError_t priority_range(int *lowest, int *highest)
{
    FAKE_CALLED(cudaError_t, cudaDeviceGetStreamPriorityRange);
    *lowest = 0;
    *highest = -5;
    return cudaSuccess;
}
static cudaError_t stream_create(cudaStream_t *out, unsigned flags, int priority)
{
    FAKE_CALLED(cudaError_t, cudaStreamCreateWithPriority);
    struct CUstream_st *s = fake_make(FAKE_STREAM, sizeof *s);
    if (flags != cudaStreamNonBlocking)
        fake_die("a stream that waits for the default stream");
    s->priority = priority;
    pthread_mutex_lock(&lock);
    if (n_streams == MOST_CLOCKS)
        fake_die("too many streams");
    s->number = n_streams++;
    pthread_mutex_unlock(&lock);
    *out = s;
    return cudaSuccess;
}
static cudaError_t stream_destroy(cudaStream_t stream)
{
    FAKE_CALLED(cudaError_t, cudaStreamDestroy);
    fake_drop(FAKE_STREAM, stream, "cudaStreamDestroy");
    return cudaSuccess;
}
static cudaError_t stream_query(cudaStream_t stream)
{
    FAKE_CALLED(cudaError_t, cudaStreamQuery);
    fake_get(FAKE_STREAM, stream, "cudaStreamQuery");
    return cudaSuccess;
}
static cudaError_t stream_synchronize(cudaStream_t stream)
{
    FAKE_CALLED(cudaError_t, cudaStreamSynchronize);
    struct CUstream_st *s = fake_get(FAKE_STREAM, stream, "cudaStreamSynchronize");
    pthread_mutex_lock(&lock);
    join(&host, &s->seen);
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}
static cudaError_t stream_wait_event(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    FAKE_CALLED(cudaError_t, cudaStreamWaitEvent);
    (void)flags;
    struct CUstream_st *s = fake_get(FAKE_STREAM, stream, "cudaStreamWaitEvent");
    struct CUevent_st *e = fake_get(FAKE_EVENT, event, "cudaStreamWaitEvent");
    pthread_mutex_lock(&lock);
    if (e->recorded) /* else it waits for nothing, as CUDA's does */
        join(&s->seen, &e->seen);
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}
static cudaError_t device_synchronize(void)
{
    FAKE_CALLED(cudaError_t, cudaDeviceSynchronize);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n_handles; i++)
        if (handles[i].kind == FAKE_STREAM)
            join(&host, &((struct CUstream_st *)handles[i].ptr)->seen);
    n_accesses = 0;
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}
static cudaError_t event_create(cudaEvent_t *out, unsigned flags)
{
    FAKE_CALLED(cudaError_t, cudaEventCreateWithFlags);
    struct CUevent_st *e = fake_make(FAKE_EVENT, sizeof *e);
    e->timing = (flags & cudaEventDisableTiming) == 0;
    *out = e;
    return cudaSuccess;
}
static cudaError_t event_destroy(cudaEvent_t event)
{
    FAKE_CALLED(cudaError_t, cudaEventDestroy);
    fake_drop(FAKE_EVENT, event, "cudaEventDestroy");
    return cudaSuccess;
}
static cudaError_t event_record(cudaEvent_t event, cudaStream_t stream)
{
    FAKE_CALLED(cudaError_t, cudaEventRecord);
    struct CUevent_st *e = fake_get(FAKE_EVENT, event, "cudaEventRecord");
    struct CUstream_st *s = fake_get(FAKE_STREAM, stream, "cudaEventRecord");
    pthread_mutex_lock(&lock);
    e->recorded = true;
    e->seen = s->seen;
    e->time_ms = now_ms;
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}
static cudaError_t event_elapsed(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    FAKE_CALLED(cudaError_t, cudaEventElapsedTime);
    struct CUevent_st *a = fake_get(FAKE_EVENT, from, "cudaEventElapsedTime"), *b = fake_get(FAKE_EVENT, to, "cudaEventElapsedTime");
    if (!a->recorded || !b->recorded || !a->timing || !b->timing)
        return cudaErrorInvalidResourceHandle;
    *ms = (float)(b->time_ms - a->time_ms);
    return cudaSuccess;
}

/* ---- NVML ---- */
static int nvml_init(void)
{
    FAKE_CALLED(int, nvmlInit_v2);
    return 0;
}
static int nvml_shutdown(void)
{
    FAKE_CALLED(int, nvmlShutdown);
    for (int i = 0; i < n_handles; i++)
        if (handles[i].kind == FAKE_NVML)
            fake_drop(FAKE_NVML, handles[i].ptr, "nvmlShutdown");
    return 0;
}
static int nvml_handle(const char *bus_id, sf_nvml_device *device)
{
    FAKE_CALLED(int, nvmlDeviceGetHandleByPciBusId_v2);
    if (strncmp(bus_id, "0000:", 5) != 0)
        return 2;
    *device = fake_make(FAKE_NVML, 1);
    return 0;
}
static int nvml_memory(sf_nvml_device device, sf_nvml_memory *memory)
{
    FAKE_CALLED(int, nvmlDeviceGetMemoryInfo);
    fake_get(FAKE_NVML, device, "nvmlDeviceGetMemoryInfo");
    memory->total = setup.memory_bytes;
    memory->used = used_bytes + 1000;
    memory->free = memory->total - memory->used;
    return 0;
}
static int nvml_power(sf_nvml_device device, unsigned *milliwatt)
{
    FAKE_CALLED(int, nvmlDeviceGetPowerUsage);
    fake_get(FAKE_NVML, device, "nvmlDeviceGetPowerUsage");
    *milliwatt = 350500;
    return 0;
}

void fake_fill_runtime(sf_cuda_api *api)
{
    api->cudaGetDeviceCount = get_device_count;
    api->cudaSetDevice = set_device;
    api->cudaGetDeviceProperties = get_properties;
    api->cudaDeviceGetPCIBusId = get_bus_id;
    api->cudaRuntimeGetVersion = runtime_version;
    api->cudaDriverGetVersion = driver_version;
    api->cudaGetErrorName = error_name;
    api->cudaGetErrorString = error_string;
    api->cudaMemGetInfo = mem_get_info;
    api->cudaMalloc = device_malloc;
    api->cudaFree = device_free;
    api->cudaMallocHost = host_malloc;
    api->cudaFreeHost = host_free;
    api->cudaMemcpyAsync = memcpy_async;
    api->cudaMemsetAsync = memset_async;
    api->cudaLaunchHostFunc = launch_host;
    api->cudaDeviceGetStreamPriorityRange = priority_range;
    api->cudaStreamCreateWithPriority = stream_create;
    api->cudaStreamDestroy = stream_destroy;
    api->cudaStreamQuery = stream_query;
    api->cudaStreamSynchronize = stream_synchronize;
    api->cudaStreamWaitEvent = stream_wait_event;
    api->cudaDeviceSynchronize = device_synchronize;
    api->cudaEventCreateWithFlags = event_create;
    api->cudaEventDestroy = event_destroy;
    api->cudaEventRecord = event_record;
    api->cudaEventElapsedTime = event_elapsed;
    api->nvmlInit_v2 = setup.nvml ? nvml_init : NULL;
    api->nvmlShutdown = setup.nvml ? nvml_shutdown : NULL;
    api->nvmlDeviceGetHandleByPciBusId_v2 = setup.nvml ? nvml_handle : NULL;
    api->nvmlDeviceGetMemoryInfo = setup.nvml ? nvml_memory : NULL;
    api->nvmlDeviceGetPowerUsage = setup.nvml ? nvml_power : NULL;
}

const sf_cuda_api *fake_cuda_start(const fake_cuda_setup *s)
{
    if (n_handles != 0)
        fake_die("%d handles are left from before", n_handles);
    setup = *s;
    n_names = n_streams = n_accesses = 0;
    race[0] = '\0';
    now_ms = 0.0;
    memset(&host, 0, sizeof host);
    fake_fill_runtime(&table);
    fake_fill_cublaslt(&table);
    fake_fill_nccl(&table);
    return &table;
}
