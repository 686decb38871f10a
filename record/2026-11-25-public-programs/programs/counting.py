"""gunicorn's sync worker, which counts what it accepts, and an application of one word."""
import errno
import os

from gunicorn.workers.sync import SyncWorker


class CountingWorker(SyncWorker):
    served = vain = waits = 0
    has_waited = False

    def wait(self, timeout):
        ready = super().wait(timeout)
        self.has_waited = bool(ready)
        self.waits += self.has_waited
        return ready

    def accept(self, listener):
        waited, self.has_waited = self.has_waited, False
        try:
            super().accept(listener)
            self.served += 1
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EWOULDBLOCK):
                self.vain += waited
            raise

    def run(self):
        super().run()
        line = f"{self.served} {self.vain} {self.waits}\n"
        with open(os.environ["COUNTS"], "a") as counts:
            counts.write(line)


def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "3")])
    return [b"yes"]
