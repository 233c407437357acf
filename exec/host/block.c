#define _GNU_SOURCE /* memfd_create, CPU_COUNT */
#include "exec/host/block.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model/base/units.h"

static uint64_t whole_pages(uint64_t bytes)
{
    return sf_round_up(bytes > 0 ? bytes : 1, (uint64_t)sysconf(_SC_PAGESIZE));
}

static sf_status map(int flags, sf_host_block *block)
{
    block->base = mmap(NULL, block->bytes, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, block->fd, 0);
    if (block->base == MAP_FAILED)
        return SF_FAIL(SF_ENOMEM, "no %s of host memory for a rank: %s; choose a smaller model or fewer ranks",
                       sf_bytes_text(block->bytes).text, strerror(errno));
    (void)madvise(block->base, block->bytes, MADV_HUGEPAGE); /* fewer TLB misses where the kernel has it */
    return SF_SUCCESS;
}

sf_status sf_host_block_take(uint64_t bytes, sf_host_block *out)
{
    *out = (sf_host_block){ .bytes = whole_pages(bytes), .fd = -1 };
    return map(MAP_PRIVATE | MAP_ANONYMOUS, out);
}

sf_status sf_host_block_share(uint64_t bytes, sf_host_block *out)
{
    *out = (sf_host_block){ .bytes = whole_pages(bytes), .fd = -1 };
    out->fd = memfd_create("shardfit", MFD_CLOEXEC);
    if (out->fd < 0)
        return SF_FAIL(SF_ENOMEM, "cannot make shared memory: %s", strerror(errno));
    if (ftruncate(out->fd, (off_t)out->bytes) != 0) {
        sf_status st = SF_FAIL(SF_ENOMEM, "no %s of shared memory for a rank: %s", sf_bytes_text(out->bytes).text, strerror(errno));
        close(out->fd);
        return st;
    }
    sf_status st = map(MAP_SHARED, out);
    if (st.code != SF_OK)
        close(out->fd);
    return st;
}

sf_status sf_host_block_join(int pid, int fd, uint64_t bytes, sf_host_block *out)
{
    char path[64];

    *out = (sf_host_block){ .bytes = whole_pages(bytes), .fd = -1 };
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
    out->fd = open(path, O_RDWR | O_CLOEXEC);
    if (out->fd < 0)
        return SF_FAIL(SF_ECOMM, "cannot open the memory of process %d: %s", pid, strerror(errno));
    sf_status st = map(MAP_SHARED, out);
    if (st.code != SF_OK)
        close(out->fd);
    return st;
}

void sf_host_block_give(sf_host_block *block)
{
    if (block->base != NULL)
        munmap(block->base, block->bytes);
    if (block->fd >= 0)
        close(block->fd);
    *block = (sf_host_block){ .fd = -1 };
}

uint64_t sf_host_memory_available(void)
{
    unsigned long long kib = 0;
    char line[128];
    FILE *f = fopen("/proc/meminfo", "r");

    if (f == NULL)
        return 0;
    while (fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            break;
    fclose(f);
    return (uint64_t)kib << 10;
}

int sf_host_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return CPU_COUNT(&set);
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

double sf_host_busy_s(void)
{
    unsigned long long user, nice, system, idle, wait, irq, softirq, steal;
    FILE *f = fopen("/proc/stat", "r");

    if (f == NULL)
        return -1;
    int n = fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle, &wait, &irq, &softirq, &steal);
    fclose(f);
    return n == 8 ? (double)(user + nice + system + irq + softirq + steal) / (double)sysconf(_SC_CLK_TCK) : -1;
}
