/* model/cost/nccl_log_table.h: one line of a table of measured collectives (inside of nccl_log.c). */
#ifndef SF_COST_NCCL_LOG_TABLE_H
#define SF_COST_NCCL_LOG_TABLE_H

#include "model/cost/nccl_log.h"

typedef struct {
    uint64_t bytes;
    double time_s, in_place_time_s, algbw_Bps, busbw_Bps;
    char type[16], redop[16];
} sf_nccl_cells;

typedef enum { SF_ROW_NONE, SF_ROW_GOOD, SF_ROW_EMPTY, SF_ROW_CUT } sf_nccl_row;

/* In place: control characters, terminal colours, table bars and launchers' marks such as
 * "[1,0]<stdout>:" become blanks. */
void sf_nccl_line_clean(char *line);
sf_nccl_row sf_nccl_row_parse(const char *line, sf_nccl_cells *out);

/* A header line with message_size and latency columns. */
bool sf_nccl_csv_looks_like(const char *text, size_t len);
sf_status sf_nccl_csv_parse(const char *text, size_t len, sf_collective op, sf_arena *arena, sf_nccl_log *out);

#endif
