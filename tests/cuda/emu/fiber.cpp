/* tests/cuda/emu/fiber.cpp: x86-64 switches stacks in six instructions (System V ABI: rbx, rbp, r12..r15
 * are kept by the callee); elsewhere ucontext does it, with a system call per switch. */
#include "fiber.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define ASAN_START(save, bottom, size) __sanitizer_start_switch_fiber(save, bottom, size)
#define ASAN_FINISH(fake, bottom, size) __sanitizer_finish_switch_fiber(fake, bottom, size)
#else
#define ASAN_START(save, bottom, size) (void)(save)
#define ASAN_FINISH(fake, bottom, size) (void)(fake)
#endif

enum { STACK_BYTES = 256 * 1024, GUARD_BYTES = 64 * 1024 };

#if defined(__x86_64__) && !defined(EMU_UCONTEXT)
typedef void *context;
extern "C" void emu_switch(void **save, void *load);
__asm__(".text\n.globl emu_switch\n.type emu_switch, @function\nemu_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
        ".size emu_switch, .-emu_switch\n");
static void context_switch(context *from, context *to)
{
    emu_switch(from, *to);
}
static void context_make(context *c, unsigned char *stack, void (*entry)(void))
{
    void **top = (void **)(stack + STACK_BYTES) - 2; /* at entry rsp is 8 below a multiple of 16 */
    *top = (void *)entry;
    for (int i = 0; i < 6; i++)
        *--top = NULL;
    *c = top;
}
#else
#include <ucontext.h>
typedef ucontext_t context;
static void context_switch(context *from, context *to)
{
    swapcontext(from, to);
}
static void context_make(context *c, unsigned char *stack, void (*entry)(void))
{
    getcontext(c);
    c->uc_stack.ss_sp = stack;
    c->uc_stack.ss_size = STACK_BYTES;
    makecontext(c, entry, 0);
}
#endif

struct emu_fiber {
    context at;
    unsigned char *stack;
    void *asan_stack;
    void (*run)(void);
};

static context home;
static emu_fiber *running;
static void *home_asan_stack;
static const void *home_bottom;
static size_t home_size;

emu_fiber *emu_fiber_make(void)
{
    emu_fiber *fiber = (emu_fiber *)calloc(1, sizeof *fiber);
    void *p = mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fiber == NULL || p == MAP_FAILED || mprotect(p, GUARD_BYTES, PROT_NONE) != 0) {
        fprintf(stderr, "emulation: no memory for a thread's stack\n");
        abort();
    }
    fiber->stack = (unsigned char *)p + GUARD_BYTES;
    return fiber;
}

/* Every fiber begins and ends here; its frame is never unwound, so it must leave no shadow behind. */
__attribute__((no_sanitize("address"))) static void entry(void)
{
    for (;;) {
        ASAN_FINISH(running->asan_stack, &home_bottom, &home_size);
        running->run();
        ASAN_START(&running->asan_stack, home_bottom, home_size);
        context_switch(&running->at, &home);
    }
}

void emu_fiber_start(emu_fiber *fiber, void (*run)(void))
{
    fiber->run = run;
    fiber->asan_stack = NULL;
    context_make(&fiber->at, fiber->stack, entry);
}

void emu_fiber_enter(emu_fiber *fiber)
{
    running = fiber;
    ASAN_START(&home_asan_stack, fiber->stack, STACK_BYTES);
    context_switch(&home, &fiber->at);
    ASAN_FINISH(home_asan_stack, NULL, NULL);
}

void emu_fiber_leave(void)
{
    emu_fiber *self = running;
    ASAN_START(&self->asan_stack, home_bottom, home_size);
    context_switch(&self->at, &home);
    ASAN_FINISH(self->asan_stack, &home_bottom, &home_size);
}
