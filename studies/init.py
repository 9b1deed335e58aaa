"""`ridgeline init`: a commented study file to start from, made from a preset, a reference model and a GPU."""

from __future__ import annotations

import re
from math import gcd

import numpy as np

from cost_model.accelerator import Accelerator, load_accelerator
from spaces.architecture import Architecture
from spaces.families import exportable
from spaces.formats import RECIPE_FFN, RECIPES, WEIGHT_BYTES
from spaces.huggingface import load_architecture
from spaces.parameters import parameters
from studies.study import study_path

DEFAULT_PRESET = "8b-h200"
_HEADER = re.compile(r"^\[+(\w+)\]+", re.MULTILINE)
_USABLE = 0.8  # share of memory that weights may take, so that some is left for the KV cache
_MOST_GPUS = 72


def init(preset: str | None = None, reference: str | None = None, gpu: str | None = None) -> str:
    """The text of a study file.

    Args:
        preset: a bundled study; its text is the base. reference: a bundled model or a config.json; the budget
            and the axes are then laid around it. gpu: a GPU name or a TOML path for the target.
    Raises:
        ValueError: unknown preset, model or GPU, or a reference that cannot be searched.
    """
    base = study_path(preset or DEFAULT_PRESET).read_text(encoding="utf-8")
    if reference is None and gpu is None:
        return base
    own = re.search(r'^reference = "([^"]+)"', base, re.MULTILINE)
    assert own is not None  # every preset states its reference
    name = reference or own[1]
    model = load_architecture(name)
    if model.ffn_matrices != 3:
        raise ValueError(f"reference {name!r}: its FFNs are not gated; it can be priced, not searched")
    sections = _sections(base)
    targets = re.findall(r'^gpu = "([^"]+)"', base, re.MULTILINE)
    if gpu is None:
        accelerators = [load_accelerator(target) for target in targets]
    else:
        accelerators = [load_accelerator(gpu)]
        targets = [gpu]
    recipes = _recipes(accelerators[0])
    if reference is not None:
        sections["budget"] = _budget(model)
        sections["space"] = _space(model, recipes)
        sections.pop("envelope", None)
    else:
        sections["space"] = re.sub(
            r"^recipe = .*$", f"recipe = {_listed(recipes)}", sections["space"], flags=re.MULTILINE
        )
    sections["target"] = "".join(
        _target(target, accelerator, model, recipes) for target, accelerator in zip(targets, accelerators, strict=True)
    )
    title = f"{name.rsplit('/', 1)[-1].removesuffix('.json')}-{accelerators[0].name}"
    head = (
        f"# A study around {name}, written by `ridgeline init`: read it, change it, then `ridgeline check` it.\n"
        f'name = "{re.sub(r"[^A-Za-z0-9._-]", "-", title)}"\n'
        f'reference = "{name}"\n\n'
    )
    order = ("budget", "accuracy", "space", "envelope", "target", "workload", "serving", "search")
    return head + "\n".join(sections[key].strip() + "\n" for key in order if key in sections)


def _sections(text: str) -> dict[str, str]:
    """The tables of a study file as text, by name; repeated tables together."""
    found: dict[str, str] = {}
    starts = [*_HEADER.finditer(text)]
    for match, following in zip(starts, [*starts[1:], None], strict=True):
        part = text[match.start() : following.start() if following else len(text)]
        found[match[1]] = found.get(match[1], "") + part
    return found


def _recipes(gpu: Accelerator) -> list[str]:
    """bf16, and the 8-bit and 4-bit formats that the GPU multiplies natively; weight-only int4 where none."""

    def native(*names: str) -> list[str]:
        return [name for name in names if name in gpu.native_formats][:1]

    return ["bf16", *(native("fp8", "int8") + native("nvfp4", "mxfp4") or ["int4"])]


def _budget(model: Architecture) -> str:
    counts = parameters(model)
    total = f'total_parameters = "reference"         # {float(counts.non_embedding_total):.4g}, non-embedding\n'
    if not model.is_moe:
        return f'[budget]\n{total}tolerance = 0.02\nsolve = "ffn"                          # from the budget\n'
    active = f'active_parameters = "reference"        # {float(counts.non_embedding_active):.4g}\n'
    step = max(_expert_step(model) / float(model.experts), _layer_step(model) / float(model.layers))
    tolerance = max(0.02, np.ceil(step * 600) / 1000)  # the band must hold one step, with room
    solve = 'solve = ["layers", "experts"]          # layers from the active count, then experts from the total\n'
    return f"[budget]\n{total}{active}tolerance = {tolerance:g}\n{solve}"


def _layer_step(model: Architecture) -> int:
    """Whole periods of dense and MoE, or of windowed and full, layers."""
    return max(int(model.moe_every), 2 if model.window else 1)


def _expert_step(model: Architecture) -> int:
    return gcd(int(model.experts), 8 if model.experts >= 64 else 2)


def _space(model: Architecture, recipes: list[str]) -> str:
    """Axes around a model: about 30 % either way, on steps that keep its own values reachable."""
    hidden = int(model.hidden)
    widths = [int(w) for w in (hidden, model.ffn, model.expert_ffn, model.shared_ffn) if w]
    align = gcd(256 if hidden >= 2048 else 64, *widths)
    lines = [
        _range("hidden", hidden, max(align, hidden // 16 // align * align)),
        _range("layers", int(model.layers), _layer_step(model), most=128),
        f"heads = {_heads(model)}",
    ]
    if not model.is_mla:
        lines.append(f"kv_heads = {_kv_heads(model)}")
    if model.is_moe:
        top_k, wide, experts, step = int(model.top_k), int(model.expert_ffn), int(model.experts), _expert_step(model)
        lines.append(f"top_k = {sorted({max(top_k * 3 // 4, min(top_k, 2)), top_k, top_k + max(top_k // 4, 1)})}")
        lines.append(_range("expert_ffn", wide, max(align, wide // 4 // align * align)))
        lines.append(
            f"experts = {{ min = {max(experts // 4 // step * step, step)}, max = {2 * experts}, step = {step} }}"
        )
    if not exportable(model):
        lines.append("exportable = false                     # no export family has this shape")
    lines += [f"align = {align}", f"recipe = {_listed(recipes)}", 'kv_format = ["bf16", "fp8"]']
    return "[space]                                # axes not named keep the reference's value\n" + "\n".join(
        [*lines, 'inner = ["recipe", "kv_format"]', ""]
    )


def _range(name: str, value: int, step: int, most: int = 2**20) -> str:
    """A range through `value` on its step, from about 70 % to 130 % of it."""
    steps = int(0.3 * value / step)
    high = value + min(steps, max(most - value, 0) // step) * step
    return f"{name} = {{ min = {max(value - steps * step, step)}, max = {high}, step = {step} }}"


def _heads(model: Architecture) -> list[int]:
    """The model's head count and the powers of two around it, inside the envelope's range of query widths."""
    heads, width = int(model.heads), float(model.value_dim / model.hidden)
    step = 1 if model.is_mla else int(model.kv_heads)
    near = (2**i for i in range(2, 9) if heads / 2 <= 2**i <= heads * 2)
    return sorted({heads, *(n for n in near if n % step == 0 and 0.6 <= n * width <= 3)})


def _kv_heads(model: Architecture) -> list[int]:
    """The model's KV head count and half of it, or twice where half leaves the envelope."""
    kv_heads = int(model.kv_heads)
    half = kv_heads // 2 if kv_heads % 2 == 0 and kv_heads // 2 * int(model.head_dim) >= 512 else 0
    double = 2 * kv_heads if all(heads % (2 * kv_heads) == 0 for heads in _heads(model)) else 0
    return sorted({kv_heads, half or double} - {0})


def _target(name: str, gpu: Accelerator, model: Architecture, recipes: list[str]) -> str:
    narrowest = min(WEIGHT_BYTES[RECIPE_FFN[RECIPES.index(recipe)]] for recipe in recipes)
    need = float(parameters(model).total) * narrowest / (_USABLE * gpu.memory_bytes)
    least = 2 ** int(np.ceil(np.log2(max(need, 1.0))))
    most = max(min(gpu.link_domain, _MOST_GPUS), least)
    gpus = [n for n in (least * 2**i for i in range(4)) if n <= most]
    engine = "trtllm" if gpu.vendor.lower() == "nvidia" else "vllm"
    price = "" if gpu.usd_per_gpu_hour else "# usd_per_gpu_hour = 3.5               # no published price\n"
    return f'[[target]]\ngpu = "{name}"\nengine = "{engine}"\ngpus = {gpus}\n{price}\n'


def _listed(names: list[str]) -> str:
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"
