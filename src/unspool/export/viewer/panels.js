// What the page says in words: the header's figures, what a box is, the dialogs. Names are from the profiled
// program: they become text, never markup.

const VERDICTS = ["complete", "guessed", "cut"];

function element(tag, attributes, ...children) {
  const made = Object.assign(document.createElement(tag), attributes);
  made.append(...children);
  return made;
}

// ---------------------------------------------------------------- figures of a selection

// What is known of a selection of leaves and threads: weights by verdict and by mark, the kernel's figure for the
// same threads (null: not known), what is missing. Shares of verdicts and marks are of `total`, as in the report;
// `whole` has what is missing in it.
function truthOf(profile, leaves, threads, eventNumber) {
  const event = profile.events[eventNumber] ?? { unit: "" };
  const truth = { total: 0, samples: 0, verdicts: [0, 0, 0], marks: new Map(), flags: new Map(), unit: event.unit };
  for (const leaf of leaves) {
    const weight = profile.leafWeight[leaf];
    truth.total += weight;
    truth.samples += profile.leafSamples[leaf];
    truth.verdicts[profile.leafVerdict[leaf]] += weight;
    for (const flag of Object.keys(profile.flags)) {
      if (profile.leafFlags[leaf] & flag) truth.flags.set(flag, (truth.flags.get(flag) ?? 0) + weight);
    }
    const mark = profile.leafMark[leaf];
    if (mark >= 0) truth.marks.set(mark, (truth.marks.get(mark) ?? 0) + weight);
  }
  const cpu = threads.map((thread) => profile.threads[thread].cpu);
  const known = eventNumber === profile.timeEvent && cpu.length > 0 && cpu.every((time) => time !== null);
  truth.cpu = known ? cpu.reduce((sum, time) => sum + time, 0) : null;
  truth.notSampled = known ? truth.cpu - truth.total : 0; // negative: samples say more than the kernel
  truth.whole = truth.total + Math.max(truth.notSampled, 0);
  const chosen = new Set(threads);
  truth.lost = profile.lost.filter((lost) => lost.thread < 0 || chosen.has(lost.thread));
  truth.lostCount = truth.lost.reduce((sum, lost) => sum + lost.count, 0);
  return truth;
}

function showTruth(truth) {
  const { whole } = truth;
  const parts = [...VERDICTS.map((word, i) => [word, truth.verdicts[i]]), ["missing", truth.notSampled]];
  document.getElementById("meter").replaceChildren(
    ...parts
      .filter(([, weight]) => weight > 0)
      .map(([word, weight]) => {
        const piece = element("i");
        piece.style.flex = `${weight / whole} 1 0`;
        piece.style.background = `var(--${word})`;
        return piece;
      }),
  );
  const figure = (strong, rest) => element("span", {}, element("b", { textContent: strong }), ` ${rest}`);
  const figures = [figure(weightText(truth.cpu ?? truth.total, truth.unit), truth.cpu === null ? "sampled" : "of CPU time")];
  VERDICTS.forEach((word, i) => {
    if (truth.verdicts[i] > 0 || (i === 0 && truth.total > 0)) figures.push(figure(shareText(truth.verdicts[i], truth.total), word));
  });
  if (truth.cpu !== null) figures.push(figure(...notSampledText(truth)));
  figures.push(figure(countText(truth.samples), truth.samples === 1 ? "sample" : "samples"));
  figures.push(figure(countText(truth.lostCount), "lost"));
  document.getElementById("summary").replaceChildren(...figures);
}

function notSampledText({ cpu, notSampled, unit }) {
  if (notSampled >= 0) return [shareText(notSampled, cpu), "of CPU time (not sampled)"];
  return [weightText(-notSampled, unit), "sampled beyond the kernel's count"];
}

function showHeading(profile) {
  document.getElementById("command").textContent = profile.command;
  document.getElementById("command").title = profile.command;
  const words = [];
  const started = new Date(profile.started);
  if (!isNaN(started)) words.push(started.toLocaleString());
  if (profile.duration > 0) words.push(`${weightText(profile.duration, "nanoseconds")} long`);
  if (profile.rate) words.push(`${profile.rate} Hz`);
  const when = document.getElementById("when");
  when.textContent = when.title = words.join(" · ");
}

// Chips for the binaries that have a colour; choose(binary) is called when one is clicked.
function showLegend(profile, colours, leaves, choose) {
  const selfs = selfByBinary(profile, leaves);
  const total = selfs.reduce((sum, weight) => sum + weight, 0);
  const shown = profile.binaries.map((_, i) => i).filter((i) => colours.hues[i] !== null && colours.areas[i] > 0);
  shown.sort((left, right) => colours.areas[right] - colours.areas[left]);
  document.getElementById("legend").replaceChildren(
    ...shown.map((binary) => {
      const { name, path } = profile.binaries[binary];
      const swatch = element("i");
      swatch.style.background = colours.shade(binary, 0, false);
      const title = `${path}: ${shareText(selfs[binary], total)} of the time is its own`;
      const chip = element("button", { type: "button", title }, swatch, shorten(name, 24));
      chip.addEventListener("click", () => choose(profile.binaries[binary]));
      return element("li", {}, chip);
    }),
  );
}

function shorten(text, length) {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}

// ---------------------------------------------------------------- one box

// The lines and the ways of finding of a node: [text, weight] each, the heaviest first.
function nodeFacts(tree, node) {
  const { profile } = tree;
  const { entryLine, entryHow } = tree.tree ?? tree;
  const lines = new Map();
  const hows = new Map();
  const add = (map, key, weight) => map.set(key, (map.get(key) ?? 0) + weight);
  for (const [entry, weight] of tree.members(node)) {
    const line = entryLine[entry];
    if (line < 0) continue;
    add(lines, profile.lineFile[line] * 0x4000000 + profile.lineNumber[line], weight);
    add(hows, entryHow[entry], weight);
  }
  const heaviest = (map, text) =>
    [...map].sort(([, left], [, right]) => right - left).map(([key, weight]) => [text(key), weight]);
  return {
    lines: heaviest(lines, (key) => lineText(profile, Math.floor(key / 0x4000000), key % 0x4000000)),
    hows: heaviest(hows, (how) => howText(profile, how)),
  };
}

function lineText(profile, file, line) {
  if (file < 0) return null;
  return profile.files[file] + (line > 0 ? `:${line}` : "");
}

function howText(profile, how) {
  return profile.hows[how & ~GUESS] + (how & GUESS ? " (a guess)" : "");
}

function describe(tree, node, unit, view) {
  const { profile } = tree;
  const place = tree.place[node];
  const whole = tree.total[ROOT];
  const code = placeKind(profile, place) === CODE;
  const facts = nodeFacts(tree, node);
  const lines = facts.lines.filter(([text]) => text !== null);
  return {
    name: placeName(profile, place),
    binary: placeBinary(profile, place),
    inlined: code && profile.placeInlined[place] === 1,
    total: `${weightText(tree.total[node], unit)}  (${shareText(tree.total[node], whole)})`,
    self: `${weightText(tree.self[node], unit)}  (${shareText(tree.self[node], whole)})`,
    samples: plural(tree.samples[node], "sample"),
    ofView: view.end - view.start < whole ? shareText(tree.total[node], view.end - view.start) : null,
    guessed: tree.guessed[node] > 0,
    lines: lines.slice(0, 4).map(([text, weight]) => [text, shareText(weight, tree.total[node])]),
    moreLines: Math.max(lines.length - 4, 0),
    guess: tree.guessed[node] > tree.doubts[node],
    doubts: tree.doubts[node] > 0 ? shareText(tree.doubts[node], tree.total[node]) : null,
    hows: facts.hows.map(([text, weight]) => `${text} ${shareText(weight, tree.total[node])}`),
    mark: placeKind(profile, place) === MARK,
  };
}

function statusLine(description) {
  const line = description.lines.length > 0 ? `${shortPath(description.lines[0][0])}  ·  ` : "";
  const words = `  ${line}${description.total}, self ${description.self}, ${description.samples}`;
  const flags = [description.inlined && "inlined", description.guessed && "guessed"].filter(Boolean);
  const text = words + (flags.length > 0 ? `  ·  ${flags.join(", ")}` : "");
  return [element("b", { textContent: shorten(description.name, 120) }), text];
}

function shortPath(path) {
  return path.slice(path.lastIndexOf("/") + 1);
}

function tooltipContent(description, inverted) {
  const rows = [];
  const row = (word, ...content) => rows.push(element("dt", { textContent: word }), element("dd", {}, ...content));
  row(inverted ? "on this path" : "total", description.total);
  if (!inverted) row("self", description.self);
  if (description.ofView) row("of the zoom", description.ofView);
  row("in", description.samples);
  description.lines.forEach(([text, share], i) => {
    row(i === 0 ? "line" : "", `${shortPath(text)}  `, element("small", { textContent: share }));
  });
  if (description.moreLines > 0) row("", `and ${plural(description.moreLines, "more line")}`);
  if (description.lines.length > 0) row("file", description.lines[0][0].replace(/:\d+$/, ""));
  if (description.hows.length > 0) {
    row("found by", element("span", { className: description.guess ? "warning" : "", textContent: description.hows.join(", ") }));
  }
  if (description.doubts) {
    const text = `${description.doubts} (libraries changed meanwhile)`;
    row("doubtful", element("span", { className: "warning", textContent: text }));
  }
  const where = [];
  if (description.binary) where.push(description.binary.path);
  if (description.inlined) where.push("inlined into its caller");
  if (description.mark) where.push("what called this is not known: the stack was cut here");
  return [
    element("h3", { textContent: shorten(description.name, 600) }),
    ...where.map((text) => element("p", { textContent: text })),
    element("dl", {}, ...rows),
  ];
}

// ---------------------------------------------------------------- dialogs

function openDialog(title, className, ...content) {
  document.getElementById("details-text").className = className;
  document.getElementById("details-title").textContent = title;
  document.getElementById("details-text").replaceChildren(...content);
  document.getElementById("details").showModal();
}

function table(rows) {
  const made = rows.map((cells) =>
    element("tr", {}, ...cells.map((cell) => element("td", {}, ...(Array.isArray(cell) ? cell : [cell])))),
  );
  return element("table", {}, element("tbody", {}, ...made));
}

function section(title, rows) {
  return rows.length > 0 ? [element("h3", { textContent: title }), table(rows)] : [];
}

const MEANINGS = {
  complete: "it ended at the root, and every frame is the file's own word or proved",
  guessed: "it ended at the root, with a frame that nothing proves, or while libraries changed",
  cut: "the walk stopped before the root",
};

function openTruth(profile, tree, truth) {
  const weights = (weight, whole = truth.total) => [weightText(weight, truth.unit), shareText(weight, whole)];
  const swatch = (word) => {
    const made = element("i");
    made.style.background = `var(--${word})`;
    return made;
  };
  const verdicts = VERDICTS.map((word, i) => [[swatch(word), `${word}: ${MEANINGS[word]}`], ...weights(truth.verdicts[i])]);
  if (truth.cpu !== null) {
    const count = "of the CPU time by the kernel's count";
    const what = truth.notSampled >= 0 ? `no sample covers this much ${count}` : `samples add up to more, ${count}`;
    verdicts.push([[swatch("missing"), `(not sampled): ${what}`], ...weights(Math.abs(truth.notSampled), truth.cpu)]);
  }
  const flags = [...truth.flags].sort(([, left], [, right]) => right - left);
  const marks = [...truth.marks].sort(([, left], [, right]) => right - left);
  const hows = [...timeByHow(tree)].sort(([, left], [, right]) => right - left);
  const frames = hows.reduce((sum, [, weight]) => sum + weight, 0);
  openDialog(
    "How certain this is",
    "figures",
    ...section("Stacks, by time that was sampled", verdicts),
    ...section("Where stacks were cut", marks.map(([mark, weight]) => [profile.marks[mark], ...weights(weight)])),
    ...section("What makes stacks doubtful", flags.map(([flag, weight]) => [profile.flags[flag], ...weights(weight)])),
    ...section("How frames were found, by time", hows.map(([how, weight]) => [howText(profile, how), shareText(weight, frames)])),
    ...section("Lost samples", truth.lost.map((lost) => [lost.reason, countText(lost.count)])),
    ...profile.problems.map((text) => element("p", { textContent: text })),
  );
}

// The time of all physical frames, by how they were found.
function timeByHow(tree) {
  const { entryLine, entryHow, entryTotal, profile } = tree;
  const outermost = new Uint8Array(profile.linePlace.length);
  for (const end of profile.lineOffsets.subarray(1)) outermost[end - 1] = 1;
  const times = new Map();
  for (let entry = 0; entry < entryLine.length; entry++) {
    if (entryLine[entry] < 0 || !outermost[entryLine[entry]]) continue;
    times.set(entryHow[entry], (times.get(entryHow[entry]) ?? 0) + entryTotal[entry]);
  }
  return times;
}

const KEYS = [
  ["Enter", "or a click: zoom to a box"],
  ["Esc", "back to what was shown before"],
  ["0", "show everything"],
  ["↑↓←→", "to the caller, to the heaviest call, to the boxes beside"],
  ["/", "search functions and binaries by a regular expression"],
  ["i", "calls, or inverted: from where the time was spent to the callers"],
  ["t", "light or dark"],
  ["?", "this help"],
];
const LOOKS = [
  ["", "A box is a function below the one that called it; its width is its share of the time. A colour is a binary."],
  ["guess", "hatched: for this part of the time nothing proves that the frame is right, or libraries changed meanwhile"],
  ["inlined", "a bar at the left: the call was inlined into its caller"],
  ["cut", "a torn edge: the stack was cut; what called the box below is not known"],
  ["many", "grey: several boxes, each too narrow to be drawn; click to widen them"],
];

function openHelp() {
  openDialog(
    "Reading and using the flame graph",
    "words",
    ...section("What is what", LOOKS.map(([look, text]) => [element("div", { className: `sample ${look}` }), text])),
    ...section("Keys", KEYS.map(([keys, text]) => [element("kbd", { textContent: keys }), text])),
  );
}
