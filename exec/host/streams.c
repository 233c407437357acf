#include "exec/host/streams.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { QUEUE_ENTRIES = 1024 };

typedef struct {
    sf_stream stream;
    uint64_t count; /* entries issued on it up to here */
} mark;

typedef struct {
    enum { ENTRY_OP, ENTRY_WAIT, ENTRY_FILL, ENTRY_END } what;
    union {
        sf_op_call call;
        mark until;
        struct {
            void *at;
            uint64_t bytes;
        } fill;
    } u;
} entry;

typedef struct {
    sf_streams *all;
    pthread_t thread;
    bool running;
    pthread_mutex_t lock;
    pthread_cond_t more;     /* entries came in                     */
    pthread_cond_t progress; /* `done` grew                         */
    int waiting;             /* threads that sleep on `progress`    */
    uint64_t issued, done;   /* entries                             */
    entry *entries;          /* [QUEUE_ENTRIES] ring                */
} queue;

struct sf_streams {
    sf_stream_run run;
    sf_stream_failed failed;
    void *ctx;
    queue queues[SF_STREAM_COUNT];
    mark *events;
    pthread_mutex_t failure_lock;
    bool has_failed;
    sf_status failure;
};

static void await_done(queue *q, uint64_t count)
{
    pthread_mutex_lock(&q->lock);
    while (q->done < count) {
        q->waiting++;
        pthread_cond_wait(&q->progress, &q->lock);
        q->waiting--;
    }
    pthread_mutex_unlock(&q->lock);
}

static bool failing(sf_streams *s)
{
    return __atomic_load_n(&s->has_failed, __ATOMIC_ACQUIRE);
}

static void fail(sf_streams *s, const sf_status *st)
{
    pthread_mutex_lock(&s->failure_lock);
    bool first = !s->has_failed;
    if (first)
        s->failure = *st;
    __atomic_store_n(&s->has_failed, true, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&s->failure_lock);
    if (first && s->failed != NULL)
        s->failed(s->ctx, st);
}

static void execute(sf_streams *s, const entry *e)
{
    switch (e->what) {
    case ENTRY_OP:
        if (!failing(s)) {
            sf_status st = s->run(s->ctx, &e->u.call);
            if (st.code != SF_OK)
                fail(s, &st);
        }
        break;
    case ENTRY_WAIT: await_done(&s->queues[e->u.until.stream], e->u.until.count); break;
    case ENTRY_FILL: memset(e->u.fill.at, 0xff, e->u.fill.bytes); break;
    case ENTRY_END: break;
    }
}

static void *work(void *arg)
{
    queue *q = arg;

    for (bool end = false; !end;) {
        pthread_mutex_lock(&q->lock);
        while (q->done == q->issued)
            pthread_cond_wait(&q->more, &q->lock);
        const entry *e = &q->entries[q->done % QUEUE_ENTRIES]; /* stays until `done` passes it */
        pthread_mutex_unlock(&q->lock);
        end = e->what == ENTRY_END;
        execute(q->all, e);
        pthread_mutex_lock(&q->lock);
        q->done++;
        if (q->waiting > 0)
            pthread_cond_broadcast(&q->progress);
        pthread_mutex_unlock(&q->lock);
    }
    return NULL;
}

/* Room for one more entry; only the issuing thread calls it. */
static entry *reserve(queue *q)
{
    assert(q->running);
    if (q->issued >= QUEUE_ENTRIES)
        await_done(q, q->issued - QUEUE_ENTRIES + 1);
    return &q->entries[q->issued % QUEUE_ENTRIES];
}

static void commit(queue *q)
{
    pthread_mutex_lock(&q->lock);
    bool idle = q->done == q->issued;
    q->issued++;
    if (idle)
        pthread_cond_signal(&q->more);
    pthread_mutex_unlock(&q->lock);
}

void sf_streams_push(sf_streams *s, const sf_op_call *call)
{
    queue *q = &s->queues[call->issue.op->stream];
    entry *e = reserve(q);
    e->what = ENTRY_OP;
    e->u.call = *call;
    commit(q);
}

void sf_streams_fill(sf_streams *s, sf_stream stream, void *at, uint64_t bytes)
{
    queue *q = &s->queues[stream];
    entry *e = reserve(q);
    e->what = ENTRY_FILL;
    e->u.fill.at = at;
    e->u.fill.bytes = bytes;
    commit(q);
}

void sf_streams_record(sf_streams *s, sf_stream stream, int event)
{
    s->events[event] = (mark){ .stream = stream, .count = s->queues[stream].issued };
}

void sf_streams_wait(sf_streams *s, sf_stream stream, int event)
{
    queue *q = &s->queues[stream];
    if (s->events[event].stream == stream || s->events[event].count == 0)
        return; /* the stream's own order, or nothing was ever issued there */
    entry *e = reserve(q);
    e->what = ENTRY_WAIT;
    e->u.until = s->events[event];
    commit(q);
}

sf_status sf_streams_sync(sf_streams *s)
{
    for (int i = 0; i < SF_STREAM_COUNT; i++)
        if (s->queues[i].running)
            await_done(&s->queues[i], s->queues[i].issued);
    if (!failing(s))
        return SF_SUCCESS;
    s->has_failed = false; /* all threads are idle */
    return s->failure;
}

sf_status sf_streams_open(int n_events, sf_stream_run run, sf_stream_failed failed, void *ctx, sf_streams **out)
{
    sf_streams *s = calloc(1, sizeof *s);
    mark *events = calloc((size_t)n_events + 1, sizeof *events);

    if (s == NULL || events == NULL) {
        free(s);
        free(events);
        return SF_FAIL(SF_ENOMEM, "no memory for streams");
    }
    s->run = run;
    s->failed = failed;
    s->ctx = ctx;
    s->events = events;
    pthread_mutex_init(&s->failure_lock, NULL);
    *out = s;
    return SF_SUCCESS;
}

sf_status sf_streams_use(sf_streams *s, sf_stream stream)
{
    queue *q = &s->queues[stream];

    if (q->running)
        return SF_SUCCESS;
    q->all = s;
    q->entries = calloc(QUEUE_ENTRIES, sizeof *q->entries);
    if (q->entries == NULL)
        return SF_FAIL(SF_ENOMEM, "no memory for stream %s", sf_stream_name(stream));
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->more, NULL);
    pthread_cond_init(&q->progress, NULL);
    int error = pthread_create(&q->thread, NULL, work, q);
    if (error != 0) {
        free(q->entries);
        return SF_FAIL(SF_ENOMEM, "cannot start the thread of stream %s: %s", sf_stream_name(stream), strerror(error));
    }
    q->running = true;
    return SF_SUCCESS;
}

void sf_streams_close(sf_streams *s)
{
    if (s == NULL)
        return;
    for (int i = 0; i < SF_STREAM_COUNT; i++) {
        queue *q = &s->queues[i];
        if (!q->running)
            continue;
        reserve(q)->what = ENTRY_END;
        commit(q);
        pthread_join(q->thread, NULL);
        pthread_mutex_destroy(&q->lock);
        pthread_cond_destroy(&q->more);
        pthread_cond_destroy(&q->progress);
        free(q->entries);
    }
    pthread_mutex_destroy(&s->failure_lock);
    free(s->events);
    free(s);
}
