// A pthread_cond_signal(3) between a program and its C library that takes its time.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

int pthread_cond_signal(pthread_cond_t *condition)
{
	__typeof__(&pthread_cond_signal) real = dlvsym(RTLD_NEXT, "pthread_cond_signal", "GLIBC_2.3.2");
	usleep(20000);
	return real(condition);
}
