import { PAGE, useAnswer } from "../components/asked.js";
import { useFetched } from "../components/fetched.js";
import { Table } from "../components/table.js";
import { amount, bytes } from "../format.js";
import { html } from "../html.js";

/** Queues and exchanges, with what waits and who takes it. @param {{live: any}} props */
export function Queues({ live }) {
  const { answer, trouble } = useAnswer(live, "queues", [{ limit: PAGE }]);
  const { document: fq, trouble: fqTrouble } = useFetched("/stats.json", live.paused);
  const number = (/** @type {string} */ title, /** @type {string} */ key, spell = amount) => ({
    name: title,
    value: (/** @type {any} */ row) => row[key],
    show: (/** @type {any} */ row) => spell(row[key]),
    number: true,
  });
  return html`
    <h1>Queues</h1>
    <${Table}
      caption="Queues"
      rows=${answer?.queues}
      more=${answer?.more}
      trouble=${trouble}
      id=${(/** @type {any} */ row) => row.queue}
      empty="There is no queue: a client of MicroMsg2 or fq makes one."
      columns=${[
        { name: "Queue", value: (row) => row.queue },
        number("Backlog", "messages"),
        number("Waiting", "waiting"),
        number("Bytes", "bytes", bytes),
        { name: "Consumers", value: consumers, show: (row) => amount(consumers(row)), number: true },
        number("Dropped", "dropped"),
        { name: "When full", value: (row) => row.policy },
        { name: "State", value: state, show: (row) => html`<span class=${row.full ? "tag bad" : "tag"}>${state(row)}</span>` },
      ]}
    />
    <h2>Exchanges</h2>
    <${Table}
      caption="Exchanges"
      rows=${fq ? exchanges(fq) : undefined}
      trouble=${fqTrouble}
      id=${(/** @type {any} */ row) => row.name}
      empty="There is no exchange: a client of fq makes one."
      columns=${[
        { name: "Exchange", value: (row) => row.name },
        number("Messages", "messages"),
        number("Routed", "routed"),
        number("No route", "no_route"),
        number("Dropped", "dropped"),
        { name: "Routes to queues", value: (row) => row.routes.length, show: routes },
      ]}
    />
  `;
}

/** @param {any} fq what fq's page says @returns {any[]} */
function exchanges(fq) {
  return Object.entries(fq.exchanges)
    .filter(([name]) => name !== "_aggregate")
    .map(([name, each]) => ({ ...each, name, routes: Object.values(each.routes ?? {}) }));
}

/** @param {any} row */
function routes({ routes: found }) {
  if (found.length === 0) return "0";
  return html`<details>
    <summary>${found.length}</summary>
    <ul class="plain mono">
      ${found.map(
        (/** @type {any} */ each) => html`<li key=${each.route_id}>
          ${each.queue}: ${each.program || each.prefix || "all"}
        </li>`,
      )}
    </ul>
  </details>`;
}

/** @param {any} row @returns {number} */
function consumers(row) {
  return Array.isArray(row.consumers) ? row.consumers.length : row.consumers;
}

/** @param {any} row @returns {string} */
function state(row) {
  return [row.full ? "full" : "open", row.durable ? "kept on disk" : ""].filter(Boolean).join(", ");
}
