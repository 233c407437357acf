/* model/program/verify.h: checks that a program means what it says. Run on every lowered program in
 * tests and by `shardfit program --verify`.
 *
 * Per class: each instance is allocated before use, once at a time, and freed at the end; spans lie
 * inside their buffers; each read is ordered after the last write of that instance and each write
 * after the last write and the reads since (by stream order or by RECORD/WAIT); at FREE all
 * accesses are ordered before the home stream; WAIT follows a RECORD; op arguments have the number
 * and the extents that op.h says. Between classes: the same collectives in the same order with the
 * same bytes. Also: nothing is left unread that was gathered (warned, not failed).
 * Errors  SF_EINVAL: "class worker: op 17 linear_fwd attn.qkv reads unit[3] that was freed by op 12".
 */
#ifndef SF_PROGRAM_VERIFY_H
#define SF_PROGRAM_VERIFY_H

#include "model/base/status.h"
#include "model/program/program.h"

sf_status sf_program_verify(const sf_program *program);

#endif
