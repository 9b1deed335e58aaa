"""What an export writes, that it reads back, and which targets it refuses."""

import dataclasses
import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cost_model import counts
from reports.export import build, export, read_design
from reports.export_design import find, record
from spaces import Deployment, load_architecture
from spaces.families import FAMILIES, export_family
from tests.spaces import architectures


@pytest.fixture(scope="module")
def design_id(small_run):
    return small_run.designs["design"].iloc[0]


@pytest.fixture(scope="module")
def one(small_run, design_id):
    return find(small_run, design_id)


@pytest.fixture(scope="module")
def folder(small_run, design_id, tmp_path_factory):
    out = tmp_path_factory.mktemp("exports") / "one"
    export(small_run, design_id, out)
    return out


def test_a_design_is_one_folder_with_launch_files_for_three_of_its_points(folder):
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {"config.json", "design.json", "card.md", "README.md", "frontier.svg", "megatron.sh"} <= names
    record_ = json.loads((folder / "design.json").read_text())
    assert list(record_["chosen"]) == ["latency", "balanced", "throughput"]
    for role in {"latency", "balanced", "throughput"} & {name.split("/")[1] for name in names if "launch/" in name}:
        assert {f"launch/{role}/trtllm.sh", f"launch/{role}/trtllm.yaml", f"launch/{role}/vllm.sh"} <= names
    assert all(os.access(path, os.X_OK) for path in folder.rglob("*.sh"))


def test_the_three_points_are_fastest_knee_and_most(small_run, design_id):
    chosen = find(small_run, design_id).chosen
    own = small_run.points[(small_run.points["design"] == design_id) & (small_run.points["kind"] == "own")]
    own = own[own["within_ttft"]]
    assert chosen["latency"]["tokens_per_s_per_user"] == own["tokens_per_s_per_user"].max()
    assert chosen["throughput"]["tokens_per_s_per_gpu"] == own["tokens_per_s_per_gpu"].max()
    at = float(own["tokens_per_s_per_user"].median())
    asked = find(small_run, design_id, at=at).chosen["balanced"]
    fast = own[own["tokens_per_s_per_user"] >= at]
    assert asked["tokens_per_s_per_gpu"] == fast["tokens_per_s_per_gpu"].max()


def test_config_and_record_give_the_design_back(folder, small_run, design_id):
    back = read_design(folder)
    assert load_architecture(folder) == back.architecture
    row = small_run.designs[small_run.designs["design"] == design_id].iloc[0]
    assert back.architecture.hidden == row["hidden"] and back.recipe == row["recipe"]
    own = small_run.points[(small_run.points["design"] == design_id) & (small_run.points["kind"] == "own")]
    for point in own.to_dict("records"):
        plan = back.plans[point["point"]]
        assert (plan.attention_tp, plan.ffn_tp, plan.batch) == (point["attention_tp"], point["ffn_tp"], point["batch"])


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(case=architectures.exportable(), tp=st.integers(1, 8), dp=st.integers(1, 4), batch=st.integers(0, 4096))
def test_any_design_and_plan_survive_the_record(one, tmp_path_factory, case, tp, dp, batch):
    _, architecture = case
    plan = Deployment(attention_tp=tp, attention_dp=dp, batch=batch, draft_tokens=tp - 1, acceptance=0.7)
    points = one.points.head(1).assign(**{name: [value] for name, value in plan.as_dict().items()})
    chosen = {"point": points.iloc[0].to_dict()}
    file = tmp_path_factory.getbasetemp() / "record.json"
    changed = dataclasses.replace(one, architecture=architecture, points=points, chosen=chosen)
    file.write_text(json.dumps(record(changed, {}), allow_nan=False))
    back = read_design(file)
    assert back.architecture == architecture
    assert back.plans[chosen["point"]["point"]] == plan


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v.update(format="other"), "is not ridgeline-design 1"),
        (lambda v: v.update(recipe="fp3"), "unknown recipe 'fp3'"),
        (lambda v: v["architecture"].pop("hidden"), "architecture.hidden is missing"),
        (lambda v: v["architecture"].update(depth=3), "architecture.depth is unknown"),
        (lambda v: v["architecture"].update(layers=0), "layers = 0: must be at least 1"),
        (lambda v: v["points"][0]["plan"].update(attention_tp=3), "must use the same GPUs"),
    ],
)
def test_a_record_that_cannot_be_is_refused(folder, tmp_path, change, message):
    values = json.loads((folder / "design.json").read_text())
    change(values)
    (tmp_path / "design.json").write_text(json.dumps(values))
    with pytest.raises(ValueError, match=message):
        read_design(tmp_path)


def test_a_point_gets_one_folder(small_run, tmp_path):
    point = small_run.frontier["point"].iloc[0]
    export(small_run, point, tmp_path / "p")
    assert [path.name for path in (tmp_path / "p/launch").iterdir()] == ["point"]
    assert json.loads((tmp_path / "p/design.json").read_text())["point"] == point


def test_the_reference_can_be_exported_too(small_run, tmp_path):
    export(small_run, small_run.reference["point"].iloc[0], tmp_path / "r")
    assert load_architecture(tmp_path / "r") == load_architecture("llama-3.1-8b")


def test_several_designs_get_a_folder_each(small_run, tmp_path):
    two = list(small_run.designs["design"].head(2))
    export(small_run, two, tmp_path / "many")
    assert {path.name for path in (tmp_path / "many").iterdir()} == set(two)
    (tmp_path / "some" / two[1]).mkdir(parents=True)
    (tmp_path / "some" / two[1] / "config.json").write_text("mine")
    with pytest.raises(ValueError, match=r"config\.json exists; use --force"):
        export(small_run, two, tmp_path / "some")
    assert not (tmp_path / "some" / two[0]).exists()  # nothing of the first either


def test_force_replaces_and_leaves_nothing_of_the_export_before(small_run, design_id, tmp_path):
    export(small_run, design_id, tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"exists; use --force"):
        export(small_run, design_id, tmp_path)
    (tmp_path / "config.json").write_text("old")
    export(small_run, small_run.frontier["point"].iloc[0], tmp_path, force=True)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "llama"
    assert not list(tmp_path.glob("launch/latency/*"))
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert not list(tmp_path.rglob("*.tmp"))


def refused_targets(base: Path):
    (base / "file").write_text("")
    (base / "elsewhere").mkdir()
    (base / "link").symlink_to(base / "elsewhere")
    (base / "dangling").symlink_to(base / "nowhere")
    (base / "holds").mkdir()
    (base / "holds/launch").symlink_to(base / "elsewhere")
    (base / "config").mkdir()
    (base / "config/config.json").symlink_to(base / "victim")
    (base / "dirs/config.json").mkdir(parents=True)
    return {
        "../escape": "'..' in the path",
        str(base / "a/../b"): "'..' in the path",
        str(base / "file"): "is a file",
        str(base / "file/below"): "is a file",
        str(base / "link"): "a symbolic link",
        str(base / "dangling"): "a symbolic link",
        str(base / "holds"): "a symbolic link inside the folder",
        str(base / "config"): "a symbolic link inside the folder",
        str(base / "dirs"): "a folder where a file must be written",
        "bad\0name": "a NUL character",
        "/proc/nothing/here": "cannot be written",
    }


def test_bad_targets_are_refused_and_nothing_is_written(small_run, design_id, tmp_path):
    targets = refused_targets(tmp_path)
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    for target, message in targets.items():
        with pytest.raises(ValueError, match=re.escape(message)):
            export(small_run, design_id, target, force=True)
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before
    assert not (tmp_path / "victim").exists()


def test_a_name_of_the_study_cannot_escape_into_files(small_run, design_id, hostile):
    files = build(find(small_run, design_id))
    for name, text in files.items():
        if name.endswith(".sh") or name.endswith(".yaml"):
            for line in text.splitlines():
                assert hostile not in line or line.startswith("#"), name
        if name.endswith(".md") or name.endswith(".svg"):
            assert "<script" not in text, name


def test_unknown_ids_engines_and_impossible_engines_are_refused(small_run, design_id, tmp_path):
    with pytest.raises(ValueError, match="no such design"):
        export(small_run, "nothing", tmp_path / "a")
    with pytest.raises(ValueError, match="unknown engine 'tgi'; valid: trtllm, vllm, sglang, llama"):
        export(small_run, design_id, tmp_path / "a", engine="tgi")
    big = small_run.points[(small_run.points["gpus"] > 1) & (small_run.points["kind"] == "own")]["point"].iloc[0]
    with pytest.raises(ValueError, match=r"llama cannot run it: .*(no GGUF counterpart|splits layers)"):
        export(small_run, big, tmp_path / "a", engine="llama")
    assert not (tmp_path / "a").exists()


def test_the_card_says_what_a_meeting_asks(folder, small_run):
    text = (folder / "card.md").read_text()
    back = read_design(folder)
    total = int(counts.parameters(back.architecture).total)
    for wanted in (
        "![", "frontier.svg", f"{total:,}", "predicted loss", "not a measurement", "Which number format?",
        "Do the engines serve it?", "Interactive or batch?", "Right for the GPUs?", "## Caveats", "## Checks owed",
        "Model error of a difference", "### Serving fit", "tensor parallel sizes that keep whole blocks: 1, 2, 4, 8",
    ):  # fmt: skip
        assert wanted in text, wanted


def test_the_picture_is_a_picture(folder):
    import xml.etree.ElementTree as tree

    root = tree.fromstring((folder / "frontier.svg").read_text())
    assert root.tag.endswith("svg") and len(list(root.iter("{http://www.w3.org/2000/svg}circle"))) > 10


def test_every_family_has_training_arguments_that_megatron_defines():
    from reports.megatron import megatron_arguments
    from spaces.families import to_config
    from tests.reports.engines import recorded

    known = recorded("megatron")["options"]
    names = (
        "llama-3.1-8b",
        "qwen3-8b",
        "qwen3-30b-a3b",
        "mixtral-8x7b",
        "deepseek-v3",
        "glm-4.5",
        "gpt-oss-120b",
        "qwen2.5-7b",
    )
    assert {FAMILIES[int(export_family(load_architecture(name)))] for name in names} == set(FAMILIES)
    for name in names:
        architecture = load_architecture(name)
        for option, *values in megatron_arguments(architecture, to_config(architecture)):
            assert option in known, option
            assert (known[option] == 0) == (not values), option
            assert not isinstance(known[option], list) or values[0] in known[option]


def test_published_training_arguments():
    """Megatron-LM's own examples: Llama-3 8B, and DeepSeek-V3 (Megatron-Bridge recipes)."""
    from reports.megatron import megatron_arguments
    from spaces.families import to_config

    def arguments(name):
        a = load_architecture(name)
        return {option: values for option, *values in megatron_arguments(a, to_config(a))}

    llama = arguments("llama-3.1-8b")
    wanted = {"--num-layers": "32", "--hidden-size": "4096", "--ffn-hidden-size": "14336", "--num-query-groups": "8"}
    assert {option: llama[option][0] for option in wanted} == wanted
    assert "--swiglu" in llama and "--untie-embeddings-and-output-weights" in llama and "--disable-bias-linear" in llama
    deepseek = arguments("deepseek-v3")
    wanted = {
        "--num-layers": "61", "--hidden-size": "7168", "--ffn-hidden-size": "18432", "--num-attention-heads": "128",
        "--q-lora-rank": "1536", "--kv-lora-rank": "512", "--qk-head-dim": "128", "--qk-pos-emb-head-dim": "64",
        "--v-head-dim": "128", "--num-experts": "256", "--moe-router-topk": "8", "--moe-ffn-hidden-size": "2048",
        "--moe-shared-expert-intermediate-size": "2048", "--moe-layer-freq": "([0]*3+[1]*58)",
        "--moe-router-topk-scaling-factor": "2.5", "--moe-router-score-function": "sigmoid",
    }  # fmt: skip
    assert {option: deepseek[option][0] for option in wanted} == wanted
