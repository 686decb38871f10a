/* Four threads poll one pipe: each byte wakes all of them, and three find nothing. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

static int ends[2];

static void *reader(void *unused)
{
	struct pollfd pipe = { .fd = ends[0], .events = POLLIN };
	char byte = 0;

	while (byte != 'q') {
		poll(&pipe, 1, -1);
		(void)!read(ends[0], &byte, 1);
	}
	return unused;
}

int main(void)
{
	pthread_t threads[4];

	if (pipe2(ends, O_NONBLOCK))
		return 1;
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, reader, NULL);
	for (int i = 0; i < 1500; i++) {
		usleep(2000);
		(void)!write(ends[1], "x", 1);
	}
	(void)!write(ends[1], "qqqq", 4);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
