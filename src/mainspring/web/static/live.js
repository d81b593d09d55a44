"use strict";
/* One stream for all visible pages of a browser, which allows six connections per site only. Pages say which address they show while
   they are visible, and receive what has changed there. */
const pages = new Map();
const latest = new Map(); /* the latest event of each address, for a page that comes to one that is being watched */
const PATIENCE = 45000; /* a page that has crashed does not say that it is gone; the others say every 15 s that they are there */
let source = null, asked = "", base = "", soon = null;

function tell(page, what) {
  for (const [port, one] of pages) if (page === null || one.page === page) port.postMessage(what);
}
function open() {
  soon = null;
  for (const [port, one] of pages) if (Date.now() - one.at > PATIENCE) pages.delete(port);
  const wanted = [...new Set([...pages.values()].map(one => one.page))].sort().slice(0, 50);
  const address = wanted.length ? `${base}/live?${wanted.map(page => `page=${encodeURIComponent(page)}`).join("&")}` : "";
  if (address === asked && (!address || source.readyState !== EventSource.CLOSED)) return;
  asked = address;
  latest.clear();
  if (source) source.close();
  source = address ? new EventSource(address) : null;
  if (!source) return;
  for (const kind of ["fresh", "changed", "trouble"]) {
    source.addEventListener(kind, event => {
      const { page, is } = JSON.parse(event.data);
      latest.set(page, { kind, is }); tell(page, { kind, is });
    });
  }
  source.addEventListener("error", () => { latest.clear(); tell(null, { kind: "error" }); });
}
self.onconnect = event => {
  const port = event.ports[0];
  port.onmessage = message => {
    const known = pages.get(port);
    if (message.data.page === null) pages.delete(port);
    else { base = message.data.base; pages.set(port, { page: message.data.page, at: Date.now() }); }
    if (known && message.data.page === known.page && source && source.readyState !== EventSource.CLOSED) return;
    if (latest.has(message.data.page)) port.postMessage(latest.get(message.data.page));
    if (soon === null) soon = setTimeout(open, 30); /* one page goes, another comes: that is one change */
  };
};
setInterval(open, PATIENCE / 3);
