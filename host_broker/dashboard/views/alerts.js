import { useAnswer } from "../components/asked.js";
import { Table } from "../components/table.js";
import { dateTime } from "../format.js";
import { html } from "../html.js";

/** Alerts of the pipeline: those that are open first. @param {{live: any}} props */
export function Alerts({ live }) {
  const { answer, trouble } = useAnswer(live, "alerts");
  const rows = answer && known(live, answer).map(read);
  rows?.sort((/** @type {any} */ one, /** @type {any} */ other) => Number(other.open) - Number(one.open));
  return html`
    <h1>Alerts</h1>
    <${Table}
      caption="Alerts"
      rows=${rows}
      more=${answer?.more}
      trouble=${trouble}
      id=${(/** @type {any} */ row) => row.topic}
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
 * Return the last publication of each alert: what the broker remembers, and what is retained.
 *
 * @param {any} live
 * @param {any} answer
 * @returns {any[]}
 */
function known(live, answer) {
  const found = new Map((answer?.alerts ?? []).map((/** @type {any} */ each) => [each.topic, each]));
  for (const board of live.topics.root.children.get("alerts")?.children.values() ?? []) {
    for (const { topic } of board.children.values()) {
      if (topic !== null && !(found.get(topic.name)?.at >= topic.at)) {
        const text = typeof topic.payload === "string" ? topic.payload : undefined;
        found.set(topic.name, { topic: topic.name, text, at: topic.at });
      }
    }
  }
  return [...found.values()];
}

/** How many alerts are open. @param {any} live @param {any} answer @returns {number} */
export function openAlerts(live, answer) {
  return known(live, answer).map(read).filter((/** @type {any} */ each) => each.open).length;
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
    return { topic: publication.topic, board, kind, message, open: true, raised: publication.at, cleared: null };
  }
  return {
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
