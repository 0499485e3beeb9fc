// The flame graph on its canvas: where boxes are (layOut), how they look (Graph.draw), which one is where
// (Graph.at). It knows nothing of mouse, keyboard and the rest of the page.

const ROW = 21; // height of a row, in pixels, with the gap below it
const NARROWEST = 1; // a box narrower than this many pixels is drawn together with the lighter ones beside it
const LEAST_TEXT = 26; // a box narrower than this has no text
const PADDING = 6;
const FONT = '12px ui-sans-serif, system-ui, "Segoe UI", "DejaVu Sans", sans-serif';
const MANY = -1; // as a box's node: several boxes, each too narrow
const PLAIN = 0;
const FADED = 1;
const MATCH = 2;

// Rows of boxes { x, width, depth, node, from, count }, x and width in pixels, for the weights from view.start to
// view.end. Each row is in order of x. from: the parent; count: of boxes drawn as one, the parent's children from
// the one numbered `first` on.
function layOut(tree, view, width) {
  const scale = width / (view.end - view.start);
  const rows = [];
  let row = [{ x: -view.start * scale, width: tree.total[ROOT] * scale, depth: 0, node: ROOT, from: -1, count: 1 }];
  while (row.length > 0) {
    rows.push(row);
    const next = [];
    for (const box of row) {
      if (box.node !== MANY) addChildren(tree, box, view, scale, width, next);
    }
    row = next;
  }
  return rows;
}

function addChildren(tree, { node, depth }, view, scale, width, boxes) {
  const children = tree.children(node);
  for (let i = firstVisible(tree, children, view.start); i < children.length; i++) {
    const child = children[i];
    const x = (tree.start[child] - view.start) * scale;
    if (x >= width) return;
    const wide = tree.total[child] * scale;
    if (wide < NARROWEST) {
      const last = children[children.length - 1];
      const end = (tree.start[last] + tree.total[last] - view.start) * scale;
      const many = { x, width: end - x, depth: depth + 1, node: MANY, from: node, count: children.length - i, first: i };
      if (many.width >= NARROWEST / 2) boxes.push(many);
      return;
    }
    boxes.push({ x, width: wide, depth: depth + 1, node: child, from: node, count: 1 });
  }
}

// The first child that does not end before a weight.
function firstVisible(tree, children, weight) {
  let low = 0;
  let high = children.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (tree.start[children[middle]] + tree.total[children[middle]] > weight) high = middle;
    else low = middle + 1;
  }
  return low;
}

class Graph {
  constructor(canvas, profile, colours) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.profile = profile;
    this.colours = colours;
    this.names = new Map(); // place → forms of its name
    this.widths = new Map(); // text → pixels
    this.rows = [];
  }

  resize(width, height) {
    this.ratio = window.devicePixelRatio || 1;
    this.width = width;
    this.height = height;
    this.canvas.width = Math.round(width * this.ratio);
    this.canvas.height = Math.round(height * this.ratio);
    this.colours.hatch = null;
  }

  show(tree, view) {
    this.tree = tree;
    this.rows = layOut(tree, view, this.width);
  }

  contentHeight() {
    return this.rows.length * ROW + 2;
  }

  // The box at a point (y from the top of the content), or null.
  at(x, y) {
    const row = this.rows[Math.floor(y / ROW)];
    if (!row) return null;
    let low = 0;
    let high = row.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (row[middle].x + row[middle].width > x) high = middle;
      else low = middle + 1;
    }
    return low < row.length && row[low].x <= x ? row[low] : null;
  }

  // The box of a node, or null if it is not drawn.
  find(node) {
    for (const row of this.rows) {
      for (const box of row) if (box.node === node) return box;
    }
    return null;
  }

  // look: { scroll, state(box) → PLAIN | FADED | MATCH, focus, hover: boxes or null }
  draw(look) {
    const { context, colours, ratio } = this;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = colours.page.background;
    context.fillRect(0, 0, this.width, this.height);
    context.translate(0, -look.scroll);
    context.font = FONT;
    context.textBaseline = "middle";
    const first = Math.max(Math.floor(look.scroll / ROW), 0);
    const last = Math.min(Math.ceil((look.scroll + this.height) / ROW), this.rows.length);
    for (let depth = first; depth < last; depth++) {
      for (const box of this.rows[depth]) this.drawBox(box, depth * ROW, look);
    }
    for (const box of [look.hover, look.focus]) {
      if (box) this.drawOutline(box, box === look.focus ? 2 : 1);
    }
  }

  drawBox(box, y, look) {
    const left = Math.max(box.x, 0);
    const right = Math.min(box.x + box.width, this.width);
    const gap = right - left > 4 ? 1 : 0;
    const shape = { left, y, width: right - left - gap, height: ROW - 1 };
    const state = look.state(box);
    if (box.node === MANY) {
      this.fillShape(shape, state === MATCH ? this.colours.page.match : this.colours.page.small);
      return;
    }
    const place = this.tree.place[box.node];
    const kind = placeKind(this.profile, place);
    if (kind !== CODE) this.context.globalAlpha = state === FADED ? 0.5 : 1;
    this.fillShape(shape, this.fillOf(place, kind, state));
    this.context.globalAlpha = state === FADED ? 0.35 : 1;
    if (kind === CODE) this.drawCertainty(box, shape, place);
    if (kind === MARK) this.drawCut(shape);
    this.context.globalAlpha = 1;
    if (shape.width >= LEAST_TEXT) this.drawName(shape, place, kind, state);
  }

  fillOf(place, kind, state) {
    const { page } = this.colours;
    if (state === MATCH) return page.match;
    if (kind === MARK) return page.mark;
    if (kind !== CODE) return page.group;
    return this.colours.fill(place, state === FADED);
  }

  fillShape({ left, y, width, height }, style) {
    const { context } = this;
    context.fillStyle = style;
    if (width < 8) {
      context.fillRect(left, y, width, height);
      return;
    }
    context.beginPath();
    context.roundRect(left, y, width, height, 2.5);
    context.fill();
  }

  // Hatched: the share of the box's time in which its frame was a guess. A bar at the left: inlined.
  drawCertainty(box, shape, place) {
    const guessed = this.tree.guessed[box.node] / this.tree.total[box.node];
    if (guessed > 0) {
      const width = Math.max(shape.width * guessed, Math.min(shape.width, 2));
      this.fillShape(
        { ...shape, left: shape.left + shape.width - width, width },
        this.colours.hatching(this.context, this.ratio),
      );
    }
    if (this.profile.placeInlined[place] && shape.width > 5) {
      this.context.fillStyle = this.colours.page.inlined;
      this.context.fillRect(shape.left, shape.y + 2, 2, shape.height - 4);
    }
  }

  // A torn lower edge: above it is where the stack's outer calls would be.
  drawCut({ left, y, width, height }) {
    const { context } = this;
    context.strokeStyle = this.colours.page.markLine;
    context.lineWidth = 1.2;
    context.beginPath();
    for (let x = left, up = false; x <= left + width; x += 4, up = !up) context.lineTo(x, y + height - (up ? 4 : 1));
    context.stroke();
  }

  drawName(shape, place, kind, state) {
    const { context } = this;
    const { page } = this.colours;
    const text = this.fit(place, shape.width - 2 * PADDING);
    if (!text) return;
    context.fillStyle = state === MATCH ? page.matchText : state === FADED ? page.fadedText : page.text;
    if (kind === MARK && state === PLAIN) context.fillStyle = page.markLine;
    context.fillText(text, shape.left + PADDING, shape.y + shape.height / 2 + (kind === MARK ? -1 : 0.5));
  }

  drawOutline(box, width) {
    const { context } = this;
    const y = box.depth * ROW;
    const left = Math.max(box.x, 0);
    const right = Math.min(box.x + box.width, this.width);
    context.strokeStyle = this.colours.page.outline;
    context.lineWidth = width;
    context.beginPath();
    const inset = width / 2;
    context.roundRect(left + inset, y + inset, Math.max(right - left - 1 - width, 1), ROW - 1 - width, 2.5);
    context.stroke();
  }

  // The longest form of a place's name that fits, the last one with "…" if need be.
  fit(place, width) {
    if (!this.names.has(place)) this.names.set(place, shorterNames(placeName(this.profile, place).slice(0, 4000)));
    const forms = this.names.get(place);
    for (const form of forms) {
      if (this.textWidth(form) <= width) return form;
    }
    const shortest = forms[forms.length - 1];
    let count = Math.floor((shortest.length * width) / this.textWidth(shortest));
    while (count > 1 && this.context.measureText(`${shortest.slice(0, count)}…`).width > width) count--;
    return count > 1 ? `${shortest.slice(0, count)}…` : "";
  }

  textWidth(text) {
    if (!this.widths.has(text)) this.widths.set(text, this.context.measureText(text).width);
    return this.widths.get(text);
  }
}
