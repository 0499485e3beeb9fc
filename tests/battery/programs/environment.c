/* environment.c: prints the environment as the program sees it in each of the ways there are. */
#include "battery.h"

#include <fcntl.h>

extern char **environ;

int main(int argc, char **argv, char **third) {
    static char text[1 << 20];
    for (int i = 0; environ[i]; i++)
        printf("environ %s\n", environ[i]);
    for (int i = 0; third[i]; i++)
        printf("main %s\n", third[i]);
    printf("getenv %s %s\n", getenv("LD_PRELOAD"), getenv("UNSPOOL_SESSION"));
    int file = open("/proc/self/environ", O_RDONLY); /* may not be readable: a set-user-ID program */
    ssize_t size = read(file, text, sizeof text);
    for (ssize_t i = 0; i < size; i++)
        putchar(text[i] ? text[i] : '|');
    putchar('\n');
    fflush(stdout);
    burn(0.1);
    if (argc > 1) { /* as a child, too */
        execv(argv[0], (char *[]){argv[0], NULL});
    }
    return 0;
}
