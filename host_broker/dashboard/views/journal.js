import { useAnswer } from "../components/asked.js";
import { Table } from "../components/table.js";
import { amount, bytes } from "../format.js";
import { html } from "../html.js";

/** The journal, and how far its consumer groups are behind. @param {{live: any}} props */
export function Journal({ live }) {
  const { answer, trouble } = useAnswer(live, "journal");
  const journal = answer?.journal;
  return html`
    <h1>Journal</h1>
    ${trouble && html`<p class="notice bad">${trouble}</p>`}
    ${answer !== undefined &&
    !journal &&
    html`<p class="notice">This broker keeps no journal: it was started without <code>--data</code>.</p>`}
    ${journal &&
    html`<dl class="figures">
        <div class="figure">
          <dt>Segments</dt>
          <dd>${amount(journal.segments)}</dd>
        </div>
        <div class="figure">
          <dt>Size</dt>
          <dd>${bytes(journal.bytes)}</dd>
        </div>
        <div class="figure">
          <dt>Consumer groups</dt>
          <dd>${amount(journal.groups.length)}</dd>
        </div>
      </dl>
      <h2>Consumer groups</h2>
      <${Table}
        caption="Consumer groups"
        rows=${journal.groups}
        id=${(/** @type {any} */ row) => row.group}
        empty="Nobody reads the journal in a group."
        columns=${[
          { name: "Group", value: (row) => row.group },
          { name: "Records behind", value: (row) => row.lag, show: (row) => amount(row.lag), number: true },
          { name: "Last said", value: (row) => said(row) },
        ]}
      />
      <h2>Partitions</h2>
      <${Table}
        caption="Partitions"
        rows=${journal.partitions}
        id=${(/** @type {any} */ row) => row.partition}
        empty="There is no partition."
        columns=${columns(journal.partitions)}
      />`}
  `;
}

/** @param {any} row @returns {string} */
function said(row) {
  return typeof row.said === "string" ? row.said : JSON.stringify(row.said ?? null);
}

/** @param {any[]} partitions */
function columns(partitions) {
  return Object.keys(partitions[0] ?? {}).map((name) => ({
    name: name.charAt(0).toUpperCase() + name.slice(1).replaceAll("_", " "),
    value: (/** @type {any} */ row) => row[name],
    show: (/** @type {any} */ row) => (name.includes("bytes") ? bytes(row[name]) : String(row[name] ?? "–")),
    number: true,
  }));
}
