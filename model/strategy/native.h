/* model/strategy/native.h: lowerings for our own executor: the model's ops, and the places where a
 * strategy puts its own.
 *
 * The model (native_model.c) writes the training loop: micro-steps, layers forward, layers
 * backward. A strategy (native_replica.c, native_shard.c) says where each parameter and gradient
 * lies and adds its collectives at the hooks.
 *
 * Slots   The executor's view of the parameters. Linear weights are (out, in) row-major; q, k and v
 *         are one matrix, and so are gate and up, since their tensors are laid one after the other.
 * Units   What is sharded or reduced together: EMBED (token and position tables), ATTN and MLP (the
 *         halves of a block, one instance per layer), HEAD (final norm and output matrix). With a
 *         tied head EMBED holds the table for both.
 */
#ifndef SF_STRATEGY_NATIVE_H
#define SF_STRATEGY_NATIVE_H

#include "model/desc/job.h"
#include "model/program/build.h"

/*     id    unit   matrix: weight decay applies */
#define SF_SLOTS(X)                                                                                \
    X(WTE, EMBED, true) X(WPE, EMBED, true)                                                        \
    X(NORM1_W, ATTN, false) X(NORM1_B, ATTN, false) X(QKV_W, ATTN, true) X(QKV_B, ATTN, false)     \
    X(OUT_W, ATTN, true) X(OUT_B, ATTN, false)                                                     \
    X(NORM2_W, MLP, false) X(NORM2_B, MLP, false) X(UP_W, MLP, true) X(UP_B, MLP, false)           \
    X(DOWN_W, MLP, true) X(DOWN_B, MLP, false)                                                     \
    X(NORMF_W, HEAD, false) X(NORMF_B, HEAD, false) X(HEAD_W, HEAD, true)
#define SF_AS_ENUM(id, unit, matrix) SF_SLOT_##id,
typedef enum { SF_SLOTS(SF_AS_ENUM) SF_SLOT_COUNT } sf_slot;
#undef SF_AS_ENUM

typedef enum { SF_UNIT_EMBED, SF_UNIT_ATTN, SF_UNIT_MLP, SF_UNIT_HEAD, SF_UNIT_COUNT } sf_unit;

/* The order in which backward completes the gradients of a slot list; embeddings last. */
extern const sf_slot sf_slot_ready_order[SF_SLOT_COUNT];
sf_unit sf_slot_unit(sf_slot slot);
bool sf_slot_in_block(sf_slot slot);  /* one instance per layer              */
bool sf_slot_is_matrix(sf_slot slot); /* weight decay applies                */

enum { SF_SLOT_MAX_TENSORS = 3 };

typedef struct {
    int n_tensors;                       /* 0: the model has no such parameter                     */
    int tensor[SF_SLOT_MAX_TENSORS];     /* in the model's tensor list; of layer 0 for ATTN, MLP   */
    uint64_t numel[SF_SLOT_MAX_TENSORS];
    uint64_t elems;
} sf_slot_info;

/* Where a slot's elements are: a span of a buffer, affine in the layer. */
typedef struct {
    int buffer;
    int index0, index_layer;
    uint64_t offset0;
    int64_t offset_layer;
} sf_location;

typedef struct sf_native sf_native;

/* What a strategy adds. Hooks may be NULL. Called once each while the program is written; within a
 * layer loop references are affine in the layer. */
typedef struct {
    sf_status (*declare)(sf_native *n);                /* buffers; sets n->weight[], n->grad[]       */
    void (*step_begin)(sf_native *n);
    void (*micro_begin)(sf_native *n);
    void (*forward_begin)(sf_native *n, sf_unit unit); /* its parameters are needed next             */
    void (*forward_end)(sf_native *n, sf_unit unit);
    void (*loss)(sf_native *n);                        /* replaces the local loss (dp)               */
    void (*backward_begin)(sf_native *n, sf_unit unit);
    void (*grad_ready)(sf_native *n, sf_slot slot);    /* this slot's gradient of this layer is final */
    void (*backward_end)(sf_native *n, sf_unit unit);
    void (*micro_end)(sf_native *n);
    void (*step_end)(sf_native *n);                    /* reductions left over, clipping, optimizer  */
} sf_native_strategy;

/* Buffers of the model, by the comments' shapes; families of L have one instance per layer. */
typedef struct {
    int tokens, targets, loss;      /* (N) i32, (N) i32, (N) f32                                   */
    int x;                          /* (N,C), L+1: residual stream into each layer, and out        */
    int norm1, stats1, qkv, att, lse, mid, norm2, stats2, up, act; /* L, kept for backward          */
    int normf, statsf, logits;
    int branch;                     /* (N,C) output of a half block before the residual add        */
    int dx;                         /* (N,C) gradient of the residual stream                       */
    int dnorm, datt, dqkv, dact, dup;
} sf_native_buffers;

struct sf_native {
    const sf_job *job;
    const sf_transformer *model;
    const sf_native_strategy *strategy;
    void *state;                    /* the strategy's own                                          */
    sf_arena *arena;
    sf_builder b;
    int world_size, n_layers, n_micro;
    int tensors_per_layer;          /* a block tensor's index grows by this per layer              */
    int bucket_cap_mb;
    int rank_class;                 /* 0, or for dp: 0 device 0, 1 the others                      */
    bool recompute, sync_each_micro_step, offload, clip, mixed;
    bool shard_grad_op, prefetch_backward; /* fsdp                                                 */
    sf_dtype dtype;                 /* of activations, weights in use and gradients                */
    int64_t micro_batch, seq_len, rows;       /* rows = micro_batch * seq_len                      */
    int64_t hidden, heads, kv_heads, head_dim, ffn, vocab, max_positions;
    int64_t qkv_width, att_width, up_width;
    int act_kind, norm_kind;
    bool rotary, tied;
    sf_slot_info slot[SF_SLOT_COUNT];
    sf_location weight[SF_SLOT_COUNT], grad[SF_SLOT_COUNT];
    sf_accumulate grad_accumulate;  /* how the backward writes gradients                           */
    sf_native_buffers buf;
    int norm_sum;                   /* (1) f64: sum of squares of all gradients; -1 without clip   */
};

/* Fills the shape from the job; refuses models that the executor has no ops for. */
sf_status sf_native_open(const sf_job *job, sf_arena *arena, sf_native *out);

/* World size, micro-steps, tokens ... of the program; the classes are the strategy's. */
sf_status sf_native_program(const sf_native *n, sf_program *out);

/* Writes one class's code. */
sf_status sf_native_write(sf_native *n, sf_class *cls, const sf_native_strategy *strategy, void *state, int rank_class);

/* ---- for strategies ---- */

/* The parameter or gradient of a slot, in the current layer. Absent slots give sf_none(). */
sf_arg sf_native_weight(const sf_native *n, sf_slot slot);
sf_arg sf_native_grad(const sf_native *n, sf_slot slot, sf_access access);

/* Declares master and moments of `flats` consecutive flats (sharded or whole) and, with offload,
 * the host's staging buffers. `param` is the family that holds the parameters in the compute type
 * (it may be the master itself where it is f32), `grad` the family whose gradients are final. */
typedef struct {
    const char *name;
    int flat, count;                /* flats flat .. flat + count - 1, one instance each           */
    bool sharded;
    int param, grad;
    int master, moment1, moment2;   /* families: device, or host with offload                      */
    int host_grad, host_param;      /* offload only                                                */
} sf_native_optimizer;
void sf_native_declare_optimizer(sf_native *n, sf_native_optimizer *o);

/* SUMSQ of every optimizer's gradients and, where they are sharded, the all_reduce of the sum. */
void sf_native_clip(sf_native *n, const sf_native_optimizer *list, size_t count, bool all_reduce);
/* The update itself, with the copies that offload needs. Gradients must be ordered before the
 * compute stream; on return the parameters are ordered before the compute stream. */
void sf_native_update(sf_native *n, const sf_native_optimizer *list, size_t count);

/* A collective on the comm stream over all ranks: dims.n elements. */
sf_op *sf_native_collective(sf_native *n, sf_op_type type, const char *label, uint64_t elems, int n_args, const sf_arg *args);

/* ---- the strategies' entries (list.h) ---- */
sf_status sf_lower_single(const sf_job *job, sf_arena *arena, sf_program *out);
sf_status sf_lower_ddp(const sf_job *job, sf_arena *arena, sf_program *out);
sf_status sf_lower_dp(const sf_job *job, sf_arena *arena, sf_program *out);
sf_status sf_lower_fsdp(const sf_job *job, sf_arena *arena, sf_program *out);
sf_status sf_lower_zero1(const sf_job *job, sf_arena *arena, sf_program *out);
sf_status sf_lower_zero2(const sf_job *job, sf_arena *arena, sf_program *out);
sf_status sf_lower_zero3(const sf_job *job, sf_arena *arena, sf_program *out);

#endif
