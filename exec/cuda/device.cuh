/* exec/cuda/device.cuh: what all kernels share: types, vector access, warp sums, launches.
 *
 * The kernels are plain CUDA; compiled as C++ for the host with tests/cuda/emu before the toolkit on
 * the include path, the same sources run on the CPU. The three macros below are all that differs.
 */
#ifndef SF_EXEC_CUDA_DEVICE_CUH
#define SF_EXEC_CUDA_DEVICE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stddef.h>
#include <stdint.h>

#include "exec/cuda/kernels.h"

#ifdef __CUDACC__
#define SF_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                            \
    kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__)
#define SF_SHARED(type, name, count) __shared__ type name[count]
#define SF_SHARED_DYNAMIC(name) extern __shared__ __align__(128) unsigned char name[]
#else
#define SF_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                            \
    ((void)(stream), emu_launch(__func__, (const void *)(kernel), (grid), (block), (shared_bytes),           \
                                [&] { (kernel)(__VA_ARGS__); }))
#define SF_SHARED(type, name, count)                                                                         \
    static char name##_tag;                                                                                  \
    type *name = (type *)emu_shared_static(&name##_tag, sizeof(type) * (count))
#define SF_SHARED_DYNAMIC(name) unsigned char *name = (unsigned char *)emu_shared_dynamic()
#endif

typedef __nv_bfloat16 bf16;
typedef __half f16;

static const int WARP = 32, PACK = 8;
static const unsigned FULL_WARP = 0xffffffffu;

/* ---- conversions ---- */
static __device__ __forceinline__ float to_f32(float x) { return x; }
static __device__ __forceinline__ float to_f32(bf16 x) { return __bfloat162float(x); }
static __device__ __forceinline__ float to_f32(f16 x) { return __half2float(x); }

template <typename T> struct from_f32;
template <> struct from_f32<float> {
    static __device__ __forceinline__ float of(float x) { return x; }
};
template <> struct from_f32<bf16> {
    static __device__ __forceinline__ bf16 of(float x) { return __float2bfloat16_rn(x); }
};
template <> struct from_f32<f16> {
    static __device__ __forceinline__ f16 of(float x) { return __float2half_rn(x); }
};

/* ---- K neighbours at once: 16 bytes per access where they fill them ---- */
template <typename T> struct alignas(16) chunk16 {
    T v[16 / sizeof(T)];
};
template <int K, typename T> static __device__ __forceinline__ void load(float (&out)[K], const T *p)
{
    const int per = 16 / (int)sizeof(T);
    if (K % per == 0) {
#pragma unroll
        for (int c = 0; c < K / per; c++) {
            chunk16<T> chunk = *reinterpret_cast<const chunk16<T> *>(p + c * per);
#pragma unroll
            for (int i = 0; i < per; i++)
                out[(c * per + i) % K] = to_f32(chunk.v[i]);
        }
    } else {
#pragma unroll
        for (int i = 0; i < K; i++)
            out[i] = to_f32(p[i]);
    }
}
template <int K, typename T> static __device__ __forceinline__ void store(T *p, const float (&in)[K])
{
    const int per = 16 / (int)sizeof(T);
    if (K % per == 0) {
#pragma unroll
        for (int c = 0; c < K / per; c++) {
            chunk16<T> chunk;
#pragma unroll
            for (int i = 0; i < per; i++)
                chunk.v[i] = from_f32<T>::of(in[(c * per + i) % K]);
            *reinterpret_cast<chunk16<T> *>(p + c * per) = chunk;
        }
    } else {
#pragma unroll
        for (int i = 0; i < K; i++)
            p[i] = from_f32<T>::of(in[i]);
    }
}

/* The same where the type is known at run time only; the branch is the same for all threads. */
template <int K> static __device__ __forceinline__ void load_any(float (&out)[K], const void *p, size_t at, sf_dtype dtype)
{
    if (dtype == SF_F32)
        load(out, (const float *)p + at);
    else if (dtype == SF_BF16)
        load(out, (const bf16 *)p + at);
    else
        load(out, (const f16 *)p + at);
}
template <int K> static __device__ __forceinline__ void store_any(void *p, size_t at, sf_dtype dtype, const float (&in)[K])
{
    if (dtype == SF_F32)
        store((float *)p + at, in);
    else if (dtype == SF_BF16)
        store((bf16 *)p + at, in);
    else
        store((f16 *)p + at, in);
}
template <int K> static __device__ __forceinline__ void add_any(void *p, size_t at, sf_dtype dtype, const float (&in)[K])
{
    float sum[K];
    load_any(sum, p, at, dtype);
#pragma unroll
    for (int i = 0; i < K; i++)
        sum[i] += in[i];
    store_any(p, at, dtype, sum);
}

/* ---- sums over a warp: every lane gets the result ---- */
static __device__ __forceinline__ float warp_sum(float x)
{
#pragma unroll
    for (int lane_mask = WARP / 2; lane_mask > 0; lane_mask /= 2)
        x += __shfl_xor_sync(FULL_WARP, x, lane_mask);
    return x;
}
static __device__ __forceinline__ double warp_sum(double x)
{
#pragma unroll
    for (int lane_mask = WARP / 2; lane_mask > 0; lane_mask /= 2)
        x += __shfl_xor_sync(FULL_WARP, x, lane_mask);
    return x;
}

/* ---- element-wise kernels: f.at<K>(i) does elements i .. i+K-1 ---- */
template <typename F> static __global__ void each_kernel(F f, size_t n, size_t packs)
{
    size_t step = (size_t)gridDim.x * blockDim.x, first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (size_t i = first; i < packs; i += step)
        f.template at<PACK>(i * PACK);
    for (size_t i = packs * PACK + first; i < n; i += step)
        f.template at<1>(i);
}

/* ---- host side ---- */
static inline bool sf_aligned(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}
static inline bool sf_float_dtype(sf_dtype dtype)
{
    return dtype == SF_F32 || dtype == SF_BF16 || dtype == SF_F16;
}
template <typename F> static int sf_launch_each(sf_cuda_stream stream, const F &f, size_t n, bool aligned)
{
    const unsigned threads = 256, most_blocks = 16384;
    size_t packs = aligned ? n / PACK : 0, work = packs > n - packs * PACK ? packs : n - packs * PACK;
    size_t blocks = (work + threads - 1) / threads;
    if (n == 0)
        return cudaSuccess;
    SF_LAUNCH(each_kernel<F>, (unsigned)(blocks < most_blocks ? blocks : most_blocks), threads, 0, stream, f, n, packs);
    return (int)cudaGetLastError();
}

/* Runs the statement with T as the element type; other types are cudaErrorInvalidValue. */
#define SF_WITH_TYPE(dtype, ...)                                                                             \
    do {                                                                                                     \
        if ((dtype) == SF_F32) {                                                                             \
            typedef float T;                                                                                 \
            __VA_ARGS__;                                                                                     \
        } else if ((dtype) == SF_BF16) {                                                                     \
            typedef bf16 T;                                                                                  \
            __VA_ARGS__;                                                                                     \
        } else if ((dtype) == SF_F16) {                                                                      \
            typedef f16 T;                                                                                   \
            __VA_ARGS__;                                                                                     \
        } else {                                                                                             \
            return cudaErrorInvalidValue;                                                                    \
        }                                                                                                    \
    } while (0)

#endif
