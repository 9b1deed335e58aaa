// State, selection, controls; everything else draws from `state`.
const pair = ["tokens_per_s_per_user", "tokens_per_s_per_gpu"];
const drawable = D.objectives
  .filter((o) => QUANTITIES[o === "memory_bytes_per_gpu" ? "memory_gb" : o])
  .map((o) => (o === "memory_bytes_per_gpu" ? "memory_gb" : o));
const state = {
  design: null,
  point: null,
  cell: 0,
  format: "selected",
  x: drawable[0] || pair[0],
  y: drawable[1] || pair[1],
  xlog: false,
  ylog: false,
  colour: "none",
  bands: false,
  rate: null,
  ttft: D.max_ttft_s,
};

// a design's point that opens first: the one of best throughput at the middle target it reaches, else its fastest
function openingPoint(design) {
  const points = ownPoints(design, state.cell).filter((i) => P.within_ttft[i]);
  if (!points.length) return ownPoints(design, state.cell)[0] ?? null;
  const targets = [D.targets[Math.floor(D.targets.length / 2)], ...D.targets];
  for (const t of targets) {
    const fast = points.filter((i) => 1 / P.tpot_s[i] >= t);
    if (fast.length) return fast.reduce((a, b) => (P.tokens_per_s_per_gpu[b] > P.tokens_per_s_per_gpu[a] ? b : a));
  }
  return points[points.length - 1];
}
function selectDesign(i) {
  state.design = i;
  state.point = openingPoint(i);
  markRow();
  drawChart();
  drawPanel();
}
function selectPoint(i) {
  state.point = i;
  if (isOwn(designOf(i))) state.design = P.design[i];
  markRow();
  drawChart();
  drawPanel();
}
function markRow() {
  const chosen = state.design === null ? null : key(D.designs[state.design]);
  for (const row of document.querySelectorAll("#designs-table tbody tr")) {
    const on = row.dataset.design === chosen;
    row.classList.toggle("on", on);
    const pick = row.querySelector(".pick");
    if (pick) pick.setAttribute("aria-pressed", String(on));
  }
}
function choices(id, entries, current, act) {
  const select = document.getElementById(id);
  select.replaceChildren(
    ...entries.map(([value, text]) => el("option", { value, selected: String(value) === String(current) }, text)),
  );
  select.onchange = () => act(select.value);
}
// sliders run over the logarithm of the range that the points of this workload span
function slider(id, quantity, unset, act) {
  const node = document.getElementById(id),
    values = [];
  for (let i = 0; i < N; i++) if (P.own[i]) values.push(QUANTITIES[quantity].value(i));
  const low = Math.log(Math.min(...values)),
    high = Math.log(Math.max(...values));
  const value = () => {
    const t = +node.value / 100;
    return t === unset ? null : Math.exp(low + t * (high - low));
  };
  node.oninput = () => {
    act(value());
  };
  return (v) => {
    node.value =
      v === null ? 100 * unset : Math.round(100 * Math.min(Math.max((Math.log(v) - low) / (high - low || 1), 0), 1));
  };
}
function bestUnderLimits(indices) {
  const fit = indices.filter(
    (i) =>
      (state.rate === null || 1 / P.tpot_s[i] >= state.rate) &&
      (state.ttft === null || P.ttft_s[i] <= state.ttft * 1.0000001),
  );
  return fit.length ? fit.reduce((a, b) => (P.tokens_per_s_per_gpu[b] > P.tokens_per_s_per_gpu[a] ? b : a)) : null;
}
function drawLimits() {
  document.getElementById("sla-rate-out").textContent = state.rate === null ? "any" : number(state.rate);
  document.getElementById("sla-ttft-out").textContent = state.ttft === null ? "any time" : seconds(state.ttft);
  const all = [];
  for (let i = 0; i < N; i++)
    if (P.own[i] && P.cell[i] === state.cell && (state.format === "all" || formatOf(designOf(i)) === shownFormat()))
      all.push(i);
  const best = bestUnderLimits(all.filter((i) => isOwn(designOf(i))));
  const reference = bestUnderLimits(all.filter((i) => designOf(i).id === "reference"));
  const out = document.getElementById("sla-best");
  if (best === null) {
    out.replaceChildren("No design meets both limits.");
    return;
  }
  const gain = reference === null ? null : P.tokens_per_s_per_gpu[best] / P.tokens_per_s_per_gpu[reference] - 1;
  const noise = gain !== null && hasDetail(best) && withinError(gain, detail("difference_error", best));
  const against =
    gain === null
      ? `${D.reference} meets them with no plan.`
      : `${D.reference}: ${number(P.tokens_per_s_per_gpu[reference], 4)} (${percent(gain)}${noise ? ", within model error" : ""}).`;
  out.replaceChildren(
    "Best under both limits: ",
    el("button", { class_: "link", type: "button", onclick: () => selectPoint(best) }, designOf(best).shape),
    ` (${formatOf(designOf(best))}), ${number(P.tokens_per_s_per_gpu[best], 4)} tokens/s/GPU at ${number(1 / P.tpot_s[best])} tokens/s/user. ${against}`,
  );
}
function relayout(changes) {
  if (window.Plotly) Plotly.relayout("chart", changes); // else the first drawing shows them
}
let pending = 0;
function redrawSoon() {
  // sliders fire often: one redraw per frame
  if (!pending)
    pending = requestAnimationFrame(() => {
      pending = 0;
      drawLimits();
      relayout({ shapes: slaShapes() });
    });
}
function startControls() {
  const axes = Object.keys(QUANTITIES)
    .filter(available)
    .map((q) => [q, QUANTITIES[q].name]);
  choices("x-axis", axes, state.x, (v) => {
    state.x = v;
    drawChart();
  });
  choices("y-axis", axes, state.y, (v) => {
    state.y = v;
    drawChart();
  });
  choices(
    "cell",
    D.cells.map((c, i) => [i, `${c.workload} on ${c.gpu} (${c.engine})`]),
    0,
    (v) => {
      state.cell = +v;
      if (state.design !== null) state.point = openingPoint(state.design);
      drawChart();
      drawPanel();
      drawLimits();
    },
  );
  document.getElementById("cell-label").hidden = D.cells.length < 2;
  choices(
    "format",
    [["selected", "as selected design"], ["all", "all"], ...FORMATS.map((f) => [f, f])],
    "selected",
    (v) => {
      state.format = v;
      drawChart();
      drawLimits();
    },
  );
  choices(
    "colour",
    Object.entries(COLOUR_BY).map(([k, v]) => [k, v ? v.name : "nothing"]),
    "none",
    (v) => {
      state.colour = v;
      drawChart();
    },
  );
  for (const [id, name] of [
    ["x-log", "xlog"],
    ["y-log", "ylog"],
    ["bands", "bands"],
  ])
    document.getElementById(id).onchange = (event) => {
      state[name] = event.target.checked;
      drawChart();
    };
  document.getElementById("reset").onclick = () =>
    relayout({ "xaxis.autorange": true, "yaxis.autorange": true });
  const setRate = slider("sla-rate", "tokens_per_s_per_user", 0, (v) => {
    state.rate = v;
    redrawSoon();
  });
  const setTtft = slider("sla-ttft", "ttft_s", 1, (v) => {
    state.ttft = v;
    redrawSoon();
  });
  setRate(state.rate);
  setTtft(state.ttft);
  document.body.addEventListener("click", (event) => {
    const link = event.target.closest("button[data-design]");
    if (link && DESIGN_AT.has(link.dataset.design)) {
      selectDesign(DESIGN_AT.get(link.dataset.design));
      document.getElementById("frontier").scrollIntoView();
    }
  });
}
function start() {
  const first = D.chosen !== null && DESIGN_AT.has(D.chosen) ? DESIGN_AT.get(D.chosen) : LISTED[0];
  if (first !== undefined) {
    state.design = first;
    state.point = openingPoint(first);
  }
  startTable();
  startControls();
  markRow();
  drawPanel();
  drawLimits();
  document.documentElement.dataset.answers = Math.round(performance.now());
  requestAnimationFrame(() => setTimeout(loadPlotly)); // the table and panel answer before the plot is drawn
}
function loadPlotly() {
  document.head.append(el("script", {}, document.getElementById("plotly").textContent));
  setTimeout(startChart); // a click on the table in between is answered first
}
function startChart() {
  drawChart();
  document.getElementById("chart").on("plotly_click", (event) => {
    const i = event.points[0].customdata;
    if (i !== undefined) selectPoint(i);
  });
  document.documentElement.dataset.ready = Math.round(performance.now());
}
start();
