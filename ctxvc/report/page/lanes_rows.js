// The rows of the lanes: blocks, or what they have in common, with their states as runs of calls.
import { isLive } from "./session.js";
import { firstLine, kindName, plain } from "./text.js";

// What a row may be: 0 not there, then in the order of what wins where a fold has several.
export const GONE = 1;
export const STUB = 2;
export const LIVE = 3;
export const PINNED = 4;

// The rows of the blocks that were there in `[from, to)`, folded by `file`, `tool` or `turn`, or not at all.
export function folded(session, fold, [from, to], opened) {
  const here = [];
  for (let block = 0; block < session.blocks.n; block++) {
    const intervals = session.blocks.intervals[block];
    if (intervals.length && intervals[0] < to && intervals[intervals.length - 2] > from) here.push(block);
  }
  if (!fold) return here.map((block) => blockRow(session, block, 0));
  const groups = new Map();
  for (const block of here) {
    const key = commonName(session, fold, block);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(block);
  }
  return [...groups].flatMap(([key, blocks]) => {
    const head = foldRow(session, key, blocks, opened.has(key));
    return opened.has(key) ? [head, ...blocks.map((block) => blockRow(session, block, 1))] : [head];
  });
}

function commonName(session, fold, block) {
  const { tool, file, turn } = session.blocks;
  if (fold === "file") return file[block] || "no file";
  if (fold === "tool") return tool[block] || "no tool";
  return `turn ${turn[block] ?? "–"}`;
}

function blockRow(session, block, depth) {
  const { id, label, tokens, reads } = session.blocks;
  const kind = session.kind(block);
  const name = firstLine(plain(label[block] || kindName(kind)), 90);
  return {
    block, depth, kind, key: "", name, head: id[block], title: `${id[block]} ${kindName(kind)} ${name}`, tokens: tokens[block],
    reads: reads[block] || [], runs: runs(session, block),
  };
}

function foldRow(session, key, blocks, open) {
  const name = firstLine(plain(key), 90);
  return {
    block: -1, depth: 0, kind: session.kind(blocks[0]), key, name, head: open ? "▾" : "▸", title: `${name}, ${blocks.length} blocks`,
    tokens: blocks.reduce((sum, block) => sum + session.blocks.tokens[block], 0),
    reads: [...new Set(blocks.flatMap((block) => session.blocks.reads[block] || []))].sort((a, b) => a - b),
    runs: union(blocks.map((block) => runs(session, block)), session.n + 1),
  };
}

// The runs of a block, `from, to, drawn, …`, with neighbours that look the same as one.
function runs(session, block) {
  const intervals = session.blocks.intervals[block];
  const out = [];
  for (let at = 0; at < intervals.length; at += 3) {
    const drawn = drawnAs(session.states[intervals[at + 2]]);
    const last = out.length - 3;
    if (last >= 0 && out[last + 2] === drawn && out[last + 1] === intervals[at]) out[last + 1] = intervals[at + 1];
    else out.push(intervals[at], intervals[at + 1], drawn);
  }
  return out;
}

function drawnAs(state) {
  if (state === "pinned") return PINNED;
  if (isLive(state)) return LIVE;
  return state === "stub" ? STUB : GONE;
}

// Runs of several rows as those of one: what is most present wins.
function union(several, calls) {
  const drawn = new Uint8Array(calls);
  for (const runs of several) {
    for (let at = 0; at < runs.length; at += 3) {
      for (let call = runs[at]; call < Math.min(runs[at + 1], calls); call++) if (runs[at + 2] > drawn[call]) drawn[call] = runs[at + 2];
    }
  }
  const out = [];
  for (let call = 0; call < calls; ) {
    let end = call + 1;
    while (end < calls && drawn[end] === drawn[call]) end++;
    if (drawn[call]) out.push(call, end, drawn[call]);
    call = end;
  }
  return out;
}
