// The dashboard's page: no library, no network but its own server.
#include "tools/dashboard/dashboard.h"

namespace troupe::tools {

static constexpr char kPage[] = R"page(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>troupe</title>
<meta name="viewport" content="width=device-width">
<style>
:root { color-scheme: light dark; --line: #8886; --soft: #8882; --warn: #b35900; }
@media (prefers-color-scheme: dark) { :root { --warn: #ffb347; } }
body { font: 14px/1.45 system-ui, sans-serif; margin: 0 auto; padding: 1rem; max-width: 76rem; }
h1 { font-size: 1.2rem; margin: 0 0 .3rem; } h2 { font-size: .95rem; margin: 1.2rem 0 .3rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .15rem .5rem; border-bottom: 1px solid var(--soft); white-space: nowrap; }
th:first-child, td:first-child, td.text, th.text { text-align: left; white-space: normal; }
.warn { color: var(--warn); } .grey { opacity: .65; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(22rem, 1fr)); gap: 1rem; }
svg { width: 100%; border: 1px solid var(--soft); display: block; } svg text { font: 11px system-ui, sans-serif; fill: currentColor; }
pre { overflow-x: auto; font-size: 12px; } button { font: inherit; }
.bar { display: inline-block; height: .7em; background: #4c8dd6; vertical-align: baseline; }
</style></head><body>
<h1 id="head">...</h1><div id="silent" class="warn"></div>
<h2>What keeps it waiting</h2><div id="waits">...</div>
<h2>Workers</h2><table id="workers"></table>
<div class="charts"><div><h2>Loss</h2><svg id="loss" viewBox="0 0 440 150"></svg></div>
<div><h2>Steps per second</h2><svg id="rate" viewBox="0 0 440 150"></svg></div></div>
<h2>Where the time goes <button id="look">look for 0.3 s</button></h2><pre id="table" class="grey">A look follows every message for that time.</pre>
<svg id="timeline" viewBox="0 0 880 10" style="display:none"></svg>
<h2>Actors</h2><table id="actors"></table>
<script>
const key = new URLSearchParams(location.search).get("key"), $ = id => document.getElementById(id);
const get = async what => { const r = await fetch("/" + what + "?key=" + key); if (!r.ok) throw Error(await r.text()); return r.json(); };
const text = s => String(s).replace(/[&<>"]/g, c => "&#" + c.charCodeAt(0) + ";");
const bytes = n => { const u = ["B", "kB", "MB", "GB", "TB"]; let i = 0; while (n >= 999.5 && i < 4) n /= 1000, i++; return (n < 9.95 && i ? n.toFixed(1) : n.toFixed(0)) + " " + u[i]; };
const short = x => Math.abs(x) >= 1000 ? x.toFixed(0) : x == 0 || Math.abs(x) >= 0.001 ? x.toPrecision(3) : x.toExponential(2);
const time = s => s < 1 ? (s * 1e3).toFixed(0) + " ms" : s.toFixed(s < 100 ? 1 : 0) + " s";
const percent = x => `<span class="bar" style="width:${Math.min(3, Math.max(0, 3 * x)).toFixed(2)}rem"></span> ${(100 * x).toFixed(0)}%`;
const rows = (head, body) => "<tr>" + head.map(h => `<th${h[1] ? ' class="text"' : ""}>${h[0]}</th>`).join("") + "</tr>" + body.join("");
const sent = w => Object.entries(w.metrics).filter(([n]) => n.startsWith("tensor_bytes_by_")).reduce((a, [, v]) => a + v, 0);
let before = {}; const losses = [], rates = [];

function curve(svg, points) {
  if (points.length < 2) return svg.innerHTML = '<text x="10" y="80">not yet</text>';
  const xs = points.map(p => p[0]), ys = points.map(p => p[1]);
  let [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  if (x0 == x1) x1 = x0 + 1; if (y0 == y1) y1 = y0 + (Math.abs(y0) || 1), y0 -= Math.abs(y0) || 1;
  const at = p => (60 + 370 * (p[0] - x0) / (x1 - x0)).toFixed(1) + "," + (130 - 115 * (p[1] - y0) / (y1 - y0)).toFixed(1);
  svg.innerHTML = `<polyline fill="none" stroke="#4c8dd6" stroke-width="1.5" points="${points.map(at).join(" ")}"/>` +
    `<text x="4" y="18">${short(y1)}</text><text x="4" y="132">${short(y0)}</text>` +
    `<text x="60" y="146">step ${x0}</text><text x="430" y="146" text-anchor="end">${x1}</text>`;
}
function show(r) {
  const driver = r.workers.filter(w => w.steps > 0).sort((a, b) => b.steps - a.steps)[0];
  document.title = r.program + " - troupe";
  $("head").textContent = `${r.program}: ${r.workers.length} workers` + (driver ? `, step ${driver.steps}, ${short(driver.steps_per_second)} steps/s` : "") +
    (driver && driver.loss !== null ? `, loss ${short(driver.loss)}` : "") + (r.restarts ? `, restart ${r.restarts}` : "") + `, job ${r.job}`;
  if (driver) {
    if (driver.loss !== null && (!losses.length || losses[losses.length - 1][0] != driver.steps)) losses.push([driver.steps, driver.loss]);
    if (!rates.length || rates[rates.length - 1][0] != driver.steps) rates.push([driver.steps, driver.steps_per_second]);
    for (const all of [losses, rates]) if (all.length > 2000) all.splice(0, all.length, ...all.filter((_, i) => i % 2));
  }
  curve($("loss"), losses); curve($("rate"), rates);
  $("workers").innerHTML = rows([["worker"], ["busy"], ["cpu"], ["no cpu"], ["queued"], ["memory"], ["sent/s"], ["calls/s"], ["does", 1]], r.workers.map(w => {
    if (w.silent) return `<tr><td>${text(w.worker)}</td><td class="text warn" colspan="8">does not answer: ${text(w.silent)}</td></tr>`;
    const b = before[w.worker], t = b && b.pid == w.pid ? w.clock - b.clock : 0, d = f => t > 0 ? percent((w[f] - b[f]) / t) : "-";
    const doing = w.actors.filter(a => a.doing).sort((a, b) => b.seconds - a.seconds)[0];
    return `<tr><td title="process ${w.pid} on ${text(w.host)}">${text(w.worker)}</td><td>${d("busy")}</td><td>${d("cpu")}</td><td>${d("starved")}</td><td>${w.queued}</td><td>${bytes(w.memory)}</td>` +
      `<td>${t > 0 ? bytes((sent(w) - sent(b)) / t) : "-"}</td><td>${t > 0 ? ((w.calls - b.calls) / t).toFixed(0) : "-"}</td><td class="text">${doing ? text(doing.doing.split(" on ")[0]) + ", " + time(doing.seconds) : ""}</td></tr>`;
  }));
  $("actors").innerHTML = rows([["actor"], ["queued"], ["calls"], ["busy"], ["at work on", 1]], r.workers.flatMap(w => (w.actors || []).slice(0, 50).map(a =>
    `<tr><td>${text(a.actor)}</td><td>${a.queued}</td><td>${a.calls}</td><td>${time(a.busy)}</td><td class="text">${a.doing ? text(a.doing.split(" on ")[0]) + ", " + time(a.seconds) : ""}</td></tr>`)));
  for (const w of r.workers) before[w.worker] = w.silent ? undefined : w;
}
function timeline(t) {
  const boxes = t.traceEvents.filter(e => e.ph == "X" && e.dur > 0), lanes = [...new Set(boxes.map(e => e.pid + " " + e.tid))].sort((a, b) => a.localeCompare(b, undefined, {numeric: true}));
  if (!boxes.length) return;
  // The last steps: of the end of the look, as much as can be told apart.
  const end = Math.max(...boxes.map(e => e.ts + e.dur)), begin = Math.max(0, end - 20000), colours = {handle: "#4c8dd6", call: "#bbb", part: "#58a55c", backward: "#d9e8d9", span: "#e8d9b5", group: "#a76bcf", send: "#999", receive: "#999"};
  const x = v => 40 + 835 * (Math.max(v, begin) - begin) / (end - begin || 1), shown = lanes.slice(0, 40);
  $("timeline").style.display = ""; $("timeline").setAttribute("viewBox", `0 0 880 ${16 * shown.length + 22}`);
  $("timeline").innerHTML = boxes.filter(e => e.ts + e.dur > begin && shown.includes(e.pid + " " + e.tid)).slice(-4000).map(e =>
    `<rect x="${x(e.ts).toFixed(1)}" width="${Math.max(.5, x(e.ts + e.dur) - x(e.ts)).toFixed(1)}" y="${16 * shown.indexOf(e.pid + " " + e.tid) + 2}" height="12" fill="${colours[e.cat] || "#888"}"><title>${text(e.name)}, ${(e.dur / 1000).toFixed(3)} ms</title></rect>`).join("") +
    shown.map((l, i) => `<text x="2" y="${16 * i + 12}">w${l.split(" ")[0]}</text>`).join("") + `<text x="40" y="${16 * shown.length + 16}">the last ${((end - begin) / 1000).toFixed(1)} ms: handled (blue), calls (grey), backward (green), groups (violet)</text>`;
}
async function look() {
  try { const r = await get("report"); if (r.error) throw Error(r.error); show(r); $("silent").textContent = ""; } catch (e) { $("silent").textContent = e.message; }
  try {
    const w = await get("waits"), old = (w.waits || []).filter(x => x.kind != "cause" || x.seconds >= 1);
    $("waits").innerHTML = old.length ? old.slice(0, 8).map(x => `<div class="warn" title="${text(x.way.join("\n"))}">${text(x.line)}</div>`).join("") : '<span class="grey">nobody waits for more than a second</span>';
  } catch (e) { $("waits").textContent = e.message; }
  setTimeout(look, 1000);
}
$("look").onclick = async () => {
  $("look").disabled = true;
  try { const t = await get("trace"); if (t.error) throw Error(t.error); $("table").textContent = t.otherData.breakdown; $("table").className = ""; timeline(t); } catch (e) { $("table").textContent = e.message; }
  $("look").disabled = false;
};
look();
</script></body></html>
)page";

const char* dashboard_page() { return kPage; }

}  // namespace troupe::tools
