#!/usr/bin/env python3
"""A web server with a slow line, for the files of one directory.

  slow.py DIRECTORY --mb 5 [--ranges]

All answers together have so many million bytes a second. Without --ranges it gives whole files from front to back only, as
servers do that know no ranges. Prints its address as the first line."""

import argparse
import http.server
import os
import re
import threading
import time

PIECE = 64 << 10


class Line:
    """Everything that is sent takes its turn."""

    def __init__(self, rate):
        self.pace, self.free, self.lock = 1 / rate, 0.0, threading.Lock()

    def send(self, count):
        """Waits until so many bytes have passed."""
        with self.lock:
            self.free = max(time.monotonic(), self.free) + count * self.pace
            until = self.free
        time.sleep(max(0.0, until - time.monotonic()))


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    root, line, ranges = ".", None, False

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def answer(self, body):
        path = os.path.join(self.root, os.path.basename(self.path.split("?")[0]))
        if not os.path.isfile(path):
            self.send_error(404)
            return
        about = os.stat(path)
        begin, stop, status = 0, about.st_size, 200
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", "")) if self.ranges else None
        if asked and asked.group(0) != "bytes=-":
            first, last = asked.groups()
            status = 206
            if first:
                begin, stop = int(first), min(stop, int(last) + 1) if last else stop
            else:
                begin = max(0, stop - int(last))
            if begin >= stop:
                self.send_error(416)
                return
        self.send_response(status)
        self.send_header("Content-Length", str(stop - begin))
        self.send_header("ETag", f'"{about.st_mtime_ns:x}-{about.st_size:x}"')
        self.send_header("Last-Modified", self.date_time_string(about.st_mtime))
        if self.ranges:
            self.send_header("Accept-Ranges", "bytes")
        if status == 206:
            self.send_header("Content-Range", f"bytes {begin}-{stop - 1}/{about.st_size}")
        self.end_headers()
        if not body:
            return
        try:
            with open(path, "rb", buffering=0) as file:
                file.seek(begin)
                while begin < stop:
                    piece = file.read(min(PIECE, stop - begin))
                    if not piece:
                        raise ConnectionError(f"{path} became shorter")
                    self.line.send(len(piece))
                    self.wfile.write(piece)
                    begin += len(piece)
        except ConnectionError:  # whoever reads has enough
            self.close_connection = True


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("directory")
    p.add_argument("--mb", type=float, default=5)
    p.add_argument("--ranges", action="store_true")
    a = p.parse_args()
    Handler.root, Handler.line, Handler.ranges = a.directory, Line(a.mb * 1e6), a.ranges
    served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.daemon_threads = True
    print(f"http://127.0.0.1:{served.server_address[1]}", flush=True)
    served.serve_forever()


if __name__ == "__main__":
    main()
