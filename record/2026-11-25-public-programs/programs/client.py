"""One request after another, each on a connection of its own: python client.py PORT REQUESTS PAUSE_MS"""
import socket
import sys
import time

port, requests, pause_ms = map(int, sys.argv[1:4])
deadline = time.monotonic() + 20
done = 0
while done < requests and time.monotonic() < deadline:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as server:
            server.sendall(b"GET / HTTP/1.0\r\n\r\n")
            while server.recv(4096):
                pass
        done += 1
        time.sleep(pause_ms / 1000)
    except ConnectionRefusedError:
        time.sleep(0.05)
print(f"client: {done} requests")
