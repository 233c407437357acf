#include "model/program/timeline.h"

#include <stdlib.h>

static int by_start(const void *a, const void *b)
{
    const sf_span_time *x = a, *y = b;
    if (x->start_s != y->start_s)
        return x->start_s < y->start_s ? -1 : 1;
    return x->seq < y->seq ? -1 : x->seq > y->seq;
}

/* The moments at which something starts or ends. */
static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void sf_timeline_summarise(sf_span_time *spans, size_t n, sf_outcome *out)
{
    out->time.step_s = out->time.exposed_comm_s = out->time.idle_s = 0;
    for (int p = 0; p < SF_PHASE_COUNT; p++)
        out->time.phase_s[p] = out->time.busy_s[p] = 0;
    for (int o = 0; o < SF_OP_COUNT; o++) {
        out->time.op_s[o] = 0;
        out->time.op_calls[o] = 0;
    }
    for (int k = 0; k < SF_KIND_COUNT; k++)
        out->time.kind_s[k] = 0;
    for (size_t i = 0; i < out->n_comm; i++)
        out->comm[i].time_s = out->comm[i].exposed_s = 0;
    if (n == 0)
        return;

    qsort(spans, n, sizeof *spans, by_start);
    double *moment = malloc(2 * n * sizeof *moment);
    if (moment == NULL)
        abort();
    double end = spans[0].end_s;
    for (size_t i = 0; i < n; i++) {
        const sf_span_time *s = &spans[i];
        double busy = s->end_s - s->start_s;
        out->time.op_s[s->type] += busy;
        out->time.op_calls[s->type]++;
        out->time.kind_s[sf_op_kind_of(s->type)] += busy;
        if (sf_op_kind_of(s->type) == SF_KIND_COMM)
            sf_outcome_comm_row(out, s->type, s->group)->time_s += busy;
        moment[2 * i] = s->start_s;
        moment[2 * i + 1] = s->end_s;
        if (s->end_s > end)
            end = s->end_s;
    }
    qsort(moment, 2 * n, sizeof *moment, by_value);
    out->time.step_s = end - spans[0].start_s;

    sf_phase phase = spans[0].phase;
    for (size_t i = 0; i < n; i++)
        if (spans[i].stream != SF_STREAM_COMM) {
            phase = spans[i].phase;
            break;
        }
    /* At most one op runs on a stream at a time, so the current one per stream is enough. */
    const sf_span_time *current[SF_STREAM_COUNT] = { NULL };
    size_t next = 0;
    for (size_t m = 0; m + 1 < 2 * n; m++) {
        double from = moment[m], to = moment[m + 1];
        if (to <= from)
            continue;
        for (; next < n && spans[next].start_s <= from; next++) {
            current[spans[next].stream] = &spans[next];
            if (spans[next].stream != SF_STREAM_COMM)
                phase = spans[next].phase;
        }
        bool work = false, comm = false;
        for (int s = 0; s < SF_STREAM_COUNT; s++)
            if (current[s] != NULL && current[s]->end_s > from)
                *(s == SF_STREAM_COMM ? &comm : &work) = true;
        double dt = to - from;
        out->time.phase_s[phase] += dt;
        if (work)
            out->time.busy_s[phase] += dt;
        if (!work && comm) {
            const sf_span_time *c = current[SF_STREAM_COMM];
            out->time.exposed_comm_s += dt;
            if (sf_op_kind_of(c->type) == SF_KIND_COMM)
                sf_outcome_comm_row(out, c->type, c->group)->exposed_s += dt;
        } else if (!work) {
            out->time.idle_s += dt;
        }
    }
    free(moment);
    out->time.bound_by = sf_timeline_bound_by(out);
}

const char *sf_timeline_bound_by(const sf_outcome *out)
{
    const double *kind = out->time.kind_s;
    struct {
        const char *name;
        double seconds;
    } parts[] = {
        { "compute", kind[SF_KIND_GEMM] + kind[SF_KIND_ATTN] + out->time.op_s[SF_OP_F_GEMM] + out->time.op_s[SF_OP_F_SDPA_FWD] +
                         out->time.op_s[SF_OP_F_SDPA_BWD] },
        { "memory bandwidth", kind[SF_KIND_MEMORY] + out->time.op_s[SF_OP_F_KERNEL] },
        { "communication", out->time.exposed_comm_s },
        { "optimizer", kind[SF_KIND_OPTIM] + out->time.op_s[SF_OP_F_OPTIM] },
        { "host copies", kind[SF_KIND_COPY] },
        { "launch and waiting", out->time.idle_s },
    };
    size_t best = 0;
    for (size_t i = 1; i < sizeof parts / sizeof parts[0]; i++)
        if (parts[i].seconds > parts[best].seconds)
            best = i;
    return parts[best].name;
}
