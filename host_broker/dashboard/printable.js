/**
 * What peers say, made harmless for a page: the twin of host_broker/printable.py.
 *
 * Preact makes text of it, so nothing here is about HTML. What is left are characters that nobody
 * sees, and those that turn the direction of what follows, so that a name reads as another one.
 *
 * @module
 */

const UNSAFE = new RegExp(
  "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f" + // controls; tabs and new lines are what they look like
    "\\u2028\\u2029" +
    "\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069" +
    "\\ufeff\\u{e0000}-\\u{e007f}" +
    "\\ud800-\\udfff]", // half of a pair
  "gu",
);

/**
 * Return a text of which every character can be seen; lines and tabs stay.
 *
 * @param {string} said
 * @returns {string}
 */
export function printable(said) {
  return said.replace(UNSAFE, escaped);
}

/** @param {string} character @returns {string} */
function escaped(character) {
  const code = /** @type {number} */ (character.codePointAt(0));
  if (character === "\r") {
    return "\\r";
  }
  if (code < 0x100) {
    return `\\x${code.toString(16).padStart(2, "0")}`;
  }
  return code < 0x10000
    ? `\\u${code.toString(16).padStart(4, "0")}`
    : `\\U${code.toString(16).padStart(8, "0")}`;
}
