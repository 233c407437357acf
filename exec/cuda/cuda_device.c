#include "exec/cuda/cuda_device.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "model/base/units.h"

typedef struct {
    void *ptr;
    bool pinned;
} block;

struct sf_cuda_device {
    const sf_cuda_api *api;
    sf_cuda_found found;
    cudaStream_t streams[SF_STREAM_COUNT];
    block *blocks;
    size_t n_blocks;
    uint64_t taken_bytes;
    cudaEvent_t *events, *marks;
    int n_events, n_marks;
    sf_nvml_device nvml; /* NULL: no readings */
};

/* ---- opening and closing ---- */
static sf_status describe(const sf_cuda_api *api, int ordinal, sf_cuda_found *out)
{
    struct cudaDeviceProp prop;
    memset(out, 0, sizeof *out);
    SF_TRY(SF_CUDA(api, cudaGetDeviceProperties, &prop, ordinal));
    SF_TRY(SF_CUDA(api, cudaDeviceGetPCIBusId, out->bus_id, (int)sizeof out->bus_id, ordinal));
    SF_TRY(SF_CUDA(api, cudaDriverGetVersion, &out->driver_version));
    SF_TRY(SF_CUDA(api, cudaRuntimeGetVersion, &out->runtime_version));
    memcpy(out->name, prop.name, sizeof out->name);
    out->name[sizeof out->name - 1] = '\0';
    out->cc_major = prop.major;
    out->cc_minor = prop.minor;
    out->sm_count = prop.multiProcessorCount;
    out->memory_bytes = prop.totalGlobalMem;
    return SF_SUCCESS;
}

static sf_status count_devices(const sf_cuda_api *api, int *out)
{
    cudaError_t error = api->cudaGetDeviceCount(out);
    if (error != cudaSuccess)
        *out = 0;
    if (error == cudaErrorNoDevice || (error == cudaSuccess && *out == 0))
        return SF_FAIL(SF_EDEVICE, "no CUDA device: is a GPU there and named by CUDA_VISIBLE_DEVICES?");
    if (error == cudaErrorInsufficientDriver)
        return SF_FAIL(SF_EDEVICE, "the NVIDIA driver is missing or older than CUDA %d.%d needs", CUDART_VERSION / 1000,
                       CUDART_VERSION / 10 % 100);
    return sf_cuda_status_at(__FILE__, __LINE__, api, error, "cudaGetDeviceCount");
}

static void open_nvml(sf_cuda_device *dev)
{
    if (dev->api->nvmlInit_v2 == NULL || dev->api->nvmlInit_v2() != 0)
        return;
    if (dev->api->nvmlDeviceGetHandleByPciBusId_v2(dev->found.bus_id, &dev->nvml) != 0 || dev->nvml == NULL) {
        dev->nvml = NULL;
        dev->api->nvmlShutdown();
    }
}

static sf_status open_streams(sf_cuda_device *dev)
{
    int lowest = 0, highest = 0;
    SF_TRY(SF_CUDA(dev->api, cudaDeviceGetStreamPriorityRange, &lowest, &highest));
    for (int s = 0; s < SF_STREAM_COUNT; s++)
        SF_TRY(SF_CUDA(dev->api, cudaStreamCreateWithPriority, &dev->streams[s], cudaStreamNonBlocking,
                       s == SF_STREAM_COMM ? highest : lowest));
    return SF_SUCCESS;
}

sf_status sf_cuda_device_open(const sf_cuda_api *api, int ordinal, sf_cuda_device **out)
{
    sf_status st = SF_SUCCESS;
    int count = 0;
    SF_TRY(count_devices(api, &count));
    if (ordinal < 0 || ordinal >= count)
        return SF_FAIL(SF_EDEVICE, "there is no GPU number %d: %d visible, numbered from 0; start fewer ranks per node", ordinal,
                       count);
    sf_cuda_device *dev = calloc(1, sizeof *dev);
    if (dev == NULL)
        return SF_FAIL(SF_ENOMEM, "no host memory for a device's record");
    dev->api = api;
    SF_TRY_GOTO(st, SF_CUDA(api, cudaSetDevice, ordinal), close);
    SF_TRY_GOTO(st, describe(api, ordinal, &dev->found), close);
    if (dev->found.cc_major < 8) {
        st = SF_FAIL(SF_EUNSUP, "%s has compute capability %d.%d; the kernels need 8.0 (A100) or later", dev->found.name,
                     dev->found.cc_major, dev->found.cc_minor);
        goto close;
    }
    SF_TRY_GOTO(st, open_streams(dev), close);
    open_nvml(dev);
    *out = dev;
    return st;
close:
    sf_cuda_device_close(dev);
    return st;
}

void sf_cuda_device_close(sf_cuda_device *dev)
{
    if (dev == NULL)
        return;
    const sf_cuda_api *api = dev->api;
    api->cudaDeviceSynchronize(); /* a failure was reported by whoever waited, or matters no more */
    for (int i = 0; i < dev->n_marks; i++)
        api->cudaEventDestroy(dev->marks[i]);
    for (int i = 0; i < dev->n_events; i++)
        api->cudaEventDestroy(dev->events[i]);
    for (int s = SF_STREAM_COUNT - 1; s >= 0; s--)
        if (dev->streams[s] != NULL)
            api->cudaStreamDestroy(dev->streams[s]);
    for (size_t i = dev->n_blocks; i > 0; i--) {
        if (dev->blocks[i - 1].pinned)
            api->cudaFreeHost(dev->blocks[i - 1].ptr);
        else
            api->cudaFree(dev->blocks[i - 1].ptr);
    }
    if (dev->nvml != NULL)
        api->nvmlShutdown();
    free(dev->marks);
    free(dev->events);
    free(dev->blocks);
    free(dev);
}

sf_status sf_cuda_probe(int max, sf_cuda_found *out, int *count)
{
    const sf_cuda_api *api;
    *count = 0;
    SF_TRY(sf_cuda_api_real(&api));
    SF_TRY(count_devices(api, count));
    for (int i = 0; i < *count && i < max; i++)
        SF_TRY(describe(api, i, &out[i]));
    return SF_SUCCESS;
}

const sf_cuda_api *sf_cuda_device_api(const sf_cuda_device *dev)
{
    return dev->api;
}
const sf_cuda_found *sf_cuda_device_found(const sf_cuda_device *dev)
{
    return &dev->found;
}
sf_cuda_stream sf_cuda_device_stream(const sf_cuda_device *dev, sf_stream stream)
{
    return dev->streams[stream];
}

/* ---- memory ---- */
static sf_status keep(sf_cuda_device *dev, void *ptr, bool pinned)
{
    block *grown = realloc(dev->blocks, (dev->n_blocks + 1) * sizeof *grown);
    if (grown == NULL)
        return SF_FAIL(SF_ENOMEM, "no host memory for a record of %zu blocks", dev->n_blocks + 1);
    dev->blocks = grown;
    dev->blocks[dev->n_blocks++] = (block){ ptr, pinned };
    return SF_SUCCESS;
}

sf_status sf_cuda_device_take(sf_cuda_device *dev, uint64_t bytes, void **out)
{
    void *ptr = NULL;
    *out = NULL;
    if (bytes == 0)
        return SF_SUCCESS;
    cudaError_t error = dev->api->cudaMalloc(&ptr, bytes);
    if (error == cudaErrorMemoryAllocation) {
        size_t free_bytes = 0, total_bytes = 0;
        dev->api->cudaMemGetInfo(&free_bytes, &total_bytes);
        return SF_FAIL(SF_EDEVICE, "%s has %s free of %s, but %s were asked for: use a smaller micro_batch or seq_len, recompute, "
                       "or a strategy that shards more", dev->found.name, sf_bytes_text(free_bytes).text,
                       sf_bytes_text(total_bytes).text, sf_bytes_text(bytes).text);
    }
    SF_TRY(sf_cuda_status_at(__FILE__, __LINE__, dev->api, error, "cudaMalloc"));
    sf_status st = keep(dev, ptr, false);
    if (st.code != SF_OK) {
        dev->api->cudaFree(ptr);
        return st;
    }
    dev->taken_bytes += bytes;
    SF_TRY(SF_CUDA(dev->api, cudaMemsetAsync, ptr, 0, bytes, dev->streams[SF_STREAM_COMPUTE]));
    SF_TRY(SF_CUDA(dev->api, cudaStreamSynchronize, dev->streams[SF_STREAM_COMPUTE]));
    *out = ptr;
    return SF_SUCCESS;
}

sf_status sf_cuda_device_pinned(sf_cuda_device *dev, uint64_t bytes, void **out)
{
    void *ptr = NULL;
    *out = NULL;
    if (bytes == 0)
        return SF_SUCCESS;
    cudaError_t error = dev->api->cudaMallocHost(&ptr, bytes);
    if (error == cudaErrorMemoryAllocation)
        return SF_FAIL(SF_ENOMEM, "%s of page-locked host memory were asked for and the system has not got them: offload less, or "
                       "raise the limit of locked memory (ulimit -l)", sf_bytes_text(bytes).text);
    SF_TRY(sf_cuda_status_at(__FILE__, __LINE__, dev->api, error, "cudaMallocHost"));
    sf_status st = keep(dev, ptr, true);
    if (st.code != SF_OK) {
        dev->api->cudaFreeHost(ptr);
        return st;
    }
    memset(ptr, 0, bytes);
    *out = ptr;
    return SF_SUCCESS;
}

uint64_t sf_cuda_device_taken_bytes(const sf_cuda_device *dev)
{
    return dev->taken_bytes;
}

sf_status sf_cuda_device_free_bytes(sf_cuda_device *dev, uint64_t *free_bytes, uint64_t *total_bytes)
{
    size_t f = 0, t = 0;
    SF_TRY(SF_CUDA(dev->api, cudaMemGetInfo, &f, &t));
    *free_bytes = f;
    *total_bytes = t;
    return SF_SUCCESS;
}

/* ---- work on streams ---- */
sf_status sf_cuda_device_copy(sf_cuda_device *dev, sf_stream stream, void *to, const void *from, uint64_t bytes)
{
    if (bytes == 0)
        return SF_SUCCESS;
    return SF_CUDA(dev->api, cudaMemcpyAsync, to, from, bytes, cudaMemcpyDefault, dev->streams[stream]);
}

sf_status sf_cuda_device_set(sf_cuda_device *dev, sf_stream stream, void *at, int byte, uint64_t bytes)
{
    if (bytes == 0)
        return SF_SUCCESS;
    return SF_CUDA(dev->api, cudaMemsetAsync, at, byte, bytes, dev->streams[stream]);
}

sf_status sf_cuda_device_host_call(sf_cuda_device *dev, sf_stream stream, void (*fn)(void *arg), void *arg)
{
    return SF_CUDA(dev->api, cudaLaunchHostFunc, dev->streams[stream], fn, arg);
}

sf_status sf_cuda_device_launched(const sf_cuda_device *dev, int code, const char *op)
{
    return sf_cuda_status_at(__FILE__, __LINE__, dev->api, (cudaError_t)code, op);
}

/* ---- events and marks ---- */
static sf_status make_events(const sf_cuda_api *api, cudaEvent_t **events, int *n, int count, unsigned flags)
{
    if (count <= *n)
        return SF_SUCCESS;
    cudaEvent_t *grown = realloc(*events, (size_t)count * sizeof *grown);
    if (grown == NULL)
        return SF_FAIL(SF_ENOMEM, "no host memory for %d events", count);
    *events = grown;
    for (; *n < count; (*n)++)
        SF_TRY(SF_CUDA(api, cudaEventCreateWithFlags, &grown[*n], flags));
    return SF_SUCCESS;
}

sf_status sf_cuda_device_events(sf_cuda_device *dev, int count)
{
    return make_events(dev->api, &dev->events, &dev->n_events, count, cudaEventDisableTiming);
}
sf_status sf_cuda_device_record(sf_cuda_device *dev, sf_stream stream, int event)
{
    assert(event >= 0 && event < dev->n_events);
    return SF_CUDA(dev->api, cudaEventRecord, dev->events[event], dev->streams[stream]);
}
sf_status sf_cuda_device_wait(sf_cuda_device *dev, sf_stream stream, int event)
{
    assert(event >= 0 && event < dev->n_events);
    return SF_CUDA(dev->api, cudaStreamWaitEvent, dev->streams[stream], dev->events[event], 0);
}

sf_status sf_cuda_device_marks(sf_cuda_device *dev, int count)
{
    return make_events(dev->api, &dev->marks, &dev->n_marks, count, cudaEventDefault);
}
sf_status sf_cuda_device_mark(sf_cuda_device *dev, sf_stream stream, int mark)
{
    assert(mark >= 0 && mark < dev->n_marks);
    return SF_CUDA(dev->api, cudaEventRecord, dev->marks[mark], dev->streams[stream]);
}
sf_status sf_cuda_device_elapsed(sf_cuda_device *dev, int from, int to, double *out_s)
{
    float ms = 0.0f;
    assert(from >= 0 && from < dev->n_marks && to >= 0 && to < dev->n_marks);
    SF_TRY(SF_CUDA(dev->api, cudaEventElapsedTime, &ms, dev->marks[from], dev->marks[to]));
    *out_s = (double)ms * 1e-3;
    return SF_SUCCESS;
}

/* ---- waiting ---- */
sf_status sf_cuda_device_done(sf_cuda_device *dev, sf_stream stream, bool *out)
{
    cudaError_t error = dev->api->cudaStreamQuery(dev->streams[stream]);
    *out = error != cudaErrorNotReady;
    return error == cudaErrorNotReady ? SF_SUCCESS : sf_cuda_status_at(__FILE__, __LINE__, dev->api, error, "cudaStreamQuery");
}
sf_status sf_cuda_device_sync(sf_cuda_device *dev, sf_stream stream)
{
    return SF_CUDA(dev->api, cudaStreamSynchronize, dev->streams[stream]);
}
sf_status sf_cuda_device_sync_all(sf_cuda_device *dev)
{
    return SF_CUDA(dev->api, cudaDeviceSynchronize);
}

/* ---- readings ---- */
void sf_cuda_device_read(sf_cuda_device *dev, sf_cuda_readings *out)
{
    sf_nvml_memory memory = { 0 };
    unsigned milliwatt = 0;
    *out = (sf_cuda_readings){ 0 };
    if (dev->nvml == NULL || dev->api->nvmlDeviceGetMemoryInfo(dev->nvml, &memory) != 0 ||
        dev->api->nvmlDeviceGetPowerUsage(dev->nvml, &milliwatt) != 0)
        return;
    *out = (sf_cuda_readings){ true, memory.used, 1e-3 * (double)milliwatt };
}
