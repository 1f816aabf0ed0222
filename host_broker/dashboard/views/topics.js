import { Sparkline } from "../components/chart.js";
import { Publish } from "../components/publish.js";
import { oneLine } from "../decode.js";
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { topicLink } from "../route.js";
import { TopicPage } from "./topic.js";

const ROW = 30; // px; style.css has it too
const AROUND = 8; // rows beyond what is seen
/** So many topics are all shown, until somebody folds one. */
const FEW = 60;

/** The tree of topics, and one of them. @param {{live: any, rest: string[], theme: string}} props */
export function Topics({ live, rest, theme }) {
  const chosen = rest[0] ?? "";
  const [filter, setFilter] = useState("");
  const [pattern, setPattern] = useState(live.pattern);
  const [folded, setOpen] = useState(/** @type {Set<string> | null} */ (null));
  const [publishes, setPublishes] = useState(false);
  const trouble = live.troubles.get("topics");
  const count = live.topics.all.size;
  const few = folded === null && count <= FEW;
  const open = useMemo(
    () => (few ? null : new Set([...(folded ?? []), ...ancestors(chosen)])),
    [few, folded, chosen],
  );

  const look = (/** @type {Event} */ event) => {
    event.preventDefault();
    live.subscribe(pattern || "**");
  };
  return html`<div class=${chosen ? "topics chosen" : "topics"}>
    <section class="tree-side">
      <div class="head">
        <h1>Topics</h1>
        <button type="button" aria-expanded=${publishes} onClick=${() => setPublishes(!publishes)}>
          Publish …
        </button>
      </div>
      ${publishes && html`<div class="card"><${Publish} live=${live} topic=${chosen} fixed=${false} /></div>`}
      <div class="bar">
        <input
          type="search"
          data-filter
          placeholder="Filter"
          aria-label="Filter topics"
          value=${filter}
          onInput=${(/** @type {any} */ event) => setFilter(event.currentTarget.value)}
        />
        <form onSubmit=${look} class="pattern">
          <label>
            Pattern
            <input
              name="pattern"
              value=${pattern}
              onInput=${(/** @type {any} */ event) => setPattern(event.currentTarget.value)}
            />
          </label>
          <button type="submit">Look</button>
        </form>
      </div>
      ${trouble && html`<p class="notice bad">${trouble}. Choose a pattern that you may subscribe to.</p>`}
      ${live.topics.notRemembered > 0 &&
      html`<p class="notice">
        There are more than ${count} topics; the others are not shown. A narrower pattern finds them.
      </p>`}
      <${Tree} live=${live} filter=${filter} open=${open} setOpen=${setOpen} chosen=${chosen} />
    </section>
    ${chosen && html`<${TopicPage} key=${chosen} live=${live} name=${chosen} theme=${theme} />`}
  </div>`;
}

/** @param {string} topic @returns {string[]} paths of the levels above it */
function ancestors(topic) {
  const levels = topic.split("/");
  return levels.slice(0, -1).map((_, index) => levels.slice(0, index + 1).join("/"));
}

/**
 * Only rows that are seen are elements of the page: there may be thousands.
 *
 * @param {{live: any, filter: string, open: Set<string> | null, setOpen: (open: Set<string>) => void,
 *   chosen: string}} props
 */
function Tree({ live, filter, open, setOpen, chosen }) {
  const place = useRef(/** @type {any} */ (null));
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(400);
  const [active, setActive] = useState(chosen);
  const rows = useMemo(
    () => live.topics.rows(open, filter),
    [live.topics, live.topics.version, open, filter],
  );
  useEffect(() => {
    const watch = new ResizeObserver(() => setHeight(place.current?.clientHeight ?? 400));
    watch.observe(place.current);
    return () => watch.disconnect();
  }, []);

  const at = rows.findIndex((/** @type {any} */ row) => row.node.path === active);
  const first = Math.max(0, Math.floor(top / ROW) - AROUND);
  const last = Math.min(rows.length, Math.ceil((top + height) / ROW) + AROUND);

  const goTo = (/** @type {number} */ index) => {
    const row = rows[Math.max(0, Math.min(rows.length - 1, index))];
    if (row === undefined) return;
    setActive(row.node.path);
    const y = rows.indexOf(row) * ROW;
    const node = place.current;
    if (y < node.scrollTop) node.scrollTop = y;
    if (y + ROW > node.scrollTop + node.clientHeight) node.scrollTop = y + ROW - node.clientHeight;
  };
  const toggle = (/** @type {any} */ node, /** @type {boolean} */ wanted) => {
    const next = new Set(open ?? rows.map((/** @type {any} */ row) => row.node.path));
    if (wanted) next.add(node.path);
    else next.delete(node.path);
    setOpen(next);
  };
  const isOpen = (/** @type {any} */ node) => open === null || open.has(node.path);
  const choose = (/** @type {any} */ node) => {
    setActive(node.path);
    if (node.children.size > 0 && (node.topic === null || node.path === active)) {
      toggle(node, !isOpen(node));
    }
    if (node.topic !== null) location.hash = topicLink(node.path);
  };
  const onKeyDown = (/** @type {any} */ event) => {
    const row = rows[at];
    const page = Math.max(1, Math.floor(height / ROW) - 1);
    /** @type {Record<string, () => void>} */
    const actions = {
      ArrowDown: () => goTo(at + 1),
      ArrowUp: () => goTo(at - 1),
      PageDown: () => goTo(at + page),
      PageUp: () => goTo(at - page),
      Home: () => goTo(0),
      End: () => goTo(rows.length - 1),
      ArrowRight: () => {
        if (row && row.node.children.size > 0 && !isOpen(row.node)) toggle(row.node, true);
        else goTo(at + 1);
      },
      ArrowLeft: () => {
        if (row && row.node.children.size > 0 && isOpen(row.node)) toggle(row.node, false);
        else goTo(rows.findIndex((/** @type {any} */ each) => each.node.path === ancestors(active).at(-1)));
      },
      Enter: () => row && choose(row.node),
      " ": () => row && choose(row.node),
    };
    if (actions[event.key] && !event.ctrlKey && !event.altKey && !event.metaKey) {
      event.preventDefault();
      actions[event.key]();
    }
  };

  return html`<div
    class="tree"
    role="tree"
    aria-label="Topics"
    tabindex="0"
    aria-activedescendant=${at >= first && at < last ? `row-${at}` : undefined}
    ref=${place}
    onKeyDown=${onKeyDown}
    onScroll=${() => setTop(place.current.scrollTop)}
  >
    ${rows.length === 0 &&
    html`<p class="soft empty">${filter ? "No topic has all these words." : `Nothing has been published${live.pattern === "**" ? "" : ` to ${live.pattern}`}.`}</p>`}
    <div class="rows" role="none" style=${{ height: `${rows.length * ROW}px` }}>
      ${rows.slice(first, last).map((/** @type {any} */ row, /** @type {number} */ index) => {
        const { node, depth } = row;
        const { topic } = node;
        const inner = node.children.size > 0;
        const opened = inner ? filter !== "" || isOpen(node) : undefined;
        return html`<div
          key=${node.path}
          id=${`row-${first + index}`}
          class=${`row ${node.path === active ? "active" : ""} ${node.path === chosen ? "selected" : ""}`}
          role="treeitem"
          aria-level=${depth + 1}
          aria-posinset=${row.position}
          aria-setsize=${row.siblings}
          aria-expanded=${opened}
          aria-selected=${node.path === chosen}
          style=${{ top: `${(first + index) * ROW}px`, paddingLeft: `${depth * 16 + 6}px` }}
          onClick=${() => choose(node)}
        >
          <span class="fold" aria-hidden="true">${inner ? (opened ? "▾" : "▸") : ""}</span>
          <span class="level">${node.level || "(empty)"}</span>
          ${inner && html`<span class="soft below">${node.below}</span>`}
          ${topic !== null &&
          html`<span class="last mono">${oneLine(topic.payload)}</span>
            <${Sparkline} numbers=${topic.numbers} />
            <span class="rate soft">${topic.rate >= 0.05 ? `${topic.rate.toFixed(1)}/s` : ""}</span>`}
        </div>`;
      })}
    </div>
  </div>`;
}
