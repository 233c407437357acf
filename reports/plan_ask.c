/* The planner asked the other way round: how few GPUs, how long a sequence, how large a model or batch. */
#include <stdlib.h>
#include <string.h>

#include "model/base/text.h"
#include "model/base/units.h"
#include "model/desc/catalogue.h"
#include "reports/plan_impl.h"

enum { MOST_GPUS = 4096, GPUS_OF_A_NODE = 8, MOST_SETS = 8, SEQ_GRAIN = 128, LONGEST_SEQ = 1 << 22, MOST_BATCH = 1 << 16 };

typedef struct {
    const sf_planner_ask *ask;
    sf_arena *arena;
    json_t *json;
    sf_text *text;
    bool device_only; /* nothing in host memory */
} answer;

/* What fits under further settings, in words; NULL: nothing (or the job is impossible). */
static const char *what_fits(const answer *a, const sf_planner_variant *only, const sf_override *more, size_t n)
{
    sf_override set[MOST_SETS * 2];
    sf_arena scratch = { 0 };
    sf_planner_ask ask = *a->ask;
    const char *found = NULL;
    sf_planner plan;

    for (size_t i = 0; i < ask.n_extra; i++)
        set[i] = ask.extra[i];
    for (size_t i = 0; i < n; i++)
        set[ask.n_extra + i] = more[i];
    ask.extra = set;
    ask.n_extra += n;
    ask.only_fits = true;
    ask.only = only;
    ask.device_only = a->device_only;
    if (sf_planner_make(&ask, &scratch, &plan).code == SF_OK) {
        for (size_t i = 0; i < plan.n_entries && found == NULL; i++) {
            const sf_planner_entry *e = &plan.entries[i];
            if (e->fitting > 0)
                found = sf_arena_printf(a->arena, "%s of %s%s", e->variant->title, e->variant->framework,
                                        e->outcome.memory.host_bytes == 0 ? "" : sf_arena_printf(&scratch, " (%s of host memory a rank)",
                                                                                                 sf_bytes_text(e->outcome.memory.host_bytes).text));
        }
        sf_planner_close(&plan);
    }
    sf_arena_free(&scratch);
    return found;
}

static const char *number(const answer *a, int64_t n)
{
    return sf_arena_printf(a->arena, "%lld", (long long)n);
}

/* A count of GPUs as nodes of at most 8. */
static size_t gpus_settings(const answer *a, int64_t gpus, sf_override *set)
{
    int64_t per_node = gpus < GPUS_OF_A_NODE ? gpus : GPUS_OF_A_NODE;
    set[0] = (sf_override){ "cluster.gpus_per_node", number(a, per_node) };
    set[1] = (sf_override){ "cluster.nodes", number(a, gpus / per_node) };
    return 2;
}

/* The global batch must divide among any count: per-rank settings decide whether it fits. */
static size_t free_batch(sf_override *set)
{
    set[0] = (sf_override){ "train.global_batch", "0" };
    set[1] = (sf_override){ "train.micro_batch", "1" };
    set[2] = (sf_override){ "train.grad_accum", "1" };
    return 3;
}

/* ---- the smallest count that fits ---- */

static int64_t fewest_gpus(const answer *a, const char *gpu, const char **with)
{
    for (int64_t gpus = 1; gpus <= MOST_GPUS; gpus = gpus < GPUS_OF_A_NODE ? gpus + 1 : gpus * 2) {
        sf_override set[MOST_SETS];
        size_t n = gpus_settings(a, gpus, set);
        n += free_batch(&set[n]);
        if (gpu != NULL)
            set[n++] = (sf_override){ "cluster.gpu", gpu };
        *with = what_fits(a, NULL, set, n);
        if (*with == NULL)
            continue;
        /* between the last count of whole nodes that did not fit and this one */
        for (int64_t nodes = gpus / 2 / GPUS_OF_A_NODE + 1; gpus > 2 * GPUS_OF_A_NODE && nodes < gpus / GPUS_OF_A_NODE; nodes++) {
            gpus_settings(a, nodes * GPUS_OF_A_NODE, set);
            const char *fewer = what_fits(a, NULL, set, n);
            if (fewer != NULL) {
                *with = fewer;
                return nodes * GPUS_OF_A_NODE;
            }
        }
        return gpus;
    }
    return 0;
}

static void answer_min_gpus(answer *a, const char *types, bool *found)
{
    char *list = sf_arena_strdup(a->arena, types == NULL ? "" : types), *save = NULL;
    json_t *rows = json_array();
    for (char *gpu = types == NULL ? list : strtok_r(list, ",", &save); gpu != NULL; gpu = types == NULL ? NULL : strtok_r(NULL, ",", &save)) {
        int64_t last = 0;
        for (int host = 0; host < 2; host++) { /* on the devices alone, then with host memory if that needs fewer */
            const char *with = NULL;
            a->device_only = host == 0;
            int64_t gpus = fewest_gpus(a, types == NULL ? NULL : gpu, &with);
            a->device_only = false;
            if (host == 1 && (gpus == last || gpus == 0))
                break;
            last = gpus;
            sf_text_add(a->text, "Fewest GPUs%s%s%s: ", types == NULL ? "" : " of ", types == NULL ? "" : gpu, host == 0 ? "" : ", with offloading");
            if (gpus > 0)
                sf_text_add(a->text, "%lld, with %s at micro-batch 1\n", (long long)gpus, with);
            else
                sf_text_add(a->text, "%d do not fit it\n", MOST_GPUS);
            json_t *row = json_pack("{s:I, s:b, s:s*}", "gpus", (json_int_t)gpus, "offloading", host, "with", with);
            if (types != NULL)
                json_object_set_new(row, "gpu", json_string(gpu));
            json_array_append_new(rows, row);
        }
        *found = *found && last > 0;
    }
    json_object_set_new(a->json, "min_gpus", rows);
}

/* ---- the longest sequence ---- */

static void answer_seq_len(answer *a, const sf_job *base, bool *found)
{
    int64_t most = base->model.position == SF_POS_LEARNED ? base->model.max_positions : LONGEST_SEQ, fits = 0, over = 0;
    const char *with = NULL;
    for (int64_t seq = SEQ_GRAIN; seq <= most && over == 0; seq *= 2) {
        sf_override set[MOST_SETS];
        size_t n = free_batch(set);
        set[n++] = (sf_override){ "train.seq_len", number(a, seq) };
        const char *now = what_fits(a, NULL, set, n);
        if (now == NULL)
            over = seq;
        else {
            fits = seq;
            with = now;
        }
    }
    over = over == 0 ? most + 1 : over;
    while (fits > 0 && over - fits > SEQ_GRAIN) {
        int64_t middle = (fits + over) / 2 / SEQ_GRAIN * SEQ_GRAIN;
        if (middle <= fits)
            break;
        sf_override set[MOST_SETS];
        size_t n = free_batch(set);
        set[n++] = (sf_override){ "train.seq_len", number(a, middle) };
        const char *now = what_fits(a, NULL, set, n);
        if (now == NULL)
            over = middle;
        else {
            fits = middle;
            with = now;
        }
    }
    if (fits > 0)
        sf_text_add(a->text, "Longest sequence: %lld tokens (in steps of %d), with %s at micro-batch 1\n", (long long)fits, SEQ_GRAIN, with);
    else
        sf_text_add(a->text, "Longest sequence: not even %d tokens fit\n", SEQ_GRAIN);
    *found = *found && fits > 0;
    json_object_set_new(a->json, "max_seq_len", json_pack("{s:I, s:s*}", "tokens", (json_int_t)fits, "with", with));
}

/* ---- the largest micro-batch, per variant ---- */

static bool batch_fits(const answer *a, const sf_planner_variant *v, int64_t b)
{
    sf_override set[] = { { "train.global_batch", "0" }, { "train.micro_batch", number(a, b) } };
    return what_fits(a, v, set, sizeof set / sizeof set[0]) != NULL;
}

static void answer_batch(answer *a, const sf_job *base, bool *found)
{
    json_t *rows = json_array();
    bool any = false;

    for (size_t i = 0; i < sf_planner_variant_count; i++) {
        const sf_planner_variant *v = &sf_planner_variants[i];
        int64_t fits = 0, over = 1;
        if (!sf_planner_wanted(a->ask, base, v))
            continue;
        while (over <= MOST_BATCH && batch_fits(a, v, over)) {
            fits = over;
            over *= 2;
        }
        while (over - fits > 1) {
            int64_t b = (fits + over) / 2;
            *(batch_fits(a, v, b) ? &fits : &over) = b;
        }
        any = any || fits > 0;
        if (fits > 0)
            sf_text_add(a->text, "Largest micro-batch of %s of %s: %lld\n", v->title, v->framework, (long long)fits);
        else
            sf_text_add(a->text, "Largest micro-batch of %s of %s: none fits\n", v->title, v->framework);
        json_array_append_new(rows, json_pack("{s:s, s:s, s:I}", "strategy", v->title, "framework", v->framework, "micro_batch", (json_int_t)fits));
    }
    *found = *found && any;
    json_object_set_new(a->json, "max_batch", rows);
}

/* ---- the largest model of the catalogue ---- */

typedef struct {
    const char *name;
    uint64_t params;
} model_row;

static int by_params(const void *x, const void *y)
{
    const model_row *a = x, *b = y;
    return a->params > b->params ? -1 : a->params < b->params;
}

static void answer_model(answer *a, bool *found)
{
    sf_arena scratch = { 0 };
    model_row *rows = NULL;
    size_t n = 0, cap = 0;
    char *text, *save = NULL;
    const char *largest = NULL, *with = NULL;
    uint64_t params = 0;

    sf_status st = sf_file_read(sf_catalogue_path(a->arena, "models/models.txt"), 1 << 20, a->arena, &text, NULL);
    for (char *line = st.code == SF_OK ? strtok_r(text, "\n", &save) : NULL; line != NULL; line = strtok_r(NULL, "\n", &save)) {
        char *name_save = NULL, *file = line[0] == '#' ? NULL : strtok_r(line, " ", &name_save), *name = file == NULL ? NULL : strtok_r(NULL, " ", &name_save);
        sf_transformer model;
        if (name != NULL && sf_transformer_find(name, &scratch, &model).code == SF_OK)
            SF_PUSH(a->arena, rows, n, cap) = (model_row){ name, sf_transformer_params(&model) };
        sf_arena_reset(&scratch);
    }
    sf_arena_free(&scratch);
    if (n > 0)
        qsort(rows, n, sizeof *rows, by_params);
    for (size_t i = 0; i < n && largest == NULL; i++) {
        sf_override set[MOST_SETS];
        size_t k = free_batch(set);
        set[k++] = (sf_override){ "model", rows[i].name };
        with = what_fits(a, NULL, set, k);
        if (with != NULL) {
            largest = rows[i].name;
            params = rows[i].params;
        }
    }
    if (largest != NULL)
        sf_text_add(a->text, "Largest model of the catalogue: %s (%s parameters), with %s at micro-batch 1\n", largest, sf_count_text((double)params).text, with);
    else
        sf_text_add(a->text, "Largest model of the catalogue: none fits\n");
    *found = *found && largest != NULL;
    json_object_set_new(a->json, "max_model", json_pack("{s:s*, s:I, s:s*}", "model", largest, "parameters", (json_int_t)params, "with", with));
}

/* ---- how many GPUs to finish in time ---- */

static void answer_deadline(answer *a, double seconds, double tokens, bool *found)
{
    double needed = tokens / seconds;
    for (int64_t gpus = 1; gpus <= MOST_GPUS; gpus *= 2) {
        sf_override set[MOST_SETS * 2];
        sf_arena scratch = { 0 };
        sf_planner_ask ask = *a->ask;
        sf_planner plan;
        size_t n = 0;
        for (; n < ask.n_extra; n++)
            set[n] = ask.extra[n];
        n += gpus_settings(a, gpus, &set[n]);
        ask.extra = set;
        ask.n_extra = n;
        ask.no_remedies = true;
        double speed = 0;
        if (sf_planner_make(&ask, &scratch, &plan).code == SF_OK) {
            speed = plan.n_ranked > 0 ? plan.entries[0].tokens_per_s : 0;
            if (speed >= needed) {
                double took = tokens / speed, hours = took / 3600 * (double)gpus;
                sf_text_add(a->text, "GPUs to see %s tokens in %.3g days: %lld, with %s of %s: %.0f tokens/s, %.2f days, %.0f GPU hours", sf_count_text(tokens).text,
                            seconds / 86400, (long long)gpus, plan.entries[0].variant->title, plan.entries[0].variant->framework, speed,
                            took / 86400, hours);
                if (ask.price_per_gpu_hour > 0)
                    sf_text_add(a->text, ", %.0f at %g an hour", hours * ask.price_per_gpu_hour, ask.price_per_gpu_hour);
                sf_text_add(a->text, "\n");
                json_object_set_new(a->json, "gpus_to_finish", json_pack("{s:I, s:f, s:f, s:f, s:s}", "gpus", (json_int_t)gpus, "tokens_per_s", speed, "days",
                                                                        took / 86400, "gpu_hours", hours, "with", plan.entries[0].variant->title));
            }
            sf_planner_close(&plan);
        }
        sf_arena_free(&scratch);
        if (speed >= needed)
            return;
    }
    *found = false;
    sf_text_add(a->text, "GPUs to see %s tokens in %.3g days: not even %d reach %.0f tokens/s\n", sf_count_text(tokens).text, seconds / 86400, MOST_GPUS,
                needed);
    json_object_set_new(a->json, "gpus_to_finish", json_null());
}

sf_status sf_planner_answer(const sf_planner_ask *ask, const sf_planner_questions *q, sf_arena *arena, json_t *into, sf_text *out, bool *found)
{
    answer a = { .ask = ask, .arena = arena, .json = into, .text = out };
    sf_job base;

    SF_TRY(sf_planner_read(ask, NULL, NULL, 0, arena, &base));
    *found = true;
    if (q->min_gpus)
        answer_min_gpus(&a, q->gpu_types, found);
    if (q->max_seq_len)
        answer_seq_len(&a, &base, found);
    if (q->max_batch)
        answer_batch(&a, &base, found);
    if (q->max_model)
        answer_model(&a, found);
    if (q->finish_in_s > 0)
        answer_deadline(&a, q->finish_in_s, q->tokens, found);
    sf_job_close(&base);
    return SF_SUCCESS;
}
