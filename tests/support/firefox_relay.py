"""Firefox for Playwright, with the one command of WebDriver BiDi that it lacks: to choose between light and dark.

Playwright sends `emulation.setMediaFeaturesOverride` for each context, and opens none if that fails. Firefox 153, the
extended support release, does not know it. Playwright starts this program instead of Firefox, with the path of Firefox
before the arguments. It passes on what both say, and replaces that command by a script in the windows of Firefox.
"""

import json
import re
import subprocess
import sys
from queue import Queue
from threading import Thread
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.sync.server import ServerConnection, serve


LACKING = "emulation.setMediaFeaturesOverride"
_LISTENING = re.compile(r"WebDriver BiDi listening on (ws://\S+)")
_WINDOWS_ID = 2**50
"""The id of the only command of this program; Playwright counts its own from 1."""
_WINDOWS_TIMEOUT_S = 60
_CHOOSE_THEME = """(theme, ...pages) => {
  const { NavigableManager } = ChromeUtils.importESModule("chrome://remote/content/shared/NavigableManager.sys.mjs");
  for (const page of pages) NavigableManager.getBrowsingContextById(page).top.prefersColorSchemeOverride = theme;
  if (!pages.length)
    Services.prefs.setIntPref("layout.css.prefers-color-scheme.content-override", ["dark", "light"].indexOf(theme));
}"""
"""For some pages, or for all that have no theme of their own."""


def main(binary: str, *arguments: str) -> int:
    """Run Firefox until it ends; returns its exit status."""
    command = [binary, *arguments, "--remote-allow-system-access"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace") as firefox:
        assert firefox.stderr is not None
        for line in firefox.stderr:
            found = _LISTENING.search(line)
            sys.stderr.write(f"WebDriver BiDi listening on {_listen(found[1])}\n" if found else line)
            sys.stderr.flush()
    return firefox.returncode


def _listen(firefox_url: str) -> str:
    """Pass on messages between a client and Firefox, in threads that end with this program; returns the URL."""

    def relay(client: ServerConnection) -> None:
        with connect(f"{firefox_url}/session", max_size=None, compression=None) as firefox:
            _relay(client, firefox)

    server = serve(relay, "127.0.0.1", 0, max_size=None, compression=None)
    Thread(target=server.serve_forever, daemon=True).start()
    return f"ws://127.0.0.1:{server.socket.getsockname()[1]}"


def _relay(client: ServerConnection, firefox: ClientConnection) -> None:
    windows: Queue[str] = Queue(maxsize=1)
    Thread(target=_pass_back, args=(client, firefox, windows), daemon=True).start()
    for said in client:
        message, command = said, json.loads(said)
        if command["method"] == LACKING:
            tree = {"moz:scope": "chrome", "maxDepth": 0}
            firefox.send(json.dumps({"id": _WINDOWS_ID, "method": "browsingContext.getTree", "params": tree}))
            window = windows.get(timeout=_WINDOWS_TIMEOUT_S)
            message = json.dumps({"id": command["id"], **_choose_theme(window, command["params"])})
        firefox.send(message)


def _pass_back(client: ServerConnection, firefox: ClientConnection, windows: "Queue[str]") -> None:
    try:
        for message in firefox:
            # PERF: most messages are long, and only the answer to the command of this program has to be understood.
            if str(_WINDOWS_ID) in message and (answer := json.loads(message)).get("id") == _WINDOWS_ID:
                windows.put(answer["result"]["contexts"][0]["context"])
            else:
                client.send(message)
    except ConnectionClosed:
        pass
    client.close()


def _choose_theme(window: str, params: dict[str, Any]) -> dict[str, Any]:
    theme = params["features"].get("prefers-color-scheme") or "none"
    arguments = [{"type": "string", "value": text} for text in (theme, *params.get("contexts", ()))]
    call = {"functionDeclaration": _CHOOSE_THEME, "arguments": arguments, "awaitPromise": False}
    return {"method": "script.callFunction", "params": {**call, "target": {"context": window}}}


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
