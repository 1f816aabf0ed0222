/**
 * What the broker answers to a method, again and again while somebody looks.
 *
 * @module
 */

import { useEffect } from "../html.js";

/** Rows of a list that are asked for at once. */
export const PAGE = 500;

/**
 * Return the last answer, undefined until there is one, and why there is none.
 *
 * @param {any} live
 * @param {string} name
 * @param {unknown[]} [args]
 * @param {number} [everyMs] how often it is asked for; two seconds if it is not said
 * @returns {{answer: any, trouble: string}}
 */
export function useAnswer(live, name, args = [], everyMs = undefined) {
  const key = JSON.stringify(args);
  useEffect(() => live.want(name, JSON.parse(key), everyMs), [live, name, key, everyMs]);
  return { answer: live.answer(name, args), trouble: live.troubles.get(name) ?? "" };
}
