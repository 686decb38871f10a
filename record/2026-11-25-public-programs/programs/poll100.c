/* Threads that look at a flag each 100 ms: cc -O1 -g -pthread poll100.c -o poll100; poll100 THREADS LOOKS */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static atomic_int stop;
static atomic_long looks, sleeps;
static long looks_each;

__attribute__((noinline)) static void look_for_work(void)
{
	usleep(100000);
	atomic_fetch_add(&sleeps, 1);
}

static void *worker(void *unused)
{
	for (long n = 0; n < looks_each && !atomic_load(&stop); n++) {
		look_for_work();
		atomic_fetch_add(&looks, 1);
	}
	return unused;
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 16;
	looks_each = argc > 2 ? atol(argv[2]) : 30;
	pthread_t *all = calloc(threads, sizeof *all);
	for (int n = 0; n < threads; n++)
		pthread_create(&all[n], NULL, worker, NULL);
	for (int n = 0; n < threads; n++)
		pthread_join(all[n], NULL);
	/* A poll is a sleep that was begun again: the first of each thread is none. */
	printf("truth: sleeps %ld, polls %ld\n", sleeps, sleeps - threads);
}
