"""Makes tiny random models and what transformers computes with them: logits, loss, gradients.

Needs torch and transformers. Usage: python scripts/golden/model_tiny.py trainer/tests/data/model
"""

import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

SIZES = dict(
    vocab_size=48,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
    rms_norm_eps=1e-5,
    bos_token_id=1,
    eos_token_id=2,
    attn_implementation="eager",
)
LLAMA3 = dict(
    rope_type="llama3",
    factor=4.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=16,
)
MODELS = {
    "llama": (LlamaForCausalLM, LlamaConfig(**SIZES, tie_word_embeddings=False, rope_theta=10000.0)),
    "llama3": (
        LlamaForCausalLM,
        LlamaConfig(**SIZES, tie_word_embeddings=True, rope_theta=500.0, rope_scaling=LLAMA3, attention_bias=True, mlp_bias=True),
    ),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**SIZES, tie_word_embeddings=True, rope_theta=1000000.0)),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**SIZES, tie_word_embeddings=False, head_dim=8, rope_theta=1000000.0)),
}


def main(out: pathlib.Path) -> None:
    for seed, (name, (kind, config)) in enumerate(MODELS.items()):
        generator = torch.Generator().manual_seed(seed)
        model = kind(config).float().eval()
        with torch.no_grad():
            for parameter_name, parameter in model.named_parameters():
                noise = torch.randn(parameter.shape, generator=generator)
                is_norm = parameter_name.endswith("norm.weight")
                parameter.copy_(1 + 0.2 * noise if is_norm else 0.3 * noise)
        folder = out / name
        model.save_pretrained(folder)
        # Three rows of 40, 17 and 9 tokens, padded at the right with 0; the loss is the mean over real next tokens.
        lengths = torch.tensor([40, 17, 9])
        ids = torch.randint(3, config.vocab_size, (3, 40), generator=generator)
        real = torch.arange(40)[None, :] < lengths[:, None]
        ids = ids * real
        logits = model(ids, attention_mask=real.long()).logits
        targets = torch.where(real[:, 1:], ids[:, 1:], torch.tensor(-100))
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, config.vocab_size), targets.reshape(-1))
        loss.backward()
        golden = {"ids": ids, "lengths": lengths, "loss": loss.detach()[None]}
        # Logits of the padded positions are nobody's business: zero.
        golden["logits"] = logits.detach() * real[:, :, None]
        for parameter_name, parameter in model.named_parameters():
            golden["grad." + parameter_name] = parameter.grad
        save_file({key: value.contiguous() for key, value in golden.items()}, folder / "golden.safetensors")
        print(name, float(loss))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
