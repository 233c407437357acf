/* model/cost/replay.h: what a GPU shows while a framework runs a program: the caching allocator played over the program's
 * own sequence of allocations, and what lies outside of it.
 *
 * Reserved  the allocator's segments after the second step, when its cache has settled
 * Used      reserved, the CUDA context with the kernels' modules, and NCCL's buffers: what nvidia-smi prints
 * Only frameworks have a caching allocator; our executor's arena is what the accountant says.
 */
#ifndef SF_COST_REPLAY_H
#define SF_COST_REPLAY_H

#include "model/desc/job.h"
#include "model/program/outcome.h"

/* Fills memory.peak_reserved_bytes, device_used_bytes and the categories context, nccl and fragmentation of `out`, whose
 * allocated figures are there already; with capacity_bytes > 0 also whether it fits, and what fails. */
void sf_replay(const sf_job *job, const sf_program *program, uint64_t capacity_bytes, sf_arena *arena, sf_outcome *out);

/* CUDA context of one process, by generation. */
uint64_t sf_context_bytes(const sf_gpu *gpu);
/* NCCL's buffers of one communicator of so many ranks. */
uint64_t sf_nccl_bytes(const sf_cluster *cluster, int ranks);

#endif
