// The frontier plot: recomputed for every pair of axes over the points of this page.
const MOST_CLOUD = 1500; // faint points drawn: enough to show where the space is, few enough to stay quick

function inView(i) {
  return P.cell[i] === state.cell && (state.format === "all" || formatOf(designOf(i)) === shownFormat());
}
const shownFormat = () =>
  state.format === "selected" ? (state.design === null ? FORMATS[0] : formatOf(D.designs[state.design])) : state.format;

// indices that no other index dominates in (x, y), in order of x; one point is a frontier too
function frontierOf(indices, x, y) {
  const X = QUANTITIES[x],
    Y = QUANTITIES[y],
    sx = X.up ? -1 : 1,
    sy = Y.up ? -1 : 1;
  const sorted = indices.map((i) => [sx * X.value(i), sy * Y.value(i), i]).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const kept = [];
  let least = Infinity;
  for (const [, v, i] of sorted)
    if (v < least) {
      kept.push(i);
      least = v;
    }
  return kept.sort((a, b) => X.value(a) - X.value(b));
}
// at most `most` points: one per cell of a grid over the drawn range, so that the outline survives
function thinned(indices, xs, ys, most) {
  if (indices.length <= most) return indices;
  const range = (values) => {
    let lo = Infinity,
      hi = -Infinity;
    for (const v of values) {
      if (v < lo) lo = v;
      if (v > hi) hi = v;
    }
    return [lo, hi - lo || 1];
  };
  const [x0, dx] = range(indices.map(xs)),
    [y0, dy] = range(indices.map(ys));
  for (let bins = 160; ; bins = Math.floor(bins * 0.8)) {
    const seen = new Map();
    for (const i of indices) {
      const k = Math.floor(((xs(i) - x0) / dx) * bins) * 4096 + Math.floor(((ys(i) - y0) / dy) * bins);
      if (!seen.has(k)) seen.set(k, i);
    }
    if (seen.size <= most) return [...seen.values()];
  }
}
function hoverText(i) {
  const d = designOf(i),
    who = d.id === "reference" ? `${D.reference} (reference)` : nameOf(d);
  const shares = D.parts
    .map((p) => [p.replace(/_/g, " "), P["share_" + p][i]])
    .sort((a, b) => b[1] - a[1])
    .slice(0, 3)
    .map(([p, s]) => `${p} ${Math.round(100 * s)} %`)
    .join(", ");
  return [
    `<b>${plain(who)}</b>`,
    plain(`${formatOf(d)} · ${gpusOf(i)} GPUs · batch ${number(P.batch[i], 4)}`),
    plain(planText(i)),
    `${number(1 / P.tpot_s[i])} tokens/s/user · ${number(P.tokens_per_s_per_gpu[i], 4)} tokens/s/GPU`,
    `first token ${seconds(P.ttft_s[i])}${P.within_ttft[i] ? "" : " (over the limit)"}`,
    plain(shares),
    plain(D.regimes[P.regime[i]].split(":")[0]),
  ].join("<br>");
}
function trace(indices, options) {
  const X = QUANTITIES[state.x],
    Y = QUANTITIES[state.y];
  return {
    type: "scatter",
    mode: "markers",
    x: indices.map(X.value),
    y: indices.map(Y.value),
    customdata: indices,
    text: indices.map(hoverText),
    hovertemplate: "%{text}<extra></extra>",
    ...options,
  };
}
function cloudTraces(shown) {
  const X = QUANTITIES[state.x],
    Y = QUANTITIES[state.y];
  const place = (q, log) => (i) => (log ? Math.log(q.value(i)) : q.value(i));
  const drawn = thinned(shown, place(X, state.xlog), place(Y, state.ylog), MOST_CLOUD);
  const traces = [],
    by = COLOUR_BY[state.colour];
  for (const [within, symbol] of [
    [1, "circle"],
    [0, "circle-open"],
  ]) {
    const part = drawn.filter((i) => P.within_ttft[i] === within);
    if (!part.length) continue;
    const tail = within ? "" : ", over the TTFT limit";
    if (!by)
      traces.push(
        trace(part, {
          name: within ? "other designs and plans" : "over TTFT limit",
          marker: {
            symbol,
            size: within ? 4.5 : 5.5,
            color: within ? "#8d97a6" : "#7b8594",
            opacity: within ? 0.32 : 0.6,
          },
        }),
      );
    else if (by.words) {
      const words = [...new Set(part.map(by.value))].sort();
      words.forEach((w, k) =>
        traces.push(
          trace(
            part.filter((i) => by.value(i) === w),
            { name: w + tail, marker: { symbol, size: 5.5, color: COLOURS[k % COLOURS.length], opacity: 0.6 } },
          ),
        ),
      );
    } else {
      const values = part.map(by.value),
        shade = by.log ? values.map(Math.log10) : values;
      const bar = { title: { text: by.name, side: "right" }, thickness: 10, len: 0.6, outlinewidth: 0 };
      if (by.log) Object.assign(bar, { tickvals: [0, 1, 2, 3, 4], ticktext: ["1", "10", "100", "1,000", "10,000"] });
      traces.push(
        trace(part, {
          name: by.name + tail,
          showlegend: false,
          marker: {
            symbol,
            size: 5.5,
            color: shade,
            colorscale: "Cividis",
            showscale: within === 1,
            colorbar: bar,
            opacity: 0.75,
          },
        }),
      );
    }
  }
  return traces;
}
function bandTrace(indices, colour) {
  // the whole token time is off by a factor between error_low and error_high, so speed and throughput move together
  const x = indices.map((i) => QUANTITIES[state.x].value(i)),
    y = indices.map((i) => QUANTITIES[state.y].value(i));
  const turn = (values, q, factor) =>
    values.map((v, k) =>
      ["tokens_per_s_per_user", "tokens_per_s_per_gpu", "tokens_per_s_per_mw"].includes(q)
        ? v / P[factor][indices[k]]
        : ["ttft_s", "e2e_s", "usd_per_million_tokens", "joules_per_token"].includes(q)
          ? v * P[factor][indices[k]]
          : v,
    );
  const low = [turn(x, state.x, "error_low"), turn(y, state.y, "error_low")],
    high = [turn(x, state.x, "error_high"), turn(y, state.y, "error_high")];
  return {
    type: "scatter",
    mode: "lines",
    x: [...low[0], ...high[0].slice().reverse()],
    y: [...low[1], ...high[1].slice().reverse()],
    fill: "toself",
    fillcolor: colour + "22",
    line: { width: 0 },
    hoverinfo: "skip",
    showlegend: false,
  };
}
function curve(indices, options) {
  const front = frontierOf(
    indices.filter((i) => P.within_ttft[i]),
    state.x,
    state.y,
  );
  return front.length ? trace(front, { mode: "lines+markers", ...options }) : null;
}
// other models that the report was asked to draw: one colour each, one dash per format
const MODELS = [...new Set(D.designs.map((d) => d.model).filter(Boolean))];
const MODEL_COLOURS = ["#009E73", "#CC79A7", "#7A5195", "#56B4E9", "#6B7280"];
function overlayTraces(formats) {
  const traces = [];
  D.designs.forEach((d, k) => {
    if (!d.model || !formats.includes(formatOf(d))) return;
    const colour = MODEL_COLOURS[MODELS.indexOf(d.model) % MODEL_COLOURS.length];
    const points = ownPoints(k, state.cell);
    const line = curve(points, {
      name: formats.length > 1 ? `${plain(d.model)}, ${formatOf(d)}` : plain(d.model),
      line: { color: colour, width: 2, dash: ["dot", "dashdot", "longdash", "solid"][formats.indexOf(formatOf(d)) % 4] },
      marker: { size: 6, color: colour, symbol: "triangle-up" },
    });
    if (line) traces.push(line);
    const over = points.filter((i) => !P.within_ttft[i]);
    if (over.length)
      traces.push(
        trace(over, {
          name: `${plain(d.model)}, over the TTFT limit`,
          showlegend: line === null,
          marker: { size: 7, color: colour, symbol: "triangle-up-open" },
        }),
      );
  });
  return traces;
}
function drawChart() {
  if (!window.Plotly) return; // it is loaded after the page answers
  const shown = [];
  for (let i = 0; i < N; i++) if (inView(i) && isOwn(designOf(i))) shown.push(i);
  const traces = cloudTraces(shown.filter((i) => i !== state.point));
  const named = shown.filter((i) => P.own[i] && P.within_ttft[i]);
  const formats = state.format === "all" ? FORMATS : [shownFormat()];
  formats.forEach((f, k) => {
    const best = curve(
      named.filter((i) => formatOf(designOf(i)) === f),
      {
        name: formats.length > 1 ? `best found, ${f}` : "best found",
        line: { color: ORANGE, width: 1.6, dash: ["solid", "dot", "dash", "dashdot"][k % 4] },
        marker: { size: 4, color: ORANGE },
      },
    );
    if (best) traces.push(best);
  });
  const references = D.designs
    .map((d, i) => i)
    .filter((i) => D.designs[i].id === "reference" && formats.includes(formatOf(D.designs[i])));
  references.forEach((r, k) => {
    const points = ownPoints(r, state.cell);
    if (state.bands && points.length > 1)
      traces.push(
        bandTrace(
          frontierOf(
            points.filter((i) => P.within_ttft[i]),
            state.x,
            state.y,
          ),
          "#1a2230",
        ),
      );
    const line = curve(points, {
      name: references.length > 1 ? `${D.reference}, ${formatOf(D.designs[r])}` : D.reference,
      line: { color: INK, width: 2.2, dash: "6px,4px" },
      marker: { size: 7, color: INK, symbol: ["square", "diamond", "triangle-up", "x"][k % 4] },
    });
    if (line) traces.push(line);
    const over = points.filter((i) => !P.within_ttft[i]);
    if (over.length)
      traces.push(
        trace(over, {
          name: "reference, over the TTFT limit",
          showlegend: false,
          marker: { size: 7, color: INK, symbol: "square-open" },
        }),
      );
  });
  traces.push(...overlayTraces(formats));
  if (state.design !== null) {
    const points = ownPoints(state.design, state.cell);
    if (state.bands && points.length > 1)
      traces.push(
        bandTrace(
          frontierOf(
            points.filter((i) => P.within_ttft[i]),
            state.x,
            state.y,
          ),
          BLUE,
        ),
      );
    const line = curve(points, {
      name: "selected design",
      line: { color: BLUE, width: 3 },
      marker: { size: 8, color: BLUE },
    });
    if (line) traces.push(line);
    const over = points.filter((i) => !P.within_ttft[i]);
    if (over.length)
      traces.push(
        trace(over, {
          name: "selected, over the TTFT limit",
          showlegend: false,
          marker: { size: 8, color: BLUE, symbol: "circle-open", line: { width: 1.6 } },
        }),
      );
  }
  if (state.point !== null && P.cell[state.point] === state.cell)
    traces.push(
      trace([state.point], {
        name: "selected point",
        showlegend: false,
        marker: { size: 17, color: "rgba(0,0,0,0)", line: { color: "#E69F00", width: 3 } },
      }),
    );
  const axis = (q, log) => ({
    title: { text: QUANTITIES[q].name, font: { size: 13 } },
    type: log ? "log" : "linear",
    rangemode: log ? "normal" : "tozero",
    gridcolor: "#edf0f3",
    zeroline: false,
    linecolor: "#c9cfd8",
    ticks: "outside",
    tickcolor: "#c9cfd8",
    ticklen: 4,
    automargin: true,
    ...(log ? { dtick: "D2", exponentformat: "none" } : {}),
  });
  const layout = {
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: INK },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 64, r: 18, t: 8, b: 52 },
    hovermode: "closest",
    uirevision: `${state.x}/${state.y}/${state.xlog}/${state.ylog}/${state.cell}`,
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 12 }, itemsizing: "constant" },
    hoverlabel: { bgcolor: "#ffffff", bordercolor: "#c9cfd8", align: "left", font: { size: 12, color: INK } },
    xaxis: axis(state.x, state.xlog),
    yaxis: axis(state.y, state.ylog),
    shapes: slaShapes(),
  };
  Plotly.react("chart", traces, layout, {
    responsive: true,
    displaylogo: false,
    displayModeBar: false,
    scrollZoom: false,
  });
  chartNote(shown.length);
}
function slaShapes() {
  const shapes = [],
    line = { color: "#E69F00", width: 1.2, dash: "4px,3px" };
  for (const [q, value] of [
    ["tokens_per_s_per_user", state.rate],
    ["ttft_s", state.ttft],
  ]) {
    if (value === null) continue;
    if (state.x === q) shapes.push({ type: "line", x0: value, x1: value, yref: "paper", y0: 0, y1: 1, line });
    if (state.y === q) shapes.push({ type: "line", y0: value, y1: value, xref: "paper", x0: 0, x1: 1, line });
  }
  return shapes;
}
function chartNote(drawn) {
  const c = D.cells[state.cell];
  const limit =
    D.max_ttft_s === null ? "" : ` Hollow points take more than ${seconds(D.max_ttft_s)} to the first token.`;
  document.getElementById("frontier-note").textContent =
    `${c.workload}: ${c.cached ? c.cached.toLocaleString("en-US") + " cached + " : ""}${c.isl.toLocaleString("en-US")} tokens in, ${c.osl.toLocaleString("en-US")} out on ${c.gpu} with ${c.engine}. ${drawn.toLocaleString("en-US")} points of this view are in the page; each pair of axes has its own frontier over them.${limit}`;
}
