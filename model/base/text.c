#include "model/base/text.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

static void reserve(sf_text *text, size_t more)
{
    if (text->cap - text->len > more)
        return;
    size_t cap = text->cap == 0 ? 256 : text->cap * 2;
    while (cap - text->len <= more)
        cap *= 2;
    char *fresh = realloc(text->data, cap);
    if (fresh == NULL) {
        fprintf(stderr, "shardfit: out of host memory (a text of %zu bytes)\n", cap);
        abort();
    }
    text->data = fresh;
    text->cap = cap;
}

void sf_text_vadd(sf_text *text, const char *fmt, va_list args)
{
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    if (n > 0) {
        reserve(text, (size_t)n);
        vsnprintf(text->data + text->len, (size_t)n + 1, fmt, again);
        text->len += (size_t)n;
    }
    va_end(again);
}

void sf_text_add(sf_text *text, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    sf_text_vadd(text, fmt, args);
    va_end(args);
}

void sf_text_append(sf_text *text, const char *bytes, size_t len)
{
    reserve(text, len);
    memcpy(text->data + text->len, bytes, len);
    text->len += len;
    text->data[text->len] = '\0';
}

void sf_text_free(sf_text *text)
{
    free(text->data);
    *text = (sf_text){ 0 };
}

const char *sf_text_str(const sf_text *text)
{
    return text->data == NULL ? "" : text->data;
}

sf_status sf_file_read(const char *path, size_t max_bytes, sf_arena *arena, char **out, size_t *out_len)
{
    sf_status st = SF_SUCCESS;
    struct stat info;
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        return SF_FAIL(SF_EIO, "cannot open '%s': %s", path, strerror(errno));
    if (fstat(fileno(f), &info) != 0 || S_ISDIR(info.st_mode)) {
        st = SF_FAIL(SF_EIO, "cannot read '%s': it is a directory", path);
        goto close;
    }
    sf_text text = { 0 };
    char block[65536];
    size_t n;
    while ((n = fread(block, 1, sizeof block, f)) > 0) {
        sf_text_append(&text, block, n);
        if (text.len > max_bytes) {
            st = SF_FAIL(SF_EIO, "'%s' is larger than the %zu bytes that this kind of file may have", path, max_bytes);
            goto free_text;
        }
    }
    if (ferror(f)) {
        st = SF_FAIL(SF_EIO, "cannot read '%s': %s", path, strerror(errno));
        goto free_text;
    }
    *out = sf_arena_strndup(arena, sf_text_str(&text), text.len);
    if (out_len != NULL)
        *out_len = text.len;
free_text:
    sf_text_free(&text);
close:
    fclose(f);
    return st;
}

sf_status sf_file_write(const char *path, const char *bytes, size_t len)
{
    char tmp[4096];
    if (snprintf(tmp, sizeof tmp, "%s.tmp-%ld", path, (long)getpid()) >= (int)sizeof tmp)
        return SF_FAIL(SF_EIO, "cannot write '%s': the path is too long", path);
    FILE *f = fopen(tmp, "wb");
    if (f == NULL)
        return SF_FAIL(SF_EIO, "cannot write '%s': %s", path, strerror(errno));
    bool good = fwrite(bytes, 1, len, f) == len && fflush(f) == 0;
    int why = errno;
    if (fclose(f) != 0 && good) {
        good = false;
        why = errno;
    }
    if (good && rename(tmp, path) != 0) {
        good = false;
        why = errno;
    }
    if (!good) {
        unlink(tmp);
        return SF_FAIL(SF_EIO, "cannot write '%s': %s", path, strerror(why));
    }
    return SF_SUCCESS;
}

sf_status sf_dir_make(const char *path)
{
    char part[4096];
    size_t len = strlen(path);
    if (len == 0 || len >= sizeof part)
        return SF_FAIL(SF_EIO, "cannot make directory '%s': the path is empty or too long", path);
    memcpy(part, path, len + 1);
    for (size_t i = 1; i <= len; i++) {
        if (part[i] != '/' && part[i] != '\0')
            continue;
        char keep = part[i];
        part[i] = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return SF_FAIL(SF_EIO, "cannot make directory '%s': %s", part, strerror(errno));
        part[i] = keep;
    }
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        return SF_FAIL(SF_EIO, "cannot make directory '%s': a file of that name is in the way", path);
    return SF_SUCCESS;
}

bool sf_str_eq(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

bool sf_str_ieq(const char *a, const char *b)
{
    return strcasecmp(a, b) == 0;
}

bool sf_str_starts(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

void sf_str_squash(const char *text, char *out, size_t out_size)
{
    size_t n = 0;
    for (; *text != '\0' && n + 1 < out_size; text++)
        if (isalnum((unsigned char)*text))
            out[n++] = (char)tolower((unsigned char)*text);
    out[n] = '\0';
}

int sf_str_distance(const char *a, const char *b)
{
    char x[128], y[128];
    int row[128];
    sf_str_squash(a, x, sizeof x);
    sf_str_squash(b, y, sizeof y);
    int ny = (int)strlen(y);
    for (int j = 0; j <= ny; j++)
        row[j] = j;
    for (int i = 0; x[i] != '\0'; i++) {
        int diagonal = row[0];
        row[0] = i + 1;
        for (int j = 0; j < ny; j++) {
            int best = diagonal + (x[i] != y[j]);
            diagonal = row[j + 1];
            if (row[j + 1] + 1 < best)
                best = row[j + 1] + 1;
            if (row[j] + 1 < best)
                best = row[j] + 1;
            row[j + 1] = best;
        }
    }
    return row[ny];
}

const char *sf_str_nearest(const char *given, const char *const *names, size_t count, sf_arena *arena)
{
    enum { MOST = 3 };
    const char *best[MOST] = { NULL };
    int score[MOST] = { 0 };
    size_t found = 0;
    char squashed_given[128], squashed[128];

    sf_str_squash(given, squashed_given, sizeof squashed_given);
    for (size_t i = 0; i < count; i++) {
        int d = sf_str_distance(given, names[i]);
        sf_str_squash(names[i], squashed, sizeof squashed);
        if (squashed_given[0] != '\0' && (strstr(squashed, squashed_given) != NULL || strstr(squashed_given, squashed) != NULL))
            d = d / 4; /* one name contains the other: almost certainly meant */
        size_t at = found < MOST ? found++ : MOST;
        while (at > 0 && score[at - 1] > d) {
            if (at < MOST) {
                best[at] = best[at - 1];
                score[at] = score[at - 1];
            }
            at--;
        }
        if (at < MOST) {
            best[at] = names[i];
            score[at] = d;
        }
    }
    const char *text = "";
    for (size_t i = 0; i < found; i++)
        text = sf_arena_printf(arena, "%s%s'%s'", text, i == 0 ? "" : i + 1 == found ? " or " : ", ", best[i]);
    return text;
}
