/**
 * The form that publishes.
 *
 * @module
 */

import { html, useState } from "../html.js";

/** @param {string} text @returns {Uint8Array} @throws {Error} */
function fromHex(text) {
  const digits = text.replace(/\s+/g, "");
  if (digits.length % 2 || /[^0-9a-fA-F]/.test(digits)) {
    throw new Error("hex has two digits for each byte: 01 ff");
  }
  return Uint8Array.from(digits.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

/** @param {{live: any, topic: string, fixed: boolean}} props `fixed`: the topic is given */
export function Publish({ live, topic: given, fixed }) {
  const [topic, setTopic] = useState(given);
  const [body, setBody] = useState("");
  const [kind, setKind] = useState("text");
  const [retain, setRetain] = useState(false);
  const [said, setSaid] = useState({ text: "", bad: false });
  const to = fixed ? given : topic;
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      if (kind === "JSON") JSON.parse(body);
      await live.client.publish(to, kind === "hex" ? fromHex(body) : body, { retain });
      setSaid({ text: `Published to ${to} at ${new Date().toLocaleTimeString("en-GB")}.`, bad: false });
    } catch (error) {
      setSaid({ text: `Not published: ${/** @type {Error} */ (error).message}`, bad: true });
    }
  };
  const set = (/** @type {(value: any) => void} */ setter) => (/** @type {any} */ event) =>
    setter(event.currentTarget.value);
  return html`<form class="publish" onSubmit=${submit}>
    ${!fixed &&
    html`<label>Topic<input name="topic" required value=${topic} onInput=${set(setTopic)} /></label>`}
    <label>
      Payload
      <textarea name="payload" rows="3" spellcheck=${false} value=${body} onInput=${set(setBody)} />
    </label>
    <div class="bar">
      <label>
        As
        <select name="kind" value=${kind} onChange=${set(setKind)}>
          ${["text", "JSON", "hex"].map((each) => html`<option key=${each}>${each}</option>`)}
        </select>
      </label>
      <label class="check">
        <input
          type="checkbox"
          name="retain"
          checked=${retain}
          onChange=${(/** @type {any} */ event) => setRetain(event.currentTarget.checked)}
        />
        Retain
      </label>
      <button class="primary" type="submit">Publish</button>
    </div>
    <p class=${said.bad ? "notice bad" : "soft"} role="status">${said.text}</p>
  </form>`;
}
