/* exec/data.h: the tokens a run trains on, in an order that does not depend on how ranks share them.
 *
 * Files     NAME.bin: little-endian 16-bit tokens, with or without the 1024-byte header of llm.c's
 *           data files (int32 20240520, version 1, token count). Any other file: its bytes are the
 *           tokens. A directory: its regular files' bytes, in order of name. "synthetic": made-up
 *           tokens with a pattern to learn, for vocabularies below 256 and bare systems.
 * Order     Sequence s is tokens s*T .. s*T + T, wrapping around at the end. Micro-step m of M of
 *           step t on rank r of W reads sequences ((t*M + m)*W + r)*B .. + B - 1: for equal global
 *           batch a step reads the same sequences for any W, M, B.
 * Errors    Unreadable files, an odd size, fewer than two tokens, a token outside the vocabulary
 *           (file and position are named).
 */
#ifndef SF_EXEC_DATA_H
#define SF_EXEC_DATA_H

#include <stdint.h>

#include "model/base/status.h"

typedef struct sf_data sf_data;

/* path NULL: SF_DATA_DEFAULT if it is there and the vocabulary holds bytes, else synthetic. */
sf_status sf_data_open(const char *path, int vocab, sf_data **out);
void sf_data_close(sf_data *data);

/* Debian's licence texts: on every Debian system (package base-files), about 300 kB of English. */
#define SF_DATA_DEFAULT "/usr/share/common-licenses"

uint64_t sf_data_tokens(const sf_data *data);
const char *sf_data_name(const sf_data *data);

/* `count` sequences of T tokens from sequence `first`, and for each token the one that follows it. */
void sf_data_read(const sf_data *data, uint64_t first, int count, int seq_len, int32_t *tokens, int32_t *targets);

#endif
