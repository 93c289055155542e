"""The console as a WSGI application: pages, changes, login, files, and the API for the scripts of pages."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import quote

import falcon
import orjson
import structlog

from rioni.console import exact_json
from rioni.console.api import Api, ApiProblem, Compute, Wsgi, in_place
from rioni.console.login import (
    CALLBACK,
    LoginResource,
    LogoutResource,
    Provider,
    ProviderCallbackResource,
    ProviderLoginResource,
)
from rioni.console.pages import administration, audit, event_type, event_types, events, overview, page, subscriptions
from rioni.console.pages.page import ConsolePage, Done, Visit, lacking
from rioni.console.rendering import assets, curl, environment, render, url
from rioni.console.security import SecurityMiddleware, session_of
from rioni.console.sessions import EndedSessions, Sessions


# --- All pages, and the sections of the menu ---


class MenuSection(NamedTuple):
    """An entry of the menu."""

    title: str
    path: str
    key: str
    """Typed after `g`, leads there."""


SECTIONS = (
    MenuSection("Overview", "/", "o"),
    MenuSection("Event types", "/event-types", "e"),
    MenuSection("Subscriptions", "/subscriptions", "s"),
    MenuSection("Audit", "/audit", "a"),
    MenuSection("Storages", "/storages", "t"),
    MenuSection("Settings", "/settings", "c"),
    MenuSection("Jobs", "/jobs", "j"),
)
PAGES: tuple[ConsolePage, ...] = (
    overview.OVERVIEW,
    event_types.EVENT_TYPES,
    event_types.NEW_EVENT_TYPE,
    event_type.EVENT_TYPE,
    events.EVENTS,
    subscriptions.SUBSCRIPTIONS,
    subscriptions.SUBSCRIPTION,
    audit.AUDIT,
    audit.AUDIT_ENTRY,
    administration.STORAGES,
    administration.SETTINGS,
    administration.JOBS,
    page.ACCOUNT,
)


EVENTS = "text/event-stream"
_log = structlog.get_logger("rioni.console")
_NOT_TYPED = ("csrf", "action", "etag", "seen", "token")
"""Members of forms that pages or browsers fill in, and secrets."""
_HTML = "text/html; charset=utf-8"


class PageResource:
    """Shows a page, and makes the changes that its forms send."""

    def __init__(self, page: ConsolePage, api: Wsgi, compute: Compute) -> None:
        self._page, self._api, self._compute = page, api, compute

    def on_get(self, req: falcon.Request, resp: falcon.Response, **path: str) -> None:
        """Show the page, or its data as JSON."""
        self._show(req, resp, self._visit(req, path))

    def on_post(self, req: falcon.Request, resp: falcon.Response, **path: str) -> None:
        """Make a change, and go to the page that shows its outcome; a refusal is shown on the page."""
        form = req.context.form
        visit = self._visit(req, path, form)
        action = self._page.actions.get(form.get("action", ""))
        if action is None:
            raise falcon.HTTPBadRequest(description="This page has no such action.")
        if visit.as_of is not None:
            raise falcon.HTTPBadRequest(description="What was can't be changed. Go back to now: leave as_of out.")
        try:
            done = action.act(visit)
        except ApiProblem as ex:
            if _wants_json(req):
                _answer_json(resp, ex.as_object(), ex.status)
                return
            resp.status = str(ex.status)
            self._show(req, resp, visit, refused=ex)
            return
        if done is None:
            self._show(req, resp, visit)
        else:
            self._finish(req, resp, done)

    def _visit(self, req: falcon.Request, path: Mapping[str, str], form: Mapping[str, str] | None = None) -> Visit:
        session = session_of(req)
        params = {name: value if isinstance(value, str) else value[0] for name, value in req.params.items()}
        as_of = params.get("as_of") or None
        api = Api(self._api, req.env, session.token, as_of, self._compute)
        return Visit(api=api, path=path, params=params, form=form or {}, as_of=as_of, compute=self._compute)

    def _show(
        self, req: falcon.Request, resp: falcon.Response, visit: Visit, *, refused: ApiProblem | None = None
    ) -> None:
        try:
            data = self._page.load(visit)
        except ApiProblem as ex:
            if ex.status == HTTPStatus.UNAUTHORIZED and not _wants_json(req):
                if req.method == "POST":
                    raise falcon.HTTPUnauthorized(
                        title="Your session has ended", description="Log in, and repeat the change."
                    ) from ex
                raise falcon.HTTPSeeOther(url(req.root_path, "/login", None, next=req.relative_uri)) from ex
            resp.status = str(ex.status)
            data, template = ex.as_object(), "problem.html.jinja"
        else:
            template = self._page.template
        lacks = lacking(self._page, visit)
        if _wants_json(req):
            resp.content_type = "application/json"
            actions = self._page.actions if visit.as_of is None else ()
            shown = data | {"lacks": {each: right for each in actions if (right := lacks[each])}}
            resp.data = exact_json.encode(shown)
            return
        session = session_of(req)
        context = {
            "title": self._page.title.format(**visit.path),
            "sections": SECTIONS,
            "curl": functools.partial(curl, req.forwarded_prefix, token=session.token is not None),
            "url": lambda path, /, **params: url(req.root_path, path, visit.as_of, **params),
            "visit": visit,
            "session": session,
            "here": req.path.removeprefix("/console") or "/",
            "refused": refused,
            "lacks": lacks.__getitem__,
            "data": data,
        }
        resp.content_type = _HTML
        # PERF: 70 ms for the comparison of two long schemas, and 30 ms for a template that is used first.
        # On the hub, as it imports.
        environment()
        resp.data = self._compute(_rendered, template, req.root_path, context)
        req.context.session = session.telling("")

    def _finish(self, req: falcon.Request, resp: falcon.Response, done: Done) -> None:
        if _wants_json(req):
            _answer_json(resp, {"notice": done.notice}, HTTPStatus.OK)
            return
        req.context.session = session_of(req).telling(done.notice)
        resp.status = falcon.HTTP_SEE_OTHER
        resp.location = url(req.root_path, done.path, None) if done.path else req.relative_uri


class ApiResource:
    """The API for the scripts of pages, which have no token: streams, and everything else."""

    def __init__(self, api: Wsgi) -> None:
        self._api = api

    def on_get(self, req: falcon.Request, resp: falcon.Response, path: str) -> None:
        """Answer as the API does."""
        api = Api(self._api, req.env, session_of(req).token)
        headers = {}
        if EVENTS in req.accept:
            headers = {"Accept": EVENTS, "Last-Event-ID": req.get_header("Last-Event-ID") or ""}
        try:
            status, answered, pieces = api.open(req.method, f"/{quote(path)}", params=req.params, headers=headers)
        except ApiProblem as ex:
            _answer_json(resp, ex.as_object(), ex.status)
            return
        resp.status = str(status)
        for name in ("content-type", "x-nakadi-streamid"):
            if name in answered:
                resp.set_header(name, answered[name])
        if req.method == "GET":
            resp.stream = pieces


class AssetResource:
    """`/console/static`: files that never change under their address."""

    def on_get(self, req: falcon.Request, resp: falcon.Response, digest: str, name: str) -> None:
        """Answer with a file."""
        asset = assets().get(name)
        if asset is None or asset.digest != digest:
            raise falcon.HTTPNotFound
        resp.content_type = asset.content_type
        resp.set_header("Cache-Control", "public, max-age=31536000, immutable")
        compress = "gzip" in (req.get_header("Accept-Encoding") or "")
        resp.data = asset.compressed if compress else asset.content
        if compress:
            resp.set_header("Content-Encoding", "gzip")


class MomentResource:
    """`/console/moment`: leads from the slider in time to the console as of an entry, and from its end to now."""

    def on_get(self, req: falcon.Request, _resp: falcon.Response) -> None:
        """Redirect."""
        moment = req.get_param("as_of")
        raise falcon.HTTPSeeOther(url(req.root_path, "", None if moment == req.get_param("newest") else moment))


class HomeResource:
    """`/` leads browsers to the console."""

    def on_get(self, req: falcon.Request, _resp: falcon.Response) -> None:
        """Redirect."""
        raise falcon.HTTPFound(url(req.root_path, "", None))


def create_console(
    api: Wsgi,
    sessions: Sessions,
    ended: EndedSessions,
    *,
    needs_token: bool,
    provider: Provider | None = None,
    guards: Sequence[Any] = (),
    middleware: Sequence[Any] = (),
    compute: Compute = in_place,
) -> Wsgi:
    """The API together with the console.

    Args:
        api: the WSGI application of the API.
        sessions: of browsers.
        ended: those that have ended before their time.
        needs_token: whether users have to log in.
        provider: where they can log in; None if they can only paste a token.
        guards: the middleware that requests pass first.
        middleware: the middleware that they pass after that of the console.
        compute: runs functions that take long, such as comparisons of schemas.
    """
    console = falcon.App(
        middleware=[*guards, SecurityMiddleware(sessions, ended, needs_token=needs_token, compute=compute), *middleware]
    )
    console.req_options.strip_url_path_trailing_slash = True
    console.req_options.keep_blank_qs_values = True
    console.set_error_serializer(_serialize_error)
    console.add_error_handler(Exception, _on_unexpected)
    for path, resource in _routes(api, sessions, ended, provider, compute):
        if hasattr(resource, "on_get"):
            # Falcon sends the headers of the answer, and drops its body.
            resource.on_head = resource.on_get
        console.add_route(path, resource)
    return _beside(api, console)


def _routes(
    api: Wsgi, sessions: Sessions, ended: EndedSessions, provider: Provider | None, compute: Compute
) -> Iterator[tuple[str, Any]]:
    yield "/", HomeResource()
    yield "/console/static/{digest}/{name:path}", AssetResource()
    yield "/console/api/{path:path}", ApiResource(api)
    yield "/console/moment", MomentResource()
    yield "/console/login", LoginResource(api, None if provider is None else provider.name, ended)
    yield "/console/logout", LogoutResource(ended)
    if provider is not None:
        yield "/console/login/provider", ProviderLoginResource(provider, sessions)
        yield CALLBACK, ProviderCallbackResource(provider, api, sessions, ended)
    for each in PAGES:
        yield "/console" + each.path.rstrip("/"), PageResource(each, api, compute)


def _beside(api: Wsgi, console: Wsgi) -> Wsgi:
    """Requests below `/console` go to the console, and those of browsers for `/`; all others to the API."""

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        path = environ["PATH_INFO"]
        if path.startswith("/console") and path[8:9] in ("", "/"):
            return console(environ, start_response)
        if path == "/" and "text/html" in environ.get("HTTP_ACCEPT", ""):
            return console(environ, start_response)
        return api(environ, start_response)

    return application


def _serialize_error(req: falcon.Request, resp: falcon.Response, error: falcon.HTTPError) -> None:
    if _wants_json(req) or req.path.startswith("/console/api/"):
        resp.content_type = "application/problem+json"
        members = {"title": error.title, "status": error.status_code, "detail": error.description}
        resp.data = orjson.dumps(members)
        return
    resp.content_type = _HTML
    resp.text = render("refused.html.jinja", req.root_path, {"error": error, "typed": _typed(req)})


def _typed(req: falcon.Request) -> dict[str, str]:
    """The texts that were typed into a form, which no page shows again."""
    form = {} if req.path.startswith("/console/login") else getattr(req.context, "form", {})
    return {name: text for name, text in form.items() if text and name not in _NOT_TYPED}


def _on_unexpected(_req: falcon.Request, _resp: falcon.Response, ex: Exception, _params: Any) -> None:
    _log.error("A page of the console failed", exc_info=ex)
    raise falcon.HTTPInternalServerError(
        description="The page failed; the log of the broker contains the reason."
    ) from ex


def _rendered(template: str, base_path: str, context: Mapping[str, Any]) -> bytes:
    return render(template, base_path, context).encode()


def _wants_json(req: falcon.Request) -> bool:
    return bool(req.get_param("format") == "json")


def _answer_json(resp: falcon.Response, data: Any, status: int) -> None:
    resp.status = str(int(status))
    resp.content_type = "application/json"
    resp.data = orjson.dumps(data)
