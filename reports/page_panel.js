// The panel beside the plot: one point, its architecture beside the reference's, where its time goes.
const WORDS = {
  attention_linear: "attention linears",
  attention_core: "attention core",
  ffn: "FFN / experts",
  communication: "communication",
  head: "LM head",
  overhead: "overhead",
};

// the reference's point at (at least) the same speed, under the same formats: what the panel compares with
function counterpart(i) {
  const r = referenceFor(P.design[i]);
  if (r === undefined) return null;
  const fast = ownPoints(r, P.cell[i]).filter((j) => P.within_ttft[j] && P.tpot_s[j] <= P.tpot_s[i] * 1.0001);
  return fast.length ? fast.reduce((a, b) => (P.tokens_per_s_per_gpu[b] > P.tokens_per_s_per_gpu[a] ? b : a)) : null;
}
function breakdownBar(name, i, longest) {
  const parts = D.parts.map((p, k) =>
    el("i", {
      style: `width:${100 * P["share_" + p][i]}%;background:${PART_COLOURS[k]}`,
      title: `${WORDS[p]}: ${(1e3 * P["share_" + p][i] * P.tpot_s[i]).toFixed(2)} ms`,
    }),
  );
  return el(
    "div",
    { class_: "bar-row" },
    el("span", {}, name),
    el(
      "div",
      {
        class_: "bar",
        role: "img",
        "aria-label": D.parts.map((p) => `${WORDS[p]} ${Math.round(100 * P["share_" + p][i])} %`).join(", "),
        style: `width:${(100 * P.tpot_s[i]) / longest}%`,
      },
      parts,
    ),
    el("span", { class_: "number" }, `${number(1e3 * P.tpot_s[i])} ms`),
  );
}
// of a point that has no bounds in the page: its components alone
function breakdownBars(i, other) {
  const longest = Math.max(P.tpot_s[i], other === null ? 0 : P.tpot_s[other]);
  return [
    breakdownBar(`this ${number(1 / P.tpot_s[i])}/s`, i, longest),
    other === null ? null : breakdownBar(`ref. ${number(1 / P.tpot_s[other])}/s`, other, longest),
    el(
      "div",
      { class_: "keys" },
      D.parts.map((p, k) => el("span", {}, el("i", { style: `background:${PART_COLOURS[k]}` }), WORDS[p])),
    ),
    el("p", { class_: "id" }, "A dominated point: its bounds are not in the page."),
  ];
}
function architectureRows(d) {
  const r = D.designs[referenceFor(DESIGN_AT.get(key(d)))] || d;
  return Object.keys(D.labels)
    .filter((f) => d.fields[f] !== r.fields[f] || (d.fields[f] > 1 && !["norms", "ffn_matrices"].includes(f)))
    .map((f) =>
      el(
        "tr",
        { class_: d.fields[f] === r.fields[f] ? null : "diff" },
        el("td", {}, D.labels[f]),
        el("td", { class_: "number" }, d.fields[f].toLocaleString("en-US")),
        el("td", { class_: "number" }, r.fields[f].toLocaleString("en-US")),
      ),
    );
}
function amdahl(i) {
  // S = 1 / (1 - share): the bound if a component took no time at all
  return D.parts
    .map((p) => [WORDS[p], P["share_" + p][i]])
    .filter(([, s]) => s >= 0.02)
    .sort((a, b) => b[1] - a[1])
    .map(([name, s]) =>
      el(
        "tr",
        {},
        el("td", {}, name),
        el("td", { class_: "number" }, `${Math.round(100 * s)} %`),
        el("td", { class_: "number" }, `at most ${(1 / (1 - s)).toFixed(2)}×`),
      ),
    );
}
function drawPanel() {
  const panel = document.getElementById("panel");
  if (state.point === null) {
    panel.replaceChildren(
      el(
        "p",
        {},
        state.design === null
          ? "Select a design in the table, or a point in the plot."
          : "This design has no plan within the limits for this workload.",
      ),
    );
    return;
  }
  const i = state.point,
    d = designOf(i),
    c = cellOf(i),
    other = d.id === "reference" ? null : counterpart(i);
  const figure = (value, text) => el("div", {}, el("b", {}, value), el("span", {}, text));
  const usd = QUANTITIES.usd_per_million_tokens.value(i),
    joules = QUANTITIES.joules_per_token.value(i);
  const gains = d.id === "reference" || d.model ? null : buys(i);
  const command = `ridgeline export ${D.run} --design ${d.id}-${P.point[i]} --out ${d.id}`;
  const copy = el("button", { type: "button", class_: "mini" }, "Copy");
  copy.onclick = () => copyText(command, copy);
  panel.replaceChildren(
    ...[
      el("p", { class_: "name" }, nameOf(d)),
      el(
        "p",
        { class_: "id" },
        `${d.id === "reference" ? "the reference" : d.model ? `another model, ${d.shape}` : `design ${d.id}`}, ${formatOf(d)}; point ${P.point[i]}`,
      ),
      navigation(i),
      el(
        "div",
        { class_: "figures" },
        figure(number(1 / P.tpot_s[i]), "tokens/s/user"),
        figure(number(P.tokens_per_s_per_gpu[i], 4), "tokens/s/GPU"),
        figure(seconds(P.ttft_s[i]), P.within_ttft[i] ? "to first token, mean" : "to first token: over the limit"),
        figure(`${number(P.memory_bytes_per_gpu[i] / 1e9)} GB`, `of ${number(c.memory_bytes / 1e9)} GB per GPU`),
        usd === null ? null : figure(`$${number(usd)}`, "per million output tokens"),
        joules === null ? null : figure(`${number(joules)} J`, "per output token at TDP"),
      ),
      el("h3", {}, "Plan"),
      el(
        "p",
        {},
        `${gpusOf(i)} × ${c.gpu}, ${planText(i)}, ${P.batch[i].toLocaleString("en-US")} sequences in flight. End to end ${seconds(P.e2e_s[i])}.`,
      ),
      gains === null ? null : el("h3", {}, "What the gain buys"),
      gains === null ? null : el("p", { class_: "buys" }, gains),
      el("h3", {}, "Time per output token, by component and bound"),
      ...(hasDetail(i) ? boundChart(i, other) : breakdownBars(i, other)),
      el("p", {}, `Bound by ${D.regimes[P.regime[i]]}.`),
      el("h3", {}, "If a component cost nothing (Amdahl)"),
      el("table", {}, el("tbody", {}, amdahl(i))),
      el("h3", {}, "Architecture"),
      el(
        "table",
        {},
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            el("th", {}, "field"),
            el("th", { class_: "number" }, "this"),
            el("th", { class_: "number" }, D.reference),
          ),
        ),
        el("tbody", {}, architectureRows(d)),
      ),
      ...memoryBlock(i),
      ...rooflineBlock(i, d),
      ...lossBlock(i, d),
      ...evidenceBlock(i, d),
      el("h3", {}, "Take it away"),
      d.id === "reference" || d.model
        ? el("p", {}, "A published model: nothing to export.")
        : el("div", { class_: "copy" }, el("code", {}, command), copy),
    ].filter((node) => node !== null),
  );
}
// tokens/s/GPU of a design's own curve at a speed, straight lines in logarithms between its points; null beyond its end
function alongCurve(design, cell, speed, from, to) {
  const list = frontierOf(
    ownPoints(design, cell).filter((k) => P.within_ttft[k]),
    "tokens_per_s_per_user",
    "tokens_per_s_per_gpu",
  );
  const x = list.map(from),
    y = list.map(to);
  const order = list.map((_, k) => k).sort((a, b) => x[a] - x[b]);
  if (!list.length || speed > x[order[order.length - 1]]) return null;
  let k = 0;
  while (x[order[k]] < speed) k++;
  if (k === 0) return y[order[0]];
  const [a, b] = [order[k - 1], order[k]],
    t = Math.log(speed / x[a]) / Math.log(x[b] / x[a]);
  return Math.exp(Math.log(y[a]) + t * Math.log(y[b] / y[a]));
}
function buys(i) {
  const r = referenceFor(P.design[i]),
    user = QUANTITIES.tokens_per_s_per_user.value,
    gpu = QUANTITIES.tokens_per_s_per_gpu.value;
  if (r === undefined || !P.within_ttft[i]) return null;
  const throughput = alongCurve(r, P.cell[i], user(i), user, gpu),
    speed = alongCurve(r, P.cell[i], gpu(i), gpu, user);
  const error = hasDetail(i) ? detail("difference_error", i) : null,
    gain = (f) => percent(f) + (withinError(f, error) ? " (within model error)" : "");
  const usd = cellOf(i).usd_per_gpu_hour,
    price = (v) => number(((usd / 3600) * 1e6) / v);
  const first =
    throughput === null
      ? `${D.reference} has no plan this fast.`
      : `At this speed ${D.reference} gives ${number(throughput, 4)} tokens/s/GPU: ${gain(gpu(i) / throughput - 1)}${usd === null ? "" : `, or $${price(gpu(i))} against $${price(throughput)} per million tokens`}.`;
  const second =
    speed === null
      ? ` It reaches this throughput at no speed.`
      : ` At this throughput it gives ${number(speed)} tokens/s/user: ${gain(user(i) / speed - 1)}.`;
  return first + second;
}
function navigation(i) {
  const list = ownPoints(P.design[i], P.cell[i]),
    at = list.indexOf(i);
  if (at < 0) return el("p", { class_: "id" }, "a dominated plan of this design");
  const go = (step, text) =>
    el(
      "button",
      {
        type: "button",
        disabled: list[at + step] === undefined,
        onclick: () => {
          selectPoint(list[at + step]);
          document.querySelectorAll("#panel .panel-nav button")[step < 0 ? 0 : 1].focus();
        },
      },
      text,
    );
  return el(
    "div",
    { class_: "panel-nav" },
    go(-1, "← slower"),
    go(1, "faster →"),
    el("span", {}, `${at + 1} of ${list.length} on its curve`),
  );
}
const SVG = (name, attributes, ...children) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [k, v] of Object.entries(attributes)) node.setAttribute(k, v);
  node.append(...children);
  return node;
};
// operations of a decode pass against the roofline of their formats; both axes logarithmic
function rooflineBlock(i, d) {
  if (!hasDetail(i)) return [];
  const rows = D.operations
    .map((name, k) => ({ name, x: detail(`intensity_${k}`, i), y: detail(`flops_${k}`, i), colour: COLOURS[k] }))
    .filter((r) => r.x);
  if (!rows.length) return [];
  const c = cellOf(i),
    [attention, ffn] = c.peak_flops[d.recipe],
    top = Math.max(attention, ffn),
    bandwidth = c.memory_bytes_per_s;
  const W = 356,
    H = 170,
    pad = { l: 40, r: 8, t: 8, b: 28 };
  const x0 = Math.min(0.5, ...rows.map((r) => r.x)) / 1.5,
    x1 = Math.max((4 * top) / bandwidth, ...rows.map((r) => r.x)) * 1.5,
    y1 = top * 1.8,
    y0 = Math.min(...rows.map((r) => r.y), x0 * bandwidth) / 1.5;
  const X = (v) => pad.l + (Math.log(v / x0) / Math.log(x1 / x0)) * (W - pad.l - pad.r),
    Y = (v) => H - pad.b - (Math.log(v / y0) / Math.log(y1 / y0)) * (H - pad.t - pad.b);
  const svg = SVG("svg", {
    viewBox: `0 0 ${W} ${H}`,
    class: "roof",
    role: "img",
    "aria-label": rows.map((r) => `${r.name}: ${number(r.x)} FLOP per byte, ${number(r.y / 1e12)} TFLOP/s`).join("; "),
  });
  const text = (x, y, t, anchor) => SVG("text", { x, y, "text-anchor": anchor || "middle" }, t);
  for (let e = Math.ceil(Math.log10(x0)); 10 ** e <= x1; e++)
    svg.append(
      SVG("line", { x1: X(10 ** e), x2: X(10 ** e), y1: pad.t, y2: H - pad.b, class: "grid" }),
      text(X(10 ** e), H - pad.b + 12, 10 ** e >= 1 ? (10 ** e).toLocaleString("en-US") : String(10 ** e)),
    );
  for (let e = Math.ceil(Math.log10(y0)); 10 ** e <= y1; e++)
    svg.append(
      SVG("line", { x1: pad.l, x2: W - pad.r, y1: Y(10 ** e), y2: Y(10 ** e), class: "grid" }),
      text(pad.l - 4, Y(10 ** e) + 3, e >= 12 ? `${10 ** (e - 12)}T` : e >= 9 ? `${10 ** (e - 9)}G` : `1e${e}`, "end"),
    );
  svg.append(
    text((W + pad.l) / 2, H - 3, "FLOP per byte"),
    SVG("polyline", {
      points: `${X(x0)},${Y(x0 * bandwidth)} ${X(top / bandwidth)},${Y(top)} ${X(x1)},${Y(top)}`,
      class: "line",
    }),
  );
  if (attention !== ffn)
    svg.append(
      SVG("polyline", {
        points: `${X(Math.min(attention, ffn) / bandwidth)},${Y(Math.min(attention, ffn))} ${X(x1)},${Y(Math.min(attention, ffn))}`,
        class: "line thin",
      }),
    );
  for (const r of rows)
    svg.append(
      SVG(
        "circle",
        { cx: X(r.x), cy: Y(r.y), r: 4.5, fill: r.colour },
        SVG("title", {}, `${r.name}: ${number(r.x)} FLOP per byte, ${number(r.y / 1e12)} TFLOP/s`),
      ),
    );
  return [
    el("h3", {}, "Roofline of a decode pass"),
    svg,
    el(
      "div",
      { class_: "keys" },
      rows.map((r) =>
        el("span", {}, el("i", { style: `background:${r.colour}` }), `${r.name} ${number(r.y / 1e12, 2)} TFLOP/s`),
      ),
    ),
  ];
}
