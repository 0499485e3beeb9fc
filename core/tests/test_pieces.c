/*
 * test_pieces.c: which FDE holds where several claim an address (pieces.c).
 */
#include "check.h"
#include "pieces.h"

enum { EH, DEBUG };
static const struct unspool_section sections[] = {
    [EH] = {.kind = UNSPOOL_EH_FRAME}, [DEBUG] = {.kind = UNSPOOL_DEBUG_FRAME}};

static struct unspool_problems problems;
static struct vector pieces;

/* Cuts and compares; the last of both arrays has end 0. */
static void expect_pieces(const struct fde *fdes, const struct piece *expected) {
    size_t count = 0;
    while (fdes[count].end)
        count++;
    struct fde *copy = malloc((count + 1) * sizeof *copy); /* as small as it can be, for ASan */
    memcpy(copy, fdes, count * sizeof *copy);
    const struct vector input = {.items = copy, .count = count, .capacity = count};
    problems.count = 0;
    pieces = (struct vector){0};
    CHECK(cut_into_pieces(&input, sections, &problems, &pieces));
    const struct piece *got = pieces.items;
    size_t i = 0;
    for (; expected[i].end && CHECK(i < pieces.count); i++) {
        CHECK_EQUAL(got[i].start, expected[i].start);
        CHECK_EQUAL(got[i].end, expected[i].end);
        CHECK_EQUAL(got[i].fde, expected[i].fde);
    }
    CHECK_EQUAL(pieces.count, i);
    free(pieces.items);
    free(copy);
}

#define FDE(from, to, in) {.start = (from), .end = (to), .section = (in)}
#define FDES(...)                                                                                            \
    (const struct fde[]) {                                                                                   \
        __VA_ARGS__, {0}                                                                                     \
    }
#define PIECES(...)                                                                                          \
    (const struct piece[]) {                                                                                 \
        __VA_ARGS__, {0}                                                                                     \
    }

static void no_fdes_no_pieces(void) {
    const struct fde none[] = {{0}};
    const struct piece nothing[] = {{0}};
    expect_pieces(none, nothing);
}

static void disjoint_functions_in_any_order(void) {
    expect_pieces(FDES(FDE(30, 40, EH), FDE(10, 20, EH), FDE(20, 25, EH)),
                  PIECES({10, 20, 1}, {20, 25, 2}, {30, 40, 0}));
    CHECK_EQUAL(problems.count, 0);
}

static void addresses_up_to_the_limit_are_sorted(void) {
    expect_pieces(FDES(FDE(0xfffffff0, 0xffffffff, EH), FDE(0x01000000, 0x01000001, EH),
                       FDE(0x00ffffff, 0x01000000, EH), FDE(0x100, 0x200, EH), FDE(0xff, 0x100, EH)),
                  PIECES({0xff, 0x100, 4}, {0x100, 0x200, 3}, {0x00ffffff, 0x01000000, 2},
                         {0x01000000, 0x01000001, 1}, {0xfffffff0, 0xffffffff, 0}));
}

static void the_fde_that_starts_last_holds(void) {
    expect_pieces(FDES(FDE(10, 30, EH), FDE(20, 40, EH)), PIECES({10, 20, 0}, {20, 40, 1}));
    CHECK_EQUAL(problems.count, 1);
    CHECK_EQUAL(problems.first[0].kind, UNSPOOL_PROBLEM_OVERLAP);
}

static void around_a_nested_function_the_outer_one_holds(void) {
    expect_pieces(FDES(FDE(10, 50, EH), FDE(20, 30, EH)), PIECES({10, 20, 0}, {20, 30, 1}, {30, 50, 0}));
    CHECK_EQUAL(problems.count, 1);
}

static void functions_nested_three_deep(void) {
    expect_pieces(FDES(FDE(0, 100, EH), FDE(10, 90, EH), FDE(20, 30, EH)),
                  PIECES({0, 10, 0}, {10, 20, 1}, {20, 30, 2}, {30, 90, 1}, {90, 100, 0}));
    CHECK_EQUAL(problems.count, 2);
}

static void a_nested_function_may_outlast_its_outer_one(void) {
    expect_pieces(FDES(FDE(0, 50, EH), FDE(10, 70, EH), FDE(20, 60, EH)),
                  PIECES({0, 10, 0}, {10, 20, 1}, {20, 60, 2}, {60, 70, 1}));
}

static void of_equal_starts_the_later_entry_holds(void) {
    expect_pieces(FDES(FDE(10, 40, EH), FDE(10, 20, EH)), PIECES({10, 20, 1}, {20, 40, 0}));
    expect_pieces(FDES(FDE(10, 20, EH), FDE(10, 40, EH)), PIECES({10, 40, 1}));
}

static void two_entries_that_say_the_same_are_no_problem(void) {
    expect_pieces(FDES(FDE(10, 20, EH), FDE(10, 20, EH), FDE(30, 40, EH)), PIECES({10, 20, 0}, {30, 40, 2}));
    CHECK_EQUAL(problems.count, 0);
}

static void debug_frame_fills_the_gaps_of_eh_frame(void) {
    expect_pieces(FDES(FDE(0, 100, DEBUG), FDE(10, 20, EH), FDE(30, 40, EH)),
                  PIECES({0, 10, 0}, {10, 20, 1}, {20, 30, 0}, {30, 40, 2}, {40, 100, 0}));
    CHECK_EQUAL(problems.count, 0);
    expect_pieces(FDES(FDE(10, 20, DEBUG), FDE(0, 100, EH)), PIECES({0, 100, 1}));
    expect_pieces(FDES(FDE(10, 20, DEBUG), FDE(15, 30, EH), FDE(18, 40, DEBUG)),
                  PIECES({10, 15, 0}, {15, 30, 1}, {30, 40, 2}));
    expect_pieces(FDES(FDE(10, 20, DEBUG), FDE(30, 40, EH)), PIECES({10, 20, 0}, {30, 40, 1}));
}

/* What is left of an eh_frame entry around a nested one is still eh_frame's. */
static void eh_frame_goes_before_debug_frame_around_nested_functions(void) {
    expect_pieces(FDES(FDE(5, 60, DEBUG), FDE(10, 50, EH), FDE(20, 30, EH)),
                  PIECES({5, 10, 0}, {10, 20, 1}, {20, 30, 2}, {30, 50, 1}, {50, 60, 0}));
}

/* Functions that the linker dropped stand at 0 in .debug_frame, perhaps longer than what is there. */
static void dropped_functions_do_not_hide_real_ones(void) {
    expect_pieces(FDES(FDE(0, 0x3000, DEBUG), FDE(0x1000, 0x1100, DEBUG), FDE(0, 0x20, DEBUG)),
                  PIECES({0, 0x20, 2}, {0x20, 0x1000, 0}, {0x1000, 0x1100, 1}, {0x1100, 0x3000, 0}));
}

int main(void) {
    RUN(no_fdes_no_pieces);
    RUN(disjoint_functions_in_any_order);
    RUN(addresses_up_to_the_limit_are_sorted);
    RUN(the_fde_that_starts_last_holds);
    RUN(around_a_nested_function_the_outer_one_holds);
    RUN(functions_nested_three_deep);
    RUN(a_nested_function_may_outlast_its_outer_one);
    RUN(of_equal_starts_the_later_entry_holds);
    RUN(two_entries_that_say_the_same_are_no_problem);
    RUN(debug_frame_fills_the_gaps_of_eh_frame);
    RUN(eh_frame_goes_before_debug_frame_around_nested_functions);
    RUN(dropped_functions_do_not_hide_real_ones);
    return check_result();
}
