#include "model/base/arena.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CHUNK_BYTES = 64 << 10, LARGEST_STEP_BYTES = 8 << 20, LARGE_ARRAY = 1024 /* elements: grown in larger steps, so as to be copied less */ };

struct sf_arena_chunk {
    sf_arena_chunk *next;
    size_t capacity, used;
    _Alignas(16) unsigned char data[];
};

static _Noreturn void out_of_memory(size_t bytes)
{
    fprintf(stderr, "shardfit: out of host memory (a block of %zu bytes)\n", bytes);
    abort();
}

/* Not zeroed. */
static void *take(sf_arena *arena, size_t bytes)
{
    size_t rounded = (bytes + 15) & ~(size_t)15;
    if (rounded < bytes)
        out_of_memory(bytes);
    if (rounded == 0)
        rounded = 16;
    sf_arena_chunk *c = arena->head;
    if (c == NULL || c->capacity - c->used < rounded) {
        size_t capacity = c == NULL ? FIRST_CHUNK_BYTES : c->capacity * 2;
        if (capacity > LARGEST_STEP_BYTES)
            capacity = LARGEST_STEP_BYTES;
        if (capacity < rounded)
            capacity = rounded;
        sf_arena_chunk *fresh = malloc(sizeof *fresh + capacity);
        if (fresh == NULL)
            out_of_memory(capacity);
        fresh->next = c;
        fresh->capacity = capacity;
        fresh->used = 0;
        arena->head = c = fresh;
    }
    void *p = c->data + c->used;
    c->used += rounded;
    arena->used_bytes += rounded;
    return p;
}

void *sf_arena_alloc(sf_arena *arena, size_t bytes)
{
    return memset(take(arena, bytes), 0, bytes == 0 ? 1 : bytes);
}

void sf_arena_reset(sf_arena *arena)
{
    size_t capacity = 0;
    arena->used_bytes = 0;
    if (arena->head == NULL)
        return;
    if (arena->head->next == NULL) {
        arena->head->used = 0;
        return;
    }
    for (const sf_arena_chunk *c = arena->head; c != NULL; c = c->next)
        capacity += c->capacity;
    sf_arena_free(arena);
    sf_arena_chunk *whole = malloc(sizeof *whole + capacity);
    if (whole == NULL)
        return; /* nothing is kept */
    *whole = (sf_arena_chunk){ .capacity = capacity };
    arena->head = whole;
}

void sf_arena_free(sf_arena *arena)
{
    sf_arena_chunk *c = arena->head;
    while (c != NULL) {
        sf_arena_chunk *next = c->next;
        free(c);
        c = next;
    }
    *arena = (sf_arena){ 0 };
}

char *sf_arena_strndup(sf_arena *arena, const char *text, size_t len)
{
    char *copy = sf_arena_alloc(arena, len + 1);
    memcpy(copy, text, len);
    return copy;
}

char *sf_arena_strdup(sf_arena *arena, const char *text)
{
    return sf_arena_strndup(arena, text, strlen(text));
}

char *sf_arena_printf(sf_arena *arena, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *text = sf_arena_alloc(arena, (size_t)(n < 0 ? 0 : n) + 1);
    if (n > 0)
        vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    return text;
}

void *sf_arena_grow(sf_arena *arena, void *items, size_t count, size_t *cap, size_t item_bytes)
{
    if (count < *cap)
        return items;
    size_t bigger = *cap == 0 ? 8 : *cap < LARGE_ARRAY ? *cap * 2 : *cap * 4;
    void *fresh = take(arena, bigger * item_bytes);
    if (count > 0)
        memcpy(fresh, items, count * item_bytes);
    *cap = bigger;
    return fresh;
}
