/**
 * A payload, in the format that somebody chooses.
 *
 * @module
 */

import { FORMATS, NotDecodable, bytesOf, view } from "../decode.js";
import { bytes } from "../format.js";
import { html, useState } from "../html.js";

/** @param {{payload: string | Uint8Array, name: string}} props */
export function Payload({ payload, name }) {
  const [format, setFormat] = useState("auto");
  let shown;
  let wrong = "";
  try {
    shown = view(payload, format);
  } catch (error) {
    if (!(error instanceof NotDecodable)) throw error;
    wrong = `This is no ${format}: ${error.message}.`;
    shown = view(payload, "hex");
  }
  return html`<div class="payload">
    <div class="bar">
      <label>
        Seen as
        <select
          value=${format}
          onChange=${(/** @type {any} */ event) => setFormat(event.currentTarget.value)}
        >
          ${FORMATS.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}
        </select>
      </label>
      <span class="soft">${shown.format}, ${bytes(bytesOf(payload).length)}</span>
    </div>
    ${wrong && html`<p class="notice bad">${wrong}</p>`}
    <pre tabindex="0" role="region" aria-label=${`Payload of ${name}`}>${shown.text || "(empty)"}</pre>
  </div>`;
}
