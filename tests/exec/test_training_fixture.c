/* The product's own path (job, lowering, executor) against PyTorch in double precision: a small GPT-2
 * and a small LLaMA from given weights: every gradient of the first batch, the losses of ten AdamW
 * steps, every weight after them; and the same losses from sharded strategies on two ranks. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "exec/run.h"
#include "model/base/text.h"
#include "model/desc/json.h"
#include "model/strategy/lower.h"

typedef struct {
    sf_arena arena;
    json_t *root;
    char data[64];          /* the batches as a .bin file                          */
    const float **given;    /* by tensor number of the model                       */
    json_t **tensor;        /* the fixture's entry for each of them                */
    size_t n_tensors;
} fixture;

/* Our tensor names and Hugging Face's name the same things in other words. */
static const char *their_name(fixture *f, const sf_tensor *t, bool llama)
{
    static const struct {
        sf_role role;
        const char *gpt2, *llama;
    } names[] = {
        { SF_ROLE_WTE, "transformer.wte.weight", "model.embed_tokens.weight" }, { SF_ROLE_WPE, "transformer.wpe.weight", "" },
        { SF_ROLE_NORM1_W, "ln_1.weight", "input_layernorm.weight" }, { SF_ROLE_NORM1_B, "ln_1.bias", "" },
        { SF_ROLE_QKV_W, "attn.c_attn.weight", "" }, { SF_ROLE_QKV_B, "attn.c_attn.bias", "" },
        { SF_ROLE_Q_W, "", "self_attn.q_proj.weight" }, { SF_ROLE_K_W, "", "self_attn.k_proj.weight" },
        { SF_ROLE_V_W, "", "self_attn.v_proj.weight" },
        { SF_ROLE_OUT_W, "attn.c_proj.weight", "self_attn.o_proj.weight" }, { SF_ROLE_OUT_B, "attn.c_proj.bias", "" },
        { SF_ROLE_NORM2_W, "ln_2.weight", "post_attention_layernorm.weight" }, { SF_ROLE_NORM2_B, "ln_2.bias", "" },
        { SF_ROLE_GATE_W, "", "mlp.gate_proj.weight" }, { SF_ROLE_UP_W, "mlp.c_fc.weight", "mlp.up_proj.weight" },
        { SF_ROLE_UP_B, "mlp.c_fc.bias", "" }, { SF_ROLE_DOWN_W, "mlp.c_proj.weight", "mlp.down_proj.weight" },
        { SF_ROLE_DOWN_B, "mlp.c_proj.bias", "" }, { SF_ROLE_NORMF_W, "transformer.ln_f.weight", "model.norm.weight" },
        { SF_ROLE_NORMF_B, "transformer.ln_f.bias", "" }, { SF_ROLE_HEAD_W, "", "lm_head.weight" },
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].role == t->role) {
            const char *name = llama ? names[i].llama : names[i].gpt2;
            if (t->layer < 0)
                return name;
            return sf_arena_printf(&f->arena, "%s.%d.%s", llama ? "model.layers" : "transformer.h", t->layer, name);
        }
    fail_msg("no name for %s", t->name);
    return NULL;
}

static void write_data(fixture *f)
{
    uint16_t tokens[1024];
    size_t n = 0, i, k;
    json_t *step, *sequence;
    json_t *last = NULL;

    json_array_foreach(json_object_get(f->root, "batches"), i, step)
    {
        json_array_foreach(step, k, sequence)
        {
            size_t T = json_array_size(sequence) - 1;
            for (size_t t = 0; t < T; t++)
                tokens[n++] = (uint16_t)json_integer_value(json_array_get(sequence, t));
            last = json_array_get(sequence, T);
        }
    }
    tokens[n++] = (uint16_t)json_integer_value(last);
    snprintf(f->data, sizeof f->data, "/tmp/sf_fixture_%ld.bin", (long)getpid());
    assert_int_equal(sf_file_write(f->data, (const char *)tokens, n * sizeof tokens[0]).code, SF_OK);
}

static void open_fixture(fixture *f, const char *name)
{
    sf_transformer m;
    sf_tensor_list list;
    sf_status st;

    memset(f, 0, sizeof *f);
    st = sf_json_read(sf_arena_printf(&f->arena, SF_TEST_DATA "/torch-training/%s.json", name), &f->root);
    if (st.code == SF_OK)
        st = sf_transformer_from_json(json_object_get(f->root, "config"), name, &f->arena, &m);
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
    sf_transformer_tensors(&m, &f->arena, &list);
    f->n_tensors = list.count;
    f->given = SF_NEW_ARRAY(&f->arena, const float *, list.count);
    f->tensor = SF_NEW_ARRAY(&f->arena, json_t *, list.count);
    double divisor = json_number_value(json_object_get(f->root, "init_divisor"));
    for (size_t i = 0; i < list.count; i++) {
        const char *theirs = their_name(f, &list.items[i], sf_str_eq(name, "llama"));
        size_t k;
        json_t *entry;
        json_array_foreach(json_object_get(f->root, "tensors"), k, entry)
            if (sf_str_eq(json_string_value(json_object_get(entry, "name")), theirs))
                f->tensor[i] = entry;
        if (f->tensor[i] == NULL)
            fail_msg("the fixture has no %s", theirs);
        json_t *init = json_object_get(f->tensor[i], "init");
        float *values = SF_NEW_ARRAY(&f->arena, float, json_array_size(init));
        assert_int_equal(json_array_size(init), list.items[i].numel);
        for (size_t e = 0; e < json_array_size(init); e++)
            values[e] = (float)(json_number_value(json_array_get(init, e)) / divisor);
        f->given[i] = values;
    }
    write_data(f);
}

static void close_fixture(fixture *f)
{
    unlink(f->data);
    json_decref(f->root);
    sf_arena_free(&f->arena);
}

static void read_job(fixture *f, const char *strategy, int ranks, int steps, sf_job *job)
{
    json_t *adamw = json_object_get(f->root, "adamw");
    char *config = json_dumps(json_object_get(f->root, "config"), 0);
#define NUMBER(key) sf_arena_printf(&f->arena, "%.9g", json_number_value(json_object_get(adamw, key)))
    const sf_override o[] = {
        { "model", config }, { "framework", "shardfit" }, { "strategy.name", strategy },
        { "cluster.gpus_per_node", sf_arena_printf(&f->arena, "%d", ranks) }, { "train.micro_batch", sf_arena_printf(&f->arena, "%d", 2 / ranks) },
        { "train.seq_len", "9" }, { "train.precision", "fp32" }, { "train.steps", sf_arena_printf(&f->arena, "%d", steps) },
        { "train.data", f->data }, { "train.lr", NUMBER("lr") }, { "train.beta1", NUMBER("beta1") }, { "train.beta2", NUMBER("beta2") },
        { "train.eps", NUMBER("eps") }, { "train.weight_decay", NUMBER("weight_decay") },
    };
#undef NUMBER
    sf_status st = sf_job_read(NULL, o, sizeof o / sizeof o[0], &f->arena, job);
    free(config);
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
}

/* Compares what a run holds at its end with a key of the fixture. */
typedef struct {
    fixture *f;
    sf_binding what;
    const char *key;
    double relative, absolute; /* |ours - theirs| <= relative * largest |theirs| of the tensor + absolute */
} comparison;

static void compare(void *ctx, sf_executor *ex)
{
    const comparison *c = ctx;
    for (size_t i = 0; i < c->f->n_tensors; i++) {
        json_t *want = json_object_get(c->f->tensor[i], c->key);
        size_t n = json_array_size(want);
        float *got = SF_NEW_ARRAY(&c->f->arena, float, n);
        sf_status st = sf_executor_read(ex, c->what, (int)i, got);
        double largest = 0;
        if (st.code != SF_OK)
            fail_msg("%s", st.msg);
        for (size_t e = 0; e < n; e++)
            largest = fmax(largest, fabs(json_number_value(json_array_get(want, e))));
        for (size_t e = 0; e < n; e++) {
            double w = json_number_value(json_array_get(want, e));
            if (!(fabs((double)got[e] - w) <= c->relative * largest + c->absolute))
                fail_msg("%s of %s, element %zu: %.9g, PyTorch has %.9g", c->key, json_string_value(json_object_get(c->f->tensor[i], "name")), e,
                         (double)got[e], w);
        }
    }
}

static void train(fixture *f, const char *strategy, int ranks, int steps, comparison *end, double *losses)
{
    sf_job job;
    const sf_program *program;
    sf_run_record record;

    read_job(f, strategy, ranks, steps, &job);
    sf_status st = sf_lower(&job, &f->arena, &program);
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
    sf_run_record_open(&record);
    sf_run_setup setup = { .job = &job, .program = program, .backend = &sf_backend_host, .given = f->given };
    if (ranks == 1) {
        sf_comm *comm;
        st = sf_comm_self_open(&comm);
        if (st.code == SF_OK) {
            st = sf_run_rank(&setup, comm, &record, end == NULL ? NULL : compare, end);
            sf_comm_close(comm);
        }
    } else {
        st = sf_run_threads(&setup, &record);
    }
    if (st.code != SF_OK)
        fail_msg("%s", st.msg);
    assert_int_equal(record.n_losses, steps);
    memcpy(losses, record.losses, sizeof *losses * (size_t)steps);
    sf_run_record_close(&record);
    sf_job_close(&job);
}

static const char *const models[] = { "gpt2", "llama" };

/* A gradient is a chain of about 20 products of up to 40 terms in f32: 20 * 40 * 2^-24 = 5e-5 of the
 * tensor's largest; cancelled sums (biases of keys) are 0 in double precision: 1e-7 absolute. */
static void every_gradient_of_the_first_batch_is_pytorch_s(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        fixture f;
        double loss;
        open_fixture(&f, models[i]);
        comparison end = { .f = &f, .what = SF_BIND_GRAD, .key = "grad", .relative = 5e-5, .absolute = 1e-7 };
        train(&f, "single", 1, 1, &end, &loss);
        close_fixture(&f);
    }
}

static void assert_losses(const fixture *f, const double *losses, const char *strategy)
{
    for (int s = 0; s < 10; s++) {
        double want = json_number_value(json_array_get(json_object_get(f->root, "losses"), (size_t)s));
        if (!(fabs(losses[s] - want) <= 1e-5 * want))
            fail_msg("%s: the loss of step %d is %.9f, PyTorch has %.9f", strategy, s + 1, losses[s], want);
    }
}

/* Ten steps move a weight by up to 10 * lr = 0.1; a gradient's relative error of 5e-5 moves it by 5e-6
 * of that where |g| >> eps, and up to lr * error / eps where it is not: 1e-5 each, 1e-4 in ten. */
static void ten_steps_give_pytorch_s_losses_and_weights(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        fixture f;
        double losses[10];
        open_fixture(&f, models[i]);
        comparison end = { .f = &f, .what = SF_BIND_MASTER, .key = "after", .relative = 0, .absolute = 1e-4 };
        train(&f, "single", 1, 10, &end, losses);
        assert_losses(&f, losses, "single");
        close_fixture(&f);
    }
}

static void two_ranks_of_every_strategy_give_pytorch_s_losses(void **state)
{
    (void)state;
    static const char *const strategies[] = { "dp", "ddp", "fsdp", "zero1", "zero2", "zero3" };
    for (int i = 0; i < 2; i++)
        for (size_t s = 0; s < sizeof strategies / sizeof strategies[0]; s++) {
            fixture f;
            double losses[10];
            open_fixture(&f, models[i]);
            train(&f, strategies[s], 2, 10, NULL, losses);
            assert_losses(&f, losses, strategies[s]);
            close_fixture(&f);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_gradient_of_the_first_batch_is_pytorch_s),
        cmocka_unit_test(ten_steps_give_pytorch_s_losses_and_weights),
        cmocka_unit_test(two_ranks_of_every_strategy_give_pytorch_s_losses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
