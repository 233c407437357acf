/* model/strategy/torch_shard.h: pieces of FSDP and ZeRO-3: units gathered before use. Private to torch_*.c and ds_*.c. */
#ifndef SF_STRATEGY_TORCH_SHARD_H
#define SF_STRATEGY_TORCH_SHARD_H

#include "model/strategy/torch.h"

uint64_t sf_torch_ceil(uint64_t a, uint64_t b);
/* Elements of one rank's shard of a parameter that is cut by rows (FSDP2) or by elements (ZeRO-3). */
uint64_t sf_torch_rows_shard(const sf_torch_param *p, uint64_t ways);
uint64_t sf_torch_elems_shard(const sf_torch_param *p, uint64_t ways);
/* A kernel on the communication stream, where gathers' inputs are cast. */
void sf_torch_comm_kernel(sf_torch *t, const char *label, uint64_t bytes);
void sf_torch_copy(sf_torch *t, const char *label, bool to_device, uint64_t bytes);

#endif
