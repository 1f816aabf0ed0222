import { printable } from "/printable.js";

// Asks for what is chosen, and again every two seconds while somebody looks.
const EVERY_MS = 2000, BOARDS_MS = 15000;
const at = (id) => document.getElementById(id);
const board = at("board"), span = at("span"), since = at("since"), until = at("until"), said = at("said");
const known = new Map(); // board -> [first, last], ISO 8601
const before = new URLSearchParams(location.hash.slice(1)); // what was looked at the last time
let asked = 0, boardsAt = -Infinity;

function say(text, wrong = false) {
  said.textContent = printable(text);
  said.classList.toggle("wrong", wrong);
}

async function get(path) {
  const answer = await fetch(path, { cache: "no-store" }).catch(() => {
    throw new Error(`${location.host} does not answer; it is asked again`);
  });
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error);
  return found;
}

async function readBoards() {
  const found = await get("/boards");
  const names = found.map(([name]) => name);
  if (boardsAt === -Infinity || names.join("\n") !== [...known.keys()].join("\n")) {
    const chosen = board.value || before.get("board");
    if (chosen && !names.includes(chosen)) names.unshift(chosen); // it may come yet
    board.replaceChildren(...names.map((name) => new Option(printable(name), name, false, name === chosen)));
  }
  known.clear();
  for (const [name, first, last] of found) known.set(name, [first, last]);
  boardsAt = performance.now();
}

function query() {
  const wanted = new URLSearchParams({ board: board.value });
  if (span.value === "between") {
    if (!since.value || !until.value) return null;
    wanted.set("since", since.value + "Z");
    wanted.set("until", until.value + "Z");
  } else {
    wanted.set("span", span.value);
  }
  if (matchMedia("(prefers-color-scheme: dark)").matches) wanted.set("dark", "1");
  return wanted;
}

const inUtc = (time) => time.slice(0, 16).replace("T", " ");
const of = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;

async function show() {
  const mine = ++asked;
  try {
    if (performance.now() - boardsAt > BOARDS_MS) await readBoards();
    if (!board.value) return say("No readings yet: the tables have no roll-up of any board.");
    const wanted = query();
    if (!wanted) return say("Choose both times.");
    const found = await get("/figure?" + wanted);
    if (mine !== asked) return; // somebody chose something else meanwhile
    await Plotly.react("plots", found.figure.data, found.figure.layout, { responsive: true });
    if (!found.points) say(`${board.value} has no readings` + (known.has(board.value) ?
      ` in this time; there are some from ${known.get(board.value).map(inUtc).join(" to ")} UTC.` : " in these tables."));
    else say(`${of(found.sensors, "sensor")}, ${of(found.points, "point")} of ${found.table}, ${of(found.alerts, "alert")}` +
      (found.whole ? "" : "; the board has more sensors than are shown"));
  } catch (error) {
    if (mine === asked) say(String(error.message || error), true);
  }
}

function remember() {
  for (const label of document.querySelectorAll(".between")) label.hidden = span.value !== "between";
  const times = known.get(board.value);
  if (span.value === "between" && times && !since.value && !until.value)
    [since.value, until.value] = times.map((time) => time.slice(0, 16));
  const kept = new URLSearchParams({ board: board.value, span: span.value });
  if (span.value === "between") { kept.set("since", since.value); kept.set("until", until.value); }
  history.replaceState(null, "", "#" + kept);
}

async function again() {
  if (!document.hidden) await show();
  setTimeout(again, EVERY_MS);
}

if ([...span.options].some((option) => option.value === before.get("span"))) span.value = before.get("span");
since.value = before.get("since") || "";
until.value = before.get("until") || "";
at("asked").addEventListener("change", () => { remember(); show(); });
at("asked").addEventListener("submit", (event) => event.preventDefault());
again().then(remember);
