/*
 * test_bytes.c: the bounded cursor (bytes.h): no read past the end, failure that stays, LEB128.
 */
#include "bytes.h"
#include "check.h"

static void fixed_sizes_are_little_endian(void) {
    const uint8_t bytes[] = {0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08,
                             0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f};
    struct cursor cursor = cursor_over(bytes, sizeof bytes);
    CHECK_EQUAL(cursor_u8(&cursor), 0x01);
    CHECK_EQUAL(cursor_u16(&cursor), 0x0302);
    CHECK_EQUAL(cursor_u32(&cursor), 0x07060504);
    CHECK_EQUAL(cursor_left(&cursor), 8);
    CHECK_EQUAL(cursor_u64(&cursor), 0x0f0e0d0c0b0a0908);
    CHECK_EQUAL(cursor_left(&cursor), 0);
    CHECK(!cursor.failed);
}

static void a_read_past_the_end_yields_zero_and_stays_failed(void) {
    const uint8_t bytes[] = {1, 2, 3};
    struct cursor cursor = cursor_over(bytes, sizeof bytes);
    CHECK_EQUAL(cursor_u32(&cursor), 0);
    CHECK(cursor.failed);
    CHECK(cursor.at == bytes);
    CHECK_EQUAL(cursor_u8(&cursor), 0); /* there is a byte, but the cursor has failed */
    CHECK(cursor.at == bytes);
    cursor = cursor_over(bytes, sizeof bytes);
    CHECK(cursor_take(&cursor, UINT64_MAX) == NULL);
    CHECK(cursor.failed);
    cursor = cursor_over(bytes, 0);
    CHECK_EQUAL(cursor_u16(&cursor) + cursor_u64(&cursor), 0);
    CHECK(cursor.failed);
}

static void nothing_can_be_taken_from_anywhere(void) {
    struct cursor cursor = cursor_over((const uint8_t *)"", 0);
    CHECK(cursor_take(&cursor, 0) != NULL);
    CHECK(!cursor.failed);
}

struct leb {
    uint8_t bytes[12];
    uint8_t size;
    bool fits;
    uint64_t value;
};

static void unsigned_leb128(void) {
    static const struct leb cases[] = {
        {{0x00}, 1, true, 0},
        {{0x7f}, 1, true, 127},
        {{0x80, 0x01}, 2, true, 128},
        {{0xe5, 0x8e, 0x26}, 3, true, 624485},
        {{0x80, 0x00}, 2, true, 0}, /* padded */
        {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, 10, true, UINT64_MAX},
        {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x03}, 10, false, 0},
        {{0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00}, 11, false, 0},
        {{0x80}, 1, false, 0}, /* truncated */
        {{0}, 0, false, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cursor cursor = cursor_over(cases[i].bytes, cases[i].size);
        CHECK_EQUAL(cursor_uleb(&cursor), cases[i].value);
        CHECK_EQUAL(cursor.failed, !cases[i].fits);
        CHECK_EQUAL(cursor_left(&cursor), cases[i].fits ? 0 : cases[i].size);
    }
}

static void signed_leb128(void) {
    static const struct leb cases[] = {
        {{0x00}, 1, true, 0},
        {{0x3f}, 1, true, 63},
        {{0x40}, 1, true, (uint64_t)-64},
        {{0x7f}, 1, true, (uint64_t)-1},
        {{0x80, 0x7f}, 2, true, (uint64_t)-128},
        {{0xc0, 0xbb, 0x78}, 3, true, (uint64_t)-123456},
        {{0xff, 0x7f}, 2, true, (uint64_t)-1}, /* padded */
        {{0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7f}, 10, true, (uint64_t)INT64_MIN},
        {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00}, 10, true, INT64_MAX},
        {{0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x02}, 10, false, 0}, /* 2 to the 64 */
        {{0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x41}, 10, false, 0},
        {{0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00}, 11, false, 0},
        {{0xff}, 1, false, 0},
        {{0}, 0, false, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cursor cursor = cursor_over(cases[i].bytes, cases[i].size);
        CHECK_EQUAL(cursor_sleb(&cursor), cases[i].value);
        CHECK_EQUAL(cursor.failed, !cases[i].fits);
        CHECK_EQUAL(cursor_left(&cursor), cases[i].fits ? 0 : cases[i].size);
    }
}

int main(void) {
    RUN(fixed_sizes_are_little_endian);
    RUN(a_read_past_the_end_yields_zero_and_stays_failed);
    RUN(nothing_can_be_taken_from_anywhere);
    RUN(unsigned_leb128);
    RUN(signed_leb128);
    return check_result();
}
