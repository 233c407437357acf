#include "model/cost/replay.h"

#include "model/base/units.h"
#include "model/cost/allocator.h"
#include "model/program/cursor.h"

/* Measured contexts with modules loaded lazily, as is the default since CUDA 11.7: A100 0.47 GiB
 * (ml-engineering training/performance), RTX 3090 256 MiB bare and RTX 6000 Ada 426 MiB (unsloth-zoo#1053). */
uint64_t sf_context_bytes(const sf_gpu *gpu)
{
    return gpu->compute_capability >= 9.0 ? 560 * SF_MIB : 480 * SF_MIB;
}

/* Per channel and neighbour 10 MiB to receive and 2 MiB to send (NCCL transport buffers, NCCL_BUFFSIZE 4 MiB and the LL
 * and LL128 buffers); a ring on NVLink has up to 24 channels, on PCIe 2 to 4; NVLS of Hopper's switches adds 256 MiB. */
uint64_t sf_nccl_bytes(const sf_cluster *cluster, int ranks)
{
    bool links = cluster->gpu.nvlink_links > 0 && cluster->intra != SF_JOB_INTRA_PCIE;
    uint64_t channels = links ? 24 : 4;
    if (ranks < 2)
        return 0;
    return channels * 12 * SF_MIB + (links && cluster->gpu.compute_capability >= 9.0 && cluster->gpus_per_node >= 4 ? 256 * SF_MIB : 0);
}

typedef struct {
    const sf_class *cls;
    sf_allocator *allocator;
    int *block;                /* [n_instances] */
} player;

static void play_step(player *p, const char **failed_op, sf_phase *failed_phase)
{
    sf_cursor cursor;
    sf_issue is;
    sf_cursor_start(&cursor, p->cls);
    while (sf_cursor_next(&cursor, &is)) {
        if (is.op->type != SF_OP_ALLOC && is.op->type != SF_OP_FREE)
            continue;
        const sf_buffer *b = &p->cls->buffers[is.op->args[0].buffer];
        if (b->space != SF_SPACE_DEVICE)
            continue;
        if (is.op->type == SF_OP_FREE) {
            sf_allocator_give(p->allocator, p->block[is.at[0].instance], 0);
            continue;
        }
        bool before = sf_allocator_stats_of(p->allocator)->failed;
        p->block[is.at[0].instance] = sf_allocator_take(p->allocator, sf_buffer_bytes(b), (int)b->home);
        if (!before && sf_allocator_stats_of(p->allocator)->failed && *failed_op == NULL) {
            *failed_op = b->name;
            *failed_phase = is.op->phase;
        }
    }
}

static void start(player *p, const char **failed_op)
{
    for (size_t i = 0; i < p->cls->n_buffers; i++) {
        const sf_buffer *b = &p->cls->buffers[i];
        for (int k = 0; b->persistent && b->space == SF_SPACE_DEVICE && k < b->count; k++) {
            p->block[b->first + k] = sf_allocator_take(p->allocator, sf_buffer_bytes(b), 0);
            if (*failed_op == NULL && sf_allocator_stats_of(p->allocator)->failed)
                *failed_op = b->name;
        }
    }
}

void sf_replay(const sf_job *job, const sf_program *program, uint64_t capacity, sf_arena *arena, sf_outcome *out)
{
    const sf_class *cls = &program->classes[0];
    uint64_t context = sf_context_bytes(&job->cluster.gpu), nccl = sf_nccl_bytes(&job->cluster, program->world_size);
    uint64_t room = capacity > context + nccl ? capacity - context - nccl : capacity > 0 ? 1 : 0;
    const char *failed = NULL;
    sf_phase phase = SF_PHASE_FORWARD;

    if (job->framework == SF_FRAMEWORK_SHARDFIT)
        return;
    player p = { .cls = cls, .block = SF_NEW_ARRAY(arena, int, cls->n_instances + 1) };
    p.allocator = sf_allocator_new(&(sf_allocator_options){ .capacity_bytes = room, .track_only = true });
    start(&p, &failed);
    for (int step = 0; step < 2; step++)
        play_step(&p, &failed, &phase);
    const sf_allocator_stats *stats = sf_allocator_stats_of(p.allocator);
    out->memory.peak_reserved_bytes = stats->peak_reserved;
    out->memory.device_used_bytes = stats->peak_reserved + context + nccl;
    out->memory.at_peak[SF_CAT_CONTEXT] = out->memory.peak_bytes[SF_CAT_CONTEXT] = context;
    out->memory.at_peak[SF_CAT_NCCL] = out->memory.peak_bytes[SF_CAT_NCCL] = nccl;
    if (stats->peak_reserved > out->memory.peak_allocated_bytes)
        out->memory.at_peak[SF_CAT_FRAGMENTATION] = out->memory.peak_bytes[SF_CAT_FRAGMENTATION] = stats->peak_reserved - out->memory.peak_allocated_bytes;
    if (capacity > 0 && stats->failed) {
        out->fits = false;
        out->memory.oom_request_bytes = stats->failed_bytes;
        out->memory.oom_resident_bytes = stats->failed_allocated;
        out->memory.oom_op = failed;
        out->verdict = sf_arena_printf(arena, "does not fit: %s cannot get %s in %s; %s are allocated and %s reserved of %s that the allocator has", failed,
                                       sf_bytes_text(stats->failed_bytes).text, sf_phase_name(phase), sf_bytes_text(stats->failed_allocated).text,
                                       sf_bytes_text(stats->failed_reserved).text, sf_bytes_text(room).text);
    } else if (capacity > 0) {
        out->fits = true;
        out->verdict = sf_arena_printf(arena, "fits with %s to spare", sf_bytes_text(capacity - out->memory.device_used_bytes).text);
    }
    sf_allocator_free(p.allocator);
}
