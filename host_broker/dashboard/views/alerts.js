import { PAGE, useAnswer } from "../components/asked.js";
import { Table } from "../components/table.js";
import { dateTime } from "../format.js";
import { html, useEffect } from "../html.js";
import { PAST_LOOK_MS } from "../live.js";

/** Which of the past the page looks at: publications of all alerts together. */
const PATTERN = "alerts/*/*";
const ALL = [PATTERN, { last: PAGE }];

/** Alerts of the pipeline: those that are open first. @param {{live: any}} props */
export function Alerts({ live }) {
  const { told, isKnown, more, trouble } = useTold(live);
  const rows = isKnown ? known(live, told) : undefined;
  rows?.sort((/** @type {any} */ one, /** @type {any} */ other) => Number(other.open) - Number(one.open));
  return html`
    <h1>Alerts</h1>
    <${Table}
      caption="Alerts"
      rows=${rows}
      more=${more}
      trouble=${trouble}
      id=${(/** @type {any} */ row) => row.name}
      empty="There is no alert. The pipeline raises them (docs/alerts.md)."
      columns=${[
        { name: "State", value: (row) => (row.open ? "open" : "cleared"), show: (row) => html`<span class=${row.open ? "tag bad" : "tag good"}>${row.open ? "open" : "cleared"}</span>` },
        { name: "Board", value: (row) => row.board },
        { name: "Kind", value: (row) => row.kind },
        { name: "What", value: (row) => row.message },
        { name: "Raised", value: (row) => row.raised, show: (row) => dateTime(row.raised) },
        { name: "Cleared", value: (row) => row.cleared, show: (row) => (row.cleared ? dateTime(row.cleared) : "–") },
      ]}
    />
  `;
}

/**
 * Return the last that was said of each alert, by what the broker remembers and by what came.
 *
 * Several alerts may have one topic, those of a board's sensors: `alert` is the name of each.
 *
 * @param {any} live
 * @param {any[]} told publications, as the broker's methods tell them
 * @returns {any[]}
 */
function known(live, told) {
  const came = [];
  for (const board of live.topics.root.children.get("alerts")?.children.values() ?? []) {
    for (const { topic } of board.children.values()) {
      if (topic !== null) {
        const text = typeof topic.payload === "string" ? topic.payload : undefined;
        came.push({ topic: topic.name, text, at: topic.at });
      }
    }
  }
  /** @type {Map<string, any>} */
  const found = new Map();
  // Those that came are as new as what is told of the same moment, or newer.
  const all = [...told, ...came].sort((one, other) => (one.at ?? 0) - (other.at ?? 0));
  for (const alert of all.map(read)) found.set(alert.name, alert);
  return [...found.values()];
}

/** How many alerts are open. @param {any} live @returns {number} */
export function useOpenAlerts(live) {
  useEffect(() => {
    const came = () => {
      live.soon("alerts");
      live.soon("history", ALL);
    };
    return live.follow(PATTERN, { retained: false }, came, () => {});
  }, [live]);
  return known(live, useTold(live).told).filter((/** @type {any} */ each) => each.open).length;
}

/**
 * Return what the broker remembers of alerts: the last of each topic, and the last of all topics.
 *
 * @param {any} live
 * @returns {{told: any[], isKnown: boolean, more: boolean, trouble: string}}
 */
function useTold(live) {
  const { answer, trouble } = useAnswer(live, "alerts", [], PAST_LOOK_MS);
  const history = useAnswer(live, "history", ALL, PAST_LOOK_MS).answer;
  return {
    told: [...(answer?.alerts ?? []), ...(history?.publications ?? [])],
    isKnown: answer !== undefined,
    more: answer?.more === true,
    trouble,
  };
}

/** Read an alert as docs/alerts.md has it; what is none is shown as it is. @param {any} publication */
function read(publication) {
  const [, board = "", kind = ""] = publication.topic.split("/");
  let said = /** @type {any} */ (null);
  try {
    said = JSON.parse(publication.text);
  } catch {
    // shown as text
  }
  if (said === null || typeof said !== "object") {
    const message = publication.text ?? "(not text)";
    const { topic, at } = publication;
    return { name: topic, topic, board, kind, message, open: true, raised: at, cleared: null };
  }
  return {
    name: text(said.alert, publication.topic),
    topic: publication.topic,
    board: text(said.board, board),
    kind: text(said.kind, kind),
    message: text(said.message, ""),
    open: (said.cleared_at ?? null) === null,
    raised: Date.parse(text(said.raised_at, "")) || publication.at,
    cleared: said.cleared_at ? Date.parse(text(said.cleared_at, "")) : null,
  };
}

/**
 * Return what somebody has said if it is text or a number; not every object can be made text.
 *
 * @param {any} said
 * @param {string} otherwise
 * @returns {string}
 */
function text(said, otherwise) {
  return typeof said === "string" || typeof said === "number" ? String(said) : otherwise;
}
