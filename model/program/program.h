/* model/program/program.h: the step program.
 *
 * What it is   A strategy lowers one job into a program: for each class of ranks that behave alike,
 *   the ops that one rank of the class issues in one optimizer step. The accountant, the simulator
 *   and the executors read it; none of them knows what a strategy is.
 *
 * Issue order   The nodes are in the order in which the rank's host issues them. ALLOC and FREE act
 *   at issue (as caching allocators do); every other op runs later, on its stream, after all
 *   earlier ops of that stream. Order between streams exists only through RECORD and WAIT: WAIT
 *   waits for the latest RECORD of that event in issue order.
 *
 * Symbolic   The program is symbolic in the rank (a shard is "the rank-th slice") and has REPEAT
 *   nodes over micro-steps and over layers. In a layer loop a reference is affine in the layer:
 *       index  = index0  + index_layer  * layer    which instance of a buffer family or event
 *       offset = offset0 + offset_layer * layer    elements from the start of that instance
 *   and an op may be limited to some layers or micro-steps by its guard. A cursor (cursor.h) walks
 *   the program and yields concrete ops, so that no interpreter sees loops.
 *
 * Memory   A buffer family has `count` instances of equal size. Persistent families live through
 *   the step; the others are allocated and freed by ops. The home stream's order protects an
 *   instance's memory: when FREE is issued, every access by other streams must already be ordered
 *   before the home stream's next op (verify.h), so that a later buffer of that home may reuse it.
 *
 * Flats   Parameters, gradients, masters and moments are spans of a flat: tensors laid one after
 *   the other, padded at the end. A buffer is bound to a flat as a whole or as the rank's equal
 *   slice, which is all an executor needs to initialise, compare or save it.
 *
 * Units   elements and bytes uint64_t; FLOP: a multiply-add is 2.
 * Owner   everything lives in the arena given to the builder (build.h).
 */
#ifndef SF_PROGRAM_PROGRAM_H
#define SF_PROGRAM_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/base/dtype.h"
#include "model/program/op.h"

/* ---- where things are ---- */

#define SF_CATEGORIES(X)                                                                           \
    X(PARAMETERS, "parameters") X(GRADIENTS, "gradients") X(OPTIMIZER, "optimizer")                \
    X(MASTER, "master") X(ACTIVATIONS, "activations") X(LOGITS, "logits")                          \
    X(COMM_BUFFERS, "comm_buffers") X(TEMPORARIES, "temporaries") X(WORKSPACE, "workspace")        \
    X(CONTEXT, "context") X(NCCL, "nccl") X(FRAGMENTATION, "fragmentation")
#define SF_AS_ENUM(id, name) SF_CAT_##id,
typedef enum { SF_CATEGORIES(SF_AS_ENUM) SF_CAT_COUNT } sf_category;
#undef SF_AS_ENUM

#define SF_STREAMS(X)                                                                              \
    X(COMPUTE, "compute") /* kernels                                      */                       \
    X(COMM, "comm")       /* collectives                                  */                       \
    X(H2D, "h2d")         /* host-to-device copies                        */                       \
    X(D2H, "d2h")         /* device-to-host copies                        */                       \
    X(HOST, "host")       /* the host's cores: an offloaded optimizer     */
#define SF_AS_ENUM(id, name) SF_STREAM_##id,
typedef enum { SF_STREAMS(SF_AS_ENUM) SF_STREAM_COUNT } sf_stream;
#undef SF_AS_ENUM

#define SF_PHASES(X) X(FORWARD, "forward") X(BACKWARD, "backward") X(OPTIMIZER, "optimizer")
#define SF_AS_ENUM(id, name) SF_PHASE_##id,
typedef enum { SF_PHASES(SF_AS_ENUM) SF_PHASE_COUNT } sf_phase;
#undef SF_AS_ENUM

/* Who joins a collective. LOCAL: the ranks of one node (or shard group); CROSS: those of equal
 * local rank, one per node. */
#define SF_GROUPS(X) X(WORLD, "world") X(LOCAL, "local") X(CROSS, "cross")
#define SF_AS_ENUM(id, name) SF_GROUP_##id,
typedef enum { SF_GROUPS(SF_AS_ENUM) SF_GROUP_COUNT } sf_group;
#undef SF_AS_ENUM

const char *sf_category_name(sf_category category);
const char *sf_stream_name(sf_stream stream);
const char *sf_phase_name(sf_phase phase);
const char *sf_group_name(sf_group group);

typedef enum { SF_SPACE_DEVICE, SF_SPACE_HOST, SF_SPACE_COUNT } sf_space;

/* ---- flats and buffers ---- */

typedef struct {
    int tensor;           /* index into the model's tensor list (sf_tensor_list)               */
    uint64_t offset;      /* elements from the start of the flat                               */
    uint64_t numel;
    bool decay;           /* weight decay applies: matrices, not norms and biases              */
} sf_flat_tensor;

typedef struct {
    const char *name;
    sf_flat_tensor *tensors;
    size_t n_tensors, cap_tensors;
    uint64_t elems;       /* sum of numel                                                      */
    uint64_t padded;      /* elems rounded up so that all shards are equal                     */
} sf_flat;

typedef enum {
    SF_BIND_NONE, SF_BIND_PARAM, SF_BIND_MASTER, SF_BIND_GRAD, SF_BIND_MOMENT1, SF_BIND_MOMENT2
} sf_binding;

typedef struct {
    const char *name;
    sf_category category;
    sf_space space;
    sf_dtype dtype;
    uint64_t elems;       /* of one instance                                                   */
    int count;            /* instances                                                         */
    int first;            /* number of instance 0 among all instances of the class             */
    sf_stream home;
    bool persistent;
    int flat;             /* flat of instance 0 (instance i holds flat + i), or -1             */
    sf_binding binding;
    bool sharded;         /* holds the rank's slice: padded / world_size elements              */
} sf_buffer;

static inline uint64_t sf_buffer_bytes(const sf_buffer *b)
{
    return b->elems * sf_dtype_bytes(b->dtype);
}

/* ---- ops ---- */

typedef enum { SF_READ = 1, SF_WRITE = 2, SF_READWRITE = 3 } sf_access;

typedef struct {
    int buffer;           /* family, or -1: an optional argument that is absent                */
    int index0, index_layer;
    uint64_t offset0;
    int64_t offset_layer;
    uint64_t elems;
    sf_access access;
} sf_arg;

/* Extents; which of them an op uses is said by its row in op.h. */
typedef struct {
    int64_t m, n, k, batch;
    int32_t heads, kv_heads, head_dim, seq;
} sf_dims;

/* Whether an output is added to (gradients over micro-steps). */
typedef enum { SF_ACC_NO, SF_ACC_YES, SF_ACC_AFTER_FIRST_MICRO } sf_accumulate;

enum { SF_MAX_ARGS = 8 };

typedef struct {
    sf_op_type type;
    sf_stream stream;
    sf_phase phase;
    int n_args;
    sf_arg args[SF_MAX_ARGS];
    sf_dims dims;
    int kind;                /* sf_op_norm, sf_op_act ...: as the op's row says               */
    sf_accumulate accumulate;
    double scale;            /* factor of a loss gradient; 1 where unused                     */
    uint64_t flop;           /* of one execution                                              */
    uint64_t bytes;          /* memory that the op reads and writes, each pass counted        */
    int launches;            /* kernels that a GPU launches for it (0: none)                  */
    float host_s;            /* of the host that issues it, beyond its launches               */
    sf_group group;          /* collectives                                                   */
    int event0, event_layer; /* RECORD, WAIT                                                  */
    int layer_lo, layer_hi;  /* guard: only in these layers (inclusive); outside a loop layer = 0 */
    int micro_lo, micro_hi;  /* guard: only in these micro-steps (inclusive)                  */
    const char *label;       /* "attn.qkv", "bucket3"                                         */
} sf_op;

/* ---- code ---- */

typedef enum { SF_NODE_OP, SF_NODE_REPEAT } sf_node_type;
typedef enum { SF_LOOP_MICRO, SF_LOOP_LAYER } sf_loop;

typedef struct sf_node sf_node;
typedef struct {
    sf_node *nodes;
    size_t count, cap;
} sf_block;

struct sf_node {
    sf_node_type type;
    int op;                /* NODE_OP: index into the class's ops                           */
    sf_loop loop;          /* NODE_REPEAT: the variable takes from, from+step, ... (count)  */
    int from, count, step;
    sf_block body;
};

/* The ranks first_rank .. first_rank + n_ranks - 1, which behave alike. */
typedef struct {
    const char *name;
    int n_ranks, first_rank;
    sf_buffer *buffers;
    size_t n_buffers, cap_buffers;
    int n_instances;       /* sum of the families' counts                                   */
    sf_flat *flats;
    size_t n_flats, cap_flats;
    sf_op *ops;
    size_t n_ops, cap_ops;
    int n_events;
    sf_block code;
} sf_class;

typedef struct {
    const char *strategy;     /* for headings only                                          */
    int world_size;
    int ranks_per_node;       /* also the size of LOCAL groups                              */
    bool one_process;         /* ranks are devices of one process (nn.DataParallel)         */
    int n_layers, n_micro;
    uint64_t tokens_per_step; /* of all ranks                                               */
    uint64_t model_flop;      /* forward + backward of all ranks and micro-steps, no recompute */
    sf_class *classes;
    int n_classes;
} sf_program;

const sf_class *sf_program_class_of(const sf_program *program, int rank);

#endif
