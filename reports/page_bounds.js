// What the time of a token is made of: every component, and within it what it waits for.
const BOUND_WORDS = { math: "compute", memory: "memory", network: "communication", latency: "launch and fixed cost" };
const BOUND_COLOURS = { math: "#D55E00", memory: "#0072B2", network: "#E69F00", latency: "#9AA4B2" };
const DETAIL_AT = new Map(D.detail.of.map((i, k) => [i, k]));
const hasDetail = (i) => DETAIL_AT.has(i);
// a column that is zero for every point is not in the page
const detail = (name, i) => (name in D.detail ? D.detail[name][DETAIL_AT.get(i)] : 0);

const milliseconds = (share, i) => 1e3 * share * P.tpot_s[i];
function boundsOf(part, i) {
  return D.bounds.map((b) => [
    b,
    part === null
      ? D.parts.reduce((sum, p) => sum + detail(`bound_${p}_${b}`, i), 0)
      : detail(`bound_${part}_${b}`, i),
  ]);
}
function boundBar(part, i, longest, who) {
  const shares = boundsOf(part, i).filter(([, s]) => s > 0);
  const said = shares.map(([b, s]) => `${BOUND_WORDS[b]} ${number(milliseconds(s, i))} ms`).join(", ");
  return el(
    "div",
    { class_: "bound-bar", role: "img", "aria-label": `${who}: ${said || "nothing"}` },
    shares.map(([b, s]) =>
      el("i", {
        "data-bound": b,
        style: `width:${(100 * milliseconds(s, i)) / longest}%;background:${BOUND_COLOURS[b]}`,
        title: `${who}, ${BOUND_WORDS[b]}: ${number(milliseconds(s, i))} ms`,
      }),
    ),
  );
}
// one row per component, this point above the reference's; the first row is the whole token
function boundChart(i, other) {
  const both = [i, other].filter((k) => k !== null && hasDetail(k));
  const total = (part, k) => boundsOf(part, k).reduce((sum, [, s]) => sum + milliseconds(s, k), 0);
  const longest = Math.max(...both.map((k) => total(null, k)));
  const shown = D.parts.filter((p) => both.some((k) => total(p, k) >= 0.005 * longest));
  const rows = [null, ...shown].map((part) =>
    el(
      "div",
      { class_: part === null ? "bound-row whole" : "bound-row", "data-part": part || "whole" },
      el("span", {}, part === null ? "whole token" : WORDS[part]),
      el(
        "div",
        {},
        both.map((k) => boundBar(part, k, longest, k === i ? "this point" : D.reference)),
      ),
      el(
        "span",
        { class_: "number" },
        both.map((k) => el("span", {}, `${number(total(part, k))} ms`)),
      ),
    ),
  );
  return [
    el("div", { class_: "bound-chart" }, rows),
    el(
      "div",
      { class_: "keys" },
      D.bounds.map((b) => el("span", {}, el("i", { style: `background:${BOUND_COLOURS[b]}` }), BOUND_WORDS[b])),
    ),
    both.length > 1
      ? el(
          "p",
          { class_: "id" },
          `Upper bars: this point at ${number(1 / P.tpot_s[i])} tokens/s/user; lower bars: ${D.reference} at ${number(1 / P.tpot_s[other])}.`,
        )
      : null,
  ];
}
const MEMORY = { weights: "weights", kv_cache: "KV cache", activations: "activations" };
const MEMORY_COLOURS = ["#0072B2", "#56B4E9", "#009E73", "#9AA4B2"];
function memoryBlock(i) {
  if (!hasDetail(i)) return [];
  const c = cellOf(i),
    parts = Object.keys(MEMORY).map((m) => [MEMORY[m], detail("memory_" + m, i)]);
  parts.push(["reserved by the engine", c.reserved_bytes]);
  const said = parts.map(([name, bytes]) => `${name} ${number(bytes / 1e9)} GB`);
  return [
    el("h3", {}, "Memory per GPU"),
    el(
      "div",
      { class_: "bar memory", role: "img", "aria-label": `${said.join(", ")} of ${number(c.memory_bytes / 1e9)} GB` },
      parts.map(([, bytes], k) =>
        el("i", { style: `width:${(100 * bytes) / c.memory_bytes}%;background:${MEMORY_COLOURS[k]}`, title: said[k] }),
      ),
    ),
    el(
      "div",
      { class_: "keys" },
      said.map((text, k) => el("span", {}, el("i", { style: `background:${MEMORY_COLOURS[k]}` }), text)),
    ),
  ];
}
// per component: what the formula rests on, and what its constants rest on
function evidenceBlock(i, d) {
  const kind = `${d.recipe}|${d.kv_format}|${d.fields.experts > 0 ? 1 : 0}|${d.fields.kv_lora_rank > 0 ? 1 : 0}`;
  const terms = D.terms[P.cell[i]][kind] || [];
  return [
    el("h3", {}, "Evidence"),
    el(
      "p",
      {},
      `${D.evidence[P.evidence[i]]}: 80 % of measurements lie within × ${number(P.error_low[i], 2)} to × ${number(P.error_high[i], 2)} of the token time.`,
    ),
    el(
      "details",
      {},
      el("summary", {}, "Evidence of each term"),
      el(
        "ul",
        { class_: "terms" },
        terms.map((t) => el("li", {}, el("b", {}, WORDS[t.part]), ` ${t.form}. Constants ${t.constants}.`)),
      ),
    ),
  ];
}
const LOSS_WORDS = {
  size: "parameters and their use",
  width_ratio: "width against size",
  depth: "depth against width",
  kv_heads: "shared KV heads",
  formats: "weight and activation formats",
  kv_format: "KV cache format",
};
function lossBlock(i, d) {
  const sigma = d.listed ? ` ± ${d.loss_sigma.toFixed(3)}` : "";
  const shape = d.loss_parts.slice(0, 4).reduce((a, b) => a + b, 0);
  const limits =
    d.listed && d.limits_touched
      ? el("p", { class_: "warn" }, `Touches limits of the known range: ${d.limits_touched.replace(/_/g, " ")}.`)
      : null;
  const published = [...(D.accuracy[d.recipe] || []), ...(D.accuracy["kv:" + d.kv_format] || [])];
  const rows = D.loss_parts.map((p, k) => [p, d.loss_parts[k]]).filter(([, v]) => Math.abs(v) >= 0.0005);
  return [
    el("h3", {}, "Loss"),
    el(
      "p",
      {},
      `${signed(shape, 3)}${sigma} nats from the reference's shape, ${signed(d.quant_loss, 3)} for the formats. A proxy from published scaling laws.`,
    ),
    rows.length
      ? el(
          "table",
          { class_: "loss-parts" },
          el(
            "tbody",
            {},
            rows.map(([p, v]) =>
              el("tr", {}, el("td", {}, LOSS_WORDS[p]), el("td", { class_: "number" }, signed(v, 3))),
            ),
          ),
        )
      : null,
    limits,
    published.length
      ? el(
          "details",
          {},
          el("summary", {}, `Published accuracy of ${formatOf(d)}`),
          el(
            "p",
            {},
            "Not measured here. Owed before deployment: the trained model in this format on your own evaluations.",
          ),
          el(
            "ul",
            {},
            published.map((t) => el("li", {}, t)),
          ),
        )
      : d.recipe === "bf16" && d.kv_format === "bf16"
        ? null
        : el(
            "p",
            {},
            "Accuracy of these formats: not measured here, none published is bundled. Owed before deployment: the trained model on your own evaluations.",
          ),
  ];
}
