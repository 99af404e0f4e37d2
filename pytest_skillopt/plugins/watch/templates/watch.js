"use strict";
// Follow one run. Texts of models and tests enter the page only as text nodes.
const $ = (id) => document.getElementById(id);
const make = (tag, name, text) => {
  const node = document.createElement(tag);
  if (name) node.className = name;
  if (text !== undefined) node.textContent = text;
  return node;
};
const percent = (rate) => (rate === null || rate === undefined ? "-" : (100 * rate).toFixed(1) + " %");
const plural = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;
const duration = (s) =>
  s < 60 ? `${Math.round(s)} s` : s < 3600 ? `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`
    : `${Math.floor(s / 3600)} h ${Math.round((s % 3600) / 60)} min`;
const money = (cost) => (cost === null ? "no price" : cost === 0 || cost >= 0.1 ? `$${cost.toFixed(2)}` : `$${cost.toPrecision(2)}`);

function figures(state) {
  const total = Object.values(state.spent).reduce(
    (sum, used) => ({
      calls: sum.calls + used.calls,
      tokens: sum.tokens + used.input_tokens + used.output_tokens,
      cost: used.cost === null ? sum.cost : (sum.cost ?? 0) + used.cost,
    }),
    { calls: 0, tokens: 0, cost: null },
  );
  const of = (cap, shown) => (cap ? ` of ${shown ? shown(cap) : cap.toLocaleString("en")}` : "");
  const caps = state.caps;
  const rows = [
    ["Rollouts", state.done.toLocaleString("en") + (state.state === "running" && state.total > state.done ? ` of about ${state.total.toLocaleString("en")}` : "")],
    ...(state.said ? [] : state.rates.map(([start, now]) => ["Pass rate, expected", `${percent(start)} at the start, now ${percent(now)}`])),
    ...(state.said || state.rates.length ? [] : [["Passed", state.done ? percent(state.passed / state.done) : "-"]]),
    ["Time", duration(state.seconds) + of(caps.max_time, duration) + (state.left ? `, about ${duration(state.left)} left` : "")],
    ["Calls", total.calls.toLocaleString("en") + of(caps.max_calls)],
    ["Tokens", total.tokens.toLocaleString("en") + of(caps.max_tokens)],
    ["Money", money(total.cost) + of(caps.max_cost, money)],
  ];
  $("figures").replaceChildren(
    ...rows.map(([name, value]) => {
      const row = make("div");
      row.append(make("dt", "", name), make("dd", "", value));
      return row;
    }),
  );
  const whole = state.state === "finished" ? state.done : state.total || state.done || 1;
  $("bar").firstChild.style.width = `${Math.min(100, (100 * state.done) / (whole || 1))}%`;
  $("bar").setAttribute("aria-valuemax", whole);
  $("bar").setAttribute("aria-valuenow", state.done);
}

function head(state) {
  const said = state.said;
  $("run").textContent = state.run;
  $("mode").textContent = state.mode;
  const title = said ? said.answer : state.state === "running" ? state.phase || "starting" : "Not running here";
  if ($("title").textContent !== title) $("title").textContent = title;
  document.title = `${title} - skillopt`;
  $("hero").className = `hero ${said ? said.tone : ""}`;
  $("lead").textContent = said ? said.sentence
    : state.state === "running" ? (skillsOf(state.steps).length > 1 ? "" : `Step ${state.steps.length + 1}. `) + Object.entries(state.models).map(([role, model]) => `${role} ${model}`).join(", ")
      : "It was interrupted, or runs on another machine; below is the content of its journal.";
  for (const [name, texts] of [["cautions", said?.cautions ?? []], ["todo", said?.todo ?? []]]) {
    $(name).hidden = !texts.length;
    $(name).replaceChildren(...texts.map((text) => make("li", "", text)));
  }
  $("command").hidden = !said?.command;
  $("command").textContent = said?.command ?? "";
  $("measured").replaceChildren(...state.measured.map((rows) => filled(make("table"), rows[0], rows.slice(1))));
  $("report").hidden = !said;
  $("faults").hidden = !state.faults.length;
  $("fault-list").replaceChildren(...state.faults.map(([text, n]) => make("li", "", n > 1 ? `${text} (${n} times)` : text)));
}

function skillsOf(rows) {
  return [...new Set(rows.map((row) => row.skill))];
}
function curve(steps) {
  const points = steps.filter((step) => step.train !== null);
  $("curve").hidden = points.length < 1;
  if (!points.length) return;
  const svg = (tag, attributes, text) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const width = Math.max(320, Math.min(1000, $("plot").clientWidth || 640)), height = 220;
  const x = (i) => 44 + ((width - 60) * (i + 0.5)) / steps.length, y = (rate) => 12 + (height - 44) * (1 - rate);
  const plot = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": points.map((s) => `step ${s.step}: ${percent(s.train)}`).join("; ") });
  for (const rate of [0, 0.25, 0.5, 0.75, 1]) {
    plot.append(svg("line", { class: "axis", x1: 44, x2: width - 8, y1: y(rate), y2: y(rate) }));
    plot.append(svg("text", { x: 38, y: y(rate) + 4, "text-anchor": "end" }, `${100 * rate} %`));
  }
  const every = Math.ceil((steps.length * 26) / (width - 60));
  steps.forEach((step, i) => i % every === 0 && plot.append(svg("text", { x: x(i), y: height - 10, "text-anchor": "middle" }, String(step.step))));
  const line = steps.map((step, i) => [step, i]).filter(([step]) => step.train !== null), skills = skillsOf(steps);
  for (const skill of skills) {
    const own = line.filter(([step]) => step.skill === skill);
    plot.append(svg("polyline", { class: "train", points: own.map(([step, i]) => `${x(i)},${y(step.train)}`).join(" ") }));
  }
  for (const [step, i] of line) plot.append(svg("circle", { class: "train", cx: x(i), cy: y(step.train), r: 3 }));
  steps.forEach((step, i) => step.after !== null && step.after !== undefined && plot.append(svg("circle", { class: step.verdict, cx: x(i), cy: y(step.after), r: 6 })));
  $("plot").replaceChildren(plot);
  const gated = steps.some((step) => step.after !== null && step.after !== undefined);
  $("curve-of").textContent = "of the train tasks, after each step" + (gated ? ", and of the val tasks if the gate decided" : "");
  $("key").textContent = (skills.length > 1 ? `A line for each skill: ${skills.join(", ")}. ` : "")
    + (gated ? "Line: train. Circles: val, full if the gate accepted the candidate, empty if not." : "");
}

function effect(byTask) {
  const all = Object.values(byTask);
  if (!all.length) return "";
  const whole = (rate) => Math.round(100 * rate) || 0; // never -0
  const mean = whole(all.reduce((sum, one) => sum + one, 0) / all.length);
  const said = make("span", "why", `expected ${mean > 0 ? "+" : ""}${plural(mean, "point")} on ${plural(all.length, "task")}`);
  said.title = Object.entries(byTask).map(([task, one]) => `${whole(one)} ${task}`).join("\n");
  return said;
}
function tree(state) {
  const skills = skillsOf([...state.steps, ...state.edits]), same = (a, b) => a.skill === b.skill && a.step === b.step;
  const steps = [...state.steps];
  for (const edit of state.edits) if (!steps.some((step) => same(step, edit))) steps.push({ skill: edit.skill, step: edit.step, train: null, verdict: "none", reason: "" });
  steps.sort((a, b) => skills.indexOf(a.skill) - skills.indexOf(b.skill) || a.step - b.step);
  $("tree").hidden = !steps.length;
  $("steps").replaceChildren(
    ...steps.map((step) => {
      const item = make("li"), line = make("p");
      line.append(make("b", "", (step.step ? `Step ${step.step}` : "Before the first step") + (skills.length > 1 ? ` of ${step.skill}` : "")));
      line.append([step.train === null ? "" : `train tasks pass ${percent(step.train)}`,
        step.verdict !== "none" ? `${step.verdict}: val ${percent(step.before)} to ${percent(step.after)}` : "", step.reason].filter(Boolean).join("; "));
      const edits = make("ul");
      for (const edit of state.edits.filter((each) => same(each, step))) {
        const row = make("li", edit.status);
        row.append(make("span", "fate", edit.status), make("code", "", edit.content || `${edit.op}: ${edit.target}`));
        if (edit.why || edit.reason) row.append(make("span", "why", edit.why || edit.reason));
        row.append(effect(edit.effects || {}));
        edits.append(row);
      }
      item.append(line, edits);
      return item;
    }),
  );
}

const rows = [];
let cells = 0;
function colour(score) {
  return score === null ? "" : `hsl(${Math.round(4 + 136 * score)} 55% 46%)`;
}
function row(task, names, splits) {
  if (!rows[task]) {
    const item = make("li"), name = make("code", "", names[task]), n = make("span", "n"), box = make("span", "cells");
    name.title = names[task];
    item.append(name, n, box);
    item.dataset.split = splits[task];
    rows[task] = { item, n, box, passed: 0, measured: 0 };
  }
  return rows[task];
}
function grid(state) {
  const names = state.tasks.map(([name]) => name), splits = state.tasks.map(([, split]) => split);
  $("grid").hidden = !names.length;
  const fresh = new Map();
  for (const [task, score, version, at] of state.samples) {
    const cell = make("i", version < state.starts ? "start" : "");
    cell.dataset.at = at;
    cell.style.background = colour(score);
    const each = row(task, names, splits);
    each.measured += score !== null;
    each.passed += score === 1;
    if (!each.box.firstChild) cell.tabIndex = 0;
    if (!fresh.has(each)) fresh.set(each, []);
    fresh.get(each).push(cell);
    cells += 1;
  }
  for (const [each, made] of fresh) {
    each.box.append(...made);
    each.box.firstChild.tabIndex = 0;
    each.n.textContent = `${each.passed} of ${each.measured}`;
  }
  names.forEach((_, task) => {
    const each = row(task, names, splits);
    if (!each.item.isConnected) $("tasks").append(each.item);
  });
  $("legend").textContent = `${plural(cells, "sample")} of ${plural(names.length, "task")}; pale: the skill at the start; grey: not measured; red to green: the score.`;
}

async function open(cell) {
  const reply = await fetch(`transcript?at=${cell.dataset.at}`);
  if (!reply.ok) return;
  const told = await reply.json(), asked = told.request;
  $("panel-title").textContent = asked.task;
  $("panel-about").textContent = `${told.outcome}, ${asked.stream} ${asked.index}, version ${asked.version.slice(0, 10)}, ${duration(told.duration)}, worker ${told.worker || "here"}`;
  const message = told.error?.message || told.message;
  const body = message ? [make("pre", "message", message)] : [];
  for (const { role, content } of told.transcript) body.push(make("b", "", role), make("pre", "", content));
  $("panel-body").replaceChildren(...body);
  $("panel").showModal();
}
$("tasks").addEventListener("click", (event) => event.target.dataset.at && open(event.target));
$("tasks").addEventListener("keydown", (event) => {
  const cell = event.target;
  if (!cell.dataset.at) return;
  const next = { ArrowRight: cell.nextSibling, ArrowLeft: cell.previousSibling }[event.key];
  if (event.key === "Enter") open(cell);
  if (next) { next.tabIndex = 0; next.focus(); event.preventDefault(); }
});

function filled(table, head, body) {
  const line = (tag, values) => { const tr = make("tr"); tr.append(...values.map((value) => make(tag, "", value))); return tr; };
  table.replaceChildren(line("th", head), ...body.map((values) => line("td", values)));
  return table;
}
function show(state) {
  head(state);
  figures(state);
  curve(state.steps);
  tree(state);
  grid(state);
  filled($("spent"), ["role", "calls", "from the cache", "tokens in", "out", "cost"], Object.entries(state.spent).map(([role, used]) =>
    [role, ...[used.calls, used.cached, used.input_tokens, used.output_tokens].map((n) => n.toLocaleString("en")), money(used.cost)]));
}

let seen = 0;
function follow() {
  const source = new EventSource(`events?since=${seen}`);
  source.onmessage = (event) => {
    seen = Number(event.lastEventId);
    $("note").textContent = "";
    show(JSON.parse(event.data));
  };
  source.onerror = () => {
    source.close();
    $("note").textContent = "The watcher has ended; this page shows its last state.";
    setTimeout(follow, 3000);
  };
}
follow();
