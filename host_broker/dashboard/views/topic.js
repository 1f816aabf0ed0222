import { Chart } from "../components/chart.js";
import { Payload } from "../components/payload.js";
import { Publish } from "../components/publish.js";
import { numberIn, oneLine } from "../decode.js";
import { clock, dateTime, reading } from "../format.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { EVERY_MS } from "../live.js";

/** Publications that are listed. */
const MOST_LISTED = 50;
/** Publications of a curve. */
const MOST_POINTS = 600;
/** Between what the broker's past says of a publication's time and what is retained says. */
const SAME_MS = 1000;

/** One topic: its last value, its curve, what came, and a form to publish to it. */
export function TopicPage(/** @type {{live: any, name: string, theme: string}} */ { live, name, theme }) {
  // No state of its own: what came is shown when the page shows all else, in one frame with it.
  const came = useRef(/** @type {Came[]} */ ([]));
  const [trouble, setTrouble] = useState("");
  const [source, setSource] = useState("");

  useEffect(() => {
    if (live.paused) return undefined; // what comes meanwhile is looked for afterwards
    let gone = false;
    const fresh = (/** @type {any} */ update) => {
      if (gone || live.paused) return;
      came.current = shown(update.publications.map(read).reduce(withOne, came.current));
      live.show(EVERY_MS);
    };
    let unfollow = () => {};
    const look = async () => {
      try {
        const told = await live.client.history(name, { last: MOST_POINTS });
        if (gone) return;
        setSource(told.source);
        if (told.publications.length > 0) came.current = shown(told.publications.map(read));
        live.show();
      } catch {
        setSource(""); // who may not read the journal sees what comes
      }
      if (!gone) unfollow = live.follow(name, { everyMs: EVERY_MS }, fresh, setTrouble);
    };
    look();
    return () => {
      gone = true;
      unfollow();
    };
  }, [live, name, live.paused]);

  const last = came.current;
  const newest = last.at(-1);
  const points = last
    .map((each) => ({ at: each.at / 1000, value: each.number }))
    .filter((each) => each.value !== null && each.at > 0) // 0: before the broker's last start
    .sort((one, other) => one.at - other.at);
  const properties = Object.entries(newest?.properties ?? {});
  const clear = async () => {
    try {
      await live.client.publish(name, "", { retain: true });
    } catch (error) {
      setTrouble(/** @type {Error} */ (error).message);
    }
  };
  return html`<section class="topic" aria-label=${name}>
    <p class="back"><a href="#/topics">Back to the topics</a></p>
    <h2 class="name">${name}</h2>
    ${trouble && html`<p class="notice bad">${trouble}</p>`}
    ${newest === undefined
      ? html`<p class="soft">Nothing has come yet.</p>`
      : html`<p class="soft">
            ${newest.at ? dateTime(newest.at) : "before the broker's last start"}
            ${newest.retained ? ", retained" : ""}
          </p>
          <${Payload} payload=${newest.payload} name=${name} />`}
    ${properties.length > 0 &&
    html`<h3>Properties</h3>
      <dl class="pairs">
        ${properties.map(([key, value]) => html`<dt key=${key}>${key}</dt><dd>${value}</dd>`)}
      </dl>`}
    ${points.length > 1 &&
    html`<${Chart}
      title="Value"
      times=${points.map((each) => each.at)}
      theme=${theme}
      spell=${reading}
      series=${[{ name: "value", color: "--c0", values: points.map((each) => each.value) }]}
    />`}
    <details class="card">
      <summary>Publish to this topic</summary>
      <${Publish} live=${live} topic=${name} fixed=${true} />
      <button type="button" onClick=${clear}>Clear what is retained</button>
    </details>
    <h3>Last publications</h3>
    <p class="soft">
      ${source === "journal" ? "Earlier ones are from the journal." : source === "memory" ? "Earlier ones are from the broker's memory." : ""}
    </p>
    <ol class="came">
      ${last
        .slice(-MOST_LISTED)
        .reverse()
        .map(
          (each) => html`<li key=${each.serial}>
            <time>${clock(each.at)}</time>
            <span class="mono">${each.line || "(empty)"}</span>
            ${each.replaced > 0 && html`<span class="soft">${each.replaced} before it left out</span>`}
          </li>`,
        )}
    </ol>
  </section>`;
}

/**
 * What came, with one more. What is retained came before: if the past has it, it is marked there.
 * @param {Came[]} before @param {Came} publication @returns {Came[]}
 */
function withOne(before, publication) {
  const at = publication.retained ? before.findLastIndex((each) => isSame(each, publication)) : -1;
  return at < 0 ? [...before, publication] : before.with(at, { ...before[at], retained: true });
}

/**
 * Whether the past and what is retained tell of one publication: each has its own clock.
 * @param {Came} one @param {Came} other
 */
function isSame(one, other) {
  return Math.abs(one.at - other.at) < SAME_MS && one.line === other.line;
}

/**
 * A publication as the list and the curve need it.
 *
 * @typedef {{serial: number, at: number, retained: boolean, replaced: number, line: string,
 *   number: number | null, payload: any, properties: any}} Came `serial`: no other has it, so that a
 *   row of the list stays when it moves; `payload`, `properties`: of the newest only
 */

let latestSerial = 0;

/** @param {any} publication @returns {Came} */
function read({ at, retained, replaced, payload, properties }) {
  const [line, number] = [oneLine(payload), numberIn(payload)];
  latestSerial += 1;
  return { serial: latestSerial, at, retained, replaced, line, number, payload, properties };
}

/** @param {Came[]} came @returns {Came[]} as many as are shown */
function shown(came) {
  const all = came.slice(-MOST_POINTS);
  return all.map((each, index) =>
    index === all.length - 1 || each.payload === null
      ? each
      : { ...each, payload: null, properties: null },
  );
}
