"""An engine for Khala in Python, with nothing but the standard library.

    python3 engine.py --port 8100

Khala posts each turn here and publishes the events that come back, one JSON object per line. Put your model where
`answer` is. docs/ENGINES.md is the contract.
"""

import argparse
import hmac
import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LARGEST_REQUEST = 16 * 1024 * 1024


def answer(turn):
    """Yields the events of an answer. What it raises ends the run with a message that people can read."""
    words = turn["message"].split()
    yield {"reasoning_delta": {"text": f"{len(words)} words to count."}}
    call = {"tool_call_id": f"{turn['run_id']}-count", "tool": "count"}
    yield {"tool_call": {**call, "input": {"text": turn["message"]}}}
    if not words:
        raise ValueError("There is nothing to count. Send a message with words.")
    yield {"tool_result": {**call, "output": {"words": len(words)}}}
    before = len(turn["history"])
    for word in f"Python counted {len(words)} words, after {before} messages.".split(" "):
        yield {"text_delta": {"text": word + " "}}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        token = os.environ.get("ENGINE_TOKEN")
        sent = self.headers.get("Authorization", "")
        if token and not hmac.compare_digest(sent.encode(), f"Bearer {token}".encode()):
            return self.send_error(401, "Send the engine's token")
        length = int(self.headers.get("Content-Length") or 0)
        if length > LARGEST_REQUEST:
            return self.send_error(413, "The turn is too large")
        turn = json.loads(self.rfile.read(length))
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.end_headers()
        try:
            for event in answer(turn):
                self.say(event)
            # It shows that the answer is whole: the connection alone would also close after a crash.
            self.say({"run_finished": {"reason": "stop"}})
        except ConnectionError:
            pass  # Somebody stopped the run.
        except Exception as error:
            self.say({"run_failed": {"message": str(error)}})

    def say(self, event):
        self.wfile.write(json.dumps(event).encode() + b"\n")
        self.wfile.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8100)
    server = ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Handler)
    print(f"the engine listens at http://127.0.0.1:{server.server_port}/", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
