// The page of a release: regions and areas, lists, the map, tables to take away.
const groups = data.words.groups, entities = data.words.entities, capped = data.words.capped;
const last = data.classes.length;
const MOST_ROWS = 50, MOST_HITS = 12, FEW_ROWS = 12;

const name = (region) => seen(data.names[region]);
const labelled = (region) => data.names[region] === data.ids[region] ? name(region) : `${name(region)} (${seen(data.ids[region])})`;

// -------------------------------------------------------------- numbers of a region
const at = (slot, place) => slot * last + place;
const count = (region, slot, place) => data.count[region][at(slot, place)];
const total = (region, slot) => {
  let sum = 0;
  for (let place = 0; place < last; place++) sum += count(region, slot, place);
  return sum;
};
function ends(region, slot, place, prefix) {
  const lower = data.ends[prefix + "lower"], upper = data.ends[prefix + "upper"];
  if (!lower) return undefined;
  const below = lower[region][at(slot, place)], above = upper[region][at(slot, place)], value = count(region, slot, place);
  return below < 0 ? undefined : [value - below, value + above];
}
// The recommended interval of a number: its kind is that of the level.
const recommended = (region, slot, place) => ends(region, slot, place, data.recommended.counts[data.level[region]][slot]);
function entityEnds(region, slot) {
  const prefix = data.recommended.entities[data.level[region]][slot], lower = data.entity_ends[prefix + "lower"];
  return lower && lower[region][slot] >= 0 ? [lower[region][slot], data.entity_ends[prefix + "upper"][region][slot]] : undefined;
}
const between = (pair) => pair ? `${whole(pair[0])} to ${whole(pair[1])}` : "–";
const slotWords = (slot) => data.slots[slot].map((value, place) => [data.categories[place], value])
  .filter(([, value]) => value !== "all").map(([key, value]) => `${seen(key)}: ${seen(value)}`).join(", ");

// -------------------------------------------------------------- the region browser
let chosen = 0, slot = 0;  // the first to be shown is the largest region below the whole
const children = data.ids.map(() => []);
data.parent.forEach((parent, region) => { if (parent >= 0) children[parent].push(region); });

// Areas come after the regions; their kinds come after the levels.
const regionsOnly = data.ids.map((_, place) => place).slice(0, data.regions);
const areas = data.ids.map((_, place) => place).slice(data.regions);
const firstKind = areas.length ? data.level[areas[0]] : data.levels.length, kinds = data.levels.slice(firstKind);
function showAreas() {
  const kind = firstKind + (kinds.length > 1 ? Number(get("kind").value) : 0);
  lists.areas(areas.filter((area) => data.level[area] === kind), placeColumns());
}

function link(region) {
  const button = element("button", labelled(region), "link");
  button.type = "button";
  button.addEventListener("click", () => choose(region, true));
  return button;
}
function choose(region, focus) {
  chosen = region;
  show();
  if (focus) { get("region-name").tabIndex = -1; get("region-name").focus({ preventScroll: true }); get("regions").scrollIntoView(); }
}
function show() {
  const path = [];
  for (let region = chosen; region >= 0; region = data.parent[region]) path.unshift(region);
  get("path").replaceChildren(...path.map((region) => {
    const item = element("li");
    if (region === chosen) { item.textContent = labelled(region); item.setAttribute("aria-current", "location"); } else item.append(link(region));
    return item;
  }));
  const level = seen(data.levels[data.level[chosen]]);
  const which = slotWords(slot);
  get("region-name").textContent = `${labelled(chosen)}, ${level}${which ? `, ${which}` : ""}`;
  const number = total(chosen, slot);
  const [, , ofGroups, ofEntities, ofSize, ofMedian] = placeColumns(), within = (column) => column.ends(chosen) && ` (${column.ends(chosen)})`;
  get("region-facts").textContent = `${whole(number)} ${groups}${within(ofGroups)} with ${whole(data.entities[chosen][slot])} ${entities}${within(ofEntities)}` +
    (number ? `; the average size is ${ofSize.text(ofSize.value(chosen))}${within(ofSize)}, the median size ${ofMedian.text(ofMedian.value(chosen))}${within(ofMedian)}` : "") + `; ${capped}.`;
  showSizes(number);
  showBelow();
  showAreas();
  if (mapped) outline();
}
function showSizes(number) {
  const parent = data.parent[chosen], above = parent < 0 ? 0 : total(parent, slot);
  const like = parent >= 0 && above > 0;
  get("like-key").hidden = !like;
  if (like) get("like-words").textContent = `what it would be with the sizes of ${name(parent)}`;
  const table = get("region-sizes");
  let most = 1;
  for (let place = 0; place < last; place++) {
    const found = recommended(chosen, slot, place) || [0, 0];
    most = Math.max(most, count(chosen, slot, place), found[1], like ? number * count(parent, slot, place) / above : 0);
  }
  heads(table, [["size", ""], [`number of ${groups}, with error bars`, "draw"], [groups, "n"], ["share", "n roomy"],
    ["interval", "n"], ...(like ? [[`with sizes of ${name(parent)}`, "n"]] : [])]);
  table.tBodies[0].replaceChildren(...data.classes.map((label, place) => {
    const value = count(chosen, slot, place), row = element("tr");
    const known = recommended(chosen, slot, place);
    const expected = like ? number * count(parent, slot, place) / above : undefined;
    row.append(rowHead(label), bar(value, most, known, expected), numberCell(whole(value)),
      numberCell(number ? percent(value / number) : "–", "roomy"), numberCell(between(known), "ends"));
    if (like) row.append(numberCell(whole(Math.round(expected))));
    return row;
  }));
}
function showBelow() {
  const below = children[chosen], left = data.children[chosen] - below.length;
  get("below-name").hidden = !below.length;
  get("below-name").textContent = `Regions of ${name(chosen)}: ${whole(below.length)}` + (left ? ` (${whole(left)} more are not in this page)` : "");
  below.length ? lists.below(below, placeColumns()) : lists.below([], []);
}
// The columns of a list of regions or areas; each number has its interval below it.
function placeColumns() {
  const size = (place) => data.entities[place][slot] / total(place, slot);
  const sizeText = (value) => value < 0 ? "–" : value === data.last ? `${whole(value)} or more` : whole(value);
  const average = (value) => value < 0 ? "–" : value.toFixed(2);
  const some = slot === 0 ? (what, place, text) => {
    const [low, high] = data.place_ends[what][place];
    return low < 0 ? "" : low === high ? text(low) : `${text(low)} to ${text(high)}`;
  } : () => "";
  return [
    { title: "name", value: name, cell: (place) => rowHead(link(place)) },
    { title: `number of ${groups}`, bar: true, value: (place) => total(place, slot) },
    { title: groups, value: (place) => total(place, slot), text: whole, ends: (place) => some("groups", place, whole) },
    { title: entities, value: (place) => data.entities[place][slot], text: whole, ends: (place) => { const ends = entityEnds(place, slot); return ends ? between(ends) : ""; } },
    { title: "average size", value: (place) => total(place, slot) ? size(place) : -1, text: average, ends: (place) => some("mean", place, (end) => average(end / 100)) },
    { title: "median size", roomy: true, value: (place) => data.medians[place][slot], text: sizeText, ends: (place) => some("median", place, sizeText) },
  ];
}

// -------------------------------------------------------------- lists that can be searched and sorted
// A list has a table, a field to find rows by name, a note and a button for more rows. The first column is the name.
function makeList(id, caption) {
  const table = get(id), find = get(`${id}-find`), note = get(`${id}-note`), more = get(`${id}-more`);
  if (!table) return () => {};
  let items = [], columns = [], most = MOST_ROWS, by = -1, down = false;
  function sortBy(place) {
    down = by === place ? !down : place > 0;
    by = place;
    render();
    table.querySelectorAll("thead button")[columns.filter((one, at) => at <= place && !one.bar).length - 1].focus();
  }
  function render() {
    const wanted = find.value.trim().toLowerCase();
    let found = wanted ? items.filter((item) => `${columns[0].value(item)}\n${columns[0].code ? columns[0].code(item) : ""}`.toLowerCase().includes(wanted)) : items;
    if (by >= 0) {
      const value = columns[by].value, order = new Intl.Collator("en", { numeric: true });
      const compare = by === 0 ? (one, other) => order.compare(value(one), value(other)) : (one, other) => value(one) - value(other);
      found = [...found].sort((one, other) => down ? compare(other, one) : compare(one, other));
    }
    get(`${id}-find-box`).hidden = items.length <= FEW_ROWS;
    table.parentElement.hidden = !items.length;
    note.textContent = [wanted ? `${whole(found.length)} of ${whole(items.length)}.` : "", items.length && caption ? caption() : ""].filter(Boolean).join(" ");
    get(`${id}-more-box`).hidden = found.length <= most;
    more.textContent = `Show ${whole(Math.min(MOST_ROWS, found.length - most))} more of ${whole(found.length)}`;
    const widest = columns.map((column) => column.bar ? items.reduce((sum, item) => Math.max(sum, column.value(item)), 1) : 0);
    const head = document.createElement("tr");
    columns.forEach((column, place) => {
      const cell = element("th", undefined, column.bar ? "draw" : column.roomy ? "n roomy" : place ? "n" : "");
      cell.scope = "col";
      if (column.bar) cell.append(element("span", column.title, "roomy"));
      else {
        const button = element("button", column.title + (by === place ? (down ? " ↓" : " ↑") : ""));
        button.type = "button";
        button.addEventListener("click", () => sortBy(place));
        cell.append(button);
        cell.setAttribute("aria-sort", by !== place ? "none" : down ? "descending" : "ascending");
      }
      head.append(cell);
    });
    table.tHead.replaceChildren(head);
    table.tBodies[0].replaceChildren(...found.slice(0, most).map((item) => {
      const row = element("tr");
      columns.forEach((column, place) => {
        if (column.cell) return row.append(column.cell(item));
        if (column.bar) return row.append(bar(column.value(item), widest[place]));
        const cell = numberCell(column.text(column.value(item)), column.roomy && "roomy"), ends = column.ends(item);
        if (ends) cell.append(element("small", ends));
        row.append(cell);
      });
      return row;
    }));
    markCut();
  }
  find.addEventListener("input", () => { most = MOST_ROWS; render(); });
  more.addEventListener("click", () => { most += MOST_ROWS; render(); });
  return (someItems, someColumns) => {
    if (someColumns.length !== columns.length) by = -1;
    items = someItems;
    columns = someColumns;
    most = MOST_ROWS;
    find.value = "";
    render();
  };
}
const capsFor = () => `Below each number is its ${data.confidence} interval, where there is one. Numbers of ${entities} and average sizes: ${capped}.`;
const lists = { below: makeList("below", capsFor), areas: makeList("area-list", capsFor), map: makeList("map-table") };
const folded = data.ids.map((id, region) => `${data.names[region]}\n${id}`.toLowerCase());
function search() {
  const wanted = get("search").value.trim().toLowerCase();
  const hits = [];
  if (wanted) folded.forEach((text, region) => { if (text.includes(wanted)) hits.push(region); });
  const exact = (region) => folded[region].split("\n").some((part) => part === wanted) ? 0 : folded[region].split("\n").some((part) => part.startsWith(wanted)) ? 1 : 2;
  hits.sort((one, other) => exact(one) - exact(other) || one - other);
  get("hits").textContent = !wanted ? "" : hits.length ? `${whole(hits.length)} found` + (hits.length > MOST_HITS ? `, the first ${MOST_HITS} shown` : "")
    : data.all ? "no region has this in its name or id" : "no region on this page has this in its name or id; the files of the release have more regions";
  get("found").replaceChildren(...hits.slice(0, MOST_HITS).map((region) => {
    const item = element("li"), button = element("button", `${labelled(region)}, ${seen(data.levels[data.level[region]])}`);
    button.type = "button";
    button.addEventListener("click", () => choose(region, true));
    item.append(button);
    return item;
  }));
  return hits;
}

// -------------------------------------------------------------- the map
const mapped = Boolean(data.map);
let limits = [];
const measures = [{ words: `average size (${entities}; ${capped})`, mean: true }, ...data.classes.map((label, place) => ({ words: `share of ${groups} of size ${label}`, place }))];
data.slots.forEach((values, number) => { if (slotWords(number)) measures.push({ words: `share of ${groups} that are ${slotWords(number)}`, slot: number }); });
function measured(region, measure) {
  const number = total(region, 0);
  if (!number) return undefined;
  if (measure.slot !== undefined) return { value: total(region, measure.slot) / number };
  if (measure.mean) {
    const found = data.place_ends.mean[region];
    return { value: data.entities[region][0] / number, ends: found[0] < 0 ? undefined : found.map((end) => end / 100) };
  }
  const found = recommended(region, 0, measure.place);
  return { value: count(region, 0, measure.place) / number, ends: found && found.map((end) => Math.min(end / number, 1)) };
}
const colour = (value) => limits.reduce((sum, limit) => sum + (value >= limit), 0);
function swatch(className, hatched) {
  const svg = drawn("svg", { class: "swatch", viewBox: "0 0 16 16", "aria-hidden": "true", focusable: "false" });
  svg.append(drawn("rect", { class: className, x: 1, y: 1, width: 14, height: 14 }));
  if (hatched) svg.append(drawn("rect", { class: "hatchswatch", x: 1, y: 1, width: 14, height: 14 }));
  return svg;
}
function paint() {
  const measure = measures[get("measure").value];
  const shown = measure.mean ? (value) => value.toFixed(2) : percent;
  const found = data.map.map((region) => measured(region, measure));
  const sorted = found.filter(Boolean).map((one) => one.value).sort((one, other) => one - other);
  limits = [...new Set([1, 2, 3, 4].map((fifth) => sorted[Math.floor(fifth * sorted.length / 5)]))].filter((limit) => limit > sorted[0]);
  document.querySelectorAll("#drawing .hatched").forEach((one) => one.remove());
  found.forEach((one, place) => {
    const area = get(`area-${place}`), region = data.map[place];
    area.setAttribute("class", one ? `area c${colour(one.value)}` : "area cnone");
    const title = drawn("title", {});
    title.textContent = `${labelled(region)}: ${one ? shown(one.value) : "none"}` + (one && one.ends ? ` (${shown(one.ends[0])} to ${shown(one.ends[1])})` : "");
    area.replaceChildren(title);
    if (one && one.ends && colour(one.ends[1]) - colour(one.ends[0]) >= 2) get("drawing").append(drawn("path", { class: "hatched", d: area.getAttribute("d") }));
  });
  const edges = [sorted[0], ...limits, sorted[sorted.length - 1]];
  const items = edges.slice(1).map((edge, place) => {
    const item = element("li");
    item.append(swatch(`c${place}`), ` ${shown(edges[place])} to ${shown(edge)}`);
    return item;
  });
  const item = element("li");
  item.append(swatch("c2", true), ` hatched: interval covers three colours or more`);
  get("map-legend").replaceChildren(element("li", `${measure.words}:`), ...items, item);
  lists.map(found.map((one, place) => ({ one, region: data.map[place] })), [
    { title: "region", value: (item) => labelled(item.region), cell: (item) => rowHead(labelled(item.region)) },
    { title: measure.words, value: (item) => item.one ? item.one.value : -1, text: (value) => value < 0 ? "–" : shown(value),
      ends: ({ one }) => one && one.ends ? `${shown(one.ends[0])} to ${shown(one.ends[1])}` : "" },
  ]);
  outline();
}
function outline() {
  document.querySelectorAll("#drawing .chosen").forEach((one) => one.remove());
  const place = data.map.indexOf(chosen);
  if (place >= 0) get("drawing").append(drawn("path", { class: "chosen", d: get(`area-${place}`).getAttribute("d") }));
}

// -------------------------------------------------------------- tables to take away
const FORMULA = /^'*[=+\-@\t\r\n＝＋－＠]/;  // what a spreadsheet may take for a formula gets an apostrophe
const quoted = (text) => `"${(FORMULA.test(text) ? "'" + text : text).replaceAll('"', '""')}"`;
const keys = (region, number) => [data.levels[data.level[region]], data.ids[region], data.names[region], ...data.slots[number]].map(quoted);
function countsCsv(regions) {
  const lines = [["level", "region", "name", ...data.categories, "size", "count", ...data.columns].map((text) => `"${text}"`).join(",")];
  for (const region of regions) for (let number = 0; number < data.slots.length; number++) for (let place = 0; place < last; place++) {
    const cells = data.columns.map((column) => {
      if (!data.ends[column]) return "";
      const pair = ends(region, number, place, column.startsWith("typical_") ? "typical_" : "");
      return pair ? pair[column.endsWith("lower") ? 0 : 1] : "";
    });
    const size = data.sizes ? data.sizes[place] : `"${data.classes[place]}"`;
    lines.push([...keys(region, number), size, count(region, number, place), ...cells].join(","));
  }
  return lines.join("\n") + "\n";
}
function entitiesCsv() {
  const columns = Object.keys(data.entity_ends);
  const lines = [["level", "region", "name", ...data.categories, "entities", ...columns].map((text) => `"${text}"`).join(",")];
  regionsOnly.forEach((region) => data.slots.forEach((_, number) => lines.push([...keys(region, number), data.entities[region][number],
    ...columns.map((column) => data.entity_ends[column][region][number])].join(","))));
  return lines.join("\n") + "\n";
}
// -------------------------------------------------------------- begin
get("browser").hidden = get("downloads").hidden = false;
if (kinds.length) get("area-browser").hidden = false;
if (data.slots.length > 1) {
  get("slotbox").hidden = false;
  data.slots.forEach((_, number) => {
    const option = element("option", slotWords(number) || "all");
    option.value = number;
    get("slot").append(option);
  });
  get("slot").addEventListener("change", () => { slot = Number(get("slot").value); show(); });
}
get("search").addEventListener("input", search);
get("search").addEventListener("keydown", (event) => {
  if (event.key === "Enter") { const hits = search(); if (hits.length) choose(hits[0], true); }
});
if (kinds.length > 1) {
  get("kind-box").hidden = false;
  kinds.forEach((words, kind) => { const option = element("option", seen(words)); option.value = kind; get("kind").append(option); });
  get("kind").addEventListener("change", showAreas);
}
if (mapped) {
  get("map-controls").hidden = false;
  measures.forEach((measure, number) => { const option = element("option", measure.words); option.value = number; get("measure").append(option); });
  get("measure").value = "0";
  get("measure").addEventListener("change", paint);
  data.map.forEach((region, place) => get(`area-${place}`).addEventListener("click", () => choose(region, true)));
}
offer("get-counts", "counts.csv", () => countsCsv(regionsOnly));
offer("get-region", "region.csv", () => countsCsv([chosen]));
offer("get-entities", "entities.csv", entitiesCsv);
children[0].forEach((region) => { if (chosen === 0 || total(region, 0) > total(chosen, 0)) chosen = region; });
show();
if (mapped) paint();
markCut();
