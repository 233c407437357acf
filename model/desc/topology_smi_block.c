#include "model/desc/topology_smi.h"

#include <stdlib.h>
#include <string.h>

/* The columns of a block while they are found out. */
typedef struct {
    const char **names;  /* (count) NULL: not known */
    int count;
    int lost;            /* cells that every row lacks at its left */
} column_list;

static bool is_self(const sf_tok *tok)
{
    return tok->kind == SF_TOK_CELL ? tok->cell.path == SF_PATH_SELF : tok->kind == SF_TOK_VALUE && strcmp(tok->text, "0") == 0;
}

static int self_at(const sf_smi_row *row, int expected)
{
    if (expected >= 0 && expected < (int)row->count && is_self(&row->cells[expected]))
        return expected;
    for (size_t i = 0; i < row->count; i++)
        if (is_self(&row->cells[i]))
            return (int)i;
    return -1;
}

/* The X of a row of which nothing else tells the place: -1 if there is none or more than one (a PIX cut
 * at the left edge looks like an X). */
static int lone_self(const sf_smi_row *row)
{
    int found = -1;
    for (size_t i = 0; i < row->count; i++) {
        if (!is_self(&row->cells[i]))
            continue;
        if (found >= 0)
            return -1;
        found = (int)i;
    }
    return found;
}

static int find_column(const column_list *cols, const char *name)
{
    for (int i = 0; name != NULL && i < cols->count; i++)
        if (cols->names[i] != NULL && strcmp(cols->names[i], name) == 0)
            return i;
    return -1;
}

/* How far the diagonal lies from where the header has it: the shift that most rows agree on. */
static int common_shift(const sf_smi_block *b, sf_arena *arena)
{
    int best = 0, best_votes = 0, voters = 0;
    int *shift = SF_NEW_ARRAY(arena, int, b->row_count);
    for (size_t r = 0; r < b->row_count; r++) {
        const sf_smi_row *row = &b->rows[r];
        int h = -1;
        for (size_t i = 0; row->label != NULL && i < b->name_count && h < 0; i++)
            if (strcmp(b->names[i].text, row->label) == 0)
                h = (int)i;
        int p = self_at(row, h);
        if (h >= 0 && p >= 0)
            shift[voters++] = p - h;
    }
    for (int i = 0; i < voters; i++) {
        int votes = 0;
        for (int j = 0; j < voters; j++)
            votes += shift[j] == shift[i];
        if (votes > best_votes) {
            best_votes = votes;
            best = shift[i];
        }
    }
    return 2 * best_votes > voters ? best : 0;
}

static void find_columns(const sf_smi_block *b, sf_topology *t, sf_arena *arena, column_list *cols)
{
    int shift = common_shift(b, arena), widest = 0, labelled_here = 0;
    for (size_t r = 0; r < b->row_count; r++)
        if ((int)b->rows[r].count > widest)
            widest = (int)b->rows[r].count;
    int from_header = (int)b->name_count + (shift > 0 ? shift : 0);
    int room = (from_header > widest ? from_header : widest) + (int)b->row_count + 1;
    cols->names = SF_NEW_ARRAY(arena, const char *, room);
    cols->lost = shift < 0 ? -shift : 0;
    cols->count = from_header;
    for (size_t i = 0; i < b->name_count; i++) {
        if (find_column(cols, b->names[i].text) >= 0)
            sf_topo_warn(t, arena, b->line, "the header names %s twice; its second column is left out", b->names[i].text);
        else
            cols->names[i + (size_t)(shift > 0 ? shift : 0)] = b->names[i].text;
    }
    if (b->line > 0 && shift > 0)
        sf_topo_warn(t, arena, b->line, "the header lacks its first %d name%s; the rows tell them", shift, shift > 1 ? "s" : "");
    if (shift < 0)
        sf_topo_warn(t, arena, b->rows[0].line, "the rows lack their first %d cell%s", -shift, shift < -1 ? "s" : "");

    int beyond = 0;
    for (size_t r = 0; r < b->row_count; r++) {
        const sf_smi_row *row = &b->rows[r];
        int p = lone_self(row);
        if (row->label == NULL || find_column(cols, row->label) >= 0)
            continue;
        p = p < 0 ? -1 : p + cols->lost;
        if (p >= 0 && p < room - 1 && (p >= cols->count || cols->names[p] == NULL)) {
            beyond += p >= from_header && b->line > 0;
            cols->names[p] = row->label;
            if (p >= cols->count)
                cols->count = p + 1;
            labelled_here++;
        }
    }
    if (beyond > 0)
        sf_topo_warn(t, arena, b->line, "the header ends before its last %d name%s; the rows tell them", beyond, beyond > 1 ? "s" : "");
    if (b->line == 0 && labelled_here > 0)
        sf_topo_warn(t, arena, b->rows[0].line, "the header is missing; the columns are named by the diagonal of the rows");
}

/* ---- one row ---- */

/* Where each cell of the row belongs: place[j] = column, -1 = nowhere. */
static bool place_by_field(const sf_smi_row *row, int self_column, int column_count, int *place)
{
    for (size_t j = 0; j < row->count; j++) {
        place[j] = row->cells[j].field - row->label_field - 1;
        if (place[j] < 0 || place[j] >= column_count || (j > 0 && place[j] <= place[j - 1]) ||
            (is_self(&row->cells[j]) != (place[j] == self_column)))
            return false;
    }
    return true;
}

static bool place_by_text_column(const sf_smi_block *b, const sf_smi_row *row, int self_column, int *place)
{
    for (size_t j = 0; j < row->count; j++) {
        int best = -1, best_distance = 5;
        for (size_t i = 0; i < b->name_count; i++) {
            int distance = abs(b->names[i].column - row->cells[j].column);
            if (distance < best_distance) {
                best_distance = distance;
                best = (int)i;
            }
        }
        place[j] = best;
        if (best < 0 || (j > 0 && best <= place[j - 1]) || is_self(&row->cells[j]) != (best == self_column))
            return false;
    }
    return true;
}

static void place_row(const sf_smi_block *b, const sf_smi_row *row, const column_list *cols, int d, sf_topology *t,
                      sf_arena *arena, int *place)
{
    const char *name = cols->names[d];
    int n = (int)row->count, whole = cols->count - cols->lost;
    int self = self_at(row, d - cols->lost), expected = d - cols->lost;
    for (int j = 0; j < n; j++)
        place[j] = j + cols->lost < cols->count ? j + cols->lost : -1;
    if (row->label != NULL && cols->lost == 0 && n != whole && place_by_field(row, d, cols->count, place)) {
        bool cut = n == 0 || place[n - 1] == n - 1;
        sf_topo_warn(t, arena, row->line, cut ? "the row of %s ends after %d of %d cells" : "the row of %s has %d of %d cells", name, n, whole);
        return;
    }
    for (int j = 0; j < n; j++)
        place[j] = j + cols->lost < cols->count ? j + cols->lost : -1;
    if (self == expected) {
        if (n < whole)
            sf_topo_warn(t, arena, row->line, "the row of %s ends after %d of %d cells", name, n, whole);
        else if (n > whole)
            sf_topo_warn(t, arena, row->line, "the row of %s has %d cells too many; they are left out", name, n - whole);
        return;
    }
    if (self < 0) {
        if (n <= expected) {
            sf_topo_warn(t, arena, row->line, "the row of %s ends after %d of %d cells", name, n, whole);
        } else if (n == whole - 1) { /* only the X itself is not there */
            sf_topo_warn(t, arena, row->line, "the row of %s has no X; its cells are placed around it", name);
            for (int j = expected; j < n; j++)
                place[j] = j + 1 + cols->lost;
        } else {
            sf_topo_warn(t, arena, row->line, "the row of %s has no X where it meets itself; it is left out", name);
            for (int j = 0; j < n; j++)
                place[j] = -1;
        }
        return;
    }
    if (b->line > 0 && place_by_text_column(b, row, d, place)) {
        sf_topo_warn(t, arena, row->line, "the row of %s has %d of %d cells; they are placed below the header's names", name, n, whole);
        return;
    }
    if (self < expected) {
        sf_topo_warn(t, arena, row->line, "the row of %s lacks %d cell%s before its X; only the cells behind the X are read", name,
                     expected - self, expected - self > 1 ? "s" : "");
        for (int j = 0; j < n; j++)
            place[j] = j < self || j + d - self >= cols->count ? -1 : j + d - self;
    } else {
        sf_topo_warn(t, arena, row->line, "the row of %s has its X in column %d instead of %d; it is left out", name, self + 1, expected + 1);
        for (int j = 0; j < n; j++)
            place[j] = -1;
    }
}

/* ---- affinities ---- */

static const char *without_na(const char *text)
{
    return strcmp(text, "N/A") == 0 ? "" : text;
}

static void set_affinity(sf_matrix_device *device, sf_head_word column, const char *text)
{
    if (text[0] == '\0' || strcmp(text, "N/A") == 0)
        return;
    if (column == SF_HEAD_CPU)
        device->cpus = text;
    else if (column == SF_HEAD_NUMA && text[0] != '-')
        device->numa = atoi(text); /* of a list as "0,5-11" the first is the CPUs' node, the others are the GPU's memory */
}

static void read_values(const sf_smi_block *b, const sf_smi_row *row, sf_arena *arena, sf_matrix_device *device)
{
    static const sf_head_word usual[] = { SF_HEAD_CPU, SF_HEAD_NUMA, SF_HEAD_GPU };
    const char *values[8];
    int fields[8];
    size_t count = 0;
    for (size_t i = 0; i < row->value_count && count < 8; i++) {
        const char *text = row->values[i].text;
        if (count > 0 && values[count - 1][0] != '\0' && values[count - 1][strlen(values[count - 1]) - 1] == ',')
            values[count - 1] = sf_arena_printf(arena, "%s%s", values[count - 1], text); /* "0-15, 32-47" */
        else {
            values[count] = text;
            fields[count++] = row->values[i].field;
        }
    }
    const sf_head_word *columns = b->columns;
    size_t column_count = b->column_count;
    if (column_count < count) { /* the header is cut: the order of the tool */
        columns = usual;
        column_count = 3;
    }
    int last_field = row->count > 0 ? row->cells[row->count - 1].field : row->label_field;
    bool fielded = count > 0 && fields[0] > last_field;
    for (size_t i = 0; i < count; i++) {
        size_t at = i;
        if (count < column_count && fielded && columns[0] == SF_HEAD_CPU) {
            at = (size_t)(fields[i] - last_field - 1); /* "cpu TAB numa TAB TAB gpu-numa" */
            at = at > 2 ? 2 : at;
        } else if (count < column_count && columns[0] == SF_HEAD_CPU && strpbrk(values[0], "-,") == NULL) {
            at = i + 1; /* one number is a NUMA node rather than a list of CPUs */
        }
        if (at < column_count)
            set_affinity(device, columns[at], without_na(values[i]));
    }
}

/* ---- the block ---- */

static int order_devices(const column_list *cols, sf_matrix *m, int *device_of)
{
    for (int gpus = 1; gpus >= 0; gpus--) {
        for (int c = 0; c < cols->count; c++) {
            if (cols->names[c] == NULL || sf_lex_is_gpu(cols->names[c]) != (gpus == 1))
                continue;
            device_of[c] = m->count;
            m->devices[m->count++] = (sf_matrix_device){
                .name = cols->names[c], .device = "", .busid = sf_lex_is_busid(cols->names[c]) ? cols->names[c] : "",
                .cpus = "", .numa = -1, .is_gpu = gpus == 1
            };
        }
    }
    return m->count;
}

/* The column that a row stands for: by its label, else by its X. */
static int column_of_row(const sf_smi_row *row, const column_list *cols, const bool *taken, sf_topology *t, sf_arena *arena)
{
    int d = find_column(cols, row->label);
    if (d >= 0)
        return d;
    int self = lone_self(row);
    if (self < 0 || self + cols->lost >= cols->count || cols->names[self + cols->lost] == NULL || taken[self + cols->lost]) {
        if (row->label != NULL)
            sf_topo_warn(t, arena, row->line, "the row '%s' belongs to no column; it is left out", row->label);
        else
            sf_topo_warn(t, arena, row->line, "a row without name and without X cannot be placed; it is left out");
        return -1;
    }
    d = self + cols->lost;
    if (row->label != NULL)
        sf_topo_warn(t, arena, row->line, "the row '%s' is taken for %s, whose place its X has", row->label, cols->names[d]);
    else
        sf_topo_warn(t, arena, row->line, "the row has no name; it is taken for %s, whose place its X has", cols->names[d]);
    return d;
}

/* Rows and header without any name: a square of paths with its diagonal is named GPU0, GPU1, ... */
static bool name_bare_square(const sf_smi_block *b, column_list *cols, sf_topology *t, sf_arena *arena)
{
    for (size_t r = 0; r < b->row_count; r++)
        if (b->rows[r].label != NULL || b->rows[r].count != b->row_count || !is_self(&b->rows[r].cells[r]))
            return false;
    cols->count = (int)b->row_count;
    for (int c = 0; c < cols->count; c++)
        cols->names[c] = sf_arena_printf(arena, "GPU%d", c);
    sf_topo_warn(t, arena, b->rows[0].line, "neither header nor rows are named; they are taken for GPU0 to GPU%d", cols->count - 1);
    return true;
}

static void warn_of_missing_rows(const sf_smi_block *b, const sf_matrix *m, sf_topology *t, sf_arena *arena)
{
    sf_text names = { 0 };
    int missing = 0;
    for (int i = 0; i < m->count; i++) {
        if (m->devices[i].row_line > 0)
            continue;
        if (missing++ < 12)
            sf_text_add(&names, " %s", m->devices[i].name);
    }
    if (missing > 0)
        sf_topo_warn(t, arena, b->line, "no row for%s%s: the paste is cut; what the other rows say of %s is used", sf_text_str(&names),
                     missing > 12 ? " ..." : "", missing > 1 ? "them" : "it");
    sf_text_free(&names);
}

/* Rows of which none has a name, below a header: the X of each must be as far from its row's number in
 * all of them. As many rows as names: row k is name k, and a diagonal off by some columns says that the
 * rows lack as many cells at their left. False if the rows cannot be placed. */
static bool place_bare_rows(sf_smi_block *b, sf_topology *t, sf_arena *arena)
{
    int shift = 0, with_x = 0;
    if (b->line == 0)
        return true;
    for (size_t r = 0; r < b->row_count; r++)
        if (b->rows[r].label != NULL)
            return true;
    for (size_t r = 0; r < b->row_count; r++) {
        const sf_smi_row *row = &b->rows[r];
        int p = -1, own = -1;
        for (size_t i = 0; i < row->count; i++) { /* a PIX cut to X may stand in front */
            if (!is_self(&row->cells[i]))
                continue;
            p = (int)i;
            if (with_x > 0 && (int)r - (int)i == shift)
                own = (int)i;
        }
        p = own >= 0 ? own : p;
        if (p < 0)
            continue;
        if (with_x++ > 0 && (int)r - p != shift) {
            sf_topo_warn(t, arena, row->line, "the rows have no names and the X of this one is not on the diagonal; the matrix is left out");
            return false;
        }
        shift = (int)r - p;
    }
    int lacking = (int)b->row_count - (int)b->name_count;
    if (lacking == 0 && shift >= 0) {
        sf_topo_warn(t, arena, b->line, "the rows have no names; they are taken in the order of the header");
        for (size_t r = 0; r < b->row_count; r++)
            b->rows[r].label = b->names[r].text;
    } else if (with_x == 0 || (shift > 0 && shift != lacking)) {
        sf_topo_warn(t, arena, b->line, "the rows have no names and their X does not tell them; the matrix is left out");
        return false;
    }
    return true;
}

bool sf_smi_block_matrix(sf_smi_block *b, sf_topology *t, sf_arena *arena, sf_matrix *out)
{
    column_list cols = { 0 };
    sf_matrix m = { .host = "", .link = SF_TOPO_LINK_NVLINK, .link_name = "NVLink" };
    if (b->row_count == 0 || b->table != SF_TABLE_PATHS || !place_bare_rows(b, t, arena))
        return false;
    if (b->key[0] != '\0')
        m.host = sf_arena_strndup(arena, b->key, strlen(b->key) - 1);
    find_columns(b, t, arena, &cols);
    if (b->line == 0 && cols.count == 0 && !name_bare_square(b, &cols, t, arena))
        return false;
    int *device_of = SF_NEW_ARRAY(arena, int, cols.count), widest = 0;
    bool *taken = SF_NEW_ARRAY(arena, bool, cols.count);
    for (int c = 0; c < cols.count; c++)
        device_of[c] = -1;
    m.devices = SF_NEW_ARRAY(arena, sf_matrix_device, cols.count);
    int n = order_devices(&cols, &m, device_of);
    m.cells = SF_NEW_ARRAY(arena, sf_topo_cell, (size_t)n * (size_t)n);
    for (int i = 0; i < n * n; i++)
        m.cells[i] = (sf_topo_cell){ i / n == i % n ? SF_PATH_SELF : SF_PATH_UNKNOWN, SF_PATH_UNKNOWN, 0 };
    for (size_t r = 0; r < b->row_count; r++)
        if ((int)b->rows[r].count > widest)
            widest = (int)b->rows[r].count;
    int *place = SF_NEW_ARRAY(arena, int, widest), placed = 0;

    for (size_t r = 0; r < b->row_count; r++) {
        const sf_smi_row *row = &b->rows[r];
        int d = column_of_row(row, &cols, taken, t, arena);
        if (d < 0)
            continue;
        if (taken[d]) {
            sf_topo_warn(t, arena, row->line, "a second row of %s is left out", cols.names[d]);
            continue;
        }
        taken[d] = true;
        place_row(b, row, &cols, d, t, arena, place);
        sf_matrix_device *device = &m.devices[device_of[d]];
        device->row_line = row->line;
        for (size_t j = 0; j < row->count; j++) {
            const sf_tok *tok = &row->cells[j];
            if (place[j] < 0 || place[j] == d || device_of[place[j]] < 0 || tok->kind != SF_TOK_CELL)
                continue;
            m.cells[(size_t)device_of[d] * (size_t)n + (size_t)device_of[place[j]]] = tok->cell;
            if (tok->cell.path == SF_PATH_NVLINK && tok->link != SF_TOPO_LINK_NVLINK) {
                m.link = tok->link;
                m.link_name = tok->link == SF_TOPO_LINK_XGMI ? "xGMI" : tok->text;
            }
            placed++;
        }
        if (device->is_gpu)
            read_values(b, row, arena, device);
    }
    if (placed == 0 && !(n == 1 && m.devices[0].row_line > 0))
        return false;
    warn_of_missing_rows(b, &m, t, arena);
    *out = m;
    return true;
}

void sf_smi_apply_weights(const sf_smi_block *b, sf_matrix *m)
{
    /* The kernel's driver weighs a PCIe hop 20 and adds the distance between sockets: two GPUs below
     * one NUMA node have 40, two below different ones more. */
    for (size_t r = 0; r < b->row_count; r++) {
        const sf_smi_row *row = &b->rows[r];
        int i = 0;
        while (i < m->count && (row->label == NULL || strcmp(m->devices[i].name, row->label) != 0))
            i++;
        for (size_t c = 0; i < m->count && c < row->count && c < b->name_count; c++) {
            int weight = atoi(row->cells[c].text);
            for (int j = 0; j < m->count; j++) {
                sf_topo_cell *cell = &m->cells[i * m->count + j];
                if (strcmp(m->devices[j].name, b->names[c].text) == 0 && cell->path == SF_PATH_UNKNOWN && weight > 0)
                    cell->path = weight <= 40 ? SF_PATH_PHB : SF_PATH_SYS;
            }
        }
    }
}
