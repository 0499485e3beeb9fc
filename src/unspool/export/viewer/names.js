// How names and numbers are written. Names come from the profiled program and are any text.

const OPENING = { "(": ")", "<": ">", "[": "]", "{": "}" };

// Forms of a function's name, from the whole to the shortest that still says which function it is.
function shorterNames(name) {
  const forms = [name];
  const add = (form) => {
    if (form && form.length < forms[forms.length - 1].length) forms.push(form);
  };
  add(withoutParameters(name));
  add(withoutArguments(forms[forms.length - 1]));
  const parts = splitPath(forms[forms.length - 1]);
  for (let count = parts.length - 1; count > 0; count--) add(parts.slice(-count).join("::"));
  add(forms[forms.length - 1].replaceAll("<…>", ""));
  return forms;
}

// Without what is in the last round brackets at the end ("f(int) const" → "f").
function withoutParameters(name) {
  const end = name.replace(/( const)?( volatile)?( &{1,2})?( noexcept)?( \[clone [^\]]*\])*$/, "");
  if (!end.endsWith(")")) return name;
  let depth = 0;
  for (let i = end.length - 1; i > 0; i--) {
    if (end[i] === ")") depth++;
    if (end[i] === "(" && --depth === 0) {
      const rest = end.slice(0, i).trimEnd();
      return rest === "" || rest.endsWith("operator") || rest.endsWith("::") ? name : rest;
    }
  }
  return name;
}

// Characters, but "operator<<" and the like as one; in "operator<<int>" the last "<" opens the arguments.
function tokens(name) {
  return name.match(/operator *(?:\(\)|[^\w\s(]+(?=[\s(]|$)|[^\w\s(]+(?=<))|[^]/gu) ?? [];
}

// "map<int, list<int>>::find" → "map<…>::find". What begins a path, as in "<T as Trait>::call", stays.
function withoutArguments(name) {
  let text = "";
  let depth = 0;
  for (const token of tokens(name)) {
    if (token === "<" && depth === 0 && /[^:\s]$/.test(text)) {
      text += "<…>";
      depth = 1;
    } else if (token === "<" && depth > 0) depth++;
    else if (token === ">" && depth > 0) depth--;
    else if (depth === 0) text += token;
  }
  return depth === 0 ? text : name; // not balanced: no such name
}

// The parts between "::" that lie in no brackets.
function splitPath(name) {
  const parts = [""];
  const open = [];
  for (const token of tokens(name)) {
    if (token === open[open.length - 1]) open.pop();
    else if (OPENING[token]) open.push(OPENING[token]);
    parts[parts.length - 1] += token;
    if (open.length === 0 && parts[parts.length - 1].endsWith("::")) {
      parts[parts.length - 1] = parts[parts.length - 1].slice(0, -2);
      parts.push("");
    }
  }
  return open.length === 0 ? parts : [name];
}

const TIME_UNITS = [
  [3600e9, "h"],
  [60e9, "min"],
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "µs"],
  [1, "ns"],
];
const BYTE_UNITS = [
  [2 ** 40, "TiB"],
  [2 ** 30, "GiB"],
  [2 ** 20, "MiB"],
  [2 ** 10, "KiB"],
  [1, "B"],
];

// A weight in an event's unit, as people read it.
function weightText(weight, unit) {
  const units = { nanoseconds: TIME_UNITS, bytes: BYTE_UNITS }[unit];
  if (!units || weight === 0) return countText(weight);
  const [size, word] = units.find(([least]) => weight / 0.9995 >= least) ?? units[units.length - 1];
  return `${threeDigits(weight / size)} ${word}`;
}

function threeDigits(number) {
  return number >= 99.95 ? number.toFixed(0) : number >= 9.995 ? number.toFixed(1) : number.toFixed(2);
}

function countText(count) {
  return Math.round(count).toLocaleString("en");
}

function shareText(part, whole) {
  if (!(whole > 0)) return "-";
  if (part === 0) return "0 %";
  const share = (100 * part) / whole;
  if (share > 0 && share < 0.01) return "< 0.01 %";
  if (share < 100 && share > 99.99) return "> 99.99 %"; // what is not all is not called all
  return `${share.toFixed(share === 100 ? 0 : share >= 10 && share < 99.9 ? 1 : 2)} %`;
}

function plural(count, word) {
  return `${countText(count)} ${word}${count === 1 ? "" : "s"}`;
}
