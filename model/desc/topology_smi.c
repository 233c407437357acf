/* Pasted matrices of `nvidia-smi topo -m` and its kin. Lines become headers and rows by the form of
 * their words; where a row stands is told by the X of its diagonal, so that headers cut on either
 * side, labels out of order, lines broken by a terminal and lines run together are all read. */
#include <stdlib.h>
#include <string.h>

#include "model/desc/topology_lex.h"
#include "model/desc/topology_matrix.h"
#include "model/desc/topology_smi.h"

enum { MOST_ROW_TOKENS = 2 * SF_TOPO_MOST_DEVICES, MOST_BLOCKS = 4 * SF_TOPO_MOST_HOSTS };

typedef struct {
    const char *name;
    sf_arena *arena;
    sf_line *lines;
    size_t line_count;
    sf_cell_word *words;
    size_t word_count;
    bool nv_counts[100];
    sf_smi_block *blocks;
    size_t block_count, block_cap;
    sf_smi_table table;
    bool zero_is_self;   /* rocm-smi's diagonal */
    bool too_large;      /* more rows than a machine has devices: reading has stopped */
} reader;

/* ---- a line: [prefix] header? row* ---- */

typedef struct {
    size_t first, count;          /* header names: tokens [first, first + count) */
    size_t heads;                 /* head words after them */
} header_part;

static bool names_device(const sf_tok *tok)
{
    return tok->kind == SF_TOK_DEVICE || tok->kind == SF_TOK_NAME;
}

static bool is_zero(const sf_tok *tok)
{
    return tok->kind == SF_TOK_VALUE && strcmp(tok->text, "0") == 0;
}

/* May stand in a matrix: a path, rocm-smi's 0, or a blank marked as such. */
static bool fills_cell(const reader *r, const sf_tok *tok)
{
    return tok->kind == SF_TOK_CELL || (r->zero_is_self && is_zero(tok)) ||
           (tok->kind == SF_TOK_OTHER && (strcmp(tok->text, "-") == 0 || strcmp(tok->text, "--") == 0 || strcmp(tok->text, "?") == 0)) ||
           (r->table == SF_TABLE_WEIGHTS && tok->kind == SF_TOK_VALUE);
}

static bool starts_row(const reader *r, const sf_tok *toks, size_t count, size_t at)
{
    if (at + 1 >= count || !names_device(&toks[at]))
        return false;
    if (r->table == SF_TABLE_WEIGHTS)
        return toks[at + 1].kind == SF_TOK_VALUE;
    return fills_cell(r, &toks[at + 1]);
}

/* Names from `at` on that make a header: at least one GPU, then only head words or a row. */
static bool take_header(const reader *r, const sf_tok *toks, size_t count, size_t at, header_part *out)
{
    bool any_gpu = false;
    size_t i = at;
    while (i < count && names_device(&toks[i]) && !starts_row(r, toks, count, i)) {
        any_gpu = any_gpu || sf_lex_is_gpu(toks[i].text);
        i++;
    }
    *out = (header_part){ .first = at, .count = i - at };
    while (i < count && toks[i].kind == SF_TOK_HEAD)
        i++;
    /* the words of the last column may be cut: "CPU Aff" */
    if (i > at + out->count && i + 1 == count && toks[i].kind == SF_TOK_OTHER &&
        (strncmp("Affinity", toks[i].text, strlen(toks[i].text)) == 0 || strncmp("NUMA", toks[i].text, strlen(toks[i].text)) == 0))
        i++;
    out->heads = i - at - out->count;
    return any_gpu && (i == count || starts_row(r, toks, count, i));
}

/* A row's cells and values from the token after its label on; returns the token after it. */
static size_t take_row(const reader *r, const sf_tok *toks, size_t count, size_t at, sf_smi_row *out)
{
    size_t i = at, last_cell = at;
    /* N/A among the cells is a blank cell, behind them it is a value */
    for (size_t j = at; j < count && !names_device(&toks[j]); j++)
        if (fills_cell(r, &toks[j]))
            last_cell = j;
    while (i < count && !names_device(&toks[i]) && (fills_cell(r, &toks[i]) || (i < last_cell && strcmp(toks[i].text, "N/A") == 0)))
        i++;
    out->cells = &toks[at];
    out->count = i - at;
    out->values = &toks[i];
    size_t first = i;
    while (i < count && toks[i].kind == SF_TOK_VALUE)
        i++;
    out->value_count = i - first;
    return i;
}

static bool same_names(const sf_smi_block *b, const sf_tok *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < b->name_count; j++)
            if (strcmp(b->names[j].text, names[i].text) == 0)
                return true;
    return false;
}

/* What stands before the matrix on its lines, if it is a tag such as "node1:" or "0:". */
static const char *key_of(const reader *r, const char *line, int column)
{
    const char *end = line + column;
    while (line < end && (*line == ' ' || *line == '\t'))
        line++;
    while (end > line && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    size_t n = (size_t)(end - line);
    if (n < 2 || end[-1] != ':' || memchr(line, ' ', n) != NULL)
        return "";
    return sf_arena_strndup(r->arena, line, n);
}

static void set_columns(sf_smi_block *b, const sf_tok *heads, size_t count)
{
    b->column_count = 0;
    for (size_t i = 0; i < count && b->column_count < 3; i++) {
        if (heads[i].kind != SF_TOK_HEAD)
            continue;
        sf_head_word w = heads[i].head;
        if (w == SF_HEAD_GPU && i + 1 < count && heads[i + 1].kind == SF_TOK_HEAD && heads[i + 1].head == SF_HEAD_NUMA)
            i++;
        else if (w == SF_HEAD_NODE)
            w = SF_HEAD_NUMA;
        if (w == SF_HEAD_CPU || w == SF_HEAD_NUMA || w == SF_HEAD_GPU)
            b->columns[b->column_count++] = w;
    }
}

static bool has_row(const sf_smi_block *b, const char *label)
{
    for (size_t i = 0; i < b->row_count; i++)
        if (b->rows[i].label != NULL && label != NULL && strcmp(b->rows[i].label, label) == 0)
            return true;
    return false;
}

/* The block that a row belongs to: the last one of its key that has not got that row yet. */
static sf_smi_block *block_for(reader *r, const char *key, const sf_smi_row *fresh)
{
    sf_smi_block *latest = r->block_count > 0 ? &r->blocks[r->block_count - 1] : NULL;
    if (latest != NULL && latest->row_count == 0 && latest->table == r->table && strcmp(latest->key, key) != 0) {
        bool elsewhere = false; /* a title before the header looked like a key */
        for (size_t i = 0; i + 1 < r->block_count; i++)
            elsewhere = elsewhere || (strcmp(r->blocks[i].key, key) == 0 && !has_row(&r->blocks[i], fresh->label));
        if (!elsewhere)
            latest->key = key;
    }
    for (size_t i = r->block_count; i-- > 0;) {
        sf_smi_block *b = &r->blocks[i];
        if (strcmp(b->key, key) != 0 || b->table != r->table)
            continue;
        if (!has_row(b, fresh->label))
            return b;
        break;
    }
    SF_PUSH(r->arena, r->blocks, r->block_count, r->block_cap) = (sf_smi_block){ .key = key, .table = r->table };
    return &r->blocks[r->block_count - 1];
}

/* A row without label: only cells and values, two cells or more. */
static bool is_bare_row(const reader *r, sf_tok *toks, size_t count, sf_smi_row *out)
{
    *out = (sf_smi_row){ 0 };
    size_t at = count > 1 && toks[0].kind == SF_TOK_VALUE; /* what a cut has left of its label, or of its first cell */
    if (count <= at || toks[at].kind != SF_TOK_CELL || r->table == SF_TABLE_OTHER || take_row(r, toks, count, at, out) != count)
        return false;
    size_t names = r->block_count > 0 ? r->blocks[r->block_count - 1].name_count : 0;
    if (at == 1 && out->count + 1 == names) {
        toks[0].kind = SF_TOK_CELL;
        toks[0].cell = (sf_topo_cell){ SF_PATH_UNKNOWN, SF_PATH_UNKNOWN, 0 };
        out->cells = toks;
        out->count++;
    }
    return out->count >= 2;
}

/* What the left edge of a cut paste has left of a word: "PU0" of GPU0, "V12" of NV12, "ODE" of NODE;
 * one letter or digit before cells is a cell that is not known. */
static void mend_first_word(sf_tok *tok, bool before_cell, sf_arena *arena)
{
    static const struct {
        const char *rest;
        unsigned char path;
    } rests[] = { { "IX", SF_PATH_PIX }, { "XB", SF_PATH_PXB }, { "HB", SF_PATH_PHB }, { "ODE", SF_PATH_NODE },
                  { "DE", SF_PATH_NODE }, { "YS", SF_PATH_SYS }, { "OC", SF_PATH_SYS }, { "E", SF_PATH_UNKNOWN },
                  { "S", SF_PATH_UNKNOWN }, { "B", SF_PATH_UNKNOWN }, { "C", SF_PATH_UNKNOWN } };
    const char *p = tok->text, *digits = p + strcspn(p, "0123456789");
    size_t letters = (size_t)(digits - p);
    bool numbered = digits[0] != '\0' && strspn(digits, "0123456789") == strlen(digits) && strlen(digits) < 4;
    if (tok->kind == SF_TOK_NAME && numbered && ((letters == 2 && strncmp(p, "PU", 2) == 0) || (letters == 1 && *p == 'U'))) {
        tok->kind = SF_TOK_DEVICE;
        tok->text = sf_arena_printf(arena, "GPU%s", digits);
    } else if (tok->kind == SF_TOK_NAME && numbered && letters == 2 && strncmp(p, "IC", 2) == 0) {
        tok->kind = SF_TOK_DEVICE;
        tok->text = sf_arena_printf(arena, "NIC%s", digits);
    } else if (tok->kind == SF_TOK_NAME && numbered && letters == 1 && *p == 'V' && before_cell) {
        tok->kind = SF_TOK_CELL;
        tok->link = SF_TOPO_LINK_NVLINK;
        tok->cell = (sf_topo_cell){ SF_PATH_NVLINK, SF_PATH_UNKNOWN, (short)atoi(digits) };
    } else if (tok->kind == SF_TOK_OTHER && before_cell) {
        for (size_t i = 0; i < sizeof rests / sizeof rests[0]; i++) {
            if (strcmp(rests[i].rest, p) != 0)
                continue;
            tok->kind = SF_TOK_CELL;
            tok->link = SF_TOPO_LINK_PCIE;
            tok->cell = (sf_topo_cell){ rests[i].path, SF_PATH_UNKNOWN, 0 };
        }
    }
}

typedef struct {
    header_part header;
    bool has_header, good;  /* good: nothing of the line was left over */
    sf_smi_row *rows;
    size_t row_count;
    int first_column;
    const sf_tok *toks;
} parsed_line;

static parsed_line parse_line(const reader *r, const char *text, int number)
{
    sf_tok *toks;
    size_t count = sf_lex_line(text, r->words, r->word_count, r->nv_counts, r->arena, &toks), cap = 0;
    parsed_line p = { .toks = toks, .first_column = -1, .good = true };
    if (count > MOST_ROW_TOKENS || memchr(text, '=', strlen(text)) != NULL)
        count = 0;
    if (count > 0)
        mend_first_word(&toks[0], count > 1 && toks[1].kind == SF_TOK_CELL, r->arena);
    for (size_t i = 0; i < count;) {
        sf_smi_row fresh = { .line = number };
        header_part header;
        if (starts_row(r, toks, count, i)) {
            fresh.label = toks[i].text;
            fresh.label_field = toks[i].field;
            if (p.first_column < 0)
                p.first_column = toks[i].column;
            i = take_row(r, toks, count, i + 1, &fresh);
            SF_PUSH(r->arena, p.rows, p.row_count, cap) = fresh;
            p.good = i == count || names_device(&toks[i]);
        } else if (!p.has_header && p.row_count == 0 && names_device(&toks[i]) &&
                   take_header(r, toks, count, i, &header)) {
            p.has_header = true;
            p.header = header;
            p.first_column = toks[i].column;
            i = header.first + header.count + header.heads;
        } else {
            i++;
        }
    }
    if (!p.has_header && p.row_count == 0) {
        sf_smi_row bare;
        if (is_bare_row(r, toks, count, &bare)) {
            bare.line = number;
            SF_PUSH(r->arena, p.rows, p.row_count, cap) = bare;
            p.first_column = toks[0].column;
        }
    }
    return p;
}

/* ---- lines broken by a terminal ---- */

/* What is still expected of a line, given the header of its block: 0 = complete. */
static size_t missing(const reader *r, const parsed_line *p)
{
    const sf_smi_block *b = r->block_count > 0 ? &r->blocks[r->block_count - 1] : NULL;
    if (p->row_count == 0 || b == NULL || b->line == 0 || r->table != SF_TABLE_PATHS)
        return 0;
    const sf_smi_row *last = &p->rows[p->row_count - 1];
    if (last->label == NULL)
        return 0;
    size_t cells = b->name_count > last->count ? b->name_count - last->count : 0;
    if (b->column_count == 0 || !sf_lex_is_gpu(last->label))
        return cells;
    /* too many values are as wrong as too few: a list of CPUs has been broken in two */
    size_t have = last->value_count, want = b->column_count;
    return cells + (have < want ? want - have : 0) + (have > want && cells == 0 ? have - want : 0);
}

/* True if the next line goes on where this one ends; then *text is both of them. */
static bool join_next(const reader *r, const parsed_line *p, const char **text, const sf_line *next, int number)
{
    parsed_line alone = parse_line(r, next->text, next->number);
    if (next->text[0] == '\0' || strchr(next->text, '=') != NULL || (p->row_count == 0 && !p->has_header))
        return false;
    if (p->row_count == 0) { /* a header goes on: names that it has not got yet, and head words */
        if (alone.row_count > 0)
            return false;
        for (int spaced = 1; spaced >= 0; spaced--) {
            const char *both = sf_arena_printf(r->arena, spaced ? "%s %s" : "%s%s", *text, next->text);
            parsed_line q = parse_line(r, both, number);
            if (!q.has_header || q.row_count > 0 || q.header.count + q.header.heads <= p->header.count + p->header.heads)
                continue;
            sf_smi_block of = { .names = &q.toks[q.header.first], .name_count = q.header.count }, head = of;
            bool twice = false;
            for (head.name_count = 1; head.name_count < of.name_count && !twice; head.name_count++)
                twice = same_names(&head, &of.names[head.name_count], 1);
            if (twice)
                return false;
            *text = both;
            return true;
        }
        return false;
    }
    size_t least = missing(r, p);
    if (r->block_count == 0 || alone.has_header || (alone.row_count > 0 && alone.rows[0].label != NULL))
        return false;
    /* complete by count, but the end of its list of CPUs may stand alone on the next line */
    bool rest_of_list = least == 0 && p->rows[p->row_count - 1].value_count > 0 && next->text[strspn(next->text, "0123456789,- \t")] == '\0';
    if (least == 0 && !rest_of_list)
        return false;
    least += rest_of_list;
    const char *best = NULL;
    for (int spaced = rest_of_list ? 0 : 1; spaced >= 0; spaced--) {
        const char *both = sf_arena_printf(r->arena, spaced ? "%s %s" : "%s%s", *text, next->text);
        parsed_line q = parse_line(r, both, number);
        const sf_smi_block *b = &r->blocks[r->block_count - 1];
        if (!q.good || q.has_header || q.row_count != p->row_count || q.rows[q.row_count - 1].count > b->name_count ||
            missing(r, &q) >= least)
            continue;
        least = missing(r, &q);
        best = both;
    }
    if (best != NULL)
        *text = best;
    return best != NULL;
}

/* ---- the whole text ---- */

/* Titles of tables: rocm-smi and amd-smi print several with the same header. */
static void note_table(reader *r, const char *line)
{
    static const struct {
        const char *title;
        sf_smi_table table;
        bool zero_is_self;
    } titles[] = {
        { "Link Type between", SF_TABLE_PATHS, true },      { "LINK TYPE TABLE", SF_TABLE_PATHS, true },
        { "Weight between", SF_TABLE_WEIGHTS, false },      { "WEIGHT TABLE", SF_TABLE_WEIGHTS, false },
        { " TABLE:", SF_TABLE_OTHER, false },               { "Hops between", SF_TABLE_OTHER, false },
        { "Bandwidth between", SF_TABLE_OTHER, false },     { "accessible between", SF_TABLE_OTHER, false },
        { "topo -m", SF_TABLE_PATHS, false },               { "topo --matrix", SF_TABLE_PATHS, false },
    };
    for (size_t i = 0; i < sizeof titles / sizeof titles[0]; i++) {
        if (strstr(line, titles[i].title) == NULL)
            continue;
        r->table = titles[i].table;
        r->zero_is_self = titles[i].zero_is_self;
        return;
    }
}

static void add_line(reader *r, const parsed_line *p, const char *text)
{
    const char *key = p->first_column >= 0 ? key_of(r, text, p->first_column) : "";
    if (p->has_header) {
        sf_smi_block b = { .key = key, .line = 0, .table = r->table };
        b.names = &p->toks[p->header.first];
        b.name_count = p->header.count;
        set_columns(&b, &p->toks[p->header.first + p->header.count], p->header.heads);
        SF_PUSH(r->arena, r->blocks, r->block_count, r->block_cap) = b;
    }
    for (size_t i = 0; i < p->row_count; i++) {
        sf_smi_block *b = block_for(r, key, &p->rows[i]);
        SF_PUSH(r->arena, b->rows, b->row_count, b->row_cap) = p->rows[i];
        r->too_large = r->too_large || b->row_count > SF_TOPO_MOST_DEVICES;
    }
}

static void read_lines(reader *r)
{
    for (size_t i = 0; i < r->line_count && r->block_count <= MOST_BLOCKS && !r->too_large; i++) {
        const char *text = r->lines[i].text;
        int number = r->lines[i].number;
        note_table(r, text);
        parsed_line p = parse_line(r, text, number);
        if (!p.has_header && p.row_count == 0)
            continue;
        /* the sf_smi_block must know the header before the rows of the same line are looked at */
        while (i + 1 < r->line_count && strlen(text) < 65536 && join_next(r, &p, &text, &r->lines[i + 1], number)) {
            p = parse_line(r, text, number);
            i++;
        }
        size_t before = r->block_count;
        add_line(r, &p, text);
        if (p.has_header && r->block_count > before)
            r->blocks[before].line = number;
    }
}

/* A second matrix of the same devices that shows PCIe where the first shows NVLink is `topo -mp`. */
static bool merge_pcie_view(sf_matrix *of, const sf_matrix *view)
{
    bool direct = false, differs = false;
    if (of->count != view->count || strcmp(of->host, view->host) != 0)
        return false;
    for (int i = 0; i < of->count; i++)
        differs = differs || strcmp(of->devices[i].name, view->devices[i].name) != 0;
    for (int i = 0; i < of->count * of->count; i++) {
        direct = direct || of->cells[i].path == SF_PATH_NVLINK;
        differs = differs || view->cells[i].path == SF_PATH_NVLINK ||
                  (of->cells[i].path != SF_PATH_NVLINK && of->cells[i].path != view->cells[i].path);
    }
    if (!direct || differs)
        return false;
    for (int i = 0; i < of->count * of->count; i++)
        if (of->cells[i].path == SF_PATH_NVLINK)
            of->cells[i].pcie = view->cells[i].path;
    return true;
}

/* What stands in "PCIE" cells without weights: the NUMA nodes tell whether it leaves one. */
static void settle_plain_pcie(const reader *r, sf_matrix *m)
{
    bool any = false;
    for (size_t i = 0; i < r->block_count && !any; i++)
        for (size_t j = 0; j < r->blocks[i].row_count && !any; j++)
            for (size_t k = 0; k < r->blocks[i].rows[j].count && !any; k++)
                any = r->blocks[i].rows[j].cells[k].pcie_only;
    for (int i = 0; any && i < m->count; i++)
        for (int j = 0; j < m->count; j++)
            if (m->cells[i * m->count + j].path == SF_PATH_UNKNOWN && m->devices[i].numa >= 0 && m->devices[j].numa >= 0)
                m->cells[i * m->count + j].path = m->devices[i].numa == m->devices[j].numa ? SF_PATH_PHB : SF_PATH_SYS;
}

static const char *source_of(const reader *r)
{
    static const char *const tools[] = { "rocm-smi", "amd-smi", "mx-smi", "npu-smi", "ixsmi", "mthreads-gmi", "hy-smi" };
    for (size_t i = 0; i < r->line_count; i++) {
        if (strstr(r->lines[i].text, "ROCm System Management") != NULL)
            return "rocm-smi --showtopo";
        if (strstr(r->lines[i].text, "MetaX System Management") != NULL)
            return "mx-smi topo -m";
        for (size_t k = 0; k < sizeof tools / sizeof tools[0]; k++)
            if (strstr(r->lines[i].text, tools[k]) != NULL)
                return tools[k];
    }
    return "nvidia-smi topo -m";
}

sf_status sf_topology_read_smi(const char *text, size_t len, const char *name, const sf_gpu *gpu, sf_arena *arena,
                               sf_topology **out)
{
    reader r = { .arena = arena };
    r.line_count = sf_lex_lines(text, len, arena, &r.lines);
    r.word_count = sf_lex_legend(r.lines, r.line_count, arena, &r.words);
    for (size_t i = 0; i < r.line_count; i++) {
        sf_tok *toks;
        size_t count = sf_lex_line(r.lines[i].text, r.words, r.word_count, r.nv_counts, arena, &toks);
        for (size_t j = 0; j < count; j++)
            if (toks[j].kind == SF_TOK_CELL && !toks[j].loose && toks[j].cell.links > 0 && toks[j].cell.links < 100)
                r.nv_counts[toks[j].cell.links] = true;
    }
    read_lines(&r);

    if (r.block_count > MOST_BLOCKS)
        return SF_FAIL(SF_EPARSE, "'%s': more than %d matrices", name, MOST_BLOCKS);
    sf_topology *t = sf_topo_new(arena, source_of(&r));
    sf_matrix *matrices = SF_NEW_ARRAY(arena, sf_matrix, r.block_count);
    size_t count = 0;
    for (size_t i = 0; i < r.block_count; i++) {
        sf_smi_block *b = &r.blocks[i];
        if (b->name_count > SF_TOPO_MOST_DEVICES || b->row_count > SF_TOPO_MOST_DEVICES)
            return SF_FAIL(SF_EPARSE, "'%s', line %d: a matrix of more than %d devices is not that of one machine", name,
                           b->line > 0 ? b->line : b->rows[0].line, SF_TOPO_MOST_DEVICES);
        if (count >= SF_TOPO_MOST_HOSTS)
            return SF_FAIL(SF_EPARSE, "'%s': more than %d matrices", name, SF_TOPO_MOST_HOSTS);
        if (!sf_smi_block_matrix(b, t, arena, &matrices[count]))
            continue;
        if (count > 0 && merge_pcie_view(&matrices[count - 1], &matrices[count]))
            continue;
        count++;
    }
    if (count == 0)
        return SF_FAIL(SF_EPARSE, "'%s' is not a topology: none of its %zu lines is a row of a matrix, a name such as GPU0 followed by X, NV12, SYS or the like",
                       name, r.line_count);
    sf_smi_read_notes(r.lines, r.line_count, matrices, count, arena);
    for (size_t i = 0; i < r.block_count; i++)
        if (r.blocks[i].table == SF_TABLE_WEIGHTS)
            for (size_t k = 0; k < count; k++)
                sf_smi_apply_weights(&r.blocks[i], &matrices[k]);
    sf_gpu found;
    const char *model = sf_smi_model(matrices, count);
    if (gpu == NULL && model[0] != '\0' && sf_gpu_find(model, 0, arena, &found).code == SF_OK)
        gpu = &found; /* its number of NVLinks tells switches from meshes */
    for (size_t i = 0; i < count; i++) {
        settle_plain_pcie(&r, &matrices[i]);
        sf_topo_add_matrix(t, arena, &matrices[i], gpu == NULL ? 0 : gpu->nvlink_links);
    }
    if (count > 1)
        sf_topo_warn(t, arena, 0, "the text holds %zu matrices; each is taken for a machine of its own", count);
    *out = t;
    return SF_SUCCESS;
}
