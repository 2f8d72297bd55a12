// Parts of every page with a script: its data, names as text, cells of tables, bars with intervals, downloads.
const data = JSON.parse(document.getElementById("data").textContent);
const get = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const format = new Intl.NumberFormat("en-US");
const whole = (value) => format.format(value);
const percent = (share) => {
  const value = 100 * share;
  return value === 0 ? "0 %" : (value >= 0.95 ? value.toFixed(1) : String(Number(value.toPrecision(1)))) + " %";
};
// Names are data: what cannot be seen is written out, and everything becomes text, never markup.
const UNSEEN = /[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]/g;
const seen = (text) => text.replace(/[\ud800-\udbff][\udc00-\udfff]|[\s\S]/g, (one) => one.length > 1 ? one :
  one.replace(UNSEEN, (found) => {
    const code = found.charCodeAt(0);
    return { "\n": "\\n", "\t": "\\t", "\r": "\\r" }[found] ||
      (code < 256 ? "\\x" + code.toString(16).padStart(2, "0") : "\\u" + code.toString(16).padStart(4, "0"));
  }));
function element(kind, text, className) {
  const made = document.createElement(kind);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}
function drawn(kind, attributes) {
  const made = document.createElementNS(SVG, kind);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
function bar(value, most, sure, like) {
  const place = (number) => most > 0 ? Math.round(1000 * Math.min(Math.max(number / most, 0), 1)) : 0;
  const svg = drawn("svg", { class: "bar", viewBox: "0 0 1000 20", preserveAspectRatio: "none", "aria-hidden": "true", focusable: "false" });
  svg.append(drawn("rect", { class: "fill", x: 0, y: 3, width: place(value), height: 14 }));
  if (sure) {
    const [low, high] = sure.map(place);
    svg.append(drawn("path", { class: "sure", d: `M${low} 10H${high}M${low} 4V16M${high} 4V16` }));
  }
  if (like !== undefined) svg.append(drawn("path", { class: "like", d: `M${place(like)} 1V19` }));
  const cell = element("td", undefined, "draw");
  cell.append(svg);
  return cell;
}
function heads(table, titles) {
  const row = document.createElement("tr");
  for (const [text, className] of titles) {
    const head = element("th", undefined, className);
    head.scope = "col";
    head.append(className === "draw" ? element("span", text, "roomy") : text);
    row.append(head);
  }
  table.tHead.replaceChildren(row);
}
function rowHead(content) {
  const head = element("th");
  head.scope = "row";
  head.append(content);
  return head;
}
const numberCell = (text, more) => element("td", text, more ? "n " + more : "n");

// A table that is wider than the screen says so.
function markCut() {
  document.querySelectorAll(".wide").forEach((box) => {
    const cut = box.scrollWidth > box.clientWidth + 1;
    let cue = box.previousElementSibling;
    if (!cue || !cue.classList.contains("swipe")) {
      cue = element("p", "More columns: scroll sideways →", "swipe");
      box.before(cue);
      box.addEventListener("scroll", markCut, { passive: true });
    }
    cue.hidden = !cut;
    box.classList.toggle("cut", cut && box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
  });
}
// A button that saves a text as a file.
function offer(id, file, made, type = "text/csv") {
  const button = get(id);
  if (button) button.addEventListener("click", () => {
    const anchor = element("a");
    anchor.href = URL.createObjectURL(new Blob([made()], { type: `${type};charset=utf-8` }));
    anchor.download = file;
    document.body.append(anchor);
    anchor.click();
    anchor.remove();
    setTimeout(() => URL.revokeObjectURL(anchor.href), 10000);
  });
}
addEventListener("resize", markCut);
document.querySelectorAll("details").forEach((one) => one.addEventListener("toggle", markCut));
