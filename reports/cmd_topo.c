/* shardfit topo: what was understood of a topology. */
#include <argp.h>
#include <stdio.h>

#include "model/desc/topology.h"
#include "reports/commands.h"

enum { OPT_JSON = 256, OPT_SVG, OPT_GPU };

static const struct argp_option options[] = {
    { "json", OPT_JSON, NULL, 0, "Print the graph as JSON, which this command reads again", 0 },
    { "svg", OPT_SVG, "FILE", 0, "Draw the graph into FILE", 0 },
    { "gpu", OPT_GPU, "NAME", 0, "The GPUs' model, where the source does not tell it: fills bandwidths from the catalogue", 0 },
    { 0 }
};

static const char doc[] =
    "Shows what was understood of a topology: machines, GPUs, the link matrix, NVLinks, PCIe switches, NUMA nodes, NICs and which GPUs they are near.\v"
    "SOURCE is a file (a paste of `nvidia-smi topo -m`, an NCCL topology XML or this command's JSON), `-` for standard input, `live` for this machine, "
    "or a description such as '8xH100-SXM5-80GB nvswitch; 4 nodes; 8x400Gb ib rail'.";

typedef struct {
    const char *source, *svg, *gpu;
    bool json;
} arguments;

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    arguments *a = state->input;
    switch (key) {
    case OPT_JSON: a->json = true; break;
    case OPT_SVG: a->svg = arg; break;
    case OPT_GPU: a->gpu = arg; break;
    case ARGP_KEY_ARG:
        if (a->source != NULL)
            argp_error(state, "one SOURCE only; '%s' is a second one", arg);
        a->source = arg;
        break;
    case ARGP_KEY_NO_ARGS: argp_error(state, "no SOURCE given"); break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static sf_status show(const arguments *a, sf_arena *arena)
{
    sf_topology *t;
    sf_text text = { 0 };
    sf_status st = SF_SUCCESS;
    sf_gpu gpu;
    if (a->gpu != NULL)
        SF_TRY(sf_gpu_find(a->gpu, 0, arena, &gpu));
    SF_TRY(sf_topology_open(a->source, a->gpu != NULL ? &gpu : NULL, arena, &t));
    if (a->svg != NULL) {
        sf_topology_svg(t, &text);
        st = sf_file_write(a->svg, sf_text_str(&text), text.len);
        sf_text_free(&text);
        if (st.code != SF_OK)
            return st;
    }
    if (a->json)
        sf_topology_json(t, &text);
    else
        sf_topology_print(t, &text);
    fwrite(sf_text_str(&text), 1, text.len, stdout);
    if (a->gpu == NULL && sf_topology_gpus(t) > 0 && sf_topology_gpu_model(t)[0] == '\0')
        fprintf(stderr, "shardfit: the source does not name the GPUs' model; --gpu NAME fills the rates that hang on it\n");
    if (a->json) /* in the JSON as well; a person at the terminal should see them */
        for (size_t i = 0; i < t->warning_count; i++)
            fprintf(stderr, "shardfit: warning: %s\n", t->warnings[i]);
    sf_text_free(&text);
    return SF_SUCCESS;
}

int sf_cmd_topo(int argc, char **argv)
{
    static const struct argp argp = { options, parse_option, "SOURCE", doc, NULL, NULL, NULL };
    arguments a = { 0 };
    sf_arena arena = { 0 };
    argv[0] = (char[]){ "shardfit topo" };
    argp_err_exit_status = SF_EXIT_BAD_INPUT;
    if (argp_parse(&argp, argc, argv, 0, NULL, &a) != 0)
        return SF_EXIT_BAD_INPUT;
    sf_status st = show(&a, &arena);
    sf_arena_free(&arena);
    return st.code == SF_OK ? SF_EXIT_DONE : sf_cmd_fail(st);
}
