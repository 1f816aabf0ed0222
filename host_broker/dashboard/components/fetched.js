/**
 * What the broker's HTTP says, again and again while somebody looks.
 *
 * @module
 */

import { useEffect, useState } from "../html.js";
import { REFUSED_LOOK_MS } from "../live.js";

const LOOK_MS = 2000;
const FORBIDDEN = 403;

/**
 * Return what the broker's HTTP says, again and again.
 *
 * @param {string} path
 * @param {boolean} paused
 */
export function useFetched(path, paused) {
  const [said, setSaid] = useState(/** @type {any} */ ({ path: "", document: null, trouble: "" }));
  useEffect(() => {
    let gone = false;
    let asking = false; // a slow broker is not asked again before it has answered
    let mayAskAt = 0; // nor who may not, before the rights may have changed
    const look = async () => {
      if (document.hidden || paused || asking || performance.now() < mayAskAt) return;
      asking = true;
      try {
        const answer = await fetch(path);
        const document = await answer.json();
        if (answer.status === FORBIDDEN) mayAskAt = performance.now() + REFUSED_LOOK_MS;
        if (!gone) setSaid({ path, document: answer.ok ? document : null, trouble: answer.ok ? "" : document.error });
      } catch {
        if (!gone) setSaid({ path, document: null, trouble: "The broker does not answer." });
      }
      asking = false;
    };
    look();
    const timer = setInterval(look, LOOK_MS);
    return () => {
      gone = true;
      clearInterval(timer);
    };
  }, [path, paused]);
  return said.path === path ? said : { path, document: null, trouble: "" };
}
