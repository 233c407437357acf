/* `shardfit model CONFIG`: what was understood of a model. */
#include <argp.h>
#include <inttypes.h>
#include <stdio.h>

#include "model/base/text.h"
#include "model/base/units.h"
#include "model/desc/transformer.h"
#include "reports/commands.h"

typedef struct {
    const char *model;
    bool json, tensors;
} arguments;

static const struct argp_option options[] = {
    { "json", 'j', 0, 0, "print as JSON", 0 },
    { "tensors", 't', 0, 0, "list every parameter tensor", 0 },
    { 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    arguments *a = state->input;
    switch (key) {
    case 'j': a->json = true; return 0;
    case 't': a->tensors = true; return 0;
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
    static const char *const names[] = { "GELU (tanh)", "GELU", "ReLU", "SiLU" };
    return m->gated ? (m->activation == SF_ACTIVATION_SILU ? "SwiGLU" : "GeGLU") : names[m->activation];
}

/* Matrix products of one token, forward: every matrix that is applied, twice its elements; the
 * embedding is looked up, not multiplied, unless it is the head too. Attention apart. */
static uint64_t forward_flop_per_token(const sf_transformer *m, const uint64_t sums[SF_ROLE_COUNT])
{
    uint64_t applied = 0;
    for (int r = 0; r < SF_ROLE_COUNT; r++) {
        if (!sf_role_is_matrix((sf_role)r) || r == SF_ROLE_WPE || (r == SF_ROLE_WTE && !m->tied))
            continue;
        applied += r == SF_ROLE_EXPERT_W ? sums[r] / (uint64_t)m->n_experts * (uint64_t)m->top_k : sums[r];
    }
    return 2 * applied;
}

static void print_json(const sf_transformer *m, const sf_tensor_list *list, const uint64_t sums[SF_ROLE_COUNT], bool tensors)
{
    json_t *roles = json_object(), *warnings = json_array();
    for (int r = 0; r < SF_ROLE_COUNT; r++)
        if (sums[r] > 0)
            json_object_set_new(roles, sf_role_name((sf_role)r), json_integer((json_int_t)sums[r]));
    for (size_t i = 0; i < m->n_warnings; i++)
        json_array_append_new(warnings, json_string(m->warnings[i]));
    json_t *out = json_pack("{s:s, s:s, s:I, s:I, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:s, s:b, s:I, s:o, s:o}", "name", m->name, "model_type",
                            m->model_type, "parameters", (json_int_t)sf_transformer_params(m), "active_parameters",
                            (json_int_t)sf_transformer_active_params(m), "layers", m->n_layers, "hidden", (json_int_t)m->hidden, "heads",
                            (json_int_t)m->n_heads, "kv_heads", (json_int_t)m->n_kv_heads, "head_dim", (json_int_t)m->head_dim, "ffn_hidden",
                            (json_int_t)m->ffn_hidden, "vocab", (json_int_t)m->vocab, "positions", position_name(m->position), "norm",
                            norm_name(m->norm), "activation", activation_name(m), "tied_head", (int)m->tied, "forward_flop_per_token",
                            (json_int_t)forward_flop_per_token(m, sums), "parameters_by_role", roles, "warnings", warnings);
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

static void print_text(const sf_transformer *m, const sf_tensor_list *list, const uint64_t sums[SF_ROLE_COUNT], bool tensors)
{
    uint64_t params = sf_transformer_params(m), active = sf_transformer_active_params(m);

    printf("%s (%s): %" PRIu64 " parameters (%s)\n", m->name, m->model_type, params, sf_count_text((double)params).text);
    if (active != params)
        printf("  %" PRIu64 " of them active for one token (%s)\n", active, sf_count_text((double)active).text);
    printf("  %d layers, hidden %" PRId64 ", %" PRId64 " heads (%" PRId64 " key-value) of %" PRId64 ", ffn %" PRId64 ", vocabulary %" PRId64 "\n", m->n_layers,
           m->hidden, m->n_heads, m->n_kv_heads, m->head_dim, m->ffn_hidden, m->vocab);
    printf("  positions: %s (up to %" PRId64 "), norm: %s, activation: %s, head: %s\n", position_name(m->position), m->max_positions,
           norm_name(m->norm), activation_name(m), m->tied ? "tied to the embedding" : "its own matrix");
    if (m->n_experts > 0)
        printf("  experts: %d, of which a token uses %d, ffn %" PRId64 "; shared ffn %" PRId64 "; first %d layers dense\n", m->n_experts, m->top_k,
               m->expert_ffn, m->shared_ffn, m->first_dense_layers);
    printf("\nParameters by role\n");
    for (int r = 0; r < SF_ROLE_COUNT; r++)
        if (sums[r] > 0)
            printf("  %-28s %18" PRIu64 "  %5.1f %%\n", sf_role_name((sf_role)r), sums[r], 100.0 * (double)sums[r] / (double)params);
    printf("\nForward matrix products of one token, without attention: %s FLOP\n", sf_count_text((double)forward_flop_per_token(m, sums)).text);
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
                                        "Tells what was understood of a model: its exact parameter count, shape, tensors.", 0, 0, 0 };
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
            print_json(&m, &list, sums, a.tensors);
        else
            print_text(&m, &list, sums, a.tensors);
    }
    sf_arena_free(&arena);
    return st.code == SF_OK ? SF_EXIT_DONE : sf_cmd_fail(st);
}
