import { PAGE, useAnswer } from "../components/asked.js";
import { Table } from "../components/table.js";
import { amount, bytes } from "../format.js";
import { html } from "../html.js";

/** Queues and exchanges, with what waits and who takes it. @param {{live: any}} props */
export function Queues({ live }) {
  const { answer, trouble } = useAnswer(live, "queues", [{ limit: PAGE }]);
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
  `;
}

/** @param {any} row @returns {number} */
function consumers(row) {
  return Array.isArray(row.consumers) ? row.consumers.length : row.consumers;
}

/** @param {any} row @returns {string} */
function state(row) {
  return [row.full ? "full" : "open", row.durable ? "kept on disk" : ""].filter(Boolean).join(", ");
}
