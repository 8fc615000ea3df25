"""An engine for Khala in Python, with nothing but the standard library.

    python3 engine.py --port 8100

Khala posts each turn here and publishes the events that come back, one JSON object per line. Put your model where
`answer` is. docs/guides/other_languages.md is the contract.
"""

import argparse
import hmac
import json
import os
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LARGEST_REQUEST = 16 * 1024 * 1024
LARGEST_FILE = 25 * 1024 * 1024


class PublicError(Exception):
    """Its message is shown to end users as it is. Of any other exception they see a plain sentence."""

    def __init__(self, message, code="engine_failed"):
        super().__init__(message)
        self.code = code


def answer(turn):
    """Yields the events of an answer."""
    limit = turn.get("params", {}).get("max_words", 1000)
    call = {"tool_call_id": f"{turn['run_id']}-count", "tool": "count"}
    output = kept_output(turn, call["tool_call_id"])
    if output is None:
        yield {"reasoning_delta": {"text": "I have a tool that counts."}}
        yield {"tool_call": {**call, "input": {"text": turn["message"]}}}
        words = turn["message"].split()
        if not words and not files_of(turn):
            raise PublicError("There is nothing to count. Send a message with words.", "refused")
        words += [word for file in files_of(turn) for word in read_file(file).decode().split()]
        output = {"words": len(words)}
        yield {"tool_result": {**call, "output": output}}
    if output["words"] > limit:
        raise PublicError(f"I count to {limit}.", "context_length")
    before = len(turn["history"])
    for word in f"Python counted {output['words']} words, after {before} messages.".split(" "):
        yield {"text_delta": {"text": word + " "}}


def kept_output(turn, tool_call_id):
    """The result of a call that an interrupted attempt completed; None when it did not. So no tool works twice."""
    for message in turn.get("resume", {}).get("messages", []):
        for part in message.get("parts", []):
            tool = part.get("tool", {})
            if tool.get("tool_call_id") == tool_call_id and "output" in tool:
                return tool["output"]
    return None


def files_of(turn):
    return [part["file"] for part in turn.get("parts", []) if "file" in part]


def read_file(file):
    """A file of the conversation, from the Khala server: KHALA_URL, and KHALA_TOKEN with the scope chat:service."""
    if not file["url"].startswith("/files/"):
        raise PublicError("I read files of this conversation only.", "refused")
    token = os.environ.get("KHALA_TOKEN", "")
    request = urllib.request.Request(os.environ["KHALA_URL"] + file["url"])
    request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=30) as response:
        return response.read(LARGEST_FILE)


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
        except PublicError as error:
            self.say({"run_failed": {"message": str(error), "code": error.code}})
        except Exception as error:
            self.log_error("the run %s failed: %r", turn.get("run_id"), error)
            self.say({"run_failed": {"message": "The answer could not be completed. Send the message again."}})

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
