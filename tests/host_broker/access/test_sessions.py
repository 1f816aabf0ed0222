"""Sessions of people who have logged in with a browser: who is found, and when they end."""

import pytest

from host_broker.access.access import Access
from host_broker.access.principal import Principal
from host_broker.access.sessions import (
    MOST_TOKENS,
    LoginSessions,
    cookie_name,
    cookie_token,
    cookie_tokens,
)
from host_broker.access.users import User, Users

_ALICE = Principal("alice", "password")
_BOB = Principal("bob", "password")


def _begin(sessions: LoginSessions, token: str, who: Principal = _ALICE, now: float = 0.0) -> None:
    sessions.begin(token, f"csrf of {token}", who, None, now)


def test_who_has_the_secret_is_found_and_nobody_else() -> None:
    sessions = LoginSessions()
    _begin(sessions, "t1")
    found = sessions.find("t1", 1.0)
    assert found is not None
    assert (found.principal, found.csrf) == (_ALICE, "csrf of t1")
    for wrong in ("", "t", "t2", "t1 ", "\udc80"):
        assert sessions.find(wrong, 1.0) is None
    sessions.end("t1")
    assert sessions.find("t1", 1.0) is None


def test_no_secret_is_kept_as_it_is() -> None:
    sessions = LoginSessions()
    _begin(sessions, "a-secret-of-a-test")
    assert "a-secret-of-a-test" not in repr(vars(sessions))


def test_one_that_is_not_used_is_over() -> None:
    sessions = LoginSessions(idle_s=100.0, longest_s=250.0)
    _begin(sessions, "t1")
    for now in (100.0, 200.0):
        assert sessions.find("t1", now) is not None
    assert sessions.find("t1", 251.0) is None  # used or not
    _begin(sessions, "t2", now=300.0)
    assert sessions.find("t2", 400.5) is None
    assert len(sessions) == 0
    _begin(sessions, "t3", now=500.0)
    _begin(sessions, "t4", now=700.0)  # what is over is forgotten then, asked for or not
    assert len(sessions) == 1
    assert sessions.ended == {"http.session_s": 2, "http.session_longest_s": 1}


def test_one_more_of_a_user_ends_the_users_oldest() -> None:
    sessions = LoginSessions(most_of_one=2)
    _begin(sessions, "b", _BOB)
    for number in range(3):
        _begin(sessions, f"t{number}")
    there = [token for token in ("b", "t0", "t1", "t2") if sessions.find(token, 1.0)]
    assert there == ["b", "t1", "t2"]
    assert sessions.ended == {"http.max_sessions_of_one": 1}


def test_one_more_of_all_ends_the_one_that_was_not_used_for_longest() -> None:
    sessions = LoginSessions(most=2)
    _begin(sessions, "t0")
    _begin(sessions, "t1", _BOB)
    assert sessions.find("t0", 1.0) is not None
    _begin(sessions, "t2", Principal("carol", "password"), 2.0)
    there = [token for token in ("t0", "t1", "t2") if sessions.find(token, 3.0)]
    assert there == ["t0", "t2"]
    assert sessions.ended == {"http.max_sessions": 1}


def test_who_is_changed_or_removed_has_to_log_in_again() -> None:
    alice, bob, carol = (User(password=f"$argon2id${number}") for number in range(3))
    access = Access(Users({"alice": alice, "bob": bob, "carol": carol}))
    for name in ("alice", "bob", "carol"):
        who = Principal(name, "password")
        access.sessions.begin(name, "", who, access.proof_of(who), 0.0)
    access.change(Users({"alice": alice, "bob": User(password="$argon2id$new")}), None)
    there = [name for name in ("alice", "bob", "carol") if access.sessions.find(name, 1.0)]
    assert there == ["alice"]


def test_two_ports_of_a_host_have_two_cookies() -> None:
    names = {
        cookie_name(host, tls=tls)
        for host in ("127.0.0.1:8765", "127.0.0.1:8766", "[::1]", "broker.lan", "broker.lan:\u0663")
        for tls in (False, True)
    }
    assert names == {
        *("motemq_session", "motemq_session_8765", "motemq_session_8766"),
        *("__Host-motemq_session", "__Host-motemq_session_8765", "__Host-motemq_session_8766"),
    }
    cookies = "a=b; motemq_session_8765=right; motemq_session_8766=other;motemq_session=third"
    assert cookie_token(cookies, "127.0.0.1:8765", tls=False) == "right"
    assert cookie_token(cookies, "[::1]:8766", tls=False) == "other"
    assert cookie_token(cookies, "127.0.0.1:8765", tls=True) == ""
    assert cookie_token("", "127.0.0.1", tls=False) == ""


def test_whose_session_the_cookies_tell() -> None:
    sessions = LoginSessions()
    _begin(sessions, "t1")
    cookies = ["a=t1; motemq_session_8766=other", "motemq_session_8765=t1"]
    there = sessions.find("t1", 1.0)
    assert there is not None
    assert sessions.of_cookies(cookies, 1.0) is there
    assert sessions.of_cookies(["__Host-motemq_session=t1"], 1.0) is there
    assert sessions.of_cookies(["session=t1; x_motemq_session=t1"], 1.0) is None
    assert sessions.of_cookies([], 1.0) is None
    many = "; ".join(f"motemq_session_{each}=x" for each in range(10 * MOST_TOKENS))
    assert len(cookie_tokens([many, many])) == MOST_TOKENS


def test_each_end_is_told_once() -> None:
    """Whatever ends it: a log-out, a limit, another password, another session."""
    sessions = LoginSessions(most=3, most_of_one=2, idle_s=100.0)
    ended: list[str] = []
    sessions.on_end = lambda session: ended.append(session.csrf.removeprefix("csrf of "))
    for number in range(3):
        _begin(sessions, f"a{number}")
    assert ended == ["a0"]
    _begin(sessions, "b0", _BOB)
    _begin(sessions, "b1", _BOB)
    assert ended == ["a0", "a1"]
    for _ in range(2):
        sessions.end("a2")
        sessions.keep(lambda session: session.csrf != "csrf of b0")
    assert ended == ["a0", "a1", "a2", "b0"]
    last = sessions.find("b1", 50.0)
    assert last is not None
    ends_at = sessions.ends_at(last)
    assert ends_at == pytest.approx(150.0)
    assert sessions.lasts(last, 150.0) and sessions.ends_at(last) == ends_at  # no use of it
    assert not sessions.lasts(last, ends_at)
    assert not sessions.use(last, 1.0)
    assert (ended[4:], last.is_over) == (["b1"], True)
