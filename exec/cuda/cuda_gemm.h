/* exec/cuda/cuda_gemm.h: linear layers by cuBLASLt.
 *
 * Shapes   as exec/host/ops.h: x, dx (N,I), y, dy (N,O), weight, dweight (O,I), row-major.
 * Types    activations and weights `dt`: SF_F32, SF_BF16, SF_F16; sums in float. y_dt and grad_dt may be dt or SF_F32.
 *          float operands are multiplied in float, or in TF32 where the handle was opened with tf32.
 * Plans    descriptors and the algorithm of the library's heuristic are found at the first call of a shape, its types,
 *          epilogue and pointer alignment, and kept; later calls create nothing.
 * Threads  as the device's.
 * Errors   SF_EUNSUP where cuBLASLt has no algorithm, with the shape; else SF_EDEVICE with its text.
 */
#ifndef SF_EXEC_CUDA_CUDA_GEMM_H
#define SF_EXEC_CUDA_CUDA_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "exec/cuda/cuda_device.h"
#include "model/base/dtype.h"

typedef struct sf_cuda_gemm sf_cuda_gemm;

/* Scratch for cuBLASLt: 32 MiB from compute capability 9.0 on, 4 MiB before, as PyTorch gives it. */
uint64_t sf_cuda_gemm_ws_bytes(int cc_major);

/* ws: device memory of sf_cuda_gemm_ws_bytes(...) or more that only work on one stream uses; lent until close. */
sf_status sf_cuda_gemm_open(sf_cuda_device *dev, bool tf32, void *ws, uint64_t ws_bytes, sf_cuda_gemm **out);
void sf_cuda_gemm_close(sf_cuda_gemm *gemm);
int sf_cuda_gemm_plans(const sf_cuda_gemm *gemm); /* kept so far */

/* y = x W^T + bias; bias (O) of dt, or NULL. gelu_in, unless NULL (N,O): gets that sum, and y its GELU (tanh form). */
sf_status sf_cuda_linear_fwd(sf_cuda_gemm *gemm, sf_cuda_stream stream, sf_dtype dt, sf_dtype y_dt, size_t rows, size_t in,
                             size_t out, const void *x, const void *weight, const void *bias, void *gelu_in, void *y);
/* dx = dy W, plus what it was where `accumulate`. gelu_in, unless NULL (N,I): dx is multiplied by GELU's slope there;
 * not with `accumulate`. */
sf_status sf_cuda_linear_bwd_x(sf_cuda_gemm *gemm, sf_cuda_stream stream, sf_dtype dt, size_t rows, size_t in, size_t out,
                               const void *dy, const void *weight, bool accumulate, const void *gelu_in, void *dx);
/* dweight = dy^T x, plus what it was where `accumulate`. The bias's gradient is sf_cuda_bias_grad. */
sf_status sf_cuda_linear_bwd_w(sf_cuda_gemm *gemm, sf_cuda_stream stream, sf_dtype dt, sf_dtype grad_dt, size_t rows,
                               size_t in, size_t out, const void *dy, const void *x, bool accumulate, void *dweight);

#endif
