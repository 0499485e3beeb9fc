// Colours: one hue a binary, the lightness a little different by function. For light and for dark pages.

const KERNEL_HUE = 12;
const GOLDEN_ANGLE = 137.508; // degrees: multiples of it are well apart
const HUES = [70, 245, 155, 305, 205, 112, 275, 42]; // by how much of the picture a binary takes; the rest is pale

const PAGE_COLOURS = {
  light: {
    fill: { lightness: 0.875, chroma: 0.07 },
    faded: { lightness: 0.945, chroma: 0.012 },
    text: "#23201c",
    fadedText: "#96918a",
    match: "#e64cc1",
    matchText: "#ffffff",
    mark: "#f6e3e0",
    markLine: "#c2412d",
    group: "#e4e1dc",
    small: "#dcd8d2",
    hatch: "rgba(120, 20, 0, 0.42)",
    inlined: "rgba(0, 0, 0, 0.28)",
    outline: "#23201c",
    background: "#fdfcfa",
  },
  dark: {
    fill: { lightness: 0.45, chroma: 0.07 },
    faded: { lightness: 0.27, chroma: 0.012 },
    text: "#f4f1ec",
    fadedText: "#7d7973",
    match: "#c930a3",
    matchText: "#ffffff",
    mark: "#3b2320",
    markLine: "#ff8a75",
    group: "#36343a",
    small: "#34323a",
    hatch: "rgba(255, 214, 190, 0.40)",
    inlined: "rgba(255, 255, 255, 0.30)",
    outline: "#ffffff",
    background: "#17161a",
  },
};

class Colours {
  constructor(profile) {
    this.profile = profile;
    this.areas = areaByBinary(profile);
    this.hues = hueOfBinaries(profile, this.areas);
    this.theme("light");
  }

  theme(name) {
    this.page = PAGE_COLOURS[name];
    this.fills = new Map();
    this.fadedFills = new Map();
    this.hatch = null;
  }

  // The colour of a box of code.
  fill(place, faded) {
    const cache = faded ? this.fadedFills : this.fills;
    if (!cache.has(place)) {
      const { placeFunction, placeBinary } = this.profile;
      const jitter = (Math.imul(placeFunction[place] + 1, 0x9e3779b1) >>> 24) / 255 - 0.5;
      cache.set(place, this.shade(placeBinary[place], jitter, faded));
    }
    return cache.get(place);
  }

  shade(binary, jitter, faded) {
    const { lightness, chroma } = faded ? this.page.faded : this.page.fill;
    const hue = this.hues[binary];
    const spread = faded ? 0.012 : 0.05;
    if (hue === null) return oklch(lightness + spread * jitter, chroma / 3.5, (binary * GOLDEN_ANGLE) % 360);
    return oklch(lightness + spread * jitter, chroma, hue + 9 * jitter);
  }

  // Diagonal lines, for frames that are guesses. ratio: device pixels a pixel.
  hatching(context, ratio) {
    if (!this.hatch) {
      const size = 6 * Math.ceil(ratio);
      const tile = new OffscreenCanvas(size, size);
      const pen = tile.getContext("2d");
      pen.strokeStyle = this.page.hatch;
      pen.lineWidth = 1.4 * ratio;
      pen.beginPath();
      for (const shift of [-size, 0, size]) {
        pen.moveTo(shift, size);
        pen.lineTo(shift + size, 0);
      }
      pen.stroke();
      this.hatch = context.createPattern(tile, "repeat");
      this.hatch.setTransform(new DOMMatrix().scale(1 / Math.ceil(ratio)));
    }
    return this.hatch;
  }
}

// A hue for each binary, null = pale: the kernel always the same, the others by their share of the picture.
function hueOfBinaries(profile, areas) {
  const hues = profile.binaries.map((binary) => (binary.kind === "kernel" ? KERNEL_HUE : null));
  const coloured = profile.binaries.map((_, i) => i).filter((i) => !["kernel", "unknown"].includes(profile.binaries[i].kind));
  coloured.sort((left, right) => areas[right] - areas[left]);
  coloured.slice(0, HUES.length).forEach((binary, rank) => (hues[binary] = HUES[rank]));
  return hues;
}

// The weight of all frames, by binary; of the first event.
function areaByBinary(profile) {
  const { binaries, stackParent, stackFrame, lineOffsets, linePlace, placeBinary } = profile;
  const below = new Float64Array(stackParent.length);
  profile.leafStack.forEach((stack, leaf) => {
    if (profile.leafEvent[leaf] === 0) below[stack] += profile.leafWeight[leaf];
  });
  const areas = new Float64Array(binaries.length);
  for (let stack = stackParent.length - 1; stack >= 0; stack--) {
    areas[placeBinary[linePlace[lineOffsets[stackFrame[stack]]]]] += below[stack];
    if (stackParent[stack] >= 0) below[stackParent[stack]] += below[stack];
  }
  return areas;
}

// The weight of the leaves whose innermost frame lies in a binary, by binary.
function selfByBinary(profile, leaves) {
  const { binaries, leafStack, leafWeight, stackFrame, lineOffsets, linePlace, placeBinary } = profile;
  const selfs = new Float64Array(binaries.length);
  for (const leaf of leaves) {
    selfs[placeBinary[linePlace[lineOffsets[stackFrame[leafStack[leaf]]]]]] += leafWeight[leaf];
  }
  return selfs;
}

// OKLCH (lightness 0 to 1, chroma, hue in degrees) as "#rrggbb", after Björn Ottosson's definition of Oklab.
function oklch(lightness, chroma, hue) {
  const a = chroma * Math.cos((hue * Math.PI) / 180);
  const b = chroma * Math.sin((hue * Math.PI) / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  const channel = (value) => {
    const bounded = Math.min(Math.max(value, 0), 1);
    const encoded = bounded <= 0.0031308 ? 12.92 * bounded : 1.055 * bounded ** (1 / 2.4) - 0.055;
    return Math.round(encoded * 255).toString(16).padStart(2, "0");
  };
  return `#${linear.map(channel).join("")}`;
}
