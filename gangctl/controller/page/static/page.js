// The page of gangctl's controller: a list of gangs, or one gang, as the last event of the stream has it.

import { h, patch } from "./tree.js";

const RETRY_MILLISECONDS = 2000;
const PATIENCE_MILLISECONDS = 4000; // each stream ends after a minute and begins again, which is no news
const STATES = {
  Running: "run", Ready: "ready", Starting: "wait", Idle: "wait", Stopping: "stop", Ended: "over", Finished: "run", Done: "over",
  Stuck: "bad", "Not connected": "bad", "No pod": "bad",
};
const KINDS = ["list", "gang", "missing", "broken"];
const REDRAW_SECONDS = 5; // the timeline is drawn anew so often, and when the phase or the attempt changes

const main = document.getElementById("main");
const connection = document.getElementById("connection");
const news = document.getElementById("news");

let stream = null; // the EventSource of what is shown
let shown = null; // the last document and its kind
let ahead = 0; // the controller's clock before this one, in seconds
let again = 0; // the timer of the next try
let doubt = 0; // the timer after which a connection counts as lost

// Where the page is: { } for the list, or { namespace, name, kind } of a gang or a replica group.
function place() {
  const [, namespace, name, kind] = location.hash.split("/").map(decoded);
  return namespace && name ? { namespace, name, kind: kind === "group" ? "groups" : "gangs" } : {};
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function follow() {
  stream?.close();
  clearTimeout(again);
  if (document.hidden) return; // a tab in the background costs the controller nothing
  const { namespace, name, kind } = place();
  const path = name ? address(kind, namespace, name) : "gangs";
  const source = new EventSource(path);
  stream = source;
  source.addEventListener("open", () => connected(true, "Live"));
  source.addEventListener("error", () => {
    if (source.readyState === EventSource.CLOSED) retry(path);
    else doubt ||= setTimeout(connected, PATIENCE_MILLISECONDS, false, "The controller does not answer. Trying again ...");
  });
  source.addEventListener("time", (event) => { ahead = Number(event.data) - Date.now() / 1000; });
  for (const what of KINDS) {
    source.addEventListener(what, (event) => {
      shown = { ...JSON.parse(event.data), kind: what };
      render();
    });
  }
}

async function retry(path) {
  let said = "";
  try {
    const control = new AbortController();
    const answer = await fetch(path, { signal: control.signal });
    said = answer.ok ? "" : (await answer.text()).trim();
    control.abort();
  } catch {
    // no answer at all
  }
  connected(false, `${said || "The controller does not answer"}. Trying again ...`);
  again = setTimeout(follow, RETRY_MILLISECONDS);
}

function connected(live, text) {
  clearTimeout(doubt);
  doubt = 0;
  connection.className = live ? "live" : "away";
  if (connection.textContent !== text) connection.textContent = text;
}

const VIEWS = { list: viewList, gang: viewGang, missing: viewMissing, broken: viewBroken };

function render() {
  if (shown === null || document.hidden) return; // it would ask for pictures
  const view = VIEWS[shown.kind](shown);
  document.title = `${view.title} - gangctl`;
  patch(main, [h("h1", { tabindex: "-1" }, view.title), ...view.parts]);
  if (view.news !== undefined && news.textContent !== view.news) news.textContent = view.news;
}

function viewList({ namespace, group = "", total = 0, unreadable = 0, isPartial = false, unseen = 0, rows = [] }) {
  const notes = [
    rows.length > 0 ? "" : isPartial ? "There are no gangs that you may see." : "There are no gangs.",
    total > rows.length ? `${rows.length} of ${total} gangs. Those that have not ended come first, then the newest.` : "",
    isPartial ? "These are gangs of namespaces in which you may list GangJobs. The list of namespaces is made once a minute." : "",
    unseen > 0 ? `${unseen} more namespaces with gangs are not looked through. Open a gang of them by its address.` : "",
    unreadable > 0 ? `This release can't read ${unreadable} more: kubectl describe shows why.` : "",
  ].filter(Boolean).map((note) => h("p", { key: note }, note));
  const title = group ? `Replica group ${namespace}/${group}` : "Gangs";
  if (rows.length === 0) return { title, parts: notes };
  const heads = ["Gang", "Phase", "Ready", "Attempt", "Restarts", "Step", "Age", "Last incident"];
  const body = rows.flatMap((row, at) => [isFirst(row, rows[at - 1]) && !group ? groupRow(row, rows) : null, h("tr", { key: `${row.namespace}/${row.name}` },
    h("th", { scope: "row" }, h("a", { href: hash(row) }, `${row.namespace}/${row.name}`)),
    h("td", {}, phaseOf(row)),
    h("td", {}, row.ready || "-"),
    h("td", {}, `${row.attempt}`),
    h("td", {}, `${row.restarts}`),
    h("td", {}, number(row.step)),
    h("td", {}, age(until(row) - seconds(row.created))),
    h("td", {}, row.reason || "-"))]);
  return {
    title,
    parts: [
      ...(group ? [section("Timeline", groupTimeline(namespace, group))] : []),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of gangs" },
        h("table", {},
          h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
          h("tbody", {}, body))),
      ...notes,
    ],
  };
}

// Whether a row begins the gangs of a replica group.
function isFirst(row, before) {
  return row.group !== undefined && !isBeside(row, before);
}

function isBeside(row, other) {
  return row.namespace === other?.namespace && row.group === other?.group;
}

function groupRow(row, rows) {
  const gangs = rows.filter((other) => isBeside(row, other));
  const running = gangs.filter((one) => one.phase === "Running").length;
  return h("tr", { class: "group", key: `group ${row.namespace}/${row.group}` },
    h("th", { scope: "rowgroup", colspan: "8" }, "Replica group ",
      h("a", { href: groupHash(row) }, `${row.namespace}/${row.group}`), `: ${running} of ${gangs.length} running`));
}

function groupTimeline(namespace, group) {
  return picture(address("groups", namespace, group), `${Math.floor(now() / REDRAW_SECONDS)}`,
    `Timeline of the replica group ${group}: a row for each gang.`);
}

function viewGang(gang) {
  const over = gang.completed !== undefined;
  const facts = [
    ["Phase", [phaseOf(gang), ` for ${age(until(gang) - seconds(gang.since))}`].slice(0, over ? 1 : 2)],
    ["Attempt", `${gang.attempt}`],
    ["Ready", gang.ready || "-"],
    ["Step", number(gang.step)],
    ["Restore point", gang.restore || "the beginning"],
    ...(gang.group ? [["Replica group", h("a", { href: groupHash(gang) }, gang.group)]] : []),
    ["Restarts", `${gang.counted} charged to the budget, ${gang.uncounted} not`],
    ["Goodput", gang.goodput === undefined ? "unknown" : `${gang.goodput} %`],
    ["Time", [`${age(until(gang) - seconds(gang.created))}`, spent(gang.spent)].filter(Boolean).join(": ")],
  ];
  return {
    title: `${gang.namespace}/${gang.name}`,
    news: `${gang.name}: ${gang.phase}${gang.hangs ? ", and hangs" : ""}, attempt ${gang.attempt}`,
    parts: [
      h("p", { class: "because", key: "because" }, gang.message ?? ""),
      h("dl", { class: "facts", key: "facts" }, facts.map(([what, value]) => h("div", {}, h("dt", {}, what), h("dd", {}, value)))),
      section("Members", memberParts(gang)),
      section("Timeline", timelineParts(gang)),
      section("Incidents", incidentParts(gang)),
      section("Conditions", conditionParts(gang)),
    ],
  };
}

function memberParts({ counts = [], cells = [], hidden = 0, interest = [] }) {
  const parts = [h("ul", { class: "counts", key: "counts" }, counts.map((count) =>
    h("li", { key: `${count.role} ${count.state}`, class: state(count.state) },
      h("strong", {}, `${count.members}`), ` ${count.role} ${count.state}`)))];
  if (interest.length > 0) {
    const heads = ["Member", "Why", "State", "Rank", "Step", "Node", "Pod"];
    parts.push(h("div", { class: "scroll", key: "interest", tabindex: "0", role: "region", "aria-label": "Members to look at" },
      h("table", {},
        h("caption", {}, "Members to look at"),
        h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
        h("tbody", {}, interest.map((one) => h("tr", { key: one.name },
          h("th", { scope: "row" }, one.name), h("td", {}, one.why), h("td", {}, one.state), h("td", {}, number(one.rank)),
          h("td", {}, number(one.step)), h("td", {}, one.node || "-"), h("td", {}, one.pod || "-")))))));
  }
  parts.push(h("ul", { class: "cells", key: "cells", "aria-label": "All members" }, cells.map((cell) =>
    h("li", { key: cell.name, class: state(cell.state) },
      h("strong", {}, cell.last ? `${cell.name} to ${cell.last}` : cell.name), ` ${cell.state}`,
      cell.members > 1 ? ` (${cell.members})` : "",
      cell.spare ? " spare" : "",
      cell.step === undefined ? "" : h("span", {}, ` step\u00a0${cell.step}`),
      cell.restarts ? `, supervisor restarted ${cell.restarts} times` : ""))));
  if (hidden > 0) parts.push(h("p", { key: "hidden" }, `${hidden} more are only counted.`));
  return parts;
}

function timelineParts({ namespace, name, phase, attempt, completed }) {
  const version = `${phase}-${attempt}-${completed ?? Math.floor(now() / REDRAW_SECONDS)}`;
  const told = `Timeline of ${name}: attempts, incidents and lost work against time. Incidents are told below.`;
  return picture(address("gangs", namespace, name), version, told);
}

function picture(path, version, told) {
  return [h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Timeline" },
    h("img", { class: "timeline", src: `${path}/timeline.svg?${encodeURIComponent(version)}`, alt: told }))];
}

function incidentParts({ incidents = [] }) {
  if (incidents.length === 0) return [h("p", {}, "There was none.")];
  const longest = Math.max(1, ...incidents.map(lasted));
  return incidents.map((one) => {
    const whole = lasted(one);
    const open = one.phases.some((phase) => phase.milliseconds === undefined);
    const bars = one.phases.map((phase) => ({
      name: phase.kind.replaceAll("_", " "), style: phase.kind, ms: phase.milliseconds ?? growing(one),
    }));
    const said = bars.map((bar) => `${bar.name} ${took(bar.ms)}`).join(", ");
    return h("article", { key: `${one.attempt}` },
      h("h3", {}, `Attempt ${one.attempt - 1} to ${one.attempt}: ${open ? "not over yet" : one.outcome.toLowerCase()}, ${took(whole)}${open ? " so far" : ""}, `,
        h("time", { datetime: one.begin }, new Date(one.begin).toLocaleString())),
      h("p", { class: "cause" }, one.cause),
      h("div", { class: "bar", role: "img", "aria-label": `Phases: ${said || "none is over"}` },
        bars.map((bar) => h("span", { key: bar.name, class: `phase ${bar.style}`, grow: bar.ms, title: `${bar.name}: ${took(bar.ms)}` })),
        h("span", { key: "rest", grow: longest - whole })),
      h("ul", { class: "legend" }, bars.map((bar) => h("li", { key: bar.name },
        h("span", { class: `swatch ${bar.style}`, "aria-hidden": "true" }), `${bar.name} ${took(bar.ms)}`))),
      h("p", {}, `${one.decision}.`, one.cost ? ` The gang ${one.cost}.` : ""),
      one.waits?.length ? h("ul", { class: "waits" }, one.waits.map((wait) => h("li", {}, `waited for ${wait}`))) : null,
      one.output ? h("pre", { tabindex: "0", role: "region", "aria-label": "Last lines of the worker at fault" }, one.output.text) : null,
      h("p", { class: "trace" }, "Trace: ", one.url
        ? h("a", { href: safe(one.url), rel: "noreferrer", target: "_blank" }, one.traceID) : one.traceID));
  });
}

function conditionParts({ conditions = [] }) {
  return [h("dl", { class: "conditions" }, conditions.map((one) => h("div", { key: one.type },
    h("dt", {}, `${one.type}: ${one.reason}`), h("dd", {}, one.message || ""))))];
}

function viewMissing({ namespace, name }) {
  const title = `${namespace}/${name}`;
  return { title, news: `${title} does not exist`, parts: [h("p", {}, "There is no such gang: it was deleted, its name is another one, or this release can't read it.")] };
}

function viewBroken() {
  return { title: "This can't be shown", parts: [h("p", {}, "That is a bug in gangctl. The log of the controller has the reason.")] };
}

function section(title, parts) {
  const id = title.toLowerCase();
  return h("section", { key: id, "aria-labelledby": id }, h("h2", { id }, title), parts);
}

function phaseOf({ phase, hangs }) {
  return h("span", { class: `state ${hangs ? "failed" : phase.toLowerCase()}` }, hangs ? `${phase}, and hangs` : phase);
}

function state(name) {
  return STATES[name] ?? "wait";
}

function spent(shares = []) {
  return shares.map((one) => `${one.percent}\u00a0% ${one.what}`).join(", ");
}

// Milliseconds of an incident, until now if a phase goes on.
function lasted(incident) {
  return incident.phases.reduce((sum, phase) => sum + (phase.milliseconds ?? growing(incident)), 0);
}

function growing(incident) {
  const known = incident.phases.reduce((sum, phase) => sum + (phase.milliseconds ?? 0), 0);
  return Math.max(0, Math.round((now() - seconds(incident.begin)) * 1000) - known);
}

function safe(url) {
  return /^https?:\/\//.test(url) ? url : "";
}

function hash({ namespace, name }) {
  return `#/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
}

function groupHash({ namespace, group }) {
  return `${hash({ namespace, name: group })}/group`;
}

function address(kind, namespace, name) {
  return `${kind}/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
}

// Seconds since the epoch, of an RFC 3339 time.
function seconds(time) {
  return Date.parse(time) / 1000;
}

function until({ completed }) {
  return completed === undefined ? now() : seconds(completed);
}

function now() {
  return Date.now() / 1000 + ahead;
}

function number(value) {
  return value === undefined ? "-" : String(value);
}

function took(milliseconds) {
  if (milliseconds < 1000) return `${milliseconds} ms`;
  if (milliseconds < 60000) return `${(milliseconds / 1000).toFixed(milliseconds < 9995 ? 2 : 1)} s`;
  return age(milliseconds / 1000);
}

function age(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const two = (value) => String(value).padStart(2, "0");
  if (whole < 120) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} min`;
  return `${Math.floor(whole / 86400)} d ${two(Math.floor((whole % 86400) / 3600))} h`;
}

window.addEventListener("hashchange", () => {
  shown = null;
  follow();
  patch(main, [h("h1", { tabindex: "-1" }, place().name ?? "Gangs")]);
  main.firstChild.focus();
});
document.addEventListener("visibilitychange", follow);
setInterval(render, 1000); // ages and durations grow
follow();
