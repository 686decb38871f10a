"""Processes that accept from one socket, each by gevent: python gevent_herd.py PORT PROCESSES SECONDS"""
import os
import signal
import sys

import gevent
from gevent import socket
from gevent.server import StreamServer

port, processes, seconds = map(int, sys.argv[1:4])


class Counting(StreamServer):
    served = vain = 0

    def do_read(self):
        got = super().do_read()
        self.served += got is not None
        self.vain += got is None
        return got


def reply(connection, _):
    connection.recv(1024)
    connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nyes")
    connection.close()


def serve(listener):
    server = Counting(listener, reply)
    server.max_accept = 1
    server.start()
    gevent.sleep(seconds)
    server.stop()
    with open(os.environ["COUNTS"], "a") as counts:
        counts.write(f"{server.served} {server.vain} 0\n")


listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("127.0.0.1", port))
listener.listen(128)
listener.setblocking(False)
children = []
for _ in range(processes):
    pid = gevent.fork()
    if pid == 0:
        serve(listener)
        os._exit(0)
    children.append(pid)
for pid in children:
    os.waitpid(pid, 0)
