/* tests/cuda/emu/emu.h: what tests ask of the emulation. */
#ifndef SF_TESTS_EMU_EMU_H
#define SF_TESTS_EMU_EMU_H

#ifdef __cplusplus
extern "C" {
#endif

/* In which order threads and blocks run: 0 ascending, 1 descending, larger numbers are seeds of shuffles. */
void emu_order(unsigned order);
unsigned long emu_launches(void); /* since the start of the program */

#ifdef __cplusplus
}
#endif
#endif
