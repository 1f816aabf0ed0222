/**
 * The dashboard: who looks, what is chosen, and the frame around it.
 *
 * @module
 */

import { html, render, useEffect, useReducer, useRef, useState } from "./html.js";
import { Live, Session } from "./live.js";
import { printable } from "./printable.js";
import { linkTo, routeNow } from "./route.js";
import { Alerts, useOpenAlerts } from "./views/alerts.js";
import { Boards } from "./views/boards.js";
import { Clients } from "./views/clients.js";
import { Journal } from "./views/journal.js";
import { Login } from "./views/login.js";
import { Overview } from "./views/overview.js";
import { Queues } from "./views/queues.js";
import { Retained, Wills } from "./views/retained.js";
import { Rig } from "./views/rig.js";
import { Topics } from "./views/topics.js";

const VIEWS = [
  { path: "overview", name: "Overview", view: Overview },
  { path: "boards", name: "Boards", view: Boards },
  { path: "topics", name: "Topics", view: Topics },
  { path: "clients", name: "Clients", view: Clients },
  { path: "queues", name: "Queues", view: Queues },
  { path: "retained", name: "Retained", view: Retained },
  { path: "wills", name: "Last wills", view: Wills },
  { path: "journal", name: "Journal", view: Journal },
  { path: "alerts", name: "Alerts", view: Alerts },
  { path: "rig", name: "Rig", view: Rig },
];
const THEMES = ["auto", "light", "dark"];
const THEME_KEY = "motemq-theme";
const AGAIN_MS = 2000;

/** Asks who we are, and shows the form to log in, or the dashboard. */
function App() {
  const [session, setSession] = useState(/** @type {Session | null} */ (null));
  const [asked, ask] = useReducer((count) => count + 1, 0);
  const mayAskAt = useRef(0);
  // At once, as a session may be over; then not too often: it may last, and UMQ lets nobody in.
  const refused = () => {
    const wait = Math.max(0, mayAskAt.current - performance.now());
    mayAskAt.current = performance.now() + wait + AGAIN_MS;
    setTimeout(ask, wait);
  };
  useEffect(() => {
    let gone = false;
    const look = () =>
      Session.ask()
        .then((found) => gone || setSession(found))
        .catch(() => gone || setTimeout(look, AGAIN_MS));
    look();
    return () => {
      gone = true;
    };
  }, [asked]);
  if (session === null) return html`<main id="main" class="login"><p class="soft">Connecting …</p></main>`;
  if (!session.letIn) return html`<${Login} session=${session} done=${ask} />`;
  return html`<${Frame} session=${session} ask=${ask} refused=${refused} />`;
}

/** @param {{session: Session, ask: () => void, refused: () => void}} props */
function Frame({ session, ask, refused }) {
  const [live, setLive] = useState(/** @type {Live | null} */ (null));
  const [, changed] = useReducer((count) => count + 1, 0);
  const [route, setRoute] = useState(routeNow);
  const [theme, setTheme] = useTheme();
  const [trouble, setTrouble] = useState("");

  useEffect(() => {
    const made = new Live(refused);
    const end = made.listen(() => changed(undefined));
    setLive(made);
    return () => {
      end();
      made.close();
    };
  }, [session]);
  useEffect(() => {
    const moved = () => setRoute(routeNow());
    addEventListener("hashchange", moved);
    addEventListener("keydown", onKeyDown);
    return () => {
      removeEventListener("hashchange", moved);
      removeEventListener("keydown", onKeyDown);
    };
  }, []);

  const chosen = VIEWS.find((each) => each.path === route.view) ?? VIEWS[0];
  useEffect(() => {
    document.title = `${printable(route.rest[0] || chosen.name)} – MoteMQ`;
  }, [chosen, route]);
  if (live === null) return null;
  const logOut = async () => {
    try {
      const why = await session.end();
      if (why) {
        setTrouble(`You are not logged out, as the broker refused it: ${why}. Load the page again.`);
        return;
      }
    } catch (error) {
      setTrouble(`You are not logged out, as the broker did not answer: ${/** @type {Error} */ (error).message}`);
      return;
    }
    live.close();
    ask();
  };
  const nextTheme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  return html`
    <a class="skip" href=${location.hash || "#/"} onClick=${toMain}>Skip to the content</a>
    <header>
      <a class="brand" href="#/overview">MoteMQ</a>
      <${State} live=${live} />
      <div class="tools">
        <button
          type="button"
          aria-pressed=${live.paused}
          onClick=${() => live.pause(!live.paused)}
        >
          ${live.paused ? "Go on" : "Pause"}
        </button>
        <button type="button" aria-label=${`Colours: ${theme}. Change to ${nextTheme}`} onClick=${() => setTheme(nextTheme)}>
          ${{ auto: "Auto", light: "Light", dark: "Dark" }[theme]}
        </button>
        ${session.principal && html`<span class="who" title="Who you are">${session.principal}</span>`}
        ${session.csrf && html`<button type="button" onClick=${logOut}>Log out</button>`}
      </div>
    </header>
    <nav aria-label="Sections"><${Sections} live=${live} chosen=${chosen} /></nav>
    <main id="main" tabindex="-1">
      ${trouble && html`<p class="notice bad" role="alert">${trouble}</p>`}
      <${chosen.view} key=${chosen.path} live=${live} rest=${route.rest} theme=${theme} />
    </main>
  `;
}

/** @param {{live: Live, chosen: {path: string}}} props */
function Sections({ live, chosen }) {
  const open = useOpenAlerts(live);
  const list = useRef(/** @type {any} */ (null));
  useEffect(() => {
    // On a phone the sections are one row that scrolls.
    list.current.querySelector("[aria-current]").scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [chosen]);
  return html`<ul ref=${list}>
    ${VIEWS.map(
      (each) => html`<li key=${each.path}>
        <a href=${linkTo(each.path)} aria-current=${each === chosen ? "page" : undefined}>
          ${each.name}
          ${each.path === "alerts" && open > 0 && html`<span class="tag bad">${open}<span class="unseen"> open</span></span>`}
        </a>
      </li>`,
    )}
  </ul>`;
}

/** Whether what is shown is what is. @param {{live: Live}} props */
function State({ live }) {
  const { state, error } = live.client;
  let text = "live";
  let tone = "good";
  if (state !== "open") {
    tone = "bad";
    text = live.client.connections === 0 ? "connecting" : "lost, trying again";
    if (state === "closed") text = "closed";
  } else if (live.paused) {
    tone = "";
    text = live.missed > 0 ? `paused, ${live.missed} not shown` : "paused";
  }
  return html`<p class="state" role="status">
    <span class=${`tag ${tone}`}>${text}</span>
    ${live.pattern !== "**" && html`<span class="soft why">only topics of ${live.pattern}</span>`}
    ${state !== "open" && error && html`<span class="soft why">${error.message}</span>`}
    ${live.dropped > 0 && html`<span class="soft">${live.dropped} updates dropped for us</span>`}
  </p>`;
}

/** @returns {[string, (theme: string) => void]} */
function useTheme() {
  const [theme, setTheme] = useState(() => {
    try {
      const kept = localStorage.getItem(THEME_KEY) ?? "auto";
      return THEMES.includes(kept) ? kept : "auto";
    } catch {
      return "auto"; // a browser that keeps nothing for pages
    }
  });
  document.documentElement.dataset.theme = theme;
  return [
    theme,
    (wanted) => {
      try {
        localStorage.setItem(THEME_KEY, wanted);
      } catch {
        // it is for this page only
      }
      document.documentElement.dataset.theme = wanted;
      setTheme(wanted);
    },
  ];
}

/** @param {Event} event */
function toMain(event) {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

/** Ctrl+K goes to the filter of what is shown. @param {KeyboardEvent} event */
function onKeyDown(event) {
  if (event.key === "k" && (event.ctrlKey || event.metaKey)) {
    const filter = /** @type {HTMLElement | null} */ (document.querySelector("[data-filter]"));
    if (filter !== null) {
      event.preventDefault();
      filter.focus();
    }
  }
}

const root = /** @type {HTMLElement} */ (document.getElementById("app"));
root.replaceChildren();
render(html`<${App} />`, root);
