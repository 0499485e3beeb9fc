/* Threads: start, end, thread-local destructors, cancellation, condition variables, a once initializer. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static int turn, destroyed, prepared, cleaned;

static void destroy(void *value) {
    destroyed += *(int *)value;
    free(value);
}
static void prepare(void) {
    prepared++;
    pthread_key_create(&key, destroy);
}
static void clean(void *value) {
    (void)value;
    cleaned++;
}

static void *work(void *argument) {
    int number = *(int *)argument;
    pthread_once(&once, prepare);
    int *value = malloc(sizeof *value);
    *value = number + 1;
    pthread_setspecific(key, value);
    pthread_mutex_lock(&lock);
    while (turn != number)
        pthread_cond_wait(&turned, &lock);
    turn++;
    pthread_cond_broadcast(&turned);
    pthread_mutex_unlock(&lock);
    if (number == 1)
        pthread_exit(NULL);
    return argument;
}

static void *sleeper(void *argument) {
    pthread_cleanup_push(clean, argument);
    for (;;)
        pause();
    pthread_cleanup_pop(0);
    return NULL;
}

int main(void) {
    pthread_t thread[3], sleeping;
    int numbers[3] = {0, 1, 2};
    for (int i = 2; i >= 0; i--)
        if (pthread_create(&thread[i], NULL, work, &numbers[i]))
            return 1;
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    pthread_create(&sleeping, NULL, sleeper, NULL);
    pthread_cancel(sleeping);
    pthread_join(sleeping, NULL);
    return turn == 3 && destroyed == 6 && prepared == 1 && cleaned == 1 ? 0 : 2;
}
