#include "reports/job_options.h"

#include <string.h>

/* key, option, argument, path in the job, help */
#define SHORT_FORMS(X)                                                                             \
    X(1001, "model", "NAME", "model", "catalogue name or config.json")                             \
    X(1002, "framework", "NAME", "framework", "pytorch, deepspeed or shardfit")                    \
    X(1003, "gpu", "NAME", "cluster.gpu", "GPU, or host for this machine")                         \
    X(1004, "gpus", "N", "cluster.gpus_per_node", "GPUs (or ranks) of one node")                   \
    X(1005, "nodes", "N", "cluster.nodes", "nodes")                                                \
    X(1006, "strategy", "NAME", "strategy.name", "single, dp, ddp, fsdp, fsdp2, zero1, zero2, zero3") \
    X(1007, "micro-batch", "N", "train.micro_batch", "sequences of one device in a micro-step")    \
    X(1008, "grad-accum", "N", "train.grad_accum", "micro-steps of one step")                      \
    X(1009, "seq-len", "N", "train.seq_len", "tokens of one sequence")                             \
    X(1010, "precision", "NAME", "train.precision", "fp32, bf16-mixed, ...")                       \
    X(1011, "recompute", "NAME", "train.recompute", "none, full, selective")                       \
    X(1012, "attention", "NAME", "train.attention", "eager, sdpa, flash")                          \
    X(1013, "optimizer", "NAME", "train.optimizer", "adamw, adamw-fused, ...")                     \
    X(1014, "device-memory", "GIB", "cluster.device_memory_gib", "device memory in GiB instead of the GPU's")

enum { KEY_SET = 1000 };

#define AS_OPTION(key, name, arg, path, help) { name, key, arg, 0, help, 0 },
static const struct argp_option options[] = {
    { 0, 0, 0, 0, "The job (a JSON file, these options, or both; options win):", 10 },
    { "set", KEY_SET, "PATH=VALUE", 0, "set any field of the job, for example strategy.bucket_cap_mb=50", 0 },
    SHORT_FORMS(AS_OPTION)
    { 0 },
};
#undef AS_OPTION

static error_t add(sf_job_options *o, const char *path, const char *value, struct argp_state *state)
{
    if (o->n_overrides == SF_MOST_OVERRIDES)
        argp_error(state, "more than %d options describe the job", SF_MOST_OVERRIDES);
    o->overrides[o->n_overrides++] = (sf_override){ path, value };
    return 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    sf_job_options *o = state->input;

#define AS_CASE(number, name, argument, path, help) case number: return add(o, path, arg, state);
    switch (key) {
    SHORT_FORMS(AS_CASE)
    case KEY_SET: {
        const char *equals = strchr(arg, '=');
        if (equals == NULL || equals == arg)
            argp_error(state, "--set takes PATH=VALUE, not '%s'", arg);
        return add(o, sf_arena_strndup(o->arena, arg, (size_t)(equals - arg)), equals + 1, state);
    }
    case ARGP_KEY_ARG:
        if (o->n_files == SF_MOST_JOB_FILES)
            argp_error(state, "more than %d job files", SF_MOST_JOB_FILES);
        o->files[o->n_files++] = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
#undef AS_CASE
}

const struct argp sf_job_argp = { .options = options, .parser = parse };

sf_status sf_job_options_read(const sf_job_options *o, int i, sf_arena *arena, sf_job *out)
{
    if (o->n_files == 0 && o->n_overrides == 0)
        return SF_FAIL(SF_EINVAL, "no job is given: name a JSON file, or say at least --model and --gpu");
    return sf_job_read(o->n_files == 0 ? NULL : o->files[i], o->overrides, o->n_overrides, arena, out);
}

int sf_job_options_count(const sf_job_options *o)
{
    return o->n_files == 0 ? 1 : o->n_files;
}
