"""README.md of an export: what each file is, for which versions, and what could not be written and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version

from reports import recipes
from reports.export_card import bullets, markdown, table
from reports.export_design import Design, folder_of
from reports.launch_point import TABLE
from reports.megatron import VERSION as MEGATRON

TRANSFORMERS = "5.24"
_VERSION = recipes.VERSIONS
_FILES = {
    "config.json": f"the architecture for Hugging Face transformers {TRANSFORMERS}; bf16, untrained",
    "design.json": "everything known, machine-readable; `ridgeline` reads it back",
    "card.md": "one page for the decision",
    "frontier.svg": "its picture",
    "megatron.sh": f"shape arguments for Megatron-Core {MEGATRON}",
    "quantise/modelopt.yaml": f"recipe for TensorRT Model Optimizer {_VERSION['modelopt']}; modelopt.py runs it",
    "quantise/llmcompressor.yaml": f"recipe for LLM Compressor {_VERSION['llmcompressor']}; llmcompressor.py runs it",
    "quantise/modelopt/hf_quant_config.json": "what ModelOpt's checkpoint will carry, with its config.json",
    "quantise/compressed-tensors/config.json": "what LLM Compressor's checkpoint will carry "
    f"(compressed-tensors {_VERSION['compressed_tensors']})",
    "quantise/mxfp4/config.json": "the native MXFP4 checkpoint of gpt-oss",
}


def readme(
    design: Design, names: Sequence[str], launched: Mapping[str, Mapping[str, str]], notes: Sequence[str]
) -> str:
    """README.md in Markdown.

    Args:
        names: files written. launched: folder -> engine -> file names or "refused: reason". notes: on quantisation.
    """
    what = f"Design {design.design} of study {markdown(design.run.name)}: {markdown(design.shape)}, {design.family}."
    files = [[f"`{name}`", text] for name, text in _FILES.items() if name in names]
    roles: dict[str, list[str]] = {}
    for role in design.chosen:
        roles.setdefault(folder_of(design, role), []).append(role)
    rows, refused = [], []
    for folder, engines in launched.items():
        point = design.chosen[folder]["point"]
        for engine, text in engines.items():
            row = TABLE[engine]
            name, ok = f"{row['name']} {row['version']}", not text.startswith("refused: ")
            rows.append([f"{', '.join(roles[folder])} ({point})", name, text if ok else "refused, see below"])
            if not ok:
                reason = markdown(text.removeprefix("refused: "))
                refused.append(f"**{row['name']}, {', '.join(roles[folder])}**: {reason}")
    parts = [
        f"# Export of design {design.design}",
        f"{what} Written by Ridgeline {version('ridgeline')}.",
        table(["file", "what it is"], files),
        "## Launch files",
        table(["point", "engine", "files in launch/"], rows),
        "Limits in them (sequences, tokens per step, memory shares) come from the memory model. Check flags "
        "against your release: " + ", ".join(f"`{row['check']}`" for row in TABLE.values() if "check" in row) + ".",
    ]
    if refused:
        parts += ["## Refused", bullets(refused)]
    if notes:
        parts += ["## Quantisation", bullets(notes)]
    parts.append(_others(design))
    return "\n\n".join(part for part in parts if part) + "\n"


def _others(design: Design) -> str:
    """How to get launch files of other points and cells."""
    if design.point is not None:
        return ""
    cells = design.run.meta["cells"]
    cell = next(iter(design.chosen.values()))
    text = f"Chosen on {markdown(cell['gpu'])} for {markdown(cell['workload'])}"
    text += f", one of {len(cells)} cells of the study" if len(cells) > 1 else ""
    return f"{text}. Any other point: `ridgeline export RUN_DIR --design POINT_ID --out DIR`; ids are in design.json."
