/* tests/model/topology_testing.h: what the tests of topologies share. */
#ifndef SF_TESTS_TOPOLOGY_TESTING_H
#define SF_TESTS_TOPOLOGY_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/desc/topology.h"

/* The topology of a text, which must be one. */
static inline sf_topology *topology_of(const char *text, sf_arena *arena)
{
    sf_topology *t = NULL;
    sf_status st = sf_topology_parse(text, strlen(text), "text", NULL, arena, &t);
    if (st.code != SF_OK)
        print_message("%s\n", st.msg);
    assert_int_equal(st.code, SF_OK);
    assert_true(sf_topology_is_valid(t));
    return t;
}

/* The message with which a text is refused. */
static inline const char *refusal_of(const char *text, sf_arena *arena)
{
    sf_topology *t = NULL;
    sf_status st = sf_topology_parse(text, strlen(text), "text", NULL, arena, &t);
    assert_int_not_equal(st.code, SF_OK);
    return sf_arena_strdup(arena, st.msg);
}

static inline void assert_says(const char *message, const char *part)
{
    if (strstr(message, part) == NULL)
        print_message("'%s' does not say '%s'\n", message, part);
    assert_non_null(strstr(message, part));
}

static inline bool warns_of(const sf_topology *t, const char *part)
{
    for (size_t i = 0; i < t->warning_count; i++)
        if (strstr(t->warnings[i], part) != NULL)
            return true;
    for (size_t i = 0; i < t->warning_count; i++)
        print_message("warning: %s\n", t->warnings[i]);
    return false;
}

static inline int named(const sf_topology *t, int host, const char *name)
{
    for (size_t i = 0; i < t->node_count; i++)
        if (t->nodes[i].host == host && strcmp(t->nodes[i].name, name) == 0)
            return (int)i;
    return -1;
}

/* "NV12", "PIX", ... between two devices of host 0. */
static inline const char *path_text(const sf_topology *t, const char *a, const char *b, sf_arena *arena)
{
    int x = named(t, 0, a), y = named(t, 0, b);
    assert_true(x >= 0 && y >= 0);
    sf_topo_path path = sf_topology_path(t, x, y);
    return path.type == SF_PATH_NVLINK ? sf_arena_printf(arena, "NV%d", path.links) : sf_topo_path_name(path.type);
}

static inline char *file_text(const char *path, sf_arena *arena, size_t *len)
{
    char *text = NULL;
    sf_status st = sf_file_read(path, 1 << 24, arena, &text, len);
    if (st.code != SF_OK)
        print_message("%s\n", st.msg);
    assert_int_equal(st.code, SF_OK);
    return text;
}

/* Paths of all files with an ending below tests/data/FOLDER, sorted. */
static inline size_t data_files(const char *folder, const char *ending, sf_arena *arena, char ***out)
{
    const char *dir = sf_arena_printf(arena, "%s/%s", SF_TEST_DATA, folder);
    struct dirent **entries;
    int n = scandir(dir, &entries, NULL, alphasort);
    size_t count = 0;
    assert_true(n > 0);
    *out = SF_NEW_ARRAY(arena, char *, n);
    for (int i = 0; i < n; i++) {
        size_t len = strlen(entries[i]->d_name), e = strlen(ending);
        if (len > e && strcmp(entries[i]->d_name + len - e, ending) == 0)
            (*out)[count++] = sf_arena_printf(arena, "%s/%s", dir, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    return count;
}

#endif
