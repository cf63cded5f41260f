"""Writes a tiny model with a real tokenizer, which says what we like: `tiny_gguf.py VOCABULARY TEMPLATE OUT TEXT`.

The next token depends on the last one alone: layers add nothing, and the output row of each token of TEXT is the
embedding of the one before it. So after a newline, with which a prompt ends, the model says TEXT and stops, however
long the prompt. TEXT is given token by token, with `|` between them, and no token may occur in it twice.
"""

from __future__ import annotations

import sys

import gguf
import numpy as np

EMBEDDING, CONTEXT = 256, 131_072

#: A newline in the vocabulary's spelling.
NEWLINE = "\u010a"

#: With which a message ends.
END = "<|im_end|>"

#: What Qwen 2.5 has where the vocabulary of Qwen 2 has padding.
ADDED = {151_657: "<tool_call>", 151_658: "</tool_call>"}


def main(vocabulary: str, template: str, out: str, text: str) -> None:
    source = gguf.GGUFReader(vocabulary)
    writer = gguf.GGUFWriter(out, "llama")
    fields = {name: field.contents() for name, field in source.fields.items() if name.startswith("tokenizer.")}
    tokens = fields["tokenizer.ggml.tokens"]
    for number, token in ADDED.items():
        tokens[number] = token
        fields["tokenizer.ggml.token_type"][number] = gguf.TokenType.USER_DEFINED
    fields["tokenizer.ggml.eos_token_id"] = tokens.index(END)
    fields.pop("tokenizer.chat_template", None)
    for name, value in fields.items():
        kinds = source.fields[name].types
        writer.add_key_value(
            name, value, kinds[0], sub_type=kinds[-1] if kinds[0] == gguf.GGUFValueType.ARRAY else None
        )
    with open(template, encoding="utf-8") as file:
        writer.add_chat_template(file.read())
    writer.add_name("bigrams")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(EMBEDDING)
    writer.add_block_count(1)
    writer.add_feed_forward_length(EMBEDDING)
    writer.add_head_count(1)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_rope_dimension_count(EMBEDDING)

    numbers = {token: number for number, token in enumerate(tokens)}
    chain = [numbers[piece] for piece in (*text.split("|"), END)]
    assert len(set(chain)) == len(chain), [tokens[one] for one in chain if chain.count(one) > 1]
    embeddings = np.random.default_rng(7).choice([-1.0, 1.0], (len(tokens), EMBEDDING)).astype(np.float16)
    output = np.zeros_like(embeddings)
    for before, after in zip([numbers[NEWLINE], *chain], chain):  # noqa: B905 - also on older Pythons
        output[after] = embeddings[before]
    writer.add_tensor("token_embd.weight", embeddings)
    writer.add_tensor("output.weight", output)
    writer.add_tensor("output_norm.weight", np.ones(EMBEDDING, np.float32))
    for name in ("attn_norm", "ffn_norm"):
        writer.add_tensor(f"blk.0.{name}.weight", np.ones(EMBEDDING, np.float32))
    nothing = np.zeros((EMBEDDING, EMBEDDING), np.float16)
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        writer.add_tensor(f"blk.0.{name}.weight", nothing)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
