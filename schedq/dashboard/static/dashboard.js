// What a page gains with JavaScript: it stays true while one looks, and boxes can be ticked together.
// Pages are whole without it. Nothing here makes HTML: the server did, escaped.
"use strict";

(() => {
  const pulse = document.getElementById("pulse");
  const trouble = document.getElementById("trouble");
  const retryMs = 10000;

  // -- pages stay true

  // Change `old` into `made` by what differs, so that focus, ticks and selections stay where they are.
  function become(old, made) {
    if (old.nodeType === Node.ELEMENT_NODE) {
      // Whether details are open is the reader's to say.
      const isOwn = (name) => name === "open" && old.nodeName === "DETAILS";
      for (const { name } of [...old.attributes]) {
        if (!made.hasAttribute(name) && !isOwn(name)) old.removeAttribute(name);
      }
      for (const { name, value } of made.attributes) {
        if (old.getAttribute(name) !== value && !isOwn(name)) old.setAttribute(name, value);
      }
      becomeInside(old, made);
    } else if (old.nodeValue !== made.nodeValue) {
      old.nodeValue = made.nodeValue;
    }
  }

  function becomeInside(old, made) {
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
        become(same, child);
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
      becomeInside(region, made);
    }
    // A row that moved has lost it.
    if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
    tell("live", "");
    count();
  }

  function tell(word, text) {
    pulse.hidden = false;
    pulse.className = "pulse " + word;
    pulse.lastElementChild.textContent = word;
    trouble.hidden = !text;
    trouble.textContent = text;
  }

  function listen() {
    const source = new EventSource(location.pathname + location.search);
    source.addEventListener("regions", (event) => show(JSON.parse(event.data)));
    source.addEventListener("trouble", (event) => tell("stale", "Not up to date since " + JSON.parse(event.data)));
    // What the page was about is no more: asking again is no use.
    source.addEventListener("gone", () => source.close());
    source.onerror = () => {
      if (source.readyState !== EventSource.CLOSED) {
        tell("stale", "");
        return;
      }
      tell("stale", "The dashboard does not answer; this page is as it was. Trying again.");
      setTimeout(listen, retryMs);
    };
    window.addEventListener("pagehide", () => source.close(), { once: true });
  }

  // -- boxes

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

  // -- keys: g then a letter goes to a page, / to the filter

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
