#include "exec/ledger.h"

#include <string.h>

#include "model/base/units.h"

static void refuse(sf_ledger *l, const sf_buffer *b, uint64_t seq, sf_phase phase, int step)
{
    l->refusal = (sf_refusal){ .request_bytes = sf_buffer_bytes(b), .seq = seq, .resident_bytes = l->live[SF_SPACE_DEVICE],
                               .limit_bytes = l->limit_bytes, .phase = phase, .step = step };
    strncpy(l->refusal.buffer, b->name, sizeof l->refusal.buffer - 1);
    memcpy(l->refusal.at, l->category, sizeof l->refusal.at);
}

bool sf_ledger_take(sf_ledger *l, const sf_buffer *b, uint64_t seq, sf_phase phase, int step)
{
    uint64_t bytes = sf_buffer_bytes(b), live = l->live[b->space] + bytes;

    if (b->space == SF_SPACE_DEVICE && l->limit_bytes > 0 && live > l->limit_bytes) {
        refuse(l, b, seq, phase, step);
        return false;
    }
    l->live[b->space] = live;
    if (b->space == SF_SPACE_HOST) {
        if (live > l->peak[SF_SPACE_HOST])
            l->peak[SF_SPACE_HOST] = live;
        return true;
    }
    l->category[b->category] += bytes;
    if (l->category[b->category] > l->category_peak[b->category])
        l->category_peak[b->category] = l->category[b->category];
    if (live > l->phase_peak[phase])
        l->phase_peak[phase] = live;
    if (live > l->peak[SF_SPACE_DEVICE]) {
        l->peak[SF_SPACE_DEVICE] = live;
        memcpy(l->at_peak, l->category, sizeof l->at_peak);
        l->phase_of_peak = phase;
        l->buffer_of_peak = b->name;
        l->seq_of_peak = seq;
    }
    return true;
}

void sf_ledger_give(sf_ledger *l, const sf_buffer *b)
{
    l->live[b->space] -= sf_buffer_bytes(b);
    if (b->space == SF_SPACE_DEVICE)
        l->category[b->category] -= sf_buffer_bytes(b);
}

static void refusal_outcome(const sf_refusal *r, sf_arena *arena, sf_outcome *out)
{
    out->memory.oom_request_bytes = r->request_bytes;
    out->memory.oom_op = sf_arena_strdup(arena, r->buffer);
    out->memory.oom_seq = r->seq;
    out->memory.oom_resident_bytes = r->resident_bytes;
    out->memory.phase_of_peak = r->phase;
    memcpy(out->memory.at_peak, r->at, sizeof r->at);
    out->verdict = sf_arena_printf(arena, "does not fit: %s for %s in %s, with %s of %s in use", sf_bytes_text(r->request_bytes).text,
                                   r->buffer, r->step == 0 ? "load" : sf_phase_name(r->phase), sf_bytes_text(r->resident_bytes).text,
                                   sf_bytes_text(r->limit_bytes).text);
}

void sf_ledger_outcome(const sf_ledger *l, uint64_t device_block_bytes, sf_arena *arena, sf_outcome *out)
{
    out->memory.capacity_bytes = l->limit_bytes;
    memcpy(out->memory.peak_bytes, l->category_peak, sizeof l->category_peak);
    memcpy(out->memory.at_peak, l->at_peak, sizeof l->at_peak);
    memcpy(out->memory.phase_peak_bytes, l->phase_peak, sizeof l->phase_peak);
    out->memory.peak_allocated_bytes = l->peak[SF_SPACE_DEVICE];
    out->memory.peak_reserved_bytes = device_block_bytes;
    out->memory.device_used_bytes = device_block_bytes;
    out->memory.host_bytes = l->peak[SF_SPACE_HOST];
    out->memory.phase_of_peak = l->phase_of_peak;
    out->memory.op_of_peak = l->buffer_of_peak;
    out->memory.seq_of_peak = l->seq_of_peak;
    out->fits = l->refusal.request_bytes == 0;
    if (!out->fits)
        refusal_outcome(&l->refusal, arena, out);
    else if (l->limit_bytes > 0)
        out->verdict = sf_arena_printf(arena, "fits with %s to spare", sf_bytes_text(l->limit_bytes - l->peak[SF_SPACE_DEVICE]).text);
    else
        out->verdict = "ran";
}
