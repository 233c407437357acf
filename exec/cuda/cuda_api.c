#define _GNU_SOURCE
#include "exec/cuda/cuda_api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

static pthread_once_t once = PTHREAD_ONCE_INIT;
static sf_cuda_api real;
static sf_status loaded;

/* By its name alone first (LD_LIBRARY_PATH, ldconfig), then where the toolkit was at build time. */
static void *open_library(const char *name)
{
    char path[512];
    void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (lib == NULL) {
        snprintf(path, sizeof path, "%s/%s", SF_CUDA_LIBRARY_DIR, name);
        lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return lib;
}

/* dlsym gives an object pointer; POSIX says that it may be copied into a function pointer. */
static bool find(void *lib, const char *name, void *function_pointer)
{
    *(void **)function_pointer = dlsym(lib, name);
    return *(void **)function_pointer != NULL;
}

static sf_status load_cublaslt(void)
{
    const char *name = "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR);
    void *lib = open_library(name);
    if (lib == NULL)
        return SF_FAIL(SF_EDEVICE, "cannot open %s, which matrix products on the GPU need: install cuBLAS of CUDA %d or add its "
                       "folder to LD_LIBRARY_PATH", name, CUBLAS_VER_MAJOR);
#define SF_AS_FIND(f)                                                                                        \
    if (!find(lib, #f, &real.f))                                                                             \
        return SF_FAIL(SF_EDEVICE, "%s has no %s: it is another version than this program was built for", name, #f);
    SF_CUBLASLT_CALLS(SF_AS_FIND)
#undef SF_AS_FIND
    return SF_SUCCESS;
}

static sf_status load_nccl(void)
{
    const char *name = "libnccl.so." TEXT(NCCL_MAJOR);
    void *lib = open_library(name);
    if (lib == NULL)
        return SF_FAIL(SF_EDEVICE, "cannot open %s, which collectives between GPUs need: install NCCL %d or add its folder to "
                       "LD_LIBRARY_PATH", name, NCCL_MAJOR);
#define SF_AS_FIND(f)                                                                                        \
    if (!find(lib, #f, &real.f))                                                                             \
        return SF_FAIL(SF_EDEVICE, "%s has no %s: it is another version than this program was built for", name, #f);
    SF_NCCL_CALLS(SF_AS_FIND)
#undef SF_AS_FIND
    return SF_SUCCESS;
}

/* Comes with the driver; its readings are optional. */
static void load_nvml(void)
{
    sf_cuda_api found = { 0 };
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    bool whole = lib != NULL;
#define SF_AS_FIND(f, args) whole = whole && find(lib, #f, &found.f);
    SF_NVML_CALLS(SF_AS_FIND)
#undef SF_AS_FIND
    if (!whole)
        return;
#define SF_AS_COPY(f, args) real.f = found.f;
    SF_NVML_CALLS(SF_AS_COPY)
#undef SF_AS_COPY
}

static void load(void)
{
#define SF_AS_COPY(f) real.f = f;
    SF_CUDA_RUNTIME_CALLS(SF_AS_COPY)
#undef SF_AS_COPY
    loaded = load_cublaslt();
    if (loaded.code == SF_OK)
        loaded = load_nccl();
    load_nvml();
}

sf_status sf_cuda_api_real(const sf_cuda_api **out)
{
    pthread_once(&once, load);
    *out = &real;
    return loaded;
}

/* ---- codes to statuses ---- */
sf_status sf_cuda_status_at(const char *file, int line, const sf_cuda_api *api, cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return SF_SUCCESS;
    return sf_fail_at(file, line, SF_EDEVICE, "%s failed: %s (%s)", what, api->cudaGetErrorString(error),
                      api->cudaGetErrorName(error));
}

sf_status sf_cublaslt_status_at(const char *file, int line, const sf_cuda_api *api, cublasStatus_t error, const char *what)
{
    if (error == CUBLAS_STATUS_SUCCESS)
        return SF_SUCCESS;
    return sf_fail_at(file, line, SF_EDEVICE, "%s failed: %s", what, api->cublasLtGetStatusString(error));
}

sf_status sf_nccl_status_at(const char *file, int line, const sf_cuda_api *api, ncclResult_t error, const char *what)
{
    if (error == ncclSuccess)
        return SF_SUCCESS;
    const char *last = api->ncclGetLastError(NULL);
    return sf_fail_at(file, line, SF_ECOMM, "%s failed: %s%s%s", what, api->ncclGetErrorString(error),
                      last != NULL && last[0] != '\0' ? ": " : "", last != NULL ? last : "");
}
