/**
 * A payload as people read it: text, JSON, CBOR, MessagePack, number or hex.
 *
 * What the readers return is a value of JavaScript; `written` spells it. Depth and length are
 * limited: a payload is anybody's.
 *
 * @module
 */

/** Levels of arrays and maps in each other. */
export const DEEPEST = 32;
/** Items of all arrays and maps of a payload together. */
export const MOST_ITEMS = 20_000;
/** Bytes that are shown as hex; characters that are shown of anything else. */
export const MOST_SHOWN_BYTES = 4096;
export const MOST_SHOWN_TEXT = 100_000;

/** The ways in which a payload can be looked at. */
export const FORMATS = ["auto", "text", "JSON", "number", "CBOR", "MessagePack", "hex"];

const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const LENIENT = new TextDecoder("utf-8", { ignoreBOM: true });
const CONTROLS = /[\x00-\x08\x0b\x0c\x0e-\x1f]/;
const NUMBER = /^\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*$/;

/** Why a payload is not of a format. */
export class NotDecodable extends Error {}

/**
 * Return a payload in one of `FORMATS`, and which one it is: `auto` chooses.
 *
 * @param {string | Uint8Array} payload
 * @param {string} format
 * @returns {{format: string, text: string}}
 * @throws {NotDecodable}
 */
export function view(payload, format) {
  if (format === "auto") {
    const found = guess(payload);
    return view(payload, found);
  }
  return { format, text: shortened(READERS[format](payload)) };
}

/**
 * Return the number that a payload is, or the only number in its JSON object; null if there is none.
 *
 * @param {string | Uint8Array | undefined} payload
 * @returns {number | null}
 */
export function numberIn(payload) {
  if (typeof payload !== "string" || payload.length > 1000) {
    return null;
  }
  const value = NUMBER.test(payload) ? Number(payload) : numberOfObject(payload);
  return Number.isFinite(value) ? value : null; // 1e999 is not, in JSON neither
}

/** @param {string} payload @returns {number | null} */
function numberOfObject(payload) {
  if (!payload.startsWith("{")) {
    return null;
  }
  try {
    const found = JSON.parse(payload);
    if (typeof found.value === "number") {
      return found.value;
    }
    const numbers = Object.values(found).filter((each) => typeof each === "number");
    return numbers.length === 1 ? numbers[0] : null;
  } catch {
    return null;
  }
}

/**
 * Return the beginning of a text, copied: `slice` may hold the whole of it in memory.
 *
 * @param {string} text
 * @param {number} most characters
 * @returns {string}
 */
export function beginning(text, most) {
  return text.length > most ? JSON.parse(JSON.stringify(text.slice(0, most))) : text;
}

/**
 * Return a payload in one line, for a list.
 *
 * @param {string | Uint8Array} payload
 * @returns {string}
 */
export function oneLine(payload) {
  if (typeof payload === "string") {
    const text = beginning(payload, 200);
    return CONTROLS.test(text) ? hexOf(bytesOf(text).subarray(0, 24)) : text.replace(/\s+/g, " ");
  }
  const { format, text } = view(payload.subarray(0, 4096), "auto");
  return format === "hex" ? hexOf(payload.subarray(0, 24)) : text.slice(0, 400).replace(/\s+/g, " ");
}

/** @param {string | Uint8Array} payload @returns {string} */
function guess(payload) {
  for (const format of ["number", "JSON", "text", "MessagePack", "CBOR"]) {
    try {
      if (format === "JSON" && !/^\s*[[{"]/.test(textOf(payload))) {
        continue;
      }
      const text = READERS[format](payload);
      if (format === "text" && CONTROLS.test(text)) {
        continue; // by chance
      }
      // One byte is a number to MessagePack and CBOR, whatever it is.
      if (format !== "MessagePack" && format !== "CBOR") {
        return format;
      }
      if (/^[[{]/.test(text)) {
        return format;
      }
    } catch (error) {
      if (!(error instanceof NotDecodable)) {
        throw error;
      }
    }
  }
  return "hex";
}

/** @type {Record<string, (payload: string | Uint8Array) => string>} */
const READERS = {
  text: textOf,
  JSON: (payload) => {
    try {
      const text = textOf(payload);
      JSON.parse(text);
      return indented(text);
    } catch (error) {
      throw new NotDecodable(`no JSON: ${/** @type {Error} */ (error).message}`);
    }
  },
  number: (payload) => {
    const text = textOf(payload);
    if (!NUMBER.test(text)) {
      throw new NotDecodable("it says something else");
    }
    return text.trim();
  },
  CBOR: (payload) => written(whole(new CborReader(bytesOf(payload)))),
  MessagePack: (payload) => written(whole(new MessagePackReader(bytesOf(payload)))),
  hex: (payload) => hexDump(bytesOf(payload)),
};

const JSON_TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|[^\s"[\]{},:]+|[[\]{},:]/g;

/**
 * Return a JSON text with a line for each item. Numbers and names that are there twice stay as they
 * are written, which values of JavaScript do not keep; levels below `DEEPEST` are not indented more.
 *
 * @param {string} text that is JSON
 * @returns {string}
 */
function indented(text) {
  let written = "";
  let depth = 0;
  let before = "";
  for (const [token] of text.matchAll(JSON_TOKEN)) {
    const closes = token === "]" || token === "}";
    if (closes) depth -= 1;
    const opened = before === "[" || before === "{";
    if (closes ? !opened : opened || before === ",") written += `\n${"  ".repeat(Math.min(depth, DEEPEST))}`;
    written += token.startsWith('"') ? JSON.stringify(JSON.parse(token)) : token;
    if (token === ":") written += " ";
    if (token === "[" || token === "{") depth += 1;
    before = token;
  }
  return written;
}

/** @param {string | Uint8Array} payload @returns {Uint8Array} */
export function bytesOf(payload) {
  return typeof payload === "string" ? new TextEncoder().encode(payload) : payload;
}

/** @param {string | Uint8Array} payload @returns {string} */
function textOf(payload) {
  if (typeof payload === "string") {
    return payload;
  }
  try {
    return UTF8.decode(payload);
  } catch {
    throw new NotDecodable("no UTF-8");
  }
}

/** @param {string} text @returns {string} */
function shortened(text) {
  return text.length > MOST_SHOWN_TEXT
    ? `${text.slice(0, MOST_SHOWN_TEXT)}\n… ${text.length - MOST_SHOWN_TEXT} more characters`
    : text;
}

/** @param {Uint8Array} bytes @returns {string} */
function hexOf(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join(" ");
}

/** @param {Uint8Array} bytes @returns {string} */
function hexDump(bytes) {
  const lines = [];
  const shownBytes = bytes.subarray(0, MOST_SHOWN_BYTES);
  for (let at = 0; at < shownBytes.length; at += 16) {
    const row = shownBytes.subarray(at, at + 16);
    const letters = Array.from(row, (byte) =>
      byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".",
    ).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hexOf(row).padEnd(47)}  ${letters}`);
  }
  if (bytes.length > shownBytes.length) {
    lines.push(`… ${bytes.length - shownBytes.length} more bytes`);
  }
  return lines.join("\n") || "(empty)";
}

/**
 * Spell what was read as JSON is, with more kinds of values.
 *
 * @param {any} value
 * @param {string} [indent]
 * @returns {string}
 */
export function written(value, indent = "") {
  const inner = `${indent}  `;
  if (value instanceof Uint8Array) {
    return `h'${hexOf(value.subarray(0, MOST_SHOWN_BYTES)).replaceAll(" ", "")}'`;
  }
  if (value instanceof Tagged) {
    return `${value.kind}(${written(value.value, indent)})`;
  }
  if (value instanceof Map) {
    const rows = [...value].map(([key, each]) => `${inner}${written(key)}: ${written(each, inner)}`);
    return rows.length ? `{\n${rows.join(",\n")}\n${indent}}` : "{}";
  }
  if (Array.isArray(value)) {
    const rows = value.map((each) => `${inner}${written(each, inner)}`);
    return rows.length ? `[\n${rows.join(",\n")}\n${indent}]` : "[]";
  }
  return typeof value === "string" ? JSON.stringify(value) : String(value);
}

/** A tag of CBOR, a simple value of CBOR, or an extension of MessagePack, with what it is about. */
class Tagged {
  /** @param {string} kind @param {any} value */
  constructor(kind, value) {
    this.kind = kind;
    this.value = value;
  }
}

/** @param {Reader} reader */
function whole(reader) {
  const value = reader.value(0);
  if (reader.at !== reader.bytes.length) {
    throw new NotDecodable(`${reader.bytes.length - reader.at} bytes are left over`);
  }
  return value;
}

/** What both binary formats need: a place in bytes, and limits. */
class Reader {
  /** @param {Uint8Array} bytes */
  constructor(bytes) {
    this.bytes = bytes;
    this.numbers = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.at = 0;
    this.items = 0;
  }

  /** @param {number} depth @returns {any} */
  value(depth) {
    if (depth > DEEPEST || ++this.items > MOST_ITEMS) {
      throw new NotDecodable("too deep, or too many items");
    }
    return this.read(this.byte(), depth);
  }

  /** @param {number} first @param {number} depth @returns {any} */
  read(first, depth) {
    throw new NotDecodable(`${first} at depth ${depth}`);
  }

  /** @param {number} length @returns {number} where it begins */
  skip(length) {
    const start = this.at;
    if (start + length > this.bytes.length) {
      throw new NotDecodable("it ends too early");
    }
    this.at += length;
    return start;
  }

  byte() {
    return this.bytes[this.skip(1)];
  }

  /** @param {number} length @returns {number | bigint} */
  unsigned(length) {
    const at = this.skip(length);
    if (length === 1) return this.numbers.getUint8(at);
    if (length === 2) return this.numbers.getUint16(at);
    if (length === 4) return this.numbers.getUint32(at);
    const big = this.numbers.getBigUint64(at);
    return big <= Number.MAX_SAFE_INTEGER ? Number(big) : big;
  }

  /** @param {number} length @returns {number | bigint} */
  signed(length) {
    const at = this.skip(length);
    if (length === 1) return this.numbers.getInt8(at);
    if (length === 2) return this.numbers.getInt16(at);
    if (length === 4) return this.numbers.getInt32(at);
    const big = this.numbers.getBigInt64(at);
    return big >= Number.MIN_SAFE_INTEGER && big <= Number.MAX_SAFE_INTEGER ? Number(big) : big;
  }

  /** @param {number} length @returns {number} */
  float(length) {
    const at = this.skip(length);
    if (length === 4) return this.numbers.getFloat32(at);
    if (length === 8) return this.numbers.getFloat64(at);
    const bits = this.numbers.getUint16(at);
    const exponent = (bits >> 10) & 31;
    const fraction = bits & 1023;
    let size = 2 ** (exponent - 25) * (1024 + fraction);
    if (exponent === 0) size = 2 ** -24 * fraction;
    if (exponent === 31) size = fraction ? NaN : Infinity;
    return bits & 0x8000 ? -size : size;
  }

  /** @param {number | bigint} length @returns {Uint8Array} */
  binary(length) {
    const at = this.skip(Number(length));
    return this.bytes.slice(at, at + Number(length));
  }

  /** @param {number | bigint} length @returns {string} */
  text(length) {
    return LENIENT.decode(this.binary(length));
  }

  /** @param {number | bigint} length @param {number} depth */
  array(length, depth) {
    const found = [];
    for (let left = Number(length); left > 0; left--) found.push(this.value(depth + 1));
    return found;
  }

  /** @param {number | bigint} length @param {number} depth */
  map(length, depth) {
    const found = new Map();
    for (let left = Number(length); left > 0; left--) {
      found.set(this.value(depth + 1), this.value(depth + 1));
    }
    return found;
  }
}

/** RFC 8949. */
class CborReader extends Reader {
  /** @param {number} first @param {number} depth @returns {any} */
  read(first, depth) {
    const major = first >> 5;
    const info = first & 31;
    if (info === 31) return this.indefinite(major, depth);
    if (major === 7) return this.simple(info);
    const argument = info < 24 ? info : this.unsigned(this.lengthOf(info));
    if (major === 0) return argument;
    if (major === 1) {
      return typeof argument === "bigint" ? -1n - argument : -1 - argument;
    }
    if (major === 2) return this.binary(argument);
    if (major === 3) return this.text(argument);
    if (major === 4) return this.array(argument, depth);
    if (major === 5) return this.map(argument, depth);
    return new Tagged(String(argument), this.value(depth + 1));
  }

  /** @param {number} info */
  lengthOf(info) {
    if (info > 27) throw new NotDecodable(`${info} is reserved`);
    return 1 << (info - 24);
  }

  /** @param {number} info */
  simple(info) {
    if (info === 20) return false;
    if (info === 21) return true;
    if (info === 22) return null;
    if (info === 23) return undefined;
    if (info === 25) return this.float(2);
    if (info === 26) return this.float(4);
    if (info === 27) return this.float(8);
    if (info > 27) throw new NotDecodable(`${info} is reserved`);
    return new Tagged("simple", info === 24 ? this.byte() : info);
  }

  /** @param {number} major @param {number} depth */
  indefinite(major, depth) {
    const parts = [];
    if (major < 2 || major > 5) throw new NotDecodable("a length that is none");
    while (this.at < this.bytes.length && this.bytes[this.at] !== 0xff) {
      const part = this.value(depth + 1);
      const fits = major === 2 ? part instanceof Uint8Array : typeof part === "string";
      if (major < 4 && !fits) throw new NotDecodable("a part of another kind");
      parts.push(part);
    }
    this.skip(1);
    if (major === 2) return Uint8Array.from(parts.flatMap((part) => [...part]));
    if (major === 3) return parts.join("");
    if (major === 4) return parts;
    if (parts.length % 2) throw new NotDecodable("a key without a value");
    const found = new Map();
    for (let at = 0; at < parts.length; at += 2) found.set(parts[at], parts[at + 1]);
    return found;
  }
}

/** github.com/msgpack/msgpack, spec.md of 2017. */
class MessagePackReader extends Reader {
  /** @param {number} first @param {number} depth @returns {any} */
  read(first, depth) {
    if (first < 0x80) return first;
    if (first >= 0xe0) return first - 0x100;
    if (first < 0x90) return this.map(first & 15, depth);
    if (first < 0xa0) return this.array(first & 15, depth);
    if (first < 0xc0) return this.text(first & 31);
    if (first === 0xc0) return null;
    if (first === 0xc2) return false;
    if (first === 0xc3) return true;
    if (first >= 0xc4 && first <= 0xc6) return this.binary(this.unsigned(1 << (first - 0xc4)));
    if (first >= 0xc7 && first <= 0xc9) return this.extension(this.unsigned(1 << (first - 0xc7)));
    if (first === 0xca) return this.float(4);
    if (first === 0xcb) return this.float(8);
    if (first >= 0xcc && first <= 0xcf) return this.unsigned(1 << (first - 0xcc));
    if (first >= 0xd0 && first <= 0xd3) return this.signed(1 << (first - 0xd0));
    if (first >= 0xd4 && first <= 0xd8) return this.extension(1 << (first - 0xd4));
    if (first >= 0xd9 && first <= 0xdb) return this.text(this.unsigned(1 << (first - 0xd9)));
    if (first === 0xdc || first === 0xdd) return this.array(this.unsigned(first - 0xdb << 1), depth);
    if (first === 0xde || first === 0xdf) return this.map(this.unsigned(first - 0xdd << 1), depth);
    throw new NotDecodable(`${first} means nothing`);
  }

  /** @param {number | bigint} length */
  extension(length) {
    const kind = this.signed(1);
    return new Tagged(`ext ${kind}`, this.binary(length));
  }
}
