#include "tests/reports/fake.h"

#include <math.h>
#include <string.h>

#include "model/program/timeline.h"

enum { LAYERS = 4, MICRO = 2, RANKS = 2, PARAM_BYTES = 4 * 3400000, ACT_BYTES = 9 << 20 };

typedef struct {
    sf_arena *arena;
    sf_outcome *out;
    size_t cap_spans, cap_line;
    double at[SF_STREAM_COUNT];
    uint64_t seq, live;
    uint64_t category[SF_CAT_COUNT];
    unsigned noise;
    bool measured;
} maker;

/* 0.97 .. 1.09 for a measurement, 1 for a prediction. */
static double jitter(maker *m)
{
    m->noise = m->noise * 1103515245u + 12345u;
    return m->measured ? 0.97 + 0.12 * ((m->noise >> 16) & 1023) / 1023.0 : 1;
}

static double box(maker *m, sf_op_type type, sf_stream stream, sf_phase phase, double after_s, double ms, int layer, int micro)
{
    double start = fmax(m->at[stream], after_s);
    sf_span_time s = { .label = sf_op_name(type), .type = type, .stream = stream, .phase = phase, .layer = layer, .micro = micro,
                       .seq = m->seq++, .start_s = start, .end_s = start + 1e-3 * ms * jitter(m) };
    SF_PUSH(m->arena, m->out->spans, m->out->n_spans, m->cap_spans) = s;
    m->at[stream] = s.end_s;
    return s.end_s;
}

static void hold(maker *m, sf_category category, int64_t bytes, sf_phase phase)
{
    sf_outcome *o = m->out;
    m->live += (uint64_t)bytes;
    m->category[category] += (uint64_t)bytes;
    if (m->category[category] > o->memory.peak_bytes[category])
        o->memory.peak_bytes[category] = m->category[category];
    if (m->live > o->memory.peak_allocated_bytes) {
        o->memory.peak_allocated_bytes = m->live;
        o->memory.phase_of_peak = phase;
        o->memory.op_of_peak = "logits";
        o->memory.seq_of_peak = m->seq;
        memcpy(o->memory.at_peak, m->category, sizeof m->category);
    }
    SF_PUSH(m->arena, o->memory_line, o->n_memory_line, m->cap_line) =
        (sf_memory_point){ .seq = m->seq++, .bytes = m->live, .time_s = m->measured ? m->at[SF_STREAM_COMPUTE] : -1 };
}

static double collective(maker *m, sf_op_type op, sf_phase phase, double after_s, uint64_t bytes, int layer, int micro)
{
    sf_outcome_comm *row = sf_outcome_comm_row(m->out, op, SF_GROUP_WORLD);
    row->calls++;
    row->bytes_per_rank += bytes;
    return box(m, op, SF_STREAM_COMM, phase, after_s, 0.05 + (double)bytes / 3e6, layer, micro); /* 3 GB/s */
}

typedef struct {
    bool shard_params, shard_grads, shard_states, replicate;
} habits;

static habits habits_of(const char *strategy)
{
    if (strcmp(strategy, "fsdp") == 0 || strcmp(strategy, "zero3") == 0)
        return (habits){ true, true, true, false };
    if (strcmp(strategy, "zero2") == 0)
        return (habits){ false, true, true, false };
    if (strcmp(strategy, "zero1") == 0)
        return (habits){ false, false, true, false };
    return (habits){ .replicate = strcmp(strategy, "dp") == 0 };
}

static void forward(maker *m, habits h, int micro, double *ready)
{
    for (int l = 0; l < LAYERS; l++) {
        if (h.shard_params)
            *ready = collective(m, SF_OP_ALL_GATHER, SF_PHASE_FORWARD, 0, PARAM_BYTES / LAYERS, l, micro);
        hold(m, SF_CAT_ACTIVATIONS, ACT_BYTES / LAYERS, SF_PHASE_FORWARD);
        box(m, SF_OP_NORM_FWD, SF_STREAM_COMPUTE, SF_PHASE_FORWARD, *ready, 0.15, l, micro);
        box(m, SF_OP_LINEAR_FWD, SF_STREAM_COMPUTE, SF_PHASE_FORWARD, 0, 1.3, l, micro);
        box(m, SF_OP_ATTN_FWD, SF_STREAM_COMPUTE, SF_PHASE_FORWARD, 0, 0.9, l, micro);
        box(m, SF_OP_LINEAR_FWD, SF_STREAM_COMPUTE, SF_PHASE_FORWARD, 0, 2.6, l, micro);
        box(m, SF_OP_ACT_FWD, SF_STREAM_COMPUTE, SF_PHASE_FORWARD, 0, 0.3, l, micro);
    }
    hold(m, SF_CAT_LOGITS, 6 << 20, SF_PHASE_FORWARD);
    box(m, SF_OP_LINEAR_FWD, SF_STREAM_COMPUTE, SF_PHASE_FORWARD, 0, 1.0, 0, micro);
    box(m, SF_OP_XENT, SF_STREAM_COMPUTE, SF_PHASE_FORWARD, 0, 0.5, 0, micro);
}

static void backward(maker *m, habits h, int micro, double *ready, double *reduced)
{
    bool last = micro == MICRO - 1;
    for (int l = LAYERS - 1; l >= 0; l--) {
        if (h.shard_params)
            *ready = collective(m, SF_OP_ALL_GATHER, SF_PHASE_BACKWARD, 0, PARAM_BYTES / LAYERS, l, micro);
        hold(m, SF_CAT_TEMPORARIES, 2 << 20, SF_PHASE_BACKWARD);
        box(m, SF_OP_ATTN_BWD, SF_STREAM_COMPUTE, SF_PHASE_BACKWARD, *ready, 2.0, l, micro);
        box(m, SF_OP_LINEAR_BWD_X, SF_STREAM_COMPUTE, SF_PHASE_BACKWARD, 0, 3.9, l, micro);
        double done = box(m, SF_OP_LINEAR_BWD_W, SF_STREAM_COMPUTE, SF_PHASE_BACKWARD, 0, 3.9, l, micro);
        hold(m, SF_CAT_TEMPORARIES, -(2 << 20), SF_PHASE_BACKWARD);
        hold(m, SF_CAT_ACTIVATIONS, -(ACT_BYTES / LAYERS), SF_PHASE_BACKWARD);
        if (h.shard_grads)
            *reduced = collective(m, SF_OP_REDUCE_SCATTER, SF_PHASE_BACKWARD, done, PARAM_BYTES / LAYERS, l, micro);
        else if (last && !h.replicate)
            *reduced = collective(m, SF_OP_ALL_REDUCE, SF_PHASE_BACKWARD, done, PARAM_BYTES / LAYERS, l, micro);
    }
    hold(m, SF_CAT_LOGITS, -(6 << 20), SF_PHASE_BACKWARD);
}

void sf_fake_outcome(const char *strategy, bool measured, sf_arena *arena, sf_outcome *out)
{
    habits h = habits_of(strategy);
    maker m = { .arena = arena, .out = out, .noise = (unsigned)strlen(strategy) * 7919u + (unsigned)strategy[0] * 31u, .measured = measured };
    double ready = 0, reduced = 0;

    sf_outcome_init(out, measured ? "measured" : "predicted");
    out->strategy = strategy;
    out->world_size = RANKS;
    out->tokens_per_step = RANKS * MICRO * 4 * 256;
    out->memory.capacity_bytes = (uint64_t)96 << 20;
    out->model_flop = 6u * (PARAM_BYTES / 4) * (out->tokens_per_step / RANKS);
    out->hardware_flop = out->model_flop;
    out->mfu = out->hfu = measured ? 0.41 : 0.43;
    hold(&m, SF_CAT_PARAMETERS, PARAM_BYTES / (h.shard_params ? RANKS : 1), SF_PHASE_FORWARD);
    hold(&m, SF_CAT_OPTIMIZER, 2 * PARAM_BYTES / (h.shard_states ? RANKS : 1), SF_PHASE_FORWARD);
    hold(&m, SF_CAT_GRADIENTS, PARAM_BYTES / (h.shard_grads ? RANKS : 1), SF_PHASE_FORWARD);
    hold(&m, SF_CAT_COMM_BUFFERS, h.replicate ? 2 * PARAM_BYTES : h.shard_params ? 2 * PARAM_BYTES / LAYERS : PARAM_BYTES / 4, SF_PHASE_FORWARD);
    hold(&m, SF_CAT_WORKSPACE, 1 << 20, SF_PHASE_FORWARD);
    if (h.replicate)
        ready = collective(&m, SF_OP_BROADCAST, SF_PHASE_FORWARD, 0, PARAM_BYTES, 0, 0);
    for (int micro = 0; micro < MICRO; micro++) {
        forward(&m, h, micro, &ready);
        backward(&m, h, micro, &ready, &reduced);
    }
    if (h.replicate)
        reduced = collective(&m, SF_OP_REDUCE, SF_PHASE_BACKWARD, m.at[SF_STREAM_COMPUTE], PARAM_BYTES, 0, MICRO - 1);
    box(&m, SF_OP_ADAMW, SF_STREAM_COMPUTE, SF_PHASE_OPTIMIZER, reduced, h.shard_states ? 3.5 : 7, 0, 0);
    if (h.shard_states && !h.shard_params)
        collective(&m, SF_OP_ALL_GATHER, SF_PHASE_OPTIMIZER, m.at[SF_STREAM_COMPUTE], PARAM_BYTES, 0, 0);
    sf_timeline_summarise(out->spans, out->n_spans, out);
    for (int p = 0; p < SF_PHASE_COUNT; p++)
        out->memory.phase_peak_bytes[p] = out->memory.peak_allocated_bytes;
    out->memory.peak_reserved_bytes = out->memory.peak_allocated_bytes + (1 << 20);
    out->fits = out->memory.peak_allocated_bytes <= out->memory.capacity_bytes;
    out->verdict = out->fits ? "fits" : "needs more than the 96.0 MiB there are; fsdp would fit";
    if (measured) {
        static const double losses[] = { 5.58, 5.21, 4.83, 4.47, 4.12, 3.95, 3.71, 3.60 };
        out->time.step_s_min = out->time.step_s * 0.98;
        out->time.step_s_max = out->time.step_s * 1.05;
        out->steps = sizeof losses / sizeof losses[0];
        out->n_losses = out->steps;
        out->losses = SF_NEW_ARRAY(arena, double, out->steps);
        memcpy(out->losses, losses, sizeof losses);
    }
}

void sf_fake_report(bool measured, sf_arena *arena, sf_report *out)
{
    static const char *const strategies[] = { "dp", "ddp", "zero1", "zero2", "zero3", "fsdp" };
    *out = (sf_report){ .title = measured ? "tiny-gpt2 on 2 ranks of this machine" : "tiny-gpt2 on 2 ranks", .time_bar = 0.10 };
    for (size_t i = 0; i < sizeof strategies / sizeof strategies[0]; i++) {
        sf_outcome *p = SF_NEW(arena, sf_outcome), *m = SF_NEW(arena, sf_outcome);
        sf_report_entry *e = sf_report_add(out, arena, strategies[i]);
        sf_fake_outcome(strategies[i], false, arena, p);
        sf_fake_outcome(strategies[i], true, arena, m);
        e->predicted = p;
        e->measured = measured ? m : NULL;
    }
    sf_report_join(out, arena);
}
