"""Clients that generators make of `/openapi.json`: with all operations and types, compiled, one of them in use."""

import hashlib
import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from rioni.cli.cluster.cluster import fetch_jars
from tests.clients.conftest import output


pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(1_800)]

HERE = Path(__file__).parent / "generators"
JAR_SHA256 = "41ce4f6b07f196676439d710759fa1ced7a08066d06ff1bf314681470289efae"
INSTALL_TIMEOUT_S = 900
STRICT = (
    *("--strict", "--noEmit", "--target", "es2020", "--lib", "es2020,dom"),
    *("--module", "esnext", "--moduleResolution", "bundler"),
)
ABOUT_THE_GENERATOR = (
    "OpenAPI 3.1 support is still in beta",  # of every document of this version
    "Ignoring complex example on request body",  # examples of arrays are not in the documentation of the Java client
    "Failed to get the schema name: null",  # of the Python generator, without a consequence
)


@pytest.fixture(scope="module")
def document(server, tmp_path_factory):
    """The description of the API as the broker serves it, and a file with it."""
    file = tmp_path_factory.mktemp("description") / "openapi.json"
    with server.client() as client:
        file.write_text(client.get("/openapi.json").text)
    return file


@pytest.fixture(scope="module")
def npm(tmp_path_factory):
    """The folder of the commands that npm has installed."""
    folder = tmp_path_factory.mktemp("npm")
    shutil.copy(HERE / "package.json", folder)
    output("npm", "install", "--no-audit", "--no-fund", cwd=folder, timeout=INSTALL_TIMEOUT_S)
    return folder / "node_modules" / ".bin"


def environment(folder, *requirements):
    """An environment for Python with some packages; returns its folder of programs."""
    output(sys.executable, "-m", "venv", folder)
    install = (folder / "bin" / "pip", "install", "--quiet")
    output(*install, *(part for file in requirements for part in ("--requirement", file)), timeout=INSTALL_TIMEOUT_S)
    return folder / "bin"


def generated(document, folder, generator, *options) -> Path:
    """Runs openapi-generator, which must warn of nothing in the document."""
    path = fetch_jars(HERE / "pom.xml")
    (jar,) = Path(path).parent.glob("*.jar")
    assert hashlib.sha256(jar.read_bytes()).hexdigest() == JAR_SHA256
    command = ("java", "-cp", path, "org.openapitools.codegen.OpenAPIGenerator", "generate")
    printed = output(*command, "-i", document, "-g", generator, "-o", folder, *options, timeout=INSTALL_TIMEOUT_S)
    warnings = [line for line in printed.splitlines() if re.search(r"\b(WARN|ERROR)\b", line)]
    assert [line for line in warnings if not any(known in line for known in ABOUT_THE_GENERATOR)] == []
    return folder


def plain(name) -> str:
    return re.sub(r"[^a-z0-9]", "", str(name).lower())


def assert_complete(document, models, operations):
    """Every schema has its model, and every operation its function, however a language writes their names."""
    described = json.loads(document.read_text())
    schemas = {plain(name) for name in described["components"]["schemas"]}
    assert schemas - {plain(file.stem) for file in models} == set()
    text = plain(" ".join(f"{file.stem} {file.read_text()}" for file in operations))
    ids = [each["operationId"] for methods in described["paths"].values() for each in methods.values()]
    assert [each for each in ids if plain(each) not in text] == []


def test_openapi_generator_makes_a_client_for_python(document, server, tmp_path):
    client = generated(document, tmp_path / "client", "python")
    package = client / "openapi_client"
    assert_complete(document, package.glob("models/*.py"), package.glob("api/*.py"))
    programs = environment(tmp_path / "venv", client / "requirements.txt")
    printed = output(
        programs / "python", HERE / "round_trip.py", server.url, cwd=client, env={"PYTHONPATH": str(client)}
    )
    assert printed.splitlines() == ["generated.python 1.0.0 None 300000000", "1 0", "True", "0", "True"]


def test_openapi_generator_makes_a_client_for_typescript(document, npm, tmp_path):
    client = generated(document, tmp_path / "client", "typescript-fetch")
    assert_complete(document, client.glob("models/*.ts"), client.glob("apis/*.ts"))
    output(npm / "tsc", *STRICT, client / "index.ts", timeout=INSTALL_TIMEOUT_S)


def test_openapi_generator_makes_a_client_for_java(document, server, tmp_path):
    client = generated(document, tmp_path / "client", "java", "--library", "native")
    sources = client / "src" / "main" / "java" / "org" / "openapitools" / "client"
    assert_complete(document, sources.glob("model/*.java"), sources.glob("api/*.java"))
    goals = ("compile", "dependency:build-classpath", "-Dmdep.outputFile=class-path.txt")
    output("mvn", "--quiet", "--batch-mode", "-DskipTests", *goals, cwd=client, timeout=INSTALL_TIMEOUT_S)
    path = f"{client}/target/classes:{(client / 'class-path.txt').read_text()}"
    printed = output("java", "-cp", path, HERE / "RoundTrip.java", server.url, timeout=INSTALL_TIMEOUT_S)
    assert printed.splitlines() == ["generated.java 1.0.0 null 300000000", "1", "1 0", "true", "0", "true", "1"]


def test_openapi_typescript_makes_types(document, npm, tmp_path):
    types = tmp_path / "rioni.ts"
    output(npm / "openapi-typescript", document, "--output", types, timeout=INSTALL_TIMEOUT_S)
    named = re.findall(r"^ {8}(\w+): ", types.read_text(), re.MULTILINE)
    assert_complete(document, map(Path, named), [types])
    output(npm / "tsc", *STRICT, types, timeout=INSTALL_TIMEOUT_S)


def test_openapi_python_client_makes_a_client(document, tmp_path):
    programs = environment(tmp_path / "venv", HERE / "requirements.txt")
    package = tmp_path / "rioni_client"
    both = ("/bin/sh", "-c", 'exec "$@" 2>&1', "sh")
    command = (programs / "openapi-python-client", "generate", "--path", document, "--meta", "none")
    # It formats with ruff, which it finds by its name.
    printed = output(*both, *command, "--output-path", package, env={"PATH": str(programs)}, timeout=INSTALL_TIMEOUT_S)
    # It knows no Avro: publishing and deleting events are left with JSON alone.
    assert printed.count("WARNING") == printed.count("Unsupported content type application/avro-binary") == 2
    assert "Unable" not in printed
    assert_complete(document, package.glob("models/*.py"), package.glob("api/*/*.py"))
    parts = (package / "api", package / "models")
    output(programs / "mypy", "--follow-imports", "silent", *parts, cwd=tmp_path, timeout=INSTALL_TIMEOUT_S)
