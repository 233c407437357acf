/* model/program/print.h: a program as readable text, one line per op; golden files diff it.
 *
 *   class worker: ranks 0..3
 *   buffer unit      2 x 24.1 MiB bf16 parameters comm
 *   repeat micro 0..3
 *     repeat layer 0..11
 *       17 comm    all_gather  unit[layer+1]  world 24.1 MiB  when layer 0..10
 */
#ifndef SF_PROGRAM_PRINT_H
#define SF_PROGRAM_PRINT_H

#include "model/base/text.h"
#include "model/program/program.h"

void sf_program_print(const sf_program *program, sf_text *out);
/* The unrolled ops of one class as they are issued, at most `most` of them (0: all). */
void sf_program_print_issued(const sf_class *cls, uint64_t most, sf_text *out);

#endif
