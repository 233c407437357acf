/* nn.DataParallel (torch/nn/parallel/{data_parallel,replicate,parallel_apply,scatter_gather}.py): one process, a thread a
 * device. Every forward copies the parameters from device 0 to the others; the outputs are gathered on device 0; the
 * gradients are added up there, where the optimizer works. Device 0 is a class of its own. */
#include <limits.h>

#include "model/strategy/torch.h"

typedef struct {
    bool first;                  /* device 0                                                    */
    sf_tt parameters, reduce;    /* of this device; comm._reduce_add_coalesced works in 10 MiB  */
    sf_tt gathered;              /* logits of all devices, on device 0                          */
} data_parallel;

enum { COALESCED_BYTES = 10 << 20 };

static void declare(sf_torch *t)
{
    data_parallel *s = t->state;
    s->parameters = s->gathered = sf_torch_none();
    s->reduce = sf_torch_persistent(t, "dp.coalesced", SF_CAT_COMM_BUFFERS, SF_SPACE_DEVICE, t->weight, COALESCED_BYTES / sf_dtype_bytes(t->weight));
    if (!s->first)
        return;
    s->parameters = sf_torch_persistent(t, "parameters", SF_CAT_PARAMETERS, SF_SPACE_DEVICE, t->weight, t->elems);
    sf_torch_update u = { .elems = t->elems, .state = t->weight };
    sf_torch_declare_moments(t, &u);
}

static void collective(sf_torch *t, sf_op_type type, const char *label, sf_tt in, sf_tt out, uint64_t elems)
{
    sf_torch_wait(t, SF_STREAM_COMPUTE, sf_torch_collective(t, (sf_torch_comm){ .type = type, .label = label, .in = in, .out = out, .elems = elems, .after = -1 }));
}

static void micro_begin(sf_torch *t)
{
    data_parallel *s = t->state;
    if (!s->first)
        s->parameters = sf_torch_take(t, "dp.replica", SF_CAT_PARAMETERS, t->weight, t->elems);
    collective(t, SF_OP_BROADCAST, "replicate", s->parameters, sf_torch_none(), t->elems);
}

/* The model's output object, logits and all, is gathered. */
static void forward_end(sf_torch *t, int unit)
{
    data_parallel *s = t->state;
    uint64_t elems = (uint64_t)t->rows * (uint64_t)t->model->vocab;
    if (unit != t->n_units - 1 || t->job->train.loss == SF_LOSS_FUSED)
        return;
    if (s->first)
        s->gathered = sf_torch_take(t, "dp.gathered_logits", SF_CAT_LOGITS, t->compute, elems * (uint64_t)t->world_size);
    sf_tt part = sf_torch_take(t, "dp.output", SF_CAT_LOGITS, t->compute, elems);
    sf_torch_kernel(t, "dp.output", part, 2 * elems * sf_dtype_bytes(t->compute), 1);
    collective(t, SF_OP_GATHER, "outputs", part, s->gathered, elems * (uint64_t)t->world_size);
    sf_torch_give(t, part);
}

static sf_tt grad_take(sf_torch *t, int i)
{
    data_parallel *s = t->state;
    sf_torch_param *p = &t->params[i];
    if (s->first && t->n_micro > 1)
        return p->grad = sf_torch_take_micro(t, "grad", SF_CAT_GRADIENTS, t->weight, sf_torch_param_elems(p), 0, 0);
    return p->grad = sf_torch_take(t, "grad", SF_CAT_GRADIENTS, t->weight, sf_torch_param_elems(p));
}

static void grad_done(sf_torch *t, int i, sf_tt grad)
{
    data_parallel *s = t->state;
    uint64_t elems = sf_torch_param_elems(&t->params[i]);
    if (!s->first || t->n_micro == 1)
        return;
    sf_tt fresh = sf_torch_take_micro(t, "grad.new", SF_CAT_GRADIENTS, t->weight, elems, 1, INT_MAX);
    sf_op *op = sf_torch_kernel(t, "grad.accumulate", grad, 3 * elems * sf_dtype_bytes(t->weight), 1);
    op->micro_lo = 1;
    sf_torch_give_micro(t, fresh, 1, INT_MAX);
}

static void micro_end(sf_torch *t)
{
    data_parallel *s = t->state;
    collective(t, SF_OP_REDUCE, "gradients", s->reduce, sf_torch_none(), t->elems);
    if (s->first) {
        sf_torch_give(t, s->gathered);
        s->gathered = sf_torch_none();
        return;
    }
    for (int i = 0; i < t->n_params; i++)
        sf_torch_give(t, t->params[i].grad);
    sf_torch_give(t, s->parameters);
    s->parameters = sf_torch_none();
}

static void step_end(sf_torch *t)
{
    data_parallel *s = t->state;
    uint64_t largest = 0;
    if (!s->first)
        return;
    for (int i = 0; i < t->n_params; i++)
        largest = t->params[i].numel > largest ? t->params[i].numel : largest;
    sf_torch_update u = { .elems = t->elems, .largest = largest, .tensors = t->n_params, .param = t->weight, .grad = t->weight, .state = t->weight };
    sf_torch_clip(t, t->elems, t->weight, false);
    sf_torch_optimizer(t, &u);
    for (int i = 0; i < t->n_params; i++)
        sf_torch_give(t, t->params[i].grad);
}

static const sf_torch_hooks hooks = {
    .declare = declare, .micro_begin = micro_begin, .forward_end = forward_end, .grad_take = grad_take, .grad_done = grad_done, .micro_end = micro_end,
    .step_end = step_end,
};

static sf_status write(const sf_job *job, sf_arena *arena, bool first, sf_program *out)
{
    sf_torch *t = SF_NEW(arena, sf_torch);
    data_parallel *s = SF_NEW(arena, data_parallel);
    SF_TRY(sf_torch_open(job, arena, t));
    s->first = first;
    return sf_torch_write(t, &hooks, s, out);
}

sf_status sf_lower_torch_dp(const sf_job *job, sf_arena *arena, sf_program *out)
{
    sf_program others;
    int world = sf_job_world_size(job);
    if (job->cluster.nodes > 1)
        return SF_FAIL(SF_EINVAL, "nn.DataParallel is one process on one node; set cluster.nodes to 1, or take ddp");
    SF_TRY(write(job, arena, true, out));
    out->one_process = true;
    out->classes[0].name = "device 0";
    out->classes[0].n_ranks = 1;
    if (world == 1)
        return SF_SUCCESS;
    SF_TRY(write(job, arena, false, &others));
    sf_class *both = SF_NEW_ARRAY(arena, sf_class, 2);
    both[0] = out->classes[0];
    both[1] = others.classes[0];
    both[1].name = "the other devices";
    both[1].n_ranks = world - 1;
    both[1].first_rank = 1;
    out->classes = both;
    out->n_classes = 2;
    return SF_SUCCESS;
}
