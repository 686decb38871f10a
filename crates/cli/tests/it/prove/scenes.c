// Programs that wait needlessly, for the cures of `unherd prove`: each prints what it has got done,
// the same in each run.

#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void must(bool holds, const char *what)
{
	if (!holds) {
		perror(what);
		exit(1);
	}
}

// Takes connections, and gives each a byte, until `stop` is closed.
static void serve(int listener, int stop, unsigned flags)
{
	int set = epoll_create1(0);
	struct epoll_event event = { .events = EPOLLIN | flags, .data.fd = listener };
	must(epoll_ctl(set, EPOLL_CTL_ADD, listener, &event) == 0, "add");
	// Some servers do this: it changes nothing, and must work.
	must(epoll_ctl(set, EPOLL_CTL_MOD, listener, &event) == 0, "modify");
	struct epoll_event end = { .events = EPOLLIN, .data.fd = stop };
	must(epoll_ctl(set, EPOLL_CTL_ADD, stop, &end) == 0, "add stop");
	for (;;) {
		must(epoll_wait(set, &event, 1, -1) == 1, "epoll_wait");
		if (event.data.fd == stop)
			return;
		int taken = accept4(listener, NULL, NULL, 0);
		if (taken >= 0) {
			must(write(taken, "x", 1) == 1, "write");
			close(taken);
		}
		event.events = EPOLLIN | flags;
		must(!(flags & EPOLLONESHOT) || !epoll_ctl(set, EPOLL_CTL_MOD, listener, &event),
		     "arm again");
	}
}

// `workers` processes wait for `connections` at one listener.
static void accept_herd(int workers, int connections, unsigned flags)
{
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), stop[2];
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t length = sizeof(at);
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	must(bind(listener, (void *)&at, length) == 0 && listen(listener, 128) == 0, "listen");
	must(getsockname(listener, (void *)&at, &length) == 0 && pipe(stop) == 0, "name");
	for (int worker = 0; worker < workers; worker++) {
		if (fork() == 0) {
			close(stop[1]);
			serve(listener, stop[0], flags);
			_exit(0);
		}
	}
	int served = 0;
	for (int count = 0; count < connections; count++) {
		int connection = socket(AF_INET, SOCK_STREAM, 0);
		char byte;
		must(connect(connection, (void *)&at, sizeof(at)) == 0, "connect");
		served += read(connection, &byte, 1) == 1;
		close(connection);
		usleep(300);
	}
	close(stop[1]);
	while (wait(NULL) > 0)
		;
	printf("served %d\n", served);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int waiting, tokens, taken, turn;
static bool closed, keyed;

static void *take(void *number)
{
	pthread_mutex_lock(&mutex);
	for (;;) {
		if (tokens > 0 && (!keyed || turn == (int)(long)number)) {
			tokens--;
			taken++;
		} else if (closed) {
			break;
		} else {
			waiting++;
			pthread_cond_wait(&changed, &mutex);
			waiting--;
		}
	}
	pthread_mutex_unlock(&mutex);
	return NULL;
}

static void until_all_wait(int waiters)
{
	for (bool wait = true; wait;) {
		usleep(200);
		pthread_mutex_lock(&mutex);
		wait = waiting < waiters || tokens > 0;
		pthread_mutex_unlock(&mutex);
	}
}

// Tells `waiters` threads of one token, `rounds` times; with keys, it is for one of them.
static void broadcast(int waiters, int rounds)
{
	pthread_t threads[waiters];
	for (int each = 0; each < waiters; each++)
		pthread_create(&threads[each], NULL, take, (void *)(long)each);
	for (int round = 0; round < rounds; round++) {
		until_all_wait(waiters);
		pthread_mutex_lock(&mutex);
		tokens++;
		turn = (round * 5 + 3) % waiters;
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&mutex);
	}
	until_all_wait(waiters);
	pthread_mutex_lock(&mutex);
	closed = true;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mutex);
	for (int each = 0; each < waiters; each++)
		pthread_join(threads[each], NULL);
	printf("taken %d\n", taken);
}

static int flag;

static void *raise_flag(void *milliseconds)
{
	usleep(1000 * (long)milliseconds);
	__atomic_store_n(&flag, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

// Looks at a flag each `period` microseconds, until it is up.
static void timer_poll(int milliseconds, int period)
{
	pthread_t raiser;
	pthread_create(&raiser, NULL, raise_flag, (void *)(long)milliseconds);
	while (!__atomic_load_n(&flag, __ATOMIC_SEQ_CST))
		usleep(period);
	pthread_join(raiser, NULL);
	printf("seen\n");
}

// Sleeps `times` times for `period` microseconds.
static void pace(int times, int period)
{
	for (int at = 0; at < times; at++)
		usleep(period);
	printf("paced\n");
}

static sem_t asked, answered;

static void *answer(void *questions)
{
	for (long count = (long)questions; count > 0; count--) {
		errno = 0;
		must(sem_wait(&asked) == 0 && errno == 0, "sem_wait");
		sem_post(&answered);
	}
	pthread_mutex_lock(&mutex);
	for (long count = (long)questions; count > 0; count--) {
		while (!tokens)
			pthread_cond_wait(&changed, &mutex);
		tokens = 0;
		pthread_cond_broadcast(&changed);
	}
	pthread_mutex_unlock(&mutex);
	return NULL;
}

// Two threads hand over to each other, by semaphores and by a condition.
static void hand_over(int times)
{
	pthread_t other;
	sem_init(&asked, 0, 0);
	sem_init(&answered, 0, 0);
	pthread_create(&other, NULL, answer, (void *)(long)times);
	for (int count = 0; count < times; count++) {
		sem_post(&asked);
		sem_wait(&answered);
	}
	pthread_mutex_lock(&mutex);
	for (int count = 0; count < times; count++) {
		tokens = 1;
		pthread_cond_broadcast(&changed);
		while (tokens)
			pthread_cond_wait(&changed, &mutex);
	}
	pthread_mutex_unlock(&mutex);
	pthread_join(other, NULL);
	printf("handed over %d\n", times);
}

// Each condition is destroyed, and its memory used for something else, right after a broadcast.
static void *wait_once(void *condition)
{
	pthread_mutex_lock(&mutex);
	int round = turn;
	waiting++;
	while (turn == round)
		pthread_cond_wait(condition, &mutex);
	pthread_mutex_unlock(&mutex);
	return NULL;
}

// A new condition, at which `waiters` threads wait.
static pthread_cond_t *waited_for(pthread_t *threads, int waiters)
{
	pthread_cond_t *condition = malloc(sizeof(*condition));
	pthread_cond_init(condition, NULL);
	waiting = 0;
	for (int each = 0; each < waiters; each++)
		pthread_create(&threads[each], NULL, wait_once, condition);
	until_all_wait(waiters);
	return condition;
}

static void next_turn(pthread_cond_t *condition)
{
	pthread_mutex_lock(&mutex);
	turn++;
	pthread_cond_broadcast(condition);
	pthread_mutex_unlock(&mutex);
}

static void destroy(int waiters, int rounds)
{
	pthread_t threads[waiters];
	for (int round = 0; round < rounds; round++) {
		pthread_cond_t *condition = waited_for(threads, waiters);
		pthread_mutex_lock(&mutex);
		turn++;
		pthread_cond_broadcast(condition);
		// The waiters need no longer the condition, only the mutex.
		pthread_cond_destroy(condition);
		memset(condition, 0xff, sizeof(*condition));
		pthread_mutex_unlock(&mutex);
		for (int each = 0; each < waiters; each++)
			pthread_join(threads[each], NULL);
		free(condition);
	}
	printf("destroyed %d\n", rounds);
}

// A thread that a broadcast has woken lets the mutex go, and may be waking the next by the cure. Its
// condition is destroyed meanwhile, or made again by a child, whose threads are its own.
static void pass(int waiters, bool forks)
{
	pthread_t threads[waiters];
	pthread_cond_t *condition = waited_for(threads, waiters);
	next_turn(condition);
	usleep(30000);
	pid_t child = forks ? fork() : 0;
	if (child == 0) {
		if (forks) {
			pthread_cond_init(condition, NULL);
			next_turn(condition);
		}
		pthread_cond_destroy(condition);
		memset(condition, 0xff, sizeof(*condition));
		if (forks)
			_exit(0);
	}
	for (int each = 0; each < waiters; each++)
		pthread_join(threads[each], NULL);
	int status = 0;
	must(!forks || (waitpid(child, &status, 0) == child && status == 0), "child");
	printf("passed\n");
}

// Looks at `turn`, which does not change, when it is woken.
static int looks;

static void unlock_mutex(void *unused)
{
	(void)unused;
	pthread_mutex_unlock(&mutex);
}

static void *look_on(void *unused)
{
	pthread_mutex_lock(&mutex);
	pthread_cleanup_push(unlock_mutex, NULL);
	waiting++;
	for (;; looks++)
		pthread_cond_wait(&changed, &mutex);
	pthread_cleanup_pop(true);
	return unused;
}

// Of `waiters` one is cancelled; a broadcast wakes the others once each.
static void cancel(int waiters, int milliseconds)
{
	pthread_t threads[waiters];
	for (int each = 0; each < waiters; each++)
		pthread_create(&threads[each], NULL, look_on, NULL);
	until_all_wait(waiters);
	pthread_cancel(threads[0]);
	pthread_join(threads[0], NULL);
	pthread_mutex_lock(&mutex);
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mutex);
	usleep(1000 * milliseconds);
	pthread_mutex_lock(&mutex);
	printf("%s\n", looks < 10 * waiters ? "few looks" : "many looks");
	exit(0);
}

// How often this thread has slept.
static int slept(void)
{
	struct rusage usage;
	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nvcsw;
}

static void *wait_long(void *unused)
{
	pthread_mutex_lock(&mutex);
	waiting++;
	pthread_mutex_unlock(&mutex);
	int before = slept();
	sem_wait(&asked);
	int between = slept();
	pthread_mutex_lock(&mutex);
	waiting++;
	while (!flag)
		pthread_cond_wait(&changed, &mutex);
	pthread_mutex_unlock(&mutex);
	printf("slept: %d, %d\n", between > before, slept() > between);
	return unused;
}

// A thread that waits for `milliseconds`, for a semaphore and for a condition.
static void wait_for_long(int milliseconds)
{
	pthread_t waiter;
	sem_init(&asked, 0, 0);
	pthread_create(&waiter, NULL, wait_long, NULL);
	until_all_wait(1);
	usleep(1000 * milliseconds);
	sem_post(&asked);
	until_all_wait(2);
	usleep(1000 * milliseconds);
	pthread_mutex_lock(&mutex);
	flag = 1;
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&mutex);
	pthread_join(waiter, NULL);
}

static bool by_time;
static int results, late;

// Waits for the broadcast; the first that wakes has a result.
static void *work(void *unused)
{
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += 150000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&mutex);
	waiting++;
	while (!tokens && !late)
		if (!by_time)
			pthread_cond_wait(&changed, &mutex);
		else if (pthread_cond_timedwait(&changed, &mutex, &until) == ETIMEDOUT)
			late++;
	// The others' time passes, while they wait for the mutex.
	if (by_time)
		usleep(80000);
	else if (!results++)
		pthread_cond_signal(&changed);
	pthread_mutex_unlock(&mutex);
	return unused;
}

// A broadcast releases `workers`; main waits at the same condition for the signal of the first.
static void first_result(int workers, int rounds)
{
	pthread_t threads[workers];
	for (int round = 0; round < rounds; round++) {
		struct timespec begun, now;
		clock_gettime(CLOCK_REALTIME, &begun);
		waiting = tokens = results = 0;
		for (int each = 0; each < workers; each++)
			pthread_create(&threads[each], NULL, work, NULL);
		until_all_wait(workers);
		pthread_mutex_lock(&mutex);
		clock_gettime(CLOCK_REALTIME, &now);
		// On a busy machine their time may have passed before the broadcast: then it is no trial.
		long us = (now.tv_sec - begun.tv_sec) * 1000000 + (now.tv_nsec - begun.tv_nsec) / 1000;
		bool again = by_time && us > 100000;
		tokens = 1;
		pthread_cond_broadcast(&changed);
		while (!results && !by_time)
			pthread_cond_wait(&changed, &mutex);
		pthread_mutex_unlock(&mutex);
		for (int each = 0; each < workers; each++)
			pthread_join(threads[each], NULL);
		if (again) {
			late = 0;
			round--;
		}
	}
	printf("results %d, late %d\n", rounds, late);
}

// Two threads change the entry of one listener.
static int listener_set[2];

static void *change(void *times)
{
	struct epoll_event event = { .events = EPOLLIN };
	for (long count = (long)times; count > 0; count--)
		must(!epoll_ctl(listener_set[1], EPOLL_CTL_MOD, listener_set[0], &event), "change");
	return NULL;
}

static void change_by_two(int times)
{
	pthread_t threads[2];
	struct epoll_event event = { .events = EPOLLIN };
	listener_set[0] = socket(AF_INET, SOCK_STREAM, 0);
	listener_set[1] = epoll_create1(0);
	must(listen(listener_set[0], 8) == 0, "listen");
	must(!epoll_ctl(listener_set[1], EPOLL_CTL_ADD, listener_set[0], &event), "add");
	for (int each = 0; each < 2; each++)
		pthread_create(&threads[each], NULL, change, (void *)(long)times);
	// A child has none of the threads that are at it, and a set of its own.
	for (int forks = 0; forks < 20; forks++) {
		if (fork() == 0)
			_exit(epoll_ctl(epoll_create1(0), EPOLL_CTL_ADD, listener_set[0], &event));
		int status;
		must(wait(&status) > 0 && status == 0, "child");
	}
	for (int each = 0; each < 2; each++)
		pthread_join(threads[each], NULL);
	printf("changed %d\n", 2 * times);
}

struct shared {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	int waiting, round;
};

static void *wait_shared(void *argument)
{
	struct shared *shared = argument;
	pthread_mutex_lock(&shared->mutex);
	int round = shared->round;
	shared->waiting++;
	while (shared->round == round)
		pthread_cond_wait(&shared->changed, &shared->mutex);
	pthread_mutex_unlock(&shared->mutex);
	return NULL;
}

// Two processes with `waiters` each at one condition.
static void share(int waiters, int rounds)
{
	struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_mutexattr_t of_mutex;
	pthread_condattr_t of_condition;
	pthread_mutexattr_init(&of_mutex);
	pthread_mutexattr_setpshared(&of_mutex, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&shared->mutex, &of_mutex);
	pthread_condattr_init(&of_condition);
	pthread_condattr_setpshared(&of_condition, PTHREAD_PROCESS_SHARED);
	pthread_cond_init(&shared->changed, &of_condition);
	bool child = fork() == 0;
	pthread_t threads[waiters];
	for (int round = 0; round < rounds; round++) {
		for (int each = 0; each < waiters; each++)
			pthread_create(&threads[each], NULL, wait_shared, shared);
		for (bool wait = !child; wait;) {
			usleep(200);
			pthread_mutex_lock(&shared->mutex);
			wait = shared->waiting < 2 * waiters;
			if (!wait) {
				shared->waiting = 0;
				shared->round++;
				pthread_cond_broadcast(&shared->changed);
			}
			pthread_mutex_unlock(&shared->mutex);
		}
		for (int each = 0; each < waiters; each++)
			pthread_join(threads[each], NULL);
	}
	if (child)
		_exit(0);
	wait(NULL);
	// One that the cures act on.
	broadcast(2, 5);
}

#ifdef ALLOCATOR
// An allocator below a mutex, as many programs have.
static pthread_mutex_t of_pool = PTHREAD_MUTEX_INITIALIZER;

void *malloc(size_t size)
{
	static char pool[32 << 20];
	static size_t used;
	pthread_mutex_lock(&of_pool);
	void *block = &pool[used];
	used += (size + 15) & ~15ul;
	pthread_mutex_unlock(&of_pool);
	return block;
}

void *calloc(size_t count, size_t size)
{
	return malloc(count * size); // never used before
}

void free(void *block)
{
	(void)block;
}
#endif

int main(int count, char **words)
{
	const char *scene = count == 4 ? words[1] : "";
	int first = count == 4 ? atoi(words[2]) : 0, second = count == 4 ? atoi(words[3]) : 0;
	keyed = strcmp(scene, "keyed") == 0;
	if (strcmp(scene, "accept") == 0)
		accept_herd(first, second, 0);
	else if (strcmp(scene, "oneshot") == 0)
		accept_herd(first, second, EPOLLONESHOT);
	else if (strcmp(scene, "broadcast") == 0 || keyed)
		broadcast(first, second);
	else if (strcmp(scene, "poll") == 0)
		timer_poll(first, second);
	else if (strcmp(scene, "pace") == 0)
		pace(first, second);
	else if (strcmp(scene, "hand-over") == 0)
		hand_over(first * second);
	else if (strcmp(scene, "share") == 0)
		share(first, second);
	else if (strcmp(scene, "change") == 0)
		change_by_two(first * second);
	else if (strcmp(scene, "first") == 0 || (by_time = strcmp(scene, "timed") == 0))
		first_result(first, second);
	else if (strcmp(scene, "destroy") == 0)
		destroy(first, second);
	else if (strcmp(scene, "pass") == 0)
		pass(first, second);
	else if (strcmp(scene, "cancel") == 0)
		cancel(first, second);
	else if (strcmp(scene, "long") == 0) {
		wait_for_long(first);
		hand_over(second);
	}
	else
		return 2;
	return 0;
}
