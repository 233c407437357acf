/* From a job to the shapes that our executor trains. */
#include "model/strategy/native.h"

static sf_status refuse(const sf_transformer *m, const char *what)
{
    return SF_FAIL(SF_EUNSUP, "the shardfit executor has no ops for %s (model %s); it runs models of the GPT-2 and LLaMA families", what, m->name);
}

/* What the op list covers: see op.h. */
static sf_status check_model(const sf_transformer *m)
{
    if (m->n_experts > 0)
        return refuse(m, "mixture of experts");
    if (m->kv_lora_rank > 0)
        return refuse(m, "multi-head latent attention");
    if (m->position == SF_POS_ALIBI)
        return refuse(m, "ALiBi positions");
    if (m->parallel_block)
        return refuse(m, "parallel attention and MLP");
    if (m->qk_norm || m->attention_sinks)
        return refuse(m, "norms of queries and keys");
    if (m->norms_per_block != 2 || m->norm == SF_NORM_PLAIN || m->embedding_norm || m->no_final_norm || m->embed_dim != m->hidden)
        return refuse(m, "its arrangement of norms");
    if (m->gated && m->activation != SF_ACTIVATION_SILU)
        return refuse(m, "gates other than SiLU");
    if (!m->gated && m->activation == SF_ACTIVATION_SILU)
        return refuse(m, "SiLU without a gate");
    if (m->activation == SF_ACTIVATION_RELU2 || m->activation == SF_ACTIVATION_XIELU)
        return refuse(m, "its activation");
    if (m->embedding_scale != 1 || m->attention_softcap > 0 || m->final_softcap > 0)
        return refuse(m, "scaled embeddings or capped logits");
    if (m->sliding_window > 0)
        return refuse(m, "sliding-window attention");
    if (m->head_bias)
        return refuse(m, "a bias of the head");
    if (m->position == SF_POS_ROTARY && m->rotary_dim % 2 != 0)
        return refuse(m, "an odd rotary dimension");
    return SF_SUCCESS;
}

static sf_status check_train(const sf_job *job)
{
    const sf_train *t = &job->train;
    if (t->precision != SF_PRECISION_FP32 && t->precision != SF_PRECISION_BF16_MIXED)
        return SF_FAIL(SF_EUNSUP, "train.precision %s: the shardfit executor trains in fp32 or bf16-mixed", sf_precision_name(t->precision));
    if (t->optimizer != SF_OPTIMIZER_ADAMW && t->optimizer != SF_OPTIMIZER_ADAMW_FUSED)
        return SF_FAIL(SF_EUNSUP, "train.optimizer %s: the shardfit executor has adamw", sf_optimizer_name(t->optimizer));
    if (t->recompute == SF_RECOMPUTE_SELECTIVE)
        return SF_FAIL(SF_EUNSUP, "train.recompute selective: the shardfit executor recomputes none or full");
    if (t->dropout > 0)
        return SF_FAIL(SF_EUNSUP, "train.dropout %g: the shardfit executor trains without dropout", t->dropout);
    if (job->strategy.name == SF_STRATEGY_FSDP && job->strategy.sharding != SF_SHARDING_FULL_SHARD && job->strategy.sharding != SF_SHARDING_SHARD_GRAD_OP)
        return SF_FAIL(SF_EUNSUP, "strategy.sharding: the shardfit executor's fsdp has full_shard and shard_grad_op");
    if (job->strategy.offload_optimizer_device == SF_DEVICE_NVME)
        return SF_FAIL(SF_EUNSUP, "strategy.offload_optimizer.device nvme: the shardfit executor offloads to cpu");
    return SF_SUCCESS;
}

/* ---- slots from the tensor list ---- */

static void add_to_slot(sf_native *n, sf_slot slot, int tensor, uint64_t numel)
{
    sf_slot_info *s = &n->slot[slot];
    s->tensor[s->n_tensors] = tensor;
    s->numel[s->n_tensors++] = numel;
    s->elems += numel;
}

static sf_slot slot_of(sf_role role)
{
    switch (role) {
    case SF_ROLE_WTE: return SF_SLOT_WTE;
    case SF_ROLE_WPE: return SF_SLOT_WPE;
    case SF_ROLE_NORM1_W: return SF_SLOT_NORM1_W;
    case SF_ROLE_NORM1_B: return SF_SLOT_NORM1_B;
    case SF_ROLE_QKV_W: case SF_ROLE_Q_W: case SF_ROLE_K_W: case SF_ROLE_V_W: return SF_SLOT_QKV_W;
    case SF_ROLE_QKV_B: case SF_ROLE_Q_B: case SF_ROLE_K_B: case SF_ROLE_V_B: return SF_SLOT_QKV_B;
    case SF_ROLE_OUT_W: return SF_SLOT_OUT_W;
    case SF_ROLE_OUT_B: return SF_SLOT_OUT_B;
    case SF_ROLE_NORM2_W: return SF_SLOT_NORM2_W;
    case SF_ROLE_NORM2_B: return SF_SLOT_NORM2_B;
    case SF_ROLE_GATE_W: case SF_ROLE_UP_W: case SF_ROLE_GATE_UP_W: return SF_SLOT_UP_W;
    case SF_ROLE_GATE_B: case SF_ROLE_UP_B: return SF_SLOT_UP_B;
    case SF_ROLE_DOWN_W: return SF_SLOT_DOWN_W;
    case SF_ROLE_DOWN_B: return SF_SLOT_DOWN_B;
    case SF_ROLE_NORMF_W: return SF_SLOT_NORMF_W;
    case SF_ROLE_NORMF_B: return SF_SLOT_NORMF_B;
    case SF_ROLE_HEAD_W: return SF_SLOT_HEAD_W;
    default: return SF_SLOT_COUNT;
    }
}

/* Blocks are alike (check_model), so one stands for all: those of layer l and what follows the blocks
 * have indices that grow by tensors_per_layer. */
static sf_status fill_slots(sf_native *n)
{
    sf_transformer one_block = *n->model;
    sf_tensor_list list;

    one_block.n_layers = 1;
    sf_transformer_tensors(&one_block, n->arena, &list);
    n->tensors_per_layer = 0;
    for (size_t i = 0; i < list.count; i++)
        n->tensors_per_layer += list.items[i].layer == 0;
    for (size_t i = 0; i < list.count; i++) {
        const sf_tensor *t = &list.items[i];
        bool behind = t->place == SF_PLACE_FINAL || t->place == SF_PLACE_HEAD;
        sf_slot slot = slot_of(t->role);
        if (slot == SF_SLOT_COUNT)
            return refuse(n->model, sf_role_name(t->role));
        add_to_slot(n, slot, (int)i + (behind ? (n->n_layers - 1) * n->tensors_per_layer : 0), t->numel);
    }
    return SF_SUCCESS;
}

sf_status sf_native_open(const sf_job *job, sf_arena *arena, sf_native *n)
{
    const sf_transformer *m = &job->model;
    const sf_train *t = &job->train;

    SF_TRY(check_model(m));
    SF_TRY(check_train(job));
    *n = (sf_native){
        .job = job, .model = m, .arena = arena,
        .world_size = sf_job_world_size(job), .n_layers = m->n_layers, .n_micro = (int)t->grad_accum,
        .bucket_cap_mb = (int)job->strategy.bucket_cap_mb,
        .recompute = t->recompute == SF_RECOMPUTE_FULL, .sync_each_micro_step = t->sync_each_micro_step,
        .offload = job->strategy.offload_optimizer_device == SF_DEVICE_CPU, .clip = t->grad_clip > 0,
        .mixed = t->precision == SF_PRECISION_BF16_MIXED,
        .shard_grad_op = job->strategy.sharding == SF_SHARDING_SHARD_GRAD_OP,
        .prefetch_backward = job->strategy.backward_prefetch == SF_BACKWARD_PREFETCH_PRE,
        .micro_batch = t->micro_batch, .seq_len = t->seq_len, .rows = t->micro_batch * t->seq_len,
        .hidden = m->hidden, .heads = m->n_heads, .kv_heads = m->n_kv_heads, .head_dim = m->head_dim, .ffn = m->ffn_hidden,
        .vocab = m->vocab, .max_positions = m->max_positions,
        .qkv_width = (m->n_heads + 2 * m->n_kv_heads) * m->head_dim, .att_width = m->n_heads * m->head_dim,
        .up_width = m->gated ? 2 * m->ffn_hidden : m->ffn_hidden,
        .norm_kind = m->norm == SF_NORM_RMSNORM ? SF_OP_NORM_RMS : SF_OP_NORM_LAYER,
        .rotary = m->position == SF_POS_ROTARY, .tied = m->tied,
    };
    n->dtype = n->mixed ? SF_BF16 : SF_F32;
    n->act_kind = m->gated                                     ? SF_OP_ACT_SWIGLU
                  : m->activation == SF_ACTIVATION_GELU_TANH   ? SF_OP_ACT_GELU_TANH
                  : m->activation == SF_ACTIVATION_GELU_ERF    ? SF_OP_ACT_GELU_ERF
                                                               : SF_OP_ACT_RELU;
    return fill_slots(n);
}

sf_status sf_native_program(const sf_native *n, sf_program *out)
{
    *out = (sf_program){
        .strategy = sf_strategy_name(n->job->strategy.name), .world_size = n->world_size,
        .ranks_per_node = (int)n->job->cluster.gpus_per_node, .n_layers = n->n_layers, .n_micro = n->n_micro,
        .tokens_per_step = sf_job_tokens_per_step(n->job),
    };
    return SF_SUCCESS;
}

sf_op *sf_native_collective(sf_native *n, sf_op_type type, const char *label, uint64_t elems, int n_args, const sf_arg *args)
{
    sf_op *op = sf_build_op(&n->b, type, SF_STREAM_COMM, label, n_args, args);
    op->dims.n = (int64_t)elems;
    op->launches = 1;
    return op;
}
