import { PAGE, useAnswer } from "../components/asked.js";
import { Table } from "../components/table.js";
import { ago, amount, bytes, dateTime, milliseconds } from "../format.js";
import { html, useState } from "../html.js";

/** Who is connected. @param {{live: any}} props */
export function Clients({ live }) {
  const { answer, trouble } = useAnswer(live, "clients", [{ limit: PAGE }]);
  return html`
    <h1>Clients</h1>
    <${Table}
      caption="Clients"
      rows=${answer?.clients}
      more=${answer?.more}
      trouble=${trouble}
      id=${(/** @type {any} */ row) => row.id}
      empty="Nobody is connected."
      columns=${[
        { name: "Client", value: nameOf, show: name },
        { name: "Ping", value: () => "", show: (row) => html`<${Ping} live=${live} client=${row} />` },
        { name: "Protocol", value: (row) => row.protocol },
        { name: "Principal", value: (row) => row.principal },
        { name: "Address", value: (row) => row.address },
        { name: "Subscriptions", value: (row) => row.subscriptions.count, show: subscriptions, number: true },
        { name: "Waiting", value: (row) => row.waiting_bytes, show: (row) => bytes(row.waiting_bytes), number: true },
        { name: "RTT", value: (row) => row.rtt_ms, show: (row) => milliseconds(row.rtt_ms), number: true },
        { name: "Published", value: (row) => row.published, show: (row) => amount(row.published), number: true },
        { name: "Received", value: (row) => row.received, show: (row) => bytes(row.received), number: true },
        { name: "Sent", value: (row) => row.sent, show: (row) => bytes(row.sent), number: true },
        { name: "Since", value: (row) => row.since, show: (row) => html`<span title=${dateTime(row.since)}>${ago(row.since)}</span>` },
      ]}
    />
  `;
}

/** @param {any} row @returns {string} */
function nameOf(row) {
  return row.client || `connection ${row.id}`;
}

/** @param {any} row */
function name(row) {
  return row.client || html`<span class="soft">${nameOf(row)}</span>`;
}

/** @param {any} row */
function subscriptions({ subscriptions: { count, patterns } }) {
  if (count === 0) return "0";
  const more = count - patterns.length;
  return html`<details>
    <summary>${count}</summary>
    <ul class="plain mono">
      ${patterns.map((/** @type {string} */ each) => html`<li key=${each}>${each}</li>`)}
      ${more > 0 && html`<li class="soft">and ${more} more</li>`}
    </ul>
  </details>`;
}

/**
 * A button that measures a round trip to a client, as the broker tells of it: by the number of its
 * connection, as others may have its name, or it has none.
 *
 * @param {{live: any, client: any}} props
 */
export function Ping({ live, client }) {
  const [said, setSaid] = useState("");
  const ping = async () => {
    setSaid("…");
    try {
      setSaid(milliseconds(await live.client.ping(client.id)));
    } catch (error) {
      setSaid(/** @type {Error} */ (error).message);
    }
  };
  return html`<span class="ping">
    <button type="button" onClick=${ping} aria-label=${`Ping ${nameOf(client)}`}>Ping</button>
    <span role="status" title=${said}>${said}</span>
  </span>`;
}
