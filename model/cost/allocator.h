/* model/cost/allocator.h: PyTorch's CUDA caching allocator, played out over a sequence of requests.
 *
 * What it answers   allocated (blocks in use), reserved (segments held) and where a request fails,
 *   from the same sequence of malloc and free that the framework issues.
 * Rules (c10/cuda/CUDACachingAllocator.cpp, c10/core/AllocatorConfig.h; constants below)
 *   - sizes are rounded up to 512 B; up to 1 MiB they live in the small pool, above in the large
 *   - each (pool, stream) keeps its own free blocks; the smallest that is large enough is taken,
 *     ties by address
 *   - a miss makes a segment: 2 MiB for small; 20 MiB for requests below 10 MiB; else the size
 *     rounded up to 2 MiB
 *   - a block is split if what remains is at least 512 B (small pool) or more than 1 MiB (large);
 *     otherwise the request owns the whole block, and allocated counts the block
 *   - freed blocks merge with free neighbours of their segment
 *   - when the device has no room for a segment, all wholly free segments are given back and the
 *     segment is tried once more; then the request fails
 *   - record_stream: a block used on another stream is not free until that stream has passed the
 *     point of the free; the caller says when (sf_allocator_pass)
 *   - expandable segments: one growing range per (pool, stream), mapped in 2 MiB (small) or 20 MiB
 *     (large) pages; blocks split at 512 B
 * Units   bytes. Deterministic. Memory on the heap: sf_allocator_free gives it back.
 */
#ifndef SF_COST_ALLOCATOR_H
#define SF_COST_ALLOCATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SF_ALLOCATOR_MIN_BLOCK = 512,
    SF_ALLOCATOR_SMALL = 1 << 20,         /* kSmallSize: largest request of the small pool    */
    SF_ALLOCATOR_SMALL_SEGMENT = 2 << 20, /* kSmallBuffer                                     */
    SF_ALLOCATOR_MIN_LARGE = 10 << 20,    /* kMinLargeAlloc                                   */
    SF_ALLOCATOR_LARGE_SEGMENT = 20 << 20,/* kLargeBuffer                                     */
    SF_ALLOCATOR_ROUND_LARGE = 2 << 20    /* kRoundLarge                                      */
};

typedef struct {
    uint64_t capacity_bytes;  /* of the device, less what is outside the allocator; 0: no limit */
    bool expandable;
    uint64_t max_split_bytes; /* max_split_size_mb; 0: unlimited                                */
    bool track_only;          /* a failing request is counted and granted all the same          */
} sf_allocator_options;

typedef struct {
    uint64_t requested, allocated, active, reserved; /* now; active: allocated and pending frees */
    uint64_t peak_allocated, peak_active, peak_reserved;
    uint64_t retries;         /* times that cached segments were given back                      */
    bool failed;              /* a request did not fit                                           */
    uint64_t failed_bytes;    /* the first one: rounded request, and what was reserved, allocated */
    uint64_t failed_allocated, failed_reserved;
} sf_allocator_stats;

typedef struct sf_allocator sf_allocator;

sf_allocator *sf_allocator_new(const sf_allocator_options *options);
void sf_allocator_free(sf_allocator *a);

/* A block for `bytes` on `stream`: an id >= 0 (reused after it is freed), or -1 if it does not fit. */
int sf_allocator_take(sf_allocator *a, uint64_t bytes, int stream);
/* `used_on`: bit s set if stream s (other than the block's own) has used it under record_stream:
 * then it stays pending until sf_allocator_pass of every such stream. */
void sf_allocator_give(sf_allocator *a, int block, unsigned used_on);
/* Stream s has passed everything issued to it so far: pending frees that waited for it go on. */
void sf_allocator_pass(sf_allocator *a, int stream);
/* torch.cuda.empty_cache() */
void sf_allocator_empty(sf_allocator *a);

const sf_allocator_stats *sf_allocator_stats_of(const sf_allocator *a);

/* The rounding alone, for closed forms. */
uint64_t sf_allocator_round(uint64_t bytes);
uint64_t sf_allocator_segment(uint64_t rounded_bytes);

#endif
