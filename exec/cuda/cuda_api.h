/* exec/cuda/cuda_api.h: every function of the CUDA runtime, cuBLASLt, NCCL and NVML that we call, as a table.
 *
 * All of exec/cuda calls through a table, so that a test can pass one of its own (tests/cuda/fake_cuda.h). The real
 * one has the runtime linked statically and opens the other libraries when it is first asked for: a program that
 * does not use the GPU neither needs nor loads them.
 * Errors  SF_CUDA, SF_CUBLASLT and SF_NCCL call one function of the table and turn its code into a status that
 *         names the function and the library's own text.
 */
#ifndef SF_EXEC_CUDA_CUDA_API_H
#define SF_EXEC_CUDA_CUDA_API_H

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include "model/base/status.h"

#define SF_CUDA_RUNTIME_CALLS(X)                                                                             \
    X(cudaGetDeviceCount) X(cudaSetDevice) X(cudaGetDeviceProperties) X(cudaDeviceGetPCIBusId)               \
    X(cudaRuntimeGetVersion) X(cudaDriverGetVersion) X(cudaGetErrorName) X(cudaGetErrorString)               \
    X(cudaMemGetInfo) X(cudaMalloc) X(cudaFree) X(cudaMallocHost) X(cudaFreeHost)                            \
    X(cudaMemcpyAsync) X(cudaMemsetAsync) X(cudaLaunchHostFunc)                                              \
    X(cudaDeviceGetStreamPriorityRange) X(cudaStreamCreateWithPriority) X(cudaStreamDestroy)                 \
    X(cudaStreamQuery) X(cudaStreamSynchronize) X(cudaStreamWaitEvent) X(cudaDeviceSynchronize)              \
    X(cudaEventCreateWithFlags) X(cudaEventDestroy) X(cudaEventRecord) X(cudaEventElapsedTime)

#define SF_CUBLASLT_CALLS(X)                                                                                 \
    X(cublasLtCreate) X(cublasLtDestroy) X(cublasLtGetStatusString) X(cublasLtGetVersion)                    \
    X(cublasLtMatmulDescCreate) X(cublasLtMatmulDescDestroy) X(cublasLtMatmulDescSetAttribute)               \
    X(cublasLtMatrixLayoutCreate) X(cublasLtMatrixLayoutDestroy)                                             \
    X(cublasLtMatmulPreferenceCreate) X(cublasLtMatmulPreferenceDestroy) X(cublasLtMatmulPreferenceSetAttribute) \
    X(cublasLtMatmulAlgoGetHeuristic) X(cublasLtMatmul)

#define SF_NCCL_CALLS(X)                                                                                     \
    X(ncclGetUniqueId) X(ncclCommInitRank) X(ncclCommDestroy) X(ncclCommAbort) X(ncclCommGetAsyncError)      \
    X(ncclGetVersion) X(ncclGetErrorString) X(ncclGetLastError) X(ncclGroupStart) X(ncclGroupEnd)            \
    X(ncclAllReduce) X(ncclAllGather) X(ncclReduceScatter) X(ncclBroadcast) X(ncclReduce) X(ncclSend) X(ncclRecv)

/* NVML's header is not in the toolkit: what we use of it, as in the driver's documentation (NVML API reference). */
typedef struct nvmlDevice_st *sf_nvml_device;
typedef struct {
    unsigned long long total, free, used; /* bytes */
} sf_nvml_memory;
#define SF_NVML_CALLS(X)                                                                                     \
    X(nvmlInit_v2, (void)) X(nvmlShutdown, (void))                                                           \
    X(nvmlDeviceGetHandleByPciBusId_v2, (const char *bus_id, sf_nvml_device *device))                        \
    X(nvmlDeviceGetMemoryInfo, (sf_nvml_device device, sf_nvml_memory *memory))                              \
    X(nvmlDeviceGetPowerUsage, (sf_nvml_device device, unsigned *milliwatt))

typedef struct {
#define SF_AS_MEMBER(name) __typeof__(&name) name;
    SF_CUDA_RUNTIME_CALLS(SF_AS_MEMBER)
    SF_CUBLASLT_CALLS(SF_AS_MEMBER)
    SF_NCCL_CALLS(SF_AS_MEMBER)
#undef SF_AS_MEMBER
#define SF_AS_MEMBER(name, args) int(*name) args; /* NULL, all of them, where there is no NVML */
    SF_NVML_CALLS(SF_AS_MEMBER)
#undef SF_AS_MEMBER
} sf_cuda_api;

/* The real libraries; the table lives as long as the program. SF_EDEVICE names the library that is missing. */
sf_status sf_cuda_api_real(const sf_cuda_api **out);

sf_status sf_cuda_status_at(const char *file, int line, const sf_cuda_api *api, cudaError_t error, const char *what);
sf_status sf_cublaslt_status_at(const char *file, int line, const sf_cuda_api *api, cublasStatus_t error, const char *what);
sf_status sf_nccl_status_at(const char *file, int line, const sf_cuda_api *api, ncclResult_t error, const char *what);

#define SF_CUDA(api, name, ...)                                                                              \
    sf_cuda_status_at(__FILE__, __LINE__, (api), (api)->name(__VA_ARGS__), #name)
#define SF_CUBLASLT(api, name, ...)                                                                          \
    sf_cublaslt_status_at(__FILE__, __LINE__, (api), (api)->name(__VA_ARGS__), #name)
#define SF_NCCL(api, name, ...)                                                                              \
    sf_nccl_status_at(__FILE__, __LINE__, (api), (api)->name(__VA_ARGS__), #name)

#endif
