"""Login with a token that the user pastes, and logout."""

import re
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

import falcon

from rioni.console.api import Api, ApiProblem, Wsgi
from rioni.console.rendering import render
from rioni.console.security import session_of
from rioni.console.sessions import EndedSessions, Session, SessionsUnavailable, TokenTooLong


_HTML = "text/html; charset=utf-8"


class LoginResource:
    """`/console/login`."""

    def __init__(self, api: Wsgi, provider: str | None, ended: EndedSessions) -> None:
        self._api, self._provider, self._ended = api, provider, ended

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Ask for a token; instead of a part of a page, which scripts asked for, as a page of its own."""
        if req.get_header("HX-Request"):
            resp.set_header("HX-Redirect", req.relative_uri)
        self._show(req, resp, "")

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Try the token, and begin a session with it."""
        token = req.context.form.get("token", "").strip().removeprefix("Bearer ").strip()
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            self._show(req, resp, "Paste a token: printable characters without spaces.", falcon.HTTP_422)
            return
        try:
            begun = Session.new(token)
            Api(self._api, req.env, token).get("/registry/partition-strategies")
        except TokenTooLong as ex:
            self._show(req, resp, str(ex), falcon.HTTP_422)
            return
        except ApiProblem as ex:
            self._show(req, resp, f"The broker refuses this token: {_reason(ex)}", falcon.HTTP_403)
            return
        end(self._ended, session_of(req))
        req.context.session = begun
        resp.status = falcon.HTTP_SEE_OTHER
        resp.location = local_path(req.root_path, req.context.form.get("next", ""))

    def _show(self, req: falcon.Request, resp: falcon.Response, problem: str, status: str = falcon.HTTP_200) -> None:
        context: dict[str, Any] = {
            "title": "Log in",
            "session": session_of(req),
            "problem": problem,
            "provider": self._provider,
            "next": local_path(req.root_path, req.get_param("next") or req.context.form.get("next", "")),
        }
        resp.status = status
        resp.content_type = _HTML
        resp.text = render("login.html.jinja", req.root_path, context)


def _reason(problem: ApiProblem) -> str:
    reason = problem.detail.partition("resource: ")[2] if problem.status == HTTPStatus.UNAUTHORIZED else ""
    return f"{reason}." if reason else str(problem)


class LogoutResource:
    """`/console/logout`."""

    def __init__(self, ended: EndedSessions) -> None:
        self._ended = ended

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """End the session, wherever its cookie is."""
        end(self._ended, session_of(req))
        req.context.session = Session.new()
        resp.status = falcon.HTTP_SEE_OTHER
        resp.location = f"{req.root_path}/console/login"


def end(ended: EndedSessions, session: Session) -> None:
    """End a session that another one takes the place of; raises HTTPServiceUnavailable if that can't be kept."""
    try:
        ended.end(session)
    except SessionsUnavailable as ex:
        raise falcon.HTTPServiceUnavailable(description="The session can't be ended at present. Try again.") from ex


def local_path(base_path: str, text: str) -> str:
    """A page of the console below a base path; the first one if the text leads elsewhere."""
    console = f"{base_path}/console"
    is_local = text == console or text.startswith((f"{console}/", f"{console}?"))
    # Browsers resolve these segments, quoted or not.
    climbs = any(unquote(segment) in (".", "..") for segment in re.split("[?#]", text)[0].split("/"))
    plain = is_local and not climbs and "\\" not in text and "//" not in text and text.isprintable()
    return text if plain else console
