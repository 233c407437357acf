#include "sim/engine.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One op of a stream's queue. A queue is shared by the actors of a class. */
typedef struct {
    const sf_op *op;
    uint64_t seq;
    int32_t layer, micro;
    int32_t ticket;      /* RECORD: which it is; WAIT: which it waits for (-1: none) */
    int32_t epoch;       /* HOST_SYNCs issued before it                              */
    double issued_s;     /* when the host issued it, since that HOST_SYNC            */
    int32_t collective;  /* number among its group's collectives, or -1              */
} item;

typedef struct {
    item *items;
    size_t count, cap;
} queue;

/* A class unrolled into its streams. */
typedef struct {
    const sf_class *cls;
    queue stream[SF_STREAM_COUNT];
    int n_tickets, n_epochs;
    size_t *epoch_end[SF_STREAM_COUNT]; /* [n_epochs] items of the stream issued before each HOST_SYNC */
    int collectives[SF_GROUP_COUNT];
} unrolled;

typedef enum { WAITING, RUNNING, MEETING, DONE } run_state;

typedef struct {
    size_t head;
    run_state state;
    double left_s, rate, cores, since_s; /* work left at `since_s`, progressing at `rate` */
    double start_s;
    uint64_t version;                    /* of its entry in the heap                      */
} stream_state;

typedef struct {
    const unrolled *code;
    int rank, node, weight; /* weight: how many alike ranks of the node it stands for */
    stream_state stream[SF_STREAM_COUNT];
    double *ticket_s;       /* [n_tickets] when reached; < 0: not yet                  */
    int epoch;
    double epoch_start_s;
    double wait_s, end_s;
    bool watched;
} actor;

/* A collective in which actors meet. */
typedef struct {
    int arrived, members;
    double seconds, first_s;
    int *actors;
} meeting;

typedef struct {
    double at_s;
    int actor, stream;
    uint64_t version;
} heap_entry;

typedef struct {
    const sf_program *program;
    const sf_sim_options *options;
    sf_arena *arena;
    actor *actors;
    int n_actors, n_nodes;
    double *node_demand;
    heap_entry *heap;
    size_t heap_count, heap_cap;
    meeting **meetings[SF_GROUP_COUNT]; /* [group instance][number] */
    double now_s;
    sf_sim_result *out;
    size_t cap_spans;
} engine;

/* ---- unrolling ---- */

static void unroll(const sf_class *cls, const sf_sim_options *options, sf_arena *arena, unrolled *u)
{
    sf_cursor cursor;
    sf_issue is;
    int *latest = SF_NEW_ARRAY(arena, int, cls->n_events);
    double host_s = 0; /* issue costs of the ops since the last HOST_SYNC */
    size_t cap_epochs = 0;
    size_t(*ends)[SF_STREAM_COUNT] = NULL;
    size_t n_ends = 0;

    u->cls = cls;
    for (int e = 0; e < cls->n_events; e++)
        latest[e] = -1;
    sf_cursor_start(&cursor, cls);
    while (sf_cursor_next(&cursor, &is)) {
        item it = { .op = is.op, .seq = is.seq, .layer = is.layer, .micro = is.micro, .ticket = -1,
                    .epoch = u->n_epochs, .issued_s = host_s, .collective = -1 };
        switch (sf_op_kind_of(is.op->type)) {
        case SF_KIND_MEM:
            continue;
        case SF_KIND_SYNC:
            if (is.op->type == SF_OP_HOST_SYNC) {
                ends = sf_arena_grow(arena, ends, n_ends, &cap_epochs, sizeof *ends);
                for (int s = 0; s < SF_STREAM_COUNT; s++)
                    ends[n_ends][s] = u->stream[s].count;
                n_ends++;
                u->n_epochs++;
                host_s = 0;
                continue;
            }
            if (is.op->type == SF_OP_RECORD)
                latest[is.event] = u->n_tickets++;
            it.ticket = latest[is.event];
            break;
        case SF_KIND_COMM:
            it.collective = u->collectives[is.op->group]++;
            host_s += options->issue != NULL ? options->issue(options->ctx, cls, &is) : options->issue_s;
            break;
        default:
            host_s += options->issue != NULL ? options->issue(options->ctx, cls, &is) : options->issue_s;
            break;
        }
        queue *q = &u->stream[is.op->stream];
        SF_PUSH(arena, q->items, q->count, q->cap) = it;
    }
    for (int s = 0; s < SF_STREAM_COUNT; s++) {
        u->epoch_end[s] = SF_NEW_ARRAY(arena, size_t, u->n_epochs);
        for (int e = 0; e < u->n_epochs; e++)
            u->epoch_end[s][e] = ends[e][s];
    }
}

/* ---- the heap of ends and wake-ups: a binary heap ordered by time, then actor, stream ---- */

static bool earlier(const heap_entry *a, const heap_entry *b)
{
    if (a->at_s != b->at_s)
        return a->at_s < b->at_s;
    if (a->actor != b->actor)
        return a->actor < b->actor;
    return a->stream < b->stream;
}

static void push(engine *e, double at_s, int who, int stream)
{
    heap_entry x = { at_s, who, stream, ++e->actors[who].stream[stream].version };
    e->heap = sf_arena_grow(e->arena, e->heap, e->heap_count, &e->heap_cap, sizeof *e->heap);
    size_t i = e->heap_count++;
    while (i > 0 && earlier(&x, &e->heap[(i - 1) / 2])) {
        e->heap[i] = e->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    e->heap[i] = x;
}

static heap_entry pop(engine *e)
{
    heap_entry top = e->heap[0], x = e->heap[--e->heap_count];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < e->heap_count; i = child) {
        if (child + 1 < e->heap_count && earlier(&e->heap[child + 1], &e->heap[child]))
            child++;
        if (!earlier(&e->heap[child], &x))
            break;
        e->heap[i] = e->heap[child];
    }
    if (e->heap_count > 0)
        e->heap[i] = x;
    return top;
}

/* ---- rates ---- */

static double rate_of(const engine *e, const actor *a, int s)
{
    const stream_state *ss = &a->stream[s];
    double rate = 1.0, cores = e->options->cores_per_node;

    if (cores > 0 && ss->cores > 0 && e->node_demand[a->node] > cores)
        rate = cores / e->node_demand[a->node];
    if (s == SF_STREAM_COMPUTE && a->stream[SF_STREAM_COMM].state == RUNNING)
        rate *= e->options->overlap_rate;
    return rate;
}

/* The op of this stream progresses at another rate from now on. */
static void set_rate(engine *e, int who, int s, double rate)
{
    stream_state *ss = &e->actors[who].stream[s];
    if (ss->state != RUNNING || ss->rate == rate)
        return;
    ss->left_s -= (e->now_s - ss->since_s) * ss->rate;
    if (ss->left_s < 0)
        ss->left_s = 0;
    ss->since_s = e->now_s;
    ss->rate = rate;
    push(e, e->now_s + ss->left_s / rate, who, s);
}

/* A collective's members progress together: at the rate of the slowest. */
static double meeting_rate(const engine *e, const meeting *m)
{
    double rate = 1.0;
    for (int i = 0; i < m->members; i++) {
        double r = rate_of(e, &e->actors[m->actors[i]], SF_STREAM_COMM);
        if (r < rate)
            rate = r;
    }
    return rate;
}

static int group_of(const engine *e, const actor *a, sf_group group)
{
    if (group == SF_GROUP_WORLD || !e->options->every_rank)
        return 0;
    return group == SF_GROUP_LOCAL ? a->node : a->rank % e->program->ranks_per_node;
}

static meeting *meeting_at(engine *e, const actor *a, const item *it)
{
    sf_group g = it->op->group;
    return &e->meetings[g][group_of(e, a, g)][it->collective];
}

static void refresh_actor(engine *e, int who)
{
    for (int s = 0; s < SF_STREAM_COUNT; s++) {
        actor *a = &e->actors[who];
        if (a->stream[s].state != RUNNING)
            continue;
        const item *it = &a->code->stream[s].items[a->stream[s].head];
        if (it->collective < 0) {
            set_rate(e, who, s, rate_of(e, a, s));
            continue;
        }
        const meeting *m = meeting_at(e, a, it);
        double rate = meeting_rate(e, m);
        for (int i = 0; i < m->members; i++)
            set_rate(e, m->actors[i], s, rate);
    }
}

static void demand_changed(engine *e, int who, double by)
{
    actor *a = &e->actors[who];
    if (by != 0 && e->options->cores_per_node > 0) {
        e->node_demand[a->node] += by * a->weight;
        for (int i = 0; i < e->n_actors; i++)
            if (e->actors[i].node == a->node)
                refresh_actor(e, i);
    } else if (e->options->overlap_rate != 1.0) {
        refresh_actor(e, who);
    }
}

/* ---- progress ---- */

static void begin(engine *e, int who, int s, double seconds, double cores)
{
    stream_state *ss = &e->actors[who].stream[s];
    ss->state = RUNNING;
    ss->left_s = seconds;
    ss->cores = cores;
    ss->since_s = ss->start_s = e->now_s;
    ss->rate = 0; /* so that set_rate schedules it */
    e->out->events++;
}

static void start_rates(engine *e, int who, int s)
{
    stream_state *ss = &e->actors[who].stream[s];
    demand_changed(e, who, ss->cores);
    if (ss->rate == 0)
        set_rate(e, who, s, rate_of(e, &e->actors[who], s));
}

static void arrive(engine *e, int who, int s, const item *it)
{
    actor *a = &e->actors[who];
    meeting *m = meeting_at(e, a, it);
    sf_issue is = { .op = it->op, .seq = it->seq, .layer = it->layer, .micro = it->micro };
    sf_sim_cost cost = e->options->cost(e->options->ctx, a->code->cls, &is, a->rank);

    a->stream[s].state = MEETING;
    a->stream[s].start_s = e->now_s;
    a->stream[s].cores = cost.cores;
    m->actors[m->arrived++] = who;
    if (cost.seconds > m->seconds)
        m->seconds = cost.seconds;
    if (m->arrived < m->members)
        return;
    for (int i = 0; i < m->members; i++) {
        actor *member = &e->actors[m->actors[i]];
        member->wait_s += e->now_s - member->stream[s].start_s;
        begin(e, m->actors[i], s, m->seconds, member->stream[s].cores);
    }
    for (int i = 0; i < m->members; i++)
        demand_changed(e, m->actors[i], e->actors[m->actors[i]].stream[s].cores);
    double rate = meeting_rate(e, m);
    for (int i = 0; i < m->members; i++)
        if (e->actors[m->actors[i]].stream[s].rate == 0)
            set_rate(e, m->actors[i], s, rate);
}

static void advance_epoch(engine *e, int who);

/* Starts what the stream can start now; passes RECORDs and satisfied WAITs. */
static void pump(engine *e, int who, int s)
{
    actor *a = &e->actors[who];
    stream_state *ss = &a->stream[s];
    const queue *q = &a->code->stream[s];

    while (ss->state == WAITING && ss->head < q->count) {
        const item *it = &q->items[ss->head];
        if (it->epoch > a->epoch)
            break; /* the host has not issued it yet: the end of its HOST_SYNC wakes us */
        double issued_s = a->epoch_start_s + it->issued_s;
        if (issued_s > e->now_s) {
            push(e, issued_s, who, s);
            return;
        }
        if (it->op->type == SF_OP_RECORD) {
            a->ticket_s[it->ticket] = e->now_s;
            ss->head++;
            for (int other = 0; other < SF_STREAM_COUNT; other++)
                if (other != s)
                    pump(e, who, other);
            continue;
        }
        if (it->op->type == SF_OP_WAIT) {
            if (it->ticket >= 0 && a->ticket_s[it->ticket] < 0)
                return; /* the RECORD wakes us */
            ss->head++;
            continue;
        }
        if (it->collective >= 0) {
            arrive(e, who, s, it);
            return;
        }
        sf_issue is = { .op = it->op, .seq = it->seq, .layer = it->layer, .micro = it->micro };
        sf_sim_cost cost = e->options->cost(e->options->ctx, a->code->cls, &is, a->rank);
        begin(e, who, s, cost.seconds, cost.cores);
        start_rates(e, who, s);
        return;
    }
    advance_epoch(e, who);
}

/* HOST_SYNC: when the streams are empty of what was issued before it, the host goes on. */
static void advance_epoch(engine *e, int who)
{
    actor *a = &e->actors[who];
    if (a->epoch >= a->code->n_epochs)
        return;
    for (int s = 0; s < SF_STREAM_COUNT; s++)
        if (a->stream[s].head < a->code->epoch_end[s][a->epoch])
            return;
    a->epoch++;
    a->epoch_start_s = e->now_s;
    for (int s = 0; s < SF_STREAM_COUNT; s++)
        pump(e, who, s);
}

static void keep_span(engine *e, const actor *a, int s, const item *it)
{
    sf_sim_result *out = e->out;
    SF_PUSH(e->arena, out->spans, out->n_spans, e->cap_spans) = (sf_span_time){
        .label = it->op->label, .type = it->op->type, .stream = (sf_stream)s, .phase = it->op->phase, .group = it->op->group,
        .rank = a->rank, .layer = it->layer, .micro = it->micro, .seq = it->seq,
        .start_s = a->stream[s].start_s, .end_s = e->now_s,
    };
}

static void finish(engine *e, int who, int s)
{
    actor *a = &e->actors[who];
    stream_state *ss = &a->stream[s];

    e->out->events++;
    if (a->watched)
        keep_span(e, a, s, &a->code->stream[s].items[ss->head]);
    ss->state = WAITING;
    ss->head++;
    a->end_s = e->now_s;
    demand_changed(e, who, -ss->cores);
    pump(e, who, s);
}

static sf_status run(engine *e)
{
    for (int i = 0; i < e->n_actors; i++)
        for (int s = 0; s < SF_STREAM_COUNT; s++)
            pump(e, i, s);
    while (e->heap_count > 0) {
        heap_entry top = pop(e);
        stream_state *ss = &e->actors[top.actor].stream[top.stream];
        if (top.version != ss->version)
            continue; /* rescheduled since */
        e->now_s = top.at_s;
        if (ss->state == RUNNING)
            finish(e, top.actor, top.stream);
        else
            pump(e, top.actor, top.stream);
    }
    for (int i = 0; i < e->n_actors; i++)
        for (int s = 0; s < SF_STREAM_COUNT; s++) {
            const actor *a = &e->actors[i];
            const queue *q = &a->code->stream[s];
            if (a->stream[s].head < q->count)
                return SF_FAIL(SF_EINVAL, "rank %d hangs: stream %s never reaches op %" PRIu64 " %s", a->rank, sf_stream_name((sf_stream)s),
                               q->items[a->stream[s].head].seq, sf_op_name(q->items[a->stream[s].head].op->type));
        }
    return SF_SUCCESS;
}

/* ---- set-up ---- */

static void make_actors(engine *e, unrolled *codes)
{
    const sf_program *p = e->program;
    int per_node = p->ranks_per_node > 0 ? p->ranks_per_node : p->world_size;

    e->n_actors = e->options->every_rank ? p->world_size : p->n_classes;
    e->actors = SF_NEW_ARRAY(e->arena, actor, e->n_actors);
    for (int i = 0; i < e->n_actors; i++) {
        int c = i;
        if (e->options->every_rank)
            for (c = 0; i >= p->classes[c].first_rank + p->classes[c].n_ranks; c++)
                ;
        const sf_class *cls = &p->classes[c];
        actor *a = &e->actors[i];
        a->code = &codes[c];
        a->rank = e->options->every_rank ? i : cls->first_rank;
        a->node = e->options->every_rank ? i / per_node : 0;
        a->weight = e->options->every_rank ? 1 : cls->n_ranks < per_node ? cls->n_ranks : per_node;
        a->watched = sf_program_class_of(p, e->options->watch_rank) == cls && (!e->options->every_rank || a->rank == e->options->watch_rank);
        a->ticket_s = SF_NEW_ARRAY(e->arena, double, codes[c].n_tickets);
        for (int t = 0; t < codes[c].n_tickets; t++)
            a->ticket_s[t] = -1;
        if (a->node >= e->n_nodes)
            e->n_nodes = a->node + 1;
    }
    e->node_demand = SF_NEW_ARRAY(e->arena, double, e->n_nodes);
}

static void make_meetings(engine *e)
{
    for (int g = 0; g < SF_GROUP_COUNT; g++) {
        int n_groups = 1, numbers = 0;
        for (int i = 0; i < e->n_actors; i++) {
            if (group_of(e, &e->actors[i], (sf_group)g) >= n_groups)
                n_groups = group_of(e, &e->actors[i], (sf_group)g) + 1;
            if (e->actors[i].code->collectives[g] > numbers)
                numbers = e->actors[i].code->collectives[g];
        }
        e->meetings[g] = SF_NEW_ARRAY(e->arena, meeting *, n_groups);
        for (int k = 0; k < n_groups && numbers > 0; k++) {
            int members = 0;
            for (int i = 0; i < e->n_actors; i++)
                members += group_of(e, &e->actors[i], (sf_group)g) == k;
            e->meetings[g][k] = SF_NEW_ARRAY(e->arena, meeting, numbers);
            for (int n = 0; n < numbers; n++) {
                e->meetings[g][k][n].members = members;
                e->meetings[g][k][n].actors = SF_NEW_ARRAY(e->arena, int, members);
            }
        }
    }
}

sf_status sf_simulate(const sf_program *program, const sf_sim_options *options, sf_arena *arena, sf_sim_result *out)
{
    sf_arena scratch = { 0 };
    engine e = { .program = program, .options = options, .arena = &scratch, .out = out };
    unrolled *codes = SF_NEW_ARRAY(&scratch, unrolled, program->n_classes);

    *out = (sf_sim_result){ 0 };
    for (int c = 0; c < program->n_classes; c++)
        unroll(&program->classes[c], options, &scratch, &codes[c]);
    make_actors(&e, codes);
    make_meetings(&e);
    sf_status st = run(&e);
    if (st.code == SF_OK) {
        sf_span_time *spans = SF_NEW_ARRAY(arena, sf_span_time, out->n_spans);
        if (out->n_spans > 0)
            memcpy(spans, out->spans, out->n_spans * sizeof *spans);
        out->spans = spans;
        out->n_actors = e.n_actors;
        out->actor_end_s = SF_NEW_ARRAY(arena, double, e.n_actors);
        out->actor_wait_s = SF_NEW_ARRAY(arena, double, e.n_actors);
        for (int i = 0; i < e.n_actors; i++) {
            out->actor_end_s[i] = e.actors[i].end_s;
            out->actor_wait_s[i] = e.actors[i].wait_s;
            out->step_s = fmax(out->step_s, e.actors[i].end_s);
        }
    } else {
        *out = (sf_sim_result){ 0 };
    }
    sf_arena_free(&scratch);
    return st;
}
