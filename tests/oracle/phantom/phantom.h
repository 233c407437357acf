/* phantom.h: a CUDA device that is not there.
 *
 * A shared library, loaded before a framework with LD_PRELOAD, that answers the CUDA runtime, the few driver
 * calls, cuBLAS and NCCL as one process of a larger job would see them: allocations succeed until the device is full,
 * kernels and GEMMs are accepted and not executed, collectives are accepted and written to a log. The framework
 * itself runs unchanged (its dispatcher, autograd, caching allocator, DDP, FSDP, ProcessGroupNCCL), so what it
 * allocates and which collectives it issues are measured from its own code on a machine without a GPU.
 * Values are NOT computed: device memory reads as zero unless the host or a small collective wrote it.
 *
 * Environment (read at the first call)
 *   PHANTOM_DEVICES  number of devices, default 1
 *   PHANTOM_GPU      "h100" (default) or "a100": the properties frameworks base decisions on
 *   PHANTOM_MEMORY   bytes of each device, default 85,899,345,920 (80 GiB)
 *   PHANTOM_CONTEXT  bytes taken off the device before the first allocation, default 0
 *   PHANTOM_EVENTS   "ready" (default): an event is complete as soon as it is recorded: the device is never behind;
 *                    "late": an event is complete once the host has waited for it or for something recorded after
 *                    it: the host runs ahead without limit
 *   PHANTOM_LOG      file that gets one JSON object per line: segments, collectives, marks
 *
 * Exported besides the CUDA, cuBLAS and NCCL names: phantom_mark(text) writes {"event": "mark", "name": text};
 * phantom_reload() reads the environment again, for a forked child with settings of its own.
 */
#ifndef PHANTOM_H
#define PHANTOM_H

#include <stddef.h>
#include <stdint.h>

#define PHANTOM_EXPORT __attribute__((visibility("default")))

/* One line of the log, printf-checked; does nothing without PHANTOM_LOG. */
void phantom_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Small index of a stream in order of creation, 0 = the default stream. */
unsigned phantom_stream_index(const void *stream);

/* Device selected by the calling thread. */
int phantom_current_device(void);

PHANTOM_EXPORT void phantom_mark(const char *name);
PHANTOM_EXPORT void phantom_reload(void);
PHANTOM_EXPORT void phantom_split(int ranks, int rank); /* size and rank of the communicators that ncclCommSplit makes next */

#endif
