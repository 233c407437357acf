/* model/desc/topology_matrix.h: a matrix of paths between devices, and the graph it implies; not for
 * users of topologies. Between the reader of pastes and the topology it makes.
 */
#ifndef SF_DESC_TOPOLOGY_MATRIX_H
#define SF_DESC_TOPOLOGY_MATRIX_H

#include "model/desc/topology_build.h"

typedef struct {
    const char *name;    /* as in the matrix: GPU0, NIC1, mlx5_0                   */
    const char *device;  /* GPU model or NIC device name; "" unknown               */
    const char *busid;   /* "" unknown                                             */
    const char *cpus;    /* CPU affinity as printed; "" unknown                    */
    int numa;            /* -1 unknown                                             */
    bool is_gpu;
    int row_line;        /* line of its row; 0 if the paste has none               */
} sf_matrix_device;

/* Memory of `cells`: SF_PATH_UNKNOWN where nothing was read; one direction per cell, as printed. */
typedef struct {
    const char *host;    /* "" unknown */
    int count;
    sf_matrix_device *devices;  /* (count), GPUs first */
    sf_topo_cell *cells;        /* (count, count) */
    sf_topo_link_type link;     /* what a direct link is */
    const char *link_name;
} sf_matrix;

/* One more host of the topology: makes the matrix symmetric (warning where its halves disagree), then
 * the tree of NUMA nodes, host bridges and PCIe switches whose paths are those of the matrix, and the
 * NVLinks. max_links = NVLinks of one GPU of this kind (0: 18, the most that a GPU of today has). */
void sf_topo_add_matrix(sf_topology *t, sf_arena *arena, sf_matrix *matrix, int max_links);

#endif
