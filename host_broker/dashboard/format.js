/**
 * Numbers and times as people read them.
 *
 * @module
 */

const PREFIXES = ["", "k", "M", "G", "T"];

/** @param {number} value @param {number} step @returns {[number, string]} */
function scaled(value, step) {
  let index = 0;
  while (Math.abs(value) >= step && index < PREFIXES.length - 1) {
    value /= step;
    index += 1;
  }
  return [value, PREFIXES[index]];
}

/** @param {number | null | undefined} value @returns {string} "12", "1.2 k"; "–" for none */
export function amount(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) {
    return "–";
  }
  if (Math.abs(value) < 10_000) {
    return Math.abs(value) < 100 && !Number.isInteger(value)
      ? value.toFixed(1)
      : Math.round(value).toLocaleString("en");
  }
  const [size, prefix] = scaled(value, 1000);
  return `${size.toFixed(size < 100 ? 1 : 0)} ${prefix}`;
}

const MOST_DIGITS = 6;

/** @param {number | null | undefined} value @returns {string} what was measured: "0.00125", "3e-9" */
export function reading(value) {
  if (value === null || value === undefined) {
    return "–";
  }
  const plain = String(Number(value.toPrecision(MOST_DIGITS)));
  return plain.length <= MOST_DIGITS + 3 ? plain : String(Number(value.toPrecision(3)).toExponential());
}

/** @param {number | null | undefined} value @returns {string} */
export function bytes(value) {
  if (value === null || value === undefined) {
    return "–";
  }
  const [size, prefix] = scaled(value, 1024);
  return prefix ? `${size.toFixed(size < 100 ? 1 : 0)} ${prefix}iB` : `${size} B`;
}

/** @param {number | null | undefined} value @returns {string} */
export function milliseconds(value) {
  if (value === null || value === undefined) {
    return "–";
  }
  if (value === 0) {
    return "0 ms";
  }
  return value < 10 ? `${value.toFixed(value < 1 ? 2 : 1)} ms` : `${amount(value)} ms`;
}

/** @param {number | null | undefined} at ms since 1970 @returns {string} the time of day */
export function clock(at) {
  return at ? new Date(at).toLocaleTimeString("en-GB") : "–";
}

/** @param {number | null | undefined} at ms since 1970 @returns {string} */
export function dateTime(at) {
  return at ? new Date(at).toLocaleString("sv-SE") : "–";
}

/** @param {number | null | undefined} at ms since 1970 @returns {string} how long ago */
export function ago(at) {
  return at ? `${duration(Math.max(0, Date.now() - at) / 1000)} ago` : "–";
}

/** @param {number} seconds @returns {string} */
export function duration(seconds) {
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}
