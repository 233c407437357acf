#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/cuda/cases.h"

static long runs;

void case_run(kase *c, int (*launch)(kase *c, void *args), void *args)
{
    enum { TIMES = 3 };
    void *first[CASE_MAX_TENSORS];

    runs++;
    for (int i = 0; i < c->n_tensors; i++)
        memcpy(c->tensors[i].before, c->tensors[i].data, tensor_bytes(&c->tensors[i]));
    for (int time = 0; time < TIMES; time++) {
        for (int i = 0; i < c->n_tensors; i++)
            memcpy(c->tensors[i].data, c->tensors[i].before, tensor_bytes(&c->tensors[i]));
        case_runner_begin(c, time);
        int error = launch(c, args);
        const char *why = case_runner_end(c);
        if (error != 0)
            fail_msg("%s: launcher returned %d", c->what, error);
        if (why != NULL)
            fail_msg("%s: %s", c->what, why);
        for (int i = 0; i < c->n_tensors; i++) {
            tensor *t = &c->tensors[i];
            if (time == 0) {
                first[i] = malloc(tensor_bytes(t));
                memcpy(first[i], t->data, tensor_bytes(t));
            } else if (!t->scratch && memcmp(first[i], t->data, tensor_bytes(t)) != 0) {
                fail_msg("%s: %s differs between runs", c->what, t->name);
            }
        }
    }
    for (int i = 0; i < c->n_tensors; i++)
        free(first[i]);
}

long case_count(void)
{
    return runs;
}
