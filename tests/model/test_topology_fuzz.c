/* Thousands of mutations of real files: every one is a valid topology or a status, never a crash or a
 * hang. Seeded, so that a failure can be seen again; run under the sanitizers as well. More rounds:
 * SF_FUZZ_ROUNDS=1000000; another sequence: SF_FUZZ_SEED=n. */
#include "tests/model/topology_testing.h"

#include <unistd.h>

static uint64_t seed;

static uint32_t random_below(uint32_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
    return (uint32_t)((seed >> 33) % n);
}

static const char *const pieces[] = {
    "GPU0", "GPU1", "GPU10", "NIC0", "mlx5_0", " X ", "NV12", "NV1", "NV999", "SYS", "PIX", "N/A", "0-63,128-191", "\t", "\t\t", "|", "\n",
    "\r\n", "\x1b[4m", "\x1b[", "CPU Affinity", "NUMA Affinity", "GPU NUMA ID", "Legend:", "  QQ = a Link\n", "node1: ", "-", "=", "<pci busid=\"0000:01:00.0\">",
    "</pci>", "<gpu dev=\"0\" sm=\"90\"/>", "<nvlink target=\"0000:01:00.0\" count=\"2\" tclass=\"0x030200\"/>", "\"", "<", ">", "/>", "count=\"-1\"",
    "99999999999999999999", "{", "}", "[", "]", "null", "\"parent\": \"GPU0\",", "\xff\xfe", "\xc2\xa0", "\xe2\x94\x82", "nodes", ";", "8x", "Weight between", "Link Type between",
};

static size_t mutate(char *text, size_t len, size_t room)
{
    int changes = 1 + (int)random_below(8);
    for (; changes > 0; changes--) {
        size_t at = len == 0 ? 0 : random_below((uint32_t)len), n = 1 + random_below(40);
        switch (random_below(7)) {
        case 0: /* another byte */
            if (len > 0)
                text[at] = (char)random_below(256);
            break;
        case 1: /* cut at the end */
            len = at;
            break;
        case 2: /* take a part out */
            n = at + n > len ? len - at : n;
            memmove(text + at, text + at + n, len - at - n);
            len -= n;
            break;
        case 3: /* a part twice */
            n = at + n > len ? len - at : n;
            if (len + n <= room) {
                memmove(text + at + n, text + at, len - at);
                len += n;
            }
            break;
        case 4: /* a digit more or less */
            for (size_t i = at; i < len; i++) {
                if (text[i] >= '0' && text[i] <= '9') {
                    text[i] = (char)('0' + random_below(10));
                    break;
                }
            }
            break;
        case 5: /* a whole line gone */
            while (at > 0 && text[at - 1] != '\n')
                at--;
            for (n = at; n < len && text[n] != '\n';)
                n++;
            memmove(text + at, text + n, len - n);
            len -= n - at;
            break;
        default: { /* a piece that means something */
            const char *piece = pieces[random_below(sizeof pieces / sizeof pieces[0])];
            n = strlen(piece);
            if (len + n <= room) {
                memmove(text + at + n, text + at, len - at);
                memcpy(text + at, piece, n);
                len += n;
            }
        }
        }
    }
    return len;
}

static void exercise(const sf_topology *t, sf_arena *arena)
{
    sf_text text = { 0 }, json = { 0 };
    assert_true(sf_topology_is_valid(t));
    sf_topology_print(t, &text);
    for (const char *c = sf_text_str(&text); *c != '\0'; c++) /* nothing that disturbs a terminal */
        assert_true(*c == '\n' || (unsigned char)*c >= 0x20);
    sf_topology_json(t, &json);
    topology_of(sf_text_str(&json), arena);
    sf_text_free(&text);
    sf_text_free(&json);
}

static void every_mutation_is_a_topology_or_a_status(void **state)
{
    (void)state;
    static const char *const folders[][2] = { { "topo", ".txt" }, { "nccl-topo", ".xml" } };
    const char *rounds_set = getenv("SF_FUZZ_ROUNDS"), *seed_set = getenv("SF_FUZZ_SEED");
    long rounds = rounds_set == NULL ? 3000 : atol(rounds_set), good = 0;
    sf_arena names = { 0 };
    char **paths = SF_NEW_ARRAY(&names, char *, 200);
    size_t count = 0;
    for (int f = 0; f < 2; f++) {
        char **some;
        size_t n = data_files(folders[f][0], folders[f][1], &names, &some);
        for (size_t i = 0; i < n; i++)
            paths[count++] = some[i];
    }
    seed = seed_set == NULL ? 1 : strtoull(seed_set, NULL, 10);
    alarm(rounds_set == NULL ? 240 : 0); /* a reader that hangs ends the test */
    for (long i = 0; i < rounds; i++) {
        sf_arena arena = { 0 };
        sf_topology *t = NULL;
        size_t len;
        uint64_t seed_before = seed;
        char *source = file_text(paths[random_below((uint32_t)count)], &arena, &len);
        if (random_below(3) == 0) { /* our JSON of it instead */
            sf_text json = { 0 };
            assert_int_equal(sf_topology_parse(source, len, "source", NULL, &arena, &t).code, SF_OK);
            sf_topology_json(t, &json);
            source = sf_arena_strndup(&arena, sf_text_str(&json), json.len);
            len = json.len;
            sf_text_free(&json);
        }
        char *text = malloc(len + 4096); /* on the heap without a NUL behind: reading too far is seen */
        assert_non_null(text);
        memcpy(text, source, len);
        len = mutate(text, len, len + 4096);
        char *exact = malloc(len + (len == 0));
        assert_non_null(exact);
        memcpy(exact, text, len);
        sf_status st = sf_topology_parse(exact, len, "mutation", NULL, &arena, &t);
        if (st.code == SF_OK) {
            good++;
            exercise(t, &arena);
        } else if (st.msg[0] == '\0') {
            print_message("seed %llu: refused without a word\n", (unsigned long long)seed_before);
            fail();
        }
        free(text);
        free(exact);
        sf_arena_free(&arena);
    }
    alarm(0);
    assert_true(good > rounds / 10); /* the mutations must not be so wild that nothing is read */
    sf_arena_free(&names);
}

static void every_mutation_of_a_description_is_a_topology_or_a_status(void **state)
{
    (void)state;
    static const char *const seeds[] = { "8xH100-SXM5-80GB nvswitch; 4 nodes; 8x400Gb ib rail; pcie 5 x16", "4xA100 PCIe 40GB nvlink pairs 12 links; 2x25Gb tcp; 2 numa",
                                         "8xMI300X xgmi mesh 1 link; 2048 nodes; 8x400Gb roce fabric" };
    seed = 2;
    for (int i = 0; i < 3000; i++) {
        sf_arena arena = { 0 };
        sf_topology *t = NULL;
        char text[512];
        const char *from = seeds[random_below(3)];
        memcpy(text, from, strlen(from));
        size_t len = mutate(text, strlen(from), sizeof text - 1);
        text[len] = '\0';
        sf_status st = sf_topology_synthetic(text, NULL, &arena, &t);
        if (st.code == SF_OK && t->hosts[0].gpu_count < 64)
            exercise(t, &arena);
        assert_true(st.code == SF_OK || st.msg[0] != '\0');
        sf_arena_free(&arena);
    }
}

/* Texts that would keep a careless reader busy for hours; the alarm ends the test then. */
static void a_text_made_to_take_long_does_not(void **state)
{
    (void)state;
    static const struct {
        const char *piece;
        int times;
    } cases[] = { { "X X\n", 300000 }, { "GPU0 X ", 100000 }, { "a%d: GPU0 X\n", 60000 }, { "NIC", 300000 }, { "\x1b[", 300000 }, { "<td ", 100000 }, { "[", 100000 } };
    alarm(240);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sf_arena arena = { 0 };
        sf_topology *t = NULL;
        sf_text text = { 0 };
        for (int k = 0; k < cases[i].times; k++) {
            char piece[40];
            snprintf(piece, sizeof piece, "%s", cases[i].piece);
            char *number = strstr(piece, "%d");
            if (number != NULL)
                snprintf(piece, sizeof piece, "a%d: GPU0 X\n", k);
            sf_text_append(&text, piece, strlen(piece));
        }
        sf_status st = sf_topology_parse(sf_text_str(&text), text.len, "long", NULL, &arena, &t);
        assert_int_not_equal(st.code, SF_OK);
        assert_true(st.msg[0] != '\0');
        sf_text_free(&text);
        sf_arena_free(&arena);
    }
    alarm(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mutation_is_a_topology_or_a_status),
        cmocka_unit_test(a_text_made_to_take_long_does_not),
        cmocka_unit_test(every_mutation_of_a_description_is_a_topology_or_a_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
