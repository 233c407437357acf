/* exec/initialise.c: the values that persistent buffers start from, and parameters read back. */
#include <stdlib.h>
#include <string.h>

#include "exec/bf16.h"
#include "exec/executor_impl.h"

enum { CHUNK = 1 << 16 }; /* elements converted at a time */

static sf_status check_type(const sf_buffer *b)
{
    if (b->dtype == SF_F32 || b->dtype == SF_BF16)
        return SF_SUCCESS;
    return SF_FAIL(SF_EUNSUP, "buffer %s holds %s: executors keep parameters in f32 or bf16", b->name, sf_dtype_name(b->dtype));
}

static uint64_t start_in_flat(const sf_executor *ex, const sf_buffer *b)
{
    return b->sharded ? (uint64_t)ex->rank * b->elems : 0;
}

static sf_status write_values(sf_executor *ex, const sf_buffer *b, const sf_flat *flat, char *to)
{
    float *values = malloc(CHUNK * sizeof *values);
    uint16_t *halves = malloc(CHUNK * sizeof *halves);
    sf_status st = values != NULL && halves != NULL ? check_type(b) : SF_FAIL(SF_ENOMEM, "no memory to initialise parameters");

    for (uint64_t at = 0; at < b->elems && st.code == SF_OK; at += CHUNK) {
        uint64_t n = b->elems - at < CHUNK ? b->elems - at : CHUNK;
        sf_params_fill_flat(ex->setup.params, flat, start_in_flat(ex, b) + at, n, values);
        if (b->dtype == SF_F32) {
            st = ex->backend->write(ex->machine, to + at * sizeof *values, values, n * sizeof *values);
            continue;
        }
        for (uint64_t i = 0; i < n; i++)
            halves[i] = sf_f32_to_bf16(values[i]);
        st = ex->backend->write(ex->machine, to + at * sizeof *halves, halves, n * sizeof *halves);
    }
    free(values);
    free(halves);
    return st;
}

/* Memory is zero at the start: moments need nothing. */
sf_status sf_executor_initialise(sf_executor *ex)
{
    for (size_t i = 0; i < ex->cls->n_buffers; i++) {
        const sf_buffer *b = &ex->cls->buffers[i];
        for (int k = 0; b->persistent && k < b->count; k++) {
            char *at = sf_executor_address(ex, b, b->first + k);
            if (b->flat >= 0 && (b->binding == SF_BIND_PARAM || b->binding == SF_BIND_MASTER))
                SF_TRY(write_values(ex, b, &ex->cls->flats[b->flat + k], at));
            else if (ex->setup.poison != SF_POISON_NONE && b->binding != SF_BIND_MOMENT1 && b->binding != SF_BIND_MOMENT2)
                SF_TRY(ex->backend->poison(ex->machine, b->home, at, sf_buffer_bytes(b)));
        }
    }
    return ex->backend->sync(ex->machine);
}

/* ---- reading back ---- */

typedef struct {
    const sf_buffer *buffer;
    int instance;
    uint64_t offset;      /* elements of the instance where the tensor's part starts */
    uint64_t from, count; /* that part, elements of the tensor                       */
} part;

/* The part of a tensor that this rank's persistent buffers of one binding hold. */
static bool find_part(const sf_executor *ex, sf_binding what, int tensor, part *out)
{
    for (size_t i = 0; i < ex->cls->n_buffers; i++) {
        const sf_buffer *b = &ex->cls->buffers[i];
        if (!b->persistent || b->binding != what || b->flat < 0)
            continue;
        for (int k = 0; k < b->count; k++) {
            const sf_flat *flat = &ex->cls->flats[b->flat + k];
            for (size_t t = 0; t < flat->n_tensors; t++) {
                const sf_flat_tensor *ft = &flat->tensors[t];
                uint64_t start = start_in_flat(ex, b), end = start + b->elems;
                uint64_t lo = ft->offset > start ? ft->offset : start;
                uint64_t hi = ft->offset + ft->numel < end ? ft->offset + ft->numel : end;
                if (ft->tensor != tensor)
                    continue;
                *out = (part){ .buffer = b, .instance = b->first + k };
                if (lo < hi) {
                    out->offset = lo - start;
                    out->from = lo - ft->offset;
                    out->count = hi - lo;
                }
                return true;
            }
        }
    }
    return false;
}

static sf_status read_part(const sf_executor *ex, const part *p, float *out)
{
    uint64_t size = sf_dtype_bytes(p->buffer->dtype);
    const char *from = sf_executor_address(ex, p->buffer, p->instance) + p->offset * size;

    SF_TRY(check_type(p->buffer));
    SF_TRY(ex->backend->read(ex->machine, out, from, p->count * size));
    if (p->buffer->dtype == SF_BF16)
        for (uint64_t i = p->count; i-- > 0;) { /* in place, from the end: a float covers later halves only */
            uint16_t half;
            memcpy(&half, (const char *)out + i * sizeof half, sizeof half);
            out[i] = sf_bf16_to_f32(half);
        }
    return SF_SUCCESS;
}

/* Every rank's part, in messages of at most CHUNK elements. */
static sf_status gather_parts(const sf_executor *ex, const part *mine, const float *values, float *out)
{
    int world = sf_comm_world(ex->setup.comm);
    uint64_t span[2] = { mine->from, mine->count }, spans[SF_COMM_MAX_RANKS][2], longest = 0;
    sf_status st = SF_SUCCESS;

    SF_TRY(sf_comm_exchange(ex->setup.comm, span, sizeof span, spans));
    for (int r = 0; r < world; r++)
        longest = spans[r][1] > longest ? spans[r][1] : longest;
    float *send = calloc(CHUNK, sizeof *send), *all = calloc((size_t)world * CHUNK, sizeof *all);
    if (send == NULL || all == NULL)
        st = SF_FAIL(SF_ENOMEM, "no memory to gather parameters");
    for (uint64_t at = 0; at < longest && st.code == SF_OK; at += CHUNK) {
        uint64_t most = longest - at < CHUNK ? longest - at : CHUNK;
        if (at < mine->count)
            memcpy(send, values + at, (mine->count - at < most ? mine->count - at : most) * sizeof *send);
        st = sf_comm_exchange(ex->setup.comm, send, most * sizeof *send, all);
        for (int r = 0; r < world && st.code == SF_OK; r++)
            if (at < spans[r][1])
                memcpy(out + spans[r][0] + at, all + (uint64_t)r * most, (spans[r][1] - at < most ? spans[r][1] - at : most) * sizeof *out);
    }
    free(send);
    free(all);
    return st;
}

sf_status sf_executor_read(sf_executor *ex, sf_binding what, int tensor, float *out)
{
    uint64_t numel = ex->setup.params->params[tensor].numel;
    part mine = { 0 };
    bool here = find_part(ex, what, tensor, &mine) || (what == SF_BIND_MASTER && find_part(ex, SF_BIND_PARAM, tensor, &mine));
    float *values = malloc((numel + 1) * sizeof *values);
    sf_status st = SF_SUCCESS;

    if (values == NULL)
        return SF_FAIL(SF_ENOMEM, "no memory to read a tensor of %llu elements", (unsigned long long)numel);
    memset(out, 0, numel * sizeof *out);
    if (here && mine.count > 0)
        st = read_part(ex, &mine, values);
    if (st.code == SF_OK)
        st = gather_parts(ex, &mine, values, out);
    free(values);
    return st;
}
