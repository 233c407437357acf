#include "model/strategy/lower.h"

#include "model/base/text.h"
#include "model/program/flop.h"
#include "model/strategy/list.h"
#include "model/strategy/native.h"
#include "model/strategy/torch.h"

typedef struct {
    sf_framework framework;
    const char *name;
    sf_status (*lower)(const sf_job *job, sf_arena *arena, sf_program *out);
} row;

#define AS_ROW(framework, name, function, summary) { SF_FRAMEWORK_##framework, name, function },
static const row rows[] = { SF_STRATEGIES(AS_ROW) };
#undef AS_ROW

sf_status sf_lower(const sf_job *job, sf_arena *arena, const sf_program **out)
{
    const char *wanted = sf_strategy_name(job->strategy.name);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].framework != (sf_framework)job->framework || !sf_str_eq(rows[i].name, wanted))
            continue;
        sf_program *program = SF_NEW(arena, sf_program);
        SF_TRY(rows[i].lower(job, arena, program));
        for (int c = 0; c < program->n_classes; c++) {
            uint64_t useful, all;
            sf_class_flop(&program->classes[c], &useful, &all);
            program->model_flop += useful * (uint64_t)program->classes[c].n_ranks;
        }
        *out = program;
        return SF_SUCCESS;
    }
    return SF_FAIL(SF_EUNSUP, "there is no model of strategy %s under framework %s yet", wanted, sf_framework_name(job->framework));
}
