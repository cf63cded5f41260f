// A recorded session as the screens ask for it. Calls count from 0 here and from 1 wherever a person reads them.
import { short, whole } from "./text.js";

const LIVE = new Set(["visible", "pinned", "masked"]);
const CHECKPOINT = 64;
// Verbs that bring a block into the prompt or leave it there: none of them is why one left.
const BACK = new Set(["restore", "recover", "pin", "unpin"]);

export class Session {
  constructor(raw) {
    this.raw = raw;
    this.calls = raw.calls;
    this.n = raw.calls.n;
    this.blocks = raw.blocks;
    this.states = raw.states;
    this.scopes = raw.scopes || [];
    this.marks = raw.marks || [];
    this._checkpoints = [[]]; // the prompt before call i * CHECKPOINT
    this._latest = { call: -1, pieces: [] };
    this._handles = null;
    this._lives = null;
    this._departures = null;
    this._marksByCommit = null;
  }

  // The block of an address, `B17` or `B17@3fa9c1`, or -1.
  find(address) {
    if (!this._handles) {
      this._handles = new Map();
      for (let block = this.blocks.n - 1; block >= 0; block--) {
        this._handles.set(this.blocks.id[block], block);
        this._handles.set(this.handle(block), block);
      }
    }
    return this._handles.get(address) ?? -1;
  }

  // The address that leads back to this block: the number alone where no other block has it.
  address(block) {
    return this.find(this.blocks.id[block]) === block ? this.blocks.id[block] : this.handle(block);
  }

  handle(block) {
    return `${this.blocks.id[block]}@${(this.blocks.sha[block] || "").slice(0, 6)}`;
  }

  // The state of a block at a call, or "" before it came.
  state(block, call) {
    const intervals = this.blocks.intervals[block];
    for (let at = intervals.length - 3; at >= 0; at -= 3) {
      if (intervals[at] <= call && call < intervals[at + 1]) return this.states[intervals[at + 2]];
    }
    return "";
  }

  // When a block first came, or -1 for one that no prompt had.
  arrival(block) {
    const intervals = this.blocks.intervals[block];
    return intervals.length ? intervals[0] : -1;
  }

  lives(block) {
    if (!this._lives) {
      this._lives = new Map();
      for (const life of this.allLives()) {
        if (!this._lives.has(life.block)) this._lives.set(life.block, []);
        this._lives.get(life.block).push(life);
      }
    }
    return this._lives.get(block) || [];
  }

  // What was done to all blocks, each with its cause: `{block, call, verb, undo, actor, policy, reason, commit}`.
  allLives() {
    const { causes = [], lives = [] } = this.raw;
    return lives.map((life) => {
      const cause = causes[life.cause];
      return { undo: "", ...cause, ...life, reason: [life.reason, cause.reason].filter(Boolean).join("; ") };
    });
  }

  // Each time that a block left the prompt: `{block, call, state, life, reads}`, `reads` the calls since in which it was back.
  // A dashboard gives way to the next one, which is no departure.
  departures() {
    if (this._departures) return this._departures;
    this._departures = [];
    for (let block = 0; block < this.blocks.n; block++) {
      if (this.blocks.kind[block] === "dashboard") continue;
      const intervals = this.blocks.intervals[block];
      let wasLive = this._withheld(block);
      for (let at = 0; at < intervals.length; at += 3) {
        const state = this.states[intervals[at + 2]];
        if (wasLive && !LIVE.has(state)) this._departures.push(this._departure(block, intervals[at], state));
        wasLive = LIVE.has(state);
      }
    }
    this._departures.sort((a, b) => a.call - b.call || a.block - b.block);
    return this._departures;
  }

  // Whether a block was too large to be shown when it came: then it left before it was there.
  _withheld(block) {
    const call = this.arrival(block);
    return this.lives(block).some((life) => life.verb === "offload" && life.call === call);
  }

  // Why a block left: the reason that was given, else what the commit was.
  why({ life }) {
    if (!life) return "not recorded";
    if (life.reason) return life.reason;
    if (life.verb === "offload") return "too large to be shown";
    if (!this._marksByCommit) this._marksByCommit = new Map(this.marks.filter((mark) => mark.kind !== "break").map((mark) => [mark.commit, mark.label]));
    return this._marksByCommit.get(life.commit) || life.verb;
  }

  _departure(block, call, state) {
    const near = this.lives(block).filter((life) => life.call === call && !BACK.has(life.verb));
    const reads = (this.blocks.reads[block] || []).filter((read) => read >= call);
    return { block, call, state, life: near[near.length - 1] || null, reads };
  }

  // The pieces of the prompt as it was sent at a call.
  prompt(call) {
    if (call === this._latest.call) return this._latest.pieces;
    let pieces;
    let next;
    if (this._latest.call === call - 1) {
      pieces = this._latest.pieces.slice();
      next = call;
    } else {
      const checkpoint = Math.min(Math.floor(call / CHECKPOINT), this._checkpoints.length - 1);
      pieces = this._checkpoints[checkpoint].slice();
      next = checkpoint * CHECKPOINT;
    }
    for (; next <= call; next++) {
      if (next % CHECKPOINT === 0 && this._checkpoints.length === next / CHECKPOINT) this._checkpoints.push(pieces.slice());
      apply(pieces, this._splices(next));
    }
    this._latest = { call, pieces };
    return pieces;
  }

  _splices(call) {
    const { pieces, deltas } = this.raw.prompts;
    return (deltas[call] || []).map(([at, count, added]) => [at, count, added.map((piece) => pieces[piece])]);
  }

  // What a prompt has that the one before had not, and the other way round. A piece that only moved is neither.
  change(call) {
    const entered = new Set();
    const left = new Set();
    const before = call ? this.prompt(call - 1).slice() : [];
    for (const [at, count, added] of this._splices(call)) {
      for (const piece of before.splice(at, count, ...added)) cancel(entered, left, piece);
      for (const piece of added) cancel(left, entered, piece);
    }
    this._latest = { call, pieces: before };
    return { entered: [...entered], left: [...left] };
  }

  // The call of a tool that a block is, `[block, result, ending, parts]`, or null.
  toolCall(block) {
    this._callsByBlock = this._callsByBlock || new Map(this.raw.tool_calls.map((call) => [call[0], call]));
    return this._callsByBlock.get(block) || null;
  }

  // Whether a block is the result of a call.
  isResult(block) {
    this._results = this._results || new Set(this.raw.tool_calls.map((call) => call[1]));
    return this._results.has(block);
  }

  // The images of a block that the page has, `[block, media type, place]`.
  pictures(block) {
    return this.raw.pictures.filter((picture) => picture[0] === block);
  }

  // The kind of a block, with what the client wrote apart from what a person did.
  kind(block) {
    return this.blocks.kind[block] === "user" && this.blocks.origin[block] === "client" ? "client" : this.blocks.kind[block];
  }

  // How big the prompt of a call was, whose count that is, and what of it is not recorded.
  size(call) {
    const { total, reported } = this.calls;
    const share = Math.floor((100 * total[call]) / this.raw.window);
    const unrecorded = this.unrecorded(call);
    const missing = unrecorded ? `; ${short(unrecorded)} of them not recorded` : "";
    const by = reported[call] === null ? "estimated" : "counted by the provider";
    return `${reported[call] === null ? "about " : ""}${whole(total[call])} tokens, ${share} % of the window, ${by}${missing}`;
  }

  unrecorded(call) {
    return this.calls.tokens["not recorded"]?.[call] || 0;
  }

  scopeName(call) {
    return this.scopes[this.calls.scope?.[call]]?.name || "main";
  }
}

function apply(pieces, splices) {
  for (const [at, count, added] of splices) pieces.splice(at, count, ...added);
}

function cancel(from, into, piece) {
  if (from.has(piece)) from.delete(piece);
  else into.add(piece);
}

export function isLive(state) {
  return LIVE.has(state);
}

// The calls that the brush has chosen, first and last, from 0.
export function chosenCalls(session, view) {
  const last = session.n - 1;
  const from = Math.min(Math.max((view.from ?? 1) - 1, 0), last);
  const to = Math.min(Math.max((view.to ?? session.n) - 1, 0), last);
  return from <= to ? [from, to] : [to, from];
}

// The same calls, one by one.
export function eachChosen(session, view) {
  const [from, to] = chosenCalls(session, view);
  return Array.from({ length: to - from + 1 }, (_, at) => from + at);
}

// The call that is looked at: the one of the link, else the last.
export function chosenCall(session, view) {
  return Math.min(Math.max((view.call ?? session.n) - 1, 0), session.n - 1);
}
