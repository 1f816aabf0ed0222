/**
 * Preact without a build step: `html` makes its elements of templates.
 *
 * Every text that becomes a part of the page goes through `printable` here, whoever said it.
 *
 * @module
 */

import htm from "./vendor/htm.js";
import { h, options } from "./vendor/preact.js";
import { printable } from "./printable.js";

export { Component, render } from "./vendor/preact.js";
export {
  useCallback,
  useEffect,
  useLayoutEffect,
  useMemo,
  useReducer,
  useRef,
  useState,
} from "./vendor/preact-hooks.js";

/** Attributes that are shown, or read out. */
const SHOWN = ["title", "placeholder", "aria-label", "aria-description", "label"];

const before = options.vnode;
options.vnode = (node) => {
  const props = node.props;
  if (props !== null && typeof props === "object") {
    if (props.children !== undefined) {
      props.children = shown(props.children);
    }
    for (const name of SHOWN) {
      if (typeof props[name] === "string") {
        props[name] = printable(props[name]);
      }
    }
  }
  before?.(node);
};

/** @param {any} children */
function shown(children) {
  if (typeof children === "string") {
    return printable(children);
  }
  return Array.isArray(children) ? children.map(shown) : children;
}

export const html = htm.bind(h);
