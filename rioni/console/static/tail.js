// The live tail of an event type: rows as events come, a bounded number of them, drawn once a frame.

const rowsMax = 200;
// What the broker looks at in a second; of a flood it sends the newest events and the number of the others.
const shownPerSecond = 200;
const filteredPerSecond = 2000;
let source = null;
let view = null;

function newView() {
  return { pending: [], count: 0, leftOut: 0, lastId: "", second: { at: performance.now(), count: 0, rate: 0 }, drawing: false };
}

function cell(row, text, code) {
  const item = row.insertCell();
  const target = code ? item.appendChild(document.createElement("code")) : item;
  target.textContent = text;
  return item;
}

function shown(value) {
  const text = typeof value === "string" ? value : JSON.stringify(value) ?? "-";
  return text.length > 80 ? `${text.slice(0, 80)}…` : text;
}

// A time as pages have them; what is shown on every page completes it.
function time(text, both) {
  const moment = new Date(text);
  if (typeof text !== "string" || Number.isNaN(moment.getTime())) return shown(text ?? "-");
  const element = document.createElement("time");
  element.dateTime = moment.toISOString();
  element.textContent = `${element.dateTime.slice(0, 19).replace("T", " ")} UTC `;
  if (both) element.append(Object.assign(document.createElement("span"), { className: "local" }));
  element.classList.toggle("both", both);
  return element;
}

function addRow(body, columns, within, cursor, event) {
  const row = body.insertRow(0);
  const details = document.createElement("details");
  details.append(Object.assign(document.createElement("summary"), { textContent: shown(event) }));
  // Most rows are never opened: what is in them is made when they are.
  details.addEventListener("toggle", () => {
    if (details.childElementCount > 1) return;
    if (event.metadata) {
      const times = Object.assign(document.createElement("p"), { className: "soft" });
      times.append("Received ", time(event.metadata.received_at, true), document.createElement("br"), "Occurred ", time(event.metadata.occurred_at, true));
      details.append(times);
      times.dispatchEvent(new CustomEvent("rioni:rows", { bubbles: true }));
    }
    const block = document.createElement("pre");
    block.appendChild(document.createElement("code")).textContent = JSON.stringify(event, null, 2);
    details.append(block);
  });
  row.insertCell().append(details);
  row.insertCell().append(time(event.metadata?.received_at, false));
  cell(row, cursor.partition);
  cell(row, cursor.offset, true);
  const members = within ? event[within] : event;
  for (const column of columns) cell(row, shown(members?.[column] ?? "-"));
}

function number(value) {
  return value.toLocaleString();
}

function told() {
  const rest = view.leftOut ? `; ${number(view.leftOut)} more were left out, since a view looks at ${number(view.limit)} a second` : "";
  return `${number(view.count)} events, ${number(view.second.rate)} a second${rest}`;
}

function draw() {
  view.drawing = false;
  const table = document.getElementById("events");
  if (!table || !source) return;
  if (view.pending.length) {
    table.hidden = false;
    document.getElementById("no-events")?.remove();
  }
  const columns = table.dataset.columns ? table.dataset.columns.split("\n") : [];
  const body = table.tBodies[0];
  for (const [cursor, event] of view.pending.slice(-rowsMax)) addRow(body, columns, table.dataset.within, cursor, event);
  view.pending = [];
  while (body.rows.length > rowsMax) body.deleteRow(-1);
  body.dispatchEvent(new CustomEvent("rioni:rows", { bubbles: true }));
  const now = performance.now(), past = now - view.second.at;
  const all = view.count + view.leftOut;
  if (past >= 1000) view.second = { at: now, count: all, rate: Math.round(((all - view.second.count) * 1000) / past) };
  document.getElementById("tail-state").textContent = `Live: ${told()}`;
}

// A number that JavaScript would change stays as it was written; browsers before 2025 can't tell how that was.
function exact(_name, value, context) {
  if (typeof value !== "number" || !JSON.rawJSON || !context?.source || String(value) === context.source) return value;
  return JSON.rawJSON(context.source);
}

function take(message) {
  const batch = JSON.parse(message.data, exact);
  view.lastId = message.lastEventId;
  view.leftOut += batch.info?.left_out ?? 0;
  for (const event of batch.events ?? []) {
    view.count += 1;
    view.pending.push([batch.cursor, event]);
  }
  if (!view.drawing) {
    view.drawing = true;
    requestAnimationFrame(draw);
  }
}

function stop(button, text) {
  source?.close();
  source = null;
  button.textContent = "Live";
  button.setAttribute("aria-pressed", "false");
  const state = document.getElementById("tail-state");
  if (state && text) state.textContent = text;
}

function start(button) {
  view ??= newView();
  const filter = document.querySelector("[name=filter]")?.value.trim();
  view.limit = filter ? filteredPerSecond : shownPerSecond;
  const parameters = new URLSearchParams({ batch_flush_timeout: 1, events_per_second_limit: view.limit });
  if (filter) parameters.set("filter", filter);
  // After a pause it goes on where it was.
  if (view.lastId) parameters.set("cursors", view.lastId);
  source = new EventSource(`${button.dataset.tail}?${parameters}`);
  button.textContent = "Pause";
  button.setAttribute("aria-pressed", "true");
  document.getElementById("tail-state").textContent = "Live: waiting for events";
  source.addEventListener("message", take);
  source.addEventListener("error", () => {
    if (source?.readyState !== EventSource.CLOSED) return;
    view.lastId = "";
    stop(button, "The broker ended the live view. Press Live to begin again.");
  });
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-tail]");
  if (!button) return;
  if (source) stop(button, `Paused after ${told()}`);
  else start(button);
});
document.addEventListener("htmx:beforeSwap", () => {
  source?.close();
  source = view = null;
});
