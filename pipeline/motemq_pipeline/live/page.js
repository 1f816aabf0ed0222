"use strict";
// Asks for what is chosen, and again every two seconds while somebody looks.
const EVERY_MS = 2000, BOARDS_MS = 15000;
const at = (id) => document.getElementById(id);
const board = at("board"), span = at("span"), since = at("since"), until = at("until"), said = at("said");
const known = new Map(); // board -> [first, last], ISO 8601
let asked = 0, boardsAt = -Infinity;

function say(text, wrong = false) {
  said.textContent = text;
  said.classList.toggle("wrong", wrong);
}

async function get(path) {
  const answer = await fetch(path, { cache: "no-store" });
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error);
  return found;
}

async function readBoards() {
  const found = await get("/boards");
  boardsAt = performance.now();
  const names = found.map(([name]) => name);
  if (names.join("\n") !== [...known.keys()].join("\n")) {
    const chosen = board.value || new URLSearchParams(location.hash.slice(1)).get("board");
    board.replaceChildren(...names.map((name) => new Option(name, name, false, name === chosen)));
  }
  known.clear();
  for (const [name, first, last] of found) known.set(name, [first, last]);
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
    const [first, last] = known.get(board.value) || ["", ""];
    if (!found.points) say(`${board.value} has no readings in this time; there are some from ${first} to ${last}.`);
    else say(`${of(found.sensors, "sensor")}, ${of(found.points, "point")} of ${found.table}, ${of(found.alerts, "alert")}` +
      (found.whole ? "" : "; the board has more sensors than are shown"));
  } catch (error) {
    if (mine === asked) say(String(error.message || error), true);
  }
}

function remember() {
  for (const label of document.querySelectorAll(".between")) label.hidden = span.value !== "between";
  const kept = new URLSearchParams({ board: board.value, span: span.value });
  if (span.value === "between") { kept.set("since", since.value); kept.set("until", until.value); }
  history.replaceState(null, "", "#" + kept);
}

async function again() {
  if (!document.hidden) await show();
  setTimeout(again, EVERY_MS);
}

const before = new URLSearchParams(location.hash.slice(1));
if (before.has("span")) span.value = before.get("span");
since.value = before.get("since") || "";
until.value = before.get("until") || "";
at("asked").addEventListener("change", () => { remember(); show(); });
at("asked").addEventListener("submit", (event) => event.preventDefault());
again().then(remember);
