/* Eight threads wait at one condition; each broadcast brings work for one of them. */
#include <pthread.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int jobs, is_over;

static void *worker(void *unused)
{
	pthread_mutex_lock(&mutex);
	while (!is_over) {
		if (jobs)
			jobs--;
		else
			pthread_cond_wait(&changed, &mutex);
	}
	pthread_mutex_unlock(&mutex);
	return unused;
}

static void tell(int more, int over)
{
	pthread_mutex_lock(&mutex);
	jobs += more;
	is_over = over;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mutex);
}

int main(void)
{
	pthread_t threads[8];

	for (int i = 0; i < 8; i++)
		pthread_create(&threads[i], NULL, worker, NULL);
	for (int i = 0; i < 500; i++) {
		usleep(1000);
		tell(1, 0);
	}
	tell(0, 1);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
