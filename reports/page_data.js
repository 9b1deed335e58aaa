"use strict";
// The run as columns: decoded once, with what follows from other columns by definition.
const D = JSON.parse(document.getElementById("data").textContent);
const P = D.points;
const N = P.design.length;
const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A5195", "#6B7280"];
const PART_COLOURS = ["#0072B2", "#56B4E9", "#009E73", "#E69F00", "#CC79A7", "#9AA4B2"];
const INK = "#1a2230",
  BLUE = "#0072B2",
  ORANGE = "#D55E00";

const key = (d) => `${d.id}|${d.recipe}|${d.kv_format}`;
const DESIGN_AT = new Map(D.designs.map((d, i) => [key(d), i]));
const formatOf = (d) => `${d.recipe}, KV ${d.kv_format}`;
const nameOf = (d) => (d.id === "reference" ? D.reference : d.model || d.shape);
const isOwn = (d) => d.id !== "reference" && !d.model;
const FORMATS = [...new Set(D.designs.map(formatOf))].sort();
const planField = (name) => {
  const j = D.plan_fields.indexOf(name);
  return (i) => D.plans[P.plan[i]][j];
};
const PLAN = Object.fromEntries(D.plan_fields.map((name) => [name, planField(name)]));
const gpusOf = (i) => P.gpus[i];
const cellOf = (i) => D.cells[P.cell[i]];
const designOf = (i) => D.designs[P.design[i]];

// every quantity a point can be plotted or coloured by: value(i), whether more is better, how to write it
const QUANTITIES = {
  tokens_per_s_per_user: { name: "tokens/s/user", value: (i) => 1 / P.tpot_s[i], up: true, unit: "", scale: 1 },
  tokens_per_s_per_gpu: { name: "tokens/s/GPU", value: (i) => P.tokens_per_s_per_gpu[i], up: true },
  ttft_s: { name: "time to first token, s", value: (i) => P.ttft_s[i], up: false },
  e2e_s: { name: "end-to-end time, s", value: (i) => P.e2e_s[i], up: false },
  usd_per_million_tokens: {
    name: "$ per million output tokens",
    value: (i) =>
      cellOf(i).usd_per_gpu_hour === null
        ? null
        : ((cellOf(i).usd_per_gpu_hour / 3600) * 1e6) / P.tokens_per_s_per_gpu[i],
    up: false,
  },
  joules_per_token: {
    name: "joules per output token",
    value: (i) => (cellOf(i).tdp_w === null ? null : cellOf(i).tdp_w / P.tokens_per_s_per_gpu[i]),
    up: false,
  },
  tokens_per_s_per_mw: {
    name: "tokens/s per MW of GPU power",
    value: (i) => (cellOf(i).tdp_w === null ? null : (P.tokens_per_s_per_gpu[i] / cellOf(i).tdp_w) * 1e6),
    up: true,
  },
  memory_gb: { name: "memory, GB per GPU", value: (i) => P.memory_bytes_per_gpu[i] / 1e9, up: false },
  shape_loss: { name: "predicted loss of the shape, nats", value: (i) => designOf(i).shape_loss, up: false },
  loss: {
    name: "predicted loss with formats, nats",
    value: (i) => designOf(i).shape_loss + designOf(i).quant_loss,
    up: false,
  },
};
const available = (q) => N > 0 && QUANTITIES[q].value(0) !== null;

// the plans that most points have, by name; the others together
const PLAN_WORDS = (() => {
  const counts = new Map();
  for (let i = 0; i < N; i++) counts.set(P.plan[i], (counts.get(P.plan[i]) || 0) + 1);
  const common = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a)).slice(0, 7);
  return (i) => (common.includes(P.plan[i]) ? planText(i) : "other plans");
})();
const fieldOf = (name) => (i) => designOf(i).fields[name];
const COLOUR_BY = {
  none: null,
  plan: { name: "plan", value: PLAN_WORDS, words: true },
  recipe: { name: "recipe", value: (i) => designOf(i).recipe, words: true },
  kv_format: { name: "KV format", value: (i) => designOf(i).kv_format, words: true },
  regime: { name: "bound by", value: (i) => D.regimes[P.regime[i]].split(":")[0], words: true },
  evidence: { name: "evidence", value: (i) => D.evidence[P.evidence[i]], words: true },
  gpus: { name: "GPUs per replica", value: gpusOf },
  batch: { name: "sequences in flight", value: (i) => P.batch[i], log: true },
  attention_tp: { name: "attention TP", value: PLAN.attention_tp },
  attention_dp: { name: "attention DP", value: PLAN.attention_dp },
  ffn_tp: { name: "FFN TP", value: PLAN.ffn_tp },
  ep: { name: "EP", value: PLAN.ep },
  pp: { name: "PP", value: PLAN.pp },
};
// every quantity but the two that are drawn anyway
for (const [name, q] of Object.entries(QUANTITIES))
  if (!["tokens_per_s_per_user", "tokens_per_s_per_gpu"].includes(name) && available(name))
    COLOUR_BY[name] = { name: q.name, value: q.value };
for (const name of D.plan_fields)
  if (!(name in COLOUR_BY) && new Set(D.plans.map((row) => row[D.plan_fields.indexOf(name)])).size > 1)
    COLOUR_BY[name] = { name: name.replace(/_/g, " "), value: PLAN[name] };
for (const name of Object.keys(D.labels)) {
  const values = new Set(D.designs.map((d) => d.fields[name]));
  if (values.size > 1) COLOUR_BY[`field:${name}`] = { name: D.labels[name], value: fieldOf(name) };
}

// points of each design in each cell, slowest to the user first
const OWN = new Map();
for (let i = 0; i < N; i++) {
  if (!P.own[i]) continue;
  const k = P.design[i] + "/" + P.cell[i];
  if (!OWN.has(k)) OWN.set(k, []);
  OWN.get(k).push(i);
}
for (const list of OWN.values()) list.sort((a, b) => P.tpot_s[b] - P.tpot_s[a]);
const ownPoints = (design, cell) => OWN.get(design + "/" + cell) || [];
const referenceFor = (d) => DESIGN_AT.get(`reference|${D.designs[d].recipe}|${D.designs[d].kv_format}`);

// one formatter per number of decimals: making one costs far more than using it
const FORMATTERS = [0, 1, 2, 3, 4, 5, 6].map(
  (digits) => new Intl.NumberFormat("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits }),
);
const whole = (v) => FORMATTERS[0].format(v);
function number(v, digits = 3) {
  if (v === null || v === undefined || !isFinite(v)) return "–";
  if (v === 0) return "0";
  const decimals = Math.max(digits - 1 - Math.floor(Math.log10(Math.abs(v))), 0);
  return FORMATTERS[Math.min(decimals, 6)].format(v);
}
function percent(f, sign = true) {
  if (f === null || f === undefined || !isFinite(f)) return "–";
  const points = 100 * f,
    text = Math.abs(points) >= 9.95 ? Math.abs(points).toFixed(0) : Math.abs(points).toFixed(1);
  return (points < 0 && +text !== 0 ? "−" : sign ? "+" : "") + text + " %";
}
const seconds = (s) => (s < 1 ? `${number(1e3 * s)} ms` : `${number(s)} s`);
const signed = (v, digits) => (v < 0 && +v.toFixed(digits) !== 0 ? "−" : "+") + Math.abs(v).toFixed(digits);
const withinError = (gain, error) =>
  gain !== null && error !== null && error !== undefined && Math.abs(Math.log1p(gain)) <= Math.log1p(error);
function planText(i) {
  let t = `attention TP${PLAN.attention_tp(i)}`;
  if (PLAN.attention_dp(i) > 1) t += ` DP${PLAN.attention_dp(i)}`;
  if (PLAN.kvp(i) > 1) t += ` KVP${PLAN.kvp(i)}`;
  t += `, FFN TP${PLAN.ffn_tp(i)}`;
  if (PLAN.ep(i) > 1) t += ` EP${PLAN.ep(i)}`;
  if (PLAN.pp(i) > 1) t += `, PP${PLAN.pp(i)}`;
  if (PLAN.prefill_replicas(i) > 0)
    t += `, prefill ${PLAN.prefill_replicas(i)} × TP${PLAN.prefill_attention_tp(i)} DP${PLAN.prefill_attention_dp(i)}`;
  return t;
}

// DOM without innerHTML: text can never become markup
function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [k, v] of Object.entries(attributes)) {
    if (v === null || v === undefined || v === false) continue;
    if (k.startsWith("on")) node.addEventListener(k.slice(2), v);
    else if (k === "style") node.style.cssText = v;
    else node.setAttribute(k === "class_" ? "class" : k, v === true ? "" : v);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) node.append(child);
  return node;
}
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
async function copyText(text, button) {
  const said = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch (error) {
    // file:// pages have no clipboard permission in some browsers
    const area = el("textarea", { style: "position:fixed;opacity:0" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  button.textContent = "Copied";
  setTimeout(() => {
    button.textContent = said;
  }, 1200);
}
