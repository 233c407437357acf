/* model/base/arena.h: memory with one lifetime.
 *
 * A parsed description or a lowered program lives whole in an arena that the caller passes in;
 * freeing the arena frees all of it, and nothing inside is freed alone. Not thread-safe.
 * Memory is zeroed. Exhaustion of host memory ends the process with a message: no caller of ours
 * could go on without its description (this is the one exception to "library code does not exit").
 */
#ifndef SF_BASE_ARENA_H
#define SF_BASE_ARENA_H

#include <stdarg.h>
#include <stddef.h>

typedef struct sf_arena_chunk sf_arena_chunk;

typedef struct {
    sf_arena_chunk *head;
    size_t used_bytes; /* handed out so far, for sf_arena_used */
} sf_arena;            /* { 0 } is a valid, empty arena */

/* 16-byte aligned, zeroed; a size of 0 gives a valid unique pointer. */
void *sf_arena_alloc(sf_arena *arena, size_t bytes);
void sf_arena_free(sf_arena *arena);
/* Forgets what was handed out but keeps its memory, as one chunk, for what comes next: for a scratch arena in a loop. */
void sf_arena_reset(sf_arena *arena);

#define SF_NEW(arena, type) ((type *)sf_arena_alloc((arena), sizeof(type)))
#define SF_NEW_ARRAY(arena, type, count) ((type *)sf_arena_alloc((arena), sizeof(type) * (size_t)(count)))

char *sf_arena_strdup(sf_arena *arena, const char *text);
char *sf_arena_strndup(sf_arena *arena, const char *text, size_t len);
char *sf_arena_printf(sf_arena *arena, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Grow an array that lives in an arena: makes room for one more element, doubling (the old copy
 * stays in the arena until the arena is freed). New elements are not zeroed: assign them whole. Use: SF_PUSH(arena, v->items, v->count, v->cap) = x; */
void *sf_arena_grow(sf_arena *arena, void *items, size_t count, size_t *cap, size_t item_bytes);
#define SF_PUSH(arena, items, count, cap)                                                          \
    (*((items) = sf_arena_grow((arena), (items), (count), &(cap), sizeof *(items)), &(items)[(count)++]))

#endif
