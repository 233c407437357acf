/* Topologies: rates, paths, NVLink, NCCL's XML, synthetic descriptions, this machine. */
#include "tests/model/topology_testing.h"

#include "model/desc/catalogue.h"
#include "model/desc/topology_rates.h"

/* ---- rates ---- */

/* Every NVLink generation and every PCIe x16 and x8 row of links.csv, to the digits it is given with. */
static void rates_are_those_of_the_catalogue_of_links(void **state)
{
    (void)state;
    sf_arena arena = { 0 };
    size_t len;
    char *text = file_text(sf_catalogue_path(&arena, "links.csv"), &arena, &len), *save;
    int nvlinks = 0, buses = 0;
    for (char *line = strtok_r(text, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save)) {
        int generation, lanes, links;
        double rate, all;
        if (sscanf(line, "link,NVLink,%d,%lf,GB/s per lane and direction,,%d,%d,%lf", &generation, &rate, &lanes, &links, &all) == 5) {
            assert_true(sf_nvlink_Bps(generation) * links == all * 1e9);
            nvlinks++;
        }
        if (sscanf(line, "link,PCIe x%d,%d,%lf,GT/s per lane,%*[^,],%*d,1,%lf", &lanes, &generation, &rate, &all) == 4) {
            double Bps = sf_pcie_Bps(generation, lanes);
            assert_true(Bps > all * 1e9 * 0.999 && Bps < all * 1e9 * 1.001);
            buses++;
        }
    }
    assert_int_equal(nvlinks, 6);
    assert_int_equal(buses, 14);
    sf_arena_free(&arena);
}

static void generations_are_told_from_what_files_print(void **state)
{
    (void)state;
    assert_int_equal(sf_pcie_generation_of_speed("2.5 GT/s"), 1);
    assert_int_equal(sf_pcie_generation_of_speed("8 GT/s"), 3);
    assert_int_equal(sf_pcie_generation_of_speed("16.0 GT/s PCIe"), 4);
    assert_int_equal(sf_pcie_generation_of_speed("32 GT/s PCIe/s"), 5);
    assert_int_equal(sf_pcie_generation_of_speed("64.0 GT/s PCIe"), 6);
    assert_int_equal(sf_pcie_generation_of_speed(""), 0);
    assert_int_equal(sf_pcie_generation_of_speed("Unknown speed"), 0);
    assert_int_equal(sf_pcie_generation_of_speed("7 GT/s"), 0);
    assert_int_equal(sf_nvlink_generation_of_sm(70), 2);
    assert_int_equal(sf_nvlink_generation_of_sm(90), 4);
    assert_int_equal(sf_nvlink_generation_of_sm(89), 0);
    assert_int_equal(sf_nvlink_generation_of_sm(120), 0);
    assert_true(sf_nvlink_Bps_of_sm(86) * 4 == 56.25e9);
    assert_true(sf_smp_Bps_of_nccl("x86_64", "GenuineIntel", 6, 85) == 10e9);
    assert_true(sf_smp_Bps_of_nccl("riscv64", "", 0, 0) == 0);
}

/* ---- a machine of 8 with 2 sockets, 4 switches, written as NCCL writes it ---- */

static const char two_sockets[] =
    "<system version=\"1\">\n"
    " <cpu numaid=\"0\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"85\">\n"
    "  <pci busid=\"0000:10:00.0\" class=\"0x060400\" link_speed=\"8 GT/s\" link_width=\"16\">\n"
    "   <pci busid=\"0000:11:00.0\" class=\"0x030200\" link_speed=\"16 GT/s\" link_width=\"16\"><gpu dev=\"0\" sm=\"80\" rank=\"0\" gdr=\"1\">\n"
    "     <nvlink target=\"0000:12:00.0\" count=\"4\" tclass=\"0x030200\"/><c2c bw=\"22500\" count=\"20\"/></gpu></pci>\n"
    "   <pci busid=\"0000:12:00.0\" class=\"0x030200\" link_speed=\"16 GT/s\" link_width=\"16\"><gpu dev=\"1\" sm=\"80\" rank=\"1\" gdr=\"1\">\n"
    "     <nvlink target=\"0000:11:00.0\" count=\"4\" tclass=\"0x030200\"/></gpu></pci>\n"
    "   <pci busid=\"0000:13:00.0\" class=\"0x020700\" link_speed=\"8 GT/s\" link_width=\"8\"><nic>\n"
    "     <net name=\"mlx5_0\" dev=\"0\" speed=\"100000\" port=\"1\" latency=\"0\" guid=\"0x1\" maxconn=\"1\" gdr=\"1\" coll=\"1\" rail=\"0\" plane=\"0\" gin=\"1\" rma=\"1\" keep=\"1\"/></nic></pci>\n"
    "  </pci>\n"
    "  <pci busid=\"0000:20:00.0\" class=\"0x030200\" link_speed=\"16 GT/s\" link_width=\"8\"><gpu dev=\"2\" sm=\"80\" rank=\"2\" gdr=\"1\"/></pci>\n"
    " </cpu>\n"
    " <cpu numaid=\"1\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"85\">\n"
    "  <pci busid=\"0000:30:00.0\" class=\"0x030200\" link_speed=\"16 GT/s\" link_width=\"16\"><gpu dev=\"3\" sm=\"80\" rank=\"3\" gdr=\"1\"/></pci>\n"
    " </cpu>\n"
    "</system>\n";

static void a_path_is_as_wide_as_its_narrowest_link(void **state)
{
    (void)state;
    sf_arena a = { 0 };
    sf_topology *t = topology_of(two_sockets, &a);
    const int *g = t->hosts[0].gpus;
    assert_int_equal(t->warning_count, 0);
    /* 4 NVLinks of generation 3: 4 * 25 GB/s */
    sf_topo_path path = sf_topology_path(t, g[0], g[1]);
    assert_int_equal(path.type, SF_PATH_NVLINK);
    assert_int_equal(path.links, 4);
    assert_true(path.Bps == 100e9);
    assert_int_equal(path.origin, SF_ORIGIN_SPEC);
    /* without NVLink: two PCIe 4 x16 through one switch, the switch's own uplink is not used */
    path = sf_topology_path_pcie(t, g[0], g[1]);
    assert_int_equal(path.type, SF_PATH_PIX);
    assert_true(path.Bps == sf_pcie_Bps(4, 16));
    /* PCIe 4 x8 = 8 * 16/8 * 128/130 = 15.754 GB/s, as wide as the switch's PCIe 3 x16 uplink */
    path = sf_topology_path(t, g[0], g[2]);
    assert_int_equal(path.type, SF_PATH_PHB);
    assert_true(path.Bps == sf_pcie_Bps(3, 16));
    /* across the sockets: NCCL reckons 10 GB/s for Skylake's link */
    path = sf_topology_path(t, g[2], g[3]);
    assert_int_equal(path.type, SF_PATH_SYS);
    assert_true(path.Bps == 10e9);
    assert_int_equal(path.origin, SF_ORIGIN_NCCL);
    assert_false(path.at_most);
    sf_arena_free(&a);
}

static void nearest_nics_and_links_of_a_gpu_are_found(void **state)
{
    (void)state;
    sf_arena a = { 0 };
    sf_topology *t = topology_of(two_sockets, &a);
    int nic = -1;
    sf_topo_path_type type;
    assert_int_equal(sf_topology_nearest_nics(t, t->hosts[0].gpus[1], &nic, 1, &type), 1);
    assert_int_equal(type, SF_PATH_PIX);
    assert_int_equal(t->nodes[nic].net, SF_NET_IB);
    assert_true(t->nodes[nic].gbit == 100);
    assert_int_equal(sf_topology_nearest_nics(t, t->hosts[0].gpus[3], &nic, 1, &type), 1);
    assert_int_equal(type, SF_PATH_SYS);
    sf_topo_nvlink links = sf_topology_gpu_nvlink(t, t->hosts[0].gpus[0]);
    assert_int_equal(links.links, 4);
    assert_int_equal(links.generation, 3);
    assert_true(links.Bps == 100e9);
    assert_false(sf_topology_gpu_nvlink(t, t->hosts[0].gpus[3]).any);
    assert_int_equal(sf_topology_nvlink_shape(t, 0), SF_NVLINK_PAIRS);
    /* Grace's link to its GPU: 20 links of 22500 MB/s */
    bool c2c = false;
    for (size_t i = 0; i < t->link_count; i++)
        if (t->links[i].type == SF_TOPO_LINK_C2C)
            c2c = t->links[i].Bps == 450e9 && t->links[i].origin == SF_ORIGIN_REPORTED;
    assert_true(c2c);
    sf_arena_free(&a);
}

static void shapes_of_nvlink_are_told_apart(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        sf_nvlink_shape shape;
        int links; /* of GPU 0 */
    } cases[] = {
        { "   GPU0 GPU1\nGPU0 X PHB\nGPU1 PHB X\n", SF_NVLINK_NONE, 0 },
        { "   GPU0 GPU1\nGPU0 X NV4\nGPU1 NV4 X\n", SF_NVLINK_PAIRS, 4 },
        /* 12 * 3 = 36 links are more than any GPU has: through switches, 12 of each GPU */
        { "   GPU0 GPU1 GPU2 GPU3\nGPU0 X NV12 NV12 NV12\nGPU1 NV12 X NV12 NV12\nGPU2 NV12 NV12 X NV12\nGPU3 NV12 NV12 NV12 X\n", SF_NVLINK_SWITCH, 12 },
        /* 4 * 3 = 12 links: one bundle for each other GPU */
        { "   GPU0 GPU1 GPU2 GPU3\nGPU0 X NV4 NV4 NV4\nGPU1 NV4 X NV4 NV4\nGPU2 NV4 NV4 X NV4\nGPU3 NV4 NV4 NV4 X\n", SF_NVLINK_MESH, 12 },
        { "   GPU0 GPU1 GPU2 GPU3\nGPU0 X NV1 SYS SYS\nGPU1 NV1 X SYS SYS\nGPU2 SYS SYS X NV1\nGPU3 SYS SYS NV1 X\n", SF_NVLINK_PAIRS, 1 },
        { "   GPU0 GPU1 GPU2\nGPU0 X NV1 SYS\nGPU1 NV1 X NV1\nGPU2 SYS NV1 X\n", SF_NVLINK_PARTIAL, 1 },
        { "   GPU0 GPU1 GPU2 GPU3 GPU4\nGPU0 X NV2 NV2 SYS SYS\nGPU1 NV2 X NV2 SYS SYS\nGPU2 NV2 NV2 X SYS SYS\nGPU3 SYS SYS SYS X NV2\nGPU4 SYS SYS SYS NV2 X\n",
          SF_NVLINK_ISLANDS, 4 },
    };
    sf_arena a = { 0 };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sf_topology *t = topology_of(cases[i].text, &a);
        assert_string_equal(sf_nvlink_shape_text(sf_topology_nvlink_shape(t, 0)), sf_nvlink_shape_text(cases[i].shape));
        assert_int_equal(sf_topology_gpu_nvlink(t, t->hosts[0].gpus[0]).links, cases[i].links);
    }
    sf_arena_free(&a);
}

/* A800: 8 NVLinks. Three of its GPUs with NV8 each cannot be a mesh, which would need 16. */
static void the_named_gpu_tells_switch_from_mesh_and_the_rates(void **state)
{
    (void)state;
    static const char text[] = "   GPU0 GPU1 GPU2\nGPU0 X NV8 NV8\nGPU1 NV8 X NV8\nGPU2 NV8 NV8 X\n";
    static const sf_gpu a800 = { .name = "A800 SXM4 80GB", .nvlink_gen = 3, .nvlink_links = 8, .nvlink_Bps = 200e9, .pcie_gen = 4, .pcie_lanes = 16 };
    sf_arena a = { 0 };
    sf_topology *t = topology_of(text, &a);
    assert_int_equal(sf_topology_nvlink_shape(t, 0), SF_NVLINK_MESH);
    assert_true(sf_topology_gpu_nvlink(t, t->hosts[0].gpus[0]).Bps == 0);
    assert_int_equal(sf_topology_parse(text, strlen(text), "text", &a800, &a, &t).code, SF_OK);
    assert_int_equal(sf_topology_nvlink_shape(t, 0), SF_NVLINK_SWITCH);
    sf_topo_path path = sf_topology_path(t, t->hosts[0].gpus[0], t->hosts[0].gpus[2]);
    assert_true(path.Bps == 200e9);
    assert_int_equal(path.origin, SF_ORIGIN_CATALOGUE);
    assert_string_equal(sf_topology_gpu_model(t), "A800 SXM4 80GB");
    assert_int_equal(t->warning_count, 0);
    static const sf_gpu l4 = { .name = "L4", .pcie_gen = 4, .pcie_lanes = 16 };
    assert_int_equal(sf_topology_parse(text, strlen(text), "text", &l4, &a, &t).code, SF_OK);
    assert_true(warns_of(t, "GPU0 has 16 NVLinks, a L4 has 0; is it another model?"));
    /* a paste that names its GPUs itself needs no one to name them */
    t = topology_of("GPU 0: NVIDIA A800-SXM4-80GB (UUID: GPU-0)\n   GPU0 GPU1 GPU2\nGPU0 X NV8 NV8\nGPU1 NV8 X NV8\nGPU2 NV8 NV8 X\n", &a);
    assert_int_equal(sf_topology_nvlink_shape(t, 0), SF_NVLINK_SWITCH);
    assert_true(sf_topology_gpu_nvlink(t, t->hosts[0].gpus[0]).Bps == 200e9);
    sf_arena_free(&a);
}

/* ---- several machines ---- */

static void machines_of_a_dump_are_told_apart_by_their_hash(void **state)
{
    (void)state;
    sf_arena a = { 0 };
    sf_topology *t = topology_of("<system version=\"1\">\n"
                                 " <cpu host_hash=\"0xaa\" numaid=\"0\"><pci busid=\"0000:01:00.0\" class=\"0x030200\"><gpu dev=\"0\" sm=\"100\" rank=\"0\" gdr=\"1\"/></pci></cpu>\n"
                                 " <cpu host_hash=\"0xbb\" numaid=\"0\"><pci busid=\"0000:01:00.0\" class=\"0x030200\"><gpu dev=\"0\" sm=\"100\" rank=\"1\" gdr=\"1\"/></pci></cpu>\n"
                                 "</system>\n", &a);
    assert_int_equal(t->host_count, 2);
    assert_int_equal(sf_topology_nodes(t), 2);
    int gpu, copy;
    assert_true(sf_topology_locate(t, 1, &gpu, &copy));
    assert_int_equal(t->nodes[gpu].host, 1);
    assert_false(sf_topology_locate(t, 2, &gpu, &copy));
    sf_arena_free(&a);
}

/* Two GPUs of different machines: GPU -> switch -> NIC of 400 Gb/s = 50 GB/s each, the narrowest link. */
static void a_path_between_machines_goes_by_the_nearest_nics(void **state)
{
    (void)state;
    sf_arena a = { 0 };
    sf_topology *t;
    assert_int_equal(sf_topology_synthetic("8xH100-SXM5-80GB nvswitch; 4 nodes; 8x400Gb ib rail; pcie 5 x16", NULL, &a, &t).code, SF_OK);
    assert_true(sf_topology_is_valid(t));
    assert_int_equal(sf_topology_gpus(t), 32);
    assert_int_equal(sf_topology_nodes(t), 4);
    int gpu, copy;
    assert_true(sf_topology_locate(t, 19, &gpu, &copy)); /* 19 = 2 * 8 + 3 */
    assert_int_equal(copy, 2);
    assert_int_equal(t->nodes[gpu].ordinal, 3);
    sf_topo_path path = sf_topology_path_hosts(t, gpu, t->hosts[0].gpus[0]);
    assert_int_equal(path.type, SF_PATH_NET);
    assert_true(path.Bps == 50e9);
    int rails = 0;
    for (size_t i = 0; i < t->node_count; i++)
        rails += t->nodes[i].kind == SF_TOPO_NET_SWITCH;
    assert_int_equal(rails, 8);
    assert_true(t->rails);
    sf_arena_free(&a);
}

static void descriptions_say_what_joins_the_gpus(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        sf_nvlink_shape shape;
        const char *g0_g1, *g0_last, *g0_nic0; /* path types; NULL: no NIC */
    } cases[] = {
        { "8xH100-SXM5-80GB nvswitch", SF_NVLINK_SWITCH, "NV", "NV", NULL },
        { "8 x H100 SXM5 80GB nvswitch; 8 x 400 Gb roce", SF_NVLINK_SWITCH, "NV", "NV", "PIX" },
        { "4xA100-SXM4-40GB nvlink mesh 4 links; 4x100Gb ib", SF_NVLINK_MESH, "NV", "NV", "PIX" },
        { "4xA100 PCIe 40GB nvlink pairs 12 links; 2x25Gb tcp", SF_NVLINK_PAIRS, "NV", "NODE", "NODE" },
        { "8xL4 pcie; 1x100Gb efa", SF_NVLINK_NONE, "NODE", "SYS", "NODE" },
        { "8xRTX-4090 pcie switch 4; 2 numa", SF_NVLINK_NONE, "PIX", "SYS", NULL },
        { "8xMI300X xgmi mesh 1 link; 8x400Gb", SF_NVLINK_MESH, "NV", "NV", "PIX" },
        { "1xGH200 96GB; 1x200Gb slingshot", SF_NVLINK_NONE, "X", "X", "NODE" },
    };
    sf_arena a = { 0 };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sf_topology *t;
        sf_status st = sf_topology_synthetic(cases[i].text, NULL, &a, &t);
        if (st.code != SF_OK)
            print_message("%s\n", st.msg);
        assert_int_equal(st.code, SF_OK);
        assert_true(sf_topology_is_valid(t));
        const sf_topo_host *h = &t->hosts[0];
        int last = h->gpu_count - 1;
        assert_int_equal(sf_topology_nvlink_shape(t, 0), cases[i].shape);
        assert_string_equal(sf_topo_path_name(sf_topology_path(t, h->gpus[0], h->gpus[last > 0 ? 1 : 0]).type), cases[i].g0_g1);
        assert_string_equal(sf_topo_path_name(sf_topology_path(t, h->gpus[0], h->gpus[last]).type), cases[i].g0_last);
        if (cases[i].g0_nic0 != NULL)
            assert_string_equal(sf_topo_path_name(sf_topology_path(t, h->gpus[0], h->nics[0]).type), cases[i].g0_nic0);
        else
            assert_int_equal(h->nic_count, 0);
    }
    sf_arena_free(&a);
}

static void a_wrong_description_is_told_word_by_word(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        { "", "it is empty" },
        { "H100 nvswitch", "should begin with a number of GPUs" },
        { "8xH100", "is not followed by what joins the GPUs" },
        { "0xH100 nvswitch", "0 GPUs: it should be 1 to" },
        { "999999999999xH100 nvswitch", "GPUs: it should be 1 to" },
        { "8xH100 nvlink ring", "'nvlink' should be followed by 'mesh' or 'pairs'" },
        { "8xH100 nvswitch very much", "'very' after the GPUs' fabric" },
        { "8xH100 nvswitch; 0 nodes", "0 nodes: it should be 1 to" },
        { "8xH100 nvswitch; 8x400 furlongs", "'furlongs' is not the rate of a NIC" },
        { "8xH100 nvswitch; 8x400Gb pigeon", "'pigeon' is no kind of network" },
        { "8xH100 nvswitch; 2x100Gb; 2x100Gb", "a second clause of NICs" },
        { "8xH100 nvswitch; bananas", "'bananas' is not understood" },
        { "3xA40 nvlink pairs", "3 GPUs cannot be in pairs" },
        { "2xA40 pcie; 4 numa", "4 NUMA nodes for 2 GPUs" },
        { "2xA40 pcie; pcie 9", "9 as PCIe generation" },
        { "8xL4 nvswitch", "L4 has no NVLink; write pcie" },
        { "8xV100-SXM2-32GB nvlink mesh", "has 6 NVLinks, too few for one to each of 7 other GPUs; write nvswitch" },
        { "8xH1000 nvswitch", "gpu 'H1000' is not in the catalogue" },
    };
    sf_arena a = { 0 };
    sf_topology *t;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sf_status st = sf_topology_synthetic(cases[i].text, NULL, &a, &t);
        assert_int_equal(st.code, SF_EINVAL);
        assert_says(st.msg, cases[i].says);
    }
    sf_arena_free(&a);
}

/* ---- NCCL files that are broken ---- */

static void a_broken_nccl_file_is_told_with_its_line(void **state)
{
    (void)state;
#define OPEN "<system version=\"1\">\n<cpu numaid=\"0\">\n"
#define CLOSE "</cpu>\n</system>\n"
    static const struct {
        const char *text, *says;
    } cases[] = {
        { OPEN "<pci busid=\"0000:01:00.0\">\n", "line 4: the file ends inside <pci> of line 3; it is cut" },
        { OPEN "<pci busid=\"0000:0", "line 3: the file ends inside <cpu> of line 2; it is cut" },
        { OPEN "<pci busid=0000>" CLOSE, "line 3, column 12: not well-formed XML" },
        { OPEN "</system>", "line 3, column 3: not well-formed XML: mismatched tag" },
        { OPEN "<pci/>" CLOSE, "line 3: <pci> has no busid" },
        { OPEN "<pci busid=\"1:2\"/>" CLOSE, "line 3: <pci busid=\"1:2\"> is not a PCI address" },
        { OPEN "<pci busid=\"0000:01:00.0\" class=\"0x030200\"/>\n<pci busid=\"0000:01:00.0\" class=\"0x030200\"/>" CLOSE, "line 4: a second <pci busid=\"0000:01:00.0\">" },
        { OPEN "<pci busid=\"0000:01:00.0\" link_width=\"wide\"/>" CLOSE, "line 3: <pci link_width=\"wide\"> should be a whole number" },
        { OPEN "<gpu dev=\"0\"/>" CLOSE, "line 3: <gpu> outside of <pci>" },
        { OPEN "<pci busid=\"0000:01:00.0\"><gpu dev=\"0\" sm=\"90\">\n<nvlink count=\"4\" tclass=\"0x030200\"/></gpu></pci>" CLOSE, "line 4: <nvlink> has no target" },
        { OPEN "<pci busid=\"0000:01:00.0\"><gpu dev=\"0\" sm=\"90\"><nvlink target=\"x\" count=\"4\" tclass=\"0x030200\"/></gpu></pci>" CLOSE, "<nvlink target=\"x\"> is not a PCI address" },
        { OPEN "<pci busid=\"0000:01:00.0\"><gpu dev=\"0\" sm=\"90\"><nvlink target=\"0000:02:00.0\" count=\"0\"/></gpu></pci>" CLOSE, "<nvlink count=\"0\"> should be above zero" },
        { "<system version=\"1\">\n<cpu/>\n</system>", "line 2: <cpu> has no numaid" },
        { "<system version=\"1\">\n<cpu numaid=\"0\"/>\n<cpu numaid=\"0\"/></system>", "line 3: a second <cpu numaid=\"0\">" },
        { "<system version=\"1\"/>", "<system> holds no <cpu>" },
        { "<network/>", "the XML is a <network>, not the <system> of an NCCL topology" },
        { "<!DOCTYPE a [<!ENTITY b \"c\">]>\n<system version=\"1\"/>", "a document type is not allowed" },
    };
    sf_arena a = { 0 };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_says(refusal_of(cases[i].text, &a), cases[i].says);

    sf_topology *t = topology_of("\n\n<system version=\"7\">\n<cpu numaid=\"0\" mood=\"good\"><pci busid=\"0000:01:00.0\" class=\"0x030200\" link_speed=\"3 GT/s\"/><disk/></cpu></system>", &a);
    assert_true(warns_of(t, "line 3: <system version=\"7\"> is newer than 2"));
    assert_true(warns_of(t, "line 4: unknown attribute 'mood'"));
    assert_true(warns_of(t, "line 4: unknown element 'disk'"));
    assert_true(warns_of(t, "link_speed '3 GT/s' is not a PCIe rate"));
    sf_arena_free(&a);
#undef OPEN
#undef CLOSE
}

static void a_broken_json_topology_is_told_with_its_place(void **state)
{
    (void)state;
#define HEAD "{\"schema\": \"shardfit-topology-1\", \"hosts\": ["
    static const struct {
        const char *text, *says;
    } cases[] = {
        { "{\"schema\": \"shardfit-topology-1\"}", "\"hosts\" should be an array" },
        { "{\"schema\": \"other\"}", "not \"other\"" },
        { HEAD "3]}", "hosts[0] should be an object with arrays" },
        { HEAD "{\"nodes\": [{\"name\": \"a\", \"kind\": \"gpo\"}]}]}", "hosts[0].nodes[0].kind is 'gpo'; did you mean 'gpu'" },
        { HEAD "{\"nodes\": [{\"name\": \"a\", \"kind\": \"gpu\"}, {\"name\": \"a\", \"kind\": \"gpu\"}]}]}", "hosts[0].nodes[1].name 'a' is taken" },
        { HEAD "{\"nodes\": [{\"name\": \"a\", \"kind\": \"gpu\", \"parent\": \"b\"}]}]}", "hosts[0].nodes[0].parent names 'b', which is no node before it" },
        { HEAD "{\"nodes\": [{\"name\": \"a\", \"kind\": \"gpu\"}], \"links\": [{\"a\": \"a\", \"b\": \"a\", \"type\": \"nvlink\"}]}]}", "hosts[0].links[0] joins 'a' to itself" },
        { HEAD "{\"nodes\": [{\"name\": \"a\", \"kind\": \"gpu\"}], \"paths\": [\"Y\"]}]}", "hosts[0].paths[0] should have 1 words" },
        { HEAD "{\"nodes\": [], \"count\": 0}]}", "hosts[0].count should be 1 or more" },
        { HEAD "{\"nodes\": [{\"name\": \"a\", \"kind\": \"nic\", \"gbit_per_s\": -1}]}]}", "hosts[0].nodes[0].gbit_per_s should be a number of zero or more" },
        { HEAD "\n\n", "line 3" },
    };
    sf_arena a = { 0 };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_says(refusal_of(cases[i].text, &a), cases[i].says);
    sf_arena_free(&a);
#undef HEAD
}

static void a_source_that_is_not_there_is_told(void **state)
{
    (void)state;
    sf_arena a = { 0 };
    sf_topology *t;
    sf_status st = sf_topology_open("/nonexistent/topo.txt", NULL, &a, &t);
    assert_int_equal(st.code, SF_EIO);
    assert_says(st.msg, "cannot open '/nonexistent/topo.txt'");
    assert_int_equal(sf_topology_open("8xH200-SXM nvswitch", NULL, &a, &t).code, SF_OK);
    assert_int_equal(sf_topology_open(SF_TEST_DATA, NULL, &a, &t).code, SF_EIO); /* a directory */
    sf_arena_free(&a);
}

/* ---- this machine ---- */

static void a_machine_is_read_from_hwloc_and_nvml(void **state)
{
    (void)state;
    sf_arena a = { 0 };
    sf_topology *t;
    setenv("HWLOC_XMLFILE", SF_TEST_DATA "/hwloc/two-sockets-two-gpus.xml", 1);
    setenv("SHARDFIT_NVML", SF_FAKE_NVML, 1);
    assert_int_equal(sf_topology_live(&a, &t).code, SF_OK);
    assert_true(sf_topology_is_valid(t));
    const sf_topo_host *h = &t->hosts[0];
    assert_string_equal(h->name, "gpubox");
    assert_int_equal(h->gpu_count, 2);
    assert_int_equal(h->nic_count, 1); /* the management chip's graphics is no GPU, and no NIC */
    assert_string_equal(t->nodes[h->nics[0]].device, "mlx5_0");
    assert_int_equal(t->nodes[h->gpus[1]].numa, 1);
    /* 4 links to each other and 2 through the switch, 25 GB/s each */
    sf_topo_path path = sf_topology_path(t, h->gpus[0], h->gpus[1]);
    assert_int_equal(path.links, 6);
    assert_true(path.Bps == 150e9);
    assert_int_equal(sf_topology_path_pcie(t, h->gpus[0], h->nics[0]).type, SF_PATH_PIX);
    assert_int_equal(sf_topology_path_pcie(t, h->gpus[0], h->gpus[1]).type, SF_PATH_SYS);
    assert_int_equal(t->warning_count, 0);
    unsetenv("HWLOC_XMLFILE");
    unsetenv("SHARDFIT_NVML");
    sf_arena_free(&a);
}

static void a_machine_without_a_working_driver_is_read_all_the_same(void **state)
{
    (void)state;
    sf_arena a = { 0 };
    sf_topology *t;
    setenv("HWLOC_XMLFILE", SF_TEST_DATA "/hwloc/two-sockets-two-gpus.xml", 1);
    setenv("SHARDFIT_NVML", "/nonexistent/libnvidia-ml.so.1", 1);
    assert_int_equal(sf_topology_live(&a, &t).code, SF_OK);
    assert_int_equal(t->hosts[0].gpu_count, 0);
    assert_true(warns_of(t, "2 NVIDIA GPUs on the PCI bus without a working driver (no NVIDIA driver library"));
    setenv("SHARDFIT_NVML", SF_FAKE_NVML, 1);
    setenv("FAKE_NVML", "broken", 1);
    assert_int_equal(sf_topology_live(&a, &t).code, SF_OK);
    assert_true(warns_of(t, "the NVIDIA driver does not answer (NVML error 9)"));
    unsetenv("HWLOC_XMLFILE");
    unsetenv("SHARDFIT_NVML");
    unsetenv("FAKE_NVML");
    assert_int_equal(sf_topology_live(&a, &t).code, SF_OK); /* whatever runs this test */
    assert_true(sf_topology_is_valid(t));
    assert_true(t->node_count > 0);
    sf_arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_are_those_of_the_catalogue_of_links),
        cmocka_unit_test(generations_are_told_from_what_files_print),
        cmocka_unit_test(a_path_is_as_wide_as_its_narrowest_link),
        cmocka_unit_test(nearest_nics_and_links_of_a_gpu_are_found),
        cmocka_unit_test(shapes_of_nvlink_are_told_apart),
        cmocka_unit_test(the_named_gpu_tells_switch_from_mesh_and_the_rates),
        cmocka_unit_test(machines_of_a_dump_are_told_apart_by_their_hash),
        cmocka_unit_test(a_path_between_machines_goes_by_the_nearest_nics),
        cmocka_unit_test(descriptions_say_what_joins_the_gpus),
        cmocka_unit_test(a_wrong_description_is_told_word_by_word),
        cmocka_unit_test(a_broken_nccl_file_is_told_with_its_line),
        cmocka_unit_test(a_broken_json_topology_is_told_with_its_place),
        cmocka_unit_test(a_source_that_is_not_there_is_told),
        cmocka_unit_test(a_machine_is_read_from_hwloc_and_nvml),
        cmocka_unit_test(a_machine_without_a_working_driver_is_read_all_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
