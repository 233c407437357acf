/* Times whole training steps of a GPT-2 on the host kernels, one thread.
 *
 *     bench_ops small|gpt2-124m f32|bf16 STEPS
 *
 * prints the shortest of STEPS steps (after one to warm up), in processor time, which other load on the
 * machine does not lengthen, and the last loss. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/exec/mini_model.h"

static const struct {
    const char *name;
    mini_config config;
} models[] = {
    { "small", { .layers = 4, .hidden = 256, .heads = 8, .kv_heads = 8, .ffn = 1024, .vocab = 512, .seq_len = 128,
                 .micro_batch = 8, .norm_eps = 1e-5f } },
    { "gpt2-124m", { .layers = 12, .hidden = 768, .heads = 12, .kv_heads = 12, .ffn = 3072, .vocab = 50257, .seq_len = 64,
                     .micro_batch = 4, .norm_eps = 1e-5f } },
};

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
    const mini_config *c = NULL;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (argc == 4 && strcmp(argv[1], models[i].name) == 0)
            c = &models[i].config;
    const int steps = argc == 4 ? atoi(argv[3]) : 0;
    if (c == NULL || steps < 1) {
        fprintf(stderr, "usage: bench_ops small|gpt2-124m f32|bf16 STEPS\n");
        return 2;
    }
    sf_host_gemm_threads(1);
    mini_model *m = mini_model_new(c, strcmp(argv[2], "bf16") == 0 ? SF_BF16 : SF_F32);
    const size_t rows = c->micro_batch * c->seq_len;
    float *w = mini_model_params(m);
    srand(1);
    for (size_t i = 0; i < mini_model_param_count(m); i++)
        w[i] = 0.04f * ((float)rand() / (float)RAND_MAX - 0.5f);
    mini_model_sync(m);
    int32_t *tokens = malloc(rows * sizeof *tokens), *targets = malloc(rows * sizeof *targets);
    for (size_t i = 0; i < rows; i++) {
        tokens[i] = (int32_t)((size_t)rand() % c->vocab);
        targets[i] = (int32_t)((size_t)rand() % c->vocab);
    }
    double best_s = 1e30;
    float loss = 0;
    for (int step = 0; step <= steps; step++) {
        const double start_s = cpu_s();
        mini_model_forward(m, tokens);
        loss = mini_model_backward(m, tokens, targets);
        mini_model_update(m, &(sf_adamw){ 1e-3, 0.9, 0.95, 1e-8, 0.1, step + 1, 1 });
        const double step_s = cpu_s() - start_s;
        if (step > 0 && step_s < best_s)
            best_s = step_s;
    }
    printf("%zu parameters, step_s %.6f loss %.4f\n", mini_model_param_count(m), best_s, (double)loss);
    free(targets);
    free(tokens);
    mini_model_free(m);
    return 0;
}
