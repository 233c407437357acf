/* model/strategy/torch.h: what PyTorch's eager execution of a transformer issues, and the places where a strategy
 * (DDP, FSDP, DeepSpeed ZeRO ...) puts its own.
 *
 * The model (torch_model.c, torch_block.c, torch_loss.c) allocates and frees every tensor that a module makes or that
 * autograd keeps, in eager order, as Transformers' modules do, so that the accountant's peak is PyTorch's allocated peak
 * and the caching allocator can be replayed from the same sequence. Layers are unrolled; micro-steps are a loop. A
 * strategy says where gradients go and what is gathered when.
 *
 * Units (what strategies gather and reduce)   EMBED (tables), block 0 .. L-1, FINAL (norm), HEAD. With a tied head the
 *   table is EMBED's and the head uses it.
 * Judged by   tests/data/oracle/{saved_activations,collectives}.json (tests/model/test_torch*.c).
 */
#ifndef SF_STRATEGY_TORCH_H
#define SF_STRATEGY_TORCH_H

#include "model/desc/job.h"
#include "model/program/build.h"

/* A live tensor: an instance of a buffer family. */
typedef struct {
    int family, index; /* family -1: no tensor */
} sf_tt;

typedef struct {
    uint64_t numel;    /* of one copy                                            */
    uint64_t rows;     /* dim 0                                                  */
    int copies;        /* an expert's tensor, once an expert                     */
    int tensor;        /* index in the model's tensor list                       */
    int unit;
    sf_role role;
    sf_tt grad;        /* where its gradient is, while there is one              */
    bool done;         /* its gradient has come in this backward                 */
} sf_torch_param;

static inline uint64_t sf_torch_param_elems(const sf_torch_param *p)
{
    return p->numel * (uint64_t)p->copies;
}

typedef struct {
    const char *name;
    int first, count;  /* parameters                                             */
    uint64_t elems;
} sf_torch_unit;

typedef struct sf_torch sf_torch;

/* Hooks may be NULL. */
typedef struct {
    void (*declare)(sf_torch *t);                    /* persistent buffers                                        */
    void (*step_begin)(sf_torch *t);
    void (*micro_begin)(sf_torch *t);
    void (*forward_begin)(sf_torch *t, int unit);    /* its parameters are used next                              */
    void (*forward_end)(sf_torch *t, int unit);
    void (*backward_begin)(sf_torch *t, int unit);   /* also before a block's recomputation                       */
    sf_tt (*grad_take)(sf_torch *t, int param);      /* a tensor for this micro-step's gradient                   */
    void (*grad_done)(sf_torch *t, int param, sf_tt grad);
    void (*backward_end)(sf_torch *t, int unit);     /* all gradients of the unit are done (EMBED's come last)    */
    void (*micro_end)(sf_torch *t);
    void (*step_end)(sf_torch *t);                   /* clipping, optimizer                                       */
} sf_torch_hooks;

typedef struct {
    const char *name;
    sf_category category;
    sf_dtype dtype;
    uint64_t elems;
    sf_stream home;
    int buffer;        /* family in the class                                    */
    bool *used;        /* [count]                                                */
    int count, cap;
} sf_torch_family;

struct sf_torch {
    const sf_job *job;
    const sf_transformer *model;
    const sf_torch_hooks *hooks;
    void *state;
    sf_arena *arena;
    sf_builder b;
    sf_program *program;
    sf_torch_family *families;
    size_t n_families, cap_families;
    sf_torch_param *params;
    int n_params;
    sf_torch_unit *units;
    int n_units;
    uint64_t elems;            /* of all parameters                                                       */
    int world_size, n_layers, n_micro;
    int64_t batch, seq, rows;  /* rows = batch * seq                                                      */
    bool autocast;             /* f32 weights under torch.autocast                                        */
    bool compiled, recompute, selective;
    bool in_recompute;         /* ops issued now are computed a second time                               */
    bool fp8;                  /* linears issued now multiply 8-bit operands: those of blocks, not the head */
    sf_dtype weight;           /* of the parameters that modules hold in use                              */
    sf_dtype compute;          /* of matrix products                                                      */
    sf_dtype stream;           /* of the residual stream                                                  */
    double dropout;
    bool attention_dropout;
    bool framework_norm;       /* norms are one kernel (LayerNorm, fused RMSNorm), not Transformers' RMSNorm */
};

/* ---- tensors and kernels, for the model and for strategies ---- */

enum { SF_NO_TENSOR = -1 };
static inline sf_tt sf_torch_none(void) { return (sf_tt){ SF_NO_TENSOR, 0 }; }
static inline bool sf_torch_is(sf_tt x) { return x.family != SF_NO_TENSOR; }

sf_tt sf_torch_take(sf_torch *t, const char *name, sf_category category, sf_dtype dtype, uint64_t elems);
sf_tt sf_torch_take_on(sf_torch *t, const char *name, sf_category category, sf_dtype dtype, uint64_t elems, sf_stream home);
/* Emits the FREE; none is fine. The guards of both apply to [micro_lo, micro_hi]. */
void sf_torch_give(sf_torch *t, sf_tt x);
sf_tt sf_torch_take_micro(sf_torch *t, const char *name, sf_category category, sf_dtype dtype, uint64_t elems, int micro_lo, int micro_hi);
void sf_torch_give_micro(sf_torch *t, sf_tt x, int micro_lo, int micro_hi);
/* A buffer that is there all the time. */
sf_tt sf_torch_persistent(sf_torch *t, const char *name, sf_category category, sf_space space, sf_dtype dtype, uint64_t elems);
sf_arg sf_torch_arg(const sf_torch *t, sf_tt x, sf_access access);

/* A memory-bound kernel that writes `out` (may be none). */
sf_op *sf_torch_kernel(sf_torch *t, const char *label, sf_tt out, uint64_t bytes, int launches);
sf_op *sf_torch_gemm(sf_torch *t, const char *label, sf_tt out, sf_dtype dtype, int64_t m, int64_t n, int64_t k, int64_t batch);
/* A collective of `elems` on the comm stream: it starts after all compute issued so far unless `early`; whoever uses its
 * result waits (sf_torch_wait). Returns the event. */
typedef struct {
    sf_op_type type;
    sf_group group;
    const char *label;
    sf_tt in, out;             /* reduce_scatter: in whole, out shard; all_gather: in shard, out whole      */
    uint64_t elems;            /* of the whole array                                                        */
    int after;                 /* event it waits for, or -1: all compute so far, or -2: nothing            */
} sf_torch_comm;
int sf_torch_collective(sf_torch *t, sf_torch_comm c);
int sf_torch_mark(sf_torch *t, sf_stream stream);          /* record a fresh event                           */
void sf_torch_wait(sf_torch *t, sf_stream stream, int event);

/* ---- optimizers over tensors of the given sizes ---- */
typedef struct {
    uint64_t elems;            /* of the rank                                                               */
    uint64_t largest;          /* of one tensor                                                             */
    int tensors;
    sf_dtype param, grad, state; /* types of the updated values, of the gradients, of the moments           */
    bool fused;                /* DeepSpeed's FusedAdam                                                     */
    bool on_host;
} sf_torch_update;
/* Bytes of optimizer state per element. */
double sf_torch_state_bytes(int64_t optimizer, sf_dtype state);
void sf_torch_declare_moments(sf_torch *t, const sf_torch_update *u);
void sf_torch_optimizer(sf_torch *t, const sf_torch_update *u);
/* torch.nn.utils.clip_grad_norm_ over gradients of so many elements; sharded: one scalar all_reduce. */
void sf_torch_clip(sf_torch *t, uint64_t elems, sf_dtype dtype, bool sharded);

/* A parameter's gradient is there. */
void sf_torch_grad_done(sf_torch *t, int param, sf_tt grad);
/* Those of a unit that no op of the model spoke of: small ones of rare kinds. */
void sf_torch_grads_finish(sf_torch *t, int unit);

/* ---- the model ---- */
sf_status sf_torch_open(const sf_job *job, sf_arena *arena, sf_torch *out);
/* Writes the step of one class of all ranks. */
sf_status sf_torch_write(sf_torch *t, const sf_torch_hooks *hooks, void *state, sf_program *out);


sf_status sf_lower_torch_single(const sf_job *job, sf_arena *arena, sf_program *out);
sf_status sf_lower_torch_ddp(const sf_job *job, sf_arena *arena, sf_program *out);
sf_status sf_lower_torch_fsdp(const sf_job *job, sf_arena *arena, sf_program *out);
sf_status sf_lower_torch_fsdp2(const sf_job *job, sf_arena *arena, sf_program *out);
sf_status sf_lower_torch_dp(const sf_job *job, sf_arena *arena, sf_program *out);
sf_status sf_lower_deepspeed_ddp(const sf_job *job, sf_arena *arena, sf_program *out);
sf_status sf_lower_deepspeed_zero1(const sf_job *job, sf_arena *arena, sf_program *out);
sf_status sf_lower_deepspeed_zero2(const sf_job *job, sf_arena *arena, sf_program *out);
sf_status sf_lower_deepspeed_zero3(const sf_job *job, sf_arena *arena, sf_program *out);

#endif
