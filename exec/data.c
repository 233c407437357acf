#include "exec/data.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/base/arena.h"
#include "model/base/text.h"

/* llm.c dev/data/data_common.py: magic and version of its token files, and their header's size. */
enum { LLMC_MAGIC = 20240520, LLMC_VERSION = 1, LLMC_HEADER_BYTES = 256 * 4 };
enum { SYNTHETIC_TOKENS = 1 << 18 };

struct sf_data {
    char *name;
    sf_arena arena;
    void *map; /* of a file, or NULL */
    size_t map_bytes;
    const uint8_t *bytes;  /* one of the two */
    const uint8_t *pairs;  /* 16-bit little-endian */
    uint64_t n;
};

static uint32_t token_at(const sf_data *data, uint64_t i)
{
    if (data->bytes != NULL)
        return data->bytes[i];
    return (uint32_t)data->pairs[2 * i] | (uint32_t)data->pairs[2 * i + 1] << 8;
}

static uint32_t le32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static sf_status map_file(const char *path, sf_data *data)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return SF_FAIL(SF_EIO, "cannot open the training data '%s': %s", path, strerror(errno));
    if (fstat(fd, &info) != 0 || info.st_size == 0) {
        close(fd);
        return SF_FAIL(SF_EINVAL, "the training data '%s' is empty", path);
    }
    data->map_bytes = (size_t)info.st_size;
    data->map = mmap(NULL, data->map_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    int error = errno;
    close(fd);
    if (data->map == MAP_FAILED) {
        data->map = NULL;
        return SF_FAIL(SF_EIO, "cannot read the training data '%s': %s", path, strerror(error));
    }
    return SF_SUCCESS;
}

static sf_status read_tokens(const char *path, sf_data *data)
{
    const uint8_t *p = data->map;
    size_t bytes = data->map_bytes;

    if (bytes >= 4 && le32(p) == LLMC_MAGIC) {
        if (bytes < LLMC_HEADER_BYTES || le32(p + 4) != LLMC_VERSION)
            return SF_FAIL(SF_EPARSE, "'%s' has the header of an llm.c data file but version %u (known: %d)", path,
                           bytes < 8 ? 0 : le32(p + 4), LLMC_VERSION);
        data->n = le32(p + 8);
        if (bytes != LLMC_HEADER_BYTES + 2 * (size_t)data->n)
            return SF_FAIL(SF_EPARSE, "'%s' announces %llu tokens but has %zu bytes after its header (expected %llu)", path,
                           (unsigned long long)data->n, bytes - LLMC_HEADER_BYTES, (unsigned long long)data->n * 2);
        data->pairs = p + LLMC_HEADER_BYTES;
        return SF_SUCCESS;
    }
    if (bytes % 2 != 0)
        return SF_FAIL(SF_EPARSE, "'%s' has %zu bytes: 16-bit tokens need an even number", path, bytes);
    data->pairs = p;
    data->n = bytes / 2;
    return SF_SUCCESS;
}

/* ---- directories ---- */

static int regular_file(const struct dirent *entry)
{
    return entry->d_type == DT_REG || entry->d_type == DT_UNKNOWN; /* some file systems do not say */
}

static sf_status read_directory(const char *path, sf_data *data)
{
    struct dirent **entries = NULL;
    sf_text all = { 0 };
    sf_status st = SF_SUCCESS;
    int count = scandir(path, &entries, regular_file, alphasort);

    if (count < 0)
        return SF_FAIL(SF_EIO, "cannot list the training data '%s': %s", path, strerror(errno));
    for (int i = 0; i < count; i++) {
        char *text;
        size_t len;
        if (st.code == SF_OK)
            st = sf_file_read(sf_arena_printf(&data->arena, "%s/%s", path, entries[i]->d_name), (size_t)1 << 30, &data->arena, &text, &len);
        if (st.code == SF_OK)
            sf_text_append(&all, text, len);
        free(entries[i]);
    }
    free(entries);
    if (st.code == SF_OK && all.len == 0)
        st = SF_FAIL(SF_EINVAL, "the directory '%s' has no text to train on", path);
    if (st.code == SF_OK) {
        data->n = all.len;
        data->bytes = memcpy(sf_arena_alloc(&data->arena, all.len), all.data, all.len);
    }
    sf_text_free(&all);
    return st;
}

/* ---- made-up tokens: each mostly follows from the one before ---- */

static void synthesise(int vocab, sf_data *data)
{
    uint32_t used = (uint32_t)(vocab < 251 ? vocab : 251), state = 1, token = 0;
    uint8_t *bytes = sf_arena_alloc(&data->arena, SYNTHETIC_TOKENS);

    for (int i = 0; i < SYNTHETIC_TOKENS; i++) {
        state = state * 1664525u + 1013904223u; /* Numerical Recipes' generator */
        token = (state >> 24) < 224 ? (token * 7 + 3) % used : (state >> 8) % used;
        bytes[i] = (uint8_t)token;
    }
    data->bytes = bytes;
    data->n = SYNTHETIC_TOKENS;
}

/* ---- */

static sf_status check_tokens(const sf_data *data, int vocab)
{
    if (data->n < 2)
        return SF_FAIL(SF_EINVAL, "'%s' has %llu tokens; at least 2 are needed", data->name, (unsigned long long)data->n);
    if (data->bytes != NULL && vocab < 256)
        for (uint64_t i = 0; i < data->n; i++)
            if (data->bytes[i] >= vocab)
                return SF_FAIL(SF_EINVAL, "'%s': byte %u at position %llu is outside the model's vocabulary of %d; text needs a vocabulary "
                               "of at least 256 (or use --data synthetic)", data->name, data->bytes[i], (unsigned long long)i, vocab);
    if (data->pairs != NULL && vocab < 65536)
        for (uint64_t i = 0; i < data->n; i++)
            if (token_at(data, i) >= (uint32_t)vocab)
                return SF_FAIL(SF_EINVAL, "'%s': token %u at position %llu is outside the model's vocabulary of %d", data->name,
                               token_at(data, i), (unsigned long long)i, vocab);
    return SF_SUCCESS;
}

static sf_status fill(const char *path, int vocab, sf_data *data)
{
    struct stat info;
    size_t len = strlen(path);

    if (strcmp(path, "synthetic") == 0) {
        synthesise(vocab, data);
        return SF_SUCCESS;
    }
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        return read_directory(path, data);
    SF_TRY(map_file(path, data));
    if (len > 4 && strcmp(path + len - 4, ".bin") == 0)
        return read_tokens(path, data);
    data->bytes = data->map;
    data->n = data->map_bytes;
    return SF_SUCCESS;
}

sf_status sf_data_open(const char *path, int vocab, sf_data **out)
{
    sf_data *data = calloc(1, sizeof *data);

    if (data == NULL)
        return SF_FAIL(SF_ENOMEM, "no memory for training data");
    if (path == NULL)
        path = vocab >= 256 && access(SF_DATA_DEFAULT, R_OK) == 0 ? SF_DATA_DEFAULT : "synthetic";
    data->name = sf_arena_strdup(&data->arena, path);
    sf_status st = fill(path, vocab, data);
    if (st.code == SF_OK)
        st = check_tokens(data, vocab);
    if (st.code != SF_OK) {
        sf_data_close(data);
        return st;
    }
    *out = data;
    return SF_SUCCESS;
}

void sf_data_close(sf_data *data)
{
    if (data == NULL)
        return;
    if (data->map != NULL)
        munmap(data->map, data->map_bytes);
    sf_arena_free(&data->arena);
    free(data);
}

uint64_t sf_data_tokens(const sf_data *data)
{
    return data->n;
}

const char *sf_data_name(const sf_data *data)
{
    return data->name;
}

void sf_data_read(const sf_data *data, uint64_t first, int count, int seq_len, int32_t *tokens, int32_t *targets)
{
    for (int s = 0; s < count; s++) {
        uint64_t at = (first + (uint64_t)s) % data->n * (uint64_t)seq_len % data->n; /* s*T mod n without overflow */
        uint64_t row = (uint64_t)s * (uint64_t)seq_len;
        uint32_t token = token_at(data, at);
        for (int t = 0; t < seq_len; t++) {
            at = at + 1 < data->n ? at + 1 : 0;
            tokens[row + (uint64_t)t] = (int32_t)token;
            token = token_at(data, at);
            targets[row + (uint64_t)t] = (int32_t)token;
        }
    }
}
