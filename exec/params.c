#include "exec/params.h"

#include <math.h>
#include <string.h>

/* splitmix64 (Steele, Lea, Flood 2014): a bijection of 64-bit numbers that looks random. */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Elements 2p and 2p + 1 of a tensor come from one pair of uniform numbers (Box and Muller 1958). */
static void normal_pair(uint64_t key, uint64_t p, double out[2])
{
    uint64_t bits = mix(key ^ mix(p));
    double u = ((double)(bits >> 32) + 1.0) / 4294967296.0; /* (0, 1] */
    double v = (double)(bits & 0xffffffffu) / 4294967296.0;
    double r = sqrt(-2.0 * log(u)), angle = 2.0 * 3.14159265358979323846 * v;
    out[0] = r * cos(angle);
    out[1] = r * sin(angle);
}

void sf_params_fill(const sf_params *params, int tensor, uint64_t from, uint64_t count, float *out)
{
    const sf_param *p = &params->params[tensor];
    uint64_t key = mix(params->seed ^ mix((uint64_t)tensor + 1));

    if (p->given != NULL) {
        memcpy(out, p->given + from, count * sizeof *out);
        return;
    }
    if (p->std == 0.0f) {
        for (uint64_t i = 0; i < count; i++)
            out[i] = p->mean;
        return;
    }
    double pair[2] = { 0.0, 0.0 };
    for (uint64_t i = 0; i < count; i++) {
        uint64_t e = from + i;
        if (i == 0 || e % 2 == 0)
            normal_pair(key, e / 2, pair);
        out[i] = (float)((double)p->mean + (double)p->std * pair[e % 2]);
    }
}

void sf_params_fill_flat(const sf_params *params, const sf_flat *flat, uint64_t from, uint64_t count, float *out)
{
    memset(out, 0, count * sizeof *out);
    for (size_t t = 0; t < flat->n_tensors; t++) {
        const sf_flat_tensor *ft = &flat->tensors[t];
        uint64_t lo = ft->offset > from ? ft->offset : from;
        uint64_t hi = ft->offset + ft->numel < from + count ? ft->offset + ft->numel : from + count;
        if (lo < hi)
            sf_params_fill(params, ft->tensor, lo - ft->offset, hi - lo, out + (lo - from));
    }
}

uint64_t sf_flat_decay_run(const sf_flat *flat, uint64_t from, uint64_t end, bool *decay)
{
    bool found = false;
    uint64_t at = from;

    *decay = false;
    for (size_t t = 0; t < flat->n_tensors && at < end; t++) {
        const sf_flat_tensor *ft = &flat->tensors[t];
        if (ft->offset + ft->numel <= at)
            continue;
        if (found && ft->decay != *decay)
            break;
        *decay = ft->decay;
        found = true;
        at = ft->offset + ft->numel < end ? ft->offset + ft->numel : end;
    }
    return found && at > from ? at - from : end - from; /* past the last tensor: padding */
}
