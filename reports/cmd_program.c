/* `shardfit program JOB`: prints the step program. */
#include <argp.h>
#include <stdio.h>

#include "model/program/plan.h"
#include "model/program/print.h"
#include "model/program/verify.h"
#include "model/strategy/lower.h"
#include "reports/commands.h"
#include "reports/job_options.h"

typedef struct {
    sf_job_options job;
    bool issued, verify;
} arguments;

static const struct argp_option options[] = {
    { "issued", 'i', 0, 0, "print the ops as they are issued, loops unrolled", 0 },
    { "verify", 'v', 0, 0, "check lifetimes, ordering and collectives; print the verdict and the memory plan", 0 },
    { 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    arguments *a = state->input;
    (void)arg;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &a->job; return 0;
    case 'i': a->issued = true; return 0;
    case 'v': a->verify = true; return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static sf_status print(const arguments *a, sf_arena *arena)
{
    sf_job job;
    const sf_program *program;
    sf_text text = { 0 };

    SF_TRY(sf_job_options_read(&a->job, 0, arena, &job));
    sf_status st = sf_lower(&job, arena, &program);
    if (st.code == SF_OK && a->verify) {
        st = sf_program_verify(program);
        for (int c = 0; c < program->n_classes && st.code == SF_OK; c++) {
            sf_plan plan;
            st = sf_plan_make(&program->classes[c], arena, &plan);
            sf_text_add(&text, "class %s: verified; device block %llu B (live peak %llu B), host block %llu B\n", program->classes[c].name,
                        (unsigned long long)plan.arena_bytes[SF_SPACE_DEVICE], (unsigned long long)plan.live_peak_bytes[SF_SPACE_DEVICE],
                        (unsigned long long)plan.arena_bytes[SF_SPACE_HOST]);
        }
    } else if (st.code == SF_OK && a->issued) {
        for (int c = 0; c < program->n_classes; c++) {
            sf_text_add(&text, "class %s\n", program->classes[c].name);
            sf_program_print_issued(&program->classes[c], 0, &text);
        }
    } else if (st.code == SF_OK) {
        sf_program_print(program, &text);
    }
    fputs(sf_text_str(&text), stdout);
    sf_text_free(&text);
    sf_job_close(&job);
    return st;
}

int sf_cmd_program(int argc, char **argv)
{
    static const struct argp_child children[] = { { &sf_job_argp, 0, NULL, 0 }, { 0 } };
    static const struct argp parser = { options, parse, "[JOB.json]", "Prints the step program that the job's strategy lowers to.", children, 0, 0 };
    sf_arena arena = { 0 };
    arguments a = { .job = { .arena = &arena } };

    argp_parse(&parser, argc, argv, 0, 0, &a);
    sf_status st = print(&a, &arena);
    sf_arena_free(&arena);
    return st.code == SF_OK ? SF_EXIT_DONE : sf_cmd_fail(st);
}
