#include "exec/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "exec/host/block.h"

/* ---- the record ---- */

void sf_run_record_open(sf_run_record *record)
{
    memset(record, 0, sizeof *record);
    pthread_mutex_init(&record->lock, NULL);
    sf_outcome_init(&record->last, "measured");
    record->other_load = -1;
}

void sf_run_record_close(sf_run_record *record)
{
    pthread_mutex_destroy(&record->lock);
    sf_arena_free(&record->arena);
    free(record->losses);
    free(record->step_s);
}

static void keep_outcome(sf_run_record *record, const sf_executor *ex)
{
    sf_arena fresh = { 0 };
    sf_outcome now;

    sf_executor_outcome(ex, &fresh, &now);
    pthread_mutex_lock(&record->lock);
    sf_arena_free(&record->arena);
    record->arena = fresh;
    record->last = now;
    pthread_mutex_unlock(&record->lock);
}

static sf_status keep_step(sf_run_record *record, const sf_step *step)
{
    sf_status st = SF_SUCCESS;

    pthread_mutex_lock(&record->lock);
    if (record->n_losses == record->cap_losses) {
        int cap = record->cap_losses > 0 ? 2 * record->cap_losses : 64;
        double *losses = realloc(record->losses, sizeof *losses * (size_t)cap);
        record->losses = losses != NULL ? losses : record->losses;
        double *step_s = realloc(record->step_s, sizeof *step_s * (size_t)cap);
        record->step_s = step_s != NULL ? step_s : record->step_s;
        if (losses == NULL || step_s == NULL)
            st = SF_FAIL(SF_ENOMEM, "no memory for the results of %d steps", cap);
        else
            record->cap_losses = cap;
    }
    if (st.code == SF_OK) {
        record->losses[record->n_losses] = step->loss;
        record->step_s[record->n_losses++] = step->step_s;
    }
    pthread_mutex_unlock(&record->lock);
    return st;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median, least and most of the step times; the first step is left out where there are others. */
static void spread(const sf_run_record *record, sf_arena *arena, sf_outcome *out)
{
    int skip = record->n_losses > 1, n = record->n_losses - skip;
    double *sorted = SF_NEW_ARRAY(arena, double, n);

    if (n <= 0)
        return;
    memcpy(sorted, record->step_s + skip, sizeof *sorted * (size_t)n);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    out->time.step_s = n % 2 == 1 ? sorted[n / 2] : 0.5 * (sorted[n / 2 - 1] + sorted[n / 2]);
    out->time.step_s_min = sorted[0];
    out->time.step_s_max = sorted[n - 1];
}

static const char *copy_text(sf_arena *arena, const char *text)
{
    return text != NULL ? sf_arena_strdup(arena, text) : NULL;
}

void sf_run_snapshot(sf_run_record *record, sf_arena *arena, sf_outcome *out)
{
    pthread_mutex_lock(&record->lock);
    *out = record->last;
    out->verdict = copy_text(arena, out->verdict);
    out->memory.op_of_peak = copy_text(arena, out->memory.op_of_peak);
    out->memory.oom_op = copy_text(arena, out->memory.oom_op);
    out->spans = SF_NEW_ARRAY(arena, sf_span_time, out->n_spans);
    out->memory_line = SF_NEW_ARRAY(arena, sf_memory_point, out->n_memory_line);
    if (out->n_spans > 0)
        memcpy(out->spans, record->last.spans, sizeof *out->spans * out->n_spans);
    if (out->n_memory_line > 0)
        memcpy(out->memory_line, record->last.memory_line, sizeof *out->memory_line * out->n_memory_line);
    out->steps = out->n_losses = record->n_losses;
    out->losses = SF_NEW_ARRAY(arena, double, record->n_losses);
    if (record->n_losses > 0)
        memcpy(out->losses, record->losses, sizeof *out->losses * (size_t)record->n_losses);
    spread(record, arena, out);
    pthread_mutex_unlock(&record->lock);
}

/* ---- parameters ---- */

static bool is_norm_weight(sf_role role)
{
    switch (role) {
    case SF_ROLE_EMBED_NORM_W: case SF_ROLE_NORM1_W: case SF_ROLE_NORM2_W: case SF_ROLE_NORM3_W: case SF_ROLE_NORM4_W:
    case SF_ROLE_NORMF_W: case SF_ROLE_Q_NORM: case SF_ROLE_K_NORM: case SF_ROLE_Q_DOWN_NORM: case SF_ROLE_KV_DOWN_NORM: return true;
    default: return false;
    }
}

void sf_run_params(const sf_transformer *model, uint64_t seed, const float *const *given, sf_arena *arena, sf_params *out)
{
    sf_tensor_list list = { 0 };

    sf_transformer_tensors(model, arena, &list);
    *out = (sf_params){ .params = SF_NEW_ARRAY(arena, sf_param, list.count), .count = (int)list.count, .seed = seed };
    for (size_t i = 0; i < list.count; i++) {
        const sf_tensor *t = &list.items[i];
        sf_param *p = &out->params[i];
        *p = (sf_param){ .name = t->name, .numel = t->numel * (uint64_t)t->copies, .given = given != NULL ? given[i] : NULL };
        if (sf_role_is_matrix(t->role))
            p->std = 0.02f;
        if (t->role == SF_ROLE_OUT_W || t->role == SF_ROLE_DOWN_W)
            p->std = 0.02f / sqrtf(2.0f * (float)model->n_layers);
        if (is_norm_weight(t->role))
            p->mean = 1.0f;
    }
}

/* ---- training ---- */

static sf_executor_setup executor_setup(const sf_run_setup *run, sf_comm *comm, const sf_params *params, const sf_data *data)
{
    const sf_train *t = &run->job->train;
    const sf_transformer *m = &run->job->model;

    return (sf_executor_setup){
        .program = run->program, .comm = comm, .params = params, .data = data, .seq_len = (int)t->seq_len,
        .norm_eps = (float)m->norm_eps, .rope_theta = m->rope_theta, .rotary_dim = m->position == SF_POS_ROTARY ? (int)m->rotary_dim : 0,
        .device_memory_bytes = run->device_memory_bytes,
        .optimizer = { .lr = (float)t->lr, .beta1 = (float)t->beta1, .beta2 = (float)t->beta2, .eps = (float)t->eps,
                       .weight_decay = (float)t->weight_decay, .clip_norm = (float)t->grad_clip },
        .poison = run->poison, .staged = run->staged, .tf32 = t->precision == SF_PRECISION_TF32,
    };
}

/* The memory of the fullest rank, on all ranks. */
static sf_status share_memory(sf_comm *comm, sf_run_record *record)
{
    typedef struct {
        uint64_t peak, reserved, used, host, seq, category[SF_CAT_COUNT], at_peak[SF_CAT_COUNT], phase_peak[SF_PHASE_COUNT];
        sf_phase phase;
        char name[64], verdict[200];
    } memory;
    sf_outcome *o = &record->last;
    memory mine = { .peak = o->memory.peak_allocated_bytes, .reserved = o->memory.peak_reserved_bytes, .used = o->memory.device_used_bytes,
                    .host = o->memory.host_bytes, .seq = o->memory.seq_of_peak, .phase = o->memory.phase_of_peak };
    int world = sf_comm_world(comm), most = 0;
    memory *all = malloc(sizeof *all * (size_t)world);

    if (all == NULL)
        return SF_FAIL(SF_ENOMEM, "no memory to collect the ranks' results");
    memcpy(mine.category, o->memory.peak_bytes, sizeof mine.category);
    memcpy(mine.at_peak, o->memory.at_peak, sizeof mine.at_peak);
    memcpy(mine.phase_peak, o->memory.phase_peak_bytes, sizeof mine.phase_peak);
    strncpy(mine.name, o->memory.op_of_peak != NULL ? o->memory.op_of_peak : "", sizeof mine.name - 1);
    strncpy(mine.verdict, o->verdict != NULL ? o->verdict : "", sizeof mine.verdict - 1);
    sf_status st = sf_comm_exchange(comm, &mine, sizeof mine, all);
    for (int r = 1; r < world && st.code == SF_OK; r++)
        if (all[r].peak > all[most].peak)
            most = r;
    if (st.code == SF_OK && most != sf_comm_rank(comm)) {
        const memory *m = &all[most];
        pthread_mutex_lock(&record->lock);
        o->memory.peak_allocated_bytes = m->peak;
        o->memory.peak_reserved_bytes = m->reserved;
        o->memory.device_used_bytes = m->used;
        o->memory.host_bytes = m->host;
        o->memory.seq_of_peak = m->seq;
        o->memory.phase_of_peak = m->phase;
        memcpy(o->memory.peak_bytes, m->category, sizeof m->category);
        memcpy(o->memory.at_peak, m->at_peak, sizeof m->at_peak);
        memcpy(o->memory.phase_peak_bytes, m->phase_peak, sizeof m->phase_peak);
        o->memory.op_of_peak = sf_arena_strdup(&record->arena, m->name);
        o->verdict = sf_arena_strdup(&record->arena, m->verdict);
        pthread_mutex_unlock(&record->lock);
    }
    free(all);
    return st;
}

/* ---- what else the machine did ---- */

typedef struct {
    double wall_s, busy_s, own_s;
} machine_time;

static double clock_s(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static machine_time machine_now(void)
{
    return (machine_time){ clock_s(CLOCK_MONOTONIC), sf_host_busy_s(), clock_s(CLOCK_PROCESS_CPUTIME_ID) };
}

static sf_status note_other_load(sf_comm *comm, sf_run_record *record, const machine_time *start)
{
    struct {
        double own_s;
        int pid;
    } mine = { 0, (int)getpid() }, all[SF_COMM_MAX_RANKS];
    machine_time end = machine_now();
    double ours = 0, cores = (double)sysconf(_SC_NPROCESSORS_ONLN);

    mine.own_s = end.own_s - start->own_s;
    SF_TRY(sf_comm_exchange(comm, &mine, sizeof mine, all));
    for (int r = 0; r < sf_comm_world(comm); r++) {
        bool counted = false; /* ranks that are threads share their process's time */
        for (int k = 0; k < r; k++)
            counted = counted || all[k].pid == all[r].pid;
        ours += counted ? 0 : all[r].own_s;
    }
    if (start->busy_s < 0 || !sf_comm_one_host(comm) || end.wall_s - start->wall_s < 0.05) /* /proc/stat counts in 1/100 s */
        return SF_SUCCESS;
    double share = (end.busy_s - start->busy_s - ours) / (cores * (end.wall_s - start->wall_s));
    record->other_load = share < 0 ? 0 : share > 1 ? 1 : share;
    return SF_SUCCESS;
}

static sf_status train(const sf_run_setup *run, sf_executor *ex, sf_comm *comm, sf_run_record *record, bool *full)
{
    machine_time start = machine_now();

    for (int s = 0; s < (int)run->job->train.steps; s++) {
        sf_step step;
        SF_TRY(sf_executor_step(ex, &step));
        if (step.out_of_memory) {
            *full = true;
            return SF_SUCCESS;
        }
        SF_TRY(keep_step(record, &step));
        keep_outcome(record, ex);
        if (s == 0 && run->job->train.steps > 1)
            sf_executor_reset_times(ex);
        if (run->progress != NULL && sf_comm_rank(comm) == 0)
            run->progress(run->progress_ctx, s + 1, &step);
    }
    return note_other_load(comm, record, &start);
}

sf_status sf_run_rank(const sf_run_setup *run, sf_comm *comm, sf_run_record *record, void (*read)(void *ctx, sf_executor *ex), void *read_ctx)
{
    sf_arena arena = { 0 };
    sf_params params;
    sf_data *data = NULL;
    sf_executor *ex = NULL;
    bool full = false;
    sf_executor_setup setup;
    sf_status st = SF_SUCCESS;
    const char *path = run->job->train.data;

    sf_run_params(&run->job->model, (uint64_t)run->job->train.seed, run->given, &arena, &params);
    SF_TRY_GOTO(st, sf_data_open(path != NULL && path[0] != '\0' ? path : NULL, (int)run->job->model.vocab, &data), done);
    SF_TRY_GOTO(st, sf_comm_set_node(comm, run->program->ranks_per_node), done);
    setup = executor_setup(run, comm, &params, data);
    SF_TRY_GOTO(st, sf_executor_open(run->backend, &setup, &ex, &full), done);
    if (!full)
        st = train(run, ex, comm, record, &full);
    if (full)
        keep_outcome(record, ex);
    else if (st.code == SF_OK)
        st = share_memory(comm, record);
    if (st.code == SF_OK && !full && read != NULL)
        read(read_ctx, ex);
done:
    if (st.code != SF_OK && st.code != SF_ENUMERIC) /* every rank knows of a loss that is no number */
        sf_comm_stop(comm, SF_STOP_FAILED, st.msg, NULL, 0);
    sf_executor_close(ex);
    sf_data_close(data);
    sf_arena_free(&arena);
    return st;
}

/* ---- ranks as threads ---- */

typedef struct {
    const sf_run_setup *setup;
    sf_comm *comm;
    sf_run_record own, *record;
    sf_status st;
} thread_rank;

static void *run_thread(void *arg)
{
    thread_rank *t = arg;
    t->st = sf_run_rank(t->setup, t->comm, t->record, NULL, NULL);
    return NULL;
}

/* The error of the rank that failed first, not of one that was stopped by it. */
static sf_status first_error(const thread_rank *ranks, int count)
{
    for (int r = 0; r < count; r++)
        if (ranks[r].st.code != SF_OK && ranks[r].st.code != SF_ECOMM)
            return ranks[r].st;
    for (int r = 0; r < count; r++)
        if (ranks[r].st.code != SF_OK)
            return ranks[r].st;
    return SF_SUCCESS;
}

sf_status sf_run_threads(const sf_run_setup *setup, sf_run_record *record)
{
    int world = setup->program->world_size, started = 0;
    sf_comm *comms[SF_COMM_MAX_RANKS];
    pthread_t threads[SF_COMM_MAX_RANKS];

    SF_TRY(sf_comm_threads_open(world, setup->program->ranks_per_node, comms));
    thread_rank *ranks = calloc((size_t)world, sizeof *ranks);
    sf_status st = ranks != NULL ? SF_SUCCESS : SF_FAIL(SF_ENOMEM, "no memory for %d ranks", world);
    for (int r = 0; r < world && st.code == SF_OK; r++) {
        ranks[r] = (thread_rank){ .setup = setup, .comm = comms[r] };
        sf_run_record_open(&ranks[r].own);
        ranks[r].record = r == 0 ? record : &ranks[r].own;
        if (pthread_create(&threads[r], NULL, run_thread, &ranks[r]) != 0) {
            st = SF_FAIL(SF_ENOMEM, "cannot start %d ranks as threads", world);
            sf_run_record_close(&ranks[r].own);
            sf_comm_stop(comms[0], SF_STOP_FAILED, st.msg, NULL, 0);
            break;
        }
        started++;
    }
    for (int r = 0; r < started; r++)
        pthread_join(threads[r], NULL);
    if (st.code == SF_OK)
        st = first_error(ranks, world);
    for (int r = 0; r < started; r++)
        sf_run_record_close(&ranks[r].own);
    for (int r = 0; r < world; r++)
        sf_comm_close(comms[r]);
    free(ranks);
    return st;
}
