"use strict";

const byId = (id) => document.getElementById(id);
const names = ["pending", "delayed", "processing", "completed", "failed"];
const everyMs = 800;

function element(kind, text, style) {
  const made = document.createElement(kind);
  made.textContent = text;
  if (style) made.className = style;
  return made;
}

function countdown(ms) {
  return ms <= 0 ? "due" : `in ${(ms / 1000).toFixed(1)} s`;
}

function row(name, job, now) {
  const item = element("li", "");
  const payload = job.payload === null ? "unreadable" : JSON.stringify(job.payload);
  item.append(element("code", job.id), " ", element("span", payload));
  if (job.attempts) item.append(element("span", ` attempt ${job.attempts}`, "quiet"));
  if (name === "delayed") item.append(element("strong", ` ${countdown(job.run_at_ms - now)}`));
  if (name === "processing") item.append(element("span", ` for ${((now - job.claimed_at_ms) / 1000).toFixed(1)} s`, "quiet"));
  if (job.error) item.append(element("div", job.error, "error"));
  return item;
}

function show(state) {
  const { stats, pool, lists } = state;
  byId("queue").textContent = state.queue;
  byId("running").value = pool.running;
  const totals = { ...pick(stats, "enqueued", "completed", "failed", "retried", "reclaimed"), hung: pool.hung };
  byId("totals").replaceChildren(...Object.entries(totals).map(([name, value]) => {
    const pair = element("div", "");
    pair.append(element("dt", name), element("dd", value));
    return pair;
  }));
  byId("lists").replaceChildren(...names.map((name) => {
    const part = element("section", "");
    part.id = name;
    const list = element("ul", "");
    list.append(...lists[name].map((job) => row(name, job, stats.now_ms)));
    const depth = stats[`${name}_depth`];
    part.append(element("h2", `${name} ${depth}`), list);
    if (depth > lists[name].length) part.append(element("p", `and ${depth - lists[name].length} more`, "quiet"));
    return part;
  }));
}

function pick(stats, ...wanted) {
  return Object.fromEntries(wanted.map((name) => [name, stats[`${name}_total`]]));
}

async function ask(path, body) {
  const how = body === undefined ? {} : {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  };
  const reply = await fetch(`api/${path}`, how);
  const facts = await reply.json();
  if (!reply.ok) throw new Error(facts.error);
  return facts;
}

async function refresh() {
  try {
    show(await ask("state"));
    byId("trouble").textContent = "";
  } catch (error) {
    byId("trouble").textContent = error.message;
  }
}

async function act(path, body) {
  try {
    const facts = await ask(path, body);
    const found = facts.reclaimed ?? facts.enqueued;
    byId("done").textContent = found ? `${path}: ${found.length}` : `${path}: done`;
  } catch (error) {
    byId("done").textContent = error.message;
  }
  await refresh();
}

function values(form) {
  return Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, name === "kind" ? value : Number(value)]));
}

byId("enqueue").addEventListener("submit", (event) => {
  event.preventDefault();
  act("enqueue", values(event.target));
});
byId("tune").addEventListener("submit", (event) => {
  event.preventDefault();
  act("workers/tune", values(event.target));
});
for (const button of document.querySelectorAll("button[data-act]")) {
  button.addEventListener("click", async () => {
    if (button.dataset.act === "purge" && !confirm("Delete all jobs of this queue?")) return;
    if (button.dataset.act === "workers/start") await act("workers/tune", values(byId("tune")));
    await act(button.dataset.act, {});
  });
}

async function live() {
  await refresh();
  setTimeout(live, everyMs);
}
live();
