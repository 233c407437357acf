/* Pastes of topology matrices as people damage them. The rule: what can be read is read, what cannot is
 * told with its line, and no cell is ever wrong. */
#include "tests/model/topology_testing.h"

#include <ctype.h>

/* ---- a real file, damaged in a certain way ---- */

typedef void damage(const char *text, sf_text *out);

static bool is_row(const char *line)
{
    while (*line == ' ' || *line == '\t' || *line == '|')
        line++;
    if (!sf_str_starts(line, "GPU") && !sf_str_starts(line, "NIC") && !sf_str_starts(line, "mlx"))
        return false;
    line += strcspn(line, " \t|");
    while (*line == ' ' || *line == '\t' || *line == '|')
        line++;
    return strncmp(line, "X", 1) == 0 || sf_str_starts(line, "NV") || sf_str_starts(line, "PIX") || sf_str_starts(line, "PXB") ||
           sf_str_starts(line, "PHB") || sf_str_starts(line, "NODE") || sf_str_starts(line, "SYS") || sf_str_starts(line, "SOC");
}

static bool is_header(const char *line)
{
    return !is_row(line) && strstr(line, "GPU0") != NULL;
}

/* Calls `each` with every line, without its end. */
static void for_lines(const char *text, void (*each)(const char *line, sf_text *out), sf_text *out)
{
    while (*text != '\0') {
        char line[2048];
        size_t n = strcspn(text, "\r\n");
        assert_true(n < sizeof line);
        memcpy(line, text, n);
        line[n] = '\0';
        each(line, out);
        text += n + (text[n] == '\r');
        text += *text == '\n';
    }
}

static void expand_tabs(const char *line, char *out)
{
    size_t n = 0;
    for (; *line != '\0' && n < 4000; line++)
        do
            out[n++] = *line == '\t' ? ' ' : *line;
        while (*line == '\t' && n % 8 != 0);
    out[n] = '\0';
}

static void one_blank(const char *line, sf_text *out)
{
    bool gap = true;
    for (; *line != '\0'; line++) {
        bool blank = *line == ' ' || *line == '\t';
        if (!blank || !gap)
            sf_text_append(out, blank ? " " : line, 1);
        gap = blank;
    }
    sf_text_add(out, "\n");
}
static void blanks_are_squeezed(const char *text, sf_text *out) { for_lines(text, one_blank, out); }

static void run_on(const char *line, sf_text *out)
{
    if (is_row(line) || is_header(line)) {
        one_blank(line, out);
        out->data[out->len - 1] = ' ';
    }
}
static void all_is_one_line(const char *text, sf_text *out) { for_lines(text, run_on, out); }

static void glue(const char *line, sf_text *out)
{
    if (!is_row(line)) {
        sf_text_add(out, "%s\n", line);
        return;
    }
    for (const char *p = line; *p != '\0'; p++) /* up to the affinities, which have no letters before them */
        if ((*p != ' ' && *p != '\t' && *p != '|') || isdigit((unsigned char)p[1]) || sf_str_starts(p + 1, "N/A"))
            sf_text_append(out, p, 1);
    sf_text_add(out, "\n");
}
static void cells_are_glued(const char *text, sf_text *out) { for_lines(text, glue, out); }

static void no_header(const char *line, sf_text *out)
{
    if (!is_header(line))
        sf_text_add(out, "%s\n", line);
}
static void the_header_is_gone(const char *text, sf_text *out) { for_lines(text, no_header, out); }

static void tagged(const char *line, sf_text *out) { sf_text_add(out, "node7: %s\n", line); }
static void lines_are_tagged(const char *text, sf_text *out) { for_lines(text, tagged, out); }

static void stamped(const char *line, sf_text *out) { sf_text_add(out, "2024-05-01 12:00:0%zu INFO [rank0] %s\n", out->len % 10, line); }
static void lines_are_logged(const char *text, sf_text *out) { for_lines(text, stamped, out); }

static void twice(const char *line, sf_text *out) { sf_text_add(out, "n1: %s\nn2: %s\n", line, line); }
static void two_machines_are_interleaved(const char *text, sf_text *out) { for_lines(text, twice, out); }

static void escaped(const char *line, sf_text *out)
{
    for (; *line != '\0'; line++) {
        if (*line == '\t')
            sf_text_add(out, "\\t");
        else if (*line == '"')
            sf_text_add(out, "\\\"");
        else if (*line >= ' ')
            sf_text_append(out, line, 1);
    }
    sf_text_add(out, "\\n");
}
static void it_is_a_quoted_string(const char *text, sf_text *out)
{
    sf_text_add(out, "{'topology': \"");
    for_lines(text, escaped, out);
    sf_text_add(out, "\"}");
}

static void cells_of_html(const char *line, sf_text *out)
{
    if (!is_row(line) && !is_header(line))
        return;
    sf_text_add(out, "<tr>");
    for (const char *p = line; *p != '\0';) {
        size_t n = strcspn(p, " \t|");
        if (n > 0)
            sf_text_add(out, "<td>%.*s</td>", (int)n, p);
        p += n + (p[n] != '\0');
    }
    sf_text_add(out, "</tr>\n");
}
static void it_is_a_table_of_a_page(const char *text, sf_text *out)
{
    sf_text_add(out, "<table>\n");
    for_lines(text, cells_of_html, out);
    sf_text_add(out, "</table>\n");
}

static int column; /* of the damages below */
static void wrapped(const char *line, sf_text *out)
{
    char flat[4096];
    expand_tabs(line, flat);
    size_t n = strlen(flat);
    for (size_t at = 0; at == 0 || at < n; at += (size_t)column)
        sf_text_add(out, "%.*s\n", column, flat + at);
}
static void lines_are_broken(const char *text, sf_text *out) { for_lines(text, wrapped, out); }

static void cut_right(const char *line, sf_text *out)
{
    char flat[4096];
    expand_tabs(line, flat);
    sf_text_add(out, "%.*s\n", column, flat);
}
static void lines_are_cut_at_the_right(const char *text, sf_text *out) { for_lines(text, cut_right, out); }

static void cut_left(const char *line, sf_text *out)
{
    char flat[4096];
    expand_tabs(line, flat);
    sf_text_add(out, "%s\n", strlen(flat) > (size_t)column ? flat + column : "");
}
static void lines_are_cut_at_the_left(const char *text, sf_text *out) { for_lines(text, cut_left, out); }

typedef struct {
    int right, unknown, wrong, refused;
} score;

/* Cells of the damaged paste against those of the whole one, by the devices' names. */
static score compare(const char *path, damage *how)
{
    sf_arena arena = { 0 };
    size_t len;
    score s = { 0 };
    sf_topology *whole, *read;
    sf_text text = { 0 };
    const char *good = file_text(path, &arena, &len);
    assert_int_equal(sf_topology_parse(good, len, path, NULL, &arena, &whole).code, SF_OK);
    how(good, &text);
    if (sf_topology_parse(sf_text_str(&text), text.len, "damaged", NULL, &arena, &read).code != SF_OK) {
        s.refused = 1;
    } else {
        assert_true(sf_topology_is_valid(read));
        for (size_t h = 0; h < read->host_count; h++) {
            const sf_topo_host *host = &read->hosts[h];
            int n = host->gpu_count + host->nic_count;
            for (int i = 0; i < n * n; i++) {
                int a = i / n, b = i % n;
                int x = a < host->gpu_count ? host->gpus[a] : host->nics[a - host->gpu_count];
                int y = b < host->gpu_count ? host->gpus[b] : host->nics[b - host->gpu_count];
                int p = named(whole, 0, read->nodes[x].name), q = named(whole, 0, read->nodes[y].name);
                sf_topo_path got = sf_topology_path(read, x, y);
                if (got.type == SF_PATH_UNKNOWN || got.inferred || p < 0 || q < 0) {
                    s.unknown++; /* a name cut in two is a name we do not know */
                    continue;
                }
                sf_topo_path real = sf_topology_path(whole, p, q);
                if (real.inferred) { /* the damaged paste may not know more than the whole one */
                    s.wrong++;
                    continue;
                }
                bool same = got.type == real.type && got.links == real.links;
                if (!same && s.wrong++ == 0)
                    print_message("%s: %s to %s\n%s", path, read->nodes[x].name, read->nodes[y].name, sf_text_str(&text));
                s.right += same;
            }
        }
    }
    sf_text_free(&text);
    sf_arena_free(&arena);
    return s;
}

static score compare_all(damage *how)
{
    sf_arena arena = { 0 };
    char **paths;
    score sum = { 0 };
    size_t count = data_files("topo", ".txt", &arena, &paths);
    for (size_t i = 0; i < count; i++) {
        score s = compare(paths[i], how);
        assert_int_equal(s.wrong, 0);
        sum.right += s.right;
        sum.unknown += s.unknown;
        sum.refused += s.refused;
    }
    sf_arena_free(&arena);
    return sum;
}

/* 2866 pairs of devices are in the 49 files; 68 of them (NICs of two markdown tables) are not stated. */
enum { STATED = 2798 };

static void damage_that_loses_nothing_loses_nothing(void **state)
{
    (void)state;
    damage *const harmless[] = { blanks_are_squeezed, all_is_one_line, cells_are_glued, lines_are_tagged, lines_are_logged,
                                 it_is_a_quoted_string, it_is_a_table_of_a_page };
    for (size_t i = 0; i < sizeof harmless / sizeof harmless[0]; i++) {
        score s = compare_all(harmless[i]);
        assert_int_equal(s.refused, 0);
        assert_true(s.right >= STATED - 2); /* glued "PIXmlx5_0" may hide a name */
    }
}

static void the_rows_tell_what_a_lost_header_said(void **state)
{
    (void)state;
    score s = compare_all(the_header_is_gone);
    assert_int_equal(s.refused, 0);
    assert_true(s.right >= STATED - 120); /* NICs that have no row have no name then */
}

static void interleaved_machines_are_kept_apart(void **state)
{
    (void)state;
    score s = compare_all(two_machines_are_interleaved);
    assert_int_equal(s.refused, 0);
    assert_true(s.right >= 2 * STATED - 300);
}

static void lines_broken_by_a_terminal_are_joined(void **state)
{
    (void)state;
    static const int widths[] = { 79, 100, 120, 132 };
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        column = widths[i];
        score s = compare_all(lines_are_broken);
        assert_int_equal(s.refused, 0);
        assert_int_equal(s.right, STATED);
    }
}

static void a_cut_paste_has_no_wrong_cell_wherever_it_is_cut(void **state)
{
    (void)state;
    for (column = 1; column < 100; column += 3) {
        compare_all(lines_are_cut_at_the_right);
        compare_all(lines_are_cut_at_the_left);
    }
}

/* ---- single cases ---- */

static void a_row_that_ends_early_is_filled_from_the_other_rows_with_a_warning(void **state)
{
    (void)state;
    sf_arena a = { 0 };
    sf_topology *t = topology_of("\tGPU0\tGPU1\tGPU2\n"
                                 "GPU0\t X \tPIX\n"
                                 "GPU1\tPIX\t X \tSYS\n"
                                 "GPU2\tSYS\tSYS\t X \n", &a);
    assert_string_equal(path_text(t, "GPU0", "GPU2", &a), "SYS");
    assert_true(warns_of(t, "line 2: the row of GPU0 ends after 2 of 3 cells"));
    assert_int_equal(t->warning_count, 1);
    sf_arena_free(&a);
}

static void a_missing_row_is_told_and_its_cells_come_from_the_column(void **state)
{
    (void)state;
    sf_arena a = { 0 };
    sf_topology *t = topology_of("     GPU0 GPU1 GPU2 CPU Affinity\n"
                                 "GPU0  X   NV4  PHB  0-7\n"
                                 "GPU1 NV4   X   PHB  0-7\n", &a);
    assert_int_equal(t->hosts[0].gpu_count, 3);
    assert_string_equal(path_text(t, "GPU2", "GPU1", &a), "PHB");
    assert_true(warns_of(t, "line 1: no row for GPU2"));
    sf_arena_free(&a);
}

static void a_blank_column_between_tabs_is_that_column(void **state)
{
    (void)state;
    sf_arena a = { 0 };
    sf_topology *t = topology_of("\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\n"
                                 "GPU0\t X \t\tPIX\t0-7\t0\n"
                                 "GPU1\tSYS\t X \tSYS\t8-15\t1\n"
                                 "NIC0\tPIX\tSYS\t X \n", &a);
    assert_string_equal(path_text(t, "GPU0", "GPU1", &a), "SYS");
    assert_string_equal(path_text(t, "GPU0", "NIC0", &a), "PIX");
    assert_true(warns_of(t, "line 2: the row of GPU0 has 2 of 3 cells"));
    sf_arena_free(&a);
}

static void a_blank_column_between_blanks_is_found_below_the_header(void **state)
{
    (void)state;
    sf_arena a = { 0 };
    sf_topology *t = topology_of("        GPU0    GPU1    GPU2    GPU3\n"
                                 "GPU0     X      NV1     NV1     SYS\n"
                                 "GPU1    NV1      X      SYS     NV1\n"
                                 "GPU2            SYS      X      NV1\n"
                                 "GPU3    SYS     NV1     NV1      X\n", &a);
    assert_string_equal(path_text(t, "GPU2", "GPU1", &a), "SYS");
    assert_string_equal(path_text(t, "GPU2", "GPU0", &a), "NV1");
    assert_true(warns_of(t, "line 4: the row of GPU2 has 3 of 4 cells"));
    sf_arena_free(&a);
}

static void halves_that_disagree_are_told_and_the_farther_path_is_used(void **state)
{
    (void)state;
    sf_arena a = { 0 };
    sf_topology *t = topology_of("     GPU0 GPU1\nGPU0  X   PIX\nGPU1 SYS   X\n", &a);
    assert_string_equal(path_text(t, "GPU0", "GPU1", &a), "SYS");
    assert_true(warns_of(t, "line 2: GPU0 to GPU1 is PIX but GPU1 to GPU0 (line 3) is SYS; SYS is used"));
    sf_arena_free(&a);
}

static void numbers_of_gpus_need_not_follow_each_other(void **state)
{
    (void)state;
    sf_arena a = { 0 };
    sf_topology *t = topology_of("\tGPU0\tGPU2\tGPU5\tmlx5_bond_0\tCPU Affinity\n"
                                 "GPU0\t X \tPIX\tSYS\tPIX\t0-7\nGPU2\tPIX\t X \tSYS\tPIX\t0-7\n"
                                 "GPU5\tSYS\tSYS\t X \tSYS\t8-15\nmlx5_bond_0\tPIX\tPIX\tSYS\t X \n", &a);
    assert_int_equal(t->hosts[0].gpu_count, 3);
    assert_int_equal(t->nodes[t->hosts[0].gpus[2]].ordinal, 5);
    assert_string_equal(path_text(t, "GPU5", "GPU2", &a), "SYS");
    int nic;
    sf_topo_path_type type;
    assert_int_equal(sf_topology_nearest_nics(t, t->hosts[0].gpus[1], &nic, 1, &type), 1);
    assert_string_equal(t->nodes[nic].device, "mlx5_bond_0");
    assert_int_equal(type, SF_PATH_PIX);
    sf_arena_free(&a);
}

/* "NV180-23" is NV18 and the CPUs 0-23, not NV1 and 80-23: the other cells say NV18. */
static void digits_run_together_are_told_apart_by_the_other_cells(void **state)
{
    (void)state;
    sf_arena a = { 0 };
    sf_topology *t = topology_of("GPU0GPU1GPU2CPU Affinity\nGPU0XNV18NV180-23\nGPU1NV18XNV180-23\nGPU2NV18NV18X0-23\n", &a);
    assert_string_equal(path_text(t, "GPU0", "GPU2", &a), "NV18");
    assert_string_equal(t->nodes[named(t, 0, "CPU0")].cpus, "0-23");
    t = topology_of("GPU0GPU1GPU2CPU Affinity\nGPU0XNV1NV180-90\nGPU1NV1XNV180-90\nGPU2NV1NV1X80-90\n", &a);
    assert_string_equal(path_text(t, "GPU0", "GPU2", &a), "NV1");
    assert_string_equal(t->nodes[named(t, 0, "CPU0")].cpus, "80-90");
    sf_arena_free(&a);
}

static void rows_without_names_are_placed_by_their_x(void **state)
{
    (void)state;
    sf_arena a = { 0 };
    sf_topology *t = topology_of(" X  NV2 SYS\nNV2  X  SYS\nSYS SYS  X\n", &a);
    assert_string_equal(path_text(t, "GPU0", "GPU1", &a), "NV2");
    assert_true(warns_of(t, "line 1: neither header nor rows are named; they are taken for GPU0 to GPU2"));
    sf_arena_free(&a);
}

static void matrix_with_nvlink_and_matrix_without_are_one_machine(void **state)
{
    (void)state;
    sf_arena a = { 0 };
    sf_topology *t = topology_of("$ nvidia-smi topo -m\n\tGPU0\tGPU1\nGPU0\t X \tNV12\nGPU1\tNV12\t X \n"
                                 "$ nvidia-smi topo -mp\n\tGPU0\tGPU1\nGPU0\t X \tPXB\nGPU1\tPXB\t X \n", &a);
    assert_int_equal(t->host_count, 1);
    int g0 = named(t, 0, "GPU0"), g1 = named(t, 0, "GPU1");
    assert_int_equal(sf_topology_path(t, g0, g1).type, SF_PATH_NVLINK);
    assert_int_equal(sf_topology_path_pcie(t, g0, g1).type, SF_PATH_PXB);
    sf_arena_free(&a);
}

static void two_different_matrices_are_two_machines(void **state)
{
    (void)state;
    sf_arena a = { 0 };
    sf_topology *t = topology_of("host a:\n\tGPU0\tGPU1\nGPU0\t X \tSYS\nGPU1\tSYS\t X \n"
                                 "host b:\n\tGPU0\tGPU1\tGPU2\nGPU0\t X \tPHB\tPHB\nGPU1\tPHB\t X \tPHB\nGPU2\tPHB\tPHB\t X \n", &a);
    assert_int_equal(t->host_count, 2);
    assert_int_equal(t->hosts[1].gpu_count, 3);
    assert_int_equal(sf_topology_gpus(t), 5);
    assert_true(warns_of(t, "the text holds 2 matrices"));
    sf_arena_free(&a);
}

static void models_named_around_the_matrix_are_read(void **state)
{
    (void)state;
    sf_arena a = { 0 };
    sf_topology *t = topology_of("GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-0)\nGPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-1)\n"
                                 "\tGPU0\tGPU1\nGPU0\t X \tSYS\nGPU1\tSYS\t X \n", &a);
    assert_string_equal(sf_topology_gpu_model(t), "NVIDIA A100-SXM4-80GB");
    t = topology_of("|   0  NVIDIA H100 80GB HBM3          On  | 00000000:0F:00.0 Off |                    0 |\n"
                    "\tGPU0\tCPU Affinity\nGPU0\t X \t0-7\n", &a);
    assert_string_equal(sf_topology_gpu_model(t), "NVIDIA H100 80GB HBM3");
    assert_string_equal(t->nodes[t->hosts[0].gpus[0]].busid, "00000000:0F:00.0");
    sf_arena_free(&a);
}

static void matrices_of_other_makers_are_read(void **state)
{
    (void)state;
    sf_arena a = { 0 };
    sf_topology *t = topology_of("============ ROCm System Management Interface ============\n"
                                 "================ Weight between two GPUs =================\n"
                                 "       GPU0         GPU1         GPU2\nGPU0   0            15           72\n"
                                 "GPU1   15           0            40\nGPU2   72           40           0\n\n"
                                 "================= Hops between two GPUs ==================\n"
                                 "       GPU0         GPU1         GPU2\nGPU0   0            1            3\n"
                                 "GPU1   1            0            2\nGPU2   3            2            0\n\n"
                                 "=============== Link Type between two GPUs ===============\n"
                                 "       GPU0         GPU1         GPU2\nGPU0   0            XGMI         PCIE\n"
                                 "GPU1   XGMI         0            PCIE\nGPU2   PCIE         PCIE         0\n"
                                 "======================= Numa Nodes =======================\n"
                                 "GPU[0]\t\t: (Topology) Numa Node: 0\nGPU[1]\t\t: (Topology) Numa Node: 1\n", &a);
    assert_int_equal(t->host_count, 1);
    assert_int_equal(t->hosts[0].gpu_link, SF_TOPO_LINK_XGMI);
    assert_int_equal(sf_topology_path(t, named(t, 0, "GPU0"), named(t, 0, "GPU1")).type, SF_PATH_NVLINK);
    assert_string_equal(path_text(t, "GPU0", "GPU2", &a), "SYS"); /* weight 72: another socket */
    assert_string_equal(path_text(t, "GPU1", "GPU2", &a), "PHB"); /* weight 40: two PCIe hops of 20 */
    assert_int_equal(t->nodes[named(t, 0, "GPU1")].numa, 1);

    t = topology_of("mx-smi topo -m\n        GPU0    GPU1    Node Affinity  CPU Affinity\n"
                    "GPU0    X       MX      0              0-31,64-95\nGPU1    MX      X       0              0-31,64-95\n", &a);
    assert_int_equal(t->hosts[0].gpu_link, SF_TOPO_LINK_GPU_LINK);
    assert_string_equal(t->nodes[named(t, 0, "NUMA0")].cpus, "0-31,64-95");

    t = topology_of("\t   NPU0       NPU1       CPU Affinity\nNPU0       X          HCCS       144-167\nNPU1       HCCS       X          144-167\n", &a);
    assert_string_equal(t->hosts[0].gpu_link_name, "HCCS");

    /* a word that only the legend explains */
    t = topology_of("     GPU0 GPU1\nGPU0  X   QQ\nGPU1 QQ   X\n\nLegend:\n  QQ = Connection traversing QuickLink\n", &a);
    assert_int_equal(sf_topology_path(t, named(t, 0, "GPU0"), named(t, 0, "GPU1")).type, SF_PATH_NVLINK);
    sf_arena_free(&a);
}

static void what_is_no_topology_is_refused_with_what_it_is(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        { "", "is empty" },
        { " \n\t\n", "is empty" },
        { "$ nvidia-smi topo -p2p r\n \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n  CNS  = Chipset not supported\n",
          "peer-to-peer matrix of `nvidia-smi topo -p2p`" },
        { " \tGPU0\tGPU1\n GPU0\tX\tCNS\n GPU1\tCNS\tX\n", "peer-to-peer matrix" },
        { "GPU 0: NVIDIA H100 (UUID: GPU-x)\n\t Link 0: 26.562 GB/s\n", "`nvidia-smi nvlink`" },
        { "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", "no driver was running" },
        { "bash: nvidia-smi: command not found\n", "error message of the shell" },
        { "No devices were found\n", "there was no GPU" },
        { "Legend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe\n", "holds the legend of a topology but no row" },
        { "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\n", "holds the header of a topology but no row" },
        { "GPU0 and GPU1 are joined by NVLink, I think.\nX marks the spot.\n", "none of its 2 lines is a row" },
        { "node1:1:1 [0] NCCL INFO Channel 00/24 : 0 1 2 3\n", "it is an NCCL log" },
        { "{\"model\": \"llama\"}", "the JSON is no topology" },
        { "{\"schema\": ", "not well-formed JSON" },
        { "<graphs version=\"1\"></graphs>", "NCCL's graph file" },
        { "<?xml version=\"1.0\"?>\n<topology version=\"2.0\"></topology>", "hwloc's XML (lstopo)" },
        { "<?xml version=\"1.0\"?>\n<nvidia_smi_log></nvidia_smi_log>", "`nvidia-smi -q -x`" },
    };
    sf_arena a = { 0 };
    sf_topology *t;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_says(refusal_of(cases[i].text, &a), cases[i].says);
    static const char binary[] = "GPU0\0GPU1";
    sf_status st = sf_topology_parse(binary, sizeof binary, "core", NULL, &a, &t);
    assert_says(st.msg, "'core' is not text: byte 5 is zero");
    sf_arena_free(&a);
}

static void a_file_of_windows_is_read(void **state)
{
    (void)state;
    static const char text[] = "\tGPU0\tGPU1\r\nGPU0\t X \tPHB\r\nGPU1\tPHB\t X \r\n";
    char wide[2 * sizeof text + 2] = "\xff\xfe";
    sf_arena a = { 0 };
    sf_topology *t;
    for (size_t i = 0; i + 1 < sizeof text; i++)
        wide[2 + 2 * i] = text[i];
    assert_int_equal(sf_topology_parse(wide, 2 * sizeof text, "wide", NULL, &a, &t).code, SF_OK);
    assert_string_equal(path_text(t, "GPU0", "GPU1", &a), "PHB");
    sf_arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damage_that_loses_nothing_loses_nothing),
        cmocka_unit_test(the_rows_tell_what_a_lost_header_said),
        cmocka_unit_test(interleaved_machines_are_kept_apart),
        cmocka_unit_test(lines_broken_by_a_terminal_are_joined),
        cmocka_unit_test(a_cut_paste_has_no_wrong_cell_wherever_it_is_cut),
        cmocka_unit_test(a_row_that_ends_early_is_filled_from_the_other_rows_with_a_warning),
        cmocka_unit_test(a_missing_row_is_told_and_its_cells_come_from_the_column),
        cmocka_unit_test(a_blank_column_between_tabs_is_that_column),
        cmocka_unit_test(a_blank_column_between_blanks_is_found_below_the_header),
        cmocka_unit_test(halves_that_disagree_are_told_and_the_farther_path_is_used),
        cmocka_unit_test(numbers_of_gpus_need_not_follow_each_other),
        cmocka_unit_test(digits_run_together_are_told_apart_by_the_other_cells),
        cmocka_unit_test(rows_without_names_are_placed_by_their_x),
        cmocka_unit_test(matrix_with_nvlink_and_matrix_without_are_one_machine),
        cmocka_unit_test(two_different_matrices_are_two_machines),
        cmocka_unit_test(models_named_around_the_matrix_are_read),
        cmocka_unit_test(matrices_of_other_makers_are_read),
        cmocka_unit_test(what_is_no_topology_is_refused_with_what_it_is),
        cmocka_unit_test(a_file_of_windows_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
