/**
 * A table that can be filtered and sorted.
 *
 * @module
 */

import { html, useState } from "../html.js";

/** Rows that are shown; a filter finds the others. */
export const MOST_ROWS = 500;

/**
 * A column: `value` is what it is sorted by and searched for, `show` what is seen, if that differs.
 *
 * @typedef {{name: string, value: (row: any) => string | number | null | undefined,
 *   show?: (row: any) => any, number?: boolean}} Column
 */

/**
 * @param {{caption: string, columns: Column[], rows: any[] | undefined, id: (row: any) => any,
 *   empty: string, more?: boolean, trouble?: string}} props `rows`: undefined while it is not known
 */
export function Table({ caption, columns, rows, id, empty, more = false, trouble = "" }) {
  const [filter, setFilter] = useState("");
  const [sort, setSort] = useState({ column: -1, down: false });
  if (rows === undefined) {
    return trouble ? html`<p class="notice bad">${trouble}</p>` : html`<p class="soft">Asking …</p>`;
  }
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = (/** @type {any} */ row) => {
    const text = columns.map((column) => column.value(row) ?? "").join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  };
  let shown = words.length ? rows.filter(matches) : [...rows];
  if (sort.column >= 0) {
    const value = columns[sort.column].value;
    const order = sort.down ? -1 : 1;
    shown.sort((one, other) => order * compared(value(one), value(other)));
  }
  const found = shown.length;
  shown = shown.slice(0, MOST_ROWS);
  return html`<div class="table">
    ${trouble && html`<p class="notice bad">${trouble}</p>`}
    <div class="bar">
      <input
        type="search"
        data-filter
        placeholder="Filter"
        aria-label=${`Filter ${caption}`}
        value=${filter}
        onInput=${(/** @type {any} */ event) => setFilter(event.currentTarget.value)}
      />
      <span class="soft" role="status">
        ${found === rows.length ? `${found}` : `${found} of ${rows.length}`}${more ? ", and more" : ""}
        ${found > MOST_ROWS ? `, ${MOST_ROWS} shown` : ""}
      </span>
    </div>
    ${rows.length === 0 && html`<p class="soft empty">${empty}</p>`}
    ${rows.length > 0 &&
    html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}>
      <table>
        <caption class="unseen">
          ${caption}
        </caption>
        <thead>
          <tr>
            ${columns.map((column, index) => {
              const sorted = sort.column === index;
              const down = sorted && !sort.down;
              return html`<th
                key=${column.name}
                scope="col"
                class=${column.number ? "number" : ""}
                aria-sort=${sorted ? (sort.down ? "descending" : "ascending") : "none"}
              >
                <button type="button" onClick=${() => setSort({ column: index, down })}>
                  ${column.name}<i aria-hidden="true">${sorted ? (sort.down ? "▼" : "▲") : ""}</i>
                </button>
              </th>`;
            })}
          </tr>
        </thead>
        <tbody>
          ${shown.map(
            (row) => html`<tr key=${id(row)}>
              ${columns.map(
                (column) => html`<td key=${column.name} class=${column.number ? "number" : ""}>
                  ${column.show ? column.show(row) : column.value(row) ?? "–"}
                </td>`,
              )}
            </tr>`,
          )}
        </tbody>
      </table>
    </div>`}
  </div>`;
}

/** @param {any} one @param {any} other @returns {number} */
function compared(one, other) {
  if (one === other) return 0;
  if (one === null || one === undefined) return 1;
  if (other === null || other === undefined) return -1;
  return one < other ? -1 : 1;
}
