import { PAGE, useAnswer } from "../components/asked.js";
import { Sparkline } from "../components/chart.js";
import { oneLine } from "../decode.js";
import { ago, clock, milliseconds } from "../format.js";
import { html, useMemo, useState } from "../html.js";
import { PAST_LOOK_MS } from "../live.js";
import { topicLink } from "../route.js";
import { Topics } from "../topics.js";
import { Ping } from "./clients.js";

/** Boards that are shown; the filter finds the others. */
const MOST_BOARDS = 200;
/** Readings of each that are shown; the topics' page has the others. */
const MOST_READINGS = 20;
const GONE = ["offline", "gone"];
/** Where boards that are not here now have left something in the past. */
const TELEMETRY = ["telemetry/**", { last: 1000 }];
const LIGHTMQ = ["lightmq/*/*", { last: PAGE }];

/**
 * A board: who has a presence, who sends telemetry (docs/node.md), or a LightMQ client.
 *
 * `past`: when it was heard last, of one that only the broker's past knows; else 0.
 *
 * @typedef {{name: string, presence: any, client: any, readings: any[], past: number}} Board
 */

/** Boards with presence and last readings, to ping and to call. @param {{live: any}} props */
export function Boards({ live }) {
  const { answer, trouble } = useAnswer(live, "clients", [{ limit: PAGE }]);
  const [filter, setFilter] = useState("");
  const telemetry = useAnswer(live, "history", TELEMETRY, PAST_LOOK_MS).answer;
  const lightmq = useAnswer(live, "history", LIGHTMQ, PAST_LOOK_MS).answer;
  // The page is shown anew several times a second, the past changes once a minute.
  const past = useMemo(
    () => pastBoards([telemetry, lightmq].flatMap((told) => told?.publications ?? [])),
    [telemetry, lightmq],
  );
  const boards = [...new Map([...past, ...boardsIn(live.topics, answer?.clients ?? [])]).values()];
  boards.sort((one, other) => (one.name < other.name ? -1 : 1));
  const found = boards.filter((board) => board.name.toLowerCase().includes(filter.toLowerCase()));
  return html`
    <h1>Boards</h1>
    ${trouble && html`<p class="notice bad">${trouble}</p>`}
    <div class="bar">
      <input
        type="search"
        data-filter
        placeholder="Filter"
        aria-label="Filter boards"
        value=${filter}
        onInput=${(/** @type {any} */ event) => setFilter(event.currentTarget.value)}
      />
      <span class="soft" role="status">
        ${found.length === boards.length ? boards.length : `${found.length} of ${boards.length}`}
        ${found.length > MOST_BOARDS ? `, ${MOST_BOARDS} shown` : ""}
      </span>
    </div>
    ${boards.length === 0 &&
    html`<p class="soft empty">
      No board has been heard of: a LightMQ client, or who publishes to <code>status/BOARD</code>
      ${" or "}<code>telemetry/BOARD/SENSOR</code>.
    </p>`}
    <ul class="boards">
      ${found
        .slice(0, MOST_BOARDS)
        .map((board) => html`<${BoardCard} key=${board.name} live=${live} board=${board} />`)}
    </ul>
  `;
}

/**
 * Boards as they were.
 *
 * @param {any[]} past publications, as the broker's history tells them
 * @returns {Map<string, Board>}
 */
function pastBoards(past) {
  const topics = new Topics();
  topics.take(
    past.map(({ topic, at, text, bytes }) => {
      return { topic, at, payload: text ?? bytes ?? "", properties: {}, retained: true };
    }),
  );
  const boards = boardsIn(topics, []);
  for (const board of boards.values()) {
    board.past = Math.max(board.presence?.at ?? 0, ...board.readings.map((each) => each.at ?? 0));
    board.presence = null; // it says how it was
  }
  return boards;
}

/** @param {Topics} topics @param {any[]} clients @returns {Map<string, Board>} */
function boardsIn({ root }, clients) {
  /** @type {Map<string, Board>} */
  const boards = new Map();
  const board = (/** @type {string} */ name) => {
    let found = boards.get(name);
    if (found === undefined) {
      found = { name, presence: null, client: null, readings: [], past: 0 };
      boards.set(name, found);
    }
    return found;
  };
  for (const [name, node] of root.children.get("lightmq")?.children ?? []) {
    const said = node.children.get("status")?.topic;
    const up = node.children.get("up")?.topic;
    if (said) board(name).presence = said;
    if (up) board(name).readings.push(up);
  }
  for (const [name, node] of root.children.get("status")?.children ?? []) {
    if (node.topic) board(name).presence ??= node.topic;
  }
  for (const [name, node] of root.children.get("telemetry")?.children ?? []) {
    for (const each of node.children.values()) {
      if (each.topic) board(name).readings.push(each.topic);
    }
  }
  for (const client of clients) {
    if (client.client && client.protocol.startsWith("lightmq")) board(client.client).client = client;
  }
  return boards;
}

/** @param {Board} board @returns {{text: string, tone: string}} */
function presence({ presence: said, client, past }) {
  if (past) return { text: "not heard now", tone: "" };
  if (said) {
    const text = oneLine(said.payload) || "(empty)";
    return { text, tone: GONE.includes(text) ? "bad" : "good" };
  }
  return client ? { text: "connected", tone: "good" } : { text: "no presence", tone: "" };
}

/** @param {{live: any, board: Board}} props */
function BoardCard({ live, board }) {
  const { text, tone } = presence(board);
  const at = board.presence?.at ?? board.client?.since;
  return html`<li class="card board" data-board=${board.name}>
    <div class="head">
      <h2>${board.name}</h2>
      <span class=${`tag ${tone}`}>${text}</span>
    </div>
    <p class="soft">
      ${at ? html`since ${clock(at)}, ${ago(at)}` : ""}
      ${board.past > 0 && html`last heard ${clock(board.past)}, ${ago(board.past)}`}
      ${board.client &&
      html`${at ? " · " : ""}${board.client.protocol} at ${board.client.address}
      ${board.client.rtt_ms !== null ? `, ${milliseconds(board.client.rtt_ms)}` : ""}`}
    </p>
    <ul class="readings">
      ${board.readings.slice(0, MOST_READINGS).map(
        (topic) => html`<li key=${topic.name}>
          <a href=${topicLink(topic.name)}>${sensor(topic)}</a>
          <span class="value">${reading(topic)}</span>
          <${Sparkline} numbers=${topic.numbers} />
        </li>`,
      )}
      ${board.readings.length > MOST_READINGS &&
      html`<li class="soft">and ${board.readings.length - MOST_READINGS} more</li>`}
    </ul>
    ${board.client &&
    html`<div class="bar">
      <${Ping} live=${live} client=${board.client} />
      <${Call} live=${live} name=${board.name} />
    </div>`}
  </li>`;
}

/** @param {any} topic @returns {any} what its JSON says, null if it is none */
function json(topic) {
  if (typeof topic.payload !== "string" || !topic.payload.startsWith("{")) return null;
  try {
    return JSON.parse(topic.payload);
  } catch {
    return null;
  }
}

/** @param {any} topic @returns {string} */
function sensor(topic) {
  const said = json(topic)?.sensor;
  return typeof said === "string" ? said : topic.name.split("/").at(-1);
}

/** @param {any} topic @returns {string} */
function reading(topic) {
  const said = json(topic);
  if (said && typeof said.value === "number") {
    return `${said.value} ${typeof said.unit === "string" ? said.unit : ""}`;
  }
  return oneLine(topic.payload);
}

/** Asks a board, and shows its answer. @param {{live: any, name: string}} props */
function Call({ live, name }) {
  const [question, setQuestion] = useState("");
  const [said, setSaid] = useState({ text: "", bad: false });
  const call = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setSaid({ text: "…", bad: false });
    try {
      const answer = await live.client.call(name, question);
      setSaid({ text: oneLine(answer) || "(empty)", bad: false });
    } catch (error) {
      setSaid({ text: /** @type {Error} */ (error).message, bad: true });
    }
  };
  return html`<form class="call" onSubmit=${call}>
    <input
      name="question"
      placeholder="Question"
      aria-label=${`Question to ${name}`}
      value=${question}
      onInput=${(/** @type {any} */ event) => setQuestion(event.currentTarget.value)}
    />
    <button type="submit" aria-label=${`Call ${name}`}>Call</button>
    <output class=${said.bad ? "bad" : ""}>${said.text}</output>
  </form>`;
}
