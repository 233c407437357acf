/* `shardfit model CONFIG`: what was understood of a model. */
#include <argp.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/base/text.h"
#include "model/base/units.h"
#include "model/desc/json.h"
#include "model/desc/transformer_flops.h"
#include "reports/commands.h"

typedef struct {
    const char *model;
    bool json, tensors;
    int64_t seq_len; /* 0: the model's most positions */
} arguments;

static const struct argp_option options[] = {
    { "json", 'j', 0, 0, "print as JSON", 0 },
    { "tensors", 't', 0, 0, "list every parameter tensor", 0 },
    { "seq-len", 's', "N", 0, "tokens of one sequence, for the FLOP of attention (default: the model's most)", 0 },
    { 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    arguments *a = state->input;
    switch (key) {
    case 'j': a->json = true; return 0;
    case 't': a->tensors = true; return 0;
    case 's': {
        char *end;
        a->seq_len = strtoll(arg, &end, 10);
        if (*end != '\0' || a->seq_len < 1 || a->seq_len > 1 << 30)
            argp_error(state, "--seq-len takes a number of tokens, not '%s'", arg);
        return 0;
    }
    case ARGP_KEY_ARG:
        if (a->model != NULL)
            argp_error(state, "one model at a time");
        a->model = arg;
        return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "name a model of the catalogue or a config.json"); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static void sums_by_role(const sf_tensor_list *list, uint64_t sums[SF_ROLE_COUNT])
{
    for (size_t i = 0; i < list->count; i++)
        sums[list->items[i].role] += list->items[i].numel * (uint64_t)list->items[i].copies;
}

static const char *position_name(sf_position p)
{
    static const char *const names[] = { "learned", "rotary", "ALiBi", "none" };
    return names[p];
}

static const char *norm_name(sf_norm n)
{
    static const char *const names[] = { "LayerNorm", "RMSNorm", "LayerNorm without parameters" };
    return names[n];
}

static const char *activation_name(const sf_transformer *m)
{
    static const char *const names[] = { "GELU (tanh)", "GELU", "ReLU", "SiLU", "squared ReLU", "xIELU" };
    return m->gated ? (m->activation == SF_ACTIVATION_SILU ? "SwiGLU" : "GeGLU") : names[m->activation];
}

static json_t *flop_json(const sf_transformer *m, int64_t seq_len)
{
    json_t *step = json_object();
    for (int c = 0; c < SF_FLOP_CONVENTION_COUNT; c++)
        json_object_set_new(step, sf_flop_convention_name((sf_flop_convention)c), json_real(sf_transformer_step_flop(m, seq_len, (sf_flop_convention)c)));
    return json_pack("{s:I, s:f, s:f, s:f, s:o}", "seq_len", (json_int_t)seq_len, "forward_matmul", sf_transformer_matmul_flop(m),
                     "forward_attention_causal", sf_transformer_attention_flop(m, seq_len, SF_SPAN_CAUSAL), "forward_attention_full",
                     sf_transformer_attention_flop(m, seq_len, SF_SPAN_FULL), "forward_and_backward", step);
}

static void print_flop(const sf_transformer *m, int64_t seq_len)
{
    printf("\nFLOP of one token in sequences of %" PRId64 "\n", seq_len);
    printf("  forward: matrix products %s, attention %s (over all positions %s)\n", sf_count_text(sf_transformer_matmul_flop(m)).text,
           sf_count_text(sf_transformer_attention_flop(m, seq_len, SF_SPAN_CAUSAL)).text,
           sf_count_text(sf_transformer_attention_flop(m, seq_len, SF_SPAN_FULL)).text);
    printf("  forward and backward, as counted by\n");
    for (int c = 0; c < SF_FLOP_CONVENTION_COUNT; c++)
        printf("    %-14s %10s  %s\n", sf_flop_convention_name((sf_flop_convention)c),
               sf_count_text(sf_transformer_step_flop(m, seq_len, (sf_flop_convention)c)).text, sf_flop_convention_text((sf_flop_convention)c));
}

static void print_json(const sf_transformer *m, const sf_tensor_list *list, const uint64_t sums[SF_ROLE_COUNT], bool tensors,
                       int64_t seq_len)
{
    json_t *roles = json_object(), *warnings = json_array();
    for (int r = 0; r < SF_ROLE_COUNT; r++)
        if (sums[r] > 0)
            json_object_set_new(roles, sf_role_name((sf_role)r), json_integer((json_int_t)sums[r]));
    for (size_t i = 0; i < m->n_warnings; i++)
        json_array_append_new(warnings, json_string(m->warnings[i]));
    json_t *out = json_pack("{s:s, s:s, s:I, s:I, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:s, s:b, s:o, s:o, s:o}", "name", m->name, "model_type",
                            m->model_type, "parameters", (json_int_t)sf_transformer_params(m), "active_parameters",
                            (json_int_t)sf_transformer_active_params(m), "layers", m->n_layers, "hidden", (json_int_t)m->hidden, "heads",
                            (json_int_t)m->n_heads, "kv_heads", (json_int_t)m->n_kv_heads, "head_dim", (json_int_t)m->head_dim, "ffn_hidden",
                            (json_int_t)m->ffn_hidden, "vocab", (json_int_t)m->vocab, "positions", position_name(m->position), "norm",
                            norm_name(m->norm), "activation", activation_name(m), "tied_head", (int)m->tied, "flop_per_token",
                            flop_json(m, seq_len), "parameters_by_role", roles, "warnings", warnings);
    if (tensors) {
        json_t *array = json_array();
        for (size_t i = 0; i < list->count; i++) {
            const sf_tensor *t = &list->items[i];
            json_t *shape = json_array();
            for (int d = 0; d < t->ndim; d++)
                json_array_append_new(shape, json_integer((json_int_t)t->shape[d]));
            json_array_append_new(array, json_pack("{s:s, s:o, s:i}", "name", t->name, "shape", shape, "copies", t->copies));
        }
        json_object_set_new(out, "tensors", array);
    }
    json_dumpf(out, stdout, JSON_INDENT(2));
    printf("\n");
    json_decref(out);
}

static int windowed_layers(const sf_transformer *m)
{
    int n = 0;
    for (int l = 0; l < m->n_layers; l++)
        n += sf_transformer_layer_window(m, l) > 0;
    return n;
}

static void print_text(const sf_transformer *m, const sf_tensor_list *list, const uint64_t sums[SF_ROLE_COUNT], bool tensors,
                       int64_t seq_len)
{
    uint64_t params = sf_transformer_params(m), active = sf_transformer_active_params(m);

    printf("%s (%s): %" PRIu64 " parameters (%s)\n", m->name, m->model_type, params, sf_count_text((double)params).text);
    if (active != params)
        printf("  %" PRIu64 " of them active for one token (%s)\n", active, sf_count_text((double)active).text);
    printf("  %d layers, hidden %" PRId64 ", %" PRId64 " heads (%" PRId64 " key-value) of %" PRId64 ", ffn %" PRId64 ", vocabulary %" PRId64 "\n", m->n_layers,
           m->hidden, m->n_heads, m->n_kv_heads, m->head_dim, m->ffn_hidden, m->vocab);
    printf("  positions: %s (up to %" PRId64 "), norm: %s, activation: %s, head: %s\n", position_name(m->position), m->max_positions,
           norm_name(m->norm), activation_name(m), m->tied ? "tied to the embedding" : "its own matrix");
    if (m->sliding_window > 0)
        printf("  windowed layers: %d look back %" PRId64 " tokens\n", windowed_layers(m), m->sliding_window);
    if (m->n_experts > 0)
        printf("  experts: %d, of which a token uses %d, ffn %" PRId64 "; shared ffn %" PRId64 "; first %d layers dense\n", m->n_experts, m->top_k,
               m->expert_ffn, m->shared_ffn, m->first_dense_layers);
    printf("\nParameters by role\n");
    for (int r = 0; r < SF_ROLE_COUNT; r++)
        if (sums[r] > 0)
            printf("  %-28s %18" PRIu64 "  %5.1f %%\n", sf_role_name((sf_role)r), sums[r], 100.0 * (double)sums[r] / (double)params);
    print_flop(m, seq_len);
    for (size_t i = 0; i < m->n_warnings; i++)
        printf("Note: %s\n", m->warnings[i]);
    if (!tensors)
        return;
    printf("\nTensors\n");
    for (size_t i = 0; i < list->count; i++) {
        const sf_tensor *t = &list->items[i];
        printf("  %-48s", t->name);
        for (int d = 0; d < t->ndim; d++)
            printf("%s%" PRIu64, d == 0 ? "" : " x ", t->shape[d]);
        if (t->copies > 1)
            printf("   (%d of them)", t->copies);
        printf("\n");
    }
}

int sf_cmd_model(int argc, char **argv)
{
    static const struct argp parser = { options, parse, "NAME|CONFIG.json",
                                        "Tells what was understood of a model: its exact parameter count, shape, tensors and FLOP.", 0, 0, 0 };
    sf_arena arena = { 0 };
    arguments a = { 0 };
    sf_transformer m;
    sf_tensor_list list;
    uint64_t sums[SF_ROLE_COUNT] = { 0 };

    argp_parse(&parser, argc, argv, 0, 0, &a);
    sf_status st = sf_transformer_find(a.model, &arena, &m);
    if (st.code == SF_OK) {
        sf_transformer_tensors(&m, &arena, &list);
        sums_by_role(&list, sums);
        if (a.json)
            print_json(&m, &list, sums, a.tensors, a.seq_len > 0 ? a.seq_len : m.max_positions);
        else
            print_text(&m, &list, sums, a.tensors, a.seq_len > 0 ? a.seq_len : m.max_positions);
    }
    sf_arena_free(&arena);
    return st.code == SF_OK ? SF_EXIT_DONE : sf_cmd_fail(st);
}
