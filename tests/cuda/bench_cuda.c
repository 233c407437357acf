/* tests/cuda/bench_cuda.c: how fast the kernels and products are on this GPU, at the shapes of a training step.
 *
 *     bench_cuda [micro_batch seq_len hidden heads kv_heads head_dim ffn vocab]
 *
 * Default: GPT-2 1.5B (8 sequences of 1024, hidden 1600, 25 heads of 64, ffn 6400, vocabulary 50257), bf16. Best of
 * 20 calls, each between two events. FLOP: causal attention counts half the square, its backward 2.5 times the
 * forward (two products against five). GB/s: bytes that the op must read and write once.
 */
#include <stdio.h>
#include <stdlib.h>

#include "exec/cuda/cuda_gemm.h"
#include "exec/cuda/kernels.h"

enum { CALLS = 20 };

typedef struct {
    sf_cuda_device *dev;
    sf_cuda_gemm *gemm;
    sf_cuda_stream stream;
    size_t batch, seq, hidden, heads, kv_heads, head_dim, ffn, vocab, rows, qkv;
    void *a, *b, *c, *w, *ws; /* activations of rows * the widest, a weight of vocab * hidden, scratch */
    float *f;                 /* rows * heads statistics */
    int32_t *tokens;
} bench;

typedef sf_status (*call)(bench *b);

#define KERNEL(expr) sf_cuda_device_launched(b->dev, (expr), #expr)
static sf_status attn_fwd(bench *b)
{
    return KERNEL(sf_cuda_attn_fwd(b->stream, SF_BF16, b->batch, b->seq, b->heads, b->kv_heads, b->head_dim, b->a, b->b, b->f));
}
static sf_status attn_bwd(bench *b)
{
    return KERNEL(sf_cuda_attn_bwd(b->stream, SF_BF16, b->batch, b->seq, b->heads, b->kv_heads, b->head_dim, b->b, b->a, b->b,
                                   b->f, b->c, b->ws));
}
static sf_status norm_fwd(bench *b)
{
    return KERNEL(sf_cuda_norm_fwd(b->stream, SF_BF16, SF_BF16, SF_OP_NORM_LAYER, b->rows, b->hidden, b->a, b->w, b->w, 1e-5f,
                                   b->b, b->f, b->f + b->rows));
}
static sf_status norm_bwd(bench *b)
{
    return KERNEL(sf_cuda_norm_bwd(b->stream, SF_BF16, SF_BF16, SF_BF16, SF_OP_NORM_LAYER, b->rows, b->hidden, b->a, b->b, b->w,
                                   b->f, b->f + b->rows, 1, b->c, 0, (char *)b->w + 65536, (char *)b->w + 131072, b->ws));
}
static sf_status gelu_fwd(bench *b)
{
    return KERNEL(sf_cuda_act_fwd(b->stream, SF_BF16, SF_OP_ACT_GELU_TANH, b->rows, b->ffn, b->a, b->b));
}
static sf_status gelu_bwd(bench *b)
{
    return KERNEL(sf_cuda_act_bwd(b->stream, SF_BF16, SF_OP_ACT_GELU_TANH, b->rows, b->ffn, b->a, b->b, b->c));
}
static sf_status add(bench *b)
{
    return KERNEL(sf_cuda_add(b->stream, SF_BF16, b->rows * b->hidden, b->a, b->b, b->c));
}
static sf_status xent(bench *b)
{
    return KERNEL(sf_cuda_xent(b->stream, SF_BF16, b->rows, b->vocab, b->a, b->tokens, 1.0f, b->f));
}
static sf_status embed_bwd(bench *b)
{
    return KERNEL(sf_cuda_embed_bwd(b->stream, SF_BF16, SF_BF16, b->rows, b->seq, b->hidden, b->vocab, b->tokens, b->a, 1, b->w, 1,
                                    b->b, b->ws));
}
static sf_status bias_grad(bench *b)
{
    return KERNEL(sf_cuda_bias_grad(b->stream, SF_BF16, SF_BF16, b->rows, b->ffn, b->a, 0, b->b, b->ws));
}
static sf_status adamw(bench *b)
{
    static const sf_cuda_adamw_step step = { .lr = 1e-4, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .step = 1,
                                             .grad_scale = 1.0, .decay_first = 1 };
    size_t n = b->rows * b->hidden;
    return KERNEL(sf_cuda_adamw(b->stream, &step, n, SF_BF16, b->w, NULL, b->a, b->b, b->c, SF_BF16, b->w));
}
static sf_status fc_fwd(bench *b)
{
    return sf_cuda_linear_fwd(b->gemm, b->stream, SF_BF16, SF_BF16, b->rows, b->hidden, b->ffn, b->a, b->w, b->w, NULL, b->b);
}
static sf_status fc_bwd_x(bench *b)
{
    return sf_cuda_linear_bwd_x(b->gemm, b->stream, SF_BF16, b->rows, b->hidden, b->ffn, b->a, b->w, false, NULL, b->b);
}
static sf_status fc_bwd_w(bench *b)
{
    return sf_cuda_linear_bwd_w(b->gemm, b->stream, SF_BF16, SF_BF16, b->rows, b->hidden, b->ffn, b->a, b->b, true, b->w);
}
static sf_status head_fwd(bench *b)
{
    return sf_cuda_linear_fwd(b->gemm, b->stream, SF_BF16, SF_BF16, b->rows, b->hidden, b->vocab, b->b, b->w, NULL, NULL, b->a);
}

static sf_status measure(bench *b, const char *name, call fn, double flop, double bytes)
{
    double best = 1e9, s;
    SF_TRY(fn(b));
    SF_TRY(sf_cuda_device_sync_all(b->dev));
    for (int i = 0; i < CALLS; i++) {
        SF_TRY(sf_cuda_device_mark(b->dev, SF_STREAM_COMPUTE, 0));
        SF_TRY(fn(b));
        SF_TRY(sf_cuda_device_mark(b->dev, SF_STREAM_COMPUTE, 1));
        SF_TRY(sf_cuda_device_sync_all(b->dev));
        SF_TRY(sf_cuda_device_elapsed(b->dev, 0, 1, &s));
        best = s < best ? s : best;
    }
    printf("%-12s %10.1f us", name, 1e6 * best);
    if (flop > 0)
        printf(" %8.1f TFLOP/s", 1e-12 * flop / best);
    if (bytes > 0)
        printf(" %8.0f GB/s", 1e-9 * bytes / best);
    printf("\n");
    return SF_SUCCESS;
}

static sf_status run(bench *b)
{
    const sf_cuda_api *api = NULL;
    SF_TRY(sf_cuda_api_real(&api));
    SF_TRY(sf_cuda_device_open(api, 0, &b->dev));
    const sf_cuda_found *found = sf_cuda_device_found(b->dev);
    uint64_t ws_bytes = sf_cuda_gemm_ws_bytes(found->cc_major);
    void *gemm_ws = NULL, *host = NULL;
    b->rows = b->batch * b->seq;
    b->qkv = (b->heads + 2 * b->kv_heads) * b->head_dim;
    b->stream = sf_cuda_device_stream(b->dev, SF_STREAM_COMPUTE);

    size_t widest = b->vocab > b->ffn ? b->vocab : b->ffn, rows = b->rows, attn = b->heads * b->head_dim, scratch = 16 << 20;
    const size_t needs[] = { sf_cuda_attn_bwd_ws_bytes(b->batch, b->seq, b->heads), sf_cuda_norm_bwd_ws_bytes(rows, b->hidden),
                             sf_cuda_embed_bwd_ws_bytes(rows, b->vocab), sf_cuda_bias_grad_ws_bytes(rows, b->ffn) };
    for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++)
        scratch = needs[i] > scratch ? needs[i] : scratch;
    widest = b->qkv > widest ? b->qkv : widest;
    widest = 2 * b->hidden > widest ? 2 * b->hidden : widest; /* float arrays of rows * hidden for AdamW */
    size_t weight = (b->vocab > rows ? b->vocab : rows) * b->hidden * 2;
    weight = b->ffn * b->hidden * 2 > weight ? b->ffn * b->hidden * 2 : weight;
    SF_TRY(sf_cuda_device_take(b->dev, rows * widest * 2, &b->a));
    SF_TRY(sf_cuda_device_take(b->dev, rows * widest * 2, &b->b));
    SF_TRY(sf_cuda_device_take(b->dev, rows * widest * 2, &b->c));
    SF_TRY(sf_cuda_device_take(b->dev, weight > 1 << 20 ? weight : 1 << 20, &b->w));
    SF_TRY(sf_cuda_device_take(b->dev, scratch, &b->ws));
    SF_TRY(sf_cuda_device_take(b->dev, ws_bytes, &gemm_ws));
    SF_TRY(sf_cuda_device_take(b->dev, rows * (b->heads > 2 ? b->heads : 2) * sizeof(float), (void **)&b->f));
    SF_TRY(sf_cuda_device_take(b->dev, rows * sizeof(int32_t), (void **)&b->tokens));
    SF_TRY(sf_cuda_device_pinned(b->dev, rows * widest * 2, &host));
    for (size_t i = 0; i < rows * widest; i++) /* bf16 of about [-1, 1]: zeros would run faster than training does */
        ((uint16_t *)host)[i] = (uint16_t)((i * 2654435761u >> 16 & 0x807f) | 0x3f00);
    SF_TRY(sf_cuda_device_copy(b->dev, SF_STREAM_COMPUTE, b->a, host, rows * widest * 2));
    SF_TRY(sf_cuda_device_copy(b->dev, SF_STREAM_COMPUTE, b->b, host, rows * widest * 2));
    SF_TRY(sf_cuda_device_sync_all(b->dev));
    for (size_t i = 0; i < rows; i++)
        ((int32_t *)host)[i] = (int32_t)(i * 2654435761u % b->vocab);
    SF_TRY(sf_cuda_device_copy(b->dev, SF_STREAM_COMPUTE, b->tokens, host, rows * sizeof(int32_t)));
    SF_TRY(sf_cuda_device_marks(b->dev, 2));
    SF_TRY(sf_cuda_gemm_open(b->dev, false, gemm_ws, ws_bytes, &b->gemm));

    printf("# %s, compute capability %d.%d, %d SMs, driver %d; bf16; batch %zu seq %zu hidden %zu heads %zu/%zu of %zu ffn %zu "
           "vocab %zu; best of %d\n", found->name, found->cc_major, found->cc_minor, found->sm_count, found->driver_version,
           b->batch, b->seq, b->hidden, b->heads, b->kv_heads, b->head_dim, b->ffn, b->vocab, (int)CALLS);
    double r = (double)rows, square = 2.0 * r * (double)b->seq * (double)attn; /* 2 products, half the square */
    double h = (double)b->hidden, f = (double)b->ffn, v = (double)b->vocab;
    SF_TRY(measure(b, "attn_fwd", attn_fwd, square, 0));
    SF_TRY(measure(b, "attn_bwd", attn_bwd, 2.5 * square, 0));
    SF_TRY(measure(b, "fc_fwd", fc_fwd, 2 * r * h * f, 0));
    SF_TRY(measure(b, "fc_bwd_x", fc_bwd_x, 2 * r * h * f, 0));
    SF_TRY(measure(b, "fc_bwd_w", fc_bwd_w, 2 * r * h * f, 0));
    SF_TRY(measure(b, "head_fwd", head_fwd, 2 * r * h * v, 0));
    SF_TRY(measure(b, "norm_fwd", norm_fwd, 0, 4 * r * h));
    SF_TRY(measure(b, "norm_bwd", norm_bwd, 0, 8 * r * h));
    SF_TRY(measure(b, "gelu_fwd", gelu_fwd, 0, 4 * r * f));
    SF_TRY(measure(b, "gelu_bwd", gelu_bwd, 0, 6 * r * f));
    SF_TRY(measure(b, "add", add, 0, 6 * r * h));
    SF_TRY(measure(b, "bias_grad", bias_grad, 0, 2 * r * f));
    SF_TRY(measure(b, "xent", xent, 0, 4 * r * v));
    SF_TRY(measure(b, "embed_bwd", embed_bwd, 0, 2 * r * h + 4 * r * h));
    SF_TRY(measure(b, "adamw", adamw, 0, 28 * r * h));
    return SF_SUCCESS;
}

int main(int argc, char **argv)
{
    bench b = { .batch = 8, .seq = 1024, .hidden = 1600, .heads = 25, .kv_heads = 25, .head_dim = 64, .ffn = 6400, .vocab = 50257 };
    size_t *const sizes[] = { &b.batch, &b.seq, &b.hidden, &b.heads, &b.kv_heads, &b.head_dim, &b.ffn, &b.vocab };
    if (argc != 1 && argc != 9) {
        fprintf(stderr, "usage: bench_cuda [micro_batch seq_len hidden heads kv_heads head_dim ffn vocab]\n");
        return 2;
    }
    for (int i = 1; i < argc; i++)
        *sizes[i - 1] = strtoul(argv[i], NULL, 10);
    sf_status st = run(&b);
    if (st.code != SF_OK)
        fprintf(stderr, "bench_cuda: %s\n", st.msg);
    sf_cuda_gemm_close(b.gemm);
    sf_cuda_device_close(b.dev);
    return st.code == SF_OK ? 0 : 3;
}
