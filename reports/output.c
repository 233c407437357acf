#include "reports/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/base/text.h"

sf_status sf_output_check(const char *path)
{
    sf_arena arena = { 0 };
    char *dir = sf_arena_strdup(&arena, path), *slash = strrchr(dir, '/');
    char *probe = sf_arena_printf(&arena, "%s.probe", path);
    struct stat info;
    sf_status st = SF_SUCCESS;

    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
        st = SF_FAIL(SF_EIO, "cannot write '%s': it is a directory; name a file", path);
    } else {
        if (slash != NULL && slash != dir) {
            *slash = '\0';
            st = sf_dir_make(dir);
        }
        if (st.code == SF_OK)
            st = sf_file_write(probe, "", 0);
        unlink(probe);
    }
    sf_arena_free(&arena);
    return st;
}

sf_status sf_output_json(const json_t *json, const char *path)
{
    char *text = json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
    sf_status st = text != NULL ? sf_file_write(path, text, strlen(text)) : SF_FAIL(SF_ENOMEM, "no memory to write '%s'", path);

    free(text);
    return st;
}

void sf_print_json(const json_t *json)
{
    json_dumpf(json, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
    putchar('\n');
}
