#!/usr/bin/env python3
"""Golden values of the learning algorithms, from PyTorch and TRL.

    python scripts/golden/learning_algorithm.py trainer/tests/data

writes learning_algorithm.json and the folder learning_tiny_llama. Needs torch 2.11, transformers, trl, safetensors.
The formulas are written out here from their sources (verl's core_algos for the constants), independently of the
Rust code; TRL supplies log-probabilities and entropies, torch.optim.AdamW the optimiser, transformers the model.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM
from trl.trainer.utils import entropy_from_logits, selective_log_softmax


def advantages(rewards, groups, normalize):
    """verl: (R - mean) / (std + 1e-6) with torch.std (n - 1); a group of one has mean 0 and std 1."""
    rewards = torch.tensor(rewards, dtype=torch.float64)
    groups = torch.tensor(groups)
    out = torch.zeros_like(rewards)
    for group in groups.unique():
        inside = groups == group
        members = rewards[inside]
        one = torch.tensor(1.0, dtype=torch.float64)
        mean, std = (members.mean(), members.std()) if len(members) > 1 else (0.0, one)
        out[inside] = (members - mean) / (std + 1e-6) if normalize else members - mean
    return out.tolist()


def policy_terms(logprobs, old, advantage, low, high, dual):
    ratio = torch.exp(torch.clamp(logprobs - old, -20, 20))
    first = -advantage * ratio
    second = -advantage * torch.clamp(ratio, 1 - low, 1 + high)
    loss = torch.max(first, second)
    clipped = second > first
    dual_clipped = torch.zeros_like(clipped)
    if dual is not None:
        third = -advantage * dual
        dual_clipped = (loss > third) & (advantage < 0)
        loss = torch.where(advantage < 0, torch.min(third, loss), loss)
    return loss, ratio, clipped, dual_clipped


def k3(logprobs, reference):
    r = torch.clamp(reference - logprobs, -20, 20)
    return torch.clamp(torch.exp(r) - r - 1, -10, 10)


def loss_cases():
    generator = torch.Generator().manual_seed(11)
    cases = []
    for dual, low, high in [(3.0, 0.2, 0.2), (None, 0.2, 0.28), (1.5, 0.1, 0.3)]:
        logprobs = (-torch.rand(40, generator=generator) * 4).requires_grad_(True)
        old = logprobs.detach() + torch.randn(40, generator=generator) * 0.6
        old[:3] = logprobs.detach()[:3] + torch.tensor([25.0, -25.0, 3.0])
        advantage = torch.randn(40, generator=generator)
        advantage[:3] = torch.tensor([1.0, -1.0, -1.0])
        loss, ratio, clipped, dual_clipped = policy_terms(logprobs, old, advantage, low, high, dual)
        weights = torch.rand(40, generator=generator)
        (loss * weights).sum().backward()
        cases.append({
            "low": low, "high": high, "dual_clip": dual,
            "logprobs": logprobs.tolist(), "old": old.tolist(), "advantages": advantage.tolist(),
            "weights": weights.tolist(), "loss": loss.tolist(), "ratio": ratio.tolist(),
            "clipped": clipped.tolist(), "dual_clipped": dual_clipped.tolist(),
            "gradient": logprobs.grad.tolist(),
        })
    return cases


def kl_case():
    logprobs = torch.tensor([-1.0, -2.0, -0.5, -30.0, -0.1, -3.0, -8.0]).requires_grad_(True)
    reference = torch.tensor([-1.0, -1.5, -2.5, -0.5, -40.0, -3.1, -5.5])
    value = k3(logprobs, reference)
    value.sum().backward()
    return {"logprobs": logprobs.tolist(), "reference": reference.tolist(), "value": value.tolist(),
            "gradient": logprobs.grad.tolist()}


def entropy_case():
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(6, 33, generator=generator) * torch.tensor([0.0, 0.5, 1.0, 3.0, 10.0, 60.0]).unsqueeze(1)
    targets = torch.randint(0, 33, (6,), generator=generator)
    return {"logits": logits.tolist(), "targets": targets.tolist(),
            "entropy": entropy_from_logits(logits).tolist(),
            "logprobs": selective_log_softmax(logits, targets).tolist()}


def adamw_case(weight_decay, max_norm):
    generator = torch.Generator().manual_seed(3)
    matrix = torch.randn(3, 4, generator=generator).requires_grad_(True)
    bias = torch.randn(4, generator=generator).requires_grad_(True)
    start = {"matrix": matrix.tolist(), "bias": bias.tolist()}
    optimizer = torch.optim.AdamW(
        [{"params": [matrix], "weight_decay": weight_decay}, {"params": [bias], "weight_decay": 0.0}],
        lr=1.0, betas=(0.9, 0.95), eps=1e-8)
    steps = []
    for step in range(6):
        matrix.grad = torch.randn(3, 4, generator=generator) * 10 ** (step - 3)
        bias.grad = torch.randn(4, generator=generator) * 10 ** (step - 3)
        gradients = {"matrix": matrix.grad.tolist(), "bias": bias.grad.tolist()}
        learning_rate = 0.01 * (step + 1)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
        norm = (torch.nn.utils.clip_grad_norm_([matrix, bias], max_norm) if max_norm
                else torch.nn.utils.get_total_norm([matrix.grad, bias.grad]))
        optimizer.step()
        steps.append({"gradients": gradients, "learning_rate": learning_rate, "norm": norm.item(),
                      "matrix": matrix.tolist(), "bias": bias.tolist()})
    return {"weight_decay": weight_decay, "max_norm": max_norm, "beta2": 0.95, "start": start, "steps": steps}


def tiny_llama(folder):
    """The whole loss of two sequences with observations in their middle, and its gradient, by transformers."""
    torch.manual_seed(2)
    config = LlamaConfig(vocab_size=48, hidden_size=16, intermediate_size=24, num_hidden_layers=3,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
                         tie_word_embeddings=True, rms_norm_eps=1e-5, rope_theta=10000.0,
                         bos_token_id=1, eos_token_id=2, pad_token_id=0, initializer_range=0.3)
    model = LlamaForCausalLM(config).float().eval()
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)

    generator = torch.Generator().manual_seed(9)
    temperature, beta, eta = 0.8, 0.05, 0.01
    sequences, total = [], 0
    for prompt, response, advantage in [(4, [1, 1, 1, 0, 0, 0, 1, 1], 1.3), (6, [1, 1, 0, 0, 1, 1, 1, 1, 1], -0.7)]:
        ids = torch.randint(3, 48, (prompt + len(response),), generator=generator)
        positions = [prompt + i for i, drawn in enumerate(response) if drawn]
        noise = torch.randn(len(positions), generator=generator) * 0.4
        sequences.append((ids, positions, advantage, noise))
        total += len(positions)
    loss, out = 0.0, []
    for ids, positions, advantage, noise in sequences:
        logits = model(ids.unsqueeze(0)).logits[0] / temperature
        rows = logits[torch.tensor(positions) - 1]
        logprobs = selective_log_softmax(rows, ids[positions])
        old = (logprobs.detach() + noise).clamp(max=0.0)
        reference = (logprobs.detach() - noise).clamp(max=0.0)
        token, *_ = policy_terms(logprobs, old, torch.full_like(logprobs, advantage), 0.2, 0.2, 3.0)
        token = token + beta * k3(logprobs, reference) - eta * entropy_from_logits(rows)
        loss = loss + token.sum() / total
        out.append({"ids": ids.tolist(), "positions": positions, "advantage": advantage,
                    "old": old.tolist(), "reference": reference.tolist(),
                    "logprobs": logprobs.tolist(), "entropy": entropy_from_logits(rows).tolist()})
    loss.backward()
    gradients = {name: parameter.grad.contiguous() for name, parameter in model.named_parameters()}
    save_file(gradients, folder / "gradients.safetensors", metadata={"format": "pt"})
    case = {"temperature": temperature, "kl_coefficient": beta, "entropy_coefficient": eta, "loss": loss.item(),
            "sequences": out}
    (folder / "case.json").write_text(json.dumps(case) + "\n")


def main():
    out = Path(sys.argv[1])
    groups = [0, 0, 0, 1, 1, 1, 2, 3, 3]
    rewards = [1.0, 0.0, 0.1, 0.1, 0.1, 0.1, 0.7, 1.0, 0.0]
    golden = {
        "advantage": {"rewards": rewards, "groups": groups,
                      "normalized": advantages(rewards, groups, True)},
        "loss": loss_cases(),
        "kl": kl_case(),
        "entropy": entropy_case(),
        "adamw": [adamw_case(0.1, 1.0), adamw_case(0.0, None)],
    }
    (out / "learning_algorithm.json").write_text(json.dumps(golden) + "\n")
    tiny_llama(out / "learning_tiny_llama")


if __name__ == "__main__":
    main()
