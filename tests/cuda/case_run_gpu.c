/* Cases on a GPU: tensors are copied there and back, between guard bytes that must stay as they are. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/cases.h"

enum { GUARD = 256, PATTERN = 0xa5 };

static char why[300];
static struct {
    unsigned char *host, *device; /* guard, shifted tensor, guard */
    size_t bytes;
    void *data;                   /* of the tensor, on the host */
} moved[CASE_MAX_TENSORS];

static bool must(cudaError_t error, const char *what)
{
    if (error != cudaSuccess && why[0] == '\0')
        snprintf(why, sizeof why, "%s: %s", what, cudaGetErrorString(error));
    return error == cudaSuccess;
}

bool case_runner_ready(void)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaSuccess && count > 0)
        return true;
    printf("skipped: no GPU (%s)\n", cudaGetErrorString(error));
    return false;
}

void case_runner_begin(kase *c, int time)
{
    (void)time;
    why[0] = '\0';
    for (int i = 0; i < c->n_tensors; i++) {
        tensor *t = &c->tensors[i];
        size_t skip = GUARD + (size_t)((char *)t->data - (char *)t->block);
        moved[i].bytes = skip + tensor_bytes(t) + GUARD;
        moved[i].host = malloc(moved[i].bytes);
        moved[i].data = t->data;
        memset(moved[i].host, PATTERN, moved[i].bytes);
        memcpy(moved[i].host + skip, t->data, tensor_bytes(t));
        if (must(cudaMalloc((void **)&moved[i].device, moved[i].bytes), "cudaMalloc"))
            must(cudaMemcpy(moved[i].device, moved[i].host, moved[i].bytes, cudaMemcpyHostToDevice), "copy to the GPU");
        t->data = moved[i].device + skip;
    }
}

const char *case_runner_end(kase *c)
{
    must(cudaDeviceSynchronize(), "the kernel");
    for (int i = 0; i < c->n_tensors; i++) {
        tensor *t = &c->tensors[i];
        size_t skip = (size_t)((unsigned char *)t->data - moved[i].device), end = skip + tensor_bytes(t);
        must(cudaMemcpy(moved[i].host, moved[i].device, moved[i].bytes, cudaMemcpyDeviceToHost), "copy from the GPU");
        must(cudaFree(moved[i].device), "cudaFree");
        t->data = moved[i].data;
        memcpy(t->data, moved[i].host + skip, tensor_bytes(t));
        for (size_t k = 0; k < moved[i].bytes; k++)
            if ((k < skip || k >= end) && moved[i].host[k] != PATTERN && why[0] == '\0')
                snprintf(why, sizeof why, "%s was written outside, at byte %ld of %zu", t->name, (long)k - (long)skip, end - skip);
        free(moved[i].host);
    }
    return why[0] != '\0' ? why : NULL;
}
