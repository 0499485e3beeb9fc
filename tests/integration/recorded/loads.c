/* loads PLUGIN: loads a library, uses the processor in it, and below it in a function of its own. */
#include <dlfcn.h>

#include "burn.h"

DEFINE_BURNER(burn_below_plugin)

static void below(void) {
    burn_below_plugin(300 * MILLISECONDS);
    __asm__ volatile("" ::: "memory");
}

int main(int count, char **arguments) {
    if (count != 2)
        return 2;
    void *plugin = dlopen(arguments[1], RTLD_NOW);
    if (!plugin) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    void (*burn)(uint64_t) = (void (*)(uint64_t))dlsym(plugin, "burn_in_plugin");
    void (*call_back)(void (*)(void)) = (void (*)(void (*)(void)))dlsym(plugin, "call_back");
    burn(400 * MILLISECONDS);
    call_back(below);
    return 0;
}
