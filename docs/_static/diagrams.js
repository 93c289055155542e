// Draws the diagrams of a page with Mermaid, in the colours of its theme, and again whenever the theme changes.
const diagrams = [...document.querySelectorAll("pre.mermaid")].map(element => [element, element.textContent]);
const darkPreferred = matchMedia("(prefers-color-scheme: dark)");
let drawn = Promise.resolve();

async function draw() {
  const theme = document.body.dataset.theme;
  const dark = theme === "dark" || (theme !== "light" && darkPreferred.matches);
  mermaid.initialize({ startOnLoad: false, theme: dark ? "dark" : "default" });
  for (const [element, text] of diagrams) {
    element.removeAttribute("data-processed");
    element.textContent = text;
  }
  await mermaid.run({ nodes: diagrams.map(([element]) => element) });
}

// One after the other: Mermaid has one configuration for the page.
const redraw = () => { drawn = drawn.then(draw, draw); };
redraw();
darkPreferred.addEventListener("change", redraw);
new MutationObserver(redraw).observe(document.body, { attributeFilter: ["data-theme"] });
