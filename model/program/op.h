/* model/program/op.h: the list of ops. Adding one is one row here; tests fail while the printer,
 * the cost model, the simulator or an executor lacks it.
 *
 * Row     id, name as printed, kind; then its arguments (r read, w written, rw both, ? optional).
 * Kinds   MEM     acts at issue, costs nothing          SYNC   orders streams, costs nothing
 *         GEMM    dense matrix product (dims m n k)     ATTN   attention core
 *         MEMORY  bound by bytes read and written       OPTIM  optimizer arithmetic
 *         COMM    collective of dims.n elements of args[0]'s dtype over `group`
 *         COPY    between host and device memory
 *         FRAME   a kernel of a framework: modelled, but not one that our executors have
 * Shapes  N = dims.m = micro_batch * seq_len rows (tokens), row-major; element-wise ops work on
 *         dims.n elements.
 */
#ifndef SF_PROGRAM_OP_H
#define SF_PROGRAM_OP_H

#define SF_OPS(X)                                                                                  \
    X(ALLOC, "alloc", MEM) /* args[0] */                                                           \
    X(FREE, "free", MEM)   /* args[0] */                                                           \
    X(RECORD, "record", SYNC)                                                                      \
    X(WAIT, "wait", SYNC)                                                                          \
    X(HOST_SYNC, "host_sync", SYNC) /* the issuing host waits for all its streams */               \
    /* the micro-step's tokens and next-token targets: w tokens (N) i32, w targets (N) i32 */      \
    X(LOAD_BATCH, "load_batch", COPY)                                                              \
    /* forward */                                                                                  \
    X(EMBED_FWD, "embed_fwd", MEMORY) /* r tokens, r wte (k,n), r? wpe (seq,n), w x (m,n) */       \
    X(NORM_FWD, "norm_fwd", MEMORY)   /* r x (m,n), r w (n), r? b (n), w y (m,n), w stats (2m) f32; kind sf_op_norm */ \
    X(LINEAR_FWD, "linear_fwd", GEMM) /* r x (m,k), r W (n,k), r? b (n), w y (m,n) */              \
    X(ROPE_FWD, "rope_fwd", MEMORY)   /* rw qkv (m,(heads+2kv_heads)*head_dim) */                  \
    X(ATTN_FWD, "attn_fwd", ATTN)     /* r qkv, w out (m,heads*head_dim), w lse (batch,heads,seq) f32 */ \
    X(ACT_FWD, "act_fwd", MEMORY)     /* r in (m,n; gated: m,2n), w out (m,n); kind sf_op_act */   \
    X(ADD, "add", MEMORY)             /* r a, r b, w out */                                        \
    X(XENT, "xent", MEMORY)           /* rw logits (m,n): become their gradient * scale; r targets, w loss (m) f32 */ \
    /* backward */                                                                                 \
    X(LINEAR_BWD_X, "linear_bwd_x", GEMM) /* r dy (m,n), r W (n,k), w dx (m,k); accumulate */      \
    X(LINEAR_BWD_W, "linear_bwd_w", GEMM) /* r dy (m,n), r x (m,k), w dW (n,k), w? db (n); accumulate */ \
    X(NORM_BWD, "norm_bwd", MEMORY)   /* r dy, r x, r w, r stats, rw dx (dx += ...), w dw, w? db; accumulate is of dw, db */ \
    X(ROPE_BWD, "rope_bwd", MEMORY)   /* rw dqkv */                                                \
    X(ATTN_BWD, "attn_bwd", ATTN)     /* r dout, r qkv, r out, r lse, w dqkv */                    \
    X(ACT_BWD, "act_bwd", MEMORY)     /* r dy (m,n), r in, w dx */                                 \
    X(EMBED_BWD, "embed_bwd", MEMORY) /* r dx (m,n), r tokens, w dwte (k,n), w? dwpe (seq,n); accumulate is of dwte unless kind = 1 (tied: dwte is always added to) */ \
    /* element-wise */                                                                             \
    X(ACCUMULATE, "accumulate", MEMORY) /* r src, rw dst: dst += src */                            \
    X(CAST, "cast", MEMORY)             /* r src, w dst of another dtype */                        \
    X(COPY, "copy", MEMORY)             /* r src, w dst */                                         \
    X(ZERO, "zero", MEMORY)             /* w dst */                                                \
    X(SUMSQ, "sumsq", MEMORY)           /* r x, rw sum (1) f64; accumulate: else the sum starts at 0 */ \
    /* r grad, rw master f32, rw m f32, rw v f32, w? param (master in the compute type), r? sumsq */ \
    X(ADAMW, "adamw", OPTIM)                                                                       \
    /* collectives */                                                                              \
    X(ALL_REDUCE, "all_reduce", COMM)         /* rw x */                                           \
    X(ALL_GATHER, "all_gather", COMM)         /* r shard, w whole (dims.n) */                      \
    X(REDUCE_SCATTER, "reduce_scatter", COMM) /* r whole (dims.n), w shard */                      \
    X(BROADCAST, "broadcast", COMM)           /* rw x, from the group's rank 0 */                  \
    X(REDUCE, "reduce", COMM)                 /* rw x, to the group's rank 0 */                    \
    X(SCATTER, "scatter", COMM)               /* r? whole (dims.n) on rank 0, w part */            \
    X(GATHER, "gather", COMM)                 /* r part, w? whole (dims.n) on rank 0 */            \
    X(ALL_TO_ALL, "all_to_all", COMM)         /* r x (dims.n), w y */                              \
    /* host memory */                                                                              \
    X(COPY_H2D, "copy_h2d", COPY) /* r host, w device */                                           \
    X(COPY_D2H, "copy_d2h", COPY) /* r device, w host */                                           \
    /* framework kernels: any arguments, cost by dims or by bytes */                               \
    X(F_GEMM, "f_gemm", FRAME)     /* batch products of m n k */                                   \
    X(F_KERNEL, "f_kernel", FRAME) /* memory-bound, `bytes` */                                     \
    X(F_SDPA_FWD, "f_sdpa_fwd", FRAME)                                                             \
    X(F_SDPA_BWD, "f_sdpa_bwd", FRAME)                                                             \
    X(F_OPTIM, "f_optim", FRAME)   /* optimizer kernels, `bytes` */

#define SF_AS_ENUM(id, name, kind) SF_OP_##id,
typedef enum { SF_OPS(SF_AS_ENUM) SF_OP_COUNT } sf_op_type;
#undef SF_AS_ENUM

/* `kind` of FRAME ops: bits. */
enum { SF_FRAME_RECOMPUTE = 1, SF_FRAME_TF32 = 2, SF_FRAME_FP8 = 4, SF_FRAME_FLASH1 = 8, SF_FRAME_CUDNN = 16 };

#define SF_OP_KINDS(X)                                                                             \
    X(MEM, "mem") X(SYNC, "sync") X(GEMM, "gemm") X(ATTN, "attention") X(MEMORY, "memory")         \
    X(OPTIM, "optimizer") X(COMM, "comm") X(COPY, "copy") X(FRAME, "framework")
#define SF_AS_ENUM(id, name) SF_KIND_##id,
typedef enum { SF_OP_KINDS(SF_AS_ENUM) SF_KIND_COUNT } sf_op_kind;
#undef SF_AS_ENUM

typedef enum { SF_OP_NORM_LAYER, SF_OP_NORM_RMS } sf_op_norm;
typedef enum { SF_OP_ACT_GELU_TANH, SF_OP_ACT_GELU_ERF, SF_OP_ACT_RELU, SF_OP_ACT_SWIGLU } sf_op_act;

const char *sf_op_name(sf_op_type type);
sf_op_kind sf_op_kind_of(sf_op_type type);
const char *sf_op_kind_name(sf_op_kind kind);
sf_op_type sf_op_by_name(const char *name); /* SF_OP_COUNT if there is none */

#endif
