/* model/program/cursor.h: walks a class's code in issue order and yields concrete ops: loops
 * unrolled, guards applied, instances and offsets computed. Every interpreter reads through it.
 */
#ifndef SF_PROGRAM_CURSOR_H
#define SF_PROGRAM_CURSOR_H

#include "model/program/program.h"

typedef struct {
    int instance;    /* number among all instances of the class, or -1 (absent argument)  */
    int buffer;      /* its family                                                        */
    uint64_t offset; /* elements                                                          */
} sf_place;

/* One op as it is issued. `seq` counts issued ops from 0 within one walk. */
typedef struct {
    const sf_op *op;
    uint64_t seq;
    int layer, micro;
    bool accumulate;
    int event;       /* RECORD, WAIT                                                       */
    sf_place at[SF_MAX_ARGS];
} sf_issue;

enum { SF_CURSOR_DEPTH = 4 };

typedef struct {
    const sf_class *cls;
    uint64_t seq;
    int layer, micro;
    int depth;
    struct {
        const sf_block *block;
        size_t next;
        const sf_node *repeat; /* NULL for the outermost block */
        int iteration;
    } stack[SF_CURSOR_DEPTH];
} sf_cursor;

void sf_cursor_start(sf_cursor *cursor, const sf_class *cls);
bool sf_cursor_next(sf_cursor *cursor, sf_issue *out); /* false at the end */

#endif
