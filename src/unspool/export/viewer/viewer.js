// The page: what is selected, what is zoomed to, mouse and keyboard.

const byId = (id) => document.getElementById(id);

class Viewer {
  constructor(profile) {
    this.profile = profile;
    this.event = 0;
    this.threadChoice = "all";
    this.grouping = "none";
    this.inverted = false;
    this.query = null; // RegExp
    this.colours = new Colours(profile);
    this.graph = new Graph(byId("graph"), profile, this.colours);
    this.scroller = byId("scroller");
    this.chooseTheme(storedTheme());
    showHeading(profile);
    this.fillChoices();
    this.listen();
    this.fitToWindow();
    this.select();
  }

  // ---------------------------------------------------------------- what is shown

  // Anew from the samples: another event, thread or grouping.
  select() {
    const { profile } = this;
    this.threads = chosenThreads(profile, this.threadChoice);
    const chosen = new Set(this.threads);
    const leaves = [];
    for (let leaf = 0; leaf < profile.leafStack.length; leaf++) {
      if (profile.leafEvent[leaf] === this.event && chosen.has(profile.leafThread[leaf])) leaves.push(leaf);
    }
    this.calls = new CallTree(profile, Int32Array.from(leaves), this.grouping);
    this.truth = truthOf(profile, leaves, this.threads, this.event);
    showTruth(this.truth);
    showLegend(profile, this.colours, leaves, (binary) => this.searchFor(`^${escapeRegExp(binary.name)}$`));
    this.direct();
  }

  // The tree that is shown, from the root.
  direct() {
    this.tree = this.inverted ? new InvertedTree(this.calls) : this.calls;
    this.history = [];
    this.focus = this.hover = null;
    byId("message").hidden = this.tree.total[ROOT] > 0;
    const why = this.profile.leafStack.length > 0 ? [] : this.profile.problems;
    byId("message").textContent = ["There are no samples here.", ...why].join(" ");
    this.search();
    this.showView({ start: 0, end: this.tree.total[ROOT] || 1 });
  }

  showView(view, scroll = 0) {
    this.view = view;
    byId("reset").hidden = view.start === 0 && view.end === (this.tree.total[ROOT] || 1);
    this.arrange();
    this.scroller.scrollTop = scroll;
  }

  arrange() {
    this.graph.show(this.tree, this.view);
    byId("content").style.height = `${Math.max(this.graph.contentHeight(), this.scroller.clientHeight)}px`;
    this.hover = null;
    byId("tooltip").hidden = true;
    if (this.focus) this.focus = this.graph.find(this.focus.node) ?? null;
    this.redraw();
  }

  redraw() {
    this.drawing ??= requestAnimationFrame(() => {
      this.drawing = null;
      const { focus, hover } = this;
      this.graph.draw({ scroll: this.scroller.scrollTop, state: (box) => this.stateOf(box), focus, hover });
      if (this.scroller.ariaBusy === "false") return;
      this.scroller.ariaBusy = "false";
      performance.mark("drawn"); // for whoever measures the first paint
    });
  }

  fitToWindow() {
    const { clientWidth, clientHeight, offsetWidth } = this.scroller;
    const margin = byId("content").offsetLeft;
    byId("content").style.width = `${clientWidth - margin - Math.max(margin - (offsetWidth - clientWidth), 2)}px`;
    byId("graph").style.height = `${clientHeight}px`;
    this.graph.resize(byId("content").clientWidth, clientHeight);
  }

  // ---------------------------------------------------------------- zoom

  zoom(box) {
    const { tree } = this;
    const start = box.node === MANY ? this.weightAt(box.x) : tree.start[box.node];
    const end = box.node === MANY ? this.weightAt(box.x + box.width) : start + tree.total[box.node];
    if (start === this.view.start && end === this.view.end) return;
    this.history.push({ view: this.view, scroll: this.scroller.scrollTop, focus: this.focus });
    this.focus = box.node === MANY ? null : box;
    const row = box.depth * ROW;
    const { scrollTop, clientHeight } = this.scroller;
    const near = row >= scrollTop && row < scrollTop + clientHeight / 2;
    this.showView({ start, end }, near ? scrollTop : Math.max(row - 3 * ROW, 0));
  }

  weightAt(x) {
    return this.view.start + (x / this.graph.width) * (this.view.end - this.view.start);
  }

  back() {
    const last = this.history.pop();
    if (last) {
      this.focus = last.focus;
      this.showView(last.view, last.scroll);
    } else if (byId("search").value) this.searchFor("");
    else this.focusOn(null);
  }

  reset() {
    this.history = [];
    this.showView({ start: 0, end: this.tree.total[ROOT] || 1 });
  }

  // ---------------------------------------------------------------- search

  searchFor(text) {
    byId("search").value = text;
    this.search();
    this.redraw();
  }

  search() {
    const text = byId("search").value;
    const output = byId("matched");
    this.query = null;
    byId("search").classList.remove("wrong");
    try {
      if (text) this.query = new RegExp(text, /[A-Z]/.test(text) ? "" : "i");
    } catch {
      byId("search").classList.add("wrong");
      output.textContent = "no regex";
      return;
    }
    this.matches = this.query ? matchingPlaces(this.profile, this.query) : null;
    this.below = this.query && !this.inverted ? matchBelow(this.calls, this.matches) : null;
    output.textContent = this.query ? shareText(matchedWeight(this.calls, this.matches), this.calls.total[ROOT]) : "";
    output.title = "share of the time in which a match is on the stack";
  }

  stateOf(box) {
    if (!this.query) return PLAIN;
    const matches = (node) => this.matches[this.tree.place[node]] === 1;
    if (box.node !== MANY) return matches(box.node) ? MATCH : FADED;
    if (box.query !== this.query) {
      const hidden = this.tree.children(box.from).slice(box.first);
      Object.assign(box, { query: this.query, matches: hidden.some((node) => matches(node) || this.below?.[node]) });
    }
    return box.matches ? MATCH : FADED;
  }

  // ---------------------------------------------------------------- pointing

  hoverAt(event) {
    const area = byId("graph").getBoundingClientRect();
    const y = event.clientY - area.top + this.scroller.scrollTop;
    const box = this.graph.at(event.clientX - area.left, y);
    byId("graph").style.cursor = box ? "pointer" : "default";
    if (box !== this.hover) {
      this.hover = box;
      this.redraw();
      this.showTooltip(box);
    }
    if (box) placeTooltip(event.clientX, event.clientY);
    return box;
  }

  leave() {
    this.hover = null;
    byId("tooltip").hidden = true;
    this.redraw();
  }

  showTooltip(box) {
    const tooltip = byId("tooltip");
    tooltip.hidden = !box;
    if (!box) return;
    if (box.node === MANY) {
      const weight = weightText(this.weightAt(box.x + box.width) - this.weightAt(box.x), this.truth.unit);
      tooltip.replaceChildren(`${plural(box.count, "narrow box")}`.replace("boxs", "boxes"), `, ${weight} in all`);
      return;
    }
    const description = describe(this.tree, box.node, this.truth.unit, this.view);
    tooltip.replaceChildren(...tooltipContent(description, this.inverted));
    byId("status").replaceChildren(...statusLine(description));
  }

  // ---------------------------------------------------------------- keyboard

  focusOn(box) {
    this.focus = box;
    if (box) {
      if (box.node !== MANY) byId("status").replaceChildren(...statusLine(describe(this.tree, box.node, this.truth.unit, this.view)));
      else byId("status").textContent = `${countText(box.count)} boxes, each too narrow`;
      const row = box.depth * ROW;
      const { scrollTop, clientHeight } = this.scroller;
      if (row < scrollTop) this.scroller.scrollTop = Math.max(row - ROW, 0);
      if (row + 2 * ROW > scrollTop + clientHeight) this.scroller.scrollTop = row + 2 * ROW - clientHeight;
    } else byId("status").textContent = "";
    this.redraw();
  }

  move(key) {
    const { focus, graph } = this;
    const row = focus && graph.rows[focus.depth];
    if (!focus) return this.focusOn(graph.rows[0][0]);
    const next = {
      ArrowUp: () => graph.find(focus.from),
      ArrowDown: () => graph.rows[focus.depth + 1]?.find((box) => box.from === focus.node && focus.node !== MANY),
      ArrowLeft: () => row[row.indexOf(focus) - 1],
      ArrowRight: () => row[row.indexOf(focus) + 1],
    }[key]();
    if (next) this.focusOn(next);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || byId("details").open) return;
    const { target } = event;
    if (target === byId("search")) return this.keyInSearch(event);
    const inGraph = target === byId("graph") || target === document.body;
    if (event.key.startsWith("Arrow") || event.key === "Enter") {
      if (!inGraph) return;
      if (event.key !== "Enter") this.move(event.key);
      else if (this.focus) this.zoom(this.focus);
      event.preventDefault();
      return;
    }
    if (target.tagName === "SELECT" && event.key !== "Escape") return;
    const action = {
      Escape: () => this.back(),
      0: () => this.reset(),
      "/": () => byId("search").select(),
      i: () => this.invert(!this.inverted),
      t: () => this.switchTheme(),
      "?": openHelp,
    }[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  keyInSearch(event) {
    if (event.key === "Escape" && event.target.value) this.searchFor("");
    else if (event.key === "Escape" || event.key === "Enter") byId("graph").focus();
    else return;
    event.preventDefault();
  }

  // ---------------------------------------------------------------- controls

  invert(inverted) {
    this.inverted = inverted;
    document.querySelector(`[name=direction][value=${inverted ? "up" : "down"}]`).checked = true;
    this.direct();
  }

  chooseTheme(theme) {
    this.theme = theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    document.documentElement.dataset.theme = this.theme;
    this.colours.theme(this.theme);
  }

  switchTheme() {
    this.chooseTheme(this.theme === "dark" ? "light" : "dark");
    storeTheme(this.theme);
    this.recolour();
  }

  recolour() {
    const leaves = this.calls.leaves;
    showLegend(this.profile, this.colours, leaves, (binary) => this.searchFor(`^${escapeRegExp(binary.name)}$`));
    this.redraw();
  }

  fillChoices() {
    const { profile } = this;
    byId("event").replaceChildren(...profile.events.map(({ name, unit }, i) => new Option(`${name} (${unit})`, i)));
    byId("event").hidden = profile.events.length < 2;
    byId("thread").replaceChildren(...threadOptions(profile));
    const single = new Set(profile.leafThread).size < 2;
    byId("thread").hidden = byId("group").hidden = single;
  }

  listen() {
    const choose = (id, take) => byId(id).addEventListener("change", ({ target }) => (take(target.value), this.select()));
    choose("event", (value) => (this.event = Number(value)));
    choose("thread", (value) => (this.threadChoice = value));
    choose("group", (value) => (this.grouping = value));
    for (const radio of document.querySelectorAll("[name=direction]")) {
      radio.addEventListener("change", () => this.invert(radio.value === "up"));
    }
    byId("theme").addEventListener("click", () => this.switchTheme());
    byId("help").addEventListener("click", openHelp);
    byId("reset").addEventListener("click", () => this.reset());
    byId("truth").addEventListener("click", () => openTruth(this.profile, this.calls, this.truth));
    byId("search").addEventListener("input", () => (this.search(), this.redraw()));
    byId("searching").addEventListener("submit", (event) => event.preventDefault());
    byId("graph").addEventListener("mousemove", (event) => this.hoverAt(event));
    byId("graph").addEventListener("mouseleave", () => this.leave());
    byId("graph").addEventListener("click", (event) => {
      const box = this.hoverAt(event);
      if (box) this.zoom(box);
    });
    document.addEventListener("keydown", (event) => this.key(event));
    this.scroller.addEventListener("scroll", () => this.leave());
    new ResizeObserver(() => this.tree && (this.fitToWindow(), this.arrange())).observe(this.scroller);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      if (!storedTheme()) this.chooseTheme(null), this.recolour();
    });
  }
}

// ---------------------------------------------------------------- helpers

function chosenThreads(profile, choice) {
  const all = profile.threads.map((_, i) => i);
  if (choice === "all") return all;
  const number = Number(choice.slice(1));
  return choice[0] === "t" ? [number] : all.filter((thread) => profile.threads[thread].process === number);
}

// Processes and their threads, the heaviest first, with their shares of the first event; those that have samples. A
// tid below 1 stands for no thread.
function threadOptions(profile) {
  const weights = new Float64Array(profile.threads.length);
  profile.leafThread.forEach((thread, leaf) => {
    if (profile.leafEvent[leaf] === 0) weights[thread] += profile.leafWeight[leaf];
  });
  const sum = (threads) => threads.reduce((total, thread) => total + weights[thread], 0);
  const all = [...new Set(profile.leafThread)];
  const total = sum(all);
  const members = profile.processes.map((_, process) => all.filter((i) => profile.threads[i].process === process));
  const order = profile.processes.map((_, i) => i).filter((i) => members[i].length > 0);
  order.sort((left, right) => sum(members[right]) - sum(members[left]));
  const text = (name, weight) => `${shorten(name, 60)} - ${shareText(weight, total)}`;
  const count = profile.threads.filter(({ tid }) => tid > 0).length;
  const options = [new Option(`All ${plural(count, "thread")}`, "all")];
  for (const process of order) {
    const group = element("optgroup", { label: shorten(processName(profile.processes[process]), 60) });
    if (members[process].length > 1 && order.length > 1) {
      group.append(new Option(text("its threads together", sum(members[process])), `p${process}`));
    }
    members[process].sort((left, right) => weights[right] - weights[left]);
    group.append(...members[process].map((i) => new Option(text(threadName(profile.threads[i]), weights[i]), `t${i}`)));
    options.push(group);
  }
  return options;
}

function matchingPlaces(profile, query) {
  const matches = new Uint8Array(profile.placeOfAll + 1);
  const binaries = profile.binaries.map((binary) => query.test(binary.name));
  for (let place = 0; place < profile.placeOfAll; place++) {
    const inBinary = place < profile.firstMark && binaries[profile.placeBinary[place]];
    matches[place] = inBinary || query.test(placeName(profile, place)) ? 1 : 0;
  }
  return matches;
}

// By node of a CallTree: 1 if a match is below it.
function matchBelow({ parent, place }, matches) {
  const below = new Uint8Array(parent.length);
  for (let node = parent.length - 1; node > ROOT; node--) below[parent[node]] |= below[node] | matches[place[node]];
  return below;
}

// The weight of the stacks with a match in them.
function matchedWeight(calls, matches) {
  const { entryParent, entryNode, entrySelf, place } = calls;
  const hit = new Uint8Array(entryParent.length);
  let weight = 0;
  for (let entry = 1; entry < entryParent.length; entry++) {
    hit[entry] = hit[entryParent[entry]] | matches[place[entryNode[entry]]];
    if (hit[entry]) weight += entrySelf[entry];
  }
  return weight;
}

function placeTooltip(x, y) {
  const { style, offsetWidth, offsetHeight } = byId("tooltip");
  const below = y + 18 + offsetHeight < window.innerHeight;
  style.left = `${Math.max(Math.min(x + 14, window.innerWidth - offsetWidth - 10), 4)}px`;
  style.top = `${below ? y + 18 : Math.max(y - offsetHeight - 12, 4)}px`;
}

function escapeRegExp(text) {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}

function storedTheme() {
  try {
    const theme = localStorage.getItem("unspool-theme");
    return theme === "dark" || theme === "light" ? theme : null;
  } catch {
    return null; // the browser keeps nothing for local files
  }
}

function storeTheme(theme) {
  try {
    localStorage.setItem("unspool-theme", theme);
  } catch {
    // as above
  }
}

readProfile(byId("profile")).then(
  (profile) => (window.viewer = new Viewer(profile)),
  (error) => (byId("message").textContent = `The profile in this page can't be read: ${error.message}`),
);
