/* How fast a job is answered: lowering and estimate per second, accountant, and events of the
 * simulator. Printed, not judged: run by `meson test --benchmark`. */
#include <stdio.h>
#include <time.h>

#include "model/cost/accountant.h"
#include "model/cost/estimate.h"
#include "model/strategy/lower.h"
#include "sim/engine.h"

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static sf_sim_cost some_cost(void *ctx, const sf_class *cls, const sf_issue *is, int rank)
{
    (void)ctx;
    (void)cls;
    return (sf_sim_cost){ .seconds = 1e-6 * (double)(1 + (is->seq + (uint64_t)rank) % 7), .cores = 0 };
}

static int fail(sf_status st)
{
    fprintf(stderr, "%s\n", st.msg);
    return 1;
}

int main(void)
{
    static const char *const strategies[] = { "ddp", "fsdp", "zero1", "zero2", "zero3" };
    enum { KINDS = 5 };
    sf_job jobs[KINDS];
    sf_arena keep = { 0 };

    for (int i = 0; i < KINDS; i++) {
        const sf_override o[] = { { "model", "llama-2-7b" }, { "framework", "shardfit" }, { "strategy.name", strategies[i] },
                                  { "cluster.gpus_per_node", "8" }, { "train.seq_len", "4096" } };
        sf_status st = sf_job_read(NULL, o, sizeof o / sizeof o[0], &keep, &jobs[i]);
        if (st.code != SF_OK)
            return fail(st);
    }

    double start = now_s();
    long answers = 0;
    for (; now_s() - start < 1.0; answers++) {
        sf_arena arena = { 0 };
        const sf_program *program;
        sf_outcome out;
        sf_status st = sf_lower(&jobs[answers % KINDS], &arena, &program);
        if (st.code != SF_OK)
            return fail(st);
        sf_estimate(program, 0, &out);
        sf_arena_free(&arena);
    }
    printf("lowering and estimate:   %10.0f predictions/s (llama-2-7b, %d strategies)\n", (double)answers / (now_s() - start), KINDS);

    const sf_program *program;
    sf_status st = sf_lower(&jobs[1], &keep, &program);
    if (st.code != SF_OK)
        return fail(st);
    start = now_s();
    long estimates = 0;
    for (; now_s() - start < 1.0; estimates++) {
        sf_outcome out;
        sf_estimate(program, 0, &out);
    }
    printf("estimate alone:          %10.0f predictions/s (fsdp)\n", (double)estimates / (now_s() - start));
    start = now_s();
    long accounts = 0;
    for (; now_s() - start < 1.0; accounts++) {
        sf_arena arena = { 0 };
        sf_outcome out;
        sf_account(program, 0, &arena, &out);
        sf_arena_free(&arena);
    }
    printf("accountant:              %10.0f predictions/s (fsdp)\n", (double)accounts / (now_s() - start));

    sf_sim_options sim = { .cost = some_cost, .overlap_rate = 1, .every_rank = true };
    uint64_t events = 0;
    start = now_s();
    while (now_s() - start < 2.0) {
        sf_arena arena = { 0 };
        sf_sim_result result;
        st = sf_simulate(program, &sim, &arena, &result);
        if (st.code != SF_OK)
            return fail(st);
        events += result.events;
        sf_arena_free(&arena);
    }
    printf("simulator:               %10.2f million events/s (fsdp, 8 ranks each on its own)\n", 1e-6 * (double)events / (now_s() - start));
    for (int i = 0; i < KINDS; i++)
        sf_job_close(&jobs[i]);
    sf_arena_free(&keep);
    return 0;
}
