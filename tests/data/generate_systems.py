#!/usr/bin/env python3
"""Makes the golden values of known systems beside this file with the transformers library: python3 generate_systems.py

Tiny models with random weights that are float32 numbers; logits, loss and all gradients in float64. Names of parameters are those of libattn."""
import torch
import torch.nn.functional as F
from transformers import (LlamaConfig, LlamaForCausalLM, MptConfig, MptForCausalLM, Qwen3Config, Qwen3ForCausalLM, T5Config,
                          T5ForConditionalGeneration)

from generate import SEED, integers, tokens_of, write

VOCABULARY, WIDTH, HEADS = 13, 16, 4


def randomise(model):
    with torch.no_grad():
        for p in model.parameters():
            start = 1.0 if p.dim() == 1 else 0.0
            p.copy_((start + torch.randn_like(p) * 0.3).float().double())


def record(name, forward, names, lengths, source_lengths=None):
    """names: {libattn's name: parameter, or a part of one and its place}"""
    target = tokens_of(lengths, VOCABULARY)
    labels = [torch.randint(VOCABULARY, t.shape) for t in target]
    source = tokens_of(source_lengths, VOCABULARY) if source_lengths else [None] * len(target)
    logits = torch.cat([forward(s, t) for s, t in zip(source, target)])
    loss = F.cross_entropy(logits, torch.cat(labels))
    loss.backward()
    put = {"logits": logits, "loss": loss, "target": torch.cat(target).int(), "labels": torch.cat(labels).int(),
           "target_lengths": integers(lengths)}
    if source_lengths:
        put.update({"source": torch.cat(source).int(), "source_lengths": integers(source_lengths)})
    for key, at in names.items():
        parameter, part = at if isinstance(at, tuple) else (at, slice(None))
        put[f"weight.{key}"] = parameter.detach()[part].float()
        put[f"gradient.{key}"] = parameter.grad[part]
    write(name, put)


def llama_names(model, qk_norm):
    names = {"target_embedding.weight": model.model.embed_tokens.weight, "decoder.final_norm.weight": model.model.norm.weight,
             "output.weight": model.lm_head.weight}
    for i, layer in enumerate(model.model.layers):
        at, here = layer.self_attn, f"decoder.layers.{i}."
        names.update({here + "self_attention_norm.weight": layer.input_layernorm.weight,
                      here + "self_attention.query.weight": at.q_proj.weight, here + "self_attention.key.weight": at.k_proj.weight,
                      here + "self_attention.value.weight": at.v_proj.weight, here + "self_attention.output.weight": at.o_proj.weight,
                      here + "feed_forward_norm.weight": layer.post_attention_layernorm.weight,
                      here + "feed_forward.gate.weight": layer.mlp.gate_proj.weight, here + "feed_forward.up.weight": layer.mlp.up_proj.weight,
                      here + "feed_forward.output.weight": layer.mlp.down_proj.weight})
        if qk_norm:
            names.update({here + "self_attention.query_norm.weight": at.q_norm.weight,
                          here + "self_attention.key_norm.weight": at.k_norm.weight})
    return names


def llama():
    config = LlamaConfig(vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=24, num_hidden_layers=2, num_attention_heads=HEADS,
                         num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, attn_implementation="eager",
                         rope_parameters={"rope_type": "llama3", "rope_theta": 50.0, "factor": 4.0, "low_freq_factor": 1.0,
                                          "high_freq_factor": 4.0, "original_max_position_embeddings": 16})
    model = LlamaForCausalLM(config).double().eval()
    randomise(model)
    record("llama", lambda s, t: model(t[None].long()).logits[0], llama_names(model, False), [9, 1, 6])


def qwen3():
    config = Qwen3Config(vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=20, num_hidden_layers=2, num_attention_heads=HEADS,
                         num_key_value_heads=1, head_dim=6, max_position_embeddings=64, rms_norm_eps=1e-6, attn_implementation="eager",
                         tie_word_embeddings=False, rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
    model = Qwen3ForCausalLM(config).double().eval()
    randomise(model)
    record("qwen3", lambda s, t: model(t[None].long()).logits[0], llama_names(model, True), [7, 4])


def mpt():
    config = MptConfig(vocab_size=VOCABULARY, d_model=WIDTH, n_heads=HEADS, n_layers=2, max_seq_len=64, resid_pdrop=0.0,
                       emb_pdrop=0.0, attn_implementation="eager")
    model = MptForCausalLM(config).double().eval()
    randomise(model)
    names = {"target_embedding.weight": model.transformer.wte.weight, "decoder.final_norm.weight": model.transformer.norm_f.weight}
    for i, layer in enumerate(model.transformer.blocks):
        here, joined = f"decoder.layers.{i}.", layer.attn.Wqkv.weight
        names.update({here + "self_attention_norm.weight": layer.norm_1.weight, here + "self_attention.output.weight": layer.attn.out_proj.weight,
                      here + "feed_forward_norm.weight": layer.norm_2.weight, here + "feed_forward.input.weight": layer.ffn.up_proj.weight,
                      here + "feed_forward.output.weight": layer.ffn.down_proj.weight})
        for k, part in enumerate(("query", "key", "value")):
            names[here + f"self_attention.{part}.weight"] = (joined, slice(k * WIDTH, (k + 1) * WIDTH))
    record("mpt", lambda s, t: model(t[None].long()).logits[0], names, [8, 3])


def t5_attention(here, at):
    return {here + "query.weight": at.q.weight, here + "key.weight": at.k.weight, here + "value.weight": at.v.weight,
            here + "output.weight": at.o.weight}


def t5():
    config = T5Config(vocab_size=VOCABULARY, d_model=WIDTH, d_kv=4, d_ff=24, num_layers=2, num_decoder_layers=2, num_heads=HEADS,
                      relative_attention_num_buckets=8, relative_attention_max_distance=10, dropout_rate=0.0, tie_word_embeddings=False,
                      decoder_start_token_id=0, pad_token_id=0)
    model = T5ForConditionalGeneration(config).double().eval()
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    randomise(model)
    shared = model.shared.weight
    for stack in (model.encoder, model.decoder):
        stack.embed_tokens.weight = shared  # one table, whatever the version of the library makes of tie_word_embeddings
    names = {"target_embedding.weight": shared, "output.weight": model.lm_head.weight}
    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        names[f"{side}.final_norm.weight"] = stack.final_layer_norm.weight
        names[f"{side}.layers.0.self_attention.position.weight"] = stack.block[0].layer[0].SelfAttention.relative_attention_bias.weight
        for i, block in enumerate(stack.block):
            here = f"{side}.layers.{i}."
            names.update(t5_attention(here + "self_attention.", block.layer[0].SelfAttention))
            names[here + "self_attention_norm.weight"] = block.layer[0].layer_norm.weight
            if side == "decoder":
                names.update(t5_attention(here + "cross_attention.", block.layer[1].EncDecAttention))
                names[here + "cross_attention_norm.weight"] = block.layer[1].layer_norm.weight
            names[here + "feed_forward_norm.weight"] = block.layer[-1].layer_norm.weight
            names[here + "feed_forward.input.weight"] = block.layer[-1].DenseReluDense.wi.weight
            names[here + "feed_forward.output.weight"] = block.layer[-1].DenseReluDense.wo.weight
    record("t5", lambda s, t: model(input_ids=s[None].long(), decoder_input_ids=t[None].long()).logits[0], names, [6, 12], [15, 4])


if __name__ == "__main__":
    for part in (llama, qwen3, mpt, t5):
        torch.manual_seed(SEED)
        part()
