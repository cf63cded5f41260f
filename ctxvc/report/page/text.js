// Numbers and recorded text as a person reads them.

// Characters that hide or turn others: controls, marks of direction, what has no width, line separators.
const INVISIBLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202f\u205f-\u206f\u3164\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]/gu;

function name(character) {
  const code = character.codePointAt(0);
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  return `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
}

// The text with its invisible characters named, as one string.
export function plain(text) {
  return text.replace(/\r\n/g, "\n").replace(INVISIBLE, (character) => `⟨${name(character)}⟩`);
}

// The text as nodes: invisible characters stand in marks of their own, so that no text can imitate them.
export function shown(text) {
  const fragment = document.createDocumentFragment();
  let from = 0;
  for (const hit of text.matchAll(INVISIBLE)) {
    if (hit.index > from) fragment.append(text.slice(from, hit.index));
    if (hit[0] !== "\r" || text[hit.index + 1] !== "\n") {
      const mark = document.createElement("span");
      mark.className = "invisible";
      mark.textContent = name(hit[0]);
      fragment.append(mark);
    }
    from = hit.index + hit[0].length;
  }
  if (from < text.length) fragment.append(text.slice(from));
  return fragment;
}

// 950, 2.3k, 81k, 1.2M.
export function short(number) {
  if (number === null || number === undefined) return "–";
  const size = Math.abs(number);
  if (size < 1000) return String(Math.round(number));
  if (size < 9950) return `${(number / 1000).toFixed(1)}k`;
  if (size < 999500) return `${Math.round(number / 1000)}k`;
  return `${(number / 1e6).toFixed(size < 9.95e6 ? 1 : 0)}M`;
}

// 1,234,567.
export function whole(number) {
  return number === null || number === undefined ? "–" : Math.round(number).toLocaleString("en-GB");
}

export function money(amount) {
  if (amount === null || amount === undefined) return "–";
  if (amount === 0) return "$0";
  return amount < 0.01 ? `$${amount.toPrecision(2)}` : `$${amount.toFixed(amount < 10 ? 3 : 2)}`;
}

export function percent(share) {
  return share === null || share === undefined ? "–" : `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
}

export function moment(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  return new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ");
}

export function bytes(number) {
  if (number < 1024) return `${number} B`;
  return number < 1048576 ? `${(number / 1024).toFixed(0)} kB` : `${(number / 1048576).toFixed(1)} MB`;
}

export function plural(number, noun) {
  return `${whole(number)} ${noun}${number === 1 ? "" : "s"}`;
}

// The first line with something in it, cut to a length.
export function firstLine(text, length) {
  const line = text.slice(0, 4000).split("\n").find((candidate) => candidate.trim()) || "";
  return fitted(line, length);
}

const PATH = /^['"`(]?(?:[\w….~@+,:%=-]*(?:\/[\w….~@+,:%=[\]*{}-]*)+|[A-Za-z]:(?:\\[\w.~@+,%=-]*)+)['"`);]*$/;
const LONG = 16;

// A line cut to a length: first its paths in their middle, the longest first, so that the files’ names stay; then at its end.
function fitted(line, length) {
  if (line.length <= length) return line;
  const words = line.split(" ");
  const paths = [...words.keys()].filter((at) => words[at].length > LONG && PATH.test(words[at]));
  let over = line.length - length;
  for (const at of paths.sort((a, b) => words[b].length - words[a].length)) {
    if (over <= 0) break;
    const before = words[at].length;
    words[at] = pathFitted(words[at], before - over);
    over -= before - words[at].length;
  }
  const text = words.join(" ");
  return over <= 0 ? text : `${text.slice(0, Math.max(length - 1, 0))}…`;
}

// A path cut in its middle: `internal/…/bootstrap.go`. Its name is whole, however short the length.
function pathFitted(path, length) {
  const name = path.slice(path.lastIndexOf("/", path.length - 2) + 1);
  const [first] = path.match(/^(?:\w{1,10}:\/\/)?\/?[^/]+\//) || [""];
  const head = first.length + 2 + name.length <= length ? first : "";
  for (let at = path.indexOf("/", head.length); at >= 0; at = path.indexOf("/", at + 1)) {
    if (head.length + 1 + path.length - at <= length) return `${head}…${path.slice(at)}`;
  }
  return name.length + 2 < path.length ? `…/${name}` : path;
}

const KIND_NAMES = {
  __proto__: null,
  user: "you",
  assistant: "answer",
  thinking: "thinking",
  tool_use: "call",
  tool_result: "result",
};

// `tool_result` as a person says it.
export function kindName(kind) {
  return KIND_NAMES[kind] || kind.replaceAll("_", " ");
}
