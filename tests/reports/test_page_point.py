"""The panel and the plot's options in a real browser: bounds, other models, colours, axes, keyboard."""

from __future__ import annotations

import pytest

from reports.overlay import overlay_points
from reports.page import page


@pytest.fixture(scope="module")
def with_models(open_page, small_run, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "report.html"
    path.write_text(page(small_run, overlay_points(small_run, ["llama-3.2-3b"])), encoding="utf-8")
    return open_page(path)


def choose(opened, select: str) -> list[str]:
    return opened.eval_on_selector_all(f"{select} option", "options => options.map(o => o.value)")


def test_the_table_and_the_panel_answer_before_plotly_is_loaded(opened):
    assert opened.locator("script#plotly").get_attribute("type") == "text/plain"  # parsed as text, run later
    answers, ready = opened.evaluate(
        "[+document.documentElement.dataset.answers, +document.documentElement.dataset.ready]"
    )
    assert 0 < answers < ready
    opened.evaluate("window.kept = window.Plotly; window.Plotly = undefined")
    opened.locator("#designs-table tbody tr .pick").nth(2).click()
    assert opened.locator("#designs-table tbody tr").nth(2).get_attribute("class") == "on"
    opened.locator("#sla-rate").focus()
    opened.keyboard.press("ArrowRight")
    opened.locator("#reset").click()
    opened.select_option("#colour", "plan")
    assert opened.locator("#sla-rate-out").inner_text() != "any"
    opened.locator("#sla-rate").focus()
    opened.keyboard.press("Home")
    opened.evaluate("new Promise(requestAnimationFrame)")
    opened.evaluate("window.Plotly = window.kept")
    opened.select_option("#colour", "none")
    assert opened.complaints == []


def test_the_time_of_a_token_is_stacked_by_component_and_bound(opened, small_run):
    opened.locator("#designs-table tbody tr .pick").first.click()
    parts = opened.eval_on_selector_all("#panel .bound-row", "rows => rows.map(r => r.dataset.part)")
    assert parts[0] == "whole" and {"attention_core", "ffn"} <= set(parts)
    bars = opened.eval_on_selector_all(
        "#panel .bound-row",
        "rows => rows.map(r => [...r.querySelector('.bound-bar').children]"
        ".map(i => [i.dataset.bound, parseFloat(i.style.width)]))",
    )
    whole, rest = bars[0], bars[1:]
    assert {bound for bound, _ in whole} <= {"math", "memory", "network", "latency"} and len(whole) >= 3
    for bound, width in whole:
        assert sum(w for row in rest for b, w in row if b == bound) == pytest.approx(width, abs=1.0)
    total = opened.evaluate("1e3 * P.tpot_s[state.point]")
    said = opened.locator("#panel .bound-row.whole .number span").first.inner_text()
    assert float(said.removesuffix(" ms")) == pytest.approx(total, rel=0.01)
    assert opened.locator("#panel .bound-row.whole .bound-bar").count() == 2  # the reference's below
    label = opened.locator("#panel .bound-row.whole .bound-bar").first.get_attribute("aria-label")
    assert "this point: compute" in label or "this point: memory" in label or "launch and fixed cost" in label


def test_memory_loss_and_evidence_of_a_point(opened):
    opened.locator("#designs-table tbody tr .pick").first.click()
    memory = opened.locator("#panel .bar.memory").get_attribute("aria-label")
    assert all(word in memory for word in ("weights", "KV cache", "activations", "reserved by the engine"))
    assert opened.locator("#panel .loss-parts tr").count() >= 1
    terms = opened.locator("#panel .terms li").all_text_contents()
    assert len(terms) == 6 and "general principle" in terms[0] and "measured: median error" in terms[0]
    assert "vendor-specific" in next(t for t in terms if t.startswith("communication"))
    point = opened.evaluate("`${designOf(state.point).id}-${P.point[state.point]}`")
    assert f"--design {point} " in opened.locator("#panel .copy code").inner_text()


def test_a_dominated_point_shows_its_components(opened):
    cloud = opened.evaluate("P.own.findIndex((own, i) => !own && P.cell[i] === state.cell)")
    assert cloud >= 0
    opened.evaluate(f"selectPoint({cloud})")
    panel = opened.locator("#panel")
    assert panel.locator(".bound-row").count() == 0 and panel.locator(".bar-row").count() >= 1
    assert "its bounds are not in the page" in panel.inner_text()


def test_other_models_have_a_curve_and_a_row(with_models, small_run):
    names = with_models.evaluate("document.getElementById('chart').data.map(t => t.name)")
    assert "llama-3.2-3b" in names and small_run.reference_name in names
    assert "llama-3.2-3b" in with_models.locator("#models").inner_text()
    assert with_models.locator("#designs-table tbody tr").count() == len(small_run.designs)  # it is no design
    index = with_models.evaluate("ownPoints(D.designs.findIndex(d => d.model), state.cell)[0]")
    chosen = with_models.evaluate("state.design")
    with_models.evaluate(
        f"document.getElementById('chart').emit('plotly_click', {{points: [{{customdata: {index}}}]}})"
    )
    panel = with_models.locator("#panel").inner_text()
    assert "another model" in panel and "nothing to export" in panel
    assert with_models.evaluate("state.design") == chosen
    assert with_models.complaints == []


def test_every_field_colours_the_points(opened):
    fields = choose(opened, "#colour")
    assert {"plan", "regime", "recipe", "shape_loss", "field:layers", "field:hidden", "attention_tp"} <= set(fields)
    for field in ("plan", "evidence", "batch", "ttft_s", "loss", "field:layers", "attention_tp"):  # words and numbers
        opened.select_option("#colour", field)
        drawn = opened.evaluate(
            "document.getElementById('chart').data.filter(t => t.mode === 'markers').flatMap(t => t.x).length"
        )
        assert drawn > 50, field
    opened.select_option("#colour", "none")
    assert opened.complaints == []


def test_every_pair_of_axes_has_its_own_frontier(opened):
    axes = choose(opened, "#x-axis")
    assert {
        "e2e_s",
        "ttft_s",
        "usd_per_million_tokens",
        "joules_per_token",
        "tokens_per_s_per_mw",
        "memory_gb",
        "loss",
    } <= set(axes)
    for axis in axes:
        opened.select_option("#x-axis", axis)
        beaten = opened.evaluate(
            """() => {
                const t = document.getElementById('chart').data.find((t) => t.name === 'best found');
                const up = [QUANTITIES[state.x].up, QUANTITIES[state.y].up];
                const better = (a, b, up) => (up ? a > b : a < b);
                return t.x.filter((_, i) => t.x.some((_, j) =>
                    better(t.x[j], t.x[i], up[0]) && better(t.y[j], t.y[i], up[1]))).length;
            }"""
        )
        assert beaten == 0, axis
    opened.select_option("#x-axis", "tokens_per_s_per_user")


def test_one_point_is_a_frontier_too(opened):
    opened.locator("#designs-table tbody tr .pick").first.click()
    one = "[ownPoints(state.design, state.cell).find(i => P.within_ttft[i])]"
    assert opened.evaluate(f"frontierOf({one}, state.x, state.y).length") == 1
    assert opened.evaluate(f"curve({one}, {{}}).x.length") == 1


def test_the_objectives_of_the_study_are_the_first_axes(open_page, report, tmp_path):
    text = report.read_text(encoding="utf-8")
    plain = '"objectives":["tokens_per_s_per_user","tokens_per_s_per_gpu"]'
    assert text.count(plain) == 1
    other = tmp_path / "report.html"
    other.write_text(text.replace(plain, '"objectives":["shape_loss","e2e_s","ttft_s"]'), encoding="utf-8")
    opened = open_page(other)
    assert [opened.input_value("#x-axis"), opened.input_value("#y-axis")] == ["shape_loss", "e2e_s"]
    assert opened.complaints == []


def test_everything_is_reached_and_worked_with_the_keyboard(opened):
    hidden = opened.evaluate(
        "[...document.querySelectorAll('button, input, select, summary, [onclick]')].filter(n => n.tabIndex < 0).length"
    )
    assert hidden == 0
    scrolls = opened.evaluate(
        "[...document.querySelectorAll('.scroll, #panel')].filter(n => n.scrollHeight > n.clientHeight + 1 &&"
        " n.tabIndex < 0 && !n.querySelector('button, a, input, select, summary')).length"
    )
    assert scrolls == 0
    opened.locator("#designs-table tbody tr .pick").nth(1).focus()
    opened.keyboard.press("Enter")
    assert opened.locator("#designs-table tbody tr").nth(1).get_attribute("class") == "on"
    opened.locator("#designs-table th button").first.focus()
    opened.keyboard.press("Space")
    assert opened.locator("#designs-table th").first.get_attribute("aria-sort") == "ascending"
    before = opened.locator("#sla-rate-out").inner_text()
    opened.locator("#sla-rate").focus()
    for _ in range(30):
        opened.keyboard.press("ArrowRight")
    opened.wait_for_function(f"document.getElementById('sla-rate-out').textContent !== '{before}'")
    opened.keyboard.press("Home")


def test_copying_says_so(opened):
    opened.locator("#copy-csv").click()
    opened.wait_for_function("document.getElementById('copy-csv').textContent === 'Copied'")
