"""How long the largest requests hold the hub of a worker, and the interpreter: `python -m benchmarks.hub [words]`.

Each request is made on its own. "hub" is the longest time of the processor that a greenlet ran without a switch, "call"
the longest single call of C code in a thread of a pool, which lets no other thread run. Nothing should be beyond 10 ms.
"""

import argparse
import tempfile
import time
from pathlib import Path

import httpx

from tests.support.hub_watch import PATH, PROGRAM
from tests.support.largest_requests import SMALL_COUNT, answer, prepare, requests
from tests.support.server import running_server


SHOWN_MS = 10.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only requests whose names have one of these")
    parser.add_argument("--small", type=int, default=SMALL_COUNT, help="event types and subscriptions")
    parser.add_argument("--calls", action="store_true", help="measure calls of C code in threads, which slows all down")
    parser.add_argument("--stacks", action="store_true", help="show where the hub was held for long")
    options = parser.parse_args()
    settings = {"RIONI_QUOTA_CHANGES_PER_MINUTE": "0", "RIONI_QUOTA_CHANGE_BYTES_PER_MINUTE": "0"}
    with (
        tempfile.TemporaryDirectory() as folder,
        running_server(Path(folder), "--workers", "1", environment=settings, program=PROGRAM) as server,
        httpx.Client(base_url=server.url, timeout=120) as client,
    ):
        begin_s = time.perf_counter()
        watched = f"{PATH}?calls" if options.calls else PATH
        world = prepare(client, options.small)
        floor_ms = client.get(watched).json()["floor_ms"]
        print(f"prepared in {time.perf_counter() - begin_s:.0f} s; the fixed loop takes {floor_ms:.1f} ms")
        print(f"{'request':<48} {'status':>6} {'bytes':>10} {'hub, ms':>8} {'call, ms':>9} {'s':>6}")
        for request in requests(world):
            if options.words and not any(word in request.name for word in options.words):
                continue
            client.get(PATH)
            begin_s = time.perf_counter()
            status, size, first = answer(client, request)
            taken_s = time.perf_counter() - begin_s
            found = client.get(PATH).json()
            unexpected = "" if status == request.status else f"  NOT {request.status}: {first!r}"
            print(
                f"{request.name:<48} {status:>6} {size:>10,} {found['held_ms']:>8.1f} {found['call_ms']:>9.1f} "
                f"{taken_s:>6.2f}{unexpected}",
                flush=True,
            )
            if options.stacks and found["held_ms"] > SHOWN_MS:
                print(f"    hub: {found['stack']}")
            if options.stacks and found["call_ms"] > SHOWN_MS:
                print(f"    call: {found['call']}")


if __name__ == "__main__":
    main()
