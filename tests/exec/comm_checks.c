#include "tests/exec/comm_checks.h"

#include <stdio.h>
#include <string.h>

/* One element of a rank's array, exact in every type (bf16 has 8 significant bits) but with sums that round. */
static float value(int rank, uint64_t i, unsigned salt)
{
    uint32_t h = (uint32_t)i * 2654435761u + (uint32_t)rank * 40503u + salt * 97u;
    h ^= h >> 15;
    h *= 0x2c1b3c6du;
    h ^= h >> 12;
    float v = (float)((int)(h & 255) - 128);
    for (unsigned e = (h >> 8) & 15; e > 0; e--)
        v *= 0.5f;
    return v;
}

static uint16_t to_bf16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    bits += 0x7fffu + ((bits >> 16) & 1u);
    return (uint16_t)(bits >> 16);
}

static void put(void *array, sf_dtype dtype, uint64_t i, float f)
{
    if (dtype == SF_F64)
        ((double *)array)[i] = f;
    else if (dtype == SF_F32)
        ((float *)array)[i] = f;
    else
        ((uint16_t *)array)[i] = to_bf16(f);
}

typedef struct {
    sf_comm *comm;
    sf_group group;
    int size, self, first, stride;
    char *in, *out, *expect; /* quarters of the block */
    char *msg;
    size_t msg_size;
} check;

static int member(const check *c, int i)
{
    return c->first + i * c->stride;
}

/* The sum in rank order, in f32 (f64), rounded once. */
static void put_sum(const check *c, sf_dtype dtype, uint64_t to, uint64_t i)
{
    double d = (double)value(member(c, 0), i, 1);
    float f = value(member(c, 0), i, 1);
    for (int k = 1; k < c->size; k++) {
        f += value(member(c, k), i, 1);
        d += (double)value(member(c, k), i, 1);
    }
    if (dtype == SF_F64)
        ((double *)(void *)c->expect)[to] = d;
    else
        put(c->expect, dtype, to, f);
}

static void fill(const check *c, char *array, sf_dtype dtype, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        put(array, dtype, i, value(sf_comm_rank(c->comm), i, 1));
}

/* What `out` must hold afterwards, over `*len` elements; 0 where nothing is written. */
static void expect(const check *c, sf_op_type op, sf_dtype dtype, uint64_t n, uint64_t *len)
{
    uint64_t per = n / (uint64_t)c->size, self = (uint64_t)c->self;

    *len = n;
    switch (op) {
    case SF_OP_ALL_REDUCE:
    case SF_OP_REDUCE:
        for (uint64_t i = 0; i < n; i++) {
            if (op == SF_OP_ALL_REDUCE || c->self == 0)
                put_sum(c, dtype, i, i);
            else
                put(c->expect, dtype, i, value(sf_comm_rank(c->comm), i, 1)); /* untouched */
        }
        break;
    case SF_OP_REDUCE_SCATTER:
        *len = per;
        for (uint64_t i = 0; i < per; i++)
            put_sum(c, dtype, i, self * per + i);
        break;
    case SF_OP_ALL_GATHER:
    case SF_OP_GATHER:
        if (op == SF_OP_GATHER && c->self != 0)
            *len = 0;
        for (uint64_t i = 0; i < *len; i++)
            put(c->expect, dtype, i, value(member(c, (int)(i / per)), i % per, 1));
        break;
    case SF_OP_SCATTER:
        *len = per;
        for (uint64_t i = 0; i < per; i++)
            put(c->expect, dtype, i, value(member(c, 0), self * per + i, 1));
        break;
    case SF_OP_ALL_TO_ALL:
        for (uint64_t i = 0; i < n; i++)
            put(c->expect, dtype, i, value(member(c, (int)(i / per)), self * per + i % per, 1));
        break;
    default: /* BROADCAST */
        for (uint64_t i = 0; i < n; i++)
            put(c->expect, dtype, i, value(member(c, 0), i, 1));
    }
}

static bool check_one(check *c, sf_op_type op, sf_dtype dtype, uint64_t n)
{
    bool one_array = op == SF_OP_ALL_REDUCE || op == SF_OP_REDUCE || op == SF_OP_BROADCAST;
    bool root_in = op == SF_OP_SCATTER, root_out = op == SF_OP_GATHER;
    uint64_t len = n;

    if (!one_array)
        n -= n % (uint64_t)c->size;
    fill(c, c->in, dtype, op == SF_OP_ALL_GATHER || op == SF_OP_GATHER ? n / (uint64_t)c->size : n);
    expect(c, op, dtype, n, &len);
    void *out = one_array ? c->in : c->out;
    sf_status st = sf_comm_call(c->comm, op, c->group, dtype, root_in && c->self != 0 ? NULL : c->in,
                                root_out && c->self != 0 ? NULL : out, n);
    if (st.code != SF_OK) {
        snprintf(c->msg, c->msg_size, "%s", st.msg);
        sf_comm_stop(c->comm, SF_STOP_FAILED, st.msg, NULL, 0);
        return false;
    }
    if (memcmp(out, c->expect, len * sf_dtype_bytes(dtype)) == 0)
        return true;
    snprintf(c->msg, c->msg_size, "rank %d: wrong %s of %llu %s over %s of %d", sf_comm_rank(c->comm), sf_op_name(op),
             (unsigned long long)n, sf_dtype_name(dtype), sf_group_name(c->group), c->size);
    sf_comm_stop(c->comm, SF_STOP_FAILED, c->msg, NULL, 0);
    return false;
}

bool sf_comm_check(sf_comm *comm, sf_group group, void *block, char *msg, size_t msg_size)
{
    static const sf_op_type ops[] = { SF_OP_ALL_REDUCE, SF_OP_ALL_GATHER, SF_OP_REDUCE_SCATTER, SF_OP_BROADCAST,
                                      SF_OP_REDUCE,     SF_OP_SCATTER,    SF_OP_GATHER,         SF_OP_ALL_TO_ALL };
    static const sf_dtype dtypes[] = { SF_F32, SF_BF16, SF_F64 };
    static const uint64_t sizes[] = { 1, 7, 1023, 1030, 66000, 90001 };
    int node = sf_comm_group_size(comm, SF_GROUP_LOCAL), rank = sf_comm_rank(comm);
    check c = { .comm = comm, .group = group, .size = sf_comm_group_size(comm, group), .msg = msg, .msg_size = msg_size };

    c.self = group == SF_GROUP_LOCAL ? rank % node : group == SF_GROUP_CROSS ? rank / node : rank;
    c.first = group == SF_GROUP_LOCAL ? rank - c.self : group == SF_GROUP_CROSS ? rank % node : 0;
    c.stride = group == SF_GROUP_CROSS ? node : 1;
    c.in = block;
    c.out = c.in + SF_COMM_CHECK_BYTES / 4;
    c.expect = c.out + SF_COMM_CHECK_BYTES / 4;
    for (size_t o = 0; o < sizeof ops / sizeof ops[0]; o++)
        for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++)
            for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
                if (!check_one(&c, ops[o], dtypes[d], sizes[s]))
                    return false;
    return true;
}
