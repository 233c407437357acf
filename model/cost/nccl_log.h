/* model/cost/nccl_log.h: reading what nccl-tests printed, and tables of measured collectives.
 *
 * Reads   logs of nccl-tests and rccl-tests of any age, with whatever was printed around and between
 *         (launcher prefixes, time stamps, NCCL INFO lines, shell prompts), with "#" or without, cut
 *         anywhere; the same as CSV; and CSV with the columns op_name, num_gpus, message_size (in
 *         elements of nccl_dtype) and latency (ms).
 * Rows    a row counts when its size, time and algbw agree with each other; whatever else looks like
 *         a row is named in the warnings with its line. Rows of size 0 are left out.
 * Units   bytes (S of nccl-tests), seconds, bytes per second.
 * Errors  SF_EPARSE where there is not one row, with the place; SF_EIO where the file cannot be read.
 */
#ifndef SF_COST_NCCL_LOG_H
#define SF_COST_NCCL_LOG_H

#include "model/base/arena.h"
#include "model/cost/collective_cost.h"

typedef struct {
    sf_collective op;         /* SF_COLL_COUNT: not told                                      */
    uint64_t bytes;
    double time_s;            /* out of place                                                 */
    double in_place_time_s;   /* 0: not printed                                               */
    double algbw_Bps, busbw_Bps;
    const char *type;         /* "float", "half" ...                                          */
    int ranks;                /* 0: not told                                                  */
    int line;
} sf_nccl_log_row;

typedef struct {
    const char *place;        /* file name, for messages                                      */
    sf_nccl_log_row *rows;
    size_t n_rows, cap_rows;
    sf_collective op;         /* of all rows; SF_COLL_COUNT: not told or several              */
    const char *op_from;      /* "option", "log", "file name", "columns", "" */
    int ranks, nodes;         /* 0: not told                                                  */
    int gpus_per_process;     /* nGpus of the header; 0: not told                             */
    const char *gpu;          /* as the driver prints it; "": not told or hidden              */
    int nccl_version;         /* 22606; 0: not told                                           */
    bool old_columns;         /* "error" in place of "#wrong": nccl-tests before 2022         */
    int nic;                  /* sf_nic_kind by what NCCL said it uses; -1: not told          */
    int nics;                 /* that NCCL said it uses; 0: not told                          */
    int gpudirect;            /* 0, 1; -1: not told                                           */
    unsigned algos, protos;   /* NCCL_ALGO, NCCL_PROTO set by environment; 0: not told         */
    bool shm;                 /* NCCL said it goes through shared memory                      */
    const char **warnings;
    size_t n_warnings, cap_warnings;
} sf_nccl_log;

/* op: SF_COLL_COUNT to take what the log, then the file's name, then the columns tell. */
sf_status sf_nccl_log_parse(const char *text, size_t len, const char *place, sf_collective op, sf_arena *arena, sf_nccl_log *out);
sf_status sf_nccl_log_read(const char *path, sf_collective op, sf_arena *arena, sf_nccl_log *out);

/* The part of a CSV log that belongs to one collective and number of ranks, as a log of its own. */
void sf_nccl_log_part(const sf_nccl_log *log, sf_collective op, int ranks, sf_arena *arena, sf_nccl_log *out);

#endif
