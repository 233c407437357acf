#include "model/desc/gpu.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/base/csv.h"
#include "model/base/text.h"
#include "model/base/units.h"
#include "model/desc/catalogue.h"

enum { MOST_WORDS = 24, WORD_SIZE = 24 };

/* A B200 is sold as 180 and as 192 GB, an A40 is logged as 44 of its 48: within 8.5 % is the same card. */
static const double MEMORY_SLACK = 0.085;

/* A name as words: "NVIDIA A100-SXM4-80GB" -> nvidia, a100, sxm4, 80gb. */
typedef struct {
    char word[MOST_WORDS][WORD_SIZE];
    int count;
} words;

static void split(const char *text, words *out)
{
    out->count = 0;
    while (*text != '\0' && out->count < MOST_WORDS) {
        int n = 0;
        while (*text != '\0' && !isalnum((unsigned char)*text))
            text++;
        for (; isalnum((unsigned char)*text); text++)
            if (n < WORD_SIZE - 1)
                out->word[out->count][n++] = (char)tolower((unsigned char)*text);
        out->word[out->count][n] = '\0';
        out->count += n > 0;
        /* "80 GB" is one word */
        char *w = out->word[out->count > 0 ? out->count - 1 : 0];
        if (out->count > 1 && (strcmp(w, "gb") == 0 || strcmp(w, "g") == 0 || strcmp(w, "gib") == 0) &&
            isdigit((unsigned char)out->word[out->count - 2][0])) {
            strncat(out->word[out->count - 2], "gb", WORD_SIZE - 1 - strlen(out->word[out->count - 2]));
            out->count--;
        }
    }
}

static bool one_of(const char *w, const char *const *list)
{
    for (; *list != NULL; list++)
        if (strcmp(w, *list) == 0)
            return true;
    return false;
}

static bool is_vendor(const char *w)
{
    static const char *const list[] = { "nvidia", "tesla", "geforce", "rtx", "gtx", "quadro", "amd", "instinct", "intel", "habana", "gpu",
                                        "generation", "edition", "tensor", "core", "superchip", "radeon", "dgx", "hgx", "node", "class", NULL };
    return one_of(w, list);
}

/* Words that say the board's form or the memory's kind, not which chip it is. */
static bool is_form(const char *w)
{
    static const char *const list[] = { "pcie", "pci", "e", "nvl", "ws", "workstation", "server", "blackwell", "oam", "hbm2", "hbm2e", "hbm3",
                                        "hbm3e", "gddr6", "gddr6x", "one", "two", "of", "dies", "die", "ac", NULL };
    size_t len = strlen(w);
    return strncmp(w, "sxm", 3) == 0 || one_of(w, list) || (len > 1 && w[len - 1] == 'w' && isdigit((unsigned char)w[0]));
}

/* "80gb", "144g" -> 80, 144; else 0. */
static double memory_of(const char *w)
{
    char *end;
    double gb = strtod(w, &end);
    return end != w && (strcmp(end, "gb") == 0 || strcmp(end, "g") == 0 || strcmp(end, "gib") == 0) ? gb : 0;
}

/* "8x", "x8": how many, not which. */
static bool is_count(const char *w)
{
    size_t digits = strspn(w, "0123456789");
    return (digits > 0 && strcmp(w + digits, "x") == 0) || (w[0] == 'x' && w[1] != '\0' && strspn(w + 1, "0123456789") == strlen(w + 1));
}

/* Does the word say which chip? */
static bool is_specific(const char *w)
{
    return !is_vendor(w) && !is_form(w) && !is_count(w) && memory_of(w) <= 0;
}

static bool same_word(const char *a, const char *b)
{
    if (strncmp(a, "sxm", 3) == 0 && strncmp(b, "sxm", 3) == 0)
        return a[3] == '\0' || b[3] == '\0' || a[3] == b[3];
    return strcmp(a, b) == 0;
}

static bool has(const words *in, const char *w)
{
    for (int i = 0; i < in->count; i++)
        if (same_word(in->word[i], w))
            return true;
    return false;
}

/* Letters and digits without vendor words: "GeForce RTX 2080 Ti" -> "2080ti". */
static void core_name(const char *text, char *out, size_t size)
{
    static const char *const drop[] = { "nvidia", "geforce", "tesla", "quadro", "rtx" };
    sf_str_squash(text, out, size);
    for (size_t i = 0; i < sizeof drop / sizeof drop[0]; i++)
        for (char *at; (at = strstr(out, drop[i])) != NULL;)
            memmove(at, at + strlen(drop[i]), strlen(at + strlen(drop[i])) + 1);
}

static bool same_core(const char *a, const char *b)
{
    char x[128], y[128];
    core_name(a, x, sizeof x);
    core_name(b, y, sizeof y);
    return x[0] != '\0' && strcmp(x, y) == 0;
}

/* How far a row is from what was asked; negative: it is not meant at all. */
static int distance(const words *asked, const words *name, const words *smi, double row_gb, double hint_gb)
{
    int cost = 0;
    bool form_asked = false, memory_asked = hint_gb > 0;

    for (int i = 0; i < asked->count; i++) {
        const char *w = asked->word[i];
        double gb = memory_of(w);
        if (gb > 0) {
            memory_asked = true;
            if (fabs(gb - row_gb) > MEMORY_SLACK * row_gb)
                return -1;
            cost += (int)(200 * fabs(gb - row_gb) / row_gb);
        } else if (is_form(w)) {
            form_asked = true;
            cost += has(name, w) || has(smi, w) ? 0 : 40; /* a form the row does not have counts, a unit like 500W little */
        } else if (is_count(w)) {
            continue;
        } else if (!is_vendor(w) && !has(name, w) && !has(smi, w)) {
            return -1;
        } else if (is_vendor(w) && !has(name, w) && !has(smi, w)) {
            cost += 1;
        }
    }
    if (hint_gb > 0 && fabs(hint_gb - row_gb) > MEMORY_SLACK * row_gb)
        return -1;
    for (int i = 0; i < name->count; i++) {
        const char *w = name->word[i];
        if (memory_of(w) > 0)
            cost += memory_asked ? 0 : 10;
        else if (is_form(w))
            cost += form_asked ? (has(asked, w) ? 0 : 2) : strcmp(w, "sxm3") == 0 ? 1 : strncmp(w, "sxm", 3) == 0 || strcmp(w, "ws") == 0 || strcmp(w, "blackwell") == 0 ? 0 : 2;
        else if (!is_vendor(w) && !has(asked, w))
            cost += 100;
        else if (is_vendor(w) && !has(asked, w))
            cost += 1;
    }
    return cost;
}

static double number(const sf_csv *csv, size_t row, const char *column)
{
    return strtod(sf_csv_field(csv, row, column), NULL);
}

static void read_row(const sf_csv *csv, size_t row, sf_gpu *out)
{
    double gb = number(csv, row, "mem_gb"), mib = number(csv, row, "usable_mib");
    *out = (sf_gpu){
        .name = sf_csv_field(csv, row, "name"), .smi_name = sf_csv_field(csv, row, "nvidia_smi_name"),
        .vendor = sf_csv_field(csv, row, "vendor"), .arch = sf_csv_field(csv, row, "arch"),
        .compute_capability = number(csv, row, "compute_capability"),
        .fp32_flops = 1e12 * number(csv, row, "fp32_tflops"), .tf32_flops = 1e12 * number(csv, row, "tf32_dense_tflops"),
        .fp16_flops = 1e12 * number(csv, row, "fp16_dense_tflops_fp32acc"), .bf16_flops = 1e12 * number(csv, row, "bf16_dense_tflops"),
        .fp8_flops = 1e12 * number(csv, row, "fp8_dense_tflops"),
        .memory_bytes = (uint64_t)(1e9 * gb),
        /* where no log states the total: a card of n GB shows n GiB less about 1.5 % for ECC and firmware */
        .usable_bytes = mib > 0 ? (uint64_t)(mib * (double)SF_MIB) : (uint64_t)(0.985 * gb * (double)SF_GIB),
        .memory_Bps = 1e9 * number(csv, row, "mem_bw_gbs"), .sm_count = (int)number(csv, row, "sm_count"),
        .l2_bytes = (uint64_t)(number(csv, row, "l2_mb") * (double)SF_MIB), .nvlink_gen = (int)number(csv, row, "nvlink_gen"),
        .nvlink_links = (int)number(csv, row, "nvlink_links"), .nvlink_Bps = 1e9 * number(csv, row, "nvlink_gbs_per_dir"),
        .pcie_gen = (int)number(csv, row, "pcie_gen"), .pcie_lanes = (int)number(csv, row, "pcie_lanes"), .tdp_w = number(csv, row, "tdp_w"),
    };
}

/* The rows whose words come closest to the words that say which chip: "A100X" is near the A100s. */
static const char *nearest(const sf_csv *csv, const words *asked, const char *text, sf_arena *arena)
{
    enum { MOST = 3 };
    const char *best[MOST] = { 0 };
    int distance_of[MOST], n = 0;
    words row;

    for (size_t i = 0; i < csv->n_rows; i++) {
        int d = 1000;
        split(sf_csv_field(csv, i, "name"), &row);
        for (int a = 0; a < asked->count; a++)
            for (int b = 0; is_specific(asked->word[a]) && b < row.count; b++) {
                int apart = is_specific(row.word[b]) ? sf_str_distance(asked->word[a], row.word[b]) : 1000;
                d = apart < d ? apart : d;
            }
        int at = n;
        while (at > 0 && d < distance_of[at - 1])
            at--;
        if (at == MOST || d == 1000)
            continue;
        n = n < MOST ? n + 1 : n;
        for (int k = n - 1; k > at; k--) {
            best[k] = best[k - 1];
            distance_of[k] = distance_of[k - 1];
        }
        best[at] = sf_csv_field(csv, i, "name");
        distance_of[at] = d;
    }
    return sf_str_nearest(text, best, (size_t)n, arena);
}

static bool any_specific(const words *w)
{
    for (int i = 0; i < w->count; i++)
        if (is_specific(w->word[i]))
            return true;
    return false;
}

sf_status sf_gpu_find(const char *name, double memory_gb_hint, sf_arena *arena, sf_gpu *out)
{
    sf_csv csv;
    words asked, row_name, row_smi;
    int best = -1;
    size_t best_row = 0, n_equal = 0;
    const char *equals = "";

    if (sf_str_ieq(name, "NVIDIA GH200 120GB")) /* the driver prints the CPU's memory: 480 or 120 GB */
        name = "NVIDIA GH200 480GB";
    if (sf_str_ieq(name, "host")) {
        *out = (sf_gpu){ .name = "host", .smi_name = "", .vendor = "", .arch = "host", .is_host = true };
        return SF_SUCCESS;
    }
    SF_TRY(sf_csv_read(sf_catalogue_path(arena, "gpus.csv"), arena, &csv));
    split(name, &asked);
    if (!any_specific(&asked))
        return SF_FAIL(SF_EINVAL, "gpu '%s' names no GPU; write for example 'A100-80GB', 'H100 SXM5', 'RTX 4090', or 'host' for this machine", name);
    for (size_t i = 0; i < csv.n_rows; i++) {
        if (sf_str_ieq(name, sf_csv_field(&csv, i, "name")) || sf_str_ieq(name, sf_csv_field(&csv, i, "nvidia_smi_name"))) {
            read_row(&csv, i, out);
            return SF_SUCCESS;
        }
        split(sf_csv_field(&csv, i, "name"), &row_name);
        split(sf_csv_field(&csv, i, "nvidia_smi_name"), &row_smi);
        int d = distance(&asked, &row_name, &row_smi, number(&csv, i, "mem_gb"), memory_gb_hint);
        if (d < 0 || asked.count == 0)
            continue;
        if (best < 0 || d < best) {
            best = d;
            best_row = i;
            n_equal = 0;
            equals = "";
        }
        if (d == best) {
            n_equal++;
            equals = sf_arena_printf(arena, "%s%s'%s'", equals, n_equal > 1 ? ", " : "", sf_csv_field(&csv, i, "name"));
        }
    }
    if (best >= 0 && n_equal == 1) {
        read_row(&csv, best_row, out);
        return SF_SUCCESS;
    }
    if (best >= 0)
        return SF_FAIL(SF_EINVAL, "gpu '%s' may be any of %s; say which", name, equals);
    for (size_t i = 0; i < csv.n_rows; i++) /* written without the spaces: "2080Ti" */
        if (same_core(name, sf_csv_field(&csv, i, "name"))) {
            read_row(&csv, i, out);
            return SF_SUCCESS;
        }
    return SF_FAIL(SF_EINVAL, "gpu '%s' is not in the catalogue; the nearest names are %s", name, nearest(&csv, &asked, name, arena));
}
