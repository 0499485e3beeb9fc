/* A library that is loaded while the program runs. */
#include "burn.h"

DEFINE_BURNER(burn_in_plugin)

/* Calls back into the program: a stack that goes through both. */
NOINLINE void call_back(void (*function)(void)) {
    function();
    __asm__ volatile("" ::: "memory");
}
