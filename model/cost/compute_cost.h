/* model/cost/compute_cost.h: the time of one compute op on a GPU of the catalogue.
 *
 * GEMM     t = max(FLOP / (reachable * waves * alignment), bytes / (HBM * share)) + launch gap
 *          reachable: the best rate a library has been measured at, as a share of the dense peak
 *          waves:     tiles fill the SMs in whole waves; what the last one leaves idle is lost
 *          alignment: dims that are no multiple of 64 elements run on slower kernels
 * Attention  a fused kernel's measured share of the peak, by generation, head size and length
 * Memory   bytes / (HBM * share) + launch gap, each pass over memory counted
 * Every constant stands beside its origin in compute_cost.c. None is fitted to a training run.
 *
 * Units   seconds. The device's own time: launching from the host is the simulator's (issue_s).
 */
#ifndef SF_COST_COMPUTE_COST_H
#define SF_COST_COMPUTE_COST_H

#include "model/base/dtype.h"
#include "model/desc/gpu.h"
#include "model/program/cursor.h"

/* Dense matrix rate that can be reached, FLOP/s; 0 if the GPU has none for the type. */
double sf_gpu_reachable_flops(const sf_gpu *gpu, sf_dtype dtype, bool tf32);

double sf_gpu_gemm_time_s(const sf_gpu *gpu, sf_dtype dtype, bool tf32, double m, double n, double k, double batch);
/* Fused attention of `flop` (causal half counted) in one direction. */
typedef enum { SF_KERNEL_FLASH2, SF_KERNEL_FLASH1, SF_KERNEL_CUDNN } sf_attention_kernel;
double sf_gpu_attention_time_s(const sf_gpu *gpu, sf_dtype dtype, double flop, double bytes, int head_dim, int seq, bool backward, sf_attention_kernel kernel);
double sf_gpu_memory_time_s(const sf_gpu *gpu, double bytes, int launches);

/* An op of a program: compute, memory and optimizer kinds, copies between host and device. COMM: 0. */
double sf_gpu_op_time_s(const sf_gpu *gpu, double pcie_Bps, const sf_class *cls, const sf_issue *issue);

#endif
