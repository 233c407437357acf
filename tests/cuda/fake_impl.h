/* tests/cuda/fake_impl.h: between the files of the fake. */
#ifndef SF_TESTS_CUDA_FAKE_IMPL_H
#define SF_TESTS_CUDA_FAKE_IMPL_H

#include "tests/cuda/fake_cuda.h"

typedef enum { FAKE_STREAM, FAKE_EVENT, FAKE_DEVICE_MEMORY, FAKE_PINNED_MEMORY, FAKE_LT, FAKE_DESC, FAKE_LAYOUT,
               FAKE_PREFERENCE, FAKE_COMM, FAKE_NVML } fake_kind;

/* Counts the call; true with *code where it is to fail. */
bool fake_called(const char *name, int *code);
void *fake_make(fake_kind kind, size_t bytes);    /* zeroed; FAKE_DEVICE_MEMORY aligned to 256 */
void *fake_get(fake_kind kind, const void *handle, const char *who); /* ends the test if it is none */
void fake_drop(fake_kind kind, void *handle, const char *who);
_Noreturn void fake_die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* One operation of `stream` with accesses; may be called several times within fake_op_begin .. fake_op_end. */
void fake_op_begin(cudaStream_t stream, const char *what);
void fake_op_access(const void *at, size_t bytes, bool write);
void fake_op_end(void);

void fake_fill_runtime(sf_cuda_api *api);
void fake_fill_cublaslt(sf_cuda_api *api);
void fake_fill_nccl(sf_cuda_api *api);

#define FAKE_CALLED(type, name)                                                                              \
    do {                                                                                                     \
        int fake_code_;                                                                                      \
        if (fake_called(#name, &fake_code_))                                                                 \
            return (type)fake_code_;                                                                         \
    } while (0)

#endif
