import { PAGE, useAnswer } from "../components/asked.js";
import { Table } from "../components/table.js";
import { oneLine } from "../decode.js";
import { bytes, dateTime } from "../format.js";
import { html, useState } from "../html.js";
import { topicLink } from "../route.js";

/** What is retained, and the last wills of who is connected. @param {{live: any}} props */
export function Retained({ live }) {
  const [prefix, setPrefix] = useState("");
  const retained = useAnswer(live, "retained", [{ prefix, limit: PAGE }]);
  return html`
    <h1>Retained messages</h1>
    <div class="bar">
      <label>
        Topics that begin with
        <input
          value=${prefix}
          onChange=${(/** @type {any} */ event) => setPrefix(event.currentTarget.value)}
        />
      </label>
    </div>
    <${Table}
      caption="Retained messages"
      rows=${retained.answer?.retained}
      more=${retained.answer?.more}
      trouble=${retained.trouble}
      id=${(/** @type {any} */ row) => row.topic}
      empty="Nothing is retained."
      columns=${[
        { name: "Topic", value: (row) => row.topic, show: (row) => html`<a href=${topicLink(row.topic)}>${row.topic}</a>` },
        { name: "Value", value: value, show: (row) => html`<span class="mono">${value(row)}</span>` },
        { name: "Since", value: (row) => row.at, show: (row) => dateTime(row.at) },
      ]}
    />
  `;
}

/** @param {any} row @returns {string} */
function value(row) {
  if (row.text !== undefined) return oneLine(row.text);
  return row.bytes instanceof Uint8Array ? oneLine(row.bytes) : "";
}

/** What is published when a client leaves. @param {{live: any}} props */
export function Wills({ live }) {
  const { answer, trouble } = useAnswer(live, "wills", [{ limit: PAGE }]);
  return html`
    <h1>Last wills</h1>
    <p class="soft">What the broker publishes for a client when its connection ends.</p>
    <${Table}
      caption="Last wills"
      rows=${answer?.wills}
      more=${answer?.more}
      trouble=${trouble}
      id=${(/** @type {any} */ row) => `${row.id} ${row.topic}`}
      empty="Nobody who is connected has left a will."
      columns=${[
        { name: "Client", value: (row) => row.client || `connection ${row.id}` },
        { name: "Protocol", value: (row) => row.protocol },
        { name: "Topic", value: (row) => row.topic, show: (row) => html`<a href=${topicLink(row.topic)}>${row.topic}</a>` },
        { name: "Value", value: (row) => row.text ?? "", show: (row) => html`<span class="mono">${row.text === undefined || row.text === null ? bytes(row.bytes) : oneLine(row.text)}</span>` },
        { name: "Retained then", value: (row) => (row.retain ? "yes" : "no") },
      ]}
    />
  `;
}
