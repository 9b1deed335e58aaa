"""Every command as a user types it: output, JSON, exit codes."""

import json

import pytest

import ridgeline as rl


def call(capsys, *arguments):
    """(exit code, standard output, standard error) of a command line."""
    import sys

    before, sys.argv = sys.argv, ["ridgeline", *map(str, arguments)]
    try:
        rl.main()
        code = 0
    except SystemExit as stop:
        code = stop.code or 0
    finally:
        sys.argv = before
    out, err = capsys.readouterr()
    return code, out, err


def as_json(capsys, *arguments):
    code, out, err = call(capsys, *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    out = tmp_path_factory.mktemp("cli") / "run"
    rl.run("8b-h200", trials=64, seed=1, out=out)
    return out


@pytest.mark.parametrize("what", ["gpus", "models", "presets", "engines", "recipes"])
def test_lists_have_names(capsys, what):
    rows = as_json(capsys, "list", what)
    assert rows and all(row["name"] for row in rows)


def test_every_gpu_of_the_contract_is_there(capsys):
    names = {row["name"] for row in as_json(capsys, "list", "gpus")}
    wanted = (
        "a100-sxm h100-sxm h200-sxm h20-sxm l40s b200-sxm gb200-nvl72 b300-sxm gb300-nvl72 rtx-pro-6000 mi300x mi325x"
    )
    assert {*wanted.split(), "mi355x", "jetson-thor", "rtx-4090", "rtx-5090"} <= names


def test_predict_a_plan(capsys):
    p = as_json(
        capsys, "predict", "llama-3.1-8b", "--gpu", "h100-sxm", "--tp", 1, "--batch", 32, "--isl", 2048, "--osl", 256
    )
    # measured: 9.9 ms per decode-only step (TensorRT-LLM 1.0.0rc3, H100 SXM)
    assert p["decode_step_s"] == pytest.approx(9.9e-3, rel=0.25)
    assert (
        p["fits"]
        and p["gpus"] == 1
        and p["breakdown"]
        and p["evidence"] in ("measured", "interpolated", "extrapolated")
    )


def test_predict_says_what_a_price_rests_on_and_what_fits_instead(capsys):
    plan = ("predict", "llama-3.1-405b", "--gpu", "h100-sxm", "--engine", "trtllm:9.9", "--tp", 8, "--batch", 900)
    asked = (*plan, "--recipe", "fp8", "--isl", 1024, "--osl", 1024)
    p = as_json(capsys, *asked)
    assert not p["fits"] and "2026" in p["price_source"] and "9.9" in p["engine_note"]
    _, out, _ = call(capsys, *asked)
    shown = " ".join(out.replace("│", " ").split())
    for words in ("DOES NOT FIT", "sequences fit", "pp = ", "$2.95/GPU-hour", "2026", "unknown version", "tokens/s/MW"):
        assert words in shown


def test_predict_without_a_plan_prints_the_frontier(capsys):
    p = as_json(
        capsys,
        "predict",
        "qwen3-30b-a3b",
        "--gpu",
        "gb200-nvl72",
        "--recipe",
        "nvfp4",
        "--gpus",
        8,
        "--isl",
        1024,
        "--osl",
        512,
    )
    speeds = [row["tokens_per_s_per_user"] for row in p["frontier"]]
    assert speeds == sorted(speeds) and len(speeds) > 3


def test_tp_and_ep_are_the_engines_spelling(capsys):
    p = as_json(
        capsys,
        "predict",
        "qwen3-235b-a22b",
        "--gpu",
        "h200-sxm",
        "--recipe",
        "fp8",
        "--tp",
        8,
        "--ep",
        4,
        "--batch",
        8,
        "--isl",
        512,
        "--osl",
        64,
    )
    assert (p["plan"]["attention_tp"], p["plan"]["ep"], p["plan"]["ffn_tp"]) == (8, 4, 2)


def test_show_pick_export(capsys, run_dir, tmp_path):
    summary = as_json(capsys, "show", run_dir)
    best = summary["best"][0]["design"]
    assert as_json(capsys, "show", run_dir, "--design", best)["design"] == best
    files = as_json(capsys, "export", run_dir, "--design", best, "--out", tmp_path / "x")["files"]
    assert any(path.endswith("config.json") for path in files)
    assert call(capsys, "export", run_dir, "--at", 60, "--out", tmp_path / "y")[0] == 0
    code, _, err = call(capsys, "export", run_dir, "--at", 60, "--out", tmp_path / "y")
    assert code == 2 and "--force" in err


def test_run_resumes_and_reports(capsys, tmp_path):
    out = tmp_path / "run"
    first = as_json(capsys, "run", "8b-h200", "--trials", 32, "--sampler", "random", "--out", out)
    assert first["trials"] == 32 and (out / "report.html").stat().st_size > 1e5
    again = as_json(capsys, "run", "8b-h200", "--trials", 64, "--sampler", "random", "--out", out, "--resume")
    assert again["trials"] == 64


def test_init_prints_a_study_that_checks(capsys, tmp_path):
    code, text, _ = call(capsys, "init", "--reference", "qwen3-8b", "--gpu", "b200-sxm")
    assert code == 0
    path = tmp_path / "mine.toml"
    path.write_text(text)
    report = as_json(capsys, "check", path)
    assert report["share_legal_in_budget"] > 0.1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "nonsense"), "unknown study"),
        (("predict", "nonsense", "--gpu", "h100-sxm", "--isl", 1, "--osl", 1), "unknown model"),
        (("predict", "llama-3.1-8b", "--gpu", "h900", "--isl", 1, "--osl", 1), "unknown GPU"),
        (("predict", "llama-3.1-8b", "--gpu", "h100-sxm", "--isl", -1, "--osl", 1), "isl"),
        (("predict", "llama-3.1-8b", "--gpu", "h100-sxm", "--tp", 3, "--batch", 1, "--isl", 1, "--osl", 1), "divisor"),
        (("predict", "llama-3.1-8b", "--gpu", "h100-sxm", "--batch", "many", "--isl", 1, "--osl", 1), "--batch"),
        (("list", "colours"), "valid: gpus"),
        (("run", "8b-h200", "--set", "search.trails=3"), "trials"),
        (("show", "/nowhere"), "not a run directory"),
    ],
)
def test_bad_input_ends_with_one_message_and_code_2(capsys, arguments, said):
    code, out, err = call(capsys, *arguments)
    assert code == 2 and said in err and "Traceback" not in err and not out


def test_the_notebook_face(run_dir):
    run = rl.load_run(run_dir)
    assert len(run.figure("tokens_per_s_per_user", "tokens_per_s_per_gpu", "layers").data) >= 2
    assert len(run.optuna_study().get_trials(deepcopy=False)) == 64
    for name in ("kernels", "counts", "quality", "memory", "predict", "load_accelerator", "DesignSpace"):
        assert hasattr(rl, name)
