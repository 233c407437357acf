/* Closed-form predictions per second on one core, for a mix of models, strategies, micro-batches and accumulations:
 * bench_form. Prints the figures; processor time is counted, so that other load does not decide. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "model/cost/form.h"
#include "model/desc/job.h"
#include "model/strategy/list.h"
#include "model/strategy/lower.h"

enum { MOST_FORMS = 256, MOST_B = 64, MOST_G = 64, ROUNDS = 20000 };

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static sf_status lower_at(void *ctx, int64_t b, int64_t g, sf_arena *scratch, const sf_program **out)
{
    sf_job job = *(const sf_job *)ctx;
    job.train.micro_batch = b;
    job.train.grad_accum = g;
    return sf_lower(&job, scratch, out);
}

int main(void)
{
    static const char *const models[] = { "gpt2", "llama-2-7b", "llama-3-8b", "llama-3-70b" };
    static const char *const rows[][2] = {
#define AS_ROW(framework, name, function, summary) { #framework, name },
        SF_STRATEGIES(AS_ROW)
#undef AS_ROW
    };
    static const char *const frameworks[] = { "pytorch", "deepspeed", "shardfit" };
    static const char *const ids[] = { "PYTORCH", "DEEPSPEED", "SHARDFIT" };
    const sf_form *forms[MOST_FORMS];
    sf_arena arena = { 0 };
    int n = 0;
    size_t lowered = 0, pieces = 0;
    double start = now_s();

    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++)
        for (size_t r = 0; r < sizeof rows / sizeof rows[0] && n < MOST_FORMS; r++) {
            const char *framework = NULL;
            for (int f = 0; f < 3; f++)
                if (rows[r][0][0] == ids[f][0])
                    framework = frameworks[f];
            sf_override o[] = { { "model", models[m] }, { "framework", framework }, { "strategy.name", rows[r][1] }, { "cluster.gpu", "H100 SXM5" },
                                { "cluster.gpus_per_node", rows[r][1][1] == 'i' ? "1" : "8" }, { "train.precision", "bf16-mixed" }, { "train.seq_len", "1024" } };
            sf_job *job = SF_NEW(&arena, sf_job);
            sf_status st = sf_job_read(NULL, o, sizeof o / sizeof o[0], &arena, job);
            sf_form_source source = { .ctx = job, .lower = lower_at };
            if (st.code == SF_OK)
                st = sf_form_make(&source, MOST_B, MOST_G, &arena, &forms[n]);
            if (st.code != SF_OK) {
                printf("%s %s %s: %s\n", models[m], framework, rows[r][1], st.msg);
                continue;
            }
            lowered += sf_form_lowerings(forms[n]);
            pieces += sf_form_pieces(forms[n++]);
        }
    double made = now_s() - start;
    printf("%d forms (%zu pieces) from %zu lowered programs in %.3f s: %.2f ms a form\n", n, pieces, lowered, made, 1e3 * made / (n > 0 ? n : 1));

    uint64_t state = 1, sum = 0, count = 0;
    start = now_s();
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < n; i++) {
            sf_form_value v;
            state = state * 6364136223846793005u + 1442695040888963407u;
            sf_form_eval(forms[i], 1 + (int64_t)(state >> 33) % MOST_B, 1 + (int64_t)(state >> 45) % MOST_G, &v);
            sum += v.peak_allocated_bytes;
            count++;
        }
    double took = now_s() - start;
    printf("%llu predictions in %.3f s: %.2f million a second (sum of peaks %llu)\n", (unsigned long long)count, took, (double)count / took / 1e6,
           (unsigned long long)sum);
    sf_arena_free(&arena);
    return (double)count / took >= 1e6 ? 0 : 1;
}
