#include "model/program/plan.h"

#include <assert.h>
#include <string.h>

#include "model/base/units.h"
#include "model/program/order.h"

/* A free span of a space's block. */
typedef struct {
    uint64_t offset, bytes;
    sf_stream home;   /* of the buffer that left it     */
    sf_clock clock;   /* of that home when it was freed */
} hole;

typedef struct {
    hole *holes; /* by offset */
    size_t count, cap;
    uint64_t end, live, peak;
} space;

static bool usable(const hole *h, sf_stream home, const sf_order *order)
{
    return h->home == home || sf_order_before(order, &h->clock, home);
}

static void remove_holes(space *sp, size_t at, size_t n)
{
    memmove(sp->holes + at, sp->holes + at + n, (sp->count - at - n) * sizeof *sp->holes);
    sp->count -= n;
}

static void insert_hole(space *sp, sf_arena *arena, size_t at, hole h)
{
    SF_PUSH(arena, sp->holes, sp->count, sp->cap) = h;
    memmove(sp->holes + at + 1, sp->holes + at, (sp->count - 1 - at) * sizeof *sp->holes);
    sp->holes[at] = h;
}

/* Takes `bytes` from the run of adjacent usable holes that leaves least over, else from the end. */
static uint64_t take(space *sp, sf_arena *arena, uint64_t bytes, sf_stream home, const sf_order *order)
{
    size_t best_at = 0, best_n = 0;
    uint64_t best_bytes = UINT64_MAX;
    bool best_grows = false;

    for (size_t i = 0; i < sp->count; i++) {
        uint64_t run = 0;
        for (size_t n = 0; i + n < sp->count; n++) {
            const hole *h = &sp->holes[i + n];
            if (!usable(h, home, order) || (n > 0 && sp->holes[i + n - 1].offset + sp->holes[i + n - 1].bytes != h->offset))
                break;
            run += h->bytes;
            bool last = h->offset + h->bytes == sp->end;
            if (run >= bytes) {
                if (run < best_bytes || best_grows) {
                    best_at = i;
                    best_n = n + 1;
                    best_bytes = run;
                    best_grows = false;
                }
                break;
            }
            if (last && best_bytes == UINT64_MAX) { /* the tail's holes plus growth */
                best_at = i;
                best_n = n + 1;
                best_grows = true;
                best_bytes = UINT64_MAX - 1;
            }
        }
    }
    if (best_n == 0) {
        uint64_t offset = sp->end;
        sp->end += bytes;
        return offset;
    }
    uint64_t offset = sp->holes[best_at].offset;
    if (best_grows) {
        remove_holes(sp, best_at, best_n);
        sp->end = offset + bytes;
        return offset;
    }
    hole last = sp->holes[best_at + best_n - 1];
    uint64_t left = last.offset + last.bytes - (offset + bytes);
    remove_holes(sp, best_at, best_n);
    if (left > 0) {
        last.offset = offset + bytes;
        last.bytes = left;
        insert_hole(sp, arena, best_at, last);
    }
    return offset;
}

static void give(space *sp, sf_arena *arena, hole h)
{
    size_t at = 0;
    while (at < sp->count && sp->holes[at].offset < h.offset)
        at++;
    insert_hole(sp, arena, at, h);
    /* merge with neighbours that the same home left: the later clock covers both */
    for (size_t i = at > 0 ? at - 1 : 0; i + 1 < sp->count && i <= at;) {
        hole *a = &sp->holes[i], *b = &sp->holes[i + 1];
        if (a->home != b->home || a->offset + a->bytes != b->offset) {
            i++;
            continue;
        }
        a->bytes += b->bytes;
        a->clock = h.clock;
        remove_holes(sp, i + 1, 1);
        if (at > i)
            at--;
    }
}

sf_status sf_plan_make(const sf_class *cls, sf_arena *arena, sf_plan *out)
{
    space spaces[SF_SPACE_COUNT] = { { 0 } };
    sf_arena scratch = { 0 };
    sf_order order;
    sf_cursor cursor;
    sf_issue is;

    /* where each living instance lies now */
    uint64_t *now = SF_NEW_ARRAY(&scratch, uint64_t, cls->n_instances);

    *out = (sf_plan){ .kept_offset = SF_NEW_ARRAY(arena, uint64_t, cls->n_instances) };
    for (size_t i = 0; i < cls->n_buffers; i++) {
        const sf_buffer *b = &cls->buffers[i];
        space *sp = &spaces[b->space];
        if (!b->persistent)
            continue;
        for (int k = 0; k < b->count; k++) {
            out->kept_offset[b->first + k] = sp->end;
            sp->end += sf_round_up(sf_buffer_bytes(b), SF_PLAN_ALIGN);
            sp->live += sf_buffer_bytes(b);
        }
    }
    for (int s = 0; s < SF_SPACE_COUNT; s++)
        spaces[s].peak = spaces[s].live;

    sf_order_start(&order, cls, &scratch);
    sf_cursor_start(&cursor, cls);
    while (sf_cursor_next(&cursor, &is)) {
        if (is.op->type == SF_OP_ALLOC || is.op->type == SF_OP_FREE) {
            const sf_buffer *b = &cls->buffers[is.at[0].buffer];
            uint64_t bytes = sf_round_up(sf_buffer_bytes(b), SF_PLAN_ALIGN);
            space *sp = &spaces[b->space];
            if (is.op->type == SF_OP_ALLOC) {
                now[is.at[0].instance] = take(sp, &scratch, bytes, b->home, &order);
                SF_PUSH(arena, out->alloc_offset, out->n_allocs, out->cap_allocs) = now[is.at[0].instance];
                sp->live += sf_buffer_bytes(b);
                if (sp->live > sp->peak)
                    sp->peak = sp->live;
            } else if (bytes > 0) {
                give(sp, &scratch, (hole){ .offset = now[is.at[0].instance], .bytes = bytes, .home = b->home,
                                           .clock = order.stream[b->home] });
                sp->live -= sf_buffer_bytes(b);
            }
        }
        sf_order_issue(&order, &is);
    }
    for (int s = 0; s < SF_SPACE_COUNT; s++) {
        out->arena_bytes[s] = spaces[s].end;
        out->live_peak_bytes[s] = spaces[s].peak;
    }
    sf_arena_free(&scratch);
    return SF_SUCCESS;
}
