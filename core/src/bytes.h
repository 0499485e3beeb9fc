/*
 * bytes.h: a bounded cursor over untrusted bytes.
 *
 * Every read checks the bound. A read that does not fit yields 0, leaves the cursor where it is and
 * sets `failed` for good, so that a parser may read a whole structure and check once.
 */
#ifndef UNSPOOL_BYTES_H
#define UNSPOOL_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct cursor {
    const uint8_t *at;
    const uint8_t *end;
    bool failed;
};

static inline struct cursor cursor_over(const uint8_t *bytes, size_t size) {
    return (struct cursor){bytes, bytes + size, false};
}

static inline size_t cursor_left(const struct cursor *cursor) {
    return (size_t)(cursor->end - cursor->at);
}

/* The next `size` bytes, or NULL. */
static inline const uint8_t *cursor_take(struct cursor *cursor, uint64_t size) {
    if (cursor->failed || size > cursor_left(cursor)) {
        cursor->failed = true;
        return NULL;
    }
    const uint8_t *taken = cursor->at;
    cursor->at += size;
    return taken;
}

static inline uint8_t cursor_u8(struct cursor *cursor) {
    const uint8_t *byte = cursor_take(cursor, 1);
    return byte ? *byte : 0;
}

static inline uint16_t cursor_u16(struct cursor *cursor) {
    uint16_t value = 0;
    const uint8_t *bytes = cursor_take(cursor, sizeof value);
    if (bytes)
        memcpy(&value, bytes, sizeof value);
    return value;
}

static inline uint32_t cursor_u32(struct cursor *cursor) {
    uint32_t value = 0;
    const uint8_t *bytes = cursor_take(cursor, sizeof value);
    if (bytes)
        memcpy(&value, bytes, sizeof value);
    return value;
}

static inline uint64_t cursor_u64(struct cursor *cursor) {
    uint64_t value = 0;
    const uint8_t *bytes = cursor_take(cursor, sizeof value);
    if (bytes)
        memcpy(&value, bytes, sizeof value);
    return value;
}

/* LEB128 (DWARF 5, 7.6). A value that does not fit 64 bits fails: nothing real has one. */
static inline uint64_t cursor_uleb(struct cursor *cursor) {
    if (cursor->at < cursor->end && *cursor->at < 0x80 && !cursor->failed) /* nearly always */
        return *cursor->at++;
    const uint8_t *start = cursor->at;
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint8_t byte = cursor_u8(cursor);
        if (cursor->failed || (shift == 63 && byte > 1))
            break;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return value;
    }
    cursor->at = start;
    cursor->failed = true;
    return 0;
}

static inline int64_t cursor_sleb(struct cursor *cursor) {
    const uint8_t *start = cursor->at;
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint8_t byte = cursor_u8(cursor);
        if (cursor->failed || (shift == 63 && byte != 0 && byte != 0x7f))
            break;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            if (shift < 57 && (byte & 0x40))
                value |= ~(uint64_t)0 << (shift + 7);
            return (int64_t)value;
        }
    }
    cursor->at = start;
    cursor->failed = true;
    return 0;
}

#endif
