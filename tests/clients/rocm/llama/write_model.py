"""Writes a small llama model with random weights, of the shape that real ones have.

The sizes are chosen so that the phases of a run take memory on different scales (weights about 14 MiB, KV
cache about 48 MiB, scratch above 100 MiB at a context of 8192): a capacity between two of them makes exactly
one phase fail, on any version of the runtime.
"""

import sys

import gguf
import numpy as np

LAYERS = 6
WIDTH = 256
FEED_FORWARD = 1024
HEADS = 8
CONTEXT = 8192
VOCABULARY = 1024


def tokens():
    """The three special tokens and all bytes, which llama.cpp insists on, then filling."""
    special = [(b"<unk>", gguf.TokenType.UNKNOWN), (b"<s>", gguf.TokenType.CONTROL), (b"</s>", gguf.TokenType.CONTROL)]
    byte_tokens = [(b"<0x%02X>" % byte, gguf.TokenType.BYTE) for byte in range(256)]
    words = [(b"word%d" % n, gguf.TokenType.NORMAL) for n in range(VOCABULARY - len(special) - len(byte_tokens))]
    return special + byte_tokens + words


def add_vocabulary(writer):
    texts, kinds = zip(*tokens())
    writer.add_tokenizer_model("llama")
    writer.add_token_list(list(texts))
    writer.add_token_scores([-float(n) for n in range(VOCABULARY)])
    writer.add_token_types([int(kind) for kind in kinds])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)


def add_weights(writer):
    random = np.random.default_rng(1)

    def matrix(name, rows, columns):
        writer.add_tensor(name, random.standard_normal((rows, columns), dtype=np.float32).astype(np.float16))

    def norm(name):
        writer.add_tensor(name, np.ones(WIDTH, dtype=np.float32))

    matrix("token_embd.weight", VOCABULARY, WIDTH)
    norm("output_norm.weight")
    matrix("output.weight", VOCABULARY, WIDTH)
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        norm(block + "attn_norm.weight")
        for part in ("q", "k", "v", "output"):
            matrix(f"{block}attn_{part}.weight", WIDTH, WIDTH)
        norm(block + "ffn_norm.weight")
        matrix(block + "ffn_gate.weight", FEED_FORWARD, WIDTH)
        matrix(block + "ffn_up.weight", FEED_FORWARD, WIDTH)
        matrix(block + "ffn_down.weight", WIDTH, FEED_FORWARD)


def write(path):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("small random llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    add_vocabulary(writer)
    add_weights(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} MODEL.gguf")
    write(sys.argv[1])
