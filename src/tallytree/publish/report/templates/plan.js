// The page of a plan: settings, predictions interpolated between the simulated budgets, goals, and the spec.
const about = (value) => value < 10 ? value.toFixed(2) : value < 100 ? value.toFixed(1) : whole(Math.round(value));
const wholePercent = (share) => `${Math.floor(100 * share + 1e-9)} %`;  // rounded down, to promise no more
const state = { ...data.own };
const least = data.amounts[0], most = data.amounts[data.amounts.length - 1];
const SHARE = "within_5_percent";

// -------------------------------------------------------------- predictions
// Errors: logarithms are linear in the logarithm of the budget. Shares of counts are linear in it.
function place(amount) {
  let at = 0;
  while (at < data.amounts.length - 2 && amount > data.amounts[at + 1]) at++;
  return [at, Math.log(amount / data.amounts[at]) / Math.log(data.amounts[at + 1] / data.amounts[at])];
}
function predicted(measure, setting, level) {
  const rows = data.values[setting.split][measure][data.sizes.indexOf(setting.size)];
  const [at, part] = place(setting.amount), one = rows[at][level], other = rows[at + 1][level];
  if (one === null || other === null) return null;
  if (part === 0 || part === 1) return part ? other : one;
  if (measure === SHARE) return one + part * (other - one);
  const [low, high] = [one, other].map((value) => Math.log(Math.max(value, data.least)));
  return Math.exp(low + part * (high - low));
}
const reach = (setting, level) => Math.ceil(predicted("reach", setting, level) - 1e-9);
const shown = {
  reach: (setting, level) => reach(setting, level),
  emd: (setting, level) => predicted("emd", setting, level),
  [SHARE]: (setting, level) => 100 * predicted(SHARE, setting, level),
};

// Budgets to choose from: two digits, and those that were simulated.
const steps = [...data.amounts];
for (let scale = 10 ** (Math.floor(Math.log10(least)) - 1); scale <= most; scale *= 10) {
  for (let digits = 10; digits < 100; digits++) steps.push(Number((digits * scale).toPrecision(2)));
}
const amounts = [...new Set(steps)].filter((one) => one >= least && one <= most).sort((one, other) => one - other);

// -------------------------------------------------------------- what is shown
function show() {
  const inside = state.amount >= least && state.amount <= most;
  get("outside").hidden = inside;
  if (!inside) return;
  get("shown-amount").textContent = String(state.amount);
  get("shown-split").textContent = data.splits[state.split];
  get("shown-size").textContent = `${state.size} or more`;
  const own = state.amount === data.own.amount && state.split === data.own.split && state.size === data.own.size;
  document.querySelectorAll(".of-spec").forEach((one) => { one.hidden = !own; });
  get("reset").disabled = own;
  showShares();
  showProtection();
  showLevels();
  showExample();
  showGoals();
  showSpec();
  showMisses();
  showSimulated();
  markCut();
}
function showShares() {
  const [at, part] = place(state.amount), near = part < 0.5 ? at : at + 1;
  const shares = data.shares[state.split][data.sizes.indexOf(state.size)][near];
  get("shares").textContent = shares.map((share, level) => `${data.tree[level]} ${percent(share).replace(" ", "\u00a0")}`).join(", ");
  const fixed = data.shares[state.split][0].every((one) => one.join() === shares.join());
  get("nearest").hidden = fixed || part === 0 || part === 1;
  get("nearest").textContent = `(These are the shares at ${data.currency} = ${data.amounts[near]}, the nearest that was simulated.)`;
}
function showProtection() {
  if (!get("bounded")) return;
  const odds = Math.exp(state.amount), bounded = odds <= data.largest_odds;
  get("bounded").hidden = get("beliefs").hidden = !bounded;
  get("unbounded").hidden = bounded;
  get("odds").textContent = about(odds);
  data.suspicions.forEach((before, number) => {
    get(`belief-${number}`).textContent = percent(before * odds / (1 - before + before * odds));
  });
}
function showLevels() {
  get("accurate").tBodies[0].replaceChildren(...data.levels.map((level, at) => {
    const row = element("tr"), head = rowHead(level.name);
    head.append(element("small", `${whole(level.regions)} ${level.regions === 1 ? "region" : "regions"} of about ${whole(level.groups)} ${data.words.groups}`));
    const share = predicted(SHARE, state, at);
    row.append(head, bar(share, 1), numberCell(wholePercent(share)), numberCell(`± ${whole(reach(state, at))}`), numberCell(about(predicted("emd", state, at))));
    return row;
  }));
}
function showExample() {
  const at = Number(get("example-level").value), number = Number(get("example-groups").value);
  if (!(number >= 1)) return;
  const around = reach(state, at);
  const rows = data.shapes[data.sizes.indexOf(state.size)].map((one) => {
    const count = Math.round(number * one.share);
    return { ...one, count, ends: [Math.max(0, count - around), count + around] };
  });
  const end = Math.max(1, ...rows.map((row) => row.ends[1]));
  get("example-name").textContent = data.levels[at].name;
  get("example-number").textContent = whole(number);
  get("sizes").tBodies[0].replaceChildren(...rows.map((one) => {
    const row = element("tr");
    row.append(rowHead(one.label), bar(one.count, end, one.ends), numberCell(whole(one.count)), numberCell(`${whole(one.ends[0])} to ${whole(one.ends[1])}`));
    return row;
  }));
}
function showMisses() {
  const miss = (measure, at) => data.misses[measure][state.split][at], up = (part) => `${Math.ceil(100 * part - 1e-9)} %`;
  get("misses").tBodies[0].replaceChildren(...data.levels.map((level, at) => {
    const row = element("tr");
    row.append(rowHead(level.name), numberCell(`± ${(100 * miss(SHARE, at)).toFixed(1)}`), numberCell(`± 1 and ${up(miss("reach", at))}`), numberCell(`± ${up(miss("emd", at))}`));
    return row;
  }));
}
function showSimulated() {
  const rows = data.values[state.split], size = data.sizes.indexOf(state.size);
  heads(get("simulated"), [["level", ""], [data.currency, "n"], ["within 5 %", "n"], ["error bars", "n"], ["expected error", "n"], ["half-width", "n"]]);
  get("simulated").tBodies[0].replaceChildren(...data.levels.flatMap((level, at) => data.amounts.map((amount, which) => {
    const row = element("tr"), value = (measure) => rows[measure][size][which][at];
    const half = value("half_width");
    row.append(rowHead(level.name), numberCell(String(amount)), numberCell(wholePercent(value(SHARE))), numberCell(`± ${whole(value("reach"))}`),
      numberCell(about(value("emd"))), numberCell(half === null ? "–" : `± ${half.toFixed(1)}`));
    return row;
  })));
}

// -------------------------------------------------------------- goals
const goals = [];
let found = null;
const meets = (setting, goal) => {
  const value = shown[goal.measure](setting, goal.level);
  return goal.measure === SHARE ? value >= goal.number : value <= goal.number;
};
const goalWords = ({ level, measure, number }) => `${data.levels[level].name}: ` + {
  reach: `error bars of at most ± ${whole(number)}`,
  emd: `expected error of at most ${whole(number)} ${data.words.entities}`,
  [SHARE]: `at least ${number} % of the numbers within 5 %`,
}[measure];
function valueWords(setting, { level, measure }) {
  const value = shown[measure](setting, level);
  return measure === "reach" ? `± ${whole(value)}` : measure === SHARE ? wholePercent(value / 100) : about(value);
}
function leastSetting() {
  const order = [state.split, ...Object.keys(data.splits).filter((split) => split !== state.split)];
  let best = null;
  for (const split of order) {
    const amount = amounts.find((one) => (!best || one < best.amount) && goals.every((goal) => meets({ amount: one, split, size: state.size }, goal)));
    if (amount !== undefined) best = { amount, split, size: state.size };
  }
  return best;
}
function showGoals() {
  get("goal-list").replaceChildren(...goals.map((goal, number) => {
    const item = element("li"), met = meets(state, goal), button = element("button", "Remove");
    item.append(element("strong", met ? "met" : "not met", met ? "met" : "missed"), ` ${goalWords(goal)} (now ${valueWords(state, goal)}) `, button);
    button.type = "button";
    button.setAttribute("aria-label", `Remove the goal ${goalWords(goal)}`);
    button.addEventListener("click", () => { goals.splice(number, 1); show(); get("goal-number").focus(); });
    return item;
  }));
  found = goals.length ? leastSetting() : null;
  get("use-found").hidden = !found || (found.amount === state.amount && found.split === state.split);
  get("goal-found").textContent = !goals.length ? "" : found
    ? `The smallest ${data.currency} that meets ${goals.length === 1 ? "the goal" : "all goals"} is ${found.amount}. What matters most is then: ${data.splits[found.split]}.`
    : `No setting of this page meets ${goals.length === 1 ? "the goal" : "all goals"} with this largest size: up to ${data.currency} = ${most}, with any division of the budget.`;
}

// -------------------------------------------------------------- the spec
const bare = (key) => /^[A-Za-z0-9_-]+$/.test(key) ? key : JSON.stringify(key);
const isTable = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const inline = (value) => Array.isArray(value) ? `[${value.map(inline).join(", ")}]`
  : isTable(value) ? `{ ${Object.entries(value).map(([key, one]) => `${bare(key)} = ${inline(one)}`).join(", ")} }`
  : typeof value === "string" ? JSON.stringify(value).replace(/\x7f/g, "\\u007f") : String(value);
function toml(values) {
  const parts = [];
  for (const [section, keys] of Object.entries(values)) {
    const lines = Object.entries(keys).map(([key, value]) => `${bare(key)} = ${inline(value)}`);
    parts.push([`[${bare(section)}]`, ...lines].join("\n"));
  }
  return parts.join("\n\n") + "\n";
}
function specText() {
  const spec = structuredClone(data.spec), release = spec.release || {};
  spec.data.max_size = state.size;
  spec.privacy[data.key] = state.amount === data.own.amount ? spec.privacy[data.key] : state.amount;
  release.mechanism = data.mechanism;
  if (state.split !== "as given" && state.split !== "bands") {
    delete release.shares;
    delete release.priority;
    if (Object.keys(data.splits).length > 1) release.priority = state.split;
  }
  return toml({ ...spec, release });
}
function showSpec() { get("toml").textContent = specText(); }
async function copy() {
  const range = document.createRange();
  range.selectNodeContents(get("toml"));
  getSelection().removeAllRanges();
  getSelection().addRange(range);
  try { await navigator.clipboard.writeText(specText()); } catch { document.execCommand("copy"); }
  get("copied").textContent = "Copied.";
}

// -------------------------------------------------------------- begin
function choices(id, pairs, chosen) {
  for (const [value, words] of pairs) {
    const option = element("option", words);
    option.value = value;
    get(id).append(option);
  }
  get(id).value = String(chosen);
}
function showControls() {
  get("amount").value = state.amount;
  get("split").value = state.split;
  get("size").value = String(state.size);
  slide();
}
function slide() {
  const at = amounts.findIndex((one) => one >= state.amount);
  get("slide").value = String(at < 0 ? amounts.length - 1 : at);
  get("slide").setAttribute("aria-valuetext", `${data.currency} = ${state.amount}`);
}
function change(settings) {
  Object.assign(state, settings);
  showControls();
  show();
}
function exampleGroups() { get("example-groups").value = String(data.levels[Number(get("example-level").value)].groups); }
document.querySelectorAll(".scripted").forEach((one) => { one.hidden = false; });
choices("split", Object.entries(data.splits), state.split);
choices("size", data.sizes.map((size) => [size, `${size} or more`]), state.size);
const levels = data.levels.map((level, at) => [at, level.name]), lowest = data.levels.length - 1;
choices("example-level", levels, lowest);
choices("goal-level", levels, lowest);
get("slide").max = String(amounts.length - 1);
get("amount").addEventListener("input", () => { state.amount = Number(get("amount").value); slide(); show(); });
get("slide").addEventListener("input", () => change({ amount: amounts[Number(get("slide").value)] }));
get("split").addEventListener("change", () => change({ split: get("split").value }));
get("size").addEventListener("change", () => change({ size: Number(get("size").value) }));
get("reset").addEventListener("click", () => change({ ...data.own }));
get("example-level").addEventListener("change", () => { exampleGroups(); showExample(); });
get("example-groups").addEventListener("input", showExample);
get("add-goal").addEventListener("click", () => {
  const number = Number(get("goal-number").value);
  if (!(number >= 0) || get("goal-number").value === "") { get("goal-number").focus(); return; }
  goals.push({ level: Number(get("goal-level").value), measure: get("goal-measure").value, number });
  show();
});
get("use-found").addEventListener("click", () => { if (found) change(found); });
get("copy").addEventListener("click", copy);
offer("download", "release.toml", specText, "application/toml");
exampleGroups();
showControls();
show();
