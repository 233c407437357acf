/* Strategies in which every device holds the whole model: `single`, `ddp`, `dp`.
 *
 * All parameters lie in one flat, in the order in which backward completes their gradients, so that
 * a gradient bucket is one span of the gradient buffer and is reduced where it lies.
 *
 * ddp  Buckets as PyTorch makes them: tensors in ready order are added, and a bucket is closed when
 *      it has reached its limit; 1 MiB for the first, bucket_cap_mb for the others
 *      (reducer.cpp, _DEFAULT_FIRST_BUCKET_BYTES). Each is all-reduced behind the rest of backward.
 * dp   As nn.DataParallel: device 0 reads the whole batch and scatters it, parameters are broadcast
 *      every forward, the loss is computed on device 0 over all outputs, gradients are reduced to
 *      device 0, which updates alone. Arrays travel in chunks of 10 MiB (comm.broadcast_coalesced).
 */
#include "model/base/units.h"
#include "model/strategy/native.h"

enum { DP_CHUNK_BYTES = 10 << 20, FIRST_BUCKET_BYTES = 1 << 20 };

typedef enum { REPLICA_SINGLE, REPLICA_DDP, REPLICA_DP } replica_kind;

typedef struct {
    uint64_t offset, elems;
    sf_slot last;
    int layer;    /* of the last slot; -1 outside blocks */
} bucket;

typedef struct {
    replica_kind kind;
    int flat, params, grads;
    int sum;                   /* gradients summed over micro-steps where `grads` is reduced in each; or -1 */
    sf_native_optimizer optimizer;
    bucket *buckets;
    size_t n_buckets, cap_buckets;
    int all_tokens, all_targets, all_losses, all_logits; /* dp, device 0 */
} replica;

/* ---- the flat and its buckets ---- */

static void add_slot(sf_native *n, int flat, sf_slot slot, int layer)
{
    const sf_slot_info *s = &n->slot[slot];
    for (int i = 0; i < s->n_tensors; i++)
        sf_build_flat_add(&n->b, flat, s->tensor[i] + layer * n->tensors_per_layer, s->numel[i], sf_slot_is_matrix(slot));
}

static void grow_bucket(sf_native *n, replica *r, sf_slot slot, int layer, uint64_t offset, uint64_t cap_bytes)
{
    uint64_t limit = r->n_buckets <= 1 ? FIRST_BUCKET_BYTES : cap_bytes;
    bucket *open = r->n_buckets == 0 ? NULL : &r->buckets[r->n_buckets - 1];
    uint64_t bytes = sf_dtype_bytes(n->dtype);

    if (open == NULL || open->elems * bytes >= limit) {
        open = &SF_PUSH(n->arena, r->buckets, r->n_buckets, r->cap_buckets);
        *open = (bucket){ .offset = offset };
    }
    open->elems += n->slot[slot].elems;
    open->last = slot;
    open->layer = layer;
}

static void lay_out(sf_native *n, replica *r)
{
    uint64_t cap = (uint64_t)n->bucket_cap_mb << 20;
    uint64_t block_elems = 0;
    const sf_flat *f;

    for (int i = 0; i < SF_SLOT_COUNT; i++)
        if (sf_slot_in_block((sf_slot)i))
            block_elems += n->slot[i].elems;
    r->flat = sf_build_flat(&n->b, "all");
    for (int i = 0; i < SF_SLOT_COUNT; i++) {
        sf_slot slot = sf_slot_ready_order[i];
        if (!sf_slot_in_block(slot)) {
            f = &n->b.cls->flats[r->flat];
            n->weight[slot] = n->grad[slot] = (sf_location){ .offset0 = f->elems };
            if (n->slot[slot].n_tensors > 0)
                grow_bucket(n, r, slot, -1, f->elems, cap);
            add_slot(n, r->flat, slot, 0);
            continue;
        }
        /* the whole stack of blocks, last layer first; its slots follow each other in the order list */
        int first = i;
        while (i + 1 < SF_SLOT_COUNT && sf_slot_in_block(sf_slot_ready_order[i + 1]))
            i++;
        for (int layer = n->n_layers - 1; layer >= 0; layer--)
            for (int k = first; k <= i; k++) {
                slot = sf_slot_ready_order[k];
                f = &n->b.cls->flats[r->flat];
                if (layer == n->n_layers - 1)
                    n->weight[slot] = n->grad[slot] =
                        (sf_location){ .offset0 = f->elems + block_elems * (uint64_t)(n->n_layers - 1), .offset_layer = -(int64_t)block_elems };
                if (n->slot[slot].n_tensors > 0)
                    grow_bucket(n, r, slot, layer, f->elems, cap);
                add_slot(n, r->flat, slot, layer);
            }
    }
}

static int whole(sf_native *n, const replica *r, const char *name, sf_category category, sf_binding binding)
{
    return sf_build_buffer(&n->b, (sf_buffer){ .name = name, .category = category, .dtype = n->dtype, .elems = n->b.cls->flats[r->flat].padded,
                                               .count = 1, .persistent = true, .flat = r->flat, .binding = binding });
}

static sf_status declare(sf_native *n)
{
    replica *r = n->state;
    bool updates = r->kind != REPLICA_DP || n->rank_class == 0;
    /* where gradients are reduced in every micro-step, sums of reduced ones need a place of their own */
    bool separate = n->n_micro > 1 && (r->kind == REPLICA_DP || (r->kind == REPLICA_DDP && n->sync_each_micro_step));

    r->n_buckets = 0;
    r->sum = -1;
    lay_out(n, r);
    r->params = whole(n, r, "params", SF_CAT_PARAMETERS, SF_BIND_PARAM);
    r->grads = whole(n, r, "grads", SF_CAT_GRADIENTS, SF_BIND_GRAD);
    if (separate && updates)
        r->sum = whole(n, r, "grad_sum", SF_CAT_GRADIENTS, SF_BIND_GRAD);
    for (int i = 0; i < SF_SLOT_COUNT; i++) {
        n->weight[i].buffer = r->params;
        n->grad[i].buffer = r->grads;
    }
    n->grad_accumulate = n->n_micro > 1 && !separate ? SF_ACC_AFTER_FIRST_MICRO : SF_ACC_NO;
    if (updates) {
        r->optimizer = (sf_native_optimizer){ .name = "all", .flat = r->flat, .count = 1, .param = r->params,
                                              .grad = r->sum >= 0 ? r->sum : r->grads };
        sf_native_declare_optimizer(n, &r->optimizer);
    }
    if (r->kind == REPLICA_DP && n->rank_class == 0) {
        uint64_t rows = (uint64_t)n->rows * (uint64_t)n->world_size;
        sf_buffer proto = { .name = "all_tokens", .category = SF_CAT_ACTIVATIONS, .dtype = SF_I32, .elems = rows, .count = 1, .persistent = true };
        r->all_tokens = sf_build_buffer(&n->b, proto);
        proto.name = "all_targets";
        r->all_targets = sf_build_buffer(&n->b, proto);
        proto.name = "all_losses";
        proto.dtype = SF_F32;
        r->all_losses = sf_build_buffer(&n->b, proto);
        r->all_logits = sf_build_buffer(&n->b, (sf_buffer){ .name = "all_logits", .category = SF_CAT_LOGITS, .dtype = n->dtype,
                                                            .elems = rows * (uint64_t)n->vocab, .count = 1 });
    }
    return SF_SUCCESS;
}

/* grads -> grad_sum: copied in the first micro-step, added in the others. */
static void add_to_sum(sf_native *n, const replica *r)
{
    if (r->sum < 0)
        return;
    uint64_t elems = n->b.cls->flats[r->flat].padded, bytes = sf_dtype_bytes(n->dtype);
    sf_op *first = sf_build_op(&n->b, SF_OP_COPY, SF_STREAM_COMPUTE, "grad_sum",
                               SF_ARGS(sf_whole(&n->b, r->grads, SF_READ), sf_whole(&n->b, r->sum, SF_WRITE)));
    first->dims.n = (int64_t)elems;
    first->bytes = 2 * elems * bytes;
    first->launches = 1;
    first->micro_hi = 0;
    sf_op *more = sf_build_op(&n->b, SF_OP_ACCUMULATE, SF_STREAM_COMPUTE, "grad_sum",
                              SF_ARGS(sf_whole(&n->b, r->grads, SF_READ), sf_whole(&n->b, r->sum, SF_READWRITE)));
    more->dims.n = (int64_t)elems;
    more->bytes = 3 * elems * bytes;
    more->launches = 1;
    more->micro_lo = 1;
}

static void update(sf_native *n)
{
    replica *r = n->state;
    sf_native_clip(n, &r->optimizer, 1, false);
    sf_native_update(n, &r->optimizer, 1);
}

/* ---- ddp ---- */

static void ddp_grad_ready(sf_native *n, sf_slot slot)
{
    replica *r = n->state;
    for (size_t i = 0; i < r->n_buckets; i++) {
        const bucket *k = &r->buckets[i];
        if (k->last != slot)
            continue;
        int event = sf_build_events(&n->b, 1);
        sf_op *ops[3];
        /* each pointer is valid until the next append, so guards are set one by one */
        for (int step = 0; step < 3; step++) {
            if (step == 0)
                ops[0] = sf_build_record(&n->b, SF_STREAM_COMPUTE, event, 0);
            else if (step == 1)
                ops[1] = sf_build_wait(&n->b, SF_STREAM_COMM, event, 0);
            else
                ops[2] = sf_native_collective(n, SF_OP_ALL_REDUCE, sf_arena_printf(n->arena, "bucket%zu", i), k->elems,
                                              SF_ARGS(sf_span(r->grads, k->offset, k->elems, SF_READWRITE)));
            if (k->layer >= 0)
                ops[step]->layer_lo = ops[step]->layer_hi = k->layer;
            if (!n->sync_each_micro_step)
                ops[step]->micro_lo = n->n_micro - 1;
        }
    }
}

static void ddp_micro_end(sf_native *n)
{
    if (!n->sync_each_micro_step && n->n_micro > 1)
        return; /* the one reduction is waited for in step_end */
    sf_build_join(&n->b, SF_STREAM_COMM, SF_STREAM_COMPUTE);
    add_to_sum(n, n->state);
}

static void ddp_step_end(sf_native *n)
{
    sf_build_join(&n->b, SF_STREAM_COMM, SF_STREAM_COMPUTE);
    update(n);
}

/* ---- dp ---- */

static void dp_chunks(sf_native *n, sf_op_type type, const char *what, int buffer)
{
    uint64_t elems = n->b.cls->buffers[buffer].elems, chunk = DP_CHUNK_BYTES / sf_dtype_bytes(n->dtype);
    for (uint64_t at = 0, i = 0; at < elems; at += chunk, i++) {
        uint64_t part = elems - at < chunk ? elems - at : chunk;
        sf_native_collective(n, type, sf_arena_printf(n->arena, "%s%llu", what, (unsigned long long)i), part,
                             SF_ARGS(sf_span(buffer, at, part, SF_READWRITE)));
    }
}

/* `whole` exists on device 0 only; the others pass nothing. */
static void dp_scatter(sf_native *n, const char *label, int whole_buffer, int part)
{
    uint64_t elems = n->b.cls->buffers[part].elems * (uint64_t)n->world_size;
    sf_arg from = n->rank_class == 0 ? sf_whole(&n->b, whole_buffer, SF_READ) : sf_none();
    sf_native_collective(n, SF_OP_SCATTER, label, elems, SF_ARGS(from, sf_whole(&n->b, part, SF_WRITE)));
}

static void dp_micro_begin(sf_native *n)
{
    replica *r = n->state;
    if (n->rank_class == 0) {
        sf_op *op = sf_build_op(&n->b, SF_OP_LOAD_BATCH, SF_STREAM_COMPUTE, "batch",
                                SF_ARGS(sf_whole(&n->b, r->all_tokens, SF_WRITE), sf_whole(&n->b, r->all_targets, SF_WRITE)));
        op->dims = (sf_dims){ .m = n->rows * n->world_size, .batch = n->micro_batch * n->world_size, .seq = (int32_t)n->seq_len };
        op->bytes = 8 * (uint64_t)op->dims.m;
    }
    sf_build_join(&n->b, SF_STREAM_COMPUTE, SF_STREAM_COMM);
    dp_scatter(n, "tokens", r->all_tokens, n->buf.tokens);
    dp_chunks(n, SF_OP_BROADCAST, "params", r->params);
    sf_build_join(&n->b, SF_STREAM_COMM, SF_STREAM_COMPUTE);
}

static void dp_loss(sf_native *n)
{
    replica *r = n->state;
    uint64_t all = n->b.cls->buffers[n->buf.logits].elems * (uint64_t)n->world_size;
    bool root = n->rank_class == 0;

    if (root)
        sf_build_alloc(&n->b, r->all_logits, 0, 0);
    sf_build_join(&n->b, SF_STREAM_COMPUTE, SF_STREAM_COMM);
    sf_native_collective(n, SF_OP_GATHER, "logits", all,
                         SF_ARGS(sf_whole(&n->b, n->buf.logits, SF_READ), root ? sf_whole(&n->b, r->all_logits, SF_WRITE) : sf_none()));
    sf_build_join(&n->b, SF_STREAM_COMM, SF_STREAM_COMPUTE);
    if (root) {
        sf_op *op = sf_build_op(&n->b, SF_OP_XENT, SF_STREAM_COMPUTE, "loss",
                                SF_ARGS(sf_whole(&n->b, r->all_logits, SF_READWRITE), sf_whole(&n->b, r->all_targets, SF_READ),
                                        sf_whole(&n->b, r->all_losses, SF_WRITE)));
        op->dims = (sf_dims){ .m = n->rows * n->world_size, .n = n->vocab };
        op->bytes = 3 * all * sf_dtype_bytes(n->dtype);
        op->launches = 1;
        op->scale = 1.0 / ((double)n->rows * n->world_size * n->n_micro);
    }
    sf_build_join(&n->b, SF_STREAM_COMPUTE, SF_STREAM_COMM);
    dp_scatter(n, "dlogits", r->all_logits, n->buf.logits);
    sf_build_join(&n->b, SF_STREAM_COMM, SF_STREAM_COMPUTE);
    if (root)
        sf_build_free(&n->b, r->all_logits, 0, 0);
}

static void dp_micro_end(sf_native *n)
{
    replica *r = n->state;
    sf_build_join(&n->b, SF_STREAM_COMPUTE, SF_STREAM_COMM);
    dp_chunks(n, SF_OP_REDUCE, "grads", r->grads);
    sf_build_join(&n->b, SF_STREAM_COMM, SF_STREAM_COMPUTE);
    add_to_sum(n, r);
}

static void dp_step_end(sf_native *n)
{
    if (n->rank_class == 0)
        update(n);
}

/* ---- entries ---- */

static const sf_native_strategy single_strategy = { .declare = declare, .step_end = update };
static const sf_native_strategy ddp_strategy = {
    .declare = declare, .grad_ready = ddp_grad_ready, .micro_end = ddp_micro_end, .step_end = ddp_step_end,
};
static const sf_native_strategy dp_strategy = {
    .declare = declare, .micro_begin = dp_micro_begin, .loss = dp_loss, .micro_end = dp_micro_end, .step_end = dp_step_end,
};

static sf_status lower(const sf_job *job, sf_arena *arena, replica_kind kind, const sf_native_strategy *strategy, sf_program *out)
{
    sf_native n;
    replica r = { .kind = kind };

    SF_TRY(sf_native_open(job, arena, &n));
    if (kind == REPLICA_SINGLE && n.world_size != 1)
        return SF_FAIL(SF_EINVAL, "strategy.name single runs on one device, but the cluster has %d; choose ddp, fsdp or zero1..3", n.world_size);
    SF_TRY(sf_native_program(&n, out));
    if (kind != REPLICA_DP || n.world_size == 1) {
        out->n_classes = 1;
        out->classes = SF_NEW_ARRAY(arena, sf_class, 1);
        out->classes[0] = (sf_class){ .name = kind == REPLICA_DP ? "device0" : "rank", .n_ranks = n.world_size };
        SF_TRY(sf_native_write(&n, &out->classes[0], strategy, &r, 0));
    } else {
        out->n_classes = 2;
        out->classes = SF_NEW_ARRAY(arena, sf_class, 2);
        out->classes[0] = (sf_class){ .name = "device0", .n_ranks = 1 };
        out->classes[1] = (sf_class){ .name = "replica", .n_ranks = n.world_size - 1, .first_rank = 1 };
        for (int c = 0; c < 2; c++)
            SF_TRY(sf_native_write(&n, &out->classes[c], strategy, &r, c));
    }
    out->one_process = kind == REPLICA_DP;
    return SF_SUCCESS;
}

sf_status sf_lower_single(const sf_job *job, sf_arena *arena, sf_program *out)
{
    return lower(job, arena, REPLICA_SINGLE, &single_strategy, out);
}

sf_status sf_lower_ddp(const sf_job *job, sf_arena *arena, sf_program *out)
{
    return lower(job, arena, REPLICA_DDP, &ddp_strategy, out);
}

sf_status sf_lower_dp(const sf_job *job, sf_arena *arena, sf_program *out)
{
    return lower(job, arena, REPLICA_DP, &dp_strategy, out);
}
