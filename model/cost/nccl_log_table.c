#include "model/cost/nccl_log_table.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/base/csv.h"
#include "model/base/text.h"

enum { MAX_TOKENS = 64, CELLS_AFTER_TYPE = 12 };

/* Names that nccl-tests prints, and those of other tables. */
static const struct {
    const char *name;
    int bytes;
} types[] = {
    { "float", 4 }, { "half", 2 }, { "bfloat16", 2 }, { "double", 8 }, { "int8", 1 }, { "uint8", 1 }, { "int32", 4 },
    { "uint32", 4 }, { "int64", 8 }, { "uint64", 8 }, { "float16", 2 }, { "float32", 4 }, { "float64", 8 }, { "bf16", 2 },
    { "fp16", 2 }, { "fp32", 4 }, { "f8e4m3", 1 }, { "f8e5m2", 1 }, { "fp8_e4m3", 1 }, { "fp8_e5m2", 1 }, { "fp8", 1 },
    { "int", 4 }, { "char", 1 },
};

static int type_bytes(const char *name)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i].name, name) == 0)
            return types[i].bytes;
    return 0;
}

/* Length of "[12]", "[1,0]", "[1,0]<stdout>:" at `at`; 0 if there is none. */
static size_t launcher_mark(const char *at)
{
    const char *p = at + 1;
    if (*at != '[' || !isdigit((unsigned char)*p))
        return 0;
    while (isdigit((unsigned char)*p) || *p == ',')
        p++;
    if (*p != ']')
        return 0;
    p++;
    if (strncmp(p, "<std", 4) == 0) {
        const char *close = strchr(p, '>');
        if (close == NULL)
            return (size_t)(p - at);
        p = close + 1;
        if (*p == ':')
            p++;
    }
    return (size_t)(p - at);
}

void sf_nccl_line_clean(char *line)
{
    for (char *p = line; *p != '\0';) {
        size_t mark = launcher_mark(p);
        if (*p == 27 && p[1] == '[') { /* terminal colour: ESC [ ... letter */
            mark = 2;
            while (p[mark] != '\0' && !isalpha((unsigned char)p[mark]))
                mark++;
            if (p[mark] != '\0')
                mark++;
        }
        if (mark > 0) {
            memset(p, ' ', mark);
            p += mark;
            continue;
        }
        if (*p == '|' || *p == '\t' || *p == '"' || (unsigned char)*p < ' ')
            *p = ' ';
        p++;
    }
}

static int split(const char *line, char *copy, size_t copy_size, const char *tokens[MAX_TOKENS])
{
    int n = 0;
    snprintf(copy, copy_size, "%s", line);
    char *save = NULL;
    for (char *t = strtok_r(copy, " ,;", &save); t != NULL && n < MAX_TOKENS; t = strtok_r(NULL, " ,;", &save))
        tokens[n++] = t;
    return n;
}

static bool to_count(const char *token, uint64_t *out)
{
    size_t n = strlen(token);
    if (n == 0 || n > 18 || strspn(token, "0123456789") != n)
        return false;
    *out = strtoull(token, NULL, 10);
    return true;
}

/* A finite number; "N/A" and the like are none. */
static bool to_number(const char *token, double *out)
{
    char *end;
    if (!isdigit((unsigned char)*token) && *token != '-' && *token != '.')
        return false;
    *out = strtod(token, &end);
    return end != token && *end == '\0' && isfinite(*out);
}

/* time, algbw, busbw at numbers[at]: do they belong to `bytes`? Sets the seconds per unit of time.
 * nccl-tests prints algbw with two decimals and the time with three or more digits. */
static bool triple_fits(const double *numbers, const bool *given, int n, int at, uint64_t bytes, double *unit_s)
{
    if (at + 3 > n || !given[at] || !given[at + 1] || !given[at + 2] || numbers[at] <= 0)
        return false;
    if (numbers[at + 1] < 0 || numbers[at + 2] < 0 || numbers[at + 2] > 2.01 * numbers[at + 1] + .02)
        return false;
    static const double units[] = { 1e-6, 1e-3 };
    for (int i = 0; i < 2; i++) {
        double GBs = (double)bytes / (numbers[at] * units[i]) / 1e9;
        if (fabs(GBs - numbers[at + 1]) <= .0101 + .02 * GBs) {
            *unit_s = units[i];
            return true;
        }
    }
    return false;
}

sf_nccl_row sf_nccl_row_parse(const char *line, sf_nccl_cells *out)
{
    char copy[2048];
    const char *token[MAX_TOKENS];
    int n = split(line, copy, sizeof copy, token), at;
    uint64_t bytes = 0, count = 0;
    int width = 0;
    for (at = 0; at + 2 < n; at++)
        if (to_count(token[at], &bytes) && to_count(token[at + 1], &count) && (width = type_bytes(token[at + 2])) > 0)
            break;
    if (at + 2 >= n)
        return SF_ROW_NONE;

    *out = (sf_nccl_cells){ .bytes = bytes };
    snprintf(out->type, sizeof out->type, "%s", token[at + 2]);
    int next = at + 3;
    double ignored;
    if (next < n && !to_number(token[next], &ignored) && isalpha((unsigned char)token[next][0]) && strcmp(token[next], "N/A") != 0) {
        snprintf(out->redop, sizeof out->redop, "%s", token[next]);
        next++;
    }
    double numbers[CELLS_AFTER_TYPE];
    bool given[CELLS_AFTER_TYPE];
    int m = 0;
    for (; next < n && m < CELLS_AFTER_TYPE; next++, m++)
        given[m] = to_number(token[next], &numbers[m]);

    if (bytes == 0)
        return m >= 3 ? SF_ROW_EMPTY : SF_ROW_NONE;
    double unit_s = 0, in_place_unit_s = 0;
    int first = 0;
    while (first < 2 && !triple_fits(numbers, given, m, first, bytes, &unit_s)) /* 1: a root column */
        first++;
    if (first == 2)
        return SF_ROW_CUT;
    out->time_s = numbers[first] * unit_s;
    out->algbw_Bps = (double)bytes / out->time_s;
    out->busbw_Bps = numbers[first + 1] > 0 ? out->algbw_Bps * numbers[first + 2] / numbers[first + 1] : 0;
    if (numbers[first + 1] >= 1)
        out->busbw_Bps = numbers[first + 2] * 1e9;
    for (int second = first + 3; second <= first + 4; second++)
        if (triple_fits(numbers, given, m, second, bytes, &in_place_unit_s)) {
            out->in_place_time_s = numbers[second] * in_place_unit_s;
            break;
        }
    return SF_ROW_GOOD;
}

bool sf_nccl_csv_looks_like(const char *text, size_t len)
{
    const char *stop = memchr(text, '\n', len);
    size_t n = stop == NULL ? len : (size_t)(stop - text);
    char head[512];
    if (n >= sizeof head)
        return false;
    memcpy(head, text, n);
    head[n] = '\0';
    return strstr(head, "message_size") != NULL && strstr(head, "latency") != NULL && strchr(head, ',') != NULL;
}

static int version_of(const char *text)
{
    int major, minor, patch;
    return sscanf(text, "%3d.%3d.%3d", &major, &minor, &patch) == 3 ? major * 10000 + minor * 100 + patch : 0;
}

sf_status sf_nccl_csv_parse(const char *text, size_t len, sf_collective given, sf_arena *arena, sf_nccl_log *out)
{
    sf_csv csv;
    char *ended = sf_arena_strndup(arena, text, len);
    SF_TRY(sf_csv_parse(ended, out->place, arena, &csv));
    for (size_t i = 0; i < csv.n_rows; i++) {
        const char *type = sf_csv_field(&csv, i, "nccl_dtype");
        sf_collective op = sf_collective_by_name(sf_csv_field(&csv, i, "op_name"));
        int ranks = atoi(sf_csv_field(&csv, i, "num_gpus")), width = type_bytes(type);
        uint64_t elements;
        double ms;
        if (op == SF_COLL_COUNT)
            op = given;
        if (!to_count(sf_csv_field(&csv, i, "message_size"), &elements) || !to_number(sf_csv_field(&csv, i, "latency"), &ms) ||
            op == SF_COLL_COUNT || ranks < 2 || ranks > 1 << 20 || width == 0 || ms <= 0) {
            if (out->n_warnings < 20)
                SF_PUSH(arena, out->warnings, out->n_warnings, out->cap_warnings) =
                    sf_arena_printf(arena, "%s:%zu: a row without collective, ranks, size or time is left out", out->place, i + 2);
            continue;
        }
        if (elements == 0 || (given != SF_COLL_COUNT && op != given))
            continue;
        sf_nccl_log_row row = { .op = op, .bytes = elements * (uint64_t)width, .time_s = ms * 1e-3, .type = type, .ranks = ranks,
                                .line = (int)i + 2 };
        row.algbw_Bps = (double)row.bytes / row.time_s;
        row.busbw_Bps = row.algbw_Bps * sf_collective_busbw_factor(op, ranks);
        SF_PUSH(arena, out->rows, out->n_rows, out->cap_rows) = row;
        if (out->gpu[0] == '\0')
            out->gpu = sf_csv_field(&csv, i, "device");
        if (out->nccl_version == 0)
            out->nccl_version = version_of(sf_csv_field(&csv, i, "version"));
    }
    if (out->n_rows == 0)
        return SF_FAIL(SF_EPARSE, "%s: no row with op_name, num_gpus, message_size and latency", out->place);
    out->nodes = 1;
    out->gpus_per_process = 1;
    out->op = out->rows[0].op;
    out->ranks = out->rows[0].ranks;
    out->op_from = "log";
    for (size_t i = 0; i < out->n_rows; i++) {
        if (out->rows[i].op != out->op)
            out->op = SF_COLL_COUNT;
        if (out->rows[i].ranks != out->ranks)
            out->ranks = 0;
    }
    return SF_SUCCESS;
}
