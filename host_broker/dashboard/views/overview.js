import { Chart } from "../components/chart.js";
import { amount, bytes, duration, milliseconds } from "../format.js";
import { html } from "../html.js";
import { clientCount, lost } from "../live.js";
import { topicLink } from "../route.js";

const BUSIEST = 10;

/** Rates, latency and counts, and the busiest topics. @param {{live: any, theme: string}} props */
export function Overview({ live, theme }) {
  const { samples, stats } = live;
  const times = samples.map((/** @type {any} */ each) => each.at);
  const values = (/** @type {string} */ name) =>
    samples.map((/** @type {any} */ each) => each[name]);
  const busiest = [...live.topics.all.values()]
    .filter((topic) => topic.rate >= 0.05)
    .sort((one, other) => other.rate - one.rate)
    .slice(0, BUSIEST);
  const trouble = live.troubles.get("stats");
  const seen = amount(live.topics.all.size);
  return html`
    <h1>Overview</h1>
    ${trouble && html`<p class="notice bad">${trouble}</p>`}
    <dl class="figures">
      ${figure("Up", stats && duration(stats.up_s))}
      ${figure("Clients", stats && amount(clientCount(stats)))}
      ${figure("Publications", stats && amount(stats.publications))}
      ${figure("Topics seen", live.topics.notRemembered > 0 ? `more than ${seen}` : seen)}
      ${figure("Retained", stats && amount(stats.retained))}
      ${figure("Queues", stats && amount(Object.keys(stats.queues ?? {}).length))}
      ${figure("Discarded or dropped", stats && amount(lost(stats)), stats && lost(stats) > 0)}
    </dl>
    <div class="cards">
      <section class="card">
        <${Chart}
          title="Publications per second"
          times=${times}
          theme=${theme}
          spell=${amount}
          series=${[
            { name: "published", color: "--c0", values: values("published") },
            { name: "discarded", color: "--c6", values: values("discarded") },
          ]}
        />
      </section>
      <section class="card">
        <${Chart}
          title="Latency"
          times=${times}
          theme=${theme}
          spell=${milliseconds}
          series=${[{ name: "from here and back", color: "--c2", values: values("latency") }]}
        />
      </section>
      <section class="card">
        <${Chart}
          title="Clients"
          times=${times}
          theme=${theme}
          spell=${amount}
          series=${[{ name: "connected", color: "--c7", values: values("clients") }]}
        />
      </section>
      <section class="card">
        <h3>Busiest topics</h3>
        ${busiest.length === 0 && html`<p class="soft">Nothing is being published.</p>`}
        <ol class="busiest">
          ${busiest.map(
            (topic) => html`<li key=${topic.name}>
              <a href=${topicLink(topic.name)}>${topic.name}</a>
              <b>${topic.rate.toFixed(topic.rate < 10 ? 1 : 0)}/s</b>
            </li>`,
          )}
        </ol>
      </section>
      <section class="card">
        <h3>Clients by protocol</h3>
        <dl class="pairs">
          ${Object.entries(stats?.clients ?? {}).map(
            ([name, count]) => html`<dt key=${name}>${name}</dt>
              <dd>${amount(Number(count))}</dd>`,
          )}
        </dl>
        ${stats?.journal &&
        html`<h3>Journal</h3>
          <dl class="pairs">
            ${Object.entries(stats.journal).map(
              ([name, value]) => html`<dt key=${name}>${name.replaceAll("_", " ")}</dt>
                <dd>${spelled(name, value)}</dd>`,
            )}
          </dl>`}
      </section>
      <section class="card">
        <h3>Why something was discarded or dropped</h3>
        ${stats && lost(stats) === 0 && html`<p class="soft">Nothing was.</p>`}
        <dl class="pairs">${stats && reasons(stats)}</dl>
      </section>
    </div>
  `;
}

/** @param {string} name @param {any} value @param {boolean} [bad] */
function figure(name, value, bad = false) {
  return html`<div class=${bad ? "figure bad" : "figure"}>
    <dt>${name}</dt>
    <dd>${value || "–"}</dd>
  </div>`;
}

/** @param {string} name @param {any} value */
function spelled(name, value) {
  if (typeof value !== "number") return String(value);
  return name.includes("bytes") ? bytes(value) : amount(value);
}

/** @param {any} stats */
function reasons(stats) {
  const found = [];
  for (const [protocol, rules] of Object.entries(stats.discarded ?? {})) {
    for (const [rule, count] of Object.entries(/** @type {any} */ (rules))) {
      found.push({ name: `${protocol}, ${rule}`, count: Number(count) });
    }
  }
  for (const [protocol, dropped] of Object.entries(stats.dropped ?? {})) {
    found.push({ name: `${protocol}, slow receivers`, count: /** @type {any} */ (dropped).messages });
  }
  return found
    .filter((each) => each.count > 0)
    .sort((one, other) => other.count - one.count)
    .map(
      (each) => html`<dt key=${each.name}>${each.name}</dt>
        <dd>${amount(each.count)}</dd>`,
    );
}
