/* PyTorch on one device, and DistributedDataParallel (torch/nn/parallel/distributed.py, c10d/reducer.cpp). */
#include <limits.h>

#include "model/strategy/torch.h"

static uint64_t most(uint64_t a, uint64_t b) { return a > b ? a : b; }

static uint64_t largest_param(const sf_torch *t)
{
    uint64_t n = 0;
    for (int i = 0; i < t->n_params; i++)
        n = most(n, t->params[i].numel);
    return n;
}

static int tensor_count(const sf_torch *t)
{
    int n = 0;
    for (int i = 0; i < t->n_params; i++)
        n += t->params[i].copies;
    return n;
}

/* ---- buckets ----
 * The reducer first builds buckets over the parameters in reverse order, of at most bucket_cap_mb MiB and the first of
 * 1 MiB (dist._DEFAULT_FIRST_BUCKET_BYTES) unless a bucket_cap_mb is given (nn/parallel/distributed.py, is_using_default), and after the first backward again in the order in which gradients arrived,
 * which is the same but for a tied table, whose gradient comes last. The step modelled is a later one. */
typedef struct {
    uint64_t elems;
    int params, ready;       /* of this micro-step: how many have come                     */
    sf_tt buffer;
} bucket;

typedef struct {
    bool averages;           /* DDP: buckets are reduced                                    */
    sf_dtype grad, comm;
    bucket *buckets;
    int n_buckets;
    int *bucket_of;          /* [n_params]                                                  */
    int last_event;          /* of the last all_reduce                                      */
    bool view;               /* gradients lie in the buckets                                */
    bool reduces_every;      /* each micro-step                                             */
} replica;

static void make_buckets(sf_torch *t, replica *s)
{
    const uint64_t cap = (uint64_t)t->job->strategy.bucket_cap_mb << 20, width = sf_dtype_bytes(s->grad);
    const uint64_t first = t->job->strategy.bucket_cap_mb == 25 ? 1 << 20 : cap;
    uint64_t bytes = 0;
    s->buckets = SF_NEW_ARRAY(t->arena, bucket, t->n_params + 1);
    s->bucket_of = SF_NEW_ARRAY(t->arena, int, t->n_params);
    s->n_buckets = 1;
    for (int k = 0; k < t->n_params; k++) {
        /* arrival: units from the last to the first, parameters of a unit from the last to the first */
        int i = t->n_params - 1 - k;
        bucket *b = &s->buckets[s->n_buckets - 1];
        s->bucket_of[i] = s->n_buckets - 1;
        b->elems += sf_torch_param_elems(&t->params[i]);
        b->params++;
        bytes += sf_torch_param_elems(&t->params[i]) * width;
        if (bytes >= (s->n_buckets == 1 ? first : cap) && k + 1 < t->n_params) {
            s->n_buckets++;
            bytes = 0;
        }
    }
}

static void declare(sf_torch *t)
{
    replica *s = t->state;
    sf_torch_persistent(t, "parameters", SF_CAT_PARAMETERS, SF_SPACE_DEVICE, t->weight, t->elems);
    sf_torch_update u = { .elems = t->elems, .state = s->grad };
    sf_torch_declare_moments(t, &u);
    if (!s->averages)
        return;
    make_buckets(t, s);
    for (int i = 0; i < s->n_buckets; i++)
        s->buckets[i].buffer = sf_torch_persistent(t, "ddp.bucket", SF_CAT_COMM_BUFFERS, SF_SPACE_DEVICE, s->grad, s->buckets[i].elems);
}

static void micro_begin(sf_torch *t)
{
    replica *s = t->state;
    for (int i = 0; i < s->n_buckets; i++)
        s->buckets[i].ready = 0;
}

static bool accumulates(const sf_torch *t) { return t->n_micro > 1; }

/* The first micro-step's gradient becomes .grad; a later one is added to it and goes. */
static sf_tt grad_take(sf_torch *t, int i)
{
    replica *s = t->state;
    sf_torch_param *p = &t->params[i];
    if (s->view)
        return sf_torch_take(t, "grad.new", SF_CAT_GRADIENTS, s->grad, sf_torch_param_elems(p));
    if (!accumulates(t))
        return p->grad = sf_torch_take(t, "grad", SF_CAT_GRADIENTS, s->grad, sf_torch_param_elems(p));
    p->grad = sf_torch_take_micro(t, "grad", SF_CAT_GRADIENTS, s->grad, sf_torch_param_elems(p), 0, 0);
    return p->grad;
}

static void reduce_bucket(sf_torch *t, replica *s, bucket *b)
{
    uint64_t bytes = b->elems * sf_dtype_bytes(s->grad);
    int lo = s->reduces_every ? INT_MIN : t->n_micro - 1;
    sf_op *op;
    if (s->view)
        op = sf_torch_kernel(t, "ddp.divide", b->buffer, 2 * bytes, 1);
    else
        op = sf_torch_kernel(t, "ddp.copy_in", b->buffer, 2 * bytes, b->params);
    op->micro_lo = lo;
    sf_tt sent = b->buffer;
    if (s->comm != s->grad) { /* a compression hook */
        sent = sf_torch_take(t, "ddp.compressed", SF_CAT_COMM_BUFFERS, s->comm, b->elems);
        op = sf_torch_kernel(t, "ddp.compress", sent, bytes + b->elems * sf_dtype_bytes(s->comm), 1);
        op->micro_lo = lo;
    }
    size_t before = t->b.cls->n_ops;
    s->last_event = sf_torch_collective(t, (sf_torch_comm){ .type = SF_OP_ALL_REDUCE, .label = "ddp.bucket", .in = sent, .elems = b->elems, .after = -1 });
    for (size_t i = before; i < t->b.cls->n_ops; i++)
        if (t->b.cls->ops[i].type == SF_OP_ALL_REDUCE)
            t->b.cls->ops[i].micro_lo = lo;
    if (s->comm != s->grad) {
        sf_torch_wait(t, SF_STREAM_COMPUTE, s->last_event);
        sf_torch_give(t, sent);
    }
}

static void grad_done(sf_torch *t, int i, sf_tt grad)
{
    replica *s = t->state;
    sf_torch_param *p = &t->params[i];
    uint64_t bytes = sf_torch_param_elems(p) * sf_dtype_bytes(s->grad);
    if (s->view) {
        sf_torch_kernel(t, "grad.into_bucket", sf_torch_none(), 2 * bytes, 1);
        sf_torch_give(t, grad);
    } else if (accumulates(t)) {
        sf_tt fresh = sf_torch_take_micro(t, "grad.new", SF_CAT_GRADIENTS, s->grad, sf_torch_param_elems(p), 1, INT_MAX);
        sf_op *op = sf_torch_kernel(t, "grad.accumulate", grad, 3 * bytes, 1);
        op->micro_lo = 1;
        sf_torch_give_micro(t, fresh, 1, INT_MAX);
    }
    if (!s->averages)
        return;
    bucket *b = &s->buckets[s->bucket_of[i]];
    if (++b->ready == b->params)
        reduce_bucket(t, s, b);
}

static void micro_end(sf_torch *t)
{
    replica *s = t->state;
    if (!s->averages)
        return;
    sf_torch_wait(t, SF_STREAM_COMPUTE, s->last_event);
    if (s->view)
        return;
    sf_op *op = sf_torch_kernel(t, "ddp.copy_out", sf_torch_none(), 2 * t->elems * sf_dtype_bytes(s->grad), t->n_params);
    op->micro_lo = s->reduces_every ? INT_MIN : t->n_micro - 1;
}

static void step_end(sf_torch *t)
{
    replica *s = t->state;
    sf_torch_update u = { .elems = t->elems, .largest = largest_param(t), .tensors = tensor_count(t), .param = t->weight, .grad = s->grad, .state = s->grad };
    sf_torch_clip(t, t->elems, s->grad, false);
    sf_torch_optimizer(t, &u);
    for (int i = 0; i < t->n_params && !s->view; i++)
        sf_torch_give(t, t->params[i].grad);
}

static const sf_torch_hooks hooks = {
    .declare = declare, .micro_begin = micro_begin, .grad_take = grad_take, .grad_done = grad_done, .micro_end = micro_end, .step_end = step_end,
};

static sf_status lower(const sf_job *job, sf_arena *arena, bool averages, sf_program *out)
{
    sf_torch *t = SF_NEW(arena, sf_torch);
    replica *s = SF_NEW(arena, replica);
    SF_TRY(sf_torch_open(job, arena, t));
    *s = (replica){ .averages = averages, .grad = t->weight, .comm = t->weight, .last_event = -1, .reduces_every = job->train.sync_each_micro_step };
    s->view = averages && job->strategy.gradient_as_bucket_view;
    if (job->strategy.comm_hook != SF_COMM_HOOK_NONE && averages)
        s->comm = job->strategy.comm_hook == SF_COMM_HOOK_FP16 ? SF_F16 : SF_BF16;
    return sf_torch_write(t, &hooks, s, out);
}

sf_status sf_lower_torch_single(const sf_job *job, sf_arena *arena, sf_program *out)
{
    if (sf_job_world_size(job) != 1)
        return SF_FAIL(SF_EINVAL, "strategy single is one device, not %d; set cluster.gpus_per_node and nodes to 1, or take ddp", sf_job_world_size(job));
    return lower(job, arena, false, out);
}

sf_status sf_lower_torch_ddp(const sf_job *job, sf_arena *arena, sf_program *out)
{
    return lower(job, arena, true, out);
}
