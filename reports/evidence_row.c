/* A published run as a JOB. */
#define _GNU_SOURCE /* strcasestr */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/base/text.h"
#include "reports/evidence_row.h"

static bool has(const char *text, const char *part) { return strcasestr(text, part) != NULL; }
static double number(const char *text) { return text[0] == '\0' ? 0 : strtod(text, NULL); }

static const char *field(const sf_run_row *r, const char *name) { return sf_csv_field(r->csv, r->row, name); }
static double value(const sf_run_row *r, const char *name) { return number(field(r, name)); }

static bool parallel(const sf_run_row *r)
{
    return value(r, "tp") > 1 || value(r, "pp") > 1 || value(r, "cp") > 1 || value(r, "ep") > 1;
}

/* ---- model ---- */

static json_t *model_of(const sf_run_row *r)
{
    double hidden = value(r, "hidden"), ffn = value(r, "ffn_hidden"), heads = value(r, "n_heads"), kv = value(r, "n_kv_heads");
    const char *kind = field(r, "mlp_kind");
    bool tied = has(field(r, "tied_embeddings"), "yes");
    ffn = ffn > 0 ? ffn : 4 * hidden;
    kv = kv > 0 ? kv : heads;
    if (has(kind, "glu"))
        return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:I, s:s}", "model_type", "llama", "num_hidden_layers", (json_int_t)value(r, "n_layers"),
                         "hidden_size", (json_int_t)hidden, "num_attention_heads", (json_int_t)heads, "num_key_value_heads", (json_int_t)kv, "intermediate_size",
                         (json_int_t)ffn, "vocab_size", (json_int_t)value(r, "vocab"), "tie_word_embeddings", (int)tied, "max_position_embeddings",
                         (json_int_t)value(r, "seq_len"), "hidden_act", "silu");
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:s}", "model_type", "gpt2", "n_layer", (json_int_t)value(r, "n_layers"), "n_embd",
                     (json_int_t)hidden, "n_head", (json_int_t)heads, "n_inner", (json_int_t)ffn, "vocab_size", (json_int_t)value(r, "vocab"), "n_positions",
                     (json_int_t)value(r, "seq_len"), "tie_word_embeddings", (int)tied, "activation_function", has(kind, "relu") ? "relu" : "gelu");
}

/* ---- cluster ---- */

/* "8 x 200 Gb/s IB per node", "400 Gb/s per GPU", "1600 Gbps/node RoCE", "800 Gb/s per node", "100 Gb/s". */
static json_t *network_of(const sf_run_row *r, double per_node)
{
    const char *text = field(r, "inter_link");
    double first = 0, second = 0, nics = 1, gbit;
    const char *end = text;
    /* the first number of a rate ("400 Gb/s") or of a count ("8x400"); that of a name ("H100") is none */
    for (const char *at = text; *at != '\0'; at = end) {
        char *after;
        end = at + 1;
        if (!isdigit((unsigned char)*at))
            continue;
        double x = strtod(at, &after);
        end = after;
        while (*end == ' ')
            end++;
        if (*end == 'G' || ((*end == 'x' || *end == '*') && strtod(end + 1, NULL) > 0)) {
            first = x;
            break;
        }
    }
    if (first <= 0)
        return NULL; /* not stated: as is usual for the GPU */
    gbit = first;
    if ((*end == 'x' || *end == '*') && (second = strtod(end + 1, NULL)) > 0) {
        nics = first;
        gbit = second;
    } else if (has(text, "per GPU")) {
        nics = per_node;
    } else if (has(text, "EFA") && gbit > 400) {
        nics = gbit / 100;
        gbit = 100;
    } else if (gbit > 400) {
        nics = per_node;
        gbit /= per_node;
    }
    return json_pack("{s:i, s:f, s:s}", "nics", (int)(nics < 1 ? 1 : nics), "gbit_per_nic", gbit,
                     "kind", has(text, "EFA") ? "efa" : has(text, "RoCE") ? "roce" : has(text, "Ethernet") || has(text, "TCP") ? "tcp" : "ib");
}

static json_t *cluster_of(const sf_run_row *r)
{
    double n = value(r, "n_gpus"), per = value(r, "gpus_per_node");
    const char *gpu = field(r, "gpu"), *link = field(r, "intra_link");
    per = per > 0 ? per : 8;
    per = per > n ? n : per;
    if (n / per != (double)(int)(n / per))
        per = 1;
    json_t *c = json_pack("{s:s, s:i, s:i}", "gpu", gpu, "gpus_per_node", (int)per, "nodes", (int)(n / per));
    if (has(link, "PCIe"))
        json_object_set_new(c, "intra", json_string("pcie"));
    if (has(link, "P2P disabled") || has(link, "host staged"))
        json_object_set_new(c, "p2p", json_false());
    if (n > per) {
        json_t *net = network_of(r, per);
        if (net != NULL)
            json_object_set_new(c, "inter", net);
    }
    return c;
}

/* ---- strategy ---- */

static void set(json_t *o, const char *key, json_t *v) { json_object_set_new(o, key, v); }

static const char *offload_of(const sf_run_row *r, json_t *s, bool fsdp)
{
    const char *o = field(r, "offload");
    bool optimizer = strcmp(o, "opt") == 0 || strcmp(o, "opt+param") == 0 || strcmp(o, "opt+grad") == 0, params = strcmp(o, "opt+param") == 0;
    if (o[0] == '\0' || strcmp(o, "none") == 0)
        return has(field(r, "strategy"), "offload") ? "what is offloaded is not stated" : NULL;
    if (strcmp(o, "param") == 0)
        optimizer = params = true;
    if (!optimizer)
        return "this kind of offload is not modelled";
    if (fsdp) {
        set(s, "cpu_offload", json_true());
        return NULL;
    }
    set(s, "offload_optimizer", json_pack("{s:s}", "device", "cpu"));
    if (params)
        set(s, "offload_param", json_pack("{s:s}", "device", "cpu"));
    return NULL;
}

/* Framework and strategy, or why not. */
static const char *strategy_of(const sf_run_row *r, json_t *job)
{
    const char *framework = field(r, "framework"), *strategy = field(r, "strategy"), *detail = field(r, "sharding_detail");
    json_t *s = json_object();
    const char *why = NULL, *name = NULL, *fw = "pytorch";
    bool one = value(r, "n_gpus") <= 1;

    set(job, "strategy", s);
    if (has(framework, "JAX"))
        return "JAX is not modelled";
    if (has(strategy, "Gemini") || has(framework, "Colossal"))
        return "Colossal-AI is not modelled";
    if (has(framework, "FairScale") || has(strategy, "FairScale"))
        return "FairScale is not modelled";
    if (has(framework, "llmq") || has(framework, "llm.c"))
        return "a CUDA trainer of its own: no framework's behaviour is modelled for it";
    if (has(strategy, "PTD") || has(strategy, "3D") || has(strategy, "+CP") || has(strategy, "no CP") || has(strategy, "Megatron-FSDP") || has(strategy, "sharded weights"))
        return "this combination of parallelisms is not modelled";
    if (has(strategy, "ZeRO-3") || has(strategy, "ZeRO-2") || has(strategy, "ZeRO-1")) {
        name = has(strategy, "ZeRO-3") ? "zero3" : has(strategy, "ZeRO-2") ? "zero2" : "zero1";
        fw = "deepspeed";
        if (has(strategy, "FSDP-ZeRO2")) {
            fw = "pytorch";
            name = "fsdp";
            set(s, "sharding", json_string("shard_grad_op"));
        }
    } else if (has(strategy, "HSDP") || has(strategy, "FSDP")) {
        name = has(framework, "FSDP2") || has(detail, "FSDP2") || has(framework, "torchtitan") ? "fsdp2" : "fsdp";
        if (has(strategy, "HSDP"))
            set(s, "sharding", json_string("hybrid_shard"));
        if (has(detail, "zero2") && strcmp(name, "fsdp2") == 0)
            set(s, "reshard_after_forward", json_false());
    } else if (one || has(strategy, "single")) {
        name = "single";
    } else if (has(strategy, "DataParallel")) {
        name = "dp";
    } else if (has(strategy, "DDP") || strcmp(strategy, "DP") == 0) {
        name = "ddp";
    } else {
        return "this strategy is not known";
    }
    if (name[0] == 's' && has(framework, "DeepSpeed")) { /* single */
        name = "ddp";
        fw = "deepspeed";
    }
    set(job, "framework", json_string(fw));
    set(s, "name", json_string(name));
    if (strcmp(name, "fsdp") == 0 || strcmp(name, "fsdp2") == 0) {
        why = offload_of(r, s, true);
        /* torchtitan's mixed_precision_reduce is float32; FSDP2 without a policy reduces in the parameters' type */
        if (has(field(r, "notes"), "reduce fp32") || (strcmp(name, "fsdp2") == 0 && !has(field(r, "precision"), "pure")))
            set(s, "reduce_dtype", json_string("fp32"));
    } else if (fw[0] == 'd' && strcmp(name, "ddp") != 0) {
        why = offload_of(r, s, false);
        if (has(strategy, "dist-optimizer"))
            set(s, "overlap_comm", json_true());
    } else if (field(r, "offload")[0] != '\0' && strcmp(field(r, "offload"), "none") != 0) {
        why = "offload without sharding is not modelled";
    }
    if (value(r, "n_gpus") <= value(r, "gpus_per_node") && has(strategy, "HSDP"))
        json_object_del(s, "sharding");
    return why;
}

/* ---- training ---- */

static const char *precision_of(const sf_run_row *r, const json_t *job)
{
    const char *p = field(r, "precision"), *name = json_string_value(json_object_get(json_object_get(job, "strategy"), "name"));
    bool autocasts = strcmp(name, "ddp") == 0 || strcmp(name, "single") == 0;
    bool deepspeed = strcmp(json_string_value(json_object_get(job, "framework")), "deepspeed") == 0;
    if (has(p, "fp8"))
        return "fp8-mixed";
    if (has(p, "pure bf16") || has(p, "bf16 params"))
        return deepspeed ? "bf16-mixed" : "bf16-pure";
    if (has(p, "tf32"))
        return "tf32";
    if (has(p, "fp32") && !has(p, "16"))
        return "fp32";
    if (has(p, "bf16"))
        return autocasts && !deepspeed ? "bf16-autocast" : "bf16-mixed";
    return has(p, "fp16") ? "fp16-mixed" : NULL;
}

static const char *optimizer_of(const sf_run_row *r)
{
    const char *o = field(r, "optimizer");
    if (has(o, "8bit"))
        return "adamw-8bit";
    if (has(o, "sgd"))
        return "sgd";
    if (has(o, "adafactor"))
        return "adafactor";
    /* apex' and Transformer Engine's FusedAdam is what Megatron and NeMo train with */
    if (has(o, "fused") || has(o, "distributed") || has(o, "LAMB") || has(field(r, "framework"), "Megatron") || has(field(r, "framework"), "NeMo"))
        return "adamw-fused";
    return "adamw";
}

/* Selective is by ops (torchtitan), or of whole layers: said so, or, in fms-fsdp, a share of the blocks, which shows in the
 * ratio of the hardware's FLOPs to the model's: 1 + share / 3. */
static void recompute_of(const sf_run_row *r, json_t *train)
{
    const char *ckpt = field(r, "act_ckpt"), *every = strstr(ckpt, "every ");
    bool selective = has(ckpt, "selective"), blocks = has(field(r, "framework"), "fms-fsdp");
    double mfu = value(r, "mfu_pct"), hfu = value(r, "hfu_pct"), share = 1;

    if (selective && every != NULL)
        share = 1.0 / fmax(1, strtod(every + strlen("every "), NULL));
    else if (selective && blocks && mfu > 0 && hfu > mfu)
        share = fmin(1, 3 * (hfu / mfu - 1));
    bool whole = has(ckpt, "full") || (selective && (every != NULL || blocks));
    set(train, "recompute", json_string(whole ? "full" : selective ? "selective" : "none"));
    set(train, "recompute_share", json_real(share));
}

const char *sf_run_to_job(const sf_run_row *r, sf_arena *arena, json_t **out)
{
    json_t *job = json_object(), *train = json_object();
    *out = job;
    set(job, "train", train);
    static const char *const needed[] = { "n_layers", "hidden", "n_heads", "vocab", "seq_len", "n_gpus", "gpu", "precision" };
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
        if (field(r, needed[i])[0] == '\0')
            return sf_arena_printf(arena, "%s is not stated", needed[i]);
    if (parallel(r))
        return "tensor, pipeline, context or expert parallelism is not modelled";
    if (has(field(r, "gpu"), "not printed"))
        return "the GPU is not stated";
    if (has(field(r, "optimizer"), "in backward") || has(field(r, "optimizer"), "muon"))
        return "this optimizer is not modelled";
    if (value(r, "micro_batch") <= 0)
        return "micro_batch is not stated";
    if (has(field(r, "model_name"), "T5"))
        return "encoder-decoder models are not modelled";
    if (has(field(r, "model_name"), "BERT")) /* their head sees the masked positions only */
        return "encoder models are not modelled";
    const char *why = strategy_of(r, job);
    if (why != NULL)
        return why;
    const char *precision = precision_of(r, job);
    if (precision == NULL)
        return "the precision is not known";
    double n = value(r, "n_gpus"), micro = value(r, "micro_batch"), accum = value(r, "grad_accum"), global = value(r, "global_batch");
    if (global > 0 && micro * n > 0)
        accum = global / (micro * n);
    accum = accum < 1 ? 1 : (double)(long)(accum + 0.5);
    const char *attention = field(r, "attention_impl");
    set(job, "model", model_of(r));
    set(job, "cluster", cluster_of(r));
    set(train, "micro_batch", json_integer((json_int_t)micro));
    set(train, "grad_accum", json_integer((json_int_t)accum));
    set(train, "seq_len", json_integer((json_int_t)value(r, "seq_len")));
    set(train, "precision", json_string(precision));
    set(train, "optimizer", json_string(optimizer_of(r)));
    recompute_of(r, train);
    /* FlashAttention-2 is of July 2023: an unnumbered "flash" of that year or before is the first */
    bool first = strcmp(attention, "flash") == 0 && value(r, "year") > 0 && value(r, "year") <= 2023;
    /* Transformer Engine, which NeMo and Megatron-Core train with, takes cuDNN's kernel on Hopper */
    bool cudnn = has(attention, "cudnn") || has(attention, "TransformerEngine") || has(field(r, "framework"), "Megatron-Core");
    /* Megatron's local implementation writes attention out */
    set(train, "attention", json_string(has(attention, "unfused") || has(attention, "eager") || has(field(r, "sharding_detail"), "impl local") ? "eager" : cudnn ? "cudnn" : first ? "flash-v1" : "flash"));
    /* llm-foundry's default loss_fn is flash-attn's fused_crossentropy; Megatron's and NeMo's is fused too */
    if (has(field(r, "framework"), "Composer") || has(field(r, "framework"), "Megatron"))
        set(train, "loss", json_string("kernel"));
    /* torchtitan compiles its loss too since 2025 (components/loss.py) */
    if (has(field(r, "framework"), "torchtitan") && has(field(r, "compile"), "yes") && value(r, "year") >= 2025)
        set(train, "loss", json_string("kernel"));
    if (has(field(r, "notes"), "Liger"))
        set(train, "loss", json_string("fused"));
    else if (has(field(r, "notes"), "chunked CE"))
        set(train, "loss", json_string("chunked"));
    set(train, "compile", json_boolean(has(field(r, "compile"), "yes")));
    set(train, "fused_kernels", json_boolean(has(attention, "TransformerEngine") || has(field(r, "framework"), "Megatron")));
    set(train, "dropout", json_real(0));
    set(train, "sync_each_micro_step", json_boolean(has(field(r, "framework"), "Composer")));
    return NULL;
}

double sf_run_tokens_per_s(const sf_run_row *r)
{
    double total = value(r, "tokens_per_s_total"), each = value(r, "tokens_per_s_per_gpu"), step = value(r, "step_time_s");
    if (total > 0)
        return total;
    if (each > 0)
        return each * value(r, "n_gpus");
    return step > 0 ? value(r, "global_batch") * value(r, "seq_len") / step : 0;
}
