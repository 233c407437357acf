/* exec/host/block.h: one big block of zeroed host memory, private or shared with other processes.
 *
 * A shared block is an anonymous memory file (memfd_create(2)); another process of the same user
 * and pid namespace maps it through /proc/PID/fd/FD, so no name is left behind and the size of
 * /dev/shm does not matter. Pages are taken at first touch.
 * Errors  SF_ENOMEM naming the size; SF_ECOMM where another process's block cannot be opened.
 */
#ifndef SF_EXEC_HOST_BLOCK_H
#define SF_EXEC_HOST_BLOCK_H

#include <stdint.h>

#include "model/base/status.h"

typedef struct {
    void *base;
    uint64_t bytes; /* as mapped: whole pages */
    int fd;         /* of a shared block, else -1 */
} sf_host_block;

sf_status sf_host_block_take(uint64_t bytes, sf_host_block *out);
sf_status sf_host_block_share(uint64_t bytes, sf_host_block *out);
sf_status sf_host_block_join(int pid, int fd, uint64_t bytes, sf_host_block *out);
void sf_host_block_give(sf_host_block *block);

/* MemAvailable of /proc/meminfo; 0 if it cannot be read. */
uint64_t sf_host_memory_available(void);

/* Cores that this process may use. */
int sf_host_cores(void);

/* Seconds that this machine's cores have worked since it started, for whomever (/proc/stat); negative if that
 * cannot be read. */
double sf_host_busy_s(void);

#endif
