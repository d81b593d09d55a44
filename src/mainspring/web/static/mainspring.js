"use strict";
/* What the pages do beyond being pages: they stay fresh, keep their times right, and have keys. All of it is optional. */
(() => {
  const root = document.documentElement;
  const kept = localStorage.getItem("mainspring-theme");
  if (kept) root.dataset.theme = kept;

  const units = [[31536000, "y"], [2592000, "mo"], [86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  function distance(when) {
    const seconds = (Date.now() - when) / 1000, length = Math.abs(seconds);
    for (const [size, name] of units) if (length >= size) {
      return seconds > 0 ? `${Math.floor(length / size)} ${name} ago` : `in ${Math.floor(length / size + .05)} ${name}`;
    }
    return "now";
  }
  function keepTimes() {
    for (const one of document.querySelectorAll("time[datetime]")) {
      const when = Date.parse(one.dateTime);
      const text = one.classList.contains("due") && when < Date.now() ? "now" : distance(when);
      if (one.textContent !== text) one.textContent = text;
    }
  }

  /* A user who is typing is not disturbed: the page waits until the form is closed. A click whose button has been replaced between
     press and release is no click, so the page waits for the release, too. */
  let pressed = false;
  document.addEventListener("pointerdown", event => { pressed = event.button === 0; }, true);
  for (const kind of ["pointerup", "pointercancel"]) document.addEventListener(kind, () => setTimeout(() => { pressed = false; }), true);
  window.addEventListener("blur", () => { pressed = false; });
  function busy() {
    if (pressed) return true;
    if (document.querySelector("details.action[open], #bulk input:checked, [data-progress]:not([hidden])")) return true;
    if (!getSelection().isCollapsed) return true;
    const focus = document.activeElement;
    return Boolean(focus && focus.closest("main") && focus.matches("input, select, textarea"));
  }
  /* Rows stay where they are: what has come since is counted, and shown on a click. */
  let withNew = false;
  function keepRows(old, fresh) {
    const before = old.querySelector("tbody[data-keep]"), after = fresh.querySelector("tbody[data-keep]");
    if (!before || !after || withNew) { withNew = false; return; }
    const now = new Map([...after.rows].map(row => [row.dataset.id, row]));
    const there = [...before.rows].map(row => row.dataset.id);
    const come = [...now.keys()].filter(id => !there.includes(id)).length;
    if (!come) return;
    after.replaceChildren(...[...before.rows].map(row => now.get(row.dataset.id) || row));
    const show = document.createElement("button");
    show.type = "button"; show.className = "new-rows"; show.textContent = `${come === now.size ? `${come} or more` : come} new`;
    show.dataset.new = "";
    after.closest(".table").before(show);
  }
  document.addEventListener("click", event => {
    if (!event.target.matches?.("[data-new]")) return;
    withNew = true; event.target.blur(); refresh();
  });

  /* What was typed into a form stays while the page around it changes, also when nothing of it has the focus. */
  const formKey = form => `${form.getAttribute("action")} ${form.elements.topic?.value || form.elements.question?.value || ""}`;
  function changed(field) {
    if (field.type === "checkbox") return field.checked !== field.defaultChecked;
    if (field.options) return field.selectedIndex !== Math.max(0, [...field.options].findIndex(one => one.defaultSelected));
    return ["hidden", "submit", "button"].includes(field.type) ? false : field.value !== field.defaultValue;
  }
  function keepTyped(old, fresh) {
    const twins = new Map([...fresh.querySelectorAll("form")].map(form => [formKey(form), form]));
    for (const form of old.querySelectorAll("form")) {
      const twin = twins.get(formKey(form));
      for (const field of twin ? form.elements : []) {
        const other = field.name && changed(field) ? twin.elements[field.name] : null;
        if (other && other.type === field.type) { if (field.type === "checkbox") other.checked = field.checked; else other.value = field.value; }
      }
    }
  }

  let stale = false, fetching = false;
  async function refresh() {
    if (fetching || busy() || document.hidden) { stale = true; return; } /* the answer under way may be older than this change */
    fetching = true; stale = false;
    try {
      const answer = await fetch(location.href, { headers: { "Accept": "text/html", "Mainspring-Refresh": "1" }, credentials: "same-origin" });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.getElementById("main"), old = document.getElementById("main");
      if (!fresh || busy()) { stale = true; return; }
      keepRows(old, fresh); keepTyped(old, fresh);
      for (const one of old.querySelectorAll("details[id]")) {
        const twin = fresh.querySelector(`#${CSS.escape(one.id)}`);
        if (twin) twin.open = one.open;
      }
      for (const one of old.querySelectorAll("[data-nested]")) { /* what was unfolded stays until it has come anew */
        const twin = fresh.querySelector(`#${CSS.escape(one.id)}`);
        if (!twin) continue;
        if (one.querySelector(":scope > [data-over]")) twin.removeAttribute("hx-get");
        twin.replaceChildren(...one.childNodes);
      }
      const notice = old.querySelector(":scope > .notice[role=status]");
      const focus = document.activeElement, id = focus && focus.id, link = focus && focus.getAttribute && focus.getAttribute("href");
      const sideways = [...old.querySelectorAll(".table, .scroll")].map(one => one.scrollLeft);
      old.replaceChildren(...fresh.childNodes);
      [...old.querySelectorAll(".table, .scroll")].forEach((one, at) => { one.scrollLeft = sideways[at] || 0; });
      if (notice && !old.querySelector(":scope > .notice[role=status]")) old.prepend(notice);
      const again = id ? document.getElementById(id) : link ? old.querySelector(`a[href="${CSS.escape(link)}"]`) : null;
      if (again && document.activeElement === document.body) again.focus({ preventScroll: true });
      if (window.htmx) window.htmx.process(old);
      showCopying(); keepTimes();
    } catch { stale = true; } finally { fetching = false; }
  }

  function listen() {
    const { page, base, seen, live: script } = document.body.dataset;
    if (page === undefined || !window.EventSource) return;
    const live = document.getElementById("live"), trouble = document.getElementById("trouble");
    let last = seen || null, source = null, port = null, watching = false;
    function receive({ kind, is }) {
      if (!watching) return;
      if (kind === "error") { live.hidden = true; return; }
      if (kind === "trouble") {
        live.hidden = true; trouble.hidden = false; last = "trouble";
        trouble.textContent = `The page may be old: ${is}. Trying again …`;
        return;
      }
      live.hidden = false; trouble.hidden = true;
      if (last !== null && last !== is) refresh();
      last = is;
    }
    /* A browser without shared workers has a stream for each page that is visible. */
    function alone() {
      source = new EventSource(`${base}/live?page=${encodeURIComponent(page)}`);
      for (const kind of ["fresh", "changed", "trouble"]) source.addEventListener(kind, event => receive({ kind, is: JSON.parse(event.data).is }));
      source.addEventListener("error", () => receive({ kind: "error" }));
    }
    function say() { if (watching && port) port.postMessage({ page, base }); }
    function open() {
      if (watching) return;
      watching = true;
      if (!window.SharedWorker) { alone(); return; }
      if (!port) {
        port = new SharedWorker(script).port;
        port.onmessage = message => receive(message.data);
        setInterval(say, 15000);
      }
      say();
    }
    function close() {
      watching = false; live.hidden = true;
      if (port) port.postMessage({ page: null });
      if (source) source.close();
    }
    function look() { if (document.hidden) close(); else { open(); if (stale) refresh(); } }
    document.addEventListener("visibilitychange", look);
    window.addEventListener("pagehide", close);
    window.addEventListener("pageshow", look);
    setInterval(() => { if (stale) refresh(); }, 1000);
    look();
  }

  function bulk() {
    document.addEventListener("change", event => {
      const form = event.target.closest("[data-bulk]");
      if (!form) return;
      form.querySelector("[name=ids]")?.setCustomValidity("");
      const matching = form.querySelector("[data-matching]");
      if (event.target.matches("[data-all]")) for (const one of form.querySelectorAll("[name=ids]")) one.checked = event.target.checked;
      if (event.target === matching && matching.checked) for (const one of form.querySelectorAll("[name=ids], [data-all]")) one.checked = false;
      if (matching && event.target !== matching && event.target.checked) matching.checked = false;
      const count = form.querySelectorAll("[name=ids]:checked").length;
      for (const one of form.querySelectorAll("[data-ids-only]")) one.disabled = Boolean(matching?.checked);
      const words = form.querySelector("[data-chosen]");
      if (words) words.textContent = matching?.checked ? "With all that match:" : count ? `With the ${count} chosen:` : "With the chosen:";
    });
    document.addEventListener("submit", event => {
      const button = event.submitter;
      if (!event.target.matches("[data-bulk]")) return;
      const matching = event.target.querySelector("[data-matching]:checked");
      if (matching) { event.preventDefault(); everything(event.target, button, matching.value); return; }
      const count = event.target.querySelectorAll("[name=ids]:checked").length;
      const first = event.target.querySelector("[name=ids]");
      if (!count && first) { first.setCustomValidity("Choose at least one run."); first.reportValidity(); }
      if (!count || (button?.dataset.confirm && !confirm(`${button.dataset.confirm} (${count})`))) event.preventDefault();
    });
  }

  /* All runs that match: how many there are is shown before, and how far it has come while it goes on. */
  async function everything(form, button, matching) {
    const base = document.body.dataset.base, verb = new URL(button.formAction).pathname.split("/").pop(), name = button.textContent;
    const shown = form.querySelector("[data-progress]"), bar = shown.querySelector("progress"), words = shown.querySelector("span");
    async function ask(path, how) {
      const answer = await fetch(`${base}/api${path}`, { credentials: "same-origin", ...how });
      const found = await answer.json();
      if (!answer.ok) throw new Error(found.error);
      return found;
    }
    function show(kind, text) {
      const one = document.createElement("p");
      one.className = `notice ${kind}`; one.setAttribute("role", "status"); one.textContent = text;
      document.querySelector("main > .notice[role=status]")?.remove(); document.getElementById("main").prepend(one); scrollTo(0, 0);
    }
    let stopped = false, changed = 0, next = null;
    shown.querySelector("[data-stop]").onclick = () => { stopped = true; };
    try {
      const { count } = await ask(`/runs/count?${new URLSearchParams({ verb, matching })}`);
      if (!count) { show("problem", "No run that matches can be changed like this."); return; }
      if (!confirm(`${name} ${count.toLocaleString()} run${count === 1 ? "" : "s"} that match?`)) return;
      shown.hidden = false; bar.max = count;
      do {
        bar.value = changed; words.textContent = `${changed.toLocaleString()} of ${count.toLocaleString()}`;
        const body = { matching, most: 1000, reason: form.elements.reason.value || null, ...(next ? { next } : {}) };
        const { result } = await ask(`/runs/${verb}`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
        changed += result.changed; next = result.next;
      } while (next && !stopped);
      show("done", `${name}: ${changed.toLocaleString()} of ${count.toLocaleString()} runs${stopped && next ? ", then stopped" : ""}`);
    } catch (error) { show("problem", error.message); } finally {
      shown.hidden = true; form.querySelector("[data-matching]").checked = false; withNew = true; refresh();
    }
  }

  /* Only pages of this machine or under https may write to the clipboard: elsewhere the button is not shown. */
  function copying() {
    const copy = event => {
      const text = event.target.closest?.("[data-copy]")?.dataset.copy;
      const copied = () => { // the page may have been refreshed meanwhile
        for (const one of document.querySelectorAll("[data-copy]")) if (one.dataset.copy === text) one.textContent = "Copied";
      };
      if (text !== undefined) navigator.clipboard.writeText(text).then(copied);
    };
    if (navigator.clipboard) document.addEventListener("click", copy);
  }
  function showCopying() { if (navigator.clipboard) for (const one of document.querySelectorAll("[data-copy]")) one.hidden = false; }

  /* What was typed is there again when it was refused, and only then. */
  function typed() {
    const key = form => `mainspring-typed ${location.pathname} ${formKey(form)}`;
    const refused = document.querySelector("main > .notice.problem");
    for (const form of document.querySelectorAll("details.action form, form.fields")) {
      const kept = sessionStorage.getItem(key(form));
      sessionStorage.removeItem(key(form));
      if (!kept || !refused) continue;
      for (const [at, value] of JSON.parse(kept)) {
        const field = form.elements[at];
        if (field && field.type === "checkbox") field.checked = value; else if (field && field.type !== "hidden") field.value = value;
      }
      const panel = form.closest("details");
      if (panel) panel.open = true;
    }
    document.addEventListener("submit", event => {
      if (!event.target.matches("details.action form, form.fields")) return;
      const fields = [...event.target.elements].map((one, at) => [at, one.type === "checkbox" ? one.checked : one.value]);
      sessionStorage.setItem(key(event.target), JSON.stringify(fields));
    });
  }

  function keys() {
    let going = false;
    document.addEventListener("keydown", event => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
      if (event.key === "Escape") for (const one of document.querySelectorAll("details.action[open]")) { one.open = false; one.querySelector("summary").focus(); }
      else if (event.key === "/") { const field = document.querySelector("[data-filter]"); if (field) { event.preventDefault(); field.focus(); } }
      else if (going) { going = false; const way = document.querySelector(`nav [data-key="${CSS.escape(event.key)}"]`); if (way) location.href = way.href; }
      else if (event.key === "g") { going = true; setTimeout(() => { going = false; }, 1500); }
    });
    document.addEventListener("keydown", event => {
      if (event.key === "Escape" && event.target.closest?.("details.action[open]")) { const one = event.target.closest("details.action"); one.open = false; one.querySelector("summary").focus(); }
    });
    /* one panel at a time; a click elsewhere closes it */
    document.addEventListener("click", event => {
      for (const one of document.querySelectorAll("details.action[open]")) if (!one.contains(event.target)) one.open = false;
    });
  }

  /* What is meant may be beyond the edge of a small screen. Not scrollIntoView: that moves the place from which Tab goes on. */
  function toMiddle(one, around) {
    const frame = one?.closest(around);
    if (frame) frame.scrollLeft += one.getBoundingClientRect().left - frame.getBoundingClientRect().left - frame.clientWidth / 2 + one.getBoundingClientRect().width / 2;
  }

  document.addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme")?.addEventListener("click", () => {
      const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
      localStorage.setItem("mainspring-theme", root.dataset.theme);
    });
    const back = document.querySelector("form.login [name=back]");
    if (back && location.hash) back.value += location.hash; /* a server never sees that part of an address */
    toMiddle(document.querySelector(".bar nav [aria-current]"), "nav"); toMiddle(document.querySelector(".scroll rect.today"), ".scroll");
    keepTimes(); setInterval(keepTimes, 1000); listen(); bulk(); typed(); keys(); copying(); showCopying();
  });
})();
