// Two trees of boxes over the same samples: CallTree from the root to what it calls, InvertedTree from where the
// time was spent to the callers. Both are merged by place (a function in a binary). A node is a number; `total`,
// `self`, `samples`, `guessed` (the weight for which its frame is a guess), `doubts` (the part of that for which the
// whole stack is doubtful), `place`, `parent`, `start` (the weight to its left) are arrays by node, and
// `children(node)` gives its children, the heaviest first.
//
// An *entry* is finer than a node of a CallTree: one frame of one stack with one line. What a box shows when it is
// pointed at comes from its entries.

const ROOT = 0;

class CallTree {
  // leaves: indices into the profile's leaves; grouping: "none", "process" or "thread".
  constructor(profile, leaves, grouping) {
    this.profile = profile;
    this.nodes = new Rows(Int32Array, Int32Array); // parent, place
    this.entries = new Rows(Int32Array, Int32Array, Int32Array, Uint8Array); // parent, node, line, how
    this.table = new PairTable(1 << 12);
    this.nodes.add(-1, profile.placeOfAll);
    this.entries.add(-1, ROOT, -1, 0);
    this.addLeaves(leaves, grouping);
    [this.parent, this.place] = this.nodes.finished();
    [this.entryParent, this.entryNode, this.entryLine, this.entryHow] = this.entries.finished();
    this.nodes = this.entries = null;
    this.sumUp();
    this.linkChildren();
  }

  addLeaves(leaves, grouping) {
    const { profile } = this;
    const { leafStack, leafMark, stackParent } = profile;
    const groupOf = groups(profile, grouping);
    const parts = new Map(); // stacks with the same prefix of made-up boxes, e.g. of one thread, all cut alike
    for (let i = 0; i < leaves.length; i++) {
      const key = groupOf(leaves[i]) * (profile.marks.length + 1) + leafMark[leaves[i]] + 1;
      if (!parts.has(key)) parts.set(key, []);
      parts.get(key).push(i);
    }
    this.seen = new Int32Array(stackParent.length); // in which part a stack was seen last
    this.entryOf = new Int32Array(stackParent.length);
    this.path = new Int32Array(profile.depth);
    this.leaves = leaves;
    this.innermost = new Int32Array(leaves.length); // a leaf's entry
    let part = 0;
    for (const members of parts.values()) {
      part += 1;
      const first = this.addPrefix(groupPlaces(profile, grouping, leaves[members[0]]), ROOT);
      for (const i of members) this.innermost[i] = this.addStack(leafStack[leaves[i]], part, first);
    }
    this.seen = this.entryOf = this.path = this.table = null;
  }

  addPrefix(places, entry) {
    for (const place of places) entry = this.addEntry(entry, place, -1, 0);
    return entry;
  }

  addEntry(entry, place, line, how) {
    const parent = this.entries.columns[1][entry];
    let node = this.table.find(parent, place);
    if (node < 0) {
      node = this.nodes.add(parent, place);
      this.table.put(parent, place, node);
    }
    return this.entries.add(entry, node, line, how);
  }

  // The entry of the stack's innermost call.
  addStack(stack, part, first) {
    const { stackParent, stackFrame, stackHow, lineOffsets, linePlace } = this.profile;
    let depth = 0;
    while (stack >= 0 && this.seen[stack] !== part) {
      this.path[depth++] = stack;
      stack = stackParent[stack];
    }
    let entry = stack < 0 ? first : this.entryOf[stack];
    while (depth > 0) {
      stack = this.path[--depth];
      const frame = stackFrame[stack];
      for (let line = lineOffsets[frame + 1] - 1; line >= lineOffsets[frame]; line--) {
        entry = this.addEntry(entry, linePlace[line], line, stackHow[stack]);
      }
      this.seen[stack] = part;
      this.entryOf[stack] = entry;
    }
    return entry;
  }

  // Weights of entries and nodes: parents come before children in both.
  sumUp() {
    const { leafWeight, leafSamples, leafFlags, doubtful } = this.profile;
    const { entryParent, entryNode, entryHow } = this;
    const selfDoubts = new Float64Array(entryParent.length); // of stacks that are doubtful as a whole
    const selfs = new Float64Array(entryParent.length);
    const selfSamples = new Float64Array(entryParent.length);
    for (let i = 0; i < this.leaves.length; i++) {
      selfs[this.innermost[i]] += leafWeight[this.leaves[i]];
      selfSamples[this.innermost[i]] += leafSamples[this.leaves[i]];
      if (leafFlags[this.leaves[i]] & doubtful) selfDoubts[this.innermost[i]] += leafWeight[this.leaves[i]];
    }
    const totals = selfs.slice();
    const doubts = selfDoubts.slice();
    const samples = selfSamples.slice();
    this.total = new Float64Array(this.parent.length);
    this.self = new Float64Array(this.parent.length);
    this.guessed = new Float64Array(this.parent.length);
    this.doubts = new Float64Array(this.parent.length);
    this.samples = new Float64Array(this.parent.length);
    for (let entry = entryParent.length - 1; entry >= 0; entry--) {
      const node = entryNode[entry];
      this.total[node] += totals[entry];
      this.samples[node] += samples[entry];
      this.self[node] += selfs[entry];
      this.doubts[node] += doubts[entry];
      this.guessed[node] += entryHow[entry] & GUESS ? totals[entry] : doubts[entry];
      if (entry > 0) {
        doubts[entryParent[entry]] += doubts[entry];
        totals[entryParent[entry]] += totals[entry];
        samples[entryParent[entry]] += samples[entry];
      }
    }
    Object.assign(this, { entrySelf: selfs, entrySelfSamples: selfSamples, entrySelfDoubts: selfDoubts });
    this.entryTotal = totals;
  }

  linkChildren() {
    [this.childOffsets, this.childList] = groupBy(this.parent, this.parent.length, ROOT + 1);
    this.start = new Float64Array(this.parent.length);
    this.sorted = new Uint8Array(this.parent.length);
  }

  children(node) {
    const list = this.childList.subarray(this.childOffsets[node], this.childOffsets[node + 1]);
    if (!this.sorted[node]) {
      this.sorted[node] = 1;
      sortByTotal(list, this.total);
      let start = this.start[node];
      for (const child of list) {
        this.start[child] = start;
        start += this.total[child];
      }
    }
    return list;
  }

  // [entry, weight] of every entry in a node.
  members(node) {
    if (!this.memberOffsets) {
      [this.memberOffsets, this.memberList] = groupBy(this.entryNode, this.parent.length, 0);
    }
    const list = this.memberList.subarray(this.memberOffsets[node], this.memberOffsets[node + 1]);
    return Array.from(list, (entry) => [entry, this.entryTotal[entry]]);
  }
}

class InvertedTree {
  // Made from the entries of a CallTree; a node's children are made when they are first asked for.
  constructor(tree) {
    this.profile = tree.profile;
    this.tree = tree;
    const entries = [];
    for (let entry = 0; entry < tree.entrySelf.length; entry++) {
      if (tree.entrySelf[entry] > 0) entries.push(entry);
    }
    Object.assign(this, { place: [], parent: [], total: [], self: [], guessed: [], doubts: [], samples: [] });
    Object.assign(this, { start: [], cursors: [], childLists: [] });
    const all = {
      leaves: Int32Array.from(entries), // where each stack begins: this gives weight and samples
      entries: Int32Array.from(entries), // how far up we are
    };
    this.addNode(-1, this.profile.placeOfAll, all, 0);
  }

  addNode(parent, place, cursor, start) {
    const { entrySelf, entrySelfSamples, entrySelfDoubts, entryHow } = this.tree;
    let total = 0;
    let samples = 0;
    let guessed = 0;
    let doubts = 0;
    for (let i = 0; i < cursor.leaves.length; i++) {
      const weight = entrySelf[cursor.leaves[i]];
      total += weight;
      samples += entrySelfSamples[cursor.leaves[i]];
      doubts += entrySelfDoubts[cursor.leaves[i]];
      guessed += entryHow[cursor.entries[i]] & GUESS ? weight : entrySelfDoubts[cursor.leaves[i]];
    }
    const node = this.place.length;
    this.place.push(place);
    this.parent.push(parent);
    this.total.push(total);
    this.samples.push(samples);
    this.guessed.push(guessed);
    this.doubts.push(doubts);
    this.self.push(parent === ROOT ? total : 0);
    this.start.push(start);
    this.cursors.push(cursor);
    this.childLists.push(null);
    return node;
  }

  children(node) {
    return (this.childLists[node] ??= this.makeChildren(node));
  }

  makeChildren(node) {
    const { entryParent, entryNode, entrySelf, place } = this.tree;
    const { leaves, entries } = this.cursors[node];
    const byPlace = new Map();
    for (let i = 0; i < entries.length; i++) {
      const entry = node === ROOT ? entries[i] : entryParent[entries[i]];
      if (entry <= 0) continue; // the outermost call
      const key = place[entryNode[entry]];
      let group = byPlace.get(key);
      if (!group) byPlace.set(key, (group = { total: 0, leaves: [], entries: [] }));
      group.total += entrySelf[leaves[i]];
      group.leaves.push(leaves[i]);
      group.entries.push(entry);
    }
    let start = this.start[node];
    return [...byPlace]
      .sort(([, left], [, right]) => right.total - left.total)
      .map(([key, group]) => {
        const child = this.addNode(node, key, group, start);
        start += this.total[child];
        return child;
      });
  }

  members(node) {
    const { leaves, entries } = this.cursors[node];
    return Array.from(entries, (entry, i) => [entry, this.tree.entrySelf[leaves[i]]]);
  }
}

// ---------------------------------------------------------------- groups

function groups(profile, grouping) {
  const { leafThread, threads } = profile;
  if (grouping === "thread") return (leaf) => leafThread[leaf];
  if (grouping === "process") return (leaf) => threads[leafThread[leaf]].process;
  return () => 0;
}

// The made-up boxes between the root and a stack.
function groupPlaces(profile, grouping, leaf) {
  const { leafThread, leafMark, threads, processes } = profile;
  const thread = leafThread[leaf];
  const places = [];
  const withProcess = grouping === "process" || (grouping === "thread" && processes.length > 1);
  if (withProcess) places.push(profile.firstProcess + threads[thread].process);
  if (grouping === "thread") places.push(profile.firstThread + thread);
  if (leafMark[leaf] >= 0) places.push(profile.firstMark + leafMark[leaf]);
  return places;
}

// ---------------------------------------------------------------- containers

// Columns of numbers that grow together.
class Rows {
  constructor(...types) {
    this.length = 0;
    this.columns = types.map((type) => new type(1 << 12));
  }

  // third and fourth: where there are so many columns.
  add(first, second, third, fourth) {
    if (this.length === this.columns[0].length) this.columns = this.columns.map(doubled);
    const { columns } = this;
    columns[0][this.length] = first;
    columns[1][this.length] = second;
    if (columns.length > 2) {
      columns[2][this.length] = third;
      columns[3][this.length] = fourth;
    }
    return this.length++;
  }

  // The columns, as long as there are rows.
  finished() {
    return this.columns.map((column) => column.slice(0, this.length));
  }
}

function doubled(array) {
  const larger = new array.constructor(array.length * 2);
  larger.set(array);
  return larger;
}

// A hash table from pairs of numbers to a number, by open addressing.
class PairTable {
  constructor(capacity) {
    this.count = 0;
    this.mask = capacity - 1;
    this.slots = new Int32Array(capacity * 3).fill(-1); // left, right, value
  }

  slot(left, right) {
    let place = (Math.imul(left, 0x9e3779b1) ^ Math.imul(right, 0x85ebca6b)) >>> 0;
    place = (place ^ (place >>> 15)) & this.mask;
    while (this.slots[place * 3 + 2] >= 0) {
      if (this.slots[place * 3] === left && this.slots[place * 3 + 1] === right) break;
      place = (place + 1) & this.mask;
    }
    return place * 3;
  }

  find(left, right) {
    return this.slots[this.slot(left, right) + 2];
  }

  put(left, right, value) {
    if (++this.count * 2 > this.mask) this.grow();
    const slot = this.slot(left, right);
    this.slots[slot] = left;
    this.slots[slot + 1] = right;
    this.slots[slot + 2] = value;
  }

  grow() {
    const old = this.slots;
    this.mask = this.mask * 2 + 1;
    this.slots = new Int32Array((this.mask + 1) * 3).fill(-1);
    for (let i = 0; i < old.length; i += 3) {
      if (old[i + 2] >= 0) this.slots.set(old.subarray(i, i + 3), this.slot(old[i], old[i + 1]));
    }
  }
}

// Lists of positions by key: those of key k are list[offsets[k]] to list[offsets[k + 1]].
function groupBy(keys, keyCount, first) {
  const offsets = new Int32Array(keyCount + 1);
  for (let i = first; i < keys.length; i++) offsets[keys[i] + 1]++;
  for (let key = 0; key < keyCount; key++) offsets[key + 1] += offsets[key];
  const next = offsets.slice();
  const list = new Int32Array(keys.length - first);
  for (let i = first; i < keys.length; i++) list[next[keys[i]]++] = i;
  return [offsets, list];
}

function sortByTotal(list, total) {
  if (list.length > 1) list.set(Array.from(list).sort((left, right) => total[right] - total[left] || left - right));
}
