// The cures that `unherd prove` preloads: functions of the C library, wrapped.
//
// UNHERD_CURE names the one cure of a process; its children inherit it. Without it each wrapper
// only calls what it wraps. `begin` runs before the constructors of other libraries (-z initfirst).
// The wrappers may run below an allocator, so nothing here allocates. errno stays what the wrapped
// function makes of it.
//
// # wake-in-turn, wake-one: a broadcast wakes one waiter, and that one the next
//
// The account of a condition counts its waiters: `fresh` came after the last broadcast, `owed` were
// there at it and are still asleep. A broadcast makes all fresh waiters owed and signals once. A
// thread that comes back from a wait while some are owed has *the turn*. It has the mutex, so no
// other woken thread could go on yet. It passes the turn on, by one signal, as soon as it has
// unlocked a mutex or waits again. A signal while some are owed makes the fresh ones owed too: for
// the program those of the broadcast no longer wait, so that the signal is for a fresh one.
//
// wake-in-turn loses no event, except as named below. As long as a waiter is owed, there is a signal
// that no waiter has got yet, a thread that was woken and has not come back, or one that has the
// turn; each leads to the next:
//
// 1. A broadcast signals. pthread_cond_signal wakes one that is blocked (a bug of glibc before
//    2.41, number 25847, lets it rarely wake nobody). An owed waiter that is not blocked yet still
//    has the mutex, or it has been woken already: the first need not be woken by a broadcast
//    without that mutex, the second is on its way.
// 2. A thread that comes back, for whatever reason, also cancelled or after its time, and also one
//    that is not owed and was signalled in place of one that is, has the turn if any are owed.
// 3. It passes the turn on when it unlocks a mutex or waits. If it never does, nobody who is owed
//    could have gone on without this cure either: each needs the mutex that this thread has.
// 4. Too many signals harm nobody: POSIX lets a wait return without cause.
//
// The exceptions: a thread that dies with a robust mutex has not passed its turn on (3 is false
// there); nor does one that waits or unlocks without these wrappers, by a pointer of dlsym(3) or in
// a library that is loaded with RTLD_DEEPBIND.
//
// wake-one ends the turns where a thread that has the turn waits for the same condition again: it
// had the mutex and found nothing, and so would all others *if all wait for the same thing*. Where
// they do not, an event is lost. The tool cannot see that in the program; it sees that the program
// hangs or prints something else.
//
// A condition that processes share is left alone, as the waiters of others are not in the account;
// so is one that finds no place in the table, which is counted.
//
// # spin-then-sleep: look for a while before sleeping
//
// A wait for a condition unlocks the mutex, watches for a signal, locks the mutex and returns,
// whether it saw one or not: POSIX lets a wait return without cause, so the caller looks again. A
// second wait in a row that follows a fruitless one sleeps. So no thread sleeps after it has given
// the mutex up without a look of the caller in between, and no event can be missed. A sem_wait
// tries for a while, then sleeps.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static enum { NONE, EPOLL_EXCLUSIVE, WAKE_IN_TURN, WAKE_ONE, SPIN_THEN_SLEEP } cure;

// What all processes of a run count together; `Counts` in preload.rs has the same.
struct counts {
	uint64_t loaded; // processes with a cure
	uint64_t acted;  // times that it changed what a call does
	uint64_t unfit;  // listeners that EPOLLEXCLUSIVE cannot be set for
	uint64_t full;   // waits for a condition that found no place in the table
};

static struct counts own, *counts = &own;

#define COUNT(what) __atomic_fetch_add(&counts->what, 1, __ATOMIC_RELAXED)

// The function that is wrapped. On x86-64 the C library has conditions in two versions; without one
// dlsym takes the older, whose conditions have another layout. A search that fails would allocate,
// so only those are asked for by version.
static void *find(const char *name)
{
#if defined(__x86_64__)
	if (strncmp(name, "pthread_cond_", 13) == 0 && strcmp(name, "pthread_cond_clockwait") != 0)
		return dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2");
#endif
	return dlsym(RTLD_NEXT, name);
}

// Found at the first call: an allocator may call before `begin` has run.
#define REAL(name)                                                                  \
	({                                                                          \
		static __typeof__(&name) real;                                      \
		__typeof__(&name) known = __atomic_load_n(&real, __ATOMIC_RELAXED); \
		if (!known) {                                                       \
			known = (__typeof__(&name))find(#name);                     \
			__atomic_store_n(&real, known, __ATOMIC_RELAXED);           \
		}                                                                   \
		known;                                                              \
	})

static void lock(bool *locked)
{
	while (__atomic_exchange_n(locked, true, __ATOMIC_ACQUIRE))
		sched_yield();
}

static void unlock(bool *locked)
{
	__atomic_store_n(locked, false, __ATOMIC_RELEASE);
}

// Held to exchange the entry of an epoll set, and to give a condition an account.
static bool is_changing;

// epoll-exclusive

// What a listener may be added with besides EPOLLEXCLUSIVE, and what it reports at most when it is
// shut down, along with EPOLLIN, so that it can be left out.
#define FITS (EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLET | EPOLLWAKEUP)
#define IDLE (EPOLLRDHUP | EPOLLPRI)

static bool listens(int fd)
{
	int before = errno, value = 0;
	socklen_t length = sizeof(value);
	bool does = getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &value, &length) == 0 && value;
	errno = before;
	return does;
}

int epoll_ctl(int set, int op, int fd, struct epoll_event *event)
{
	__typeof__(&epoll_ctl) real = REAL(epoll_ctl);
	if (cure != EPOLL_EXCLUSIVE || !event || (event->events & EPOLLEXCLUSIVE) ||
	    (op != EPOLL_CTL_ADD && op != EPOLL_CTL_MOD) || !listens(fd))
		return real(set, op, fd, event);
	struct epoll_event exclusive = *event;
	if (event->events & ~(FITS | IDLE))
		COUNT(unfit);
	else
		exclusive.events = (event->events & FITS) | EPOLLEXCLUSIVE;
	int before = errno;
	// Others must not find the entry gone.
	lock(&is_changing);
	int done = real(set, op, fd, op == EPOLL_CTL_ADD ? &exclusive : event);
	if (done != 0 && op == EPOLL_CTL_MOD && errno == EINVAL) {
		// Linux changes no entry that is exclusive: it goes, and comes again.
		if (real(set, EPOLL_CTL_DEL, fd, NULL) == 0) {
			errno = before;
			op = EPOLL_CTL_ADD;
			done = real(set, op, fd, &exclusive);
		} else {
			errno = EINVAL;
		}
	}
	if (done == 0 && op == EPOLL_CTL_ADD && (exclusive.events & EPOLLEXCLUSIVE))
		COUNT(acted);
	unlock(&is_changing);
	return done;
}

// Where a table has a condition.
static size_t hash(const void *condition)
{
	return ((uintptr_t)condition / 16 * 0x9E3779B97F4A7C15u) >> 40;
}

// spin-then-sleep

#define SPIN_NS 50000

// A condition's signals, with those of others in the same place.
static unsigned signals[1024];

static unsigned *signals_of(const void *condition)
{
	return &signals[hash(condition) % 1024];
}

static void tell_spinning(const void *condition)
{
	if (cure == SPIN_THEN_SLEEP)
		__atomic_fetch_add(signals_of(condition), 1, __ATOMIC_SEQ_CST);
}

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

// Whether it waited for a signal in place of sleeping; `*result` is what the wait returns then.
static bool spin(pthread_cond_t *condition, pthread_mutex_t *mutex, int *result)
{
	static __thread const void *fruitless;
	bool sleeps = cure != SPIN_THEN_SLEEP || fruitless == condition;
	fruitless = NULL;
	if (sleeps)
		return false;
	pthread_testcancel();
	const unsigned *of = signals_of(condition), before = __atomic_load_n(of, __ATOMIC_SEQ_CST);
	if (pthread_mutex_unlock(mutex) != 0)
		return false;
	uint64_t end = now_ns() + SPIN_NS;
	bool told = false;
	*result = EBUSY;
	do {
		relax();
		told = told || __atomic_load_n(of, __ATOMIC_SEQ_CST) != before;
		// The thread that signals may have the mutex yet.
		if (told)
			*result = pthread_mutex_trylock(mutex);
	} while (*result == EBUSY && now_ns() < end);
	if (*result == EBUSY)
		*result = pthread_mutex_lock(mutex);
	if (told)
		COUNT(acted);
	else
		fruitless = condition;
	return true;
}

int sem_wait(sem_t *semaphore)
{
	if (cure == SPIN_THEN_SLEEP) {
		int before = errno;
		uint64_t end = now_ns() + SPIN_NS;
		bool waits = false;
		pthread_testcancel();
		do {
			if (sem_trywait(semaphore) == 0) {
				if (waits)
					COUNT(acted);
				errno = before;
				return 0;
			}
			waits = true;
			relax();
		} while (errno == EAGAIN && now_ns() < end);
		errno = before;
	}
	return REAL(sem_wait)(semaphore);
}

// wake-in-turn, wake-one

// The account of a condition; `locked` guards what follows.
struct account {
	pthread_cond_t *condition;
	unsigned passing;     // threads that are about to signal it
	bool locked, over;    // over: no turn is passed on until the next broadcast
	unsigned fresh, owed; // waiters
	uint64_t epoch;       // how often the fresh became owed
};

#define ACCOUNTS 4096
#define PROBES 8
static struct account accounts[ACCOUNTS];

// The account by whose condition this thread has the turn.
static __thread struct account *turn;

static struct account *place_of(const pthread_cond_t *condition, const pthread_cond_t *holder)
{
	for (size_t probe = 0; probe < PROBES; probe++) {
		struct account *account = &accounts[(hash(condition) + probe) % ACCOUNTS];
		if (__atomic_load_n(&account->condition, __ATOMIC_SEQ_CST) == holder)
			return account;
	}
	return NULL;
}

// NULL for a condition that is left alone, or nobody has waited for yet.
static struct account *account_of(pthread_cond_t *condition, bool waits)
{
	// The bit says that processes share it.
	if ((cure != WAKE_IN_TURN && cure != WAKE_ONE) || (condition->__data.__wrefs & 1))
		return NULL;
	struct account *account = place_of(condition, condition);
	if (account || !waits)
		return account;
	lock(&is_changing);
	account = place_of(condition, condition);
	if (!account && (account = place_of(condition, NULL)))
		__atomic_store_n(&account->condition, condition, __ATOMIC_SEQ_CST);
	unlock(&is_changing);
	if (!account)
		COUNT(full);
	return account;
}

static void pass_turn_on(void)
{
	struct account *account = turn;
	turn = NULL;
	lock(&account->locked);
	bool passes = account->owed && !account->over;
	__atomic_fetch_add(&account->passing, passes, __ATOMIC_RELAXED);
	unlock(&account->locked);
	if (!passes)
		return;
	REAL(pthread_cond_signal)(account->condition);
	__atomic_fetch_sub(&account->passing, 1, __ATOMIC_RELEASE);
}

static void end_turns(struct account *account)
{
	lock(&account->locked);
	account->over = true;
	unlock(&account->locked);
}

struct waiter {
	struct account *account;
	uint64_t epoch;
	bool was_owed;
};

static void enter(struct waiter *waiter)
{
	struct account *account = waiter->account;
	lock(&account->locked);
	account->fresh++;
	waiter->epoch = account->epoch;
	unlock(&account->locked);
}

static void come_back(void *argument)
{
	struct waiter *waiter = argument;
	struct account *account = waiter->account;
	lock(&account->locked);
	waiter->was_owed = waiter->epoch != account->epoch;
	--*(waiter->was_owed ? &account->owed : &account->fresh);
	if (account->owed && !account->over)
		turn = account;
	unlock(&account->locked);
}

// All fresh waiters are owed: at a signal only while others are, and their turns go on. Gives how
// many are owed then.
static unsigned owe_to_all(struct account *account, bool is_broadcast)
{
	lock(&account->locked);
	if (is_broadcast || (account->owed && !account->over)) {
		account->owed += account->fresh;
		account->fresh = 0;
		account->epoch++;
		account->over = false;
	}
	unsigned owed = account->owed;
	unlock(&account->locked);
	return owed;
}

int pthread_cond_signal(pthread_cond_t *condition)
{
	struct account *account = account_of(condition, false);
	if (account)
		owe_to_all(account, false);
	tell_spinning(condition);
	return REAL(pthread_cond_signal)(condition);
}

int pthread_cond_broadcast(pthread_cond_t *condition)
{
	struct account *account = account_of(condition, false);
	if (account && owe_to_all(account, true) > 1) {
		COUNT(acted);
		return REAL(pthread_cond_signal)(condition);
	}
	tell_spinning(condition);
	return REAL(pthread_cond_broadcast)(condition);
}

int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	int done = REAL(pthread_mutex_unlock)(mutex);
	if (turn)
		pass_turn_on();
	return done;
}

// After a broadcast nobody waits by the program's account: it may free the memory.
int pthread_cond_destroy(pthread_cond_t *condition)
{
	struct account *account = account_of(condition, false);
	if (account) {
		end_turns(account);
		while (__atomic_load_n(&account->passing, __ATOMIC_ACQUIRE))
			sched_yield();
		REAL(pthread_cond_broadcast)(condition);
		lock(&account->locked);
		// Else waiters have yet to come back to it.
		if (!account->fresh && !account->owed)
			__atomic_store_n(&account->condition, NULL, __ATOMIC_SEQ_CST);
		unlock(&account->locked);
	}
	return REAL(pthread_cond_destroy)(condition);
}

// The threads that waited are the parent's, and so are those that had locks.
static void forget_threads(void)
{
	unlock(&is_changing);
	for (size_t at = 0; at < ACCOUNTS; at++)
		if (accounts[at].condition || accounts[at].locked)
			accounts[at] = (struct account){ 0 };
	turn = NULL;
}

// All waits for a condition

// `sleep` is the wrapped function with its arguments.
#define WAIT(condition, mutex, sleep)                                    \
	({                                                               \
		int result;                                              \
		if (!spin(condition, mutex, &result)) {                  \
			struct waiter waiter = { .account = account_of(condition, true) }; \
			if (turn && turn == waiter.account && cure == WAKE_ONE) { \
				end_turns(turn);                         \
				turn = NULL;                             \
			} else if (turn) {                               \
				pass_turn_on();                          \
			}                                                \
			if (waiter.account) {                            \
				enter(&waiter);                          \
				pthread_cleanup_push(come_back, &waiter); \
				result = sleep;                          \
				pthread_cleanup_pop(true);               \
				/* The event came before its time was up. */ \
				if (waiter.was_owed && result == ETIMEDOUT) \
					result = 0;                      \
			} else {                                         \
				result = sleep;                          \
			}                                                \
		}                                                        \
		result;                                                  \
	})

int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
	return WAIT(condition, mutex, REAL(pthread_cond_wait)(condition, mutex));
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
			   const struct timespec *until)
{
	return WAIT(condition, mutex, REAL(pthread_cond_timedwait)(condition, mutex, until));
}

int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock,
			   const struct timespec *until)
{
	return WAIT(condition, mutex, REAL(pthread_cond_clockwait)(condition, mutex, clock, until));
}

// getenv(3) may not know the environment yet.
static const char *value_of(char **environment, const char *name)
{
	size_t length = strlen(name);
	for (; *environment; environment++)
		if (strncmp(*environment, name, length) == 0 && (*environment)[length] == '=')
			return *environment + length + 1;
	return NULL;
}

__attribute__((constructor)) static void begin(int count, char **words, char **environment)
{
	(void)count, (void)words;
	static const char *const names[] = {
		[EPOLL_EXCLUSIVE] = "epoll-exclusive",
		[WAKE_IN_TURN] = "wake-in-turn",
		[WAKE_ONE] = "wake-one",
		[SPIN_THEN_SLEEP] = "spin-then-sleep",
	};
	const char *name = value_of(environment, "UNHERD_CURE");
	const char *path = value_of(environment, "UNHERD_CURE_COUNTS");
	int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	if (file >= 0) {
		void *shared = mmap(NULL, sizeof(own), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
		if (shared != MAP_FAILED)
			counts = shared;
		close(file);
	}
	pthread_atfork(NULL, NULL, forget_threads);
	for (size_t at = NONE + 1; name && at < sizeof(names) / sizeof(*names); at++)
		if (strcmp(name, names[at]) == 0)
			cure = at;
	COUNT(loaded);
}
