#include "model/cost/allocator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/base/units.h"

enum { NONE = -1 };

typedef enum { UNUSED, FREE, TAKEN, PENDING } block_state;

typedef struct {
    uint64_t address, bytes, requested;
    int prev, next;      /* neighbours in the segment, by address                       */
    int segment;
    int stream;
    bool small;
    block_state state;
    unsigned waits_for;  /* PENDING: streams that must pass                             */
    int link;            /* UNUSED: next unused slot                                    */
} block;

typedef struct {
    uint64_t bytes;
    int first;           /* its first block; NONE: given back                           */
} segment;

/* Free blocks of one (pool, stream), ordered by size, then address. */
typedef struct {
    int stream;
    bool small;
    int *ids;
    size_t count, cap;
    int range;           /* expandable: the segment that grows, or NONE                 */
} pool;

struct sf_allocator {
    sf_allocator_options options;
    sf_allocator_stats stats;
    block *blocks;
    size_t n_blocks, cap_blocks;
    int unused;
    segment *segments;
    size_t n_segments, cap_segments;
    pool *pools;
    size_t n_pools;
    int *pending;
    size_t n_pending, cap_pending;
    uint64_t next_address;
};

static void *grown(void *items, size_t count, size_t *cap, size_t item_bytes)
{
    if (count < *cap)
        return items;
    *cap = *cap == 0 ? 64 : *cap * 2;
    items = realloc(items, *cap * item_bytes);
    if (items == NULL) {
        fprintf(stderr, "shardfit: out of host memory\n");
        abort();
    }
    return items;
}

uint64_t sf_allocator_round(uint64_t bytes)
{
    return bytes < SF_ALLOCATOR_MIN_BLOCK ? SF_ALLOCATOR_MIN_BLOCK : sf_round_up(bytes, SF_ALLOCATOR_MIN_BLOCK);
}

uint64_t sf_allocator_segment(uint64_t rounded_bytes)
{
    if (rounded_bytes <= SF_ALLOCATOR_SMALL)
        return SF_ALLOCATOR_SMALL_SEGMENT;
    if (rounded_bytes < SF_ALLOCATOR_MIN_LARGE)
        return SF_ALLOCATOR_LARGE_SEGMENT;
    return sf_round_up(rounded_bytes, SF_ALLOCATOR_ROUND_LARGE);
}

sf_allocator *sf_allocator_new(const sf_allocator_options *options)
{
    sf_allocator *a = calloc(1, sizeof *a);
    if (a == NULL) {
        fprintf(stderr, "shardfit: out of host memory\n");
        abort();
    }
    a->options = *options;
    a->unused = NONE;
    return a;
}

void sf_allocator_free(sf_allocator *a)
{
    if (a == NULL)
        return;
    for (size_t i = 0; i < a->n_pools; i++)
        free(a->pools[i].ids);
    free(a->pools);
    free(a->blocks);
    free(a->segments);
    free(a->pending);
    free(a);
}

const sf_allocator_stats *sf_allocator_stats_of(const sf_allocator *a)
{
    return &a->stats;
}

/* ---- blocks and pools ---- */

static int new_block(sf_allocator *a)
{
    if (a->unused != NONE) {
        int id = a->unused;
        a->unused = a->blocks[id].link;
        return id;
    }
    a->blocks = grown(a->blocks, a->n_blocks, &a->cap_blocks, sizeof *a->blocks);
    return (int)a->n_blocks++;
}

static void retire_block(sf_allocator *a, int id)
{
    a->blocks[id].state = UNUSED;
    a->blocks[id].link = a->unused;
    a->unused = id;
}

static pool *pool_of(sf_allocator *a, int stream, bool small)
{
    for (size_t i = 0; i < a->n_pools; i++)
        if (a->pools[i].stream == stream && a->pools[i].small == small)
            return &a->pools[i];
    size_t cap = a->n_pools;
    a->pools = realloc(a->pools, (cap + 1) * sizeof *a->pools);
    if (a->pools == NULL)
        abort();
    a->pools[a->n_pools] = (pool){ .stream = stream, .small = small, .range = NONE };
    return &a->pools[a->n_pools++];
}

/* Position of the first free block that is not before (bytes, address). */
static size_t position(const sf_allocator *a, const pool *p, uint64_t bytes, uint64_t address)
{
    size_t lo = 0, hi = p->count;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        const block *b = &a->blocks[p->ids[mid]];
        if (b->bytes < bytes || (b->bytes == bytes && b->address < address))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static void pool_add(sf_allocator *a, int id)
{
    block *b = &a->blocks[id];
    pool *p = pool_of(a, b->stream, b->small);
    b->state = FREE;
    p->ids = grown(p->ids, p->count, &p->cap, sizeof *p->ids);
    size_t at = position(a, p, b->bytes, b->address);
    memmove(p->ids + at + 1, p->ids + at, (p->count - at) * sizeof *p->ids);
    p->ids[at] = id;
    p->count++;
}

static void pool_remove(sf_allocator *a, int id)
{
    const block *b = &a->blocks[id];
    pool *p = pool_of(a, b->stream, b->small);
    size_t at = position(a, p, b->bytes, b->address);
    memmove(p->ids + at, p->ids + at + 1, (p->count - at - 1) * sizeof *p->ids);
    p->count--;
}

/* `id` swallows its right neighbour, which is in no pool any more. */
static void merge_right(sf_allocator *a, int id)
{
    block *b = &a->blocks[id];
    int right = b->next;
    b->bytes += a->blocks[right].bytes;
    b->next = a->blocks[right].next;
    if (b->next != NONE)
        a->blocks[b->next].prev = id;
    retire_block(a, right);
}

/* ---- segments ---- */

static void release_free_segments(sf_allocator *a)
{
    for (size_t i = 0; i < a->n_segments; i++) {
        int id = a->segments[i].first;
        if (id == NONE || a->blocks[id].state != FREE || a->blocks[id].next != NONE)
            continue;
        pool_remove(a, id);
        pool *p = pool_of(a, a->blocks[id].stream, a->blocks[id].small);
        if (p->range == (int)i)
            p->range = NONE;
        retire_block(a, id);
        a->stats.reserved -= a->segments[i].bytes;
        a->segments[i].first = NONE;
    }
}

void sf_allocator_empty(sf_allocator *a)
{
    release_free_segments(a);
}

static bool has_room(const sf_allocator *a, uint64_t bytes)
{
    return a->options.capacity_bytes == 0 || a->stats.reserved + bytes <= a->options.capacity_bytes;
}

/* Room for `bytes` more of reserved memory, giving back what is cached if need be. */
static bool make_room(sf_allocator *a, uint64_t bytes, uint64_t request)
{
    if (has_room(a, bytes))
        return true;
    a->stats.retries++;
    release_free_segments(a);
    if (has_room(a, bytes))
        return true;
    if (!a->stats.failed) {
        a->stats.failed = true;
        a->stats.failed_bytes = request;
        a->stats.failed_allocated = a->stats.allocated;
        a->stats.failed_reserved = a->stats.reserved;
    }
    return a->options.track_only;
}

static int new_segment(sf_allocator *a, uint64_t bytes, int stream, bool small, uint64_t request)
{
    if (!make_room(a, bytes, request))
        return NONE;
    int id = new_block(a);
    a->segments = grown(a->segments, a->n_segments, &a->cap_segments, sizeof *a->segments);
    a->segments[a->n_segments] = (segment){ .bytes = bytes, .first = id };
    a->blocks[id] = (block){ .address = a->next_address, .bytes = bytes, .prev = NONE, .next = NONE, .segment = (int)a->n_segments++,
                             .stream = stream, .small = small, .state = TAKEN };
    /* expandable ranges keep room to grow: 1.125 x the device in the source; here addresses are free */
    a->next_address += a->options.expandable ? (uint64_t)1 << 44 : bytes;
    a->stats.reserved += bytes;
    return id;
}

/* Maps pages behind the range's last block until its tail holds `bytes`. */
static int expand(sf_allocator *a, uint64_t bytes, int stream, bool small)
{
    uint64_t page = small ? SF_ALLOCATOR_SMALL_SEGMENT : SF_ALLOCATOR_LARGE_SEGMENT;
    pool *p = pool_of(a, stream, small);

    if (p->range == NONE) {
        int id = new_segment(a, sf_round_up(bytes, page), stream, small, bytes);
        if (id != NONE)
            pool_of(a, stream, small)->range = a->blocks[id].segment;
        return id;
    }
    int last = a->segments[p->range].first;
    while (a->blocks[last].next != NONE)
        last = a->blocks[last].next;
    bool tail_free = a->blocks[last].state == FREE;
    uint64_t have = tail_free ? a->blocks[last].bytes : 0;
    uint64_t more = sf_round_up(bytes - have, page);
    if (!make_room(a, more, bytes))
        return NONE;
    p = pool_of(a, stream, small);
    if (p->range == NONE) /* given back while room was made */
        return expand(a, bytes, stream, small);
    a->segments[p->range].bytes += more;
    a->stats.reserved += more;
    if (tail_free) {
        pool_remove(a, last);
        a->blocks[last].bytes += more;
        a->blocks[last].state = TAKEN;
        return last;
    }
    int id = new_block(a);
    a->blocks[id] = (block){ .address = a->blocks[last].address + a->blocks[last].bytes, .bytes = more, .prev = last, .next = NONE,
                             .segment = p->range, .stream = stream, .small = small, .state = TAKEN };
    a->blocks[last].next = id;
    return id;
}

/* ---- requests ---- */

static int best_fit(sf_allocator *a, uint64_t bytes, int stream, bool small)
{
    const pool *p = pool_of(a, stream, small);
    size_t at = position(a, p, bytes, 0);
    uint64_t limit = a->options.max_split_bytes;

    if (at == p->count)
        return NONE;
    int id = p->ids[at];
    if (limit > 0 && !a->options.expandable) {
        if (bytes < limit && a->blocks[id].bytes >= limit)
            return NONE;
        if (bytes >= limit && a->blocks[id].bytes >= bytes + SF_ALLOCATOR_LARGE_SEGMENT)
            return NONE;
    }
    pool_remove(a, id);
    return id;
}

static bool should_split(const sf_allocator *a, const block *b, uint64_t bytes)
{
    uint64_t left = b->bytes - bytes;
    if (b->small || a->options.expandable)
        return left >= SF_ALLOCATOR_MIN_BLOCK;
    return (a->options.max_split_bytes == 0 || bytes < a->options.max_split_bytes) && left > SF_ALLOCATOR_SMALL;
}

static void note_peaks(sf_allocator_stats *s)
{
    if (s->allocated > s->peak_allocated)
        s->peak_allocated = s->allocated;
    if (s->active > s->peak_active)
        s->peak_active = s->active;
    if (s->reserved > s->peak_reserved)
        s->peak_reserved = s->reserved;
}

int sf_allocator_take(sf_allocator *a, uint64_t bytes, int stream)
{
    uint64_t rounded = sf_allocator_round(bytes);
    bool small = rounded <= SF_ALLOCATOR_SMALL;

    int id = best_fit(a, rounded, stream, small);
    if (id == NONE)
        id = a->options.expandable ? expand(a, rounded, stream, small)
                                   : new_segment(a, sf_allocator_segment(rounded), stream, small, rounded);
    if (id == NONE)
        return NONE;
    if (should_split(a, &a->blocks[id], rounded)) {
        int rest = new_block(a);
        block *b = &a->blocks[id];
        a->blocks[rest] = (block){ .address = b->address + rounded, .bytes = b->bytes - rounded, .prev = id, .next = b->next,
                                   .segment = b->segment, .stream = stream, .small = small };
        if (b->next != NONE)
            a->blocks[b->next].prev = rest;
        b->next = rest;
        b->bytes = rounded;
        pool_add(a, rest);
    }
    block *b = &a->blocks[id];
    b->state = TAKEN;
    b->requested = bytes;
    a->stats.requested += bytes;
    a->stats.allocated += b->bytes;
    a->stats.active += b->bytes;
    note_peaks(&a->stats);
    return id;
}

static void make_free(sf_allocator *a, int id)
{
    a->stats.active -= a->blocks[id].bytes;
    int right = a->blocks[id].next, left = a->blocks[id].prev;
    if (right != NONE && a->blocks[right].state == FREE) {
        pool_remove(a, right);
        merge_right(a, id);
    }
    if (left != NONE && a->blocks[left].state == FREE) {
        pool_remove(a, left);
        merge_right(a, left);
        id = left;
    }
    pool_add(a, id);
}

void sf_allocator_give(sf_allocator *a, int id, unsigned used_on)
{
    block *b = &a->blocks[id];
    a->stats.requested -= b->requested;
    a->stats.allocated -= b->bytes;
    used_on &= ~(1u << b->stream);
    if (used_on == 0) {
        make_free(a, id);
        return;
    }
    b->state = PENDING;
    b->waits_for = used_on;
    a->pending = grown(a->pending, a->n_pending, &a->cap_pending, sizeof *a->pending);
    a->pending[a->n_pending++] = id;
}

void sf_allocator_pass(sf_allocator *a, int stream)
{
    size_t kept = 0;
    for (size_t i = 0; i < a->n_pending; i++) {
        int id = a->pending[i];
        a->blocks[id].waits_for &= ~(1u << stream);
        if (a->blocks[id].waits_for == 0)
            make_free(a, id);
        else
            a->pending[kept++] = id;
    }
    a->n_pending = kept;
}
