/**
 * What is known of each topic, and the tree that their levels make.
 *
 * @module
 */

import { beginning, numberIn } from "./decode.js";

/** Topics that are remembered; of more only that they are there is told. */
export const MOST_TOPICS = 20_000;
/** Characters or bytes of a payload that a list keeps; the page of a topic asks for the whole. */
export const LONGEST_KEPT = 16_384;
/** What clients tell themselves to see that the broker is there, and this page, too. */
const ECHO = "motemq/echo/";
/** Numbers of a topic's sparkline. */
export const SPARKLINE = 60;

/**
 * A topic, with its last publication.
 *
 * @typedef {object} Topic
 * @property {string} name
 * @property {string | Uint8Array} payload its first `LONGEST_KEPT`
 * @property {number} length of the whole payload, in characters or bytes
 * @property {number} at when it was published, ms since 1970
 * @property {boolean} retained it is kept for later subscribers, as far as we have seen
 * @property {Record<string, string>} properties
 * @property {number} count publications since the page began to look
 * @property {number} fresh of these, since the last look at rates
 * @property {number} rate publications per second, over the last seconds
 * @property {readonly number[] | null} numbers the last ones, if it carries numbers; another array
 *   when there is one more
 */

/**
 * A level of the tree.
 *
 * @typedef {object} Node
 * @property {string} level
 * @property {string} path
 * @property {Topic | null} topic
 * @property {Map<string, Node>} children
 * @property {number} below topics here and below
 */

/** @returns {Node} */
function newNode(/** @type {string} */ level, /** @type {string} */ path) {
  return { level, path, topic: null, children: new Map(), below: 0 };
}

/** All topics that were seen. */
export class Topics {
  constructor() {
    /** @type {Map<string, Topic>} */
    this.all = new Map();
    this.root = newNode("", "");
    /** Changes when there is a topic more. */
    this.version = 0;
    /** Publications of others. */
    this.notRemembered = 0;
    this.ratesAt = performance.now();
  }

  /**
   * Take what was published.
   *
   * @param {any[]} publications of umq.js
   */
  take(publications) {
    for (const publication of publications) {
      if (publication.topic.startsWith(ECHO)) {
        continue;
      }
      let topic = this.all.get(publication.topic);
      if (topic === undefined) {
        if (this.all.size >= MOST_TOPICS) {
          this.notRemembered += 1;
          continue;
        }
        topic = this.#add(publication.topic);
      }
      const payload = publication.payload;
      topic.length = payload.length;
      topic.payload =
        typeof payload === "string"
          ? beginning(payload, LONGEST_KEPT)
          : payload.slice(0, LONGEST_KEPT);
      topic.at = publication.at;
      topic.properties = publication.properties;
      topic.retained ||= publication.retained;
      if (!publication.retained) {
        const count = 1 + publication.replaced;
        topic.count += count;
        topic.fresh += count;
      }
      const number = numberIn(payload);
      if (number !== null) {
        topic.numbers = [...(topic.numbers ?? []), number].slice(-SPARKLINE);
      }
    }
  }

  /** Work out how often each topic is published; call it every second or so. */
  measure() {
    const now = performance.now();
    const seconds = (now - this.ratesAt) / 1000;
    if (seconds < 0.5) {
      return;
    }
    this.ratesAt = now;
    const weight = Math.min(1, seconds / 3);
    for (const topic of this.all.values()) {
      topic.rate += weight * (topic.fresh / seconds - topic.rate);
      topic.fresh = 0;
    }
  }

  /**
   * Return the rows of the tree from top to bottom: what is open, or has the filter's words.
   *
   * @param {Set<string> | null} open paths of nodes whose children are shown; null: all of them
   * @param {string} filter words, all of which a topic's name must have
   * @returns {{node: Node, depth: number, position: number, siblings: number}[]}
   */
  rows(open, filter) {
    const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
    /** @type {{node: Node, depth: number, position: number, siblings: number}[]} */
    const rows = [];
    const matching = words.length ? this.#matching(words) : null;
    const visit = (/** @type {Node} */ node, /** @type {number} */ depth) => {
      let children = [...node.children.values()];
      if (matching !== null) {
        children = children.filter((child) => matching.has(child));
      }
      children.sort((one, other) => (one.level < other.level ? -1 : 1));
      for (const [index, child] of children.entries()) {
        rows.push({ node: child, depth, position: index + 1, siblings: children.length });
        if (matching !== null || open === null || open.has(child.path)) {
          visit(child, depth + 1);
        }
      }
    };
    visit(this.root, 0);
    return rows;
  }

  /** @param {string[]} words */
  #matching(words) {
    const found = new Set();
    for (const topic of this.all.values()) {
      const name = topic.name.toLowerCase();
      if (words.every((word) => name.includes(word))) {
        let node = this.root;
        for (const level of topic.name.split("/")) {
          node = /** @type {Node} */ (node.children.get(level));
          found.add(node);
        }
      }
    }
    return found;
  }

  /** @param {string} name @returns {Topic} */
  #add(name) {
    /** @type {Topic} */
    const topic = {
      name,
      payload: "",
      length: 0,
      at: 0,
      retained: false,
      properties: {},
      count: 0,
      fresh: 0,
      rate: 0,
      numbers: null,
    };
    this.all.set(name, topic);
    this.version += 1;
    let node = this.root;
    let path = "";
    for (const level of name.split("/")) {
      path = path ? `${path}/${level}` : level;
      let child = node.children.get(level);
      if (child === undefined) {
        child = newNode(level, path);
        node.children.set(level, child);
      }
      child.below += 1;
      node = child;
    }
    node.topic = topic;
    return topic;
  }
}
