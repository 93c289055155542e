// The live tail of an event type: rows as events come, a bounded number of them, drawn once a frame.

const rowsMax = 500;
let source = null;
let pending = [];
let count = 0;
let skipped = 0;
let drawing = false;
let second = { at: 0, count: 0, rate: 0 };

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

function addRow(body, columns, cursor, event) {
  const row = body.insertRow(0);
  cell(row, cursor.partition);
  cell(row, cursor.offset, true);
  row.insertCell().append(time(event.metadata?.received_at, false));
  for (const column of columns) cell(row, shown(event[column] ?? "-"));
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
}

function draw() {
  drawing = false;
  const table = document.getElementById("events");
  if (!table || !source) return;
  table.hidden = false;
  document.getElementById("no-events")?.remove();
  const columns = table.dataset.columns ? table.dataset.columns.split("\n") : [];
  const body = table.tBodies[0];
  for (const [cursor, event] of pending) addRow(body, columns, cursor, event);
  pending = [];
  body.dispatchEvent(new CustomEvent("rioni:rows", { bubbles: true }));
  while (body.rows.length > rowsMax) body.deleteRow(-1);
  const now = performance.now();
  if (now - second.at >= 1000) second = { at: now, count, rate: Math.round(((count - second.count) * 1000) / (now - second.at)) };
  const rest = skipped ? `, ${skipped.toLocaleString()} of them not shown` : "";
  document.getElementById("tail-state").textContent = `Live: ${count.toLocaleString()} events, ${second.rate.toLocaleString()} a second${rest}`;
}

function take(message) {
  const batch = JSON.parse(message.data);
  const events = batch.events ?? [];
  count += events.length;
  // A frame shows no more rows than there may be; what came before is only counted.
  for (const event of events) pending.push([batch.cursor, event]);
  if (pending.length > rowsMax) {
    skipped += pending.length - rowsMax;
    pending = pending.slice(-rowsMax);
  }
  if (!drawing) {
    drawing = true;
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
  const parameters = new URLSearchParams({ batch_limit: 200, batch_flush_timeout: 1 });
  const filter = document.querySelector("[name=filter]")?.value.trim();
  if (filter) parameters.set("filter", filter);
  source = new EventSource(`${button.dataset.tail}?${parameters}`);
  button.textContent = "Pause";
  button.setAttribute("aria-pressed", "true");
  document.getElementById("tail-state").textContent = "Live: waiting for events";
  source.addEventListener("message", take);
  source.addEventListener("error", () => {
    if (source?.readyState === EventSource.CLOSED) stop(button, "The broker ended the live view. Press Live to begin again.");
  });
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-tail]");
  if (!button) return;
  if (source) stop(button, `Paused after ${count.toLocaleString()} events`);
  else start(button);
});
document.addEventListener("htmx:beforeSwap", () => {
  source?.close();
  source = null;
});
