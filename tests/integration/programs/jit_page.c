/*
 * jit_page.c: code that was made at run time, in a page without a file, with and without frame records; its
 * names are in a perf map if there is an argument: where to write it.
 */
#define _GNU_SOURCE
#include "ready.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef void code(void *first, void *second);

/* Both call their first argument with the second one. */
#ifdef __x86_64__
static const uint8_t with_record[] = {
    0x55,             /* push %rbp */
    0x48, 0x89, 0xe5, /* mov %rsp,%rbp */
    0x48, 0x89, 0xf8, /* mov %rdi,%rax */
    0x48, 0x89, 0xf7, /* mov %rsi,%rdi */
    0xff, 0xd0,       /* call *%rax */
    0x5d,             /* pop %rbp */
    0xc3,             /* ret */
};
static const uint8_t without_record[] = {
    0x48, 0x83, 0xec, 0x28, /* sub $40,%rsp */
    0xff, 0xd7,             /* call *%rdi */
    0x48, 0x83, 0xc4, 0x28, /* add $40,%rsp */
    0xc3,                   /* ret */
};
#else
static const uint32_t with_record[] = {
    0xa9bf7bfd, /* stp x29, x30, [sp, #-16]! */
    0x910003fd, /* mov x29, sp */
    0xaa0003e9, /* mov x9, x0 */
    0xaa0103e0, /* mov x0, x1 */
    0xd63f0120, /* blr x9 */
    0xa8c17bfd, /* ldp x29, x30, [sp], #16 */
    0xd65f03c0, /* ret */
};
static const uint32_t without_record[] = {
    0xf81e0ffe, /* str x30, [sp, #-32]! */
    0xd63f0000, /* blr x0 */
    0xf84207fe, /* ldr x30, [sp], #32 */
    0xd65f03c0, /* ret */
};
#endif

NOINLINE static void callback(void) {
    tell_ready();
    wait_for_ever();
}

NOINLINE static void call(code *function, void *first, void *second) {
    function(first, second);
    KEEP_FRAME;
}

int main(int argc, char **argv) {
    uint8_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t *second = page + 1024;
    memcpy(page, with_record, sizeof with_record);
    memcpy(second, without_record, sizeof without_record);
    mprotect(page, 4096, PROT_READ | PROT_EXEC);
    if (argc > 1) {
        char name[4096];
        snprintf(name, sizeof name, "%s/perf-%d.map", argv[1], getpid());
        FILE *map = fopen(name, "w");
        if (!map)
            return 1;
        fprintf(map, "%lx %zx with record\n%lx %zx without record\n", (unsigned long)page, sizeof with_record,
                (unsigned long)second, sizeof without_record);
        fclose(map);
    }
    call((code *)page, second, (void *)callback);
    KEEP_FRAME;
}
