#include "reports/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model/base/text.h"
#include "model/base/units.h"
#include "model/cost/estimate.h"
#include "model/cost/form.h"
#include "model/strategy/list.h"
#include "model/strategy/lower.h"
#include "reports/assets.h"
#include "reports/plan_impl.h"
#include "sim/predict.h"

static const double DEEP_MARGIN = 1.1;

enum {
    DEEP = 24, SHALLOW = 4,   /* layers                                                              */
    MOST_MICRO_BATCH = 256,   /* where no global batch limits it                                    */
    TRIES_PER_VARIANT = 6,    /* candidates of a variant that are simulated                          */
    FEW_POINTS = 10,          /* so few candidates are lowered one by one: a form takes 14 lowerings   */
    MICRO_STEPS_PLAYED = 3    /* more accumulation repeats the last one: the step grows linearly     */
};

typedef struct {
    int entry;
    sf_job job;
    const sf_form *form;
    uint64_t text;            /* hash of the lowered program                                          */
} structure;

typedef struct {
    int structure;
    int64_t b, g;
    uint64_t bytes;
    double bound_tokens_per_s;
} candidate;

typedef struct {
    const sf_planner_ask *ask;
    sf_planner *plan;
    sf_arena *arena;
    structure *structures;
    size_t n_structures, cap_structures;
    candidate *candidates;
    size_t n_candidates, cap_candidates;
    sf_arena programs;             /* scratch of the forms                                              */
    const sf_gpu_machine *machine; /* of the base job's cluster                                        */
    const sf_profile_set *host;    /* of this machine's ranks                                          */
} search;

static double processor_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const char *keep(sf_arena *arena, const char *text)
{
    return text == NULL ? NULL : sf_arena_strdup(arena, text);
}

static void note(search *s, const char *text)
{
    SF_PUSH(s->arena, s->plan->notes, s->plan->n_notes, s->plan->cap_notes) = text;
}

/* ---- jobs ---- */

static const char *value_of(const char *value, const sf_planner_ask *ask, sf_arena *arena)
{
    bool nodes = strcmp(value, "@nodes") == 0, per_node = strcmp(value, "@gpus_per_node") == 0;
    sf_job job;
    if (!nodes && !per_node)
        return value;
    if (sf_job_options_read(ask->job, ask->file, arena, &job).code != SF_OK)
        return "1";
    const char *number = sf_arena_printf(arena, "%lld", (long long)(nodes ? job.cluster.nodes : job.cluster.gpus_per_node));
    sf_job_close(&job);
    return number;
}

sf_status sf_planner_read(const sf_planner_ask *ask, const sf_planner_variant *v, const sf_override *more, size_t n_more, sf_arena *arena, sf_job *out)
{
    sf_override *o = SF_NEW_ARRAY(arena, sf_override, SF_MOST_OVERRIDES + ask->n_extra + n_more + 16);
    size_t n = 0;
    sf_job_options with = *ask->job;

    for (size_t i = 0; i < ask->n_extra; i++)
        o[n++] = ask->extra[i];
    if (v != NULL) {
        o[n++] = (sf_override){ "framework", v->framework };
        o[n++] = (sf_override){ "strategy.name", v->strategy };
        char *settings = sf_arena_strdup(arena, v->settings), *save = NULL;
        for (char *set = strtok_r(settings, " ", &save); set != NULL; set = strtok_r(NULL, " ", &save)) {
            char *equals = strchr(set, '=');
            *equals = '\0';
            o[n++] = (sf_override){ set, value_of(equals + 1, ask, arena) };
        }
    }
    for (size_t i = 0; i < n_more; i++)
        o[n++] = more[i];
    if (with.n_overrides + n > SF_MOST_OVERRIDES)
        return SF_FAIL(SF_EINVAL, "more than %d options describe the job", SF_MOST_OVERRIDES);
    for (size_t i = 0; i < n; i++)
        with.overrides[with.n_overrides++] = o[i];
    return sf_job_options_read(&with, ask->file, arena, out);
}

uint64_t sf_planner_host_bytes(const sf_job *job)
{
    return (uint64_t)(job->cluster.host_memory_gib * (double)SF_GIB);
}

/* A framework, strategy or knob that the job states is not varied. */
static bool is_open(const sf_job *base, const sf_planner_variant *v)
{
    if (base->cluster.nodes < v->least_nodes)
        return false;
    if (sf_job_stated(base, "framework") ? strcmp(v->framework, sf_framework_name(base->framework)) != 0
                                         : (strcmp(v->framework, "shardfit") == 0) != base->cluster.gpu.is_host)
        return false;
    if (sf_job_stated(base, "strategy.name") && strcmp(v->strategy, sf_strategy_name(base->strategy.name)) != 0)
        return false;
    for (const char *at = v->settings; *at != '\0';) { /* a stated knob keeps its value */
        size_t len = strcspn(at, " "), path = strcspn(at, "=");
        char name[128];
        if (path < sizeof name && strncmp(at, "strategy.", 9) == 0) {
            memcpy(name, at, path);
            name[path] = '\0';
            if (sf_job_stated(base, name))
                return false;
        }
        at += len + (at[len] == ' ');
    }
    return true;
}

static bool is_modelled(const sf_planner_variant *v)
{
    bool found = false;
#define AS_TEST(whose, name, function, summary)                                                    \
    found = found || (strcmp(v->framework, sf_framework_name(SF_FRAMEWORK_##whose)) == 0 && strcmp(v->strategy, name) == 0);
    SF_STRATEGIES(AS_TEST)
#undef AS_TEST
    return found;
}

bool sf_planner_wanted(const sf_planner_ask *ask, const sf_job *base, const sf_planner_variant *v)
{
    return (ask->only == NULL || ask->only == v) && is_modelled(v) && is_open(base, v);
}


/* ---- lowering ---- */

typedef struct {
    const sf_job *job;
    search *s;
    const sf_program *ready; /* lowered before, at ready_b, ready_g; NULL: none */
    int64_t ready_b, ready_g;
} source_context;

static sf_status lower_at(void *ctx, int64_t b, int64_t g, sf_arena *scratch, const sf_program **out)
{
    const source_context *c = ctx;
    if (c->ready != NULL && b == c->ready_b && g == c->ready_g) {
        *out = c->ready;
        return SF_SUCCESS;
    }
    sf_job *job = SF_NEW(scratch, sf_job); /* the program borrows it */
    *job = *c->job;
    job->train.micro_batch = b;
    job->train.grad_accum = g;
    job->train.global_batch = b * g * sf_job_world_size(job);
    return sf_lower(job, scratch, out);
}

static double seconds_of(void *ctx, const sf_class *cls, const sf_issue *issue)
{
    const source_context *c = ctx;
    if (c->s->host != NULL)
        return sf_profile_op_time_s(c->s->host, cls, issue);
    return c->s->machine == NULL ? 0 : sf_gpu_machine_op_s(c->s->machine, cls, issue);
}

static void mix(uint64_t *hash, uint64_t value)
{
    *hash = (*hash ^ value) * 1099511628211u; /* FNV-1a's prime, word by word */
}

/* What decides memory, bytes and time of a program. */
static uint64_t hash_of(const sf_program *p)
{
    uint64_t h = 14695981039346656037u;
    for (int c = 0; c < p->n_classes; c++) {
        const sf_class *cls = &p->classes[c];
        for (size_t i = 0; i < cls->n_buffers; i++) {
            const sf_buffer *b = &cls->buffers[i];
            mix(&h, b->elems);
            mix(&h, (uint64_t)b->count << 32 | (uint64_t)b->dtype << 16 | (uint64_t)b->space << 8 | (uint64_t)b->category << 1 | b->persistent);
        }
        for (size_t i = 0; i < cls->n_ops; i++) {
            const sf_op *op = &cls->ops[i];
            mix(&h, (uint64_t)op->type << 32 | (uint64_t)op->stream << 16 | (uint64_t)op->phase << 8 | (uint64_t)op->launches);
            mix(&h, op->flop);
            mix(&h, op->bytes);
            mix(&h, (uint64_t)(op->dims.m * 31 + op->dims.n * 37 + op->dims.k * 41 + op->dims.batch));
            mix(&h, op->n_args > 0 ? (uint64_t)op->args[0].buffer : 0);
        }
    }
    return h;
}

sf_status sf_planner_probe(const sf_job *job, sf_arena *scratch, sf_outcome *out, bool *fits)
{
    const sf_program *program;
    uint64_t host = sf_planner_host_bytes(job);
    SF_TRY(sf_lower(job, scratch, &program));
    sf_estimate(program, sf_job_device_bytes(job), out);
    *fits = out->fits && (host == 0 || out->memory.host_bytes * (uint64_t)job->cluster.gpus_per_node <= host);
    return SF_SUCCESS;
}

/* ---- candidates of a structure ---- */

static bool fits_bytes(const search *s, const structure *st, uint64_t device, uint64_t host)
{
    if (s->ask->device_only && host > 0)
        return false;
    uint64_t capacity = sf_job_device_bytes(&st->job), node = sf_planner_host_bytes(&st->job);
    return (capacity == 0 || device <= capacity) && (node == 0 || host * (uint64_t)st->job.cluster.gpus_per_node <= node);
}

/* Does it fit? */
static bool consider(search *s, int index, int64_t b, int64_t g)
{
    const structure *st = &s->structures[index];
    sf_planner_entry *e = &s->plan->entries[st->entry];
    sf_form_value v;

    e->candidates++;
    if (!sf_form_eval(st->form, b, g, &v) || !fits_bytes(s, st, v.peak_allocated_bytes, v.host_bytes))
        return false;
    e->fitting++;
    double busy = 0;
    for (int k = 0; k < SF_STREAM_COUNT; k++)
        busy = v.stream_s[k] > busy ? v.stream_s[k] : busy;
    SF_PUSH(s->arena, s->candidates, s->n_candidates, s->cap_candidates) =
        (candidate){ .structure = index, .b = b, .g = g, .bytes = v.peak_allocated_bytes, .bound_tokens_per_s = busy > 0 ? (double)v.tokens / busy : 0 };
    return true;
}

/* The micro-batches and accumulations that the job leaves open. */
typedef struct {
    int64_t b_lo, b_hi, per_rank; /* per_rank: sequences of a rank and step; 0: no global batch         */
    int64_t g;                    /* without a global batch                                             */
} lattice;

static lattice lattice_of(const search *s, const sf_job *job)
{
    const sf_job *base = &s->plan->base;
    lattice l = { .b_lo = 1, .b_hi = MOST_MICRO_BATCH, .g = 1 };
    if (sf_job_stated(base, "train.global_batch") && base->train.global_batch > 0 && !sf_job_stated(base, "train.grad_accum")) {
        l.per_rank = base->train.global_batch / sf_job_world_size(job);
        l.b_hi = l.per_rank;
    } else if (sf_job_stated(base, "train.grad_accum")) {
        l.g = base->train.grad_accum;
    }
    if (sf_job_stated(base, "train.micro_batch"))
        l.b_lo = l.b_hi = base->train.micro_batch;
    return l;
}

/* What divides a rank's share; where nothing limits it, 1 .. 8, then four to each doubling. */
static bool in_lattice(const lattice *l, int64_t b)
{
    int64_t step = 1;
    if (l->per_rank > 0)
        return l->per_rank % b == 0;
    while (b > 8 * step)
        step *= 2;
    return b % step == 0 || l->b_lo == l->b_hi;
}

static int64_t accumulation(const lattice *l, int64_t b)
{
    return l->per_rank == 0 ? l->g : l->per_rank / b;
}

static size_t lattice_size(const lattice *l)
{
    size_t n = 0;
    for (int64_t b = l->b_lo; b <= l->b_hi; b++)
        n += in_lattice(l, b);
    return n;
}

/* Memory grows with b: beyond the first b that does not fit, none does. The growth is seen at two points. */
static sf_status cut_to_capacity(search *s, structure *st, const sf_outcome *at_lo, lattice *l, sf_arena *scratch)
{
    uint64_t capacity = sf_job_device_bytes(&st->job);
    source_context c = { .job = &st->job, .s = s };
    const sf_program *program;
    sf_outcome next;

    if (l->b_hi <= l->b_lo + 1 || capacity == 0)
        return SF_SUCCESS;
    SF_TRY(lower_at(&c, l->b_lo + 1, 1, scratch, &program));
    sf_estimate(program, 0, &next);
    if (next.memory.peak_allocated_bytes <= at_lo->memory.peak_allocated_bytes)
        return SF_SUCCESS;
    uint64_t growth = next.memory.peak_allocated_bytes - at_lo->memory.peak_allocated_bytes;
    int64_t most = l->b_lo + 1 + (int64_t)((capacity - at_lo->memory.peak_allocated_bytes) / growth);
    l->b_hi = most < l->b_hi ? most : l->b_hi;
    return SF_SUCCESS;
}

/* The same program again: a knob that makes no difference here. Its candidates are those of the first. */
static bool known(const search *s, int entry, uint64_t text)
{
    for (size_t i = s->n_structures; i > 0 && s->structures[i - 1].entry == entry; i--)
        if (s->structures[i - 1].text == text)
            return true;
    return false;
}

static void remember_leanest(search *s, sf_planner_entry *e, const sf_job *job, int64_t b, int64_t g, const sf_outcome *o)
{
    if (e->has_job && e->outcome.memory.peak_allocated_bytes <= o->memory.peak_allocated_bytes)
        return;
    e->has_job = true;
    e->job = *job;
    e->job.train.micro_batch = b;
    e->job.train.grad_accum = g;
    e->job.train.global_batch = b * g * sf_job_world_size(job);
    e->outcome = *o;
    e->outcome.memory.op_of_peak = keep(s->arena, o->memory.op_of_peak);
}

static sf_status weigh_form(search *s, structure *st, const lattice *l)
{
    source_context c = { .job = &st->job, .s = s };
    sf_form_source source = { .ctx = &c, .lower = lower_at, .seconds = seconds_of, .only_linear = true, .scratch = &s->programs };
    SF_TRY(sf_form_make(&source, l->b_hi, accumulation(l, l->b_lo), s->arena, &st->form));
    SF_PUSH(s->arena, s->structures, s->n_structures, s->cap_structures) = *st;
    for (int64_t b = l->b_lo; b <= l->b_hi; b++)
        if (in_lattice(l, b))
            consider(s, (int)s->n_structures - 1, b, accumulation(l, b));
    return SF_SUCCESS;
}

/* Memory grows with b: after the first that does not fit, the others are decided. */
static sf_status weigh_points(search *s, structure *st, const lattice *l, const sf_program *first)
{
    source_context c = { .job = &st->job, .s = s, .ready = first, .ready_b = l->b_lo, .ready_g = accumulation(l, l->b_lo) };
    sf_form_source source = { .ctx = &c, .lower = lower_at, .seconds = seconds_of, .scratch = &s->programs };
    sf_form *form = NULL;
    bool fits = true, fitted = false;

    SF_PUSH(s->arena, s->structures, s->n_structures, s->cap_structures) = *st;
    for (int64_t b = l->b_lo; b <= l->b_hi; b++) {
        if (!in_lattice(l, b))
            continue;
        if (fitted && !fits) {
            s->plan->entries[st->entry].candidates++;
            continue;
        }
        SF_TRY(sf_form_add_point(&source, b, accumulation(l, b), s->arena, &form));
        s->structures[s->n_structures - 1].form = form;
        fits = consider(s, (int)s->n_structures - 1, b, accumulation(l, b));
        fitted = fitted || fits;
    }
    return SF_SUCCESS;
}

static sf_status add_structure(search *s, int entry, const sf_job *job, sf_arena *scratch)
{
    sf_planner_entry *e = &s->plan->entries[entry];
    source_context c = { .job = job, .s = s };
    structure st = { .entry = entry, .job = *job };
    lattice l = lattice_of(s, job);
    int64_t first_g = l.per_rank == 0 ? l.g : l.b_lo <= l.per_rank ? l.per_rank / l.b_lo : 1;
    const sf_program *program;
    sf_outcome o;

    if (l.per_rank > 0 && (l.b_lo > l.per_rank || l.per_rank % l.b_lo != 0))
        return SF_FAIL(SF_EINVAL, "micro-batch %lld does not divide the %lld sequences that a rank gets in a step", (long long)l.b_lo, (long long)l.per_rank);
    SF_TRY(lower_at(&c, l.b_lo, first_g, scratch, &program));
    const sf_program *first = program;
    st.text = hash_of(program);
    s->plan->structures++;
    if (known(s, entry, st.text)) {
        e->candidates += lattice_size(&l);
        return SF_SUCCESS;
    }
    sf_estimate(program, sf_job_device_bytes(job), &o);
    remember_leanest(s, e, job, l.b_lo, first_g, &o);
    if (!fits_bytes(s, &st, o.memory.peak_allocated_bytes, o.memory.host_bytes)) {
        if (l.per_rank > 1) { /* without accumulation gradients may need less */
            SF_TRY(lower_at(&c, l.b_lo, 1, scratch, &program));
            sf_estimate(program, sf_job_device_bytes(job), &o);
        }
        if (!fits_bytes(s, &st, o.memory.peak_allocated_bytes, o.memory.host_bytes)) {
            e->candidates += lattice_size(&l);
            SF_PUSH(s->arena, s->structures, s->n_structures, s->cap_structures) = st;
            return SF_SUCCESS;
        }
    }
    size_t all = lattice_size(&l);
    if (all > FEW_POINTS)
        SF_TRY(cut_to_capacity(s, &st, &o, &l, scratch));
    e->candidates += all - lattice_size(&l); /* decided: they do not fit */
    if (s->ask->only_fits) {
        e->fitting++;
        return SF_SUCCESS;
    }
    if (lattice_size(&l) > FEW_POINTS) {
        sf_status st_form = weigh_form(s, &st, &l);
        if (st_form.code != SF_EUNSUP)
            return st_form;
    }
    return weigh_points(s, &st, &l, first);
}

/* The values of an axis: the stated one alone, else all, the default first. */
static int values_of(const sf_job *base, const char *path, int64_t stated, int64_t first, int64_t count, int64_t *out)
{
    int n = 0;
    if (sf_job_stated(base, path)) {
        out[n++] = stated;
        return n;
    }
    out[n++] = first;
    for (int64_t v = 0; v < count; v++)
        if (v != first)
            out[n++] = v;
    return n;
}

/* ---- deep models that are far too large ----
 * The peak is the highest of moments that each grow linearly with the layers, so it is convex in them, and the line
 * through two shallow models of the same width lies below it. What misses the capacity by more than DEEP_MARGIN on
 * that line (the margin is for buckets that are shared among layers) is not lowered whole. */

static bool shallow_peak(const sf_job *job, int layers, sf_arena *scratch, double *bytes)
{
    sf_job thin = *job;
    const sf_program *program;
    sf_outcome o;
    thin.model.n_layers = layers;
    bool lowered = sf_lower(&thin, scratch, &program).code == SF_OK;
    if (lowered) {
        sf_estimate(program, 0, &o);
        *bytes = (double)o.memory.peak_allocated_bytes;
    }
    sf_arena_reset(scratch);
    return lowered;
}

double sf_planner_far_too_large(const sf_job *job, sf_arena *scratch)
{
    double capacity = (double)sf_job_device_bytes(job), few = 0, more = 0;
    bool alike = job->model.n_experts == 0 && job->model.n_layers >= DEEP;
    for (int i = 1; alike && job->model.layer_kinds != NULL && i < job->model.n_layers; i++)
        alike = job->model.layer_kinds[i] == job->model.layer_kinds[0];
    if (capacity == 0 || !alike || !shallow_peak(job, SHALLOW, scratch, &few) || !shallow_peak(job, 2 * SHALLOW, scratch, &more))
        return 0;
    double whole = more + (more - few) / SHALLOW * (job->model.n_layers - 2 * SHALLOW);
    return whole > capacity * DEEP_MARGIN ? whole : 0;
}

/* The same of the smallest micro-batch of a structure, with its accumulation and without: gradients may need less. */
static double structure_too_large(const search *s, const sf_job *of, sf_arena *scratch)
{
    lattice l = lattice_of(s, of);
    sf_job job = *of;
    double bytes = 0;
    if (l.per_rank > 0 && (l.b_lo > l.per_rank || l.per_rank % l.b_lo != 0))
        return 0;
    job.train.micro_batch = l.b_lo;
    for (int pass = 0; pass < (l.per_rank > 1 ? 2 : 1); pass++) {
        job.train.grad_accum = pass == 1 ? 1 : accumulation(&l, l.b_lo);
        job.train.global_batch = job.train.micro_batch * job.train.grad_accum * sf_job_world_size(&job);
        bytes = sf_planner_far_too_large(&job, scratch);
        if (bytes <= 0)
            return 0;
    }
    return bytes;
}

static void count_undone(search *s, int entry, const sf_job *job)
{
    lattice l = lattice_of(s, job);
    s->plan->entries[entry].candidates += lattice_size(&l);
    s->plan->structures++;
}

static void add_entry(search *s, const sf_planner_variant *v, sf_arena *scratch)
{
    enum { MOST = SF_PLANNER_MOST_CHOICES };
    const sf_job *base = &s->plan->base;
    int64_t recompute[MOST], attention[MOST], loss[MOST], sync[MOST], optimizer[MOST];
    sf_job job;
    sf_planner_entry *e = &SF_PUSH(s->arena, s->plan->entries, s->plan->n_entries, s->plan->cap_entries);
    int entry = (int)s->plan->n_entries - 1;

    *e = (sf_planner_entry){ .variant = v, .tokens_per_s = -1, .dollars_per_gtoken = -1, .fit_probability = -1 };
    sf_status st = sf_planner_read(s->ask, v, NULL, 0, s->arena, &job);
    if (st.code != SF_OK) {
        e->reason = keep(s->arena, st.msg);
        return;
    }
    /* what only adds memory is no candidate for fitting at all */
    bool lean = s->ask->only_fits;
    int n_recompute = values_of(base, "train.recompute", job.train.recompute, lean ? SF_RECOMPUTE_FULL : SF_RECOMPUTE_NONE,
                                lean ? SF_RECOMPUTE_NONE + 1 : SF_RECOMPUTE_COUNT, recompute);
    int n_attention = values_of(base, "train.attention", job.train.attention, lean ? SF_ATTENTION_FLASH : SF_ATTENTION_SDPA,
                                lean ? 0 : SF_ATTENTION_FLASH + 1, attention); /* not superseded kernels */
    int n_loss = values_of(base, "train.loss", job.train.loss, lean ? SF_LOSS_FUSED : SF_LOSS_FULL, lean ? SF_LOSS_FULL + 1 : SF_LOSS_COUNT, loss);
    int n_sync = values_of(base, "train.sync_each_micro_step", job.train.sync_each_micro_step, false, 2, sync);
    int n_optimizer = 0;
    for (int i = 0; i < s->ask->n_optimizers; i++)
        optimizer[n_optimizer++] = s->ask->optimizers[i];
    if (n_optimizer == 0)
        optimizer[n_optimizer++] = job.train.optimizer;
    size_t all = (size_t)(n_recompute * n_attention * n_loss * n_sync * n_optimizer);
    sf_job leanest = job;
    double leanest_bytes = 0; /* of those that are far too large */
    for (size_t i = 0; i < all; i++) {
        size_t at = i;
        job.train.attention = attention[at % (size_t)n_attention];
        at /= (size_t)n_attention;
        job.train.loss = loss[at % (size_t)n_loss];
        at /= (size_t)n_loss;
        job.train.sync_each_micro_step = sync[at % (size_t)n_sync] != 0;
        at /= (size_t)n_sync;
        job.train.recompute = recompute[at % (size_t)n_recompute];
        at /= (size_t)n_recompute;
        job.train.optimizer = optimizer[at];
        double bytes = structure_too_large(s, &job, scratch);
        if (bytes > 0) {
            count_undone(s, entry, &job);
            if (leanest_bytes == 0 || bytes < leanest_bytes) {
                leanest_bytes = bytes;
                leanest = job;
            }
            continue;
        }
        st = add_structure(s, entry, &job, scratch);
        sf_arena_reset(scratch);
        if (st.code != SF_OK && s->plan->entries[entry].reason == NULL)
            s->plan->entries[entry].reason = keep(s->arena, st.msg);
        if (s->ask->only_fits && s->plan->entries[entry].fitting > 0)
            break;
    }
    e = &s->plan->entries[entry];
    bool leaner = !e->has_job || leanest_bytes < (double)e->outcome.memory.peak_allocated_bytes;
    if (leanest_bytes > 0 && leaner && e->fitting == 0 && !s->ask->only_fits) { /* to tell by how much */
        size_t counted = s->plan->entries[entry].candidates;
        size_t structures = s->plan->structures;
        for (int pass = 0; pass < 1 + n_sync; pass++) { /* shallow models may misjudge which is the leanest: what saves most is asked too */
            if (pass > 0) {
                leanest.train.recompute = recompute[0] == recompute[n_recompute - 1] ? recompute[0] : SF_RECOMPUTE_FULL;
                leanest.train.loss = n_loss > 1 ? SF_LOSS_FUSED : loss[0];
                leanest.train.attention = n_attention > 1 ? SF_ATTENTION_SDPA : attention[0];
                leanest.train.sync_each_micro_step = sync[pass - 1] != 0;
            }
            add_structure(s, entry, &leanest, scratch);
            sf_arena_reset(scratch);
        }
        s->plan->structures = structures;
        s->plan->entries[entry].candidates = counted;
    }
    s->plan->entries[entry].source = job.source;
}

/* ---- simulation ---- */

static sf_status simulate(search *s, const sf_job *job, int64_t g, sf_arena *arena, sf_outcome *out)
{
    sf_predict_options how = { .profile = s->ask->profile, .machine = sf_job_world_size(job) == sf_job_world_size(&s->plan->base) ? s->machine : NULL };
    sf_job *at = SF_NEW(arena, sf_job);
    const sf_program *program;
    *at = *job;
    at->train.grad_accum = g;
    at->train.global_batch = g * at->train.micro_batch * sf_job_world_size(at);
    SF_TRY(sf_lower(at, arena, &program));
    s->plan->simulated++;
    return sf_predict(at, program, &how, arena, out);
}

/* Tokens per second of a candidate; 0: it does not fit after all, or its time is not known. */
static double speed_of(search *s, const candidate *c, sf_arena *scratch, uint64_t *device_bytes)
{
    sf_job job = s->structures[c->structure].job;
    sf_outcome last, before;
    double step = 0;

    job.train.micro_batch = c->b;
    int64_t played = c->g > MICRO_STEPS_PLAYED ? MICRO_STEPS_PLAYED : c->g;
    if (simulate(s, &job, played, scratch, &last).code != SF_OK || !last.fits || last.time.step_s <= 0)
        return 0;
    *device_bytes = last.memory.device_used_bytes;
    step = last.time.step_s;
    if (c->g > played) {
        if (simulate(s, &job, played - 1, scratch, &before).code != SF_OK)
            return 0;
        step += (double)(c->g - played) * (last.time.step_s - before.time.step_s);
    }
    return (double)last.tokens_per_step / (double)played * (double)c->g / step;
}

static int by_bound(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->bound_tokens_per_s != y->bound_tokens_per_s)
        return x->bound_tokens_per_s > y->bound_tokens_per_s ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* The whole step of the chosen candidate, for its figures. */
static void finish_entry(search *s, sf_planner_entry *e, const candidate *c)
{
    sf_outcome o;
    e->job = s->structures[c->structure].job;
    e->job.train.micro_batch = c->b;
    e->job.train.grad_accum = c->g;
    e->job.train.global_batch = c->b * c->g * sf_job_world_size(&e->job);
    if (simulate(s, &e->job, c->g, s->arena, &o).code != SF_OK || !o.fits)
        return;
    e->outcome = o;
    if (o.time.step_s <= 0)
        return; /* it fits; this machine is not measured */
    e->outcome.spans = NULL;
    e->outcome.n_spans = 0;
    e->ranked = true;
    e->tokens_per_s = sf_outcome_tokens_per_s(&o);
    if (s->ask->price_per_gpu_hour > 0 && e->tokens_per_s > 0)
        e->dollars_per_gtoken = 1e9 / e->tokens_per_s / 3600 * s->ask->price_per_gpu_hour * sf_job_world_size(&e->job);
}

typedef struct {
    const candidate *c;
    double tokens_per_s;
    uint64_t bytes;
} trial;

/* The leanest of those as fast as the fastest within 0.1 %. */
static const candidate *choose_trial(const trial *tried, int n)
{
    const trial *best = NULL;
    double fastest = 0;
    for (int i = 0; i < n; i++)
        fastest = tried[i].tokens_per_s > fastest ? tried[i].tokens_per_s : fastest;
    for (int i = 0; i < n; i++)
        if (tried[i].tokens_per_s >= fastest * 0.999 && (best == NULL || tried[i].bytes < best->bytes))
            best = &tried[i];
    return best == NULL ? NULL : best->c;
}

static void keep_point(search *s, int entry, const trial *t)
{
    sf_job job = s->structures[t->c->structure].job;
    job.train.micro_batch = t->c->b;
    job.train.grad_accum = t->c->g;
    SF_PUSH(s->arena, s->plan->points, s->plan->n_points, s->plan->cap_points) =
        (sf_planner_point){ .entry = entry, .device_bytes = t->bytes, .tokens_per_s = t->tokens_per_s, .what = sf_planner_configuration(&job, s->arena) };
}

static void simulate_entry(search *s, int entry, sf_arena *scratch)
{
    trial tried[TRIES_PER_VARIANT];
    const candidate *first = NULL;
    double fastest = 0;
    int n = 0, misfits = 0;

    for (size_t i = 0; i < s->n_candidates && n < TRIES_PER_VARIANT && misfits < 4 * TRIES_PER_VARIANT; i++) {
        trial t = { .c = &s->candidates[i] };
        if (s->structures[t.c->structure].entry != entry)
            continue;
        first = first == NULL ? t.c : first;
        if (n > 0 && t.c->bound_tokens_per_s <= fastest)
            break;
        t.tokens_per_s = speed_of(s, t.c, scratch, &t.bytes);
        sf_arena_reset(scratch);
        if (t.tokens_per_s <= 0) {
            misfits++;
            continue;
        }
        fastest = t.tokens_per_s > fastest ? t.tokens_per_s : fastest;
        keep_point(s, entry, &t);
        tried[n++] = t;
    }
    const candidate *best = n > 0 ? choose_trial(tried, n) : first; /* no speed is known: bytes alone */
    if (best != NULL)
        finish_entry(s, &s->plan->entries[entry], best);
}

/* ---- words ---- */

const char *sf_planner_loss_name(int64_t loss)
{
#define AS_NAME(id, name) name,
    static const char *const names[] = { SF_LOSSES(AS_NAME) };
#undef AS_NAME
    return names[loss];
}

const char *sf_planner_configuration(const sf_job *job, sf_arena *arena)
{
    const sf_train *t = &job->train;
    const char *loss = t->loss == SF_LOSS_FULL ? "" : sf_arena_printf(arena, ", %s loss", sf_planner_loss_name(t->loss));
    const char *accum = t->grad_accum > 1 ? sf_arena_printf(arena, " x %lld", (long long)t->grad_accum) : "";
    return sf_arena_printf(arena, "micro-batch %lld%s%s, %s, %s%s%s%s", (long long)t->micro_batch, accum,
                           t->grad_accum > 1 && t->sync_each_micro_step ? " reduced each time" : "", t->recompute == SF_RECOMPUTE_NONE ? "no recompute" : sf_arena_printf(arena, "recompute %s", sf_recompute_name(t->recompute)),
                           sf_attention_name(t->attention), loss, t->optimizer == SF_OPTIMIZER_ADAMW ? "" : ", ",
                           t->optimizer == SF_OPTIMIZER_ADAMW ? "" : sf_optimizer_name(t->optimizer));
}

const char *sf_planner_band_name(sf_planner_band band)
{
    static const char *const names[] = { "OK", "TIGHT", "OOM" };
    return names[band];
}

/* "activations 40.1 GiB, parameters 12.0 GiB": what fills the peak most. */
static const char *largest_parts(const sf_outcome *o, sf_arena *arena)
{
    int first = 0, second = -1;
    for (int c = 1; c < SF_CAT_COUNT; c++) {
        if (o->memory.at_peak[c] > o->memory.at_peak[first]) {
            second = first;
            first = c;
        } else if (second < 0 || o->memory.at_peak[c] > o->memory.at_peak[second]) {
            second = c;
        }
    }
    return sf_arena_printf(arena, "%s %s, %s %s", sf_category_name((sf_category)first), sf_bytes_text(o->memory.at_peak[first]).text,
                           sf_category_name((sf_category)second), sf_bytes_text(o->memory.at_peak[second]).text);
}

/* Of those as fast as the fastest within 0.1 %, the simplest wins: the first in the list of variants. */
static void prefer_simple(sf_planner *p)
{
    size_t best = 0;
    for (size_t i = 1; i < p->n_ranked; i++)
        if (p->entries[i].tokens_per_s >= p->entries[0].tokens_per_s * 0.999 && p->entries[i].variant < p->entries[best].variant)
            best = i;
    sf_planner_entry winner = p->entries[best];
    memmove(&p->entries[1], &p->entries[0], best * sizeof winner);
    p->entries[0] = winner;
}

static void explain_misfit(search *s, sf_planner_entry *e)
{
    uint64_t capacity = sf_job_device_bytes(&e->job), node = sf_planner_host_bytes(&e->job);
    const sf_outcome *o = &e->outcome;
    uint64_t host = o->memory.host_bytes * (uint64_t)e->job.cluster.gpus_per_node;

    if (capacity > 0 && o->memory.peak_allocated_bytes > capacity)
        e->reason = sf_arena_printf(s->arena, "does not fit: at least %s of %s (%s; the most in %s: %s)",
                                    sf_bytes_text(o->memory.peak_allocated_bytes).text, sf_bytes_text(capacity).text,
                                    sf_planner_configuration(&e->job, s->arena), sf_phase_name(o->memory.phase_of_peak), largest_parts(o, s->arena));
    else if (node > 0 && host > node)
        e->reason = sf_arena_printf(s->arena, "does not fit the hosts: %s of a node's %s", sf_bytes_text(host).text, sf_bytes_text(node).text);
    else if (e->fitting > 0 || e->reason == NULL)
        e->reason = sf_arena_printf(s->arena, "fits in %s (%s); its time is not known: this machine is not measured (shardfit calibrate)",
                                    sf_bytes_text(o->memory.device_used_bytes).text, sf_planner_configuration(&e->job, s->arena));
}

static void explain_slower(search *s, sf_planner_entry *e, const sf_planner_entry *best)
{
    const sf_outcome *o = &e->outcome, *w = &best->outcome;
    double slower = 1 - e->tokens_per_s / best->tokens_per_s;
    double per_token = o->tokens_per_step > 0 ? 1.0 / (double)o->tokens_per_step : 0, best_per_token = w->tokens_per_step > 0 ? 1.0 / (double)w->tokens_per_step : 0;
    struct {
        const char *what;
        double more_s;
    } terms[] = {
        { "exposed communication", o->time.exposed_comm_s * per_token - w->time.exposed_comm_s * best_per_token },
        { "forward", o->time.busy_s[SF_PHASE_FORWARD] * per_token - w->time.busy_s[SF_PHASE_FORWARD] * best_per_token },
        { "backward", o->time.busy_s[SF_PHASE_BACKWARD] * per_token - w->time.busy_s[SF_PHASE_BACKWARD] * best_per_token },
        { "optimizer", o->time.busy_s[SF_PHASE_OPTIMIZER] * per_token - w->time.busy_s[SF_PHASE_OPTIMIZER] * best_per_token },
        { "waiting", o->time.idle_s * per_token - w->time.idle_s * best_per_token },
    };
    size_t most = 0;
    for (size_t i = 1; i < sizeof terms / sizeof terms[0]; i++)
        most = terms[i].more_s > terms[most].more_s ? i : most;
    if (slower < 0.0005)
        e->reason = "as fast within 0.1 %";
    else if (sf_job_world_size(&e->job) < sf_job_world_size(&best->job))
        e->reason = sf_arena_printf(s->arena, "%.1f %% slower: uses %d of %d GPUs", slower * 100, sf_job_world_size(&e->job), sf_job_world_size(&best->job));
    else
        e->reason = sf_arena_printf(s->arena, "%.1f %% slower: %s for each million tokens more in %s", slower * 100,
                                    sf_seconds_text(terms[most].more_s * 1e6).text, terms[most].what);
}

const char *sf_planner_headline(const sf_planner *p, sf_arena *arena)
{
    if (p->n_ranked == 0) {
        for (size_t i = 0; i < p->n_entries; i++)
            if (p->entries[i].fitting > 0)
                return "It fits, but how fast is not known: this machine is not measured; run `shardfit calibrate` first";
        return sf_arena_printf(arena, "Nothing of what was weighed fits in %s per GPU", p->capacity_bytes > 0 ? sf_bytes_text(p->capacity_bytes).text : "the memory");
    }
    const sf_planner_entry *e = &p->entries[0];
    return sf_arena_printf(arena, "%s: %s of %s, %s: %.0f tokens/s, %s%s%s", sf_planner_band_name(e->band), e->variant->title, e->variant->framework,
                           sf_planner_configuration(&e->job, arena), e->tokens_per_s, sf_bytes_text(e->outcome.memory.device_used_bytes).text,
                           p->capacity_bytes > 0 ? " of " : "", p->capacity_bytes > 0 ? sf_bytes_text(p->capacity_bytes).text : "");
}

/* ---- does it fit, in the light of what the model has missed by so far ---- */

/* The 90th percentile of |error| of predicted memory for a framework; negative: no measurements. */
static double memory_error(const char *framework, sf_arena *arena)
{
    char *text;
    if (sf_file_read(sf_asset_path("data/memory_error.csv", arena), 1 << 20, arena, &text, NULL).code != SF_OK)
        return -1;
    for (char *line = text; line != NULL && *line != '\0'; line = strchr(line, '\n') == NULL ? NULL : strchr(line, '\n') + 1) {
        size_t len = strcspn(line, ",");
        if (len != strlen(framework) || strncmp(line, framework, len) != 0)
            continue;
        const char *rows_end = strchr(line + len + 1, ',');
        return rows_end == NULL ? -1 : strtod(rows_end + 1, NULL);
    }
    return -1;
}

/* The error is taken as normal: 90 % of |errors| lie within 1.645 standard deviations. */
static void judge_fit(sf_planner_entry *e, sf_arena *arena)
{
    double capacity = (double)sf_job_device_bytes(&e->job), used = (double)e->outcome.memory.device_used_bytes;
    double p90 = memory_error(e->variant->framework, arena);
    bool fits = capacity == 0 || used <= capacity;

    e->band = fits ? SF_PLANNER_OK : SF_PLANNER_OOM;
    if (p90 < 0 || capacity == 0)
        return;
    double sigma = p90 / 1.645;
    e->fit_probability = sigma <= 0 ? (fits ? 1 : 0) : 0.5 * erfc(-(capacity / used - 1) / sigma / sqrt(2));
    e->band = e->fit_probability >= 0.95 ? SF_PLANNER_OK : e->fit_probability >= 0.05 ? SF_PLANNER_TIGHT : SF_PLANNER_OOM;
}

/* ---- the whole ---- */

static int by_speed(const void *a, const void *b)
{
    const sf_planner_entry *x = a, *y = b;
    if (x->ranked != y->ranked)
        return x->ranked ? -1 : 1;
    if (x->ranked && x->tokens_per_s != y->tokens_per_s)
        return x->tokens_per_s > y->tokens_per_s ? -1 : 1;
    if (x->has_job != y->has_job)
        return x->has_job ? -1 : 1;
    return x->variant < y->variant ? -1 : x->variant > y->variant;
}

/* A job's file names it, else its model. */
static const char *name_of(const sf_planner_ask *ask, const sf_job *job, sf_arena *arena)
{
    if (ask->job->n_files == 0)
        return job->model.name;
    const char *path = ask->job->files[ask->file], *slash = strrchr(path, '/'), *name = slash == NULL ? path : slash + 1, *dot = strrchr(name, '.');
    return sf_arena_strndup(arena, name, dot == NULL || dot == name ? strlen(name) : (size_t)(dot - name));
}

static void title(const sf_planner_ask *ask, sf_planner *p, sf_arena *arena)
{
    const sf_cluster *c = &p->base.cluster;
    const char *gpu = c->gpu.name, *name = name_of(ask, &p->base, arena);
    if (c->gpu.is_host) {
        p->title = sf_arena_printf(arena, "%s on %d ranks of this machine", name, sf_job_world_size(&p->base));
        return;
    }
    p->title = c->nodes > 1 ? sf_arena_printf(arena, "%s on %lld x %lld %s", name, (long long)c->nodes, (long long)c->gpus_per_node, gpu)
                            : sf_arena_printf(arena, "%s on %lld x %s", name, (long long)c->gpus_per_node, gpu);
}

static void take_notes(search *s)
{
    const sf_job *base = &s->plan->base;
    bool global = sf_job_stated(base, "train.global_batch"), accum = sf_job_stated(base, "train.grad_accum");
    note(s, sf_arena_printf(s->arena, "sequences of %lld tokens%s; precision %s; optimizer %s", (long long)base->train.seq_len,
                            sf_job_stated(base, "train.seq_len") ? "" : " (the model's most; --seq-len)", sf_precision_name(base->train.precision),
                            s->ask->n_optimizers > 0 ? "as allowed" : sf_optimizer_name(base->train.optimizer)));
    const char *missing = NULL;
    for (size_t i = 0; i < sf_planner_variant_count; i++)
        if (is_open(base, &sf_planner_variants[i]) && !is_modelled(&sf_planner_variants[i]))
            missing = missing == NULL ? sf_planner_variants[i].title : sf_arena_printf(s->arena, "%s; %s", missing, sf_planner_variants[i].title);
    if (missing != NULL)
        note(s, sf_arena_printf(s->arena, "not modelled in this version, and not weighed: %s", missing));
    if (!global && !accum)
        note(s, "no global batch is stated (--global-batch): accumulation 1, the micro-batch is free");
    if (!base->cluster.gpu.is_host && base->cluster.nodes > 1 && !sf_job_stated(base, "cluster.inter.nics"))
        note(s, sf_arena_printf(s->arena, "network as by default: %lld NICs of %g Gbit/s a node", (long long)base->cluster.nics, base->cluster.gbit_per_nic));
    if (base->cluster.host_memory_gib <= 0)
        note(s, "host memory is not stated (cluster.host_memory_gib): offloading is not checked against it");
}

sf_status sf_planner_make(const sf_planner_ask *ask, sf_arena *arena, sf_planner *out)
{
    search s = { .ask = ask, .plan = out, .arena = arena };
    sf_arena scratch = { 0 };
    double start = processor_s();
    sf_status st = SF_SUCCESS;

    *out = (sf_planner){ .title = NULL };
    SF_TRY(sf_planner_read(ask, NULL, NULL, 0, arena, &out->base));
    title(ask, out, arena);
    out->capacity_bytes = sf_job_device_bytes(&out->base);
    if (out->base.cluster.gpu.is_host)
        s.host = ask->profile == NULL ? NULL : sf_profile_set_of(ask->profile, sf_job_world_size(&out->base), false);
    else if (!ask->only_fits)
        SF_TRY_GOTO(st, sf_gpu_machine_make(&out->base.cluster, sf_job_world_size(&out->base), arena, &s.machine), done);
    for (size_t i = 0; i < sf_planner_variant_count; i++)
        if (sf_planner_wanted(ask, &out->base, &sf_planner_variants[i])) {
            add_entry(&s, &sf_planner_variants[i], &scratch);
            if (ask->only_fits && out->entries[out->n_entries - 1].fitting > 0)
                break;
        }
    if (out->n_entries == 0) {
        st = SF_FAIL(SF_EUNSUP, "no strategy of framework %s can be predicted yet; --framework shardfit plans for our own executor",
                     sf_job_stated(&out->base, "framework") ? sf_framework_name(out->base.framework) : "pytorch or deepspeed");
        goto done;
    }
    for (size_t i = 0; i < out->n_entries; i++) {
        out->candidates += out->entries[i].candidates;
        out->fitting += out->entries[i].fitting;
    }
    bool taken = false;
    for (size_t i = 0; i < out->n_entries; i++)
        taken = taken || out->entries[i].has_job;
    if (!taken && !ask->only_fits) {
        st = SF_FAIL(SF_EUNSUP, "no strategy can take this job; %s: %s", out->entries[0].variant->title,
                     out->entries[0].reason == NULL ? "refused" : out->entries[0].reason);
        goto done;
    }
    if (ask->only_fits)
        goto done;
    if (s.n_candidates > 0)
        qsort(s.candidates, s.n_candidates, sizeof *s.candidates, by_bound);
    for (size_t i = 0; i < out->n_entries; i++) {
        if (out->entries[i].fitting > 0)
            simulate_entry(&s, (int)i, &scratch);
        if (out->entries[i].has_job)
            judge_fit(&out->entries[i], arena);
        out->n_ranked += out->entries[i].ranked;
    }
    /* points name their entry by its place, which sorting changes */
    const sf_planner_variant **of = SF_NEW_ARRAY(arena, const sf_planner_variant *, out->n_points + 1);
    for (size_t i = 0; i < out->n_points; i++)
        of[i] = out->entries[out->points[i].entry].variant;
    qsort(out->entries, out->n_entries, sizeof *out->entries, by_speed);
    if (out->n_ranked > 1)
        prefer_simple(out);
    for (size_t i = 0; i < out->n_points; i++)
        for (size_t k = 0; k < out->n_entries; k++)
            if (out->entries[k].variant == of[i])
                out->points[i].entry = (int)k;
    for (size_t i = 0; i < out->n_entries; i++) {
        sf_planner_entry *e = &out->entries[i];
        if (e->ranked) {
            e->reason = NULL;
            if (i > 0)
                explain_slower(&s, e, &out->entries[0]);
        } else if (e->has_job) {
            explain_misfit(&s, e);
            if (!ask->no_remedies && e->fitting == 0)
                e->remedy = sf_planner_remedy(ask, e->variant, &e->job, arena);
        }
    }
    take_notes(&s);
done:
    out->seconds = processor_s() - start;
    sf_arena_free(&scratch);
    sf_arena_free(&s.programs);
    if (st.code != SF_OK)
        sf_planner_close(out);
    return st;
}

void sf_planner_close(sf_planner *plan)
{
    for (size_t i = 0; i < plan->n_entries; i++)
        json_decref(plan->entries[i].source);
    sf_job_close(&plan->base);
}
