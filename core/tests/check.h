/*
 * check.h: what the core's unit tests need, and no more.
 *
 * A test is a function without arguments; main runs each with RUN and returns check_result(). A
 * failed check is printed with its place and values; the test goes on, the program exits with 1.
 * A test file stands alone: no order between files, no files read, no network.
 */
#ifndef UNSPOOL_CHECK_H
#define UNSPOOL_CHECK_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static unsigned check_failures;
static unsigned check_count;
static const char *check_test = "";

static inline bool check_that(bool holds, const char *text, const char *file, int line) {
    check_count++;
    if (!holds) {
        check_failures++;
        fprintf(stderr, "%s:%d: %s: does not hold: %s\n", file, line, check_test, text);
    }
    return holds;
}

static inline bool check_equal(uint64_t actual, uint64_t expected, const char *text, const char *file,
                               int line) {
    check_count++;
    if (actual != expected) {
        check_failures++;
        fprintf(stderr, "%s:%d: %s: %s is 0x%" PRIx64 " (%" PRId64 "), not 0x%" PRIx64 " (%" PRId64 ")\n",
                file, line, check_test, text, actual, (int64_t)actual, expected, (int64_t)expected);
    }
    return actual == expected;
}

static inline bool check_bytes(const void *actual, const void *expected, size_t size, const char *text,
                               const char *file, int line) {
    return check_that(memcmp(actual, expected, size) == 0, text, file, line);
}

/* Each yields whether it held, for tests that can't go on otherwise. */
#define CHECK(condition) check_that((condition), #condition, __FILE__, __LINE__)
#define CHECK_EQUAL(actual, expected)                                                                        \
    check_equal((uint64_t)(actual), (uint64_t)(expected), #actual, __FILE__, __LINE__)
#define CHECK_BYTES(actual, expected, size)                                                                  \
    check_bytes((actual), (expected), (size), #actual " equals " #expected, __FILE__, __LINE__)

#define RUN(test)                                                                                            \
    do {                                                                                                     \
        check_test = #test;                                                                                  \
        test();                                                                                              \
    } while (0)

/* The exit status of main. A program that checked nothing has failed. */
static inline int check_result(void) {
    printf("%u checks, %u failed\n", check_count, check_failures);
    return check_failures != 0 || check_count == 0;
}

#endif
