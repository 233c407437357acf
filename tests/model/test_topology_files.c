/* Real files and what is understood of each, kept as text beside it (checked against the file by
 * reading; after a wanted change of the text: shardfit topo FILE > FILE.expected, and read the diff). */
#include "tests/model/topology_testing.h"

static void assert_file_reads_as_expected(const char *path)
{
    sf_arena arena = { 0 };
    sf_topology *t;
    sf_text got = { 0 };
    size_t len;
    const char *stem = sf_arena_strndup(&arena, path, (size_t)(strrchr(path, '.') - path));
    const char *expected = file_text(sf_arena_printf(&arena, "%s.expected", stem), &arena, &len);
    sf_status st = sf_topology_open(path, NULL, &arena, &t);
    if (st.code != SF_OK)
        print_message("%s\n", st.msg);
    assert_int_equal(st.code, SF_OK);
    assert_true(sf_topology_is_valid(t));
    sf_topology_print(t, &got);
    if (strcmp(sf_text_str(&got), expected) != 0)
        print_message("%s reads as\n%s", path, sf_text_str(&got));
    assert_string_equal(sf_text_str(&got), expected);
    sf_text_free(&got);
    sf_arena_free(&arena);
}

static void every_pasted_matrix_reads_as_expected(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    char **paths;
    size_t count = data_files("topo", ".txt", &arena, &paths);
    assert_int_equal(count, 49);
    for (size_t i = 0; i < count; i++)
        assert_file_reads_as_expected(paths[i]);
    sf_arena_free(&arena);
}

static void every_nccl_file_reads_as_expected(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    char **paths;
    size_t count = data_files("nccl-topo", ".xml", &arena, &paths);
    assert_int_equal(count, 21);
    for (size_t i = 0; i < count; i++)
        assert_file_reads_as_expected(paths[i]);
    sf_arena_free(&arena);
}

/* Written as JSON and read back, a topology prints the same, and as JSON again it is the same text. */
static void json_gives_back_the_same_topology(void **state)
{
    (void)state;
    static const char *const folders[][2] = { { "topo", ".txt" }, { "nccl-topo", ".xml" } };
    for (int f = 0; f < 2; f++) {
        sf_arena arena = { 0 };
        char **paths;
        size_t count = data_files(folders[f][0], folders[f][1], &arena, &paths);
        for (size_t i = 0; i < count; i++) {
            sf_topology *t, *back;
            sf_text json = { 0 }, again = { 0 }, text = { 0 }, text_again = { 0 };
            assert_int_equal(sf_topology_open(paths[i], NULL, &arena, &t).code, SF_OK);
            sf_topology_json(t, &json);
            back = topology_of(sf_text_str(&json), &arena);
            sf_topology_json(back, &again);
            assert_string_equal(sf_text_str(&again), sf_text_str(&json));
            sf_topology_print(t, &text);
            sf_topology_print(back, &text_again);
            assert_string_equal(sf_text_str(&text_again), sf_text_str(&text));
            sf_text_free(&json);
            sf_text_free(&again);
            sf_text_free(&text);
            sf_text_free(&text_again);
        }
        sf_arena_free(&arena);
    }
}

/* The graph made from a matrix has the matrix's PCIe paths. Left out are machines of which the matrix
 * itself contradicts its NUMA column (GPUs of one node that are SYS apart). */
static void the_graph_of_a_matrix_has_the_paths_of_the_matrix(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    char **paths;
    size_t count = data_files("topo", ".txt", &arena, &paths);
    int compared = 0, contradictions = 0;
    for (size_t i = 0; i < count; i++) {
        sf_topology *t;
        assert_int_equal(sf_topology_open(paths[i], NULL, &arena, &t).code, SF_OK);
        bool contradicts_itself = false;
        for (size_t w = 0; w < t->warning_count; w++)
            contradicts_itself = contradicts_itself || strstr(t->warnings[w], "SYS apart") != NULL;
        contradictions += contradicts_itself;
        if (contradicts_itself)
            continue;
        sf_topo_host *host = &t->hosts[0];
        int n = host->gpu_count + host->nic_count;
        const sf_topo_cell *reported = host->reported;
        host->reported = NULL; /* only the graph is asked */
        for (int a = 0; a < n; a++) {
            for (int b = 0; b < n; b++) {
                int x = a < host->gpu_count ? host->gpus[a] : host->nics[a - host->gpu_count];
                int y = b < host->gpu_count ? host->gpus[b] : host->nics[b - host->gpu_count];
                sf_topo_path path = sf_topology_path(t, x, y);
                sf_topo_cell cell = reported[a * n + b];
                if (cell.path == SF_PATH_NVLINK) {
                    assert_int_equal(path.type, SF_PATH_NVLINK);
                    assert_int_equal(path.links, cell.links);
                } else if (cell.path != SF_PATH_UNKNOWN && path.type != SF_PATH_UNKNOWN) {
                    if (path.type != cell.path)
                        print_message("%s: %s to %s\n", paths[i], t->nodes[x].name, t->nodes[y].name);
                    assert_string_equal(sf_topo_path_name(path.type), sf_topo_path_name(cell.path));
                    compared++;
                }
            }
        }
    }
    assert_int_equal(contradictions, 3);
    assert_true(compared > 1000);
    sf_arena_free(&arena);
}

static void a_picture_is_whole_xml_with_every_gpu(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    sf_topology *t;
    sf_text svg = { 0 };
    assert_int_equal(sf_topology_open(SF_TEST_DATA "/nccl-topo/oci-h100-topology.xml", NULL, &arena, &t).code, SF_OK);
    sf_topology_svg(t, &svg);
    assert_true(sf_str_starts(sf_text_str(&svg), "<svg "));
    assert_non_null(strstr(sf_text_str(&svg), "</svg>"));
    for (int g = 0; g < 8; g++)
        assert_non_null(strstr(sf_text_str(&svg), sf_arena_printf(&arena, ">GPU%d</text>", g)));
    /* as XML it is well-formed, only no topology */
    assert_says(refusal_of(sf_text_str(&svg), &arena), "the XML is a <svg>");
    sf_text_free(&svg);
    sf_arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pasted_matrix_reads_as_expected),
        cmocka_unit_test(every_nccl_file_reads_as_expected),
        cmocka_unit_test(json_gives_back_the_same_topology),
        cmocka_unit_test(the_graph_of_a_matrix_has_the_paths_of_the_matrix),
        cmocka_unit_test(a_picture_is_whole_xml_with_every_gpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
