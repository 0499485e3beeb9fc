/*
 * test_memory.c: memory readers (memory.c): the stack, regions, the own process, and why a read failed.
 */
#define _GNU_SOURCE
#include "check.h"
#include "memory.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static uint8_t bytes[64];
static struct unspool_memory memory;

static void begin(void) {
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)i;
    memory = (struct unspool_memory){0};
}

/* How many of 8 bytes at address can be read; those that can must be as expected from `first` on. */
static size_t read_8(uint64_t address, uint8_t first) {
    uint8_t buffer[8];
    memset(buffer, 0xee, sizeof buffer);
    size_t got = memory_read(&memory, address, buffer, sizeof buffer);
    for (size_t i = 0; i < sizeof buffer; i++)
        CHECK_EQUAL(buffer[i], i < got ? first + i : 0xee);
    uint64_t value = 0;
    CHECK_EQUAL(memory_read_u64(&memory, address, &value), got == 8);
    if (got == 8)
        CHECK_BYTES(&value, buffer, sizeof value);
    return got;
}

static void nothing_can_be_read_from_nothing(void) {
    begin();
    CHECK_EQUAL(read_8(0, 0), 0);
    CHECK_EQUAL(read_8(0x1000, 0), 0);
    CHECK_EQUAL(read_8(UINT64_MAX, 0), 0);
}

static void a_stack_copy(void) {
    begin();
    memory.stack = (struct unspool_region){0x1000, 16, bytes};
    CHECK_EQUAL(read_8(0x1000, 0), 8);
    CHECK_EQUAL(read_8(0x1008, 8), 8);
    CHECK_EQUAL(read_8(0x1009, 9), 7);
    CHECK_EQUAL(read_8(0x100f, 15), 1);
    CHECK_EQUAL(read_8(0x1010, 0), 0);
    CHECK_EQUAL(read_8(0xfff, 0), 0);
    CHECK_EQUAL(read_8(0xff8, 0), 0);
    memory.stack.size = 4;
    CHECK_EQUAL(read_8(0x1000, 0), 4);
    memory.stack = (struct unspool_region){UINT64_MAX - 7, 8, bytes};
    CHECK_EQUAL(read_8(UINT64_MAX - 7, 0), 8);
    CHECK_EQUAL(read_8(UINT64_MAX - 3, 4), 4); /* not around the end of the address space */
}

static void regions_and_reads_across_them(void) {
    const struct unspool_region regions[] = {
        {0x1000, 8, bytes}, {0x1008, 4, bytes + 8}, {0x2000, 8, bytes + 32}, {0x3000, 0, bytes}};
    begin();
    memory.regions = regions;
    memory.region_count = 4;
    CHECK_EQUAL(read_8(0x1000, 0), 8);
    CHECK_EQUAL(read_8(0x1004, 4), 8);
    CHECK_EQUAL(read_8(0x1006, 6), 6); /* and then a gap */
    CHECK_EQUAL(read_8(0x100c, 0), 0);
    CHECK_EQUAL(read_8(0x2000, 32), 8);
    CHECK_EQUAL(read_8(0x2008, 0), 0);
    CHECK_EQUAL(read_8(0x3000, 0), 0);
    CHECK_EQUAL(read_8(0xffc, 0), 0);
    memory.stack = (struct unspool_region){0x100c, 4, bytes + 12}; /* closes the gap */
    CHECK_EQUAL(read_8(0x1006, 6), 8);
}

static void the_stack_goes_before_a_region(void) {
    const struct unspool_region region = {0x1000, 16, bytes};
    begin();
    memory.regions = &region;
    memory.region_count = 1;
    memory.stack = (struct unspool_region){0x1004, 4, bytes + 40};
    uint8_t buffer[8];
    CHECK_EQUAL(memory_read(&memory, 0x1004, buffer, 8), 8);
    CHECK_EQUAL(buffer[0], 40);
    CHECK_EQUAL(buffer[4], 8);
}

static void why_a_read_failed(void) {
    begin();
    memory.stack = (struct unspool_region){0x100000, 64, bytes};
    CHECK_EQUAL(memory_end(&memory, 0x100040), UNSPOOL_END_STACK_BYTES_ENDED);
    CHECK_EQUAL(memory_end(&memory, 0x10003c), UNSPOOL_END_STACK_BYTES_ENDED); /* the second half */
    CHECK_EQUAL(memory_end(&memory, 0x100040 + 0x700000), UNSPOOL_END_STACK_BYTES_ENDED);
    CHECK_EQUAL(memory_end(&memory, 0x100040 + 0x800000), UNSPOOL_END_UNREADABLE_MEMORY);
    CHECK_EQUAL(memory_end(&memory, 0xfff00), UNSPOOL_END_UNREADABLE_MEMORY); /* below */
    CHECK_EQUAL(memory_end(&memory, 8), UNSPOOL_END_UNREADABLE_MEMORY);
    CHECK_EQUAL(memory_end(&memory, UINT64_MAX), UNSPOOL_END_UNREADABLE_MEMORY);
    memory.pid = 1; /* all there is could be read */
    CHECK_EQUAL(memory_end(&memory, 0x100040), UNSPOOL_END_UNREADABLE_MEMORY);
}

/* Three pages, of which the middle one is taken away. NULL where process_vm_readv does not exist. */
static uint8_t *pages_with_a_hole(size_t page) {
    uint8_t *pages = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!CHECK(pages != MAP_FAILED))
        return NULL;
    for (size_t i = 0; i < 3 * page; i++)
        pages[i] = (uint8_t)i;
    munmap(pages + page, page);
    begin();
    memory.pid = getpid();
    uint8_t byte;
    if (memory_read(&memory, (uint64_t)(uintptr_t)pages, &byte, 1) == 1)
        return pages;
    printf("process_vm_readv does not work here: reading the own process is not tested\n");
    return NULL;
}

static void the_own_process(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *pages = pages_with_a_hole(page);
    if (!pages)
        return;
    uint64_t first = (uint64_t)(uintptr_t)pages, third = first + 2 * page;
    CHECK_EQUAL(read_8(first, 0), 8);
    CHECK_EQUAL(read_8(first + page - 8, (uint8_t)(page - 8)), 8);
    CHECK_EQUAL(read_8(first + page - 3, (uint8_t)(page - 3)), 3);
    CHECK_EQUAL(read_8(first + page, 0), 0);
    CHECK_EQUAL(read_8(third - 1, 0), 0);
    CHECK_EQUAL(read_8(third, 0), 8);
    CHECK_EQUAL(read_8(0, 0), 0);
    CHECK_EQUAL(read_8(UINT64_MAX - 7, 0), 0);
    CHECK_EQUAL(read_8((uint64_t)1 << 63, 0), 0);
    memory.stack = (struct unspool_region){first + page - 8, 8, pages + page - 8};
    CHECK_EQUAL(read_8(first + page - 12, (uint8_t)(page - 12)), 8);
    CHECK_EQUAL(read_8(first + page - 4, (uint8_t)(page - 4)), 4);
}

static void a_page_is_remembered_until_the_reset(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *pages = pages_with_a_hole(page);
    if (!pages)
        return;
    uint64_t value = 0, address = (uint64_t)(uintptr_t)pages;
    CHECK(memory_read_u64(&memory, address, &value));
    CHECK_EQUAL(value, 0x0706050403020100);
    pages[0] = 0xaa;
    CHECK(memory_read_u64(&memory, address, &value));
    CHECK_EQUAL(value, 0x0706050403020100);
    unspool_memory_reset(&memory);
    CHECK(memory_read_u64(&memory, address, &value));
    CHECK_EQUAL(value, 0x07060504030201aa);
}

static void a_process_that_does_not_exist(void) {
    begin();
    memory.pid = 0x3ffffff;
    CHECK_EQUAL(read_8((uint64_t)(uintptr_t)bytes, 0), 0);
    memory.pid = -1;
    CHECK_EQUAL(read_8((uint64_t)(uintptr_t)bytes, 0), 0);
}

static void code_of_a_process_but_not_its_data(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *pages = pages_with_a_hole(page);
    if (!pages)
        return;
    uint64_t address = (uint64_t)(uintptr_t)pages;
    uint8_t buffer[8];
    memory.pid = 0;
    memory.code_pid = getpid();
    CHECK_EQUAL(memory_read_code(&memory, address + 4, buffer, sizeof buffer), 8);
    CHECK_EQUAL(buffer[0], 4);
    CHECK_EQUAL(read_8(address, 0), 0); /* not from the page that was kept either */
    memory.stack = (struct unspool_region){address, 8, bytes + 16};
    CHECK_EQUAL(memory_read_code(&memory, address, buffer, sizeof buffer), 8);
    CHECK_EQUAL(buffer[0], 16); /* a copy goes first */
}

int main(void) {
    RUN(nothing_can_be_read_from_nothing);
    RUN(a_stack_copy);
    RUN(regions_and_reads_across_them);
    RUN(the_stack_goes_before_a_region);
    RUN(why_a_read_failed);
    RUN(the_own_process);
    RUN(a_page_is_remembered_until_the_reset);
    RUN(a_process_that_does_not_exist);
    RUN(code_of_a_process_but_not_its_data);
    return check_result();
}
