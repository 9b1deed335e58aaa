"""The page in a real browser: sort, filter, select, move, read; skipped with a message where there is no Chromium."""

from __future__ import annotations

from pathlib import Path

import pytest


def rows(page) -> list[str]:
    return page.eval_on_selector_all("#designs-table tbody tr", "rows => rows.map(r => r.dataset.design)")


def test_opens_offline_without_a_complaint(opened):
    assert opened.complaints == []
    assert opened.locator("#chart .main-svg").count() > 0
    assert opened.evaluate("document.documentElement.scrollWidth") <= 1280


def test_every_design_is_listed_and_one_is_selected(opened, small_run):
    assert len(rows(opened)) == len(small_run.designs)
    assert opened.locator("#designs-table tbody tr.on").count() == 1


def test_sorts_by_a_gain_both_ways(opened, small_run):
    by = small_run.designs.dropna(subset=["gain_at_100"]).sort_values("gain_at_100")
    header = opened.get_by_role("button", name="Gain at 100", exact=True)
    while opened.locator("#designs-table th[aria-sort]").inner_text().strip() != "Gain at 100":
        header.click()
    first = {}
    for _ in range(2):
        first[opened.locator("#designs-table th[aria-sort]").get_attribute("aria-sort")] = rows(opened)[0].split("|")[0]
        header.click()
    best, worst = by["gain_at_100"].max(), by["gain_at_100"].min()
    assert by.set_index("design").loc[first["descending"], "gain_at_100"] == best
    assert by.set_index("design").loc[first["ascending"], "gain_at_100"] == worst


def test_filters_by_text_and_format(opened, small_run):
    opened.fill("#filter", "no such design")
    assert opened.locator("#table-count").inner_text().startswith("0 of")
    opened.fill("#filter", "")
    opened.select_option("#table-format", "fp8, KV bf16")
    assert len(rows(opened)) == int((small_run.designs["recipe"] == "fp8").sum())
    opened.select_option("#table-format", "all")


def test_selecting_a_design_draws_it_and_shows_its_numbers(opened, small_run):
    row = small_run.designs.iloc[-1]
    opened.locator(f"tr[data-design='{row['design']}|{row['recipe']}|{row['kv_format']}'] .pick").click()
    panel = opened.locator("#panel").inner_text()
    assert row["design"] in panel and "Amdahl" in panel and "Roofline" in panel
    assert f"ridgeline export {small_run.path} --design {row['design']}" in panel
    names = opened.evaluate("document.getElementById('chart').data.map(t => t.name)")
    assert "selected design" in names and small_run.reference_name in names


def test_the_reference_beside_a_design_has_its_formats(opened, small_run):
    for recipe in ("bf16", "fp8"):
        row = small_run.designs[small_run.designs["recipe"] == recipe].iloc[0]
        opened.locator(f"tr[data-design='{row['design']}|{recipe}|{row['kv_format']}'] .pick").click()
        x = opened.evaluate(
            f"document.getElementById('chart').data.find(t => t.name === '{small_run.reference_name}').x"
        )
        own = small_run.reference[(small_run.reference["recipe"] == recipe) & small_run.reference["within_ttft"]]
        assert sorted(x) == pytest.approx(sorted(own["tokens_per_s_per_user"]), rel=1e-4)


def test_points_over_the_limit_are_hollow_and_not_dropped(opened):
    opened.select_option("#format", "all")
    hollow = opened.evaluate(
        "document.getElementById('chart').data.filter(t => String(t.marker && t.marker.symbol).includes('open'))"
        ".flatMap(t => t.customdata.map(i => P.within_ttft[i]))"
    )
    assert hollow and not any(hollow)
    opened.select_option("#format", "selected")


def test_the_frontier_is_recomputed_for_a_pair_of_axes(opened):
    opened.select_option("#x-axis", "e2e_s")
    opened.select_option("#y-axis", "usd_per_million_tokens")
    x, y = opened.evaluate(
        "(t => [t.x, t.y])(document.getElementById('chart').data.find(t => t.name === 'best found'))"
    )
    assert x == sorted(x) and y == sorted(y, reverse=True)
    assert opened.evaluate("document.getElementById('chart').layout.xaxis.title.text") == "end-to-end time, s"
    opened.select_option("#x-axis", "tokens_per_s_per_user")
    opened.select_option("#y-axis", "tokens_per_s_per_gpu")


def test_log_axes_colour_and_bands(opened):
    opened.check("#x-log")
    opened.check("#bands")
    opened.select_option("#colour", "regime")
    chart = opened.evaluate(
        "(c => [c.layout.xaxis.type, c.data.some(t => t.fill === 'toself')])(document.getElementById('chart'))"
    )
    assert chart == ["log", True]
    opened.uncheck("#x-log")
    opened.uncheck("#bands")
    opened.select_option("#colour", "none")


def test_sliders_name_the_best_design_under_both_limits(opened, small_run):
    opened.select_option("#format", "all")
    opened.locator("#sla-rate").evaluate("n => { n.value = 60; n.dispatchEvent(new Event('input')); }")
    opened.wait_for_function("document.getElementById('sla-best').textContent.includes('tokens/s/GPU')")
    rate = opened.evaluate("state.rate")
    own = small_run.points[(small_run.points["kind"] == "own") & small_run.points["within_ttft"]]
    best = own[own["tokens_per_s_per_user"] >= rate]["tokens_per_s_per_gpu"].max()
    assert f"{best:,.0f}"[:3] in opened.locator("#sla-best").inner_text()
    opened.locator("#sla-rate").evaluate("n => { n.value = 0; n.dispatchEvent(new Event('input')); }")
    opened.select_option("#format", "selected")


def test_a_click_on_a_point_and_the_keyboard_move_along_a_curve(opened):
    opened.locator("#designs-table tbody tr .pick").first.click()
    before = opened.locator("#panel .id").first.inner_text()
    opened.get_by_role("button", name="faster").focus()
    opened.keyboard.press("Enter")
    assert opened.locator("#panel .id").first.inner_text() != before
    target = opened.evaluate("ownPoints(state.design, state.cell)[0]")
    opened.evaluate(f"document.getElementById('chart').emit('plotly_click', {{points: [{{customdata: {target}}}]}})")
    assert opened.evaluate("state.point") == target


def test_csv_has_every_design_shown(opened, small_run):
    lines = opened.evaluate("csv()").splitlines()
    assert len(lines) == 1 + len(small_run.designs)
    assert lines[0].startswith("design,hidden,layers")


def test_accessible_names_headings_and_contrast(opened):
    unnamed = opened.evaluate(
        "[...document.querySelectorAll('button, input, select, a')].filter(n => !(n.textContent.trim() "
        "|| n.labels && n.labels.length"
        " || n.getAttribute('aria-label'))).map(n => n.outerHTML)"
    )
    assert unnamed == []
    assert opened.evaluate("document.documentElement.lang") == "en"
    assert opened.locator("h1").count() == 1
    assert opened.evaluate(
        "[...document.querySelectorAll('[id]')].length === new "
        "Set([...document.querySelectorAll('[id]')].map(n => n.id)).size"
    )
    assert low_contrast(opened) == []


def low_contrast(page) -> list:
    """Texts of less than 4.5 : 1 against a plain background (WCAG 2.2 AA); gradients are skipped."""
    return page.evaluate((Path(__file__).parent / "contrast.js").read_text(encoding="utf-8"))


def test_hostile_names_are_shown_and_do_nothing(opened):
    assert opened.complaints == []
    assert "</script><script>alert(1)</script>" in opened.locator(".sub").inner_text()
