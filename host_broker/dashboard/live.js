/**
 * What the page knows of the broker: one connection by UMQ, and what came by it.
 *
 * @module
 */

import { Topics } from "./topics.js";
import { CallFailed, Client, Code, Refused } from "./umq.js";

/** Seconds that charts look back. */
export const LOOK_BACK_S = 300;
/**
 * Of each topic the last publication is told at most so often, and what comes all the time is shown
 * so often; so a busy broker costs little.
 */
export const EVERY_MS = 1000;
/** Between two moments of a chart: nobody knows what was in between, as while the page was hidden. */
const GAP_S = 10;
const LOOK_MS = 1000;
const SHOW_MS = 500;
const SLOW_LOOK_MS = 2000;
/** The past is looked for in the journal; what comes meanwhile is told, and then asked for `soon`. */
export const PAST_LOOK_MS = 60_000;
/** What the rights do not allow is asked for again after this: they may have changed. */
export const REFUSED_LOOK_MS = 30_000;
const ECHO_LOST_MS = 5000;
/** Of one answer, that are asked for behind one another. */
const MOST_PAGES = 20;

/** The session, as the broker's HTTP says it. */
export class Session {
  /** @param {any} said */
  constructor(said) {
    /** @type {boolean} */ this.letIn = said.let_in;
    /** @type {"" | "token" | "password"} */ this.login = said.login;
    /** @type {string} */ this.principal = said.principal;
    /** @type {string} */ this.csrf = said.csrf;
  }

  /** @returns {Promise<Session>} */
  static async ask() {
    const answer = await fetch("/dashboard/session", { credentials: "same-origin" });
    return new Session(await answer.json());
  }

  /**
   * Log in.
   *
   * @param {string} user
   * @param {string} secret
   * @returns {Promise<string>} why not, "" if it was right
   */
  async begin(user, secret) {
    const answer = await fetch("/dashboard/session", {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-CSRF-Token": this.csrf },
      body: JSON.stringify({ user, secret }),
    });
    if (answer.ok) {
      return "";
    }
    const wait = answer.headers.get("Retry-After");
    const why = (await answer.json()).error;
    return wait ? `${why}; try again in ${wait} s` : why;
  }

  /**
   * Log out.
   *
   * @returns {Promise<string>} why the broker does not do that, "" if it is done
   * @throws {Error} if the broker does not answer
   */
  async end() {
    const headers = { "X-CSRF-Token": this.csrf };
    const answer = await fetch("/dashboard/session", { method: "DELETE", headers });
    if (answer.ok) {
      return "";
    }
    const said = await answer.json().catch(() => ({})); // a proxy in between says something else
    return said.error ?? `HTTP status ${answer.status}`;
  }
}

/**
 * One moment of the broker, for charts.
 *
 * @typedef {object} Sample
 * @property {number} at seconds since 1970
 * @property {number | null} published per second
 * @property {number | null} discarded per second
 * @property {number | null} latency ms, from here through the broker's bus and back
 * @property {number | null} clients
 */

/** The connection, what came by it, and who wants to know when that changes. */
export class Live {
  /** @param {() => void} refused is called when the broker does not let us in */
  constructor(refused) {
    this.topics = new Topics();
    /** @type {Sample[]} */
    this.samples = [];
    /** @type {any} */
    this.stats = null;
    /** Why something is not shown, by what it is. @type {Map<string, string>} */
    this.troubles = new Map();
    this.paused = false;
    /** Publications that came while it was. */
    this.missed = 0;
    /** Publications that the broker has dropped, as we took too little. */
    this.dropped = 0;
    this.pattern = "**";
    /** @type {(() => void)[]} */
    this.listeners = [];
    /** Answers that are asked for again and again, while somebody shows them. @type {Map<string, any>} */
    this.answers = new Map();
    this.hasBeenOpen = false;
    /** When the topics began to be those of one broker. */
    this.knownSince = 0;
    /** @type {Map<string, {name: string, args: unknown[], everyMs: number, askAt: number, count: number}>} */
    this.wanted = new Map();
    /** Those that have not answered yet. @type {Set<string>} */
    this.asking = new Set();
    /** What the rights do not allow, and when it is asked for again. @type {Map<string, number>} */
    this.refusedUntil = new Map();
    /** Ends the subscription to the pattern. */
    this.unfollow = () => {};
    this.shownAt = 0;
    this.showAt = 0;
    this.looking = false;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.showing = undefined;
    this.client = new Client("", {
      attributes: { name: "dashboard" },
      onState: (state, error) => {
        if (error instanceof Refused) {
          refused();
        }
        if (state === "open") {
          this.refusedUntil.clear();
          if (this.hasBeenOpen) {
            // It may be another broker. (What is asked for before the first is there is asked then.)
            for (const wanted of this.wanted.values()) wanted.askAt = 0;
          } else {
            this.knownSince = performance.now();
          }
          this.hasBeenOpen = true;
        }
        this.show();
      },
    });
    this.echo = new Echo(this);
    this.subscribe("**");
    this.timers = [
      setInterval(() => this.#look(), LOOK_MS),
      setInterval(() => this.#lookSlowly(), SLOW_LOOK_MS),
    ];
  }

  close() {
    this.timers.forEach(clearInterval);
    clearTimeout(this.showing);
    this.client.close();
  }

  /**
   * Have listeners called, soon and not too often.
   *
   * @param {number} [everyMs] how long after the last time at least
   */
  show(everyMs = SHOW_MS) {
    const now = performance.now();
    const at = Math.max(now, this.shownAt + everyMs);
    if (this.showing !== undefined && this.showAt <= at) {
      return;
    }
    clearTimeout(this.showing);
    this.showAt = at;
    this.showing = setTimeout(() => {
      this.showing = undefined;
      this.shownAt = performance.now();
      this.listeners.forEach((listener) => listener());
    }, at - now);
  }

  /** @param {() => void} listener @returns {() => void} which ends it */
  listen(listener) {
    this.listeners.push(listener);
    return () => {
      this.listeners = this.listeners.filter((each) => each !== listener);
    };
  }

  /** @param {boolean} paused */
  pause(paused) {
    this.paused = paused;
    if (!paused && this.missed > 0) {
      this.missed = 0;
      this.subscribe(this.pattern); // what is retained comes again
    }
    this.show();
  }

  /**
   * Subscribe, through as many connections as it takes: also if the first one is lost before the
   * broker has answered.
   *
   * @param {string} pattern
   * @param {any} options
   * @param {(update: any) => void} onUpdate
   * @param {(trouble: string) => void} onAnswer is told why the broker refuses, "" if it does not
   * @returns {() => void} which ends it
   */
  follow(pattern, options, onUpdate, onAnswer) {
    let over = false;
    /** @type {any} */
    let subscription = null;
    const begin = async () => {
      while (!over && this.client.state !== "closed") {
        try {
          subscription = await this.client.subscribe(pattern, options, onUpdate);
          break;
        } catch (error) {
          let wait = LOOK_MS;
          if (error instanceof CallFailed && error.code !== Code.UNAVAILABLE) {
            if (!over) onAnswer(error.message);
            if (error.code !== Code.REJECTED) return;
            wait = REFUSED_LOOK_MS;
          }
          await new Promise((resolve) => setTimeout(resolve, wait));
        }
      }
      if (!over) onAnswer("");
      else subscription?.unsubscribe().catch(() => {});
    };
    begin();
    return () => {
      over = true;
      subscription?.unsubscribe().catch(() => {});
    };
  }

  /**
   * Look at other topics.
   *
   * @param {string} pattern
   */
  subscribe(pattern) {
    this.unfollow();
    if (pattern !== this.pattern) {
      this.topics = new Topics();
    }
    this.pattern = pattern;
    this.unfollow = this.follow(
      pattern,
      { everyMs: EVERY_MS },
      (update) => {
        if (this.pattern === pattern) this.#take(update);
      },
      (trouble) => {
        if (trouble) this.troubles.set("topics", `${pattern}: ${trouble}`);
        else this.troubles.delete("topics");
        this.show();
      },
    );
    this.show();
  }

  /** @param {any} update */
  #take(update) {
    this.dropped += update.dropped;
    if (this.paused) {
      this.missed += update.publications.length;
    } else {
      this.topics.take(update.publications);
    }
    this.show(EVERY_MS);
  }

  /**
   * Have a method of the broker called again and again from now on, until it is released.
   *
   * @param {string} name
   * @param {unknown[]} args
   * @param {number} everyMs
   * @returns {() => void} which releases it
   */
  want(name, args = [], everyMs = SLOW_LOOK_MS) {
    const key = JSON.stringify([name, ...args]);
    const wanted = this.wanted.get(key) ?? { name, args, everyMs, askAt: 0, count: 0 };
    wanted.count += 1;
    wanted.askAt = performance.now() + everyMs;
    this.wanted.set(key, wanted);
    this.ask(name, args);
    return () => {
      wanted.count -= 1;
      if (wanted.count === 0) {
        this.wanted.delete(key);
        this.answers.delete(key);
      }
    };
  }

  /**
   * Have a method that is wanted called again in a moment: it would answer something else.
   *
   * @param {string} name
   * @param {unknown[]} args
   */
  soon(name, args = []) {
    const wanted = this.wanted.get(JSON.stringify([name, ...args]));
    if (wanted) wanted.askAt = 0;
  }

  /**
   * Return what a method has answered last, undefined if nothing yet.
   *
   * @param {string} name
   * @param {unknown[]} args
   */
  answer(name, args = []) {
    return this.answers.get(JSON.stringify([name, ...args]));
  }

  /**
   * Ask now, unless there is no answer yet to the last time.
   *
   * @param {string} name
   * @param {unknown[]} args
   */
  async ask(name, args = []) {
    const key = JSON.stringify([name, ...args]);
    if (this.asking.has(key)) {
      return;
    }
    this.asking.add(key);
    try {
      const answer = await this.#whole(name, args);
      this.troubles.delete(name);
      if (this.wanted.has(key)) {
        this.answers.set(key, answer);
      }
    } catch (error) {
      this.#failed(name, error);
      this.noteRefusal(key, error);
    }
    this.asking.delete(key);
    this.show();
  }

  /**
   * Return an answer as long as was asked for: a page of the broker may have less, or nothing, where
   * few of those that it has looked at belong to it, and more behind them.
   *
   * @param {string} name
   * @param {any[]} args
   */
  async #whole(name, args) {
    const answer = await this.client.method(name, args);
    const limit = args[0]?.limit ?? 0;
    for (let page = 1; answer.more && page < MOST_PAGES && answer[name]?.length < limit; page += 1) {
      const next = await this.client.method(name, [{ ...args[0], after: answer.after }]);
      answer[name].push(...next[name]);
      answer.more = next.more;
      answer.after = next.after;
    }
    return answer;
  }

  /**
   * Note that something is not to be asked for again soon, if the rights do not allow it.
   *
   * @param {string} key
   * @param {unknown} error
   */
  noteRefusal(key, error) {
    if (error instanceof CallFailed && error.code === Code.REJECTED) {
      this.refusedUntil.set(key, performance.now() + REFUSED_LOOK_MS);
    }
  }

  /** @param {string} key @returns {boolean} whether the rights did not allow it a short time ago */
  isRefused(key) {
    return performance.now() < (this.refusedUntil.get(key) ?? 0);
  }

  /** @param {string} what @param {any} error */
  #failed(what, error) {
    if (this.client.state === "open") {
      this.troubles.set(what, error.message);
    }
  }

  async #look() {
    if (this.paused || document.hidden || this.looking) {
      return;
    }
    this.looking = true;
    this.topics.measure();
    const before = this.stats;
    const askedAt = performance.now();
    if (!this.isRefused("stats")) {
      try {
        this.stats = (await this.client.method("stats", [], { timeoutMs: LOOK_MS })).stats;
        this.troubles.delete("stats");
        if (askedAt - this.knownSince > this.stats.up_s * 1000) {
          this.knownSince = performance.now();
          this.topics = new Topics(); // they were those of a broker that has ended
          this.subscribe(this.pattern);
        }
      } catch (error) {
        this.#failed("stats", error);
        this.noteRefusal("stats", error);
      }
    }
    const latency = await this.echo.measure();
    const known = this.client.state === "open" && this.stats !== before;
    this.#sample({
      at: Date.now() / 1000,
      published: known ? rate(before, this.stats, (stats) => stats.publications) : null,
      discarded: known ? rate(before, this.stats, lost) : null,
      latency,
      clients: known ? clientCount(this.stats) : null,
    });
    this.looking = false;
    this.show(EVERY_MS);
  }

  /** @param {Sample} sample */
  #sample(sample) {
    // Of a clock that was set back, the others are later than this one.
    const earlier = (/** @type {Sample} */ { at }) => sample.at - LOOK_BACK_S < at && at < sample.at;
    this.samples = this.samples.filter(earlier);
    const last = this.samples.at(-1);
    if (last !== undefined && sample.at - last.at > GAP_S) {
      const unknown = { published: null, discarded: null, latency: null, clients: null };
      this.samples.push({ at: (last.at + sample.at) / 2, ...unknown });
    }
    this.samples.push(sample);
  }

  #lookSlowly() {
    if (this.paused || document.hidden || this.client.state !== "open") {
      return;
    }
    const now = performance.now();
    for (const [key, wanted] of this.wanted) {
      // Timers of a page come a little early, too.
      if (!this.isRefused(key) && now >= wanted.askAt - SLOW_LOOK_MS / 2) {
        wanted.askAt = now + wanted.everyMs;
        this.ask(wanted.name, wanted.args);
      }
    }
  }
}

/** @param {any} before @param {any} now @param {(stats: any) => number} count */
function rate(before, now, count) {
  if (before === null || now.up_s <= before.up_s) {
    return null; // the first look, or another broker
  }
  return Math.max(0, (count(now) - count(before)) / (now.up_s - before.up_s));
}

/** @param {any} stats @returns {number} what was discarded, or dropped for a slow receiver */
export function lost(stats) {
  let count = 0;
  for (const rules of Object.values(stats.discarded ?? {})) {
    for (const each of Object.values(rules)) count += Number(each);
  }
  for (const dropped of Object.values(stats.dropped ?? {})) count += dropped.messages;
  return count;
}

/** @param {any} stats @returns {number} */
export function clientCount(stats) {
  return Object.values(stats.clients ?? {}).reduce((sum, count) => sum + Number(count), 0);
}

/** Tells itself something through the broker's bus, to see how long that takes. */
class Echo {
  /** @param {Live} live */
  constructor(live) {
    this.live = live;
    this.client = live.client;
    const random = crypto.getRandomValues(new Uint8Array(12));
    const name = Array.from(random, (byte) => byte.toString(16).padStart(2, "0")).join("");
    this.topic = `motemq/echo/${name}`;
    this.number = 0;
    /** @type {((ms: number) => void) | null} */
    this.heard = null;
    this.sentAt = 0;
    /** @type {Promise<any> | null} */
    this.subscribed = null;
  }

  /** @returns {Promise<number | null>} ms; null if there was no answer */
  async measure() {
    if (this.client.state !== "open" || this.live.isRefused(this.topic)) {
      return null;
    }
    this.subscribed ??= this.client.subscribe(this.topic, { retained: false }, (update) =>
      this.#hear(update),
    );
    try {
      await this.subscribed;
    } catch (error) {
      this.subscribed = null;
      this.live.noteRefusal(this.topic, error);
      return null;
    }
    this.number += 1;
    return new Promise((resolve) => {
      const lostTimer = setTimeout(() => resolve(null), ECHO_LOST_MS);
      this.heard = (ms) => {
        clearTimeout(lostTimer);
        resolve(ms);
      };
      this.sentAt = performance.now();
      this.client.publish(this.topic, String(this.number)).catch((error) => {
        this.live.noteRefusal(this.topic, error);
        clearTimeout(lostTimer);
        resolve(null);
      });
    });
  }

  /** @param {any} update */
  #hear(update) {
    for (const publication of update.publications) {
      if (publication.payload === String(this.number)) {
        this.heard?.(performance.now() - this.sentAt);
        this.heard = null;
      }
    }
  }
}
