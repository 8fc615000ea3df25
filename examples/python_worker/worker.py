"""An agent for Khala's blackboard in Python, with nothing but the standard library.

    KHALA_URL=http://127.0.0.1:4000 python3 worker.py --agent editor

It claims tasks of an agent that the app declares without `run`, works on each, and settles it. Put your work where `work` is.
docs/protocol/blackboard/workers.md is the contract. The token is KHALA_TOKEN; without one the server is asked: one in development
answers anybody on its machine, others want KHALA_AUTH_ISSUER_KEY.
"""

import argparse
import json
import os
import random
import signal
import socket
import sys
import threading
import time
import traceback
import urllib.error
import urllib.request


class Fatal(Exception):
    """No repetition can help: the task becomes a dead letter at once."""


class RateLimited(Exception):
    """A called service asks to wait."""

    def __init__(self, message, retry_after_ms):
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


def work(task, idempotency_key, cancelled):
    """Returns the artifacts to publish. May run twice for a task: hand the key to whatever it calls. A task that takes long checks
    at `cancelled.is_set()` now and then, and returns when it is."""
    text = task["artifacts"][0]["payload"]["text"]
    if not isinstance(text, str):
        raise Fatal("payload.text is no text, and will not become one.")
    words = text.split()
    if not words:
        raise ValueError("There is nothing to edit. Publish a text with words.")
    return [{"type": "Edited", "payload": {"text": " ".join(words), "words": len(words), "key": idempotency_key}}]


class Server:
    """Khala's HTTP interface, as far as a worker needs it."""

    def __init__(self, url, org, agent):
        self.url, self.org, self.agent = url.rstrip("/"), org, agent
        self.token, self.renew_at = os.environ.get("KHALA_TOKEN"), float("inf")
        self.lock = threading.Lock()
        if not self.token:
            self.renew_at = 0

    def call(self, path, body, timeout=60):
        """Answers the status and the JSON; 0 when nobody answered."""
        try:
            return self.post(path, body, self.bearer(), timeout)
        except (OSError, ValueError) as error:
            return 0, {"error": {"code": "unreachable", "message": str(error)}}

    def bearer(self):
        with self.lock:
            if time.monotonic() >= self.renew_at:
                wish = {"sub": "worker", "org_id": self.org, "scopes": [f"blackboard:work:{self.agent}"], "ttl_s": 300}
                status, answer = self.post("/api/sync/token", wish, os.environ.get("KHALA_AUTH_ISSUER_KEY"), 10)
                if status != 200:
                    raise OSError(f"there is no token to be had: {answer['error']['message']}")
                self.token, self.renew_at = answer["token"], time.monotonic() + 200
            return self.token

    def post(self, path, body, token, timeout):
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=timeout) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)


def heartbeat(server, claim, ended, cancelled):
    """Keeps the claim until the work has ended, or is not wanted any more."""
    while not ended.wait(claim["lease_ms"] / 3_000):
        status, answer = server.call(f"/blackboard/v1/claims/{claim['claim_id']}/heartbeat", {}, timeout=10)
        # Anything else may pass: the next one comes before the lease ends.
        if status in (404, 409) or (status == 200 and answer.get("cancelled")):
            cancelled.set()
            return


def settlement_of(claim, cancelled):
    """Does the work, and says what came of it."""
    try:
        return {"outputs": work(claim["task"], claim["idempotency_key"], cancelled)}
    except Exception as error:
        kind = "fatal" if isinstance(error, Fatal) else "rate_limited" if isinstance(error, RateLimited) else "retryable"
        failure = {"class": type(error).__name__, "message": str(error) or kind, "stack": traceback.format_exc(), "kind": kind}
        more = {"retry_after_ms": error.retry_after_ms} if isinstance(error, RateLimited) else {}
        return {"failure": failure, **more}


def settle(server, claim, settlement):
    """Settles until it is answered: the same settlement counts once, however often it is sent."""
    for attempt in range(20):
        status, answer = server.call(f"/blackboard/v1/claims/{claim['claim_id']}/settle", settlement)
        if status == 200:
            return answer["status"]
        if status == 400:
            # The outputs are not what they must be, which the same outputs will never be.
            message = answer["error"]["message"]
            settlement = {"failure": {"class": "InvalidOutputs", "message": message, "kind": "fatal"}}
        elif 0 < status < 500 and status not in (401, 429):
            return answer["error"]["code"]
        pause(attempt)
    return "given up"


def handle(server, claim):
    ended, cancelled = threading.Event(), threading.Event()
    beat = threading.Thread(target=heartbeat, args=(server, claim, ended, cancelled), daemon=True)
    beat.start()
    try:
        settlement = settlement_of(claim, cancelled)
        status = "cancelled" if cancelled.is_set() else settle(server, claim, settlement)
    finally:
        ended.set()
    print(json.dumps({"task": claim["task"]["id"], "attempt": claim["task"]["attempt"], "status": status}), flush=True)


def pause(attempt):
    time.sleep(random.uniform(0.1, 0.2 * 2 ** min(attempt, 6)))


def main():
    parser = argparse.ArgumentParser(description="Works for an agent of Khala's blackboard.")
    parser.add_argument("--agent", required=True, help="an agent that the app declares without `run`")
    parser.add_argument("--url", default=os.environ.get("KHALA_URL", "http://127.0.0.1:4000"))
    parser.add_argument("--org", default="demo", help="whose tasks, when the server is asked for a token")
    options = parser.parse_args()
    stopping, asking = threading.Event(), threading.Event()

    def stop(*_):
        stopping.set()
        # A task under way is finished first; a question can be dropped, since the server notices.
        if asking.is_set():
            sys.exit(0)

    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, stop)
    server, failures = Server(options.url, options.org, options.agent), 0
    ask = {"worker": f"{socket.gethostname()}-{os.getpid()}", "max": 1, "wait_ms": 30_000}
    print(f"a worker for {options.agent} asks {options.url}", flush=True)
    while not stopping.is_set():
        asking.set()
        status, answer = server.call(f"/blackboard/v1/agents/{options.agent}/claim", ask)
        asking.clear()
        if status != 200:
            print(f"no claim: {answer['error']['code']}: {answer['error']['message']}", file=sys.stderr, flush=True)
            pause(failures)
            failures += 1
            continue
        failures = 0
        for claim in answer["claims"]:
            handle(server, claim)


if __name__ == "__main__":
    main()
