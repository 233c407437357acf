/* Models by name: the catalogue (data/models/models.txt) and paths to config.json. */
#include <ctype.h>
#include <string.h>
#include <sys/stat.h>

#include "model/base/text.h"
#include "model/desc/catalogue.h"
#include "model/desc/json.h"
#include "model/desc/transformer.h"

/* Letters and digits in lower case; with `dots`, also the point between two digits, so that opt-1.3b
 * is not opt-13b. */
static void squash(const char *text, bool dots, char *out, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; text[i] != '\0' && n + 1 < size; i++) {
        unsigned char c = (unsigned char)text[i];
        bool point = dots && c == '.' && i > 0 && isdigit((unsigned char)text[i - 1]) && isdigit((unsigned char)text[i + 1]);
        if (isalnum(c) || point)
            out[n++] = (char)tolower(c);
    }
    out[n] = '\0';
}

typedef struct {
    const char *file, *first, *alias;
} entry;

/* models.txt: one line a model: FILE NAME [ALIAS...] */
static sf_status read_catalogue(sf_arena *arena, entry **out, size_t *count)
{
    enum { MOST_BYTES = 1 << 20 };
    entry *entries = NULL;
    size_t n = 0, cap = 0;
    char *text = NULL, *line_state = NULL;

    SF_TRY(sf_file_read(sf_catalogue_path(arena, "models/models.txt"), MOST_BYTES, arena, &text, NULL));
    for (char *line = strtok_r(text, "\n", &line_state); line != NULL; line = strtok_r(NULL, "\n", &line_state)) {
        char *state = NULL, *file = strtok_r(line, " ", &state), *first = NULL;
        if (file == NULL || file[0] == '#')
            continue;
        for (char *alias; (alias = strtok_r(NULL, " ", &state)) != NULL;) {
            first = first == NULL ? alias : first;
            SF_PUSH(arena, entries, n, cap) = (entry){ file, first, alias };
        }
    }
    *out = entries;
    *count = n;
    return SF_SUCCESS;
}

/* The entry of that name. Without the points only if that leaves no doubt. */
static const entry *match(const entry *entries, size_t n, const char *name, bool dots)
{
    char wanted[128], given[128];
    const entry *found = NULL;

    squash(name, dots, wanted, sizeof wanted);
    for (size_t i = 0; i < n; i++) {
        squash(entries[i].alias, dots, given, sizeof given);
        if (strcmp(given, wanted) != 0)
            continue;
        if (found != NULL && strcmp(found->file, entries[i].file) != 0)
            return NULL;
        found = &entries[i];
    }
    return found;
}

/* The file of that name, and what the model is called. */
static sf_status locate(const char *name_or_path, sf_arena *arena, const char **path, const char **name)
{
    struct stat info;
    entry *entries;
    size_t n;

    if (stat(name_or_path, &info) == 0) {
        *path = S_ISDIR(info.st_mode) ? sf_arena_printf(arena, "%s/config.json", name_or_path) : name_or_path;
        *name = name_or_path;
        return SF_SUCCESS;
    }
    SF_TRY(read_catalogue(arena, &entries, &n));
    const char *slash = strrchr(name_or_path, '/'); /* owner/name */
    const entry *found = match(entries, n, name_or_path, true);
    if (found == NULL && slash != NULL && slash[1] != '\0')
        found = match(entries, n, slash + 1, true);
    if (found == NULL)
        found = match(entries, n, name_or_path, false);
    if (found != NULL) {
        *path = sf_catalogue_path(arena, sf_arena_printf(arena, "models/%s", found->file));
        *name = found->first;
        return SF_SUCCESS;
    }
    const char **names = SF_NEW_ARRAY(arena, const char *, n);
    for (size_t i = 0; i < n; i++)
        names[i] = entries[i].alias;
    return SF_FAIL(SF_EINVAL, "model '%s' is neither a file nor a name of the catalogue; the nearest names are %s", name_or_path,
                   sf_str_nearest(name_or_path, names, n, arena));
}

sf_status sf_transformer_find_config(const char *name_or_path, sf_arena *arena, json_t **out)
{
    const char *path, *name;
    SF_TRY(locate(name_or_path, arena, &path, &name));
    SF_TRY(sf_json_read(path, out));
    if (json_is_object(*out))
        return SF_SUCCESS;
    json_decref(*out);
    return SF_FAIL(SF_EPARSE, "%s: a model configuration is a JSON object", path);
}

sf_status sf_transformer_find(const char *name_or_path, sf_arena *arena, sf_transformer *out)
{
    const char *path, *name;
    json_t *config = NULL;

    SF_TRY(locate(name_or_path, arena, &path, &name));
    SF_TRY(sf_json_read(path, &config));
    sf_status st = sf_transformer_from_json(config, path, arena, out);
    json_decref(config);
    if (st.code == SF_OK)
        out->name = sf_arena_strdup(arena, name);
    return st;
}
