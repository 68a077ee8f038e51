// Optional enhancements: pages update live, and all checkboxes can be selected at once. Every page works without it.
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
      morphChildren(region, made);
    }
    // A row that was moved has lost the focus.
    if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
    showStatus("live", "");
    count();
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

  // -- keyboard shortcuts: g and a letter open a page, / focuses the filter

  let before = "";
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
    if (event.key === "/") {
      const filter = document.querySelector('.filter input:not([type="hidden"])');
      if (filter) {
        event.preventDefault();
        filter.focus();
      }
    } else if (before === "g") {
      const words = { o: "All queues", j: "Jobs", f: "Failed", d: "Delayed", s: "Schedules", w: "Workers", l: "Log" };
      const tab = [...document.querySelectorAll(".tabs a")].find((a) => a.textContent === words[event.key]);
      if (tab) tab.click();
    }
    before = event.key;
  });

  count();
  if ("live" in document.body.dataset) listen();
})();
