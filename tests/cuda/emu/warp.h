/* tests/cuda/emu/warp.h: what the warp operations need of the scheduler. */
#ifndef SF_TESTS_EMU_WARP_H
#define SF_TESTS_EMU_WARP_H

int emu_lane(void);                 /* of the running thread, 0..31                            */
int emu_warp_index(void);           /* of the running thread in its block                      */
void emu_wait_in_warp(void);        /* until emu_wake_lane of this lane                        */
void emu_wake_lane(int lane);       /* of the running thread's warp                            */
[[noreturn]] void emu_fail(const char *what);

#endif
