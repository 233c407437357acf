/* tests/cuda/emu/fiber.h: threads of which one runs at a time, switched by hand.
 *
 * A fiber has a stack with a guard page below it, and is told to AddressSanitizer where that is on. */
#ifndef SF_TESTS_EMU_FIBER_H
#define SF_TESTS_EMU_FIBER_H

struct emu_fiber;

emu_fiber *emu_fiber_make(void);                          /* lives until the program ends              */
void emu_fiber_start(emu_fiber *fiber, void (*run)(void)); /* the next enter begins at run              */
void emu_fiber_enter(emu_fiber *fiber);                   /* until it leaves or its run returns        */
void emu_fiber_leave(void);                               /* back to who entered; returns when entered */

#endif
