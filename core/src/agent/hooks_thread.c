/*
 * hooks_thread.c: the unspool process is told when a thread is made: one that lives shortly would have ended
 * before it looks again.
 */
#include <pthread.h>

#include "agent.h"
#include "hooks.h"
#include "hooks_next.h"

HOOK int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*routine)(void *),
                        void *argument) {
    __typeof__(&pthread_create) next = NEXT(pthread_create);
    if (!next) /* glibc before 2.34 may have got it with a library that was loaded later */
        next = (__typeof__(next))next_function_now(NEXT_pthread_create);
    if (!next)
        return ENOSYS;
    int error = next(thread, attributes, routine, argument);
    if (!error)
        agent_thread_made();
    return error;
}
