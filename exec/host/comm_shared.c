#include "exec/host/comm_shared.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "exec/host/block.h"
#include "model/base/units.h"

enum {
    GATE_EXCHANGE = SF_GROUP_COUNT, /* the gate of sf_comm_exchange */
    GATE_COUNT,
    EXCHANGE_BYTES = 2048,
    SMALL_BYTES = 4096, /* an all_reduce up to this size is summed by every rank itself */
    SPIN_NS = 15000     /* about what sleeping and being woken costs: at most twice the best of both */
};

/* A rank's count of arrivals; others sleep on it. */
typedef struct {
    _Alignas(64) _Atomic uint32_t arrived;
    _Atomic uint32_t sleepers;
} gate;

typedef struct {
    int block; /* -1: an address of this process; -2: absent */
    uint64_t offset;
} place;

typedef struct {
    int op, dtype;
    uint64_t n;
    place in, out;
} card;

typedef struct {
    gate gates[GATE_COUNT];
    card cards[SF_GROUP_COUNT];
    _Atomic int pid, closed;
    unsigned char exchange[EXCHANGE_BYTES];
} seat;

enum { STOP_NO, STOP_COMING, STOP_SET };

struct sf_shared_region {
    int world;
    _Atomic int stopping;
    sf_stop stop;
    seat seats[];
};

typedef struct {
    sf_comm base;
    sf_shared_region *region;
    bool processes;
    bool spins; /* every rank has a core: the others may be about to arrive */
    void (*release)(void *);
    void *release_arg;
    uint32_t turn[GATE_COUNT];
    sf_host_block *blocks[SF_COMM_BLOCKS]; /* [world] each; of threads only the own one is set */
    int n_blocks;
} shared_comm;

size_t sf_shared_region_bytes(int world)
{
    return sizeof(sf_shared_region) + sizeof(seat) * (size_t)world;
}

void sf_shared_region_start(sf_shared_region *region, int world)
{
    region->world = world;
}

sf_stop_kind sf_shared_region_stopped(const sf_shared_region *region)
{
    return atomic_load(&((sf_shared_region *)(uintptr_t)region)->stopping) == STOP_SET ? region->stop.kind : SF_STOP_NONE;
}

/* ---- waiting ---- */

static void sleep_on(_Atomic uint32_t *word, uint32_t seen, long ms)
{
    struct timespec limit = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
    syscall(SYS_futex, word, FUTEX_WAIT, seen, &limit, NULL, 0);
}

static void wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static bool process_alive(int pid)
{
    char path[48], line[256];

    if (kill(pid, 0) != 0 && errno == ESRCH)
        return false;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");
    if (f == NULL)
        return true;
    bool alive = true;
    if (fgets(line, sizeof line, f) != NULL) { /* "pid (name) state ..." */
        const char *end = strrchr(line, ')');
        alive = end == NULL || (end[1] == ' ' && end[2] != 'Z' && end[2] != 'X');
    }
    fclose(f);
    return alive;
}

static void stop_region(sf_shared_region *region, const sf_stop *stop)
{
    int expected = STOP_NO;
    if (!atomic_compare_exchange_strong(&region->stopping, &expected, STOP_COMING))
        return;
    region->stop = *stop;
    atomic_store(&region->stopping, STOP_SET);
    for (int r = 0; r < region->world; r++)
        for (int g = 0; g < GATE_COUNT; g++)
            wake(&region->seats[r].gates[g].arrived);
}

static void look_after(shared_comm *self, int rank)
{
    seat *s = &self->region->seats[rank];
    sf_stop stop = { .kind = SF_STOP_LOST, .rank = rank };
    int pid = atomic_load(&s->pid);

    if (atomic_load(&s->closed))
        snprintf(stop.msg, sizeof stop.msg, "it left while others waited for it");
    else if (self->processes && pid != 0 && !process_alive(pid))
        snprintf(stop.msg, sizeof stop.msg, "its process %d is gone", pid);
    else
        return;
    stop_region(self->region, &stop);
}

static bool spin_for(gate *gt, uint32_t turn)
{
    struct timespec start, now;

    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        for (int i = 0; i < 16; i++) {
            if ((int32_t)(atomic_load(&gt->arrived) - turn) >= 0)
                return true;
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - start.tv_sec) * 1000000000L + (now.tv_nsec - start.tv_nsec) < SPIN_NS);
    return false;
}

/* Waits until `rank` has arrived `turn` times at gate g. */
static sf_status await(shared_comm *self, int g, int rank, uint32_t turn)
{
    gate *gt = &self->region->seats[rank].gates[g];

    if (self->spins && spin_for(gt, turn))
        return SF_SUCCESS;
    for (;;) {
        uint32_t seen = atomic_load(&gt->arrived);
        if ((int32_t)(seen - turn) >= 0)
            return SF_SUCCESS;
        if (atomic_load(&self->region->stopping) != STOP_NO)
            return sf_comm_stop_status(&self->base);
        atomic_fetch_add(&gt->sleepers, 1);
        sleep_on(&gt->arrived, seen, 250);
        atomic_fetch_sub(&gt->sleepers, 1);
        if (atomic_load(&gt->arrived) == seen)
            look_after(self, rank);
    }
}

/* All members meet. */
static sf_status meet(shared_comm *self, int g, int first, int stride, int size)
{
    gate *mine = &self->region->seats[self->base.rank].gates[g];
    uint32_t turn = ++self->turn[g];

    atomic_store(&mine->arrived, turn);
    if (atomic_load(&mine->sleepers) > 0)
        wake(&mine->arrived);
    for (int i = 0; i < size; i++)
        if (first + i * stride != self->base.rank)
            SF_TRY(await(self, g, first + i * stride, turn));
    return SF_SUCCESS;
}

/* ---- addresses ---- */

static sf_status place_of(const shared_comm *self, const void *address, place *out)
{
    if (address == NULL) {
        *out = (place){ .block = -2 };
        return SF_SUCCESS;
    }
    if (!self->processes) {
        *out = (place){ .block = -1, .offset = (uint64_t)(uintptr_t)address };
        return SF_SUCCESS;
    }
    for (int b = 0; b < self->n_blocks; b++) {
        const sf_host_block *own = &self->blocks[b][self->base.rank];
        uint64_t offset = (uint64_t)((uintptr_t)address - (uintptr_t)own->base);
        if (offset < own->bytes) {
            *out = (place){ .block = b, .offset = offset };
            return SF_SUCCESS;
        }
    }
    return SF_FAIL(SF_EINVAL, "a collective's array lies outside the memory of the communicator");
}

static char *address_of(const shared_comm *self, int rank, place p)
{
    if (p.block == -1)
        return (char *)(uintptr_t)p.offset;
    return (char *)self->blocks[p.block][rank].base + p.offset;
}

/* ---- collectives ---- */

static const card *card_of(const shared_comm *self, const sf_comm_args *a, int member)
{
    return &self->region->seats[sf_comm_member(a, member)].cards[a->group];
}

static char *in_of(const shared_comm *self, const sf_comm_args *a, int member)
{
    return address_of(self, sf_comm_member(a, member), card_of(self, a, member)->in);
}

static char *out_of(const shared_comm *self, const sf_comm_args *a, int member)
{
    return address_of(self, sf_comm_member(a, member), card_of(self, a, member)->out);
}

static sf_status meet_group(shared_comm *self, const sf_comm_args *a)
{
    return meet(self, (int)a->group, a->first, a->stride, a->size);
}

static sf_status check_cards(const shared_comm *self, const sf_comm_args *a)
{
    for (int i = 0; i < a->size; i++) {
        const card *c = card_of(self, a, i);
        if (c->op != (int)a->op || c->n != a->n || c->dtype != (int)a->dtype)
            return SF_FAIL(SF_ECOMM, "rank %d calls %s of %llu %s while rank %d calls %s of %llu %s: the ranks' programs differ",
                           self->base.rank, sf_op_name(a->op), (unsigned long long)a->n, sf_dtype_name(a->dtype),
                           sf_comm_member(a, i), sf_op_name((sf_op_type)c->op), (unsigned long long)c->n,
                           sf_dtype_name((sf_dtype)c->dtype));
    }
    return SF_SUCCESS;
}

static void copy_part(char *to, const char *from, uint64_t bytes)
{
    if (to != from)
        memcpy(to, from, bytes);
}

/* Sums elements [lo, hi) of every member's `in` into `out`, which is where element lo goes. */
static void sum_slice(const shared_comm *self, const sf_comm_args *a, uint64_t lo, uint64_t hi, void *out)
{
    const void *parts[SF_COMM_MAX_RANKS];
    for (int i = 0; i < a->size; i++)
        parts[i] = in_of(self, a, i) + lo * sf_dtype_bytes(a->dtype);
    sf_comm_sum(a->dtype, a->size, parts, 1, &out, hi - lo);
}

static sf_status all_reduce_small(shared_comm *self, const sf_comm_args *a)
{
    _Alignas(16) char sum[SMALL_BYTES];

    sum_slice(self, a, 0, a->n, sum);
    SF_TRY(meet_group(self, a));
    memcpy(a->out, sum, a->n * sf_dtype_bytes(a->dtype));
    return SF_SUCCESS; /* nobody reads `out` any more: no third meeting */
}

static uint64_t slice_start(const sf_comm_args *a, int member)
{
    uint64_t per = sf_div_up(a->n, (uint64_t)a->size);
    uint64_t lo = per * (uint64_t)member;
    return lo < a->n ? lo : a->n;
}

/* Each rank sums its slice of all arrays and writes the sum into all of them: nobody else touches that slice. */
static sf_status all_reduce(shared_comm *self, const sf_comm_args *a)
{
    const void *parts[SF_COMM_MAX_RANKS];
    void *outs[SF_COMM_MAX_RANKS];
    uint64_t size = sf_dtype_bytes(a->dtype), lo = slice_start(a, a->self), hi = slice_start(a, a->self + 1);

    if (a->n * size <= SMALL_BYTES)
        return all_reduce_small(self, a);
    for (int i = 0; i < a->size; i++) {
        parts[i] = in_of(self, a, i) + lo * size;
        outs[i] = out_of(self, a, (a->self + i) % a->size) + lo * size; /* the own array first */
    }
    sf_comm_sum(a->dtype, a->size, parts, a->size, outs, hi - lo);
    return meet_group(self, a);
}

static sf_status reduce(shared_comm *self, const sf_comm_args *a)
{
    uint64_t size = sf_dtype_bytes(a->dtype);
    uint64_t lo = slice_start(a, a->self), hi = slice_start(a, a->self + 1);

    sum_slice(self, a, lo, hi, out_of(self, a, 0) + lo * size);
    return meet_group(self, a);
}

static sf_status reduce_scatter(shared_comm *self, const sf_comm_args *a)
{
    uint64_t per = a->n / (uint64_t)a->size;

    sum_slice(self, a, per * (uint64_t)a->self, per * (uint64_t)(a->self + 1), a->out);
    return meet_group(self, a);
}

static sf_status all_gather(shared_comm *self, const sf_comm_args *a)
{
    uint64_t part = a->n / (uint64_t)a->size * sf_dtype_bytes(a->dtype);

    for (int k = 0; k < a->size; k++) {
        int i = (a->self + k) % a->size;
        copy_part((char *)a->out + part * (uint64_t)i, in_of(self, a, i), part);
    }
    return meet_group(self, a);
}

static sf_status broadcast(shared_comm *self, const sf_comm_args *a)
{
    copy_part(a->out, in_of(self, a, 0), a->n * sf_dtype_bytes(a->dtype));
    return meet_group(self, a);
}

static sf_status scatter(shared_comm *self, const sf_comm_args *a)
{
    uint64_t part = a->n / (uint64_t)a->size * sf_dtype_bytes(a->dtype);

    copy_part(a->out, in_of(self, a, 0) + part * (uint64_t)a->self, part);
    return meet_group(self, a);
}

static sf_status gather(shared_comm *self, const sf_comm_args *a)
{
    uint64_t part = a->n / (uint64_t)a->size * sf_dtype_bytes(a->dtype);

    copy_part(out_of(self, a, 0) + part * (uint64_t)a->self, a->in, part);
    return meet_group(self, a);
}

static sf_status all_to_all(shared_comm *self, const sf_comm_args *a)
{
    uint64_t part = a->n / (uint64_t)a->size * sf_dtype_bytes(a->dtype);

    for (int k = 0; k < a->size; k++) {
        int i = (a->self + k) % a->size;
        copy_part((char *)a->out + part * (uint64_t)i, in_of(self, a, i) + part * (uint64_t)a->self, part);
    }
    return meet_group(self, a);
}

static sf_status (*const collectives[SF_OP_COUNT])(shared_comm *, const sf_comm_args *) = {
    [SF_OP_ALL_REDUCE] = all_reduce, [SF_OP_ALL_GATHER] = all_gather, [SF_OP_REDUCE_SCATTER] = reduce_scatter,
    [SF_OP_BROADCAST] = broadcast,   [SF_OP_REDUCE] = reduce,         [SF_OP_SCATTER] = scatter,
    [SF_OP_GATHER] = gather,         [SF_OP_ALL_TO_ALL] = all_to_all,
};

static sf_status shared_call(sf_comm *comm, const sf_comm_args *a)
{
    shared_comm *self = (shared_comm *)comm;
    card c = { .op = (int)a->op, .dtype = (int)a->dtype, .n = a->n };

    SF_TRY(place_of(self, a->in, &c.in));
    SF_TRY(place_of(self, a->out, &c.out));
    self->region->seats[comm->rank].cards[a->group] = c;
    SF_TRY(meet_group(self, a));
    clock_gettime(CLOCK_MONOTONIC, &comm->met);
    SF_TRY(check_cards(self, a));
    return collectives[a->op](self, a);
}

/* ---- control ---- */

static sf_status shared_exchange(sf_comm *comm, const void *mine, size_t bytes, void *all)
{
    shared_comm *self = (shared_comm *)comm;

    for (size_t at = 0; at < bytes || at == 0; at += EXCHANGE_BYTES) {
        size_t len = bytes - at < EXCHANGE_BYTES ? bytes - at : EXCHANGE_BYTES;
        memcpy(self->region->seats[comm->rank].exchange, (const char *)mine + at, len);
        SF_TRY(meet(self, GATE_EXCHANGE, 0, 1, comm->world));
        for (int r = 0; r < comm->world; r++)
            memcpy((char *)all + bytes * (size_t)r + at, self->region->seats[r].exchange, len);
        SF_TRY(meet(self, GATE_EXCHANGE, 0, 1, comm->world));
    }
    return SF_SUCCESS;
}

static sf_status join_peers(shared_comm *self, sf_host_block *blocks)
{
    struct {
        uint64_t bytes;
        int pid, fd;
    } mine = { blocks[self->base.rank].bytes, (int)getpid(), blocks[self->base.rank].fd }, all[SF_COMM_MAX_RANKS];
    int failed = 0, any[SF_COMM_MAX_RANKS];
    sf_status st = SF_SUCCESS;

    SF_TRY(shared_exchange(&self->base, &mine, sizeof mine, all));
    for (int r = 0; r < self->base.world && st.code == SF_OK; r++)
        if (r != self->base.rank)
            st = sf_host_block_join(all[r].pid, all[r].fd, all[r].bytes, &blocks[r]);
    failed = st.code != SF_OK;
    SF_TRY(shared_exchange(&self->base, &failed, sizeof failed, any)); /* descriptors may be closed from here on */
    if (st.code != SF_OK)
        return st;
    for (int r = 0; r < self->base.world; r++)
        if (any[r])
            return SF_FAIL(SF_ECOMM, "rank %d cannot reach the others' memory", r);
    return SF_SUCCESS;
}

static sf_status shared_memory(sf_comm *comm, uint64_t bytes, void **out)
{
    shared_comm *self = (shared_comm *)comm;
    int at = self->n_blocks;

    if (at == SF_COMM_BLOCKS)
        return SF_FAIL(SF_EINVAL, "more than %d blocks of memory asked of a communicator", SF_COMM_BLOCKS);
    sf_host_block *blocks = calloc((size_t)comm->world, sizeof *blocks);
    if (blocks == NULL)
        return SF_FAIL(SF_ENOMEM, "no memory for a communicator");
    for (int r = 0; r < comm->world; r++)
        blocks[r].fd = -1;
    self->blocks[at] = blocks; /* closed with the communicator, however far this gets */
    self->n_blocks++;
    if (self->processes) {
        SF_TRY(sf_host_block_share(bytes, &blocks[comm->rank]));
        SF_TRY(join_peers(self, blocks));
    } else {
        SF_TRY(sf_host_block_take(bytes, &blocks[comm->rank]));
    }
    *out = blocks[comm->rank].base;
    return SF_SUCCESS;
}

static void shared_stop(sf_comm *comm, const sf_stop *stop)
{
    stop_region(((shared_comm *)comm)->region, stop);
}

static bool shared_stopped(const sf_comm *comm, sf_stop *out)
{
    sf_shared_region *region = ((const shared_comm *)comm)->region;

    if (atomic_load(&region->stopping) == STOP_NO)
        return false;
    for (int i = 0; i < 1000 && atomic_load(&region->stopping) == STOP_COMING; i++)
        usleep(1000); /* its writer is between two stores, unless it died there */
    if (atomic_load(&region->stopping) == STOP_SET)
        *out = region->stop;
    else
        *out = (sf_stop){ .kind = SF_STOP_LOST, .msg = "it died while ending the run" };
    return true;
}

static void shared_close(sf_comm *comm)
{
    shared_comm *self = (shared_comm *)comm;

    atomic_store(&self->region->seats[comm->rank].closed, 1);
    for (int b = 0; b < self->n_blocks; b++) {
        for (int r = 0; r < comm->world; r++)
            if (self->blocks[b][r].base != NULL)
                sf_host_block_give(&self->blocks[b][r]);
        free(self->blocks[b]);
    }
    self->release(self->release_arg);
    free(self);
}

static const sf_comm_type process_type = { "shared memory", true, shared_call, shared_memory, shared_exchange,
                                           shared_stop,     shared_stopped, shared_close, NULL };
static const sf_comm_type thread_type = { "threads", true, shared_call,    shared_memory, shared_exchange,
                                          shared_stop, shared_stopped, shared_close, NULL };

sf_status sf_shared_open(sf_shared_region *region, bool processes, int rank, int ranks_per_node, void (*release)(void *),
                         void *arg, sf_comm **out)
{
    shared_comm *self = calloc(1, sizeof *self);

    if (self == NULL)
        return SF_FAIL(SF_ENOMEM, "no memory for a communicator");
    self->base = (sf_comm){ .type = processes ? &process_type : &thread_type, .rank = rank, .world = region->world,
                            .ranks_per_node = ranks_per_node };
    self->region = region;
    self->processes = processes;
    self->spins = region->world <= sf_host_cores();
    self->release = release;
    self->release_arg = arg;
    atomic_store(&region->seats[rank].pid, (int)getpid());
    *out = &self->base;
    return SF_SUCCESS;
}
