/* tests/cuda/emu/cuda_runtime.h: the CUDA execution model on the CPU, for tests of kernels.
 *
 * Found before the toolkit's header when the kernels are compiled as C++ for the host. A launch runs
 * the blocks one after the other; the threads of a block are fibers of which one runs at a time, until
 * it waits at a block barrier or in a warp-wide operation. What the emulation adds to the hardware:
 *
 * - shared memory comes from blocks of exactly the asked size (AddressSanitizer sees every overrun),
 *   filled with 0xFF, which is NaN in every floating type, so that a read before a write shows;
 * - the order in which threads and blocks run is chosen by emu_order: a result that depends on it
 *   is a race, and tests compare the results of opposite orders bit for bit;
 * - an asynchronous copy reads its source when it is waited for, and its target is NaN until then;
 * - a barrier that not all threads reach, warp operations that lanes call from different places,
 *   misaligned vector accesses and launch limits are errors, reported with the kernel's name.
 *
 * Source  CUDA C++ programming guide (execution model, warp functions, compute capability table: 1024
 *         threads a block, grid y and z below 65536, 48 KiB of dynamic shared memory without and
 *         99 KiB with opt-in on sm_86, the least of sm_80 and later).
 */
#ifndef SF_TESTS_EMU_CUDA_RUNTIME_H
#define SF_TESTS_EMU_CUDA_RUNTIME_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <functional>

#include "emu.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};

extern dim3 threadIdx, blockIdx, blockDim, gridDim;

/* ---- host side ---------------------------------------------------------------------------------- */
typedef int cudaError_t;
enum { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorInvalidConfiguration = 9 };
typedef struct CUstream_st *cudaStream_t;
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

cudaError_t cudaGetLastError(void); /* and clears it, as the runtime does */
cudaError_t cudaMemsetAsync(void *ptr, int value, size_t bytes, cudaStream_t stream);
cudaError_t emu_allow_shared(const void *kernel, int bytes);
template <typename K> cudaError_t cudaFuncSetAttribute(K *kernel, cudaFuncAttribute, int bytes)
{
    return emu_allow_shared((const void *)kernel, bytes);
}

void emu_launch(const char *name, const void *kernel, dim3 grid, dim3 block, size_t shared_bytes,
                const std::function<void()> &thread);

/* ---- memory and barriers of a block ------------------------------------------------------------- */
void *emu_shared_dynamic(void);
void *emu_shared_static(const void *tag, size_t bytes); /* one block of memory per tag and block */
void emu_barrier(int site);
#define __syncthreads() emu_barrier(__LINE__)

/* ---- operations of a warp ------------------------------------------------------------------------
 * Each lane hands over `in` and gets `out`; the last lane of the mask to arrive computes them all.   */
enum emu_op { EMU_SYNC, EMU_SHFL, EMU_SHFL_XOR, EMU_SHFL_DOWN, EMU_SHFL_UP, EMU_BALLOT, EMU_MMA, EMU_LDMATRIX };
void emu_warp(emu_op op, int variant, unsigned mask, const void *in, size_t in_bytes, void *out, size_t out_bytes);

struct emu_shuffle {
    unsigned char value[8];
    int lane; /* or mask or delta */
    int width;
};
template <typename T> T emu_shuffled(emu_op op, unsigned mask, T value, int lane, int width)
{
    static_assert(sizeof(T) <= 8, "a shuffle moves 4 or 8 bytes");
    emu_shuffle in = { { 0 }, lane, width }, out;
    memcpy(in.value, &value, sizeof value);
    emu_warp(op, (int)sizeof(T), mask, &in, sizeof in, &out, sizeof out);
    memcpy(&value, out.value, sizeof value);
    return value;
}
template <typename T> T __shfl_sync(unsigned mask, T value, int lane, int width = 32)
{
    return emu_shuffled(EMU_SHFL, mask, value, lane, width);
}
template <typename T> T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32)
{
    return emu_shuffled(EMU_SHFL_XOR, mask, value, lane_mask, width);
}
template <typename T> T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32)
{
    return emu_shuffled(EMU_SHFL_DOWN, mask, value, (int)delta, width);
}
template <typename T> T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32)
{
    return emu_shuffled(EMU_SHFL_UP, mask, value, (int)delta, width);
}
inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    emu_warp(EMU_SYNC, 0, mask, NULL, 0, NULL, 0);
}
inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    unsigned out = 0;
    emu_warp(EMU_BALLOT, 0, mask, &predicate, sizeof predicate, &out, sizeof out);
    return out;
}

/* ---- atomics: one fiber runs at a time ------------------------------------------------------------ */
template <typename T> T atomicAdd(T *at, T value)
{
    T old = *at;
    *at = (T)(old + value);
    return old;
}
template <typename T> T atomicMax(T *at, T value)
{
    T old = *at;
    *at = value > old ? value : old;
    return old;
}

/* ---- tensor-core and asynchronous-copy instructions, called by exec/cuda/mma.cuh ------------------ */
/* d = a b + d on 16 x 8 x 16 tiles in the fragment layout of mma.sync.m16n8k16; half: 1 = f16, 0 = bf16 */
void emu_mma_16816(int half, float *d, const uint32_t *a, const uint32_t *b);
/* ldmatrix.x4(.trans): lanes 8i..8i+7 give the row addresses of 8 x 8 matrix i                        */
void emu_ldmatrix_x4(uint32_t *out, const void *row, bool trans);
/* cp.async of 4, 8 or 16 bytes of which the first `valid` are read, the rest zero                      */
void emu_cp_async(void *shared, const void *global, int bytes, int valid);
void emu_cp_async_commit(void);
void emu_cp_async_wait(int groups_left);

/* ---- arithmetic ------------------------------------------------------------------------------------ */
template <typename T> inline T __ldg(const T *p) { return *p; }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __expf(float x) { return expf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline float __uint_as_float(unsigned u) { float f; memcpy(&f, &u, 4); return f; }
inline unsigned __float_as_uint(float f) { unsigned u; memcpy(&u, &f, 4); return u; }

#endif
