#include "reports/study.h"

#include <string.h>

#include "model/base/units.h"
#include "model/desc/job.h"
#include "model/strategy/lower.h"
#include "sim/predict.h"

enum { MOST_NODES = 8, EVERY_RANK_UP_TO = 16 };

static const double slow_gpu_share = 0.8; /* one GPU at four fifths of its speed: a throttled or a mixed-in older one */

static sf_table *start(sf_report *report, sf_arena *arena, const char *title, const char *text)
{
    sf_table *t = SF_NEW(arena, sf_table);
    sf_table_start(t, arena, NULL);
    SF_PUSH(arena, report->parts, report->n_parts, report->cap_parts) = (sf_report_part){ title, text, t };
    return t;
}

static double gib(uint64_t bytes)
{
    return (double)bytes / (double)SF_GIB;
}

/* ---- how it executes, who holds what ---- */

static void holds(sf_table *t, uint64_t bytes, uint64_t most)
{
    if (bytes == 0)
        sf_table_cell(t, SF_TONE_FAINT, "-");
    else if (bytes * 2 > most) /* not shared among ranks */
        sf_table_cell(t, SF_TONE_PLAIN, "%.2f", gib(bytes));
    else
        sf_table_cell(t, SF_TONE_GOOD, "%.2f", gib(bytes));
}

static const char *collectives(const sf_outcome *o, sf_arena *arena)
{
    const char *text = "none";
    for (size_t i = 0; i < o->n_comm; i++) {
        const char *one = sf_arena_printf(arena, "%llu %s of %s", (unsigned long long)o->comm[i].calls, sf_op_name(o->comm[i].collective),
                                          sf_bytes_text(o->comm[i].bytes_per_rank).text);
        text = i == 0 ? one : sf_arena_printf(arena, "%s, %s", text, one);
    }
    return text;
}

static void execution(sf_report *report, const sf_job *jobs, sf_arena *arena)
{
    sf_table *t = start(report, arena, "How each executes, and who holds what",
                        "Memory of the fullest rank by what it is (each at its own most), and the collectives that a rank issues in a step.");
    uint64_t most[SF_CAT_COUNT] = { 0 };

    for (size_t i = 0; i < report->n_entries; i++)
        for (int c = 0; c < SF_CAT_COUNT && report->entries[i].predicted != NULL; c++)
            if (report->entries[i].predicted->memory.peak_bytes[c] > most[c])
                most[c] = report->entries[i].predicted->memory.peak_bytes[c];
    sf_table_column(t, SF_LEFT, "strategy", NULL);
    sf_table_column(t, SF_RIGHT, "processes", NULL);
    sf_table_column(t, SF_RIGHT, "parameters", "GiB");
    sf_table_column(t, SF_RIGHT, "gradients", "GiB");
    sf_table_column(t, SF_RIGHT, "optimizer, master", "GiB");
    sf_table_column(t, SF_RIGHT, "activations, logits", "GiB");
    sf_table_column(t, SF_RIGHT, "buffers", "GiB");
    sf_table_column(t, SF_RIGHT, "host", "GiB/rank");
    sf_table_column(t, SF_LEFT, "collectives of a step", NULL);
    for (size_t i = 0; i < report->n_entries; i++) {
        const sf_outcome *o = report->entries[i].predicted;
        sf_arena scratch = { 0 };
        const sf_program *program;
        if (o == NULL)
            continue;
        const uint64_t *p = o->memory.peak_bytes;
        bool one_process = sf_lower(&jobs[i], &scratch, &program).code == SF_OK && program->one_process;
        sf_arena_free(&scratch);
        sf_table_row(t);
        sf_table_cell(t, SF_TONE_STRONG, "%s", report->entries[i].title);
        sf_table_cell(t, SF_TONE_PLAIN, "%d", one_process ? 1 : sf_job_world_size(&jobs[i]));
        holds(t, p[SF_CAT_PARAMETERS], most[SF_CAT_PARAMETERS]);
        holds(t, p[SF_CAT_GRADIENTS], most[SF_CAT_GRADIENTS]);
        holds(t, p[SF_CAT_OPTIMIZER] + p[SF_CAT_MASTER], most[SF_CAT_OPTIMIZER] + most[SF_CAT_MASTER]);
        sf_table_cell(t, SF_TONE_PLAIN, "%.2f", gib(p[SF_CAT_ACTIVATIONS] + p[SF_CAT_LOGITS]));
        sf_table_cell(t, SF_TONE_PLAIN, "%.2f", gib(p[SF_CAT_COMM_BUFFERS] + p[SF_CAT_TEMPORARIES] + p[SF_CAT_WORKSPACE]));
        sf_table_cell(t, o->memory.host_bytes > 0 ? SF_TONE_PLAIN : SF_TONE_FAINT, "%.2f", gib(o->memory.host_bytes));
        sf_table_cell(t, SF_TONE_PLAIN, "%s", collectives(o, arena));
    }
}

/* ---- scaling ---- */

static double speed_at(const sf_report_entry *e, int64_t per_node, int64_t nodes, double slow, double *step_s)
{
    sf_arena scratch = { 0 };
    const sf_override set[] = { { "cluster.gpus_per_node", sf_arena_printf(&scratch, "%lld", (long long)per_node) },
                                { "cluster.nodes", sf_arena_printf(&scratch, "%lld", (long long)nodes) }, { "train.global_batch", "0" } };
    const sf_program *program;
    sf_job job = { .source = NULL };
    sf_outcome o;
    double speed = -1;

    if (sf_job_from_json(e->job, "job", set, sizeof set / sizeof set[0], &scratch, &job).code == SF_OK) {
        sf_predict_options how = { .every_rank = slow > 0 && per_node * nodes <= EVERY_RANK_UP_TO, .slow_gpu_share = slow };
        if (sf_lower(&job, &scratch, &program).code == SF_OK && sf_predict(&job, program, &how, &scratch, &o).code == SF_OK && o.fits &&
            o.time.step_s > 0) {
            speed = sf_outcome_tokens_per_s(&o);
            if (step_s != NULL)
                *step_s = o.time.step_s;
        }
        sf_job_close(&job);
    }
    sf_arena_free(&scratch);
    return speed;
}

static void add_count(sf_report_scaling *s, int64_t gpus)
{
    if (s->n_counts < SF_REPORT_MOST_COUNTS && (s->n_counts == 0 || gpus > s->counts[s->n_counts - 1]))
        s->counts[s->n_counts++] = (int)gpus;
}

static void scaling(sf_report *report, const sf_cluster *c, sf_arena *arena)
{
    sf_report_scaling *s = SF_NEW(arena, sf_report_scaling);
    int64_t most_nodes = c->nodes > MOST_NODES ? c->nodes : MOST_NODES;
    for (int64_t n = 1; n < c->gpus_per_node; n *= 2)
        add_count(s, n);
    for (int64_t nodes = 1; nodes <= most_nodes; nodes *= 2)
        add_count(s, c->gpus_per_node * nodes);
    s->tokens_per_s = SF_NEW_ARRAY(arena, double, report->n_entries * (size_t)s->n_counts);
    sf_table *t = start(report, arena, "Scaling",
                        "Tokens/s as GPUs are added at the same micro-batch and accumulation; in brackets, the share of perfect scaling from the first "
                        "count that fits.");
    sf_table_column(t, SF_LEFT, "strategy", NULL);
    for (int k = 0; k < s->n_counts; k++)
        sf_table_column(t, SF_RIGHT, sf_arena_printf(arena, "%d", s->counts[k]), NULL);
    for (size_t i = 0; i < report->n_entries; i++) {
        double first = 0;
        int first_count = 1;
        sf_table_row(t);
        sf_table_cell(t, SF_TONE_STRONG, "%s", report->entries[i].title);
        for (int k = 0; k < s->n_counts; k++) {
            int64_t per_node = s->counts[k] < c->gpus_per_node ? s->counts[k] : c->gpus_per_node, nodes = s->counts[k] / per_node;
            double speed = report->entries[i].predicted == NULL ? -1 : speed_at(&report->entries[i], per_node, nodes, 0, NULL);
            s->tokens_per_s[i * (size_t)s->n_counts + (size_t)k] = speed;
            if (speed <= 0) {
                sf_table_cell(t, SF_TONE_FAINT, "-");
                continue;
            }
            if (first <= 0) {
                first = speed;
                first_count = s->counts[k];
            }
            sf_table_cell(t, SF_TONE_PLAIN, "%.0f (%.0f %%)", speed, 100 * speed / first / s->counts[k] * first_count);
        }
    }
    report->scaling = s;
}

/* ---- one slow GPU ---- */

static void stragglers(sf_report *report, const sf_cluster *c, double *lost, sf_arena *arena)
{
    bool every = c->gpus_per_node * c->nodes <= EVERY_RANK_UP_TO;
    sf_table *t = start(report, arena, "One slow GPU",
                        every ? "The step when GPU 0 computes at 80 % of its speed: every rank is simulated, collectives start when the last rank arrives."
                              : "The step when GPU 0 computes at 80 % of its speed, taken as if all did: an upper bound for so many GPUs.");
    sf_table_column(t, SF_LEFT, "strategy", NULL);
    sf_table_column(t, SF_RIGHT, "step", "ms");
    sf_table_column(t, SF_RIGHT, "with a slow GPU", "ms");
    sf_table_column(t, SF_RIGHT, "speed lost", NULL);
    for (size_t i = 0; i < report->n_entries; i++) {
        const sf_report_entry *e = &report->entries[i];
        double even = 0, slow = 0;
        lost[i] = -1;
        if (e->predicted == NULL || speed_at(e, c->gpus_per_node, c->nodes, 1, &even) <= 0 ||
            speed_at(e, c->gpus_per_node, c->nodes, slow_gpu_share, &slow) <= 0)
            continue;
        lost[i] = 1 - even / slow;
        sf_table_row(t);
        sf_table_cell(t, SF_TONE_STRONG, "%s", e->title);
        sf_table_cell(t, SF_TONE_PLAIN, "%.1f", even * 1e3);
        sf_table_cell(t, SF_TONE_PLAIN, "%.1f", slow * 1e3);
        sf_table_cell(t, SF_TONE_PLAIN, "%.1f %%", 100 * lost[i]);
    }
}

/* ---- effort and use ---- */

/* What a training script needs, by the frameworks' own documentation. */
static const struct {
    const char *framework, *strategy, *effort;
} efforts[] = {
    { "pytorch", "single", "nothing: python train.py" },
    { "pytorch", "dp", "one line, nn.DataParallel(model); started as one process" },
    { "pytorch", "ddp", "torchrun, init_process_group, DistributedSampler, DDP(model)" },
    { "pytorch", "fsdp", "as ddp, and FSDP(model, auto_wrap_policy, mixed_precision); sharded checkpoints" },
    { "pytorch", "fsdp2", "as ddp, and fully_shard on each block and the model; DTensor checkpoints" },
    { "deepspeed", "ddp", "deepspeed.initialize and ds_config.json with stage 0" },
    { "deepspeed", "zero1", "deepspeed.initialize and ds_config.json with stage 1" },
    { "deepspeed", "zero2", "deepspeed.initialize and ds_config.json with stage 2" },
    { "deepspeed", "zero3", "deepspeed.initialize and ds_config.json with stage 3; parameters are gathered to be touched or saved" },
    { "shardfit", "", "mpirun shardfit run JOB.json" },
};

static const char *effort_of(const sf_job *job)
{
    for (size_t i = 0; i < sizeof efforts / sizeof efforts[0]; i++)
        if (strcmp(efforts[i].framework, sf_framework_name(job->framework)) == 0 &&
            (efforts[i].strategy[0] == '\0' || strcmp(efforts[i].strategy, sf_strategy_name(job->strategy.name)) == 0))
            return efforts[i].effort;
    return "-";
}

static const char *use_of(const sf_report *report, const sf_report_entry *e, const sf_report_entry *fastest, const sf_report_entry *leanest, sf_arena *arena)
{
    const sf_outcome *o = e->predicted;
    if (!o->fits)
        return sf_arena_printf(arena, "not here: it needs %s of %s", sf_bytes_text(o->memory.peak_allocated_bytes).text,
                               sf_bytes_text(o->memory.capacity_bytes).text);
    if (e == fastest)
        return sf_arena_printf(arena, "here: the fastest of %zu that fits%s", report->n_entries, e == leanest ? ", and the leanest" : "");
    if (fastest == NULL)
        return "it fits";
    const sf_outcome *f = fastest->predicted;
    double slower = 100 * (1 - sf_outcome_tokens_per_s(o) / sf_outcome_tokens_per_s(f));
    if (o->memory.peak_allocated_bytes < f->memory.peak_allocated_bytes)
        return sf_arena_printf(arena, "when less than %s is free: %s less than %s, for %.1f %% of its speed%s", sf_bytes_text(f->memory.peak_allocated_bytes).text,
                               sf_bytes_text(f->memory.peak_allocated_bytes - o->memory.peak_allocated_bytes).text, fastest->title, slower,
                               e == leanest ? "; the leanest" : "");
    return sf_arena_printf(arena, "not here: %.1f %% slower than %s and %s more memory", slower, fastest->title,
                           sf_bytes_text(o->memory.peak_allocated_bytes - f->memory.peak_allocated_bytes).text);
}

static void advice(sf_report *report, const sf_job *jobs, const double *lost, sf_arena *arena)
{
    const sf_report_entry *fastest, *leanest;
    size_t n_fit;
    const sf_report_scaling *s = report->scaling;
    sf_table *t = start(report, arena, "When to use which", "From the figures of this job; effort from the frameworks' documentation.");

    sf_report_rank(report, &fastest, &leanest, &n_fit);
    sf_table_column(t, SF_LEFT, "strategy", NULL);
    sf_table_column(t, SF_RIGHT, "GPUs that it fits on", NULL);
    sf_table_column(t, SF_RIGHT, "lost to a slow GPU", NULL);
    sf_table_column(t, SF_LEFT, "effort", NULL);
    sf_table_column(t, SF_LEFT, "use it", NULL);
    for (size_t i = 0; i < report->n_entries; i++) {
        const sf_report_entry *e = &report->entries[i];
        int least = 0;
        if (e->predicted == NULL)
            continue;
        for (int k = s->n_counts - 1; k >= 0; k--)
            least = s->tokens_per_s[i * (size_t)s->n_counts + (size_t)k] > 0 ? s->counts[k] : least;
        sf_table_row(t);
        sf_table_cell(t, SF_TONE_STRONG, "%s", e->title);
        if (least > 0)
            sf_table_cell(t, SF_TONE_PLAIN, "from %d", least);
        else
            sf_table_cell(t, SF_TONE_BAD, "none to %d", s->counts[s->n_counts - 1]);
        if (lost[i] >= 0)
            sf_table_cell(t, SF_TONE_PLAIN, "%.1f %%", 100 * lost[i]);
        else
            sf_table_cell(t, SF_TONE_FAINT, "-");
        sf_table_cell(t, SF_TONE_PLAIN, "%s", effort_of(&jobs[i]));
        sf_table_cell(t, SF_TONE_PLAIN, "%s", use_of(report, e, fastest, leanest, arena));
    }
}

void sf_study_add(sf_report *report, sf_arena *arena)
{
    sf_job *jobs = SF_NEW_ARRAY(arena, sf_job, report->n_entries);
    double *lost = SF_NEW_ARRAY(arena, double, report->n_entries);
    const sf_cluster *cluster = NULL;

    for (size_t i = 0; i < report->n_entries; i++) {
        if (report->entries[i].predicted == NULL || sf_job_from_json(report->entries[i].job, "job", NULL, 0, arena, &jobs[i]).code != SF_OK)
            continue;
        if (cluster == NULL)
            cluster = &jobs[i].cluster;
    }
    if (cluster != NULL && !cluster->gpu.is_host) {
        execution(report, jobs, arena);
        scaling(report, cluster, arena);
        stragglers(report, cluster, lost, arena);
        advice(report, jobs, lost, arena);
    }
    for (size_t i = 0; i < report->n_entries; i++)
        sf_job_close(&jobs[i]);
}
