// What every page does with scripts: keys, commands, theme, local times, copying. Pages work without it.

const goTimeoutMs = 1500;
// Where the console is, such as /console.
const base = document.documentElement.dataset.console;
let pausing = null;
let goUntil = 0;

function isTyping(target) {
  return target.closest("input, textarea, select, [contenteditable]") !== null;
}

function openPalette() {
  let dialog = document.getElementById("palette");
  if (!dialog) {
    dialog = document.createElement("dialog");
    dialog.id = "palette";
    dialog.setAttribute("aria-label", "Commands");
    const input = document.createElement("input");
    input.type = "search";
    input.placeholder = "Go to a page, or search event types";
    input.setAttribute("aria-label", "Command");
    const list = document.createElement("ul");
    dialog.append(input, list);
    document.body.append(dialog);
    input.addEventListener("input", () => {
      showCommands(list, input.value);
      clearTimeout(pausing);
      pausing = setTimeout(() => showEventTypes(list, input), 150);
    });
    dialog.addEventListener("keydown", (event) => moveInPalette(event, input, list));
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  }
  const input = dialog.querySelector("input");
  input.value = "";
  showCommands(dialog.querySelector("ul"), "");
  dialog.showModal();
  input.focus();
}

function commands() {
  const links = [...document.querySelectorAll(".menu a, main h1 a, main nav a, [data-command]")];
  return links.map((link) => ({ title: link.dataset.command || link.textContent.trim(), href: link.getAttribute("href") }));
}

function showCommands(list, text) {
  const wanted = text.trim().toLowerCase();
  const found = commands().filter(({ title }) => title.toLowerCase().includes(wanted));
  if (wanted) found.push({ title: `Search event types for “${text.trim()}”`, href: `${base}/event-types?q=${encodeURIComponent(text.trim())}` });
  list.replaceChildren(...found.slice(0, 12).map(command));
}

function command({ title, href }) {
  const item = document.createElement("li");
  const link = document.createElement("a");
  link.href = href;
  link.textContent = title;
  item.append(link);
  return item;
}

// The first event types with the text in their names, before the command that searches all of them.
async function showEventTypes(list, input) {
  const text = input.value.trim();
  if (text.length < 2 || new URLSearchParams(location.search).has("as_of")) return;
  const answer = await fetch(`${base}/api/event-types?limit=5&name=${encodeURIComponent(`*${text}*`)}`).catch(() => null);
  const found = answer?.ok ? await answer.json() : [];
  if (input.value.trim() !== text) return;
  list.lastElementChild.before(...found.map(({ name }) => command({ title: name, href: `${base}/event-types/${encodeURIComponent(name)}` })));
}

function moveInPalette(event, input, list) {
  const links = [...list.querySelectorAll("a")];
  const at = links.indexOf(document.activeElement);
  if (event.key === "ArrowDown") (links[at + 1] || links[0])?.focus();
  else if (event.key === "ArrowUp") (at > 0 ? links[at - 1] : input).focus();
  else if (event.key === "Enter" && document.activeElement === input) links[0]?.click();
  else return;
  event.preventDefault();
}

function moveInTable(step) {
  const links = [...document.querySelectorAll("main table tbody th a")];
  if (!links.length) return;
  const at = links.indexOf(document.activeElement);
  links[Math.min(Math.max(at + step, 0), links.length - 1)].focus();
}

document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    openPalette();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || document.querySelector("dialog[open]")) return;
  if (Date.now() < goUntil) {
    goUntil = 0;
    const link = document.querySelector(`.menu a[data-key="${CSS.escape(event.key)}"]`);
    if (link) {
      event.preventDefault();
      link.click();
    }
    return;
  }
  if (event.key === "g") goUntil = Date.now() + goTimeoutMs;
  else if (event.key === "/") {
    event.preventDefault();
    document.getElementById("search")?.focus();
  } else if (event.key === "?") {
    event.preventDefault();
    openPalette();
  } else if (event.key === "j") moveInTable(1);
  else if (event.key === "k") moveInTable(-1);
});

// The keys that lead through the results would go on typing otherwise.
document.addEventListener("submit", (event) => event.target.matches(".find") && document.activeElement.blur());

document.addEventListener("click", (event) => {
  if (event.target.closest("[data-palette]")) openPalette();
  if (event.target.closest("[data-theme-toggle]")) {
    const dark = getComputedStyle(document.documentElement).colorScheme === "dark";
    document.documentElement.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("theme", document.documentElement.dataset.theme);
  }
  if (event.target.closest("[data-zone-toggle]")) {
    document.documentElement.dataset.zone = zone() === "local" ? "utc" : "local";
    localStorage.setItem("zone", zone());
    prepare(document);
  }
  const copy = event.target.closest("[data-copy]");
  if (copy) {
    const text = copy.dataset.copy || copy.parentElement.querySelector("code").textContent;
    navigator.clipboard.writeText(text).then(() => {
      copy.textContent = "Copied";
    });
  }
});

// The slider in time: which entry it is, and what that has changed as soon as the slider rests.
let resting = null;
document.addEventListener("input", (event) => {
  const slider = event.target.closest("[data-moment]");
  if (!slider) return;
  const output = slider.form.querySelector("output");
  const place = `${Number(slider.value).toLocaleString("en-US")} of ${Number(slider.max).toLocaleString("en-US")}`;
  clearTimeout(resting);
  if (slider.value === slider.max) {
    output.textContent = "now";
    return;
  }
  output.textContent = place;
  resting = setTimeout(async () => {
    const answer = await fetch(`${base}/api/audit?order=asc&limit=1&after=${slider.value - 1}`).catch(() => null);
    const [entry] = answer?.ok ? (await answer.json()).items : [];
    if (!entry || String(entry.position) !== slider.value) return;
    output.textContent = `${place}: ${entry.recorded_at.slice(0, 19).replace("T", " ")} UTC, ${entry.kind} ${entry.resource}`;
  }, 150);
});

const zone = () => document.documentElement.dataset.zone ?? "utc";

// As 2026-01-31 12:00:00 +01:00, in the browser's zone.
function localTime(moment) {
  const minutes = -moment.getTimezoneOffset();
  const [hour, minute] = [Math.trunc(Math.abs(minutes) / 60), Math.abs(minutes) % 60].map((part) => String(part).padStart(2, "0"));
  return `${plain(new Date(moment.getTime() + minutes * 60_000))} ${minutes < 0 ? "-" : "+"}${hour}:${minute}`;
}

function plain(moment) {
  return moment.toISOString().slice(0, 19).replace("T", " ");
}

// Times with room for both zones show both; others the chosen one, with the other as a hint.
function showTimes(root) {
  for (const time of root.querySelectorAll(`time[datetime]:not([data-shown="${zone()}"])`)) {
    const moment = new Date(time.dateTime);
    time.dataset.shown = zone();
    if (Number.isNaN(moment.getTime())) continue;
    let texts = [`${plain(moment)} UTC`, localTime(moment)];
    if (time.matches(".clock")) texts = texts.map((text) => text.slice(11, 16) + text.slice(19));
    if (time.matches(".both")) time.querySelector(".local").textContent = moment.getTimezoneOffset() ? texts[1] : "";
    else [time.textContent, time.title] = zone() === "local" ? texts.reverse() : texts;
  }
}

function prepare(root) {
  showTimes(root);
  for (const button of root.querySelectorAll("[data-zone-toggle]")) {
    button.textContent = zone() === "local" ? "Local" : "UTC";
    button.setAttribute("aria-label", `${button.textContent} times: change the zone`);
  }
  for (const block of root.querySelectorAll("pre.copyable:not([data-ready])")) {
    block.dataset.ready = "";
    const button = document.createElement("button");
    button.type = "button";
    button.className = "quiet";
    button.dataset.copy = "";
    button.textContent = "Copy";
    block.append(button);
  }
}

// A refusal is a page as well.
document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.xhr.status >= 400 && event.detail.xhr.getResponseHeader("Content-Type")?.startsWith("text/html")) {
    event.detail.shouldSwap = true;
    event.detail.isError = false;
  }
});
// What the user asked for and nobody answered; what is refreshed is asked for again anyway.
document.addEventListener("htmx:sendError", (event) => {
  const isChange = event.detail.requestConfig.verb === "post";
  if (!isChange && !event.detail.boosted) return;
  const banner = document.getElementById("unreachable") ?? document.createElement("p");
  Object.assign(banner, { id: "unreachable", className: "banner failed", role: "alert" });
  banner.textContent = isChange ? "The broker can't be reached. Whether the change was made is not known; what you typed is still here." : "The broker can't be reached. Try again.";
  if (isChange) event.detail.elt.before(banner);
  else document.getElementById("main").prepend(banner);
  // In the middle no header is above it.
  banner.scrollIntoView({ block: "center" });
});
// What is refreshed must not take the focus away: htmx gives it back to elements with an id, others are left for now.
document.addEventListener("htmx:beforeSwap", (event) => {
  const { target } = event.detail;
  if (target !== document.body && target.contains(document.activeElement) && !document.activeElement.id) {
    event.detail.shouldSwap = false;
  }
});
document.addEventListener("htmx:afterSwap", () => showTimes(document));
document.addEventListener("rioni:rows", (event) => showTimes(event.target));
document.addEventListener("htmx:afterSettle", (event) => prepare(event.detail.elt.ownerDocument));
prepare(document);
