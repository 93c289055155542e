"""`/openapi.json` and `/docs`: the description of the API, for machines, and as a page without any script."""

import base64
import functools
import hashlib
import json
import re
import shlex
from collections.abc import Iterator
from importlib.resources import files
from typing import Any, NamedTuple

import falcon
import orjson
from markupsafe import Markup, escape

from rioni.files import templates
from rioni.http.dependencies import Resource
from rioni.http.openapi.builders import JSON, PROBLEMS, Json
from rioni.http.openapi.document import COMMON, document
from rioni.http.streaming.frames import Frames
from rioni.wire.json_schema import SUBMITTED


# --- The description of the API as a page to read: complete in itself, without any script ---

DEPTH_MAX = 4
"""How deep the members of members are shown."""

STREAM = Frames.MEDIA_TYPE
_FOLDER = files("rioni.http.openapi")
_STYLE = _FOLDER.joinpath("page.css").read_text()
_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The page's content security policy: nothing but its own style, which is known by its hash."""


class Member(NamedTuple):
    """One row of the table that shows a schema."""

    path: str
    type: str
    required: bool
    description: str
    literals: tuple[str, ...]
    default: str


def render(document: Json, base_path: str = "") -> str:
    """The page for a document, which is served below a base path; every text of it is shown as text."""
    environment = templates.environment()
    resolve = _Resolver(document)
    environment.filters |= {
        "prose": prose,
        "pretty": pretty,
        "type": resolve.type_of,
        "component": resolve.component_of,
        "inlined": resolve.inlined,
        "anchor": anchor,
    }
    template = environment.from_string(_FOLDER.joinpath("page.html.jinja").read_text())
    text: str = template.render(
        document=document,
        base_path=base_path,
        style=Markup(_STYLE),  # noqa: S704 - a file of this package
        common={str(status): PROBLEMS[status] for status in sorted(COMMON)},
        parts=list(_parts(document, resolve)),
        schemas={
            name: list(resolve.members(schema))
            for name, schema in document["components"]["schemas"].items()
            if not name.startswith(SUBMITTED) and "properties" in schema
        },
    )
    return text


def prose(text: str) -> Markup:
    """Text with `code` in backticks."""
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if index % 2 else escape(piece)
        for index, piece in enumerate(text.split("`"))
    )


def pretty(example: Any) -> str:
    """An example as it is read best."""
    return example if isinstance(example, str) else json.dumps(example, indent=2, ensure_ascii=False)


def anchor(name: str) -> str:
    """The id of a part."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def curl(path: str, method: str, operation: Json) -> str:
    """How to call an operation from a shell in which RIONI is the address of the broker."""
    words = ["curl", *(["-N"] if STREAM in operation["responses"].get("200", {}).get("content", {}) else [])]
    words += [] if method == "get" else ["-X", method.upper()]
    options = []
    for parameter in operation["parameters"]:
        if parameter["in"] == "path":
            path = path.replace("{" + parameter["name"] + "}", parameter["example"])
        elif parameter.get("required"):
            options.append("-H " + shlex.quote(f"{parameter['name']}: {parameter['example']}"))
    if "requestBody" in operation:
        example = operation["requestBody"]["content"][JSON]["example"]
        options += [f"-H 'Content-Type: {JSON}'", "-d " + shlex.quote(pretty(example))]
    return " \\\n  ".join([" ".join([*words, f'"$RIONI{path}"']), *options])


class _Resolver:
    """Follows the references of one document."""

    def __init__(self, document: Json) -> None:
        self._document = document

    def part(self, part: Json) -> Json:
        """The target of a reference, or the part itself."""
        while "$ref" in part:
            found: Any = self._document
            for name in part["$ref"].removeprefix("#/").split("/"):
                found = found[name]
            part = found
        return part

    def type_of(self, schema: Json) -> str:
        """A schema in a word or two."""
        if "$ref" in schema:
            return str(schema["$ref"].rpartition("/")[2])
        if "anyOf" in schema:
            return " or ".join(self.type_of(each) for each in schema["anyOf"])
        if "allOf" in schema:
            return self.type_of(schema["allOf"][0])
        kinds = schema.get("type", "string" if "enum" in schema else "any")
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if "array" in kinds and "items" in schema:
            items = f"array of {self.type_of(schema['items'])}"
            kinds = [items if kind == "array" else kind for kind in kinds]
        return " or ".join(kinds)

    def component_of(self, schema: Json) -> str:
        """The name of the schema in `components` that this one, or each item of it, refers to; empty without one."""
        return str(schema.get("items", schema).get("$ref", "")).rpartition("/")[2]

    def members(self, schema: Json, prefix: str = "", depth: int = 0) -> Iterator[Member]:
        """The members of an object, and those of the objects in it that have no name of their own."""
        schema = schema if depth else self.part(schema)
        for part in schema.get("allOf", ()):
            yield from self.members(self.part(part), prefix, depth)
        if "items" in schema:
            yield from self.members(self.part(schema["items"]) if not depth else schema["items"], prefix + "[]", depth)
        for name, declared in schema.get("properties", {}).items():
            path = f"{prefix}.{name}" if prefix else name
            member = self.inlined(declared)
            yield Member(
                path=path,
                type=self.type_of(member),
                required=name in schema.get("required", ()),
                description=member.get("description", ""),
                literals=tuple(str(value) for value in member.get("enum", ()) if value is not None),
                default="" if member.get("default") in (None, [], {}) else json.dumps(member["default"]),
            )
            if depth < DEPTH_MAX and "$ref" not in member and "description" in member:
                yield from self.members(member, path, depth + 1)

    def inlined(self, schema: Json) -> Json:
        """A schema with its reference resolved, if its contents are shown in place: literals and bodies of requests."""
        if "items" in schema:
            return schema | {"items": self.inlined(schema["items"])}
        reference: Json = next((each for each in schema.get("anyOf", (schema,)) if "$ref" in each), {})
        found = self.part(reference)
        if "enum" not in found and not self.component_of(reference).startswith(SUBMITTED):
            return schema
        kinds = [found["type"], "null"] if "anyOf" in schema else found["type"]
        about = {key: value for key, value in schema.items() if key not in ("$ref", "anyOf")}
        return found | {"type": kinds} | about


def _parts(document: Json, resolve: _Resolver) -> Iterator[Json]:
    """The operations by tag, in the order of the tags, with their parameters and answers resolved."""
    for tag in document["tags"]:
        operations = [
            _shown(path, method, operation, resolve)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
            if tag["name"] in operation["tags"]
        ]
        yield {"tag": tag, "operations": operations}


def _shown(path: str, method: str, operation: Json, resolve: _Resolver) -> Json:
    """An operation without the parts that all operations share."""
    body = operation.get("requestBody", {}).get("content", {}).get(JSON, {})
    shown = operation | {
        "path": path,
        "method": method,
        "parameters": [parameter for parameter in operation["parameters"] if "$ref" not in parameter],
        "responses": {
            status: resolve.part(answer)
            for status, answer in operation["responses"].items()
            if "$ref" not in answer or int(status) not in COMMON
        },
        "members": list(resolve.members(body["schema"])) if body else [],
    }
    return shown | {"curl": curl(path, method, shown)}


# --- `/openapi.json` and `/docs`: the description of the API, for machines and for people ---

BASE_PATHS_CACHED = 8
"""How many base paths are cached; each takes 0.5 MB."""


# PERF: the page takes 40 ms on the first request; the document a tenth of that.
@functools.lru_cache(BASE_PATHS_CACHED)
def _page(base_path: str) -> bytes:
    return render(document(base_path), base_path).encode()


@functools.lru_cache(BASE_PATHS_CACHED)
def _description(base_path: str) -> bytes:
    return orjson.dumps(document(base_path))


class OpenApiResource(Resource):
    """`/openapi.json`."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Show the description."""
        resp.data = self._dependencies.compute_pool(_description, req.root_path)
        req.context.answers_all = True


class DocsResource(Resource):
    """`/docs`."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Show the description as a page that runs nothing and loads nothing."""
        resp.content_type = "text/html; charset=utf-8"
        resp.set_header("Content-Security-Policy", POLICY)
        resp.set_header("X-Content-Type-Options", "nosniff")
        resp.set_header("Referrer-Policy", "no-referrer")
        templates.load()
        resp.data = self._dependencies.compute_pool(_page, req.root_path)
        req.context.answers_all = True
