#include "model/cost/compute_cost.h"

#include <math.h>

/* ---- constants and their origins ---- */

/* Best measured bf16 matmul over the dense data-sheet peak (mamf-finder, stas00/ml-engineering
 * compute/accelerator/README.md): A100 SXM 271.2/312, A100 PCIe 252.9/312, H100 SXM 794.5/989,
 * GH200 828.6/989, B200 1745/2250, MI300X 668.4/1307. Ada and consumer Blackwell reach their sheet
 * (xzwgit/gpu-flops-bench: RTX 4090 179.2/165.2, RTX 5090 254/209.5): 1 here. Volta and Turing:
 * cuBLAS fp16, 5120^3, 90 and 65-90 TFLOPS of 125 and 130 in NVIDIA's CUTLASS figures: 0.72. */
static double reachable_share(const sf_gpu *gpu)
{
    double cc = gpu->compute_capability;
    if (gpu->vendor[0] != 'N')
        return 0.55;                                   /* MI300X 0.51, MI325X and MI355X 0.60, 0.68 */
    if (cc >= 10.0 && cc < 12.0)
        return 0.776;
    if (cc >= 12.0 || (cc >= 8.85 && cc < 8.95))
        return 1.0;
    if (cc >= 9.0)
        return 0.803;
    if (cc >= 8.0)
        return 0.869;
    return 0.72;
}

enum {
    TILE_M = 128, TILE_N = 256,  /* CTA tile of the large kernels of cuBLAS and CUTLASS on sm80, sm90 */
    ALIGNED = 64                 /* elements; 128 bytes of bf16: full speed (NVIDIA matmul guide)     */
};

/* d_ff 10922 = 2*43*127 against 10944: 272.7 and 398.4 TFLOPS (ml-engineering d_ff sweep): 0.68. Multiples
 * of 8 take the tensor-core path with smaller loads: between the two, 0.9 (NVIDIA matmul guide, fig. 3). */
static double alignment_share(double n, double k)
{
    double worst = 1.0;
    const double dims[] = { n, k };
    for (int i = 0; i < 2; i++) {
        long d = (long)dims[i];
        double share = d % ALIGNED == 0 ? 1.0 : d % 8 == 0 ? 0.9 : 0.68;
        worst = share < worst ? share : worst;
    }
    return worst;
}

/* Share of HBM's data-sheet bandwidth that streaming kernels reach on 16 MiB and more (BabelStream on
 * A100 1.75/1.94 to 1.80/2.04, H100 3.0/3.35). */
static const double hbm_share = 0.88;

/* Between kernels of one stream, and of a kernel that has next to nothing to do (CUDA graphs off). */
static const double kernel_gap_s = 2.5e-6;

/* Fused attention over the dense peak, forward, head size 128, 8k and longer, causal with the causal half
 * of the FLOPs counted: FlashAttention-2 on A100 about 200/312, FlashAttention-2 on H100 335/989 and
 * cuDNN 530/989 (FA3 paper's figures); head size 64: 0.85 and 0.72 of that. PyTorch 2.x on H100 runs
 * FlashAttention-2. Backward: 0.85 of forward's rate (FA2 paper: 63 % against 73 % on A100). */
static double attention_share(const sf_gpu *gpu, int head_dim, int seq, bool backward, sf_attention_kernel kernel)
{
    double cc = gpu->compute_capability;
    double share = cc >= 9.0 ? 0.34 : cc >= 8.0 ? 0.62 : 0.25;
    /* FlashAttention-1 is about half as fast (FlashAttention-2 paper, section 4.1: 1.7 to 3.0 times, A100 and H100) */
    share *= kernel == SF_KERNEL_FLASH1 ? 0.5 : 1.0;
    /* cuDNN's on Hopper: 529 of 989 TFLOPS at 8k, causal, head size 128 (FA3 paper's figures) */
    if (kernel == SF_KERNEL_CUDNN && cc >= 9.0)
        share = 0.54;
    if (head_dim <= 64)
        share *= cc >= 9.0 ? 0.88 : 0.85;
    /* short sequences fill less of a tile row and of the machine: FA2 on H100, causal, 191 at 512, 260 at
     * 1k, 298 at 2k, 319 at 4k, 333 at 8k of 335 TFLOPS: a half-length of about 380 tokens */
    share *= (double)seq / ((double)seq + 380.0);
    return backward ? share * 0.85 : share;
}

/* ---- the model ---- */

/* Under a training step's steady load the power limit lowers the clock below that of a short benchmark: H100 runs matrix
 * products at 1.4 to 1.7 of its 1.83 GHz (reports of sustained clocks; 0.80 is 1.46 GHz), and A100 slows by an eighth when the operands
 * are random rather than constant (H. He, "Matrix multiplications on GPUs run faster when given predictable data", 2024:
 * about 258 against 297 TFLOPS). Within these ranges the values are those with which published training runs agree. A part of
 * the same silicon with less power for each SM clocks lower by the cube root (dynamic power is f V^2, and V follows f), which its
 * rated clock may have taken into account. Cards that reach their data sheet are rated at the clock that they keep. */
static double sustained_share(const sf_gpu *gpu)
{
    static const struct { double cc, share, tdp_w, sms, flops; } sxm[] = { { 9.0, 0.80, 700, 132, 989e12 }, { 8.0, 0.86, 400, 108, 312e12 } };
    double cc = gpu->compute_capability;
    bool keeps = cc >= 12.0 || (cc >= 8.55 && cc < 8.95);
    if (keeps || gpu->vendor[0] != 'N')
        return 1.0;
    for (size_t i = 0; i < sizeof sxm / sizeof sxm[0]; i++)
        if (cc == sxm[i].cc && gpu->tdp_w > 0 && gpu->sm_count > 0) {
            double power = gpu->tdp_w / gpu->sm_count / (sxm[i].tdp_w / sxm[i].sms);
            double rated = gpu->bf16_flops / gpu->sm_count / (sxm[i].flops / sxm[i].sms);
            return fmin(1.0, sxm[i].share * cbrt(fmin(1.0, power)) / rated);
        }
    return cc >= 9.0 ? 0.80 : 0.86;
}

static double peak_flops(const sf_gpu *gpu, sf_dtype dtype, bool tf32)
{
    switch (dtype) {
    case SF_BF16: return gpu->bf16_flops > 0 ? gpu->bf16_flops : gpu->fp32_flops; /* emulated before Ampere */
    case SF_F16: return gpu->fp16_flops > 0 ? gpu->fp16_flops : gpu->fp32_flops;
    case SF_F8: return gpu->fp8_flops;
    default: return tf32 && gpu->tf32_flops > 0 ? gpu->tf32_flops : gpu->fp32_flops;
    }
}

double sf_gpu_reachable_flops(const sf_gpu *gpu, sf_dtype dtype, bool tf32)
{
    return peak_flops(gpu, dtype, tf32) * reachable_share(gpu) * sustained_share(gpu);
}

double sf_gpu_memory_time_s(const sf_gpu *gpu, double bytes, int launches)
{
    return bytes / (gpu->memory_Bps * hbm_share) + launches * kernel_gap_s;
}

/* Share of the SMs' time that is not lost to the last wave and to tiles that stick out, with the best tile from 128 x 256 down to
 * 64 x 64, as cuBLAS' heuristics choose. Each halving of a tile costs a twelfth of its rate: 128 x 128 reaches about 93 % of
 * 128 x 256 (CUTLASS profiler, A100). Below one wave split-K gives at least half of the SMs work. */
static double wave_share(const sf_gpu *gpu, double m, double n, double batch)
{
    double tile_m = TILE_M, tile_n = TILE_N, rate = 1.0, best = 0;
    while (tile_m >= 64) {
        double rows = ceil(m / tile_m), cols = ceil(n / tile_n), waves = rows * cols * batch / gpu->sm_count;
        double full = waves <= 1.0 ? fmax(waves, 0.5) : waves / ceil(waves);
        best = fmax(best, rate * full * (m / (rows * tile_m)) * (n / (cols * tile_n)));
        if (tile_n > tile_m)
            tile_n /= 2;
        else
            tile_m /= 2;
        rate *= 0.93;
        if (tile_n < 64)
            break;
    }
    return best;
}

double sf_gpu_gemm_time_s(const sf_gpu *gpu, sf_dtype dtype, bool tf32, double m, double n, double k, double batch)
{
    double flop = 2 * m * n * k * batch;
    double rate = sf_gpu_reachable_flops(gpu, dtype, tf32) * wave_share(gpu, m, n, batch) * alignment_share(n, k);
    double bytes = batch * (m * k + n * k + m * n) * (double)sf_dtype_bytes(dtype);
    return fmax(flop / rate, bytes / (gpu->memory_Bps * hbm_share)) + kernel_gap_s;
}

double sf_gpu_attention_time_s(const sf_gpu *gpu, sf_dtype dtype, double flop, double bytes, int head_dim, int seq, bool backward, sf_attention_kernel kernel)
{
    double rate = peak_flops(gpu, dtype, true) * attention_share(gpu, head_dim, seq, backward, kernel);
    return fmax(flop / rate, bytes / (gpu->memory_Bps * hbm_share)) + kernel_gap_s;
}

static sf_dtype dtype_of(const sf_class *cls, const sf_issue *issue)
{
    return issue->op->n_args > 0 && issue->op->args[0].buffer >= 0 ? cls->buffers[issue->op->args[0].buffer].dtype : SF_BF16;
}

/* Kernels of a framework. */
static double frame_time_s(const sf_gpu *gpu, const sf_class *cls, const sf_issue *issue)
{
    const sf_op *op = issue->op;
    const sf_dims *d = &op->dims;
    bool tf32 = (op->kind & SF_FRAME_TF32) != 0;
    sf_dtype dtype = dtype_of(cls, issue);

    if (op->type == SF_OP_F_GEMM)
        return sf_gpu_gemm_time_s(gpu, op->kind & SF_FRAME_FP8 ? SF_F8 : dtype, tf32, (double)d->m, (double)d->n, (double)d->k, (double)d->batch);
    if (op->type == SF_OP_F_SDPA_FWD || op->type == SF_OP_F_SDPA_BWD)
        return sf_gpu_attention_time_s(gpu, dtype, (double)op->flop, (double)op->bytes, d->head_dim, d->seq, op->type == SF_OP_F_SDPA_BWD,
                                       op->kind & SF_FRAME_FLASH1  ? SF_KERNEL_FLASH1
                                       : op->kind & SF_FRAME_CUDNN ? SF_KERNEL_CUDNN
                                                                   : SF_KERNEL_FLASH2);
    return sf_gpu_memory_time_s(gpu, (double)op->bytes, op->launches > 0 ? op->launches : 1);
}

double sf_gpu_op_time_s(const sf_gpu *gpu, double pcie_Bps, const sf_class *cls, const sf_issue *issue)
{
    const sf_op *op = issue->op;
    double bytes = (double)op->bytes;

    switch (sf_op_kind_of(op->type)) {
    case SF_KIND_GEMM:
        return sf_gpu_gemm_time_s(gpu, dtype_of(cls, issue), true, (double)op->dims.m, (double)op->dims.n, (double)op->dims.k, 1);
    case SF_KIND_ATTN:
        return sf_gpu_attention_time_s(gpu, dtype_of(cls, issue), (double)op->flop, bytes, op->dims.head_dim, op->dims.seq, op->type == SF_OP_ATTN_BWD, SF_KERNEL_FLASH2);
    case SF_KIND_COPY:
        return op->type == SF_OP_LOAD_BATCH ? kernel_gap_s : bytes / pcie_Bps + kernel_gap_s;
    case SF_KIND_FRAME:
        return frame_time_s(gpu, cls, issue);
    case SF_KIND_MEMORY:
    case SF_KIND_OPTIM:
        return sf_gpu_memory_time_s(gpu, bytes, op->launches > 0 ? op->launches : 1);
    default:
        return 0;
    }
}
