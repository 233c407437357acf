/* Whole training steps against PyTorch in double precision (tests/data/torch-training). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "tests/exec/mini_model.h"

static json_t *load_fixture(const char *name)
{
    char path[1000];
    snprintf(path, sizeof path, "%s/torch-training/%s.json", getenv("SF_TEST_DATA"), name);
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    if (root == NULL)
        fail_msg("%s:%d: %s", path, error.line, error.text);
    return root;
}

static double number(json_t *object, const char *key)
{
    json_t *v = json_object_get(object, key);
    if (!json_is_number(v))
        fail_msg("fixture has no number '%s'", key);
    return json_number_value(v);
}

static size_t count(json_t *object, const char *key)
{
    return (size_t)number(object, key);
}

static mini_config config_of(json_t *root)
{
    json_t *c = json_object_get(root, "config");
    mini_config out = { .seq_len = count(root, "seq_len"), .micro_batch = count(root, "micro_batch"),
                        .vocab = count(c, "vocab_size") };
    out.llama = strcmp(json_string_value(json_object_get(c, "model_type")), "llama") == 0;
    out.hidden = count(c, out.llama ? "hidden_size" : "n_embd");
    out.layers = count(c, out.llama ? "num_hidden_layers" : "n_layer");
    out.heads = count(c, out.llama ? "num_attention_heads" : "n_head");
    out.kv_heads = out.llama ? count(c, "num_key_value_heads") : out.heads;
    out.ffn = count(c, out.llama ? "intermediate_size" : "n_inner");
    out.norm_eps = (float)number(c, out.llama ? "rms_norm_eps" : "layer_norm_epsilon");
    out.rope_theta = out.llama ? number(c, "rope_theta") : 0;
    return out;
}

static void set_weights(mini_model *m, json_t *root)
{
    float *w = mini_model_params(m);
    const double divisor = number(root, "init_divisor");
    size_t i, j, at = 0;
    json_t *tensor, *value;
    json_array_foreach(json_object_get(root, "tensors"), i, tensor)
        json_array_foreach(json_object_get(tensor, "init"), j, value)
            w[at++] = (float)(json_number_value(value) / divisor);
    assert_int_equal(at, mini_model_param_count(m));
    mini_model_sync(m);
}

/* Batch `step`: inputs and next-token targets. */
static void set_batch(json_t *root, size_t step, const mini_config *c, int32_t *tokens, int32_t *targets)
{
    json_t *batch = json_array_get(json_object_get(root, "batches"), step);
    for (size_t b = 0; b < c->micro_batch; b++) {
        for (size_t t = 0; t < c->seq_len; t++) {
            tokens[b * c->seq_len + t] = (int32_t)json_integer_value(json_array_get(json_array_get(batch, b), t));
            targets[b * c->seq_len + t] = (int32_t)json_integer_value(json_array_get(json_array_get(batch, b), t + 1));
        }
    }
}

static double element(sf_dtype dt, const void *p, size_t i)
{
    if (dt == SF_F32)
        return (double)((const float *)p)[i];
    const uint32_t u = (uint32_t)((const uint16_t *)p)[i] << 16;
    float x;
    memcpy(&x, &u, 4);
    return (double)x;
}

/* sqrt(sum (got - expected)^2 / sum expected^2) over an array that begins at element `at`. */
static double relative_error(sf_dtype dt, const void *got, size_t at, json_t *expected)
{
    double difference = 0, size = 0;
    size_t i;
    json_t *value;
    json_array_foreach(expected, i, value) {
        const double e = json_number_value(value), d = element(dt, got, at + i) - e;
        difference += d * d;
        size += e * e;
    }
    return sqrt(difference / size);
}

/* Errors of a whole pass. Each of about 20 kernels in a row rounds its result (u) and adds its sum's
 * errors, a few u: relative to the array's norm 20 * 4 * u at most = 5e-6 in float (u = 2^-24). In bf16
 * the sums are in float, so only the results' roundings count, and they add up like a random walk:
 * sqrt(20) * u = 1.7e-2 (u = 2^-8); a gradient passes there and back, so sqrt(40) * u = 2.5e-2. A
 * gradient that is a small difference of large terms (the first layers' and the norms' weights) may
 * lose up to 3 times that. */
typedef struct {
    double logits, gradient, loss, weights;
} bounds;

static void train_as_torch(const char *name, sf_dtype dt, bounds bound)
{
    json_t *root = load_fixture(name);
    const mini_config c = config_of(root);
    mini_model *m = mini_model_new(&c, dt);
    set_weights(m, root);
    int32_t tokens[64], targets[64];
    assert_true(c.micro_batch * c.seq_len <= 64);
    json_t *adamw = json_object_get(root, "adamw"), *losses = json_object_get(root, "losses"), *tensor, *value;
    json_t *tensors = json_object_get(root, "tensors");
    size_t i, j, step;
    json_array_foreach(losses, step, value) {
        set_batch(root, step, &c, tokens, targets);
        mini_model_forward(m, tokens);
        if (step == 0) {
            const double e = relative_error(dt, mini_model_logits(m), 0, json_object_get(root, "logits"));
            if (!(e <= bound.logits))
                fail_msg("%s %s: logits are off by %.3g", name, sf_dtype_name(dt), e);
        }
        const double loss = (double)mini_model_backward(m, tokens, targets), expected = json_number_value(value);
        if (!(fabs(loss - expected) <= bound.loss * expected))
            fail_msg("%s %s: loss of step %zu is %.9g, PyTorch's %.9g", name, sf_dtype_name(dt), step + 1, loss, expected);
        size_t at = 0;
        json_array_foreach(tensors, i, tensor) {
            json_t *grad = json_object_get(tensor, "grad");
            const double e = relative_error(dt, mini_model_grads(m), at, grad);
            if (step == 0 && !(e <= bound.gradient))
                fail_msg("%s %s: gradient of %s is off by %.3g", name, sf_dtype_name(dt),
                         json_string_value(json_object_get(tensor, "name")), e);
            at += json_array_size(grad);
        }
        mini_model_update(m, &(sf_adamw){ .lr = number(adamw, "lr"), .beta1 = number(adamw, "beta1"),
                                          .beta2 = number(adamw, "beta2"), .eps = number(adamw, "eps"),
                                          .weight_decay = number(adamw, "weight_decay"), .step = (int64_t)step + 1,
                                          .grad_scale = 1 });
    }
    assert_int_equal(step, 10);
    size_t at = 0;
    json_array_foreach(tensors, i, tensor) {
        json_array_foreach(json_object_get(tensor, "after"), j, value) {
            const double got = (double)mini_model_params(m)[at++], expected = json_number_value(value);
            if (!(fabs(got - expected) <= bound.weights))
                fail_msg("%s %s: %s[%zu] after 10 steps is %.9g, PyTorch's %.9g", name, sf_dtype_name(dt),
                         json_string_value(json_object_get(tensor, "name")), j, got, expected);
        }
    }
    mini_model_free(m);
    json_decref(root);
}

/* A step moves a weight by at most lr = 0.01; eps = 1e-4 keeps gradients of rounding size from mattering:
 * an error of 1e-7 in a gradient near 0 is 1e-3 of a step. Ten steps: 10 * 0.01 * 1e-3 = 1e-4. */
static void gpt2_trains_as_in_torch(void **state)
{
    (void)state;
    train_as_torch("gpt2", SF_F32, (bounds){ .logits = 5e-6, .gradient = 5e-6, .loss = 5e-6, .weights = 1e-4 });
}

static void llama_trains_as_in_torch(void **state)
{
    (void)state;
    train_as_torch("llama", SF_F32, (bounds){ .logits = 5e-6, .gradient = 5e-6, .loss = 5e-6, .weights = 1e-4 });
}

/* bf16: a gradient near 0 may have either sign, so that a weight may go the other way in every step:
 * 2 * 10 * 0.01. The loss, an average of 18, feels sqrt(20) * u / sqrt(18) = 4e-3 of logits of order 1 in
 * the first step, and in later ones as much again from the weights' difference. */
static void gpt2_trains_in_bf16(void **state)
{
    (void)state;
    train_as_torch("gpt2", SF_BF16, (bounds){ .logits = 1.7e-2, .gradient = 7.5e-2, .loss = 8e-3, .weights = 0.2 });
}

static void llama_trains_in_bf16(void **state)
{
    (void)state;
    train_as_torch("llama", SF_BF16, (bounds){ .logits = 1.7e-2, .gradient = 7.5e-2, .loss = 8e-3, .weights = 0.2 });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_trains_as_in_torch),
        cmocka_unit_test(llama_trains_as_in_torch),
        cmocka_unit_test(gpt2_trains_in_bf16),
        cmocka_unit_test(llama_trains_in_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
