"""Writes tests/data/hf-tensors.json: for a small model of each family, its config.json and what
named_parameters() gives: names, shapes and order. Needs torch and transformers (5.24 was used);
the test suite reads only the file.

    python tests/oracle/hf_tensors.py tests/data/hf-tensors.json
"""
import json
import re
import sys

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

BASE = dict(vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=64)
GPT = dict(vocab_size=40, n_embd=32, n_layer=2, n_head=4, n_positions=64)
NEOX = dict(vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64)
MOE = dict(BASE, moe_intermediate_size=16, num_experts_per_tok=2)
MLA = dict(MOE, n_routed_experts=4, n_shared_experts=1, first_k_dense_replace=1, kv_lora_rank=16, q_lora_rank=24, qk_rope_head_dim=8,
           qk_nope_head_dim=16, v_head_dim=16, num_key_value_heads=4, n_group=1, topk_group=1)
FAMILIES = [
    ("gpt2", GPT), ("gpt2", dict(GPT, tie_word_embeddings=False, n_inner=40)), ("openai-gpt", GPT), ("gpt_bigcode", GPT),
    ("gpt_bigcode", dict(GPT, multi_query=False)), ("gptj", dict(GPT, rotary_dim=4)), ("codegen", dict(GPT, rotary_dim=4)),
    ("gpt_neo", dict(vocab_size=40, hidden_size=32, num_layers=2, num_heads=4, max_position_embeddings=64, attention_types=[[["global", "local"], 1]])),
    ("gpt_neox", NEOX), ("gpt_neox", dict(NEOX, attention_bias=False, use_parallel_residual=False)),
    ("opt", dict(vocab_size=40, hidden_size=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64, word_embed_proj_dim=32)),
    ("opt", dict(vocab_size=40, hidden_size=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64, word_embed_proj_dim=16,
                 do_layer_norm_before=False)),
    ("bloom", dict(vocab_size=40, hidden_size=32, n_layer=2, n_head=4)),
    ("falcon", dict(vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)),
    ("falcon", dict(vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_kv_heads=2, new_decoder_architecture=True)),
    ("falcon", dict(vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, bias=True, parallel_attn=False, multi_query=False)),
    ("mpt", dict(vocab_size=40, d_model=32, n_layers=2, n_heads=4, max_seq_len=64)),
    ("phi", BASE), ("phi", dict(BASE, qk_layernorm=True)), ("phi3", dict(BASE, pad_token_id=0)), ("phimoe", dict(BASE, num_local_experts=4)),
    ("persimmon", NEOX), ("stablelm", BASE), ("stablelm", dict(BASE, use_qkv_bias=True, use_parallel_residual=True)), ("starcoder2", BASE),
    ("starcoder2", dict(BASE, use_bias=False)), ("nemotron", dict(BASE, head_dim=8)), ("arcee", BASE), ("apertus", BASE), ("olmo", BASE), ("olmo2", BASE),
    ("olmo3", BASE), ("olmoe", dict(BASE, num_experts=4, num_experts_per_tok=2)), ("gemma", dict(BASE, head_dim=16)), ("gemma2", dict(BASE, head_dim=16)),
    ("gemma3_text", dict(BASE, head_dim=16)), ("qwen2", BASE), ("qwen2_moe", dict(MOE, num_experts=4, shared_expert_intermediate_size=24)),
    ("qwen2_moe", dict(MOE, num_experts=4, shared_expert_intermediate_size=24, mlp_only_layers=[0])), ("qwen3", dict(BASE, head_dim=16)),
    ("qwen3_moe", dict(MOE, num_experts=4, head_dim=16)), ("qwen3_moe", dict(MOE, num_experts=4, head_dim=16, decoder_sparse_step=2)), ("exaone4", BASE),
    ("gpt_oss", dict(BASE, num_experts_per_tok=2, num_local_experts=4, head_dim=16)), ("mixtral", dict(BASE, num_local_experts=4)),
    ("minimax_m2", dict(BASE, num_experts_per_tok=2, num_local_experts=4, head_dim=8)), ("granitemoe", dict(BASE, num_experts_per_tok=2, num_local_experts=4)), ("granite", BASE),
    ("granite", dict(BASE, attention_bias=True, mlp_bias=True)), ("deepseek_v2", dict(MLA)), ("deepseek_v2", dict(MLA, q_lora_rank=None)),
    ("deepseek_v3", dict(MLA)), ("minicpm3", dict(BASE, num_key_value_heads=4, kv_lora_rank=16, q_lora_rank=24, qk_rope_head_dim=8, qk_nope_head_dim=16, v_head_dim=16)),
    ("glm4_moe", dict(MOE, n_routed_experts=4, n_shared_experts=1, first_k_dense_replace=1, head_dim=8, n_group=1, topk_group=1)),
    ("llama4_text", dict(MOE, num_local_experts=4, intermediate_size_mlp=40, head_dim=8, interleave_moe_layer_step=2)), ("ernie4_5", dict(BASE, head_dim=8)),
    ("ernie4_5_moe", dict(MOE, moe_num_experts=4, moe_k=2, moe_num_shared_experts=1, moe_layer_start_index=1)), ("glm", dict(BASE, head_dim=8, pad_token_id=0)),
    ("glm4", dict(BASE, head_dim=8, pad_token_id=0)), ("cohere", BASE), ("cohere", dict(BASE, use_qk_norm=True)), ("cohere2", BASE),
    ("seed_oss", dict(BASE, head_dim=8)), ("smollm3", dict(BASE, pad_token_id=0)), ("llama", BASE), ("llama", dict(BASE, attention_bias=True, mlp_bias=True)),
    ("mistral", dict(BASE, head_dim=16)), ("helium", dict(BASE, head_dim=8)), ("ministral3", dict(BASE, head_dim=16)),
]


def config_of(model_type, given):
    """What the file of such a model says: the given fields and the switches that its class has."""
    config = CONFIG_MAPPING[model_type](**given)
    everything = json.loads(config.to_json_string(use_diff=False))
    keep = re.compile(r"bias|norm|tie|window|layer_types|act|pattern|expert|alibi|multi|parallel|decoder|attn_config|pct|partial|head|attention_layers")
    return config, dict({k: v for k, v in everything.items() if keep.search(k)}, **given, model_type=model_type)


def main(path):
    entries = []
    for model_type, given in FAMILIES:
        config, stated = config_of(model_type, given)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
        entries.append({"config": stated, "parameters": sum(p.numel() for p in model.parameters()),
                        "tensors": [[name, list(p.shape)] for name, p in model.named_parameters()]})
    with open(path, "w") as out:
        out.write("[\n" + ",\n".join(json.dumps(e, separators=(",", ":")) for e in entries) + "\n]\n")


main(sys.argv[1])
