/* model/desc/topology_lex.h: lines and words of a pasted topology matrix; not for users of topologies.
 *
 * A paste has been through terminals, chats, log collectors and word processors. Cleaning removes
 * what those leave (escape sequences, carriage returns, odd blanks, table borders, mark-up); the
 * words are then told apart by their form alone, and may be glued together ("NV12NV12SYS0-15").
 */
#ifndef SF_DESC_TOPOLOGY_LEX_H
#define SF_DESC_TOPOLOGY_LEX_H

#include "model/desc/topology_build.h"

typedef enum {
    SF_TOK_DEVICE, /* GPU0, NIC3, NPU7                                      */
    SF_TOK_NAME,   /* a word with a digit that may name a device: mlx5_0    */
    SF_TOK_CELL,   /* X, NV12, PIX, SYS, ...                                */
    SF_TOK_HEAD,   /* a word of "CPU Affinity  NUMA Affinity  GPU NUMA ID"  */
    SF_TOK_VALUE,  /* 0-47,96-143   1   N/A                                 */
    SF_TOK_OTHER
} sf_tok_kind;

typedef enum { SF_HEAD_CPU, SF_HEAD_NUMA, SF_HEAD_NODE, SF_HEAD_GPU, SF_HEAD_AFFINITY, SF_HEAD_ID } sf_head_word;

typedef struct {
    sf_tok_kind kind;
    const char *text;
    int column;          /* where the word begins in the cleaned line                           */
    int field;           /* number of tabs or bars before it                                    */
    sf_topo_cell cell;   /* CELL                                                                */
    sf_topo_link_type link;  /* CELL: kind of a direct link                                     */
    bool pcie_only;      /* CELL: "PCIE" of rocm-smi, which does not say how far                */
    bool loose;          /* CELL NV# whose digits run into those of the next word               */
    sf_head_word head;   /* HEAD                                                                */
} sf_tok;

/* The words that stand for a kind of path; the usual ones, and those that a legend defines. */
typedef struct {
    const char *word;
    sf_topo_cell cell;
    sf_topo_link_type link;
    bool pcie_only;
} sf_cell_word;

typedef struct {
    const char *text;    /* cleaned */
    int number;          /* line of the source, from 1 */
} sf_line;

/* Split into cleaned lines (escaped "\n" and "\t" of a quoted string are undone). */
size_t sf_lex_lines(const char *text, size_t len, sf_arena *arena, sf_line **out);

/* The words for paths: the known ones and those of "WORD = meaning" lines. */
size_t sf_lex_legend(const sf_line *lines, size_t count, sf_arena *arena, sf_cell_word **out);

/* The words of one line. nv_counts[k] says that NVk was seen elsewhere with a clear end. */
size_t sf_lex_line(const char *line, const sf_cell_word *words, size_t word_count, const bool nv_counts[100],
                   sf_arena *arena, sf_tok **out);

bool sf_lex_is_gpu(const char *device); /* GPU0, NPU1, ... and PCI addresses, not NIC0 or mlx5_0 */
bool sf_lex_is_busid(const char *text); /* "0000:1a:00.0"; the domain may have up to 8 digits     */

#endif
