/* exec/cuda/cuda_device.h: one GPU: its streams, events, memory and readings.
 *
 * Threads  all calls come from the thread that opened the device (the runtime's current device is per thread).
 * Streams  one per sf_stream. COMM has the highest priority, so that a collective's kernels are placed as soon as
 *          an SM is free. HOST runs host functions in order (sf_cuda_device_host_call).
 * Memory   blocks are taken one by one, zeroed, and given back by sf_cuda_device_close; nothing is taken in a step.
 * Errors   SF_EDEVICE with the runtime's text; what does not fit says how much was asked and how much is free.
 */
#ifndef SF_EXEC_CUDA_CUDA_DEVICE_H
#define SF_EXEC_CUDA_CUDA_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "exec/cuda/cuda_api.h"
#include "exec/cuda/cuda_probe.h"
#include "exec/cuda/kernels.h"
#include "model/program/program.h"

typedef struct sf_cuda_device sf_cuda_device;

/* Number `ordinal` of those that CUDA_VISIBLE_DEVICES leaves. `api` outlives the device. */
sf_status sf_cuda_device_open(const sf_cuda_api *api, int ordinal, sf_cuda_device **out);
/* Waits for what runs, then gives everything back. */
void sf_cuda_device_close(sf_cuda_device *dev);

const sf_cuda_api *sf_cuda_device_api(const sf_cuda_device *dev);
const sf_cuda_found *sf_cuda_device_found(const sf_cuda_device *dev);
sf_cuda_stream sf_cuda_device_stream(const sf_cuda_device *dev, sf_stream stream);

/* ---- memory ---- */
sf_status sf_cuda_device_take(sf_cuda_device *dev, uint64_t bytes, void **out);   /* of the GPU; 0 bytes: NULL     */
sf_status sf_cuda_device_pinned(sf_cuda_device *dev, uint64_t bytes, void **out); /* of the host; 0 bytes: NULL    */
uint64_t sf_cuda_device_taken_bytes(const sf_cuda_device *dev);                   /* of the GPU, by this device    */
/* As the driver counts: other programs and the context included. */
sf_status sf_cuda_device_free_bytes(sf_cuda_device *dev, uint64_t *free_bytes, uint64_t *total_bytes);

/* ---- work on streams ---- */
sf_status sf_cuda_device_copy(sf_cuda_device *dev, sf_stream stream, void *to, const void *from, uint64_t bytes);
sf_status sf_cuda_device_set(sf_cuda_device *dev, sf_stream stream, void *at, int byte, uint64_t bytes);
/* fn(arg) on a thread of the runtime, in stream order; it must not call CUDA. */
sf_status sf_cuda_device_host_call(sf_cuda_device *dev, sf_stream stream, void (*fn)(void *arg), void *arg);
/* What a launcher of kernels.h returned, as a status that names the op. */
sf_status sf_cuda_device_launched(const sf_cuda_device *dev, int code, const char *op);

/* ---- order between streams: events numbered from 0 ---- */
sf_status sf_cuda_device_events(sf_cuda_device *dev, int count); /* makes that many; once */
sf_status sf_cuda_device_record(sf_cuda_device *dev, sf_stream stream, int event);
sf_status sf_cuda_device_wait(sf_cuda_device *dev, sf_stream stream, int event);

/* ---- time: marks numbered from 0, put on streams and read after their work is done ---- */
sf_status sf_cuda_device_marks(sf_cuda_device *dev, int count); /* makes that many; may be called again for more */
sf_status sf_cuda_device_mark(sf_cuda_device *dev, sf_stream stream, int mark);
/* Resolution about 0.5 us (cudaEventElapsedTime). */
sf_status sf_cuda_device_elapsed(sf_cuda_device *dev, int from, int to, double *out_s);

/* ---- waiting ---- */
sf_status sf_cuda_device_done(sf_cuda_device *dev, sf_stream stream, bool *out); /* does not wait */
sf_status sf_cuda_device_sync(sf_cuda_device *dev, sf_stream stream);
sf_status sf_cuda_device_sync_all(sf_cuda_device *dev);

/* ---- readings of the driver (NVML); `known` is false where it gives none ---- */
typedef struct {
    bool known;
    uint64_t used_bytes; /* of the GPU's memory, by all programs */
    double power_w;
} sf_cuda_readings;
void sf_cuda_device_read(sf_cuda_device *dev, sf_cuda_readings *out);

#endif
