// The bodies: one string of bytes in pieces of 64 KiB, each compressed, and unpacked when something in it is asked for.

const SIZE = 65536;

export class Bodies {
  constructor(raw) {
    this._packed = raw?.chunks || [];
    this._chunks = new Array(this._packed.length).fill(null);
    this._cut = new Map((raw?.cut || []).map((cut) => [cut.block, cut]));
    this._texts = new Map();
  }

  // Why a body is not here: `{bytes, command}` for one that was too large for the page, else null.
  cut(block) {
    return this._cut.get(block) || null;
  }

  // The text at `[offset, length]` of all bodies; a promise only where it is not unpacked yet.
  text(place) {
    if (typeof place === "string") return place;
    if (!Array.isArray(place)) return "";
    const key = place[0] * 2 ** 22 + place[1];
    if (this._texts.has(key)) return this._texts.get(key);
    const read = (bytes) => {
      const text = new TextDecoder().decode(bytes);
      this._texts.set(key, text);
      return text;
    };
    const bytes = this.bytes(place);
    return bytes instanceof Promise ? bytes.then(read) : read(bytes);
  }

  // The same as bytes.
  bytes([offset, length]) {
    const first = Math.floor(offset / SIZE);
    const last = Math.floor(Math.max(offset, offset + length - 1) / SIZE);
    const missing = [];
    for (let chunk = first; chunk <= last; chunk++) {
      if (!(this._chunks[chunk] instanceof Uint8Array)) missing.push(this._unpack(chunk));
    }
    const read = () => this._bytes(offset, length);
    return missing.length ? Promise.all(missing).then(read) : read();
  }

  // Unpacks everything, for a search; the promise is kept when it is done.
  async all() {
    await Promise.all(this._packed.map((_, chunk) => this._unpack(chunk)));
  }

  _bytes(offset, length) {
    const bytes = new Uint8Array(length);
    let done = 0;
    while (done < length) {
      const chunk = this._chunks[Math.floor((offset + done) / SIZE)];
      const from = (offset + done) % SIZE;
      if (!chunk || from >= chunk.length) break;
      const part = chunk.subarray(from, from + length - done);
      bytes.set(part, done);
      done += part.length;
    }
    return bytes.subarray(0, done);
  }

  _unpack(chunk) {
    if (this._chunks[chunk] === null && this._packed[chunk] !== undefined) {
      this._chunks[chunk] = inflate(this._packed[chunk]).then((bytes) => {
        this._chunks[chunk] = bytes;
        this._packed[chunk] = "";
      });
    }
    return this._chunks[chunk];
  }
}

async function inflate(base64) {
  const packed = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
