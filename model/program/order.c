#include "model/program/order.h"

void sf_order_start(sf_order *order, const sf_class *cls, sf_arena *arena)
{
    *order = (sf_order){ 0 };
    order->event = SF_NEW_ARRAY(arena, sf_clock, cls->n_events);
    order->recorded = SF_NEW_ARRAY(arena, bool, cls->n_events);
}

static void join(sf_clock *into, const sf_clock *from)
{
    for (int s = 0; s < SF_STREAM_COUNT; s++)
        if (from->done[s] > into->done[s])
            into->done[s] = from->done[s];
}

bool sf_order_issue(sf_order *order, const sf_issue *issue)
{
    sf_stream s = issue->op->stream;

    switch (issue->op->type) {
    case SF_OP_ALLOC:
    case SF_OP_FREE:
        return true; /* act at issue; they are not on the stream */
    case SF_OP_RECORD:
        order->event[issue->event] = order->stream[s];
        order->recorded[issue->event] = true;
        return true;
    case SF_OP_WAIT:
        if (!order->recorded[issue->event])
            return false;
        join(&order->stream[s], &order->event[issue->event]);
        return true;
    case SF_OP_HOST_SYNC:
        for (int to = 0; to < SF_STREAM_COUNT; to++)
            for (int from = 0; from < SF_STREAM_COUNT; from++)
                if (order->stream[from].done[from] > order->stream[to].done[from])
                    order->stream[to].done[from] = order->stream[from].done[from];
        return true;
    default:
        order->stream[s].done[s]++;
        return true;
    }
}

bool sf_order_before(const sf_order *order, const sf_clock *clock, sf_stream stream)
{
    for (int s = 0; s < SF_STREAM_COUNT; s++)
        if (clock->done[s] > order->stream[stream].done[s])
            return false;
    return true;
}
