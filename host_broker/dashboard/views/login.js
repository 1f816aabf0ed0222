import { html, useState } from "../html.js";
import { Session } from "../live.js";

const NO_COOKIE =
  "The login is right, but the browser has not kept this page's cookie. Allow cookies for this address.";

/** The form to log in. @param {{session: any, done: () => void}} props */
export function Login({ session, done }) {
  const [user, setUser] = useState("");
  const [secret, setSecret] = useState("");
  const [said, setSaid] = useState("");
  const byToken = session.login === "token";
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setSaid("");
    try {
      const why = await session.begin(user, secret);
      setSecret("");
      if (why) setSaid(why);
      else if ((await Session.ask()).csrf === "") setSaid(NO_COOKIE);
      else done();
    } catch {
      setSaid("The broker does not answer.");
    }
  };
  return html`<main id="main" class="login">
    <form class="card" onSubmit=${submit}>
      <h1>MoteMQ</h1>
      ${session.principal &&
      html`<p class="notice bad">${session.principal} may not connect by HTTP. Log in as somebody else.</p>`}
      ${!byToken &&
      html`<label>
        User
        <input
          name="user"
          autocomplete="username"
          autocapitalize="none"
          value=${user}
          onInput=${(/** @type {any} */ event) => setUser(event.currentTarget.value)}
        />
      </label>`}
      <label>
        ${byToken ? "Token" : "Password or token"}
        <input
          name="secret"
          type="password"
          required
          autocomplete="current-password"
          value=${secret}
          onInput=${(/** @type {any} */ event) => setSecret(event.currentTarget.value)}
        />
      </label>
      <button class="primary" type="submit">Log in</button>
      <p class=${said ? "notice bad" : "soft"} role="alert">${said}</p>
    </form>
  </main>`;
}
