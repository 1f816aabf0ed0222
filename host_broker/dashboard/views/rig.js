import { useFetched } from "../components/fetched.js";
import { ago, duration } from "../format.js";
import { html } from "../html.js";
import { linkTo } from "../route.js";

/** A run that has said nothing for so long is taken for ended. */
const SILENT_MS = 300_000;

/** @param {any} run @returns {string} */
function address(run) {
  return `/dashboard/rig/${[run.date, run.rig, run.run].map(encodeURIComponent).join("/")}`;
}

/** Runs of the rig: the one that is chosen, else the newest. @param {{live: any, rest: string[]}} props */
export function Rig({ live, rest }) {
  const { document: told, trouble } = useFetched("/dashboard/rig", live.paused);
  const runs = told?.runs;
  const [date, rig, run] = rest;
  const shown = run ? { date, rig, run } : runs?.[0];
  return html`
    <h1>Rig</h1>
    ${trouble && html`<p class="notice bad">${trouble}</p>`}
    ${told && runs === null &&
    html`<p class="notice">
      No folder of runs is set. Start the broker with <code>--set http.rig=DIR</code>, where DIR is${" the "}
      <code>--out</code> of <code>motemq rig run</code>.
    </p>`}
    ${runs?.length === 0 && html`<p class="soft empty">There is no run in the folder yet.</p>`}
    ${shown && html`<${Run} run=${shown} paused=${live.paused} />`}
    ${runs?.length > 0 &&
    html`<h2>Runs</h2>
      <ul class="runs">
        ${runs.map(
          (/** @type {any} */ each) => html`<li key=${`${each.date} ${each.rig} ${each.run}`}>
            <a
              href=${linkTo("rig", each.date, each.rig, each.run)}
              aria-current=${each.run === shown?.run && each.rig === shown?.rig ? "true" : undefined}
              >${each.date} · ${each.rig} · ${each.run}</a
            >
            <span class="soft">${ago(each.changed)}</span>
            ${each.report && html`<a href=${`${address(each)}/report`} target="_blank" rel="noopener">Report</a>`}
          </li>`,
        )}
      </ul>`}
  `;
}

/** @param {{run: any, paused: boolean}} props */
function Run({ run, paused }) {
  const { document: found, trouble } = useFetched(address(run), paused);
  if (!found) return html`<p class="soft">${trouble || "Reading …"}</p>`;
  const running = !found.finished && Date.now() - found.changed < SILENT_MS;
  const outcome = found.outcome || (running ? "running" : "not finished");
  const seconds = (Date.parse(found.finished) || found.changed) - Date.parse(found.started);
  return html`<section class="card run">
    <div class="head">
      <h2>${found.rig}, ${found.run}</h2>
      <span class=${`tag ${tone(outcome)}`}>${outcome}</span>
    </div>
    <p class="soft">
      ${found.started && `begun ${found.started.slice(0, 19).replace("T", " ")} UTC`}
      ${seconds > 0 ? `, ${duration(seconds / 1000)}` : ""}
      ${found.unreadable > 0 ? `, ${found.unreadable} unreadable lines` : ""}
      ${found.more ? ", and more events than are read here" : ""}
    </p>
    <div class="scroll" tabindex="0" role="region" aria-label="Boards of the run">
      <table>
        <thead>
          <tr>
            <th scope="col">Board</th>
            <th scope="col">Outcome</th>
            <th scope="col">Now</th>
            <th scope="col" class="number">Passed</th>
            <th scope="col" class="number">Failed</th>
            <th scope="col">What went wrong</th>
          </tr>
        </thead>
        <tbody>
          ${found.boards.map(
            (/** @type {any} */ board) => html`<tr key=${board.board}>
              <td>
                ${board.board}
                <small class="soft">${board.model}${board.virtual ? ", virtual" : ""}</small>
              </td>
              <td><span class=${`tag ${tone(board.outcome)}`}>${board.outcome || "running"}</span></td>
              <td>${board.outcome ? "–" : [board.step, board.check].filter(Boolean).join(", ")}</td>
              <td class="number">${board.checks.passed}</td>
              <td class="number">${board.checks.failed + board.checks.error}</td>
              <td class="why">${board.message}</td>
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
  </section>`;
}

/** @param {string} outcome @returns {string} */
function tone(outcome) {
  if (outcome === "passed") return "good";
  return outcome === "failed" || outcome === "error" ? "bad" : "";
}
