/* Cases on the emulation: with ascending, descending and shuffled threads. */
#include <stddef.h>

#include "tests/cuda/cases.h"
#include "tests/cuda/emu/emu.h"

bool case_runner_ready(void)
{
    return true;
}
void case_runner_begin(kase *c, int time)
{
    (void)c;
    emu_order(time == 2 ? 12345u : (unsigned)time);
}
const char *case_runner_end(kase *c)
{
    (void)c;
    emu_order(0);
    return NULL;
}
