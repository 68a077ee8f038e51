// Optional enhancements: pages update live, times are local, charts tell their values to mouse and keyboard, dialogs
// confirm, and all checkboxes can be selected at once. Every page works without it.
// This script creates no HTML of its own: the server renders and escapes it.
"use strict";

(() => {
  const pulse = document.getElementById("pulse");
  const trouble = document.getElementById("trouble");
  const retryMs = 10000;

  // -- live updates

  // Update `old` to match `made`, changing only what differs, so that focus, checkboxes and selections are preserved.
  function morph(old, made) {
    if (old.nodeType === Node.ELEMENT_NODE) {
      // The reader decides whether details are open.
      const isOwn = (name) => name === "open" && old.nodeName === "DETAILS";
      for (const { name } of [...old.attributes]) {
        if (!made.hasAttribute(name) && !isOwn(name)) old.removeAttribute(name);
      }
      for (const { name, value } of made.attributes) {
        if (old.getAttribute(name) !== value && !isOwn(name)) old.setAttribute(name, value);
      }
      morphChildren(old, made);
    } else if (old.nodeValue !== made.nodeValue) {
      old.nodeValue = made.nodeValue;
    }
  }

  function morphChildren(old, made) {
    const stay = new Set([...made.children].map((child) => child.dataset.key));
    const keyed = new Map();
    for (const child of [...old.children]) {
      const key = child.dataset.key;
      if (key && !stay.has(key)) child.remove();
      else if (key) keyed.set(key, child);
    }
    let next = old.firstChild;
    for (const child of [...made.childNodes]) {
      const key = child.dataset && child.dataset.key;
      const same = key ? keyed.get(key) : next;
      if (same && same.nodeName === child.nodeName && (key || !(same.dataset && same.dataset.key))) {
        if (same === next) next = next.nextSibling;
        else old.insertBefore(same, next);
        morph(same, child);
      } else {
        old.insertBefore(child, next);
      }
    }
    while (next) {
      const gone = next;
      next = next.nextSibling;
      gone.remove();
    }
  }

  function show(regions) {
    const focused = document.activeElement;
    for (const [name, html] of Object.entries(regions)) {
      const region = document.getElementById(name);
      if (!region) continue;
      const made = document.createElement(region.nodeName);
      made.innerHTML = html;
      localize(made);
      morphChildren(region, made);
    }
    // A row that was moved has lost the focus.
    if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
    showStatus("live", "");
    count();
    if (shown && !shown.isConnected) point(null);
    else if (shown) point(shown);
  }

  function showStatus(word, text) {
    pulse.hidden = false;
    pulse.className = "pulse " + word;
    pulse.lastElementChild.textContent = word;
    trouble.hidden = !text;
    trouble.textContent = text;
  }

  function listen() {
    const source = new EventSource(location.pathname + location.search);
    source.addEventListener("regions", (event) => show(JSON.parse(event.data)));
    source.addEventListener("trouble", (event) => showStatus("stale", "Not up to date since " + JSON.parse(event.data)));
    // The subject of the page has been deleted, so reconnecting is useless.
    source.addEventListener("gone", () => source.close());
    source.onerror = () => {
      if (source.readyState !== EventSource.CLOSED) {
        showStatus("stale", "");
        return;
      }
      showStatus("stale", "The dashboard does not respond; this page shows old data. Reconnecting.");
      setTimeout(listen, retryMs);
    };
    window.addEventListener("pagehide", () => source.close(), { once: true });
  }

  // -- local times, with UTC on hover; texts stay as long as they are

  function localize(root) {
    for (const element of root.querySelectorAll("time[datetime], [data-at]")) {
      const at = new Date(element.getAttribute("datetime") || element.dataset.at);
      if (isNaN(at)) continue;
      const text = (given) => new Date(given).toISOString().replace("T", " ").slice(0, -1);
      const utc = text(at);
      const local = text(at - at.getTimezoneOffset() * 60000);
      const isZone = element.matches(".zone");
      const words = isZone ? element.textContent : element.firstChild && element.firstChild.nodeValue;
      const [first] = /^\d[\d:. -]*\d(?! ?[+-])/.exec(words || "") || [""];
      const place = first ? utc.indexOf(first) : -1;
      const said = place < 0 ? words : local.substr(place, first.length) + words.slice(first.length).replace(/^ UTC/, "");
      if (isZone) element.firstChild.textContent = said;
      else if (element.firstChild) element.firstChild.nodeValue = said;
      if (element.nodeName === "TIME" && !/[+-]\d{4}$/.test(words)) element.title = (place < 0 ? local + ", " : "") + utc + " UTC";
    }
  }

  // -- values of charts: of the part under the pointer, or of that to which the arrow keys lead

  const value = document.getElementById("value");
  let shown = null;

  function point(zone) {
    if (shown) shown.classList.remove("on");
    shown = zone;
    value.hidden = !zone;
    if (!zone) return;
    zone.classList.add("on");
    const text = zone.textContent;
    if (value.textContent !== text) value.textContent = text;
    value.style.left = "0";
    const box = zone.getBoundingClientRect();
    const most = document.documentElement.clientWidth - value.offsetWidth - 8;
    value.style.left = Math.max(8, Math.min(most, box.left + box.width / 2 - value.offsetWidth / 2)) + "px";
    value.style.top = Math.max(4, box.top - value.offsetHeight - 4) + "px";
  }

  const zones = (svg) => [...svg.querySelectorAll(".zone")];
  document.addEventListener("pointerover", (event) => point(event.target.matches(".zone") ? event.target : null));
  document.addEventListener("focusin", (event) => {
    if (event.target.matches("svg")) point(zones(event.target).at(-1) || null);
  });
  document.addEventListener("focusout", () => point(null));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") point(null);
    if (!event.target.matches("svg")) return;
    const all = zones(event.target);
    const at = all.indexOf(shown);
    const next = { ArrowLeft: Math.max(0, at - 1), ArrowRight: at + 1, Home: 0, End: all.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    if (all[next]) point(all[next]);
  });

  // -- dialogs: the page that asks for confirmation, without leaving this one

  const dialog = document.getElementById("dialog");
  let isPlain = false;
  document.addEventListener("submit", async (event) => {
    const { target: form, submitter } = event;
    if (form.id !== "act" || isPlain) return;
    event.preventDefault();
    let asked = null;
    try {
      const body = new URLSearchParams(new FormData(form, submitter));
      const response = await fetch(form.action, { method: "POST", headers: { accept: "text/html" }, body });
      const page = new DOMParser().parseFromString(response.ok ? await response.text() : "", "text/html");
      asked = page.querySelector("form.confirm");
    } catch { /* the page that says what is wrong is the one that the form leads to */ }
    if (asked) {
      dialog.replaceChildren(asked);
      dialog.showModal();
    } else {
      isPlain = true;
      form.requestSubmit(submitter);
    }
  });
  dialog.addEventListener("click", (event) => {
    if (!event.target.matches("a.button, dialog")) return;
    event.preventDefault();
    dialog.close();
  });
  dialog.addEventListener("close", () => dialog.replaceChildren());

  // -- checkboxes

  const boxes = () => [...document.querySelectorAll('input[type="checkbox"][name="ids"]')];

  function count() {
    const ticked = boxes().filter((box) => box.checked).length;
    for (const button of document.querySelectorAll('button[name="do"][value$=" selected"]')) {
      button.disabled = ticked === 0;
      button.dataset.words ||= button.textContent;
      button.textContent = ticked ? button.dataset.words + " (" + ticked + ")" : button.dataset.words;
    }
    const all = document.querySelector("input[data-all]");
    if (all) {
      all.checked = ticked > 0 && ticked === boxes().length;
      all.indeterminate = ticked > 0 && !all.checked;
    }
  }

  document.addEventListener("change", (event) => {
    if (event.target.matches("input[data-all]")) {
      for (const box of boxes()) box.checked = event.target.checked;
    }
    count();
  });

  // -- keyboard shortcuts: g and a letter open a page, / focuses the search, f the filter

  let before = "";
  document.addEventListener("keydown", (event) => {
    if (dialog.open || event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
    if (event.key === "/" || (event.key === "f" && before !== "g")) {
      const filter = document.querySelector(event.key === "/" ? "#seek" : '.filter input:not([type="hidden"])');
      if (filter) {
        event.preventDefault();
        filter.focus();
      }
    } else if (before === "g") {
      const words = { o: "All queues", t: "Tasks", j: "Jobs", b: "Batches", f: "Failed", d: "Delayed", s: "Schedules", w: "Workers", k: "Workflows", l: "Log" };
      const tab = [...document.querySelectorAll(".tabs a")].find((a) => a.textContent === words[event.key]);
      if (tab) tab.click();
    }
    before = event.key;
  });

  localize(document);
  document.getElementById("zone").textContent = "times are local, UTC on hover,";
  count();
  if ("live" in document.body.dataset) listen();
})();
