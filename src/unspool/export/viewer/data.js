// Reads the profile out of the page. In the page: gzip, as base64. In there: the length of a JSON object (uint32,
// little-endian), the object, zeros up to a multiple of 8, then arrays, each beginning at a multiple of 8. The
// object's "arrays" names them, in order, with type and length. flamegraph.py writes it and documents the content.

const ARRAY_TYPES = { u1: Uint8Array, i4: Int32Array, u4: Uint32Array, f8: Float64Array };
const GUESS = 0x80; // in "how": nothing proves this frame

// What a box stands for. CODE: a function in a binary. The others have no code.
const CODE = 0;
const MARK = 1; // where a stack was cut
const PROCESS = 2;
const THREAD = 3;
const ALL = 4;

async function readProfile(element) {
  const text = element.textContent.trim();
  const packed = Uint8Array.fromBase64
    ? Uint8Array.fromBase64(text)
    : Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  element.remove();
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return decodeProfile(await new Response(stream).arrayBuffer());
}

function decodeProfile(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const profile = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  let offset = Math.ceil((4 + length) / 8) * 8;
  for (const [name, type, count] of profile.arrays) {
    const array = new ARRAY_TYPES[type](buffer, offset, count);
    profile[name] = array;
    offset = Math.ceil((offset + array.byteLength) / 8) * 8;
  }
  profile.stackParent = profile.stackUp.map((up, stack) => stack - up);
  addPlaces(profile);
  return profile;
}

// Places: what boxes are merged by. First the ones of code, as in the file, then marks, processes, threads, all.
function addPlaces(profile) {
  const { placeFunction, marks, processes, threads } = profile;
  profile.firstMark = placeFunction.length;
  profile.firstProcess = profile.firstMark + marks.length;
  profile.firstThread = profile.firstProcess + processes.length;
  profile.placeOfAll = profile.firstThread + threads.length;
}

function placeKind(profile, place) {
  if (place < profile.firstMark) return CODE;
  if (place < profile.firstProcess) return MARK;
  if (place < profile.firstThread) return PROCESS;
  return place < profile.placeOfAll ? THREAD : ALL;
}

function placeName(profile, place) {
  switch (placeKind(profile, place)) {
    case CODE:
      return profile.functions[profile.placeFunction[place]];
    case MARK:
      return profile.marks[place - profile.firstMark];
    case PROCESS:
      return processName(profile.processes[place - profile.firstProcess]);
    case THREAD:
      return threadName(profile.threads[place - profile.firstThread]);
    default:
      return "all";
  }
}

// The binary that a place lies in, or null.
function placeBinary(profile, place) {
  return place < profile.firstMark ? profile.binaries[profile.placeBinary[place]] : null;
}

function processName(process) {
  return `${process.command || "process"} (${process.pid})`;
}

function threadName(thread) {
  return `${thread.name || "thread"} (${thread.tid})`;
}
