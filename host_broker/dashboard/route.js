/**
 * Addresses of what is shown: `#/topics/home%2Flamp`.
 *
 * @module
 */

/** @typedef {{view: string, rest: string[]}} Route */

/** @returns {Route} */
export function routeNow() {
  const [view, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  return { view: view || "overview", rest: rest.map(decoded) };
}

/** @param {string} part @returns {string} */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** @param {string} view @param {string[]} rest @returns {string} */
export function linkTo(view, ...rest) {
  return `#/${[view, ...rest.map(encodeURIComponent)].join("/")}`;
}

/** @param {string} topic @returns {string} */
export function topicLink(topic) {
  return linkTo("topics", topic);
}
