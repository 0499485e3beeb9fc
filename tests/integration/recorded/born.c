/* A library for newborn.c. It keeps ROOM bytes on the stack. */
#include <string.h>

#include "burn.h"

void use(void (*function)(void));

DEFINE_BURNER(burn_in_constructor)
DEFINE_BURNER(burn_in_library)

__attribute__((constructor)) static void construct(void) {
    burn_in_constructor(15 * MILLISECONDS);
    __asm__ volatile("" ::: "memory");
}

NOINLINE void use(void (*function)(void)) {
    char room[ROOM];
    memset(room, 1, sizeof room);
    __asm__ volatile("" ::"r"(room) : "memory");
    burn_in_library(15 * MILLISECONDS);
    function();
    __asm__ volatile("" ::: "memory");
}
