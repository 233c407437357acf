/* model/desc/topology_smi.h: the parts of the reader of pasted matrices; not for users of topologies.
 *
 * topology_smi.c turns lines into blocks of rows, topology_smi_block.c a block into a matrix,
 * topology_smi_notes.c reads what stands around the matrices (NIC names, GPU models, NUMA nodes).
 */
#ifndef SF_DESC_TOPOLOGY_SMI_H
#define SF_DESC_TOPOLOGY_SMI_H

#include "model/desc/topology_lex.h"
#include "model/desc/topology_matrix.h"

typedef enum { SF_TABLE_PATHS, SF_TABLE_WEIGHTS, SF_TABLE_OTHER } sf_smi_table;

typedef struct {
    const char *label;   /* NULL: the row has none */
    int line;
    const sf_tok *cells; /* (count) paths; "0" on the diagonal of rocm-smi; "-", "?", "N/A" for a blank */
    size_t count;
    const sf_tok *values; /* (value_count) affinities */
    size_t value_count;
    int label_field;
} sf_smi_row;

typedef struct {
    const char *key;     /* tag before each of its lines, as "node1:"; "" none */
    int line;            /* of the header; 0: the header is missing            */
    const sf_tok *names;
    size_t name_count;
    sf_head_word columns[3]; /* SF_HEAD_CPU, SF_HEAD_NUMA, SF_HEAD_GPU for "GPU NUMA ID" */
    size_t column_count;
    sf_smi_row *rows;
    size_t row_count, row_cap;
    sf_smi_table table;
} sf_smi_block;

/* The matrix of one block; false if no row of it can be placed. Warns in t. */
bool sf_smi_block_matrix(sf_smi_block *block, sf_topology *t, sf_arena *arena, sf_matrix *out);

/* Weights of rocm-smi tell how far its "PCIE" is: fills what is unknown in matrix. */
void sf_smi_apply_weights(const sf_smi_block *block, sf_matrix *matrix);

/* "NIC0: mlx5_0", "GPU 0: NVIDIA A100 ...", rows of nvidia-smi's table, "GPU[0] : ... Numa Node: 1". */
void sf_smi_read_notes(const sf_line *lines, size_t count, sf_matrix *matrices, size_t matrix_count, sf_arena *arena);

/* The model that all GPUs are said to be; "" if none is told, or several. */
const char *sf_smi_model(const sf_matrix *matrices, size_t count);

#endif
