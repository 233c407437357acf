/* tests/cuda/emu/warp.cpp: operations that the lanes of a warp do together.
 *
 * Source  PTX ISA 8.x: shfl.sync, vote.sync, ldmatrix ("matrix fragments" table: lane i holds row i/4,
 *         columns 2(i%4) and 2(i%4)+1) and mma.m16n8k16 with 16-bit elements (fragment figures).
 */
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_runtime.h"
#include "warp.h"

enum { MAX_BYTES = 48, MAX_WARPS = 32 };

struct arrival {
    bool here;
    emu_op op;
    int variant;
    unsigned mask;
    unsigned char in[MAX_BYTES], out[MAX_BYTES];
};
static arrival arrivals[MAX_WARPS][32];

struct mma_in {
    float d[4];
    uint32_t a[4], b[2];
};
struct ldmatrix_in {
    const unsigned char *row;
    bool trans;
};

/* ---- the operations: every lane of `mask` has arrived ------------------------------------------------ */
static void shuffle(arrival *lane, unsigned mask)
{
    for (int i = 0; i < 32; i++) {
        if (!(mask >> i & 1))
            continue;
        emu_shuffle in, out, from_in;
        memcpy(&in, lane[i].in, sizeof in);
        int base = i / in.width * in.width, from = i;
        switch (lane[i].op) {
        case EMU_SHFL: from = base + (in.lane & (in.width - 1)); break;
        case EMU_SHFL_XOR: from = (i ^ in.lane) < base + in.width ? i ^ in.lane : i; break;
        case EMU_SHFL_DOWN: from = i + in.lane < base + in.width ? i + in.lane : i; break;
        default: from = i - in.lane >= base ? i - in.lane : i; break;
        }
        if (!(mask >> from & 1))
            emu_fail("a shuffle reads a lane outside its mask");
        memcpy(&from_in, lane[from].in, sizeof from_in);
        out = in;
        memcpy(out.value, from_in.value, sizeof out.value);
        memcpy(lane[i].out, &out, sizeof out);
    }
}

static void ballot(arrival *lane, unsigned mask)
{
    unsigned bits = 0;
    for (int i = 0; i < 32; i++) {
        int predicate = 0;
        memcpy(&predicate, lane[i].in, sizeof predicate);
        if ((mask >> i & 1) && predicate)
            bits |= 1u << i;
    }
    for (int i = 0; i < 32; i++)
        memcpy(lane[i].out, &bits, sizeof bits);
}

static float half_of(uint32_t pair, int which, int half)
{
    uint16_t bits = (uint16_t)(which ? pair >> 16 : pair & 0xffff);
    return half ? __half2float(__half{ bits }) : __bfloat162float(__nv_bfloat16{ bits });
}

/* Lane l: group g = l/4, member t = l%4.  A: register r holds row g + 8(r%2), columns 2t + 8(r/2) and the
 * next.  B: register r holds rows 2t + 8r and the next of column g.  D: element e is row g + 8(e/2),
 * column 2t + e%2. */
static void mma(arrival *lane, unsigned mask)
{
    float a[16][16], b[16][8];
    mma_in in;

    if (mask != 0xffffffffu)
        emu_fail("mma without the whole warp");
    for (int l = 0; l < 32; l++) {
        int g = l / 4, t = l % 4, half = lane[l].variant;
        memcpy(&in, lane[l].in, sizeof in);
        for (int r = 0; r < 4; r++)
            for (int w = 0; w < 2; w++)
                a[g + 8 * (r % 2)][2 * t + 8 * (r / 2) + w] = half_of(in.a[r], w, half);
        for (int r = 0; r < 2; r++)
            for (int w = 0; w < 2; w++)
                b[2 * t + 8 * r + w][g] = half_of(in.b[r], w, half);
    }
    for (int l = 0; l < 32; l++) {
        int g = l / 4, t = l % 4;
        memcpy(&in, lane[l].in, sizeof in);
        for (int e = 0; e < 4; e++) {
            float sum = 0.0f;
            for (int k = 0; k < 16; k++)
                sum += a[g + 8 * (e / 2)][k] * b[k][2 * t + e % 2];
            in.d[e] += sum;
        }
        memcpy(lane[l].out, in.d, sizeof in.d);
    }
}

static void ldmatrix(arrival *lane, unsigned mask)
{
    ldmatrix_in in, row;

    if (mask != 0xffffffffu)
        emu_fail("ldmatrix without the whole warp");
    for (int l = 0; l < 32; l++) {
        uint32_t out[4];
        memcpy(&in, lane[l].in, sizeof in);
        if ((uintptr_t)in.row % 16)
            emu_fail("ldmatrix row address is no multiple of 16");
        for (int m = 0; m < 4; m++) {
            uint16_t pair[2];
            for (int w = 0; w < 2; w++) {
                int r = in.trans ? 2 * (l % 4) + w : l / 4;
                int c = in.trans ? l / 4 : 2 * (l % 4) + w;
                memcpy(&row, lane[8 * m + r].in, sizeof row);
                memcpy(&pair[w], row.row + 2 * c, 2);
            }
            out[m] = (uint32_t)pair[0] | (uint32_t)pair[1] << 16;
        }
        memcpy(lane[l].out, out, sizeof out);
    }
}

static void compute(arrival *lane, emu_op op, unsigned mask)
{
    switch (op) {
    case EMU_SYNC: break;
    case EMU_BALLOT: ballot(lane, mask); break;
    case EMU_MMA: mma(lane, mask); break;
    case EMU_LDMATRIX: ldmatrix(lane, mask); break;
    default: shuffle(lane, mask); break;
    }
}

/* ---- arriving and waiting ------------------------------------------------------------------------------ */
void emu_warp(emu_op op, int variant, unsigned mask, const void *in, size_t in_bytes, void *out, size_t out_bytes)
{
    arrival *lane = arrivals[emu_warp_index()];
    int me = emu_lane();
    bool complete = true;

    if (in_bytes > MAX_BYTES || out_bytes > MAX_BYTES)
        emu_fail("operands of a warp operation are too large for the emulation");
    if (!(mask >> me & 1))
        emu_fail("a lane calls a warp operation whose mask does not name it");
    lane[me].here = true;
    lane[me].op = op;
    lane[me].variant = variant;
    lane[me].mask = mask;
    if (in_bytes > 0)
        memcpy(lane[me].in, in, in_bytes);

    for (int i = 0; i < 32; i++) {
        if (!(mask >> i & 1))
            continue;
        if (!lane[i].here)
            complete = false;
        else if (lane[i].op != op || lane[i].variant != variant || lane[i].mask != mask)
            emu_fail("lanes of a warp are in different warp operations");
    }
    if (!complete) {
        emu_wait_in_warp();
    } else {
        compute(lane, op, mask);
        for (int i = 0; i < 32; i++)
            if (mask >> i & 1) {
                lane[i].here = false;
                emu_wake_lane(i);
            }
    }
    if (out_bytes > 0)
        memcpy(out, lane[me].out, out_bytes);
}

void emu_mma_16816(int half, float *d, const uint32_t *a, const uint32_t *b)
{
    mma_in in;
    memcpy(in.d, d, sizeof in.d);
    memcpy(in.a, a, sizeof in.a);
    memcpy(in.b, b, sizeof in.b);
    emu_warp(EMU_MMA, half, 0xffffffffu, &in, sizeof in, d, sizeof in.d);
}

void emu_ldmatrix_x4(uint32_t *out, const void *row, bool trans)
{
    ldmatrix_in in = { (const unsigned char *)row, trans };
    emu_warp(EMU_LDMATRIX, trans, 0xffffffffu, &in, sizeof in, out, 4 * sizeof *out);
}
