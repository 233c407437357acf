#define _GNU_SOURCE /* strcasestr */
#include "model/cost/nccl_log.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/base/text.h"
#include "model/cost/nccl_log_table.h"

enum { MAX_LOG_BYTES = 64 << 20, MAX_WARNINGS = 20, MAX_HOSTS = 4096 };

/* One run of a test: the lines before its table tell its ranks. Several may follow in one file. */
typedef struct {
    size_t first_row, end_row;
    int ranks_seen, max_rank, max_device, nranks, nnodes;
    char **hosts;
    size_t n_hosts, cap_hosts;
    bool has_root;
    char redop[16];
    int ranks, nodes;         /* inferred; 0: not told */
} run;

/* What the lines around the tables say. */
typedef struct {
    sf_nccl_log *log;
    sf_arena *arena;
    int line;
    sf_collective current;    /* of the rows to come */
    bool told;
    bool seen_header;
    run *runs;
    size_t n_runs, cap_runs;
    run *now;                 /* the last of runs */
} reader;

static void start_run(reader *r)
{
    SF_PUSH(r->arena, r->runs, r->n_runs, r->cap_runs) =
        (run){ .first_row = r->log->n_rows, .end_row = r->log->n_rows, .max_rank = -1, .max_device = -1 };
    r->now = &r->runs[r->n_runs - 1];
}

static void warn(reader *r, const char *fmt, const char *what)
{
    sf_nccl_log *log = r->log;
    if (log->n_warnings >= MAX_WARNINGS)
        return;
    char *text = sf_arena_printf(r->arena, fmt, log->place, r->line, what);
    SF_PUSH(r->arena, log->warnings, log->n_warnings, log->cap_warnings) = text;
}

static const char *find_word(const char *line, const char *word)
{
    const char *at = strcasestr(line, word);
    return at == NULL ? NULL : at + strlen(word);
}

/* "X 12", "X=12", "X: 12"; -1 if the word is not followed by a number. */
static int number_after(const char *line, const char *word)
{
    const char *at = find_word(line, word);
    if (at == NULL)
        return -1;
    while (*at == ' ' || *at == '=' || *at == ':' || *at == '\t')
        at++;
    if (!isdigit((unsigned char)*at))
        return -1;
    long n = strtol(at, NULL, 10);
    return n >= 0 && n <= 1 << 24 ? (int)n : -1;
}

/* "2.26.6" or "22606". */
static int version_at(const char *text)
{
    int major = 0, minor = 0, patch = 0, used = 0;
    if (sscanf(text, "%3d.%3d.%3d%n", &major, &minor, &patch, &used) >= 2)
        return major * 10000 + minor * 100 + patch;
    int plain = atoi(text);
    return plain >= 2000 && plain < 100000 ? (plain < 10000 ? plain / 1000 * 10000 + plain % 1000 : plain) : 0;
}

/* A program of nccl-tests named anywhere: "all_reduce_perf", "alltoall_perf_mpi", "-t all_gather". */
static sf_collective program_in(const char *text)
{
    sf_collective found = SF_COLL_COUNT;
    size_t longest = 0;
    for (int op = 0; op < SF_COLL_COUNT; op++) {
        const char *program = sf_collective_program((sf_collective)op);
        if (strstr(text, program) != NULL && strlen(program) > longest) {
            longest = strlen(program);
            found = (sf_collective)op;
        }
    }
    const char *option = strstr(text, " -t ");
    if (found == SF_COLL_COUNT && option != NULL) {
        char word[32] = "";
        if (sscanf(option + 4, "%31[a-z_]", word) == 1)
            found = sf_collective_by_name(word);
    }
    return found;
}

/* The longest collective's name within a file's name: "2n-x-allgather.txt", "nccl_reducescatter.log". */
static sf_collective file_name_tells(const char *path)
{
    char given[256], known[64];
    const char *base = strrchr(path, '/');
    sf_str_squash(base == NULL ? path : base + 1, given, sizeof given);
    sf_collective found = SF_COLL_COUNT;
    size_t longest = 0;
    for (int op = 0; op < SF_COLL_COUNT; op++) {
        sf_str_squash(sf_collective_name((sf_collective)op), known, sizeof known);
        if (strstr(given, known) != NULL && strlen(known) > longest) {
            longest = strlen(known);
            found = (sf_collective)op;
        }
    }
    return found;
}

static void see_host(reader *r, const char *host)
{
    run *now = r->now;
    for (size_t i = 0; i < now->n_hosts; i++)
        if (strcmp(now->hosts[i], host) == 0)
            return;
    if (now->n_hosts < MAX_HOSTS)
        SF_PUSH(r->arena, now->hosts, now->n_hosts, now->cap_hosts) = sf_arena_strdup(r->arena, host);
}

/* "#  Rank  0 Group  0 Pid  29697 on  node0 device  0 [0x01] NVIDIA A100-SXM4-80GB" */
static bool rank_line(reader *r, const char *line)
{
    const char *at = strstr(line, "Rank ");
    int rank, device, group = 0, used = 0;
    long pid;
    char host[128];
    if (at == NULL)
        return false;
    if (sscanf(at, "Rank %7d Group %7d Pid %ld on %127s device %7d%n", &rank, &group, &pid, host, &device, &used) < 5 &&
        sscanf(at, "Rank %7d Pid %ld on %127s device %7d%n", &rank, &pid, host, &device, &used) < 4)
        return false;
    if (rank < 0 || device < 0)
        return false;
    if (r->now->end_row > r->now->first_row) /* ranks after rows: another run begins */
        start_run(r);
    run *now = r->now;
    now->ranks_seen++;
    now->max_rank = rank > now->max_rank ? rank : now->max_rank;
    now->max_device = device > now->max_device ? device : now->max_device;
    see_host(r, host);

    const char *name = strchr(at + used, ']');
    if (name != NULL && r->log->gpu[0] == '\0') {
        name++;
        while (*name == ' ')
            name++;
        size_t n = strlen(name);
        while (n > 0 && isspace((unsigned char)name[n - 1]))
            n--;
        if (n > 0 && strstr(name, "Graphics Device") == NULL)
            r->log->gpu = sf_arena_strndup(r->arena, name, n < 100 ? n : 100);
    }
    return true;
}

static int count_of(const char *line, const char *word)
{
    int n = 0;
    for (const char *at = line; (at = strstr(at, word)) != NULL; at += strlen(word))
        n++;
    return n;
}

/* What NCCL's own messages tell of the fabric. */
static void nccl_message(reader *r, const char *line)
{
    sf_nccl_log *log = r->log;
    const char *at;
    int n;
    if ((at = find_word(line, "NCCL version ")) != NULL && log->nccl_version == 0)
        log->nccl_version = version_at(at);
    if ((n = number_after(line, "nRanks")) > 0)
        r->now->nranks = n;
    if ((n = number_after(line, "nNodes")) > 0)
        r->now->nnodes = n;
    if (strstr(line, "GDRDMA") != NULL)
        log->gpudirect = 1;
    else if (strstr(line, "GDR 0") != NULL && log->gpudirect < 0)
        log->gpudirect = 0;
    char word[64];
    if ((at = find_word(line, "NCCL_ALGO set by environment to ")) != NULL && sscanf(at, "%63[A-Za-z0-9,^]", word) == 1)
        log->algos = sf_nccl_algos_of(word);
    if ((at = find_word(line, "NCCL_PROTO set by environment to ")) != NULL && sscanf(at, "%63[A-Za-z0-9,^]", word) == 1)
        log->protos = sf_nccl_protos_of(word);
    if ((at = find_word(line, "Setting NCCL_PROTO to ")) != NULL && strcasestr(at, "simple") != NULL)
        log->protos = 1u << SF_PROTO_SIMPLE;
    if (strstr(line, "via SHM") != NULL)
        log->shm = true;
    if (strstr(line, "NET/IB : Using") != NULL) {
        bool roce = strstr(line, "/RoCE") != NULL;
        log->nic = roce ? SF_NIC_ROCE : SF_NIC_IB;
        log->nics = count_of(line, roce ? "/RoCE" : "/IB ");
    } else if (strstr(line, "Using network Socket") != NULL) {
        log->nic = SF_NIC_TCP;
    } else if (strstr(line, "AWS Libfabric") != NULL || strstr(line, "rovider is efa") != NULL) {
        log->nic = SF_NIC_EFA;
        if ((n = number_after(line, "(found")) > 0)
            log->nics = n;
    } else if (strstr(line, "rovider is cxi") != NULL) {
        log->nic = SF_NIC_SLINGSHOT;
    } else if (strstr(line, "FasTrak") != NULL || strstr(line, "FASTRAK") != NULL) {
        log->nic = SF_NIC_FASTRAK;
    } else if (strstr(line, "GPUDirectTCPX") != NULL) {
        log->nic = SF_NIC_TCPX;
    }
}

static void header_line(reader *r, const char *line)
{
    r->seen_header = true;
    r->now->has_root = strstr(line, "root") != NULL;
    r->log->old_columns = strstr(line, "wrong") == NULL && strstr(line, "error") != NULL;
    if (!r->told)
        r->current = SF_COLL_COUNT;
}

static void other_line(reader *r, const char *line)
{
    sf_nccl_log *log = r->log;
    if (rank_line(r, line))
        return;
    if (strstr(line, "NCCL ") != NULL)
        nccl_message(r, line);
    sf_collective program = program_in(line);
    if (program != SF_COLL_COUNT) {
        r->current = program;
        r->told = true;
    }
    int n = number_after(line, "nGpus");
    if (n > 0)
        log->gpus_per_process = n;
    const char *at = find_word(line, "nccl-library=");
    if (at != NULL && log->nccl_version == 0)
        log->nccl_version = version_at(at);
    if ((n = number_after(line, "hostfiles for")) > 0)
        r->now->nnodes = n;
    if (log->nic < 0 && strstr(line, "/gib/") != NULL)
        log->nic = SF_NIC_ROCE; /* Google's NCCL for its RoCE machines */
    if (strstr(line, "size") != NULL && strstr(line, "count") != NULL && strstr(line, "type") != NULL)
        header_line(r, line);
}

static void add_row(reader *r, const sf_nccl_cells *cells)
{
    sf_nccl_log *log = r->log;
    SF_PUSH(r->arena, log->rows, log->n_rows, log->cap_rows) = (sf_nccl_log_row){
        .op = r->current, .bytes = cells->bytes, .time_s = cells->time_s, .in_place_time_s = cells->in_place_time_s,
        .algbw_Bps = cells->algbw_Bps, .busbw_Bps = cells->busbw_Bps,
        .type = sf_arena_strdup(r->arena, cells->type), .line = r->line,
    };
    r->now->end_row = log->n_rows;
    if (cells->redop[0] != '\0')
        snprintf(r->now->redop, sizeof r->now->redop, "%s", cells->redop);
}

static void read_line(reader *r, char *line)
{
    sf_nccl_cells cells;
    sf_nccl_line_clean(line);
    switch (sf_nccl_row_parse(line, &cells)) {
    case SF_ROW_GOOD: add_row(r, &cells); break;
    case SF_ROW_EMPTY: break; /* size 0 */
    case SF_ROW_CUT: warn(r, "%s:%d: a row that is cut or damaged is left out: %.60s", line); break;
    default: other_line(r, line); break;
    }
}

/* Sum of busbw over sum of algbw of the rows whose algbw is printed with enough digits; 0: none. */
static double bus_ratio(const sf_nccl_log *log, const run *of, double *relative_error)
{
    double alg = 0, bus = 0, rounding = 0;
    for (size_t i = of->first_row; i < of->end_row; i++)
        if (log->rows[i].algbw_Bps >= 1e9) {
            alg += log->rows[i].algbw_Bps;
            bus += log->rows[i].busbw_Bps;
            rounding += .005e9;
        }
    *relative_error = alg > 0 ? 2 * rounding / alg : 1;
    return alg > 0 ? bus / alg : 0;
}

static void infer_ranks(const sf_nccl_log *log, run *of)
{
    int told = of->ranks_seen > 0 && of->ranks_seen == of->max_rank + 1 ? of->ranks_seen : of->nranks;
    if (told == 0 && of->ranks_seen > 1)
        told = of->max_rank + 1;
    double error, ratio = bus_ratio(log, of, &error);
    sf_collective op = log->rows[of->first_row].op;
    double full = op == SF_COLL_ALL_REDUCE ? 2 : op == SF_COLL_COUNT ? 0 : 1;
    if (full > 0 && ratio > 0 && ratio < full * (1 - 4 * error) && sf_collective_busbw_factor(op, 2) < sf_collective_busbw_factor(op, 4)) {
        int by_ratio = (int)lround(full / (full - ratio));
        bool agrees = told > 0 && fabs(sf_collective_busbw_factor(op, told) - ratio) <= full * (error + 1e-3);
        if (!agrees)
            told = by_ratio;
    }
    of->ranks = told;
}

static void infer_nodes(run *of)
{
    bool complete = of->ranks_seen > 0 && of->ranks_seen == of->max_rank + 1 && of->ranks_seen == of->ranks;
    if (complete) {
        of->nodes = (int)of->n_hosts;
    } else if (of->nnodes > 0) {
        of->nodes = of->nnodes;
    } else if (of->ranks_seen > 0 && of->ranks > 0 && of->ranks % (of->max_device + 1) == 0) {
        int by_device = of->ranks / (of->max_device + 1); /* the list is thinned: the devices of a node tell */
        of->nodes = by_device >= (int)of->n_hosts ? by_device : (int)of->n_hosts;
    }
}

/* Ranks and nodes of every run; of the log where all runs agree. */
static void infer_sizes(reader *r)
{
    sf_nccl_log *log = r->log;
    bool first = true;
    for (size_t k = 0; k < r->n_runs; k++) {
        run *of = &r->runs[k];
        if (of->end_row == of->first_row)
            continue;
        infer_ranks(log, of);
        infer_nodes(of);
        for (size_t i = of->first_row; i < of->end_row; i++)
            log->rows[i].ranks = of->ranks;
        log->ranks = first || log->ranks == of->ranks ? of->ranks : 0;
        log->nodes = first || log->nodes == of->nodes ? of->nodes : 0;
        first = false;
    }
}

/* A table's columns and ratio tell the collective where nothing else does. */
static sf_collective columns_tell(const reader *r)
{
    const run *of = r->runs;
    while (of->end_row == of->first_row)
        of++; /* one has rows, else we were not asked */
    double error, ratio = bus_ratio(r->log, of, &error);
    bool sums = strcmp(of->redop, "sum") == 0 || strcmp(of->redop, "avg") == 0 || strcmp(of->redop, "max") == 0;
    if (ratio > 1 + 2 * error || (sums && of->max_rank == 1 && !of->has_root))
        return SF_COLL_ALL_REDUCE;
    if (sums && ratio > 0 && ratio < 1 - 2 * error)
        return SF_COLL_REDUCE_SCATTER;
    if (sums && ratio > 0 && of->max_rank > 1)
        return SF_COLL_REDUCE;
    if ((of->redop[0] == '\0' || strcmp(of->redop, "none") == 0) && ratio > 0 && ratio < 1 - 2 * error)
        return SF_COLL_ALL_GATHER;
    return SF_COLL_COUNT;
}

static void settle_collective(reader *r, sf_collective given)
{
    sf_nccl_log *log = r->log;
    sf_collective fallback = given;
    log->op_from = "option";
    if (given == SF_COLL_COUNT) {
        bool untold = false;
        for (size_t i = 0; i < log->n_rows; i++)
            untold = untold || log->rows[i].op == SF_COLL_COUNT;
        log->op_from = "log";
        if (untold) {
            fallback = file_name_tells(log->place);
            log->op_from = "file name";
        }
        if (untold && fallback == SF_COLL_COUNT) {
            fallback = columns_tell(r);
            log->op_from = fallback == SF_COLL_COUNT ? "" : "columns";
        }
    }
    log->op = log->n_rows > 0 ? SF_COLL_COUNT : fallback;
    for (size_t i = 0; i < log->n_rows; i++) {
        if (given != SF_COLL_COUNT || log->rows[i].op == SF_COLL_COUNT)
            log->rows[i].op = fallback;
        if (i == 0)
            log->op = log->rows[i].op;
        else if (log->op != log->rows[i].op)
            log->op = SF_COLL_COUNT;
    }
}

sf_status sf_nccl_log_parse(const char *text, size_t len, const char *place, sf_collective op, sf_arena *arena, sf_nccl_log *out)
{
    *out = (sf_nccl_log){ .place = sf_arena_strdup(arena, place), .op = SF_COLL_COUNT, .gpu = "", .op_from = "",
                          .nic = -1, .gpudirect = -1 };
    if (sf_nccl_csv_looks_like(text, len))
        return sf_nccl_csv_parse(text, len, op, arena, out);

    reader r = { .log = out, .arena = arena, .current = SF_COLL_COUNT };
    start_run(&r);
    const char *at = text, *end = text + len;
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((stop == NULL ? end : stop) - at);
        r.line++;
        char line[2048];
        if (n >= sizeof line)
            n = sizeof line - 1; /* no table row is that long */
        memcpy(line, at, n);
        line[n] = '\0';
        read_line(&r, line);
        if (stop == NULL)
            break;
        at = stop + 1;
    }
    if (out->n_rows == 0)
        return SF_FAIL(SF_EPARSE, "%s: no row of an nccl-tests table in %d lines%s; expected lines such as "
                       "'1048576 262144 float sum -1 28.56 36.71 64.24 0'", place, r.line,
                       r.seen_header ? " (the header is there, the rows are cut)" : "");
    settle_collective(&r, op);
    infer_sizes(&r);
    return SF_SUCCESS;
}

sf_status sf_nccl_log_read(const char *path, sf_collective op, sf_arena *arena, sf_nccl_log *out)
{
    char *text;
    size_t len;
    SF_TRY(sf_file_read(path, MAX_LOG_BYTES, arena, &text, &len));
    return sf_nccl_log_parse(text, len, path, op, arena, out);
}

void sf_nccl_log_part(const sf_nccl_log *log, sf_collective op, int ranks, sf_arena *arena, sf_nccl_log *out)
{
    *out = *log;
    out->rows = NULL;
    out->n_rows = out->cap_rows = 0;
    out->op = op;
    out->ranks = ranks;
    for (size_t i = 0; i < log->n_rows; i++)
        if (log->rows[i].op == op && log->rows[i].ranks == ranks)
            SF_PUSH(arena, out->rows, out->n_rows, out->cap_rows) = log->rows[i];
}
