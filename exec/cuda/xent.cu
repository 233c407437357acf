/* exec/cuda/xent.cu: softmax cross-entropy and its gradient, in place, one block per row.
 *
 * The first pass keeps a running maximum and sum per thread, the second writes the gradient over the
 * logits. A row of an odd vocabulary starts anywhere: single elements until the first multiple of 16
 * bytes, then 16 bytes at a time, then single elements again.
 */
#include "exec/cuda/device.cuh"

namespace
{
const int XENT_THREADS = 512, NO_TARGET = -100;

/* x = f(x, i) for each element of the row; written back where WRITE. */
template <bool WRITE, typename T, typename F> __device__ __forceinline__ void row_each(T *row, int64_t n, F f)
{
    const int per = 16 / (int)sizeof(T);
    int64_t head = (int64_t)((16 - (uintptr_t)row % 16) % 16 / sizeof(T));
    if (head > n)
        head = n;
    int64_t packs = (n - head) / per, tail = head + packs * per;
    float v[per], one[1];
    for (int64_t i = threadIdx.x; i < head + (n - tail); i += XENT_THREADS) {
        int64_t at = i < head ? i : tail + (i - head);
        load(one, row + at);
        one[0] = f(one[0], at);
        if (WRITE)
            store(row + at, one);
    }
    for (int64_t p = threadIdx.x; p < packs; p += XENT_THREADS) {
        int64_t at = head + p * per;
        load(v, row + at);
#pragma unroll
        for (int k = 0; k < per; k++)
            v[k] = f(v[k], at + k);
        if (WRITE)
            store(row + at, v);
    }
}

/* (max, sum of exp(x - max)) of two sets. */
struct running {
    float max, sum;
};
__device__ __forceinline__ running joined(running a, running b)
{
    running r;
    r.max = fmaxf(a.max, b.max);
    r.sum = r.max == -INFINITY ? 0.0f : a.sum * __expf(a.max - r.max) + b.sum * __expf(b.max - r.max);
    return r;
}
__device__ __forceinline__ running warp_joined(running a)
{
#pragma unroll
    for (int lane_mask = WARP / 2; lane_mask > 0; lane_mask /= 2) {
        running b;
        b.max = __shfl_xor_sync(FULL_WARP, a.max, lane_mask);
        b.sum = __shfl_xor_sync(FULL_WARP, a.sum, lane_mask);
        a = joined(a, b);
    }
    return a;
}

template <typename T>
__global__ void xent_kernel(T *logits, const int32_t *__restrict__ targets, float *__restrict__ loss, int64_t n,
                            float scale)
{
    SF_SHARED(float, maxes, XENT_THREADS / WARP);
    SF_SHARED(float, sums, XENT_THREADS / WARP);
    SF_SHARED(float, target_logit, 1);
    int64_t row = blockIdx.x, target = targets[row];
    T *x = logits + row * n;
    running r = { -INFINITY, 0.0f };
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;

    if (target == NO_TARGET) {
        if (threadIdx.x == 0)
            loss[row] = 0.0f;
        row_each<true>(x, n, [](float, int64_t) { return 0.0f; });
        return;
    }
    if (threadIdx.x == 0)
        target_logit[0] = target >= 0 && target < n ? to_f32(x[target]) : NAN;
    row_each<false>(x, n, [&](float v, int64_t) {
        if (v > r.max) {
            r.sum = r.sum * __expf(r.max - v) + 1.0f;
            r.max = v;
        } else {
            r.sum += v == -INFINITY ? 0.0f : __expf(v - r.max);
        }
        return v;
    });
    r = warp_joined(r);
    if (lane == 0) {
        maxes[warp] = r.max;
        sums[warp] = r.sum;
    }
    __syncthreads();
    r.max = lane < XENT_THREADS / WARP ? maxes[lane] : -INFINITY;
    r.sum = lane < XENT_THREADS / WARP ? sums[lane] : 0.0f;
    r = warp_joined(r);
    if (threadIdx.x == 0)
        loss[row] = r.max + logf(r.sum) - target_logit[0];
    float factor = scale / r.sum, max = r.max;
    row_each<true>(x, n, [=](float v, int64_t i) { return factor * __expf(v - max) - (i == target ? scale : 0.0f); });
}
} // namespace

extern "C" int sf_cuda_xent(sf_cuda_stream stream, sf_dtype dt, size_t rows, size_t vocab, void *logits,
                            const int32_t *targets, float scale, float *loss)
{
    if (rows > INT32_MAX || vocab == 0)
        return cudaErrorInvalidValue;
    if (rows == 0)
        return cudaSuccess;
    SF_WITH_TYPE(dt, {
        SF_LAUNCH(xent_kernel<T>, (unsigned)rows, XENT_THREADS, 0, stream, (T *)logits, targets, loss, (int64_t)vocab, scale);
        return (int)cudaGetLastError();
    });
}
