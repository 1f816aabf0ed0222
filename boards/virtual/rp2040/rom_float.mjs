// The ROM's floating-point tables, computed with JavaScript's doubles.
//
// Results are doubles, rounded once more to float32 for the single-precision table: right for
// + - * / and square root, and within a rounding step of the chip's ROM for the rest.

/** Order of the entries, RP2040 datasheet 2.8.3.2. */
export const FLOAT_TABLE = [
  "add", "sub", "mul", "div", "cmp", "cmpFlags", "sqrt", "toInt", "toFix", "toUint", "toUfix",
  "fromInt", "fromFix", "fromUint", "fromUfix", "cos", "sin", "tan", "sincos", "exp", "ln",
  "cmp", "atan2", "fromInt64", "fromFix64", "fromUint64", "fromUfix64", "toInt64", "toFix64",
  "toUint64", "toUfix64", "convert",
];
export const DOUBLE_TABLE = FLOAT_TABLE;

const scratch = new DataView(new ArrayBuffer(8));

const SINGLE = {
  words: 1,
  load(r, i) {
    scratch.setUint32(0, r[i]);
    return scratch.getFloat32(0);
  },
  store(r, i, value) {
    scratch.setFloat32(0, value);
    r[i] = scratch.getUint32(0);
  },
};

const DOUBLE = {
  words: 2,
  load(r, i) {
    scratch.setUint32(0, r[i + 1]);
    scratch.setUint32(4, r[i]);
    return scratch.getFloat64(0);
  },
  store(r, i, value) {
    scratch.setFloat64(0, value);
    r[i] = scratch.getUint32(4);
    r[i + 1] = scratch.getUint32(0);
  },
};

/** Round down and saturate, as the ROM does; NaN counts as 0. */
function whole(value, low, high) {
  if (Number.isNaN(value)) return 0;
  return Math.min(Math.max(Math.floor(value), low), high);
}

function storeInt64(r, value, low, high) {
  const limited = Number.isNaN(value) ? 0n
    : value >= Number(high) ? high
    : value <= Number(low) ? low
    : BigInt(Math.floor(value));
  const bits = BigInt.asUintN(64, limited);
  r[0] = Number(bits & 0xffffffffn);
  r[1] = Number(bits >> 32n);
}

const unsigned64 = (r) => (BigInt(r[1]) << 32n) | BigInt(r[0]);
const signed64 = (r) => BigInt.asIntN(64, unsigned64(r));
const I64 = [-(2n ** 63n), 2n ** 63n - 1n];
const U64 = [0n, 2n ** 64n - 1n];

function functions(own, other) {
  const second = own.words;
  const binary = (work) => (r) => own.store(r, 0, work(own.load(r, 0), own.load(r, second)));
  const unary = (work) => (r) => own.store(r, 0, work(own.load(r, 0)));
  const scaled = (r) => own.load(r, 0) * 2 ** (r[second] | 0);
  const compare = (r) => {
    const a = own.load(r, 0), b = own.load(r, second);
    r[0] = a < b ? -1 : a > b ? 1 : 0;
  };
  return {
    add: binary((a, b) => a + b),
    sub: binary((a, b) => a - b),
    mul: binary((a, b) => a * b),
    div: binary((a, b) => a / b),
    cmp: compare,
    cmpFlags: compare, // sets the flags on the chip; pico-sdk 2.1 never calls it
    sqrt: unary(Math.sqrt),
    toInt: (r) => { r[0] = whole(own.load(r, 0), -(2 ** 31), 2 ** 31 - 1); },
    toFix: (r) => { r[0] = whole(scaled(r), -(2 ** 31), 2 ** 31 - 1); },
    toUint: (r) => { r[0] = whole(own.load(r, 0), 0, 2 ** 32 - 1); },
    toUfix: (r) => { r[0] = whole(scaled(r), 0, 2 ** 32 - 1); },
    fromInt: (r) => own.store(r, 0, r[0] | 0),
    fromFix: (r) => own.store(r, 0, (r[0] | 0) * 2 ** -(r[1] | 0)),
    fromUint: (r) => own.store(r, 0, r[0]),
    fromUfix: (r) => own.store(r, 0, r[0] * 2 ** -(r[1] | 0)),
    cos: unary(Math.cos),
    // The single-precision sine leaves the cosine in the next register; sincosf relies on it.
    sin: (r) => {
      const x = own.load(r, 0);
      own.store(r, 0, Math.sin(x));
      own.store(r, second, Math.cos(x));
    },
    tan: unary(Math.tan),
    sincos: (r) => {
      const x = own.load(r, 0);
      own.store(r, 0, Math.sin(x));
      own.store(r, second, Math.cos(x));
    },
    exp: unary(Math.exp),
    ln: unary(Math.log),
    atan2: binary(Math.atan2),
    fromInt64: (r) => own.store(r, 0, Number(signed64(r))),
    fromFix64: (r) => own.store(r, 0, Number(signed64(r)) * 2 ** -(r[2] | 0)),
    fromUint64: (r) => own.store(r, 0, Number(unsigned64(r))),
    fromUfix64: (r) => own.store(r, 0, Number(unsigned64(r)) * 2 ** -(r[2] | 0)),
    toInt64: (r) => storeInt64(r, own.load(r, 0), ...I64),
    toFix64: (r) => storeInt64(r, scaled(r), ...I64),
    toUint64: (r) => storeInt64(r, own.load(r, 0), ...U64),
    toUfix64: (r) => storeInt64(r, scaled(r), ...U64),
    convert: (r) => other.store(r, 0, own.load(r, 0)),
  };
}

/** Both tables as functions over the core's registers, by the names of FLOAT_TABLE. */
export function floatFunctions() {
  return { single: functions(SINGLE, DOUBLE), double: functions(DOUBLE, SINGLE) };
}
