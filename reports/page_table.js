// The table of designs: sort, filter, select, copy.
const LISTED = D.designs.map((d, i) => i).filter((i) => D.designs[i].listed);
const bestGain = (d) => Math.max(...d.gain.map((g) => (g === null ? -Infinity : g)));
const COLUMNS = [
  {
    name: "Design",
    value: (d) => d.shape,
    text: true,
    cell: (d) => [el("button", { class_: "link pick", type: "button" }, d.shape), el("small", {}, d.id)],
  },
  { name: "Formats", value: formatOf, text: true, cell: (d) => [formatOf(d)] },
  ...D.targets.map((t, j) => ({
    name: `Gain at ${t}`,
    title: `tokens/s/GPU over the reference's at ${t} tokens/s/user, same recipe and KV format`,
    value: (d) => d.gain[j],
    csv: [`tokens_per_s_per_gpu_at_${t}`, `gain_at_${t}`],
    raw: (d) => [d.at[j], d.gain[j]],
    cell: (d) => gainCell(d.gain[j], d.at[j], d.error[j]),
  })),
  {
    name: "Whole curve",
    title: "hypervolume of its own frontier over the reference's",
    value: (d) => d.gain_hypervolume,
    csv: ["gain_hypervolume"],
    // a curve no better than the model's error at any target is no gain
    cell: (d) =>
      gainCell(
        d.gain_hypervolume,
        null,
        null,
        d.gain.every((g, j) => g === null || withinError(g, d.error[j])),
      ),
  },
  {
    name: "Δ loss, nats",
    title: "shape_loss minus the reference's, one sigma",
    value: (d) => d.shape_loss_difference,
    csv: ["shape_loss_difference", "loss_sigma"],
    raw: (d) => [d.shape_loss_difference, d.loss_sigma],
    cell: (d) => [signed(d.shape_loss_difference, 3), el("small", {}, `± ${d.loss_sigma.toFixed(3)}`)],
  },
  {
    name: "Parameters",
    value: (d) => d.total_parameters,
    csv: ["total_parameters", "active_parameters"],
    raw: (d) => [d.total_parameters, d.active_parameters],
    cell: (d) => [
      `${number(d.total_parameters / 1e9)} B`,
      d.active_parameters < d.total_parameters
        ? el("small", {}, `${number(d.active_parameters / 1e9)} B active`)
        : null,
    ],
  },
  {
    name: "Training",
    title: "training FLOPs relative to the reference",
    value: (d) => d.training_flops_ratio,
    csv: ["training_flops_ratio"],
    cell: (d) => [`× ${d.training_flops_ratio.toFixed(2)}`],
  },
  {
    name: "Limits touched",
    title: "limits of the known range that it sits on",
    value: (d) => d.limits_touched,
    text: true,
    wide: true,
    cell: (d) => [
      d.limits_touched.replace(/_/g, " ") || "none",
      d.inside_envelope ? null : el("small", { class_: "warn" }, "outside the loss model's range"),
    ],
  },
];
const table = { sort: 2 + Math.floor(D.targets.length / 2), down: true, filter: "", format: "all", gains: false };

function gainCell(gain, at, error, unsure = false) {
  if (gain === null)
    return [
      el("span", { class_: "noise", title: "one of the two has no plan that fast" }, "–"),
      at ? el("small", {}, number(at, 4)) : null,
    ];
  const noise = unsure || withinError(gain, error);
  return [
    el(
      "span",
      { class_: noise ? "noise" : gain > 0 ? "up" : "down", title: noise ? "within model error" : null },
      percent(gain),
    ),
    at === null ? null : el("small", {}, noise ? `${number(at, 4)}, within error` : number(at, 4)),
  ];
}
function shownDesigns() {
  const words = table.filter.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = LISTED.filter((i) => {
    const d = D.designs[i];
    if (table.format !== "all" && formatOf(d) !== table.format) return false;
    if (table.gains && !d.gain.some((g, j) => g !== null && g > 0 && !withinError(g, d.error[j]))) return false;
    const text = `${d.shape} ${d.id} ${formatOf(d)} ${d.limits_touched}`.toLowerCase();
    return words.every((w) => text.includes(w));
  });
  const column = COLUMNS[table.sort],
    sign = table.down ? -1 : 1;
  const missing = (v) => v === null || v === undefined;
  return rows.sort((a, b) => {
    const x = column.value(D.designs[a]),
      y = column.value(D.designs[b]);
    if (missing(x) || missing(y)) return missing(x) - missing(y);
    return sign * (column.text ? String(x).localeCompare(String(y)) : x - y);
  });
}
function drawTable() {
  const head = document.querySelector("#designs-table thead"),
    body = document.querySelector("#designs-table tbody");
  head.replaceChildren(
    el(
      "tr",
      {},
      COLUMNS.map((c, j) =>
        el(
          "th",
          {
            scope: "col",
            class_: c.text ? null : "number",
            title: c.title,
            "aria-sort": j === table.sort ? (table.down ? "descending" : "ascending") : null,
          },
          el(
            "button",
            {
              type: "button",
              onclick: () => {
                if (table.sort === j) table.down = !table.down;
                else {
                  table.sort = j;
                  table.down = !c.text;
                }
                drawTable();
                head.querySelectorAll("button")[j].focus();
              },
            },
            c.name,
          ),
        ),
      ),
    ),
  );
  const rows = shownDesigns();
  body.replaceChildren(
    ...rows.map((i) => {
      const d = D.designs[i];
      return el(
        "tr",
        { "data-design": key(d), class_: i === state.design ? "on" : null, onclick: () => selectDesign(i) },
        COLUMNS.map((c) => el("td", { class_: c.wide ? "wide" : c.text ? null : "number" }, c.cell(d))),
      );
    }),
  );
  if (!rows.length)
    body.append(
      el(
        "tr",
        {},
        el(
          "td",
          { colspan: COLUMNS.length },
          LISTED.length ? "No design matches." : "This search found no feasible design.",
        ),
      ),
    );
  document.getElementById("table-count").textContent = `${rows.length} of ${LISTED.length} designs`;
}
function csv() {
  const quote = (v) => {
    const s = v === null || v === undefined ? "" : String(v);
    return /[",\n]/.test(s) ? `"${s.replace(/"/g, '""')}"` : s;
  };
  const fields = Object.keys(D.labels);
  const extra = COLUMNS.filter((c) => c.csv);
  const lines = [["design", ...fields, "recipe", "kv_format", ...extra.flatMap((c) => c.csv), "limits_touched"]];
  for (const i of shownDesigns()) {
    const d = D.designs[i];
    lines.push([
      d.id,
      ...fields.map((f) => d.fields[f]),
      d.recipe,
      d.kv_format,
      ...extra.flatMap((c) => (c.raw ? c.raw(d) : [c.value(d)])),
      d.limits_touched,
    ]);
  }
  return lines.map((line) => line.map(quote).join(",")).join("\n") + "\n";
}
function startTable() {
  const options = document.getElementById("table-format");
  options.append(el("option", { value: "all" }, "all"), ...FORMATS.map((f) => el("option", { value: f }, f)));
  options.onchange = () => {
    table.format = options.value;
    drawTable();
  };
  document.getElementById("filter").oninput = (event) => {
    table.filter = event.target.value;
    drawTable();
  };
  document.getElementById("only-gains").onchange = (event) => {
    table.gains = event.target.checked;
    drawTable();
  };
  document.getElementById("copy-csv").onclick = (event) => copyText(csv(), event.target);
  drawTable();
}
