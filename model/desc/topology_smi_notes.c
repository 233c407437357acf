/* What stands around a matrix: names of NICs, models of GPUs, NUMA nodes. */
#define _GNU_SOURCE /* memmem */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "model/desc/topology_smi.h"

static const char *skip_blanks(const char *p)
{
    while (*p == ' ' || *p == '\t')
        p++;
    return p;
}

static sf_matrix_device *find_device(sf_matrix *m, const char *kind, long number)
{
    size_t n = strlen(kind);
    for (int i = 0; i < m->count; i++)
        if (strncmp(m->devices[i].name, kind, n) == 0 && isdigit((unsigned char)m->devices[i].name[n]) &&
            strtol(m->devices[i].name + n, NULL, 10) == number)
            return &m->devices[i];
    return NULL;
}

/* "NIC0: mlx5_0" of the legend, "NIC4=mlx5_5/rdma4 (NUMA 1)" of a sentence. */
static void read_nic_names(const char *line, sf_matrix *m, sf_arena *arena)
{
    for (const char *p = line; (p = strstr(p, "NIC")) != NULL;) {
        char *end;
        p += 3;
        if (!isdigit((unsigned char)*p))
            continue;
        long number = strtol(p, &end, 10);
        p = skip_blanks(end);
        if (*p != ':' && *p != '=')
            continue;
        p = skip_blanks(p + 1);
        size_t n = strcspn(p, " \t/,;()|");
        sf_matrix_device *nic = find_device(m, "NIC", number);
        if (nic == NULL || n == 0 || n > 60)
            continue;
        nic->device = sf_arena_strndup(arena, p, n);
        p += n;
        const char *numa = strstr(p, "(NUMA "), *next = strstr(p, "NIC");
        if (numa != NULL && (next == NULL || numa < next) && isdigit((unsigned char)numa[6]))
            nic->numa = atoi(numa + 6);
    }
}

static void set_model(sf_matrix *m, long number, const char *model, size_t n, sf_arena *arena)
{
    sf_matrix_device *gpu = find_device(m, "GPU", number);
    while (n > 0 && (model[n - 1] == ' ' || model[n - 1] == '\t'))
        n--;
    if (gpu != NULL && n > 0 && n < 80 && gpu->device[0] == '\0' && memmem(model, n, "...", 3) == NULL)
        gpu->device = sf_arena_strndup(arena, model, n);
}

/* "GPU 0: NVIDIA A100-SXM4-80GB (UUID: ...)" of `nvidia-smi -L` and of environment collectors. */
static void read_gpu_list(const char *line, sf_matrix *m, sf_arena *arena)
{
    const char *p = skip_blanks(line);
    char *end;
    if (strncmp(p, "GPU ", 4) != 0 || !isdigit((unsigned char)p[4]))
        return;
    long number = strtol(p + 4, &end, 10);
    if (*end != ':')
        return;
    p = skip_blanks(end + 1);
    if (!isalpha((unsigned char)*p))
        return;
    set_model(m, number, p, strcspn(p, "(,;"), arena);
}

/* "|   0  NVIDIA H100 80GB HBM3          On  | 00000000:0F:00.0 Off | ..." of plain `nvidia-smi`. */
static void read_smi_table(const char *line, sf_matrix *m, sf_arena *arena)
{
    const char *p = skip_blanks(line);
    char *end;
    if (*p != '|' || !isdigit((unsigned char)*(p = skip_blanks(p + 1))))
        return;
    long number = strtol(p, &end, 10);
    const char *model = skip_blanks(end), *bar = strchr(model, '|');
    if (bar == NULL || !isalpha((unsigned char)*model))
        return;
    const char *address = skip_blanks(bar + 1);
    char busid[20] = "";
    size_t n = strcspn(address, " \t|");
    if (n >= sizeof busid)
        return;
    memcpy(busid, address, n);
    busid[n] = '\0';
    if (!sf_lex_is_busid(busid))
        return;
    n = (size_t)(bar - model);
    while (n > 0 && model[n - 1] == ' ')
        n--;
    for (const char *const *mode = (const char *const[]){ "On", "Off", "N/A", NULL }; *mode != NULL; mode++) {
        size_t len = strlen(*mode);
        if (n > len && strncmp(model + n - len, *mode, len) == 0 && model[n - len - 1] == ' ') {
            set_model(m, number, model, n - len, arena);
            break;
        }
    }
    sf_matrix_device *gpu = find_device(m, "GPU", number);
    if (gpu != NULL && gpu->busid[0] == '\0')
        gpu->busid = sf_arena_strdup(arena, busid);
}

/* "GPU[1]  : (Topology) Numa Node: 1" of rocm-smi. */
static void read_rocm_numa(const char *line, sf_matrix *m)
{
    const char *says = strstr(line, "(Topology) Numa Node:"), *p = skip_blanks(line);
    if (says == NULL || strncmp(p, "GPU", 3) != 0)
        return;
    p += 3;
    while (*p == ' ' || *p == '[')
        p++;
    sf_matrix_device *gpu = isdigit((unsigned char)*p) ? find_device(m, "GPU", strtol(p, NULL, 10)) : NULL;
    says = skip_blanks(says + strlen("(Topology) Numa Node:"));
    if (gpu != NULL && isdigit((unsigned char)*says))
        gpu->numa = atoi(says);
}

void sf_smi_read_notes(const sf_line *lines, size_t count, sf_matrix *matrices, size_t matrix_count, sf_arena *arena)
{
    /* what stands behind the header of a later matrix is said of that one */
    for (size_t k = 0; k < matrix_count; k++) {
        int from = 0, to = 0;
        for (int i = 0; i < matrices[k].count; i++)
            if (matrices[k].devices[i].row_line > 0 && (from == 0 || matrices[k].devices[i].row_line < from))
                from = matrices[k].devices[i].row_line;
        for (size_t next = k + 1; next < matrix_count; next++)
            for (int i = 0; i < matrices[next].count; i++)
                if (matrices[next].devices[i].row_line > from && (to == 0 || matrices[next].devices[i].row_line < to))
                    to = matrices[next].devices[i].row_line;
        for (size_t i = 0; i < count; i++) {
            const char *line = lines[i].text;
            read_gpu_list(line, &matrices[k], arena);
            read_smi_table(line, &matrices[k], arena);
            read_rocm_numa(line, &matrices[k]);
            if (lines[i].number > from && (to == 0 || lines[i].number < to))
                read_nic_names(line, &matrices[k], arena);
        }
    }
}

const char *sf_smi_model(const sf_matrix *matrices, size_t count)
{
    const char *model = "";
    for (size_t k = 0; k < count; k++) {
        for (int i = 0; i < matrices[k].count; i++) {
            const char *here = matrices[k].devices[i].device;
            if (!matrices[k].devices[i].is_gpu || here[0] == '\0')
                continue;
            if (model[0] != '\0' && strcmp(model, here) != 0)
                return "";
            model = here;
        }
    }
    return model;
}
