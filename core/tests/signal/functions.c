/*
 * functions.c: probes in C: leaves, prologues and epilogues of every shape, and callers of the probes that
 * are written in assembly. Every instruction of them must be reachable in every call.
 */
#include "probes.h"

PROBE(leaf_plain) unsigned long leaf_plain(unsigned long n) {
    unsigned long sum = n;
    for (unsigned long i = 0; i < 5; i++)
        sum = sum * 31 + (sum >> 7);
    return sum;
}

/* A leaf with a frame of its own, without a frame record. The word at sp is not the last one read: of that
 * load and the epilogue's addition to sp, clang 19 makes one instruction, to which its CFI does not come. */
PROBE(leaf_stack) unsigned long leaf_stack(unsigned long n) {
    unsigned long words[40];
    __asm__ volatile("" : : "r"(words) : "memory");
    words[0] = n;
    words[39] = n + 1;
    __asm__ volatile("" : : "r"(words) : "memory");
    return words[0] + words[39] + words[38];
}

PROBE(middle) unsigned long middle(unsigned long n) {
    return leaf_plain(n + 1) + n;
}

/* Values that live across the call need every callee-saved register. */
PROBE(many_saved) unsigned long many_saved(unsigned long n) {
    unsigned long a = n + 1, b = a * n, c = b ^ a, d = c + b, e = d * 3, f = e ^ n, g = f + a, h = g * b,
                  i = h ^ c, j = i + d, k = j * e, l = k ^ f;
    unsigned long got = middle(l);
    return got + (a ^ (b + (c ^ (d + (e ^ (f + (g ^ (h + (i ^ (j + (k ^ l)))))))))));
}

/* More than 4 KiB and more than 64 KiB: sp moves in several steps. */
PROBE(big_frame) unsigned long big_frame(unsigned long n) {
    volatile unsigned char bytes[70000];
    bytes[0] = (unsigned char)n;
    bytes[69999] = 1;
    return leaf_stack(n) + bytes[0] + bytes[69999];
}

PROBE(variable_frame) unsigned long variable_frame(unsigned long n) {
    unsigned long size = 64 + (n & 63);
    volatile unsigned char bytes[size];
    bytes[0] = (unsigned char)n;
    bytes[size - 1] = 1;
    return leaf_plain(n) + bytes[0] + bytes[size - 1];
}

PROBE(calls_register) unsigned long calls_register(unsigned long n) {
    return frame_in_steps(n) + n;
}

PROBE(calls_saved_cfa) unsigned long calls_saved_cfa(unsigned long n) {
    return cfa_in_saved_register(n) + n;
}

PROBE(calls_unknown) unsigned long calls_unknown(unsigned long n) {
    return unknown_outer(n) + n;
}

PROBE(calls_signed) unsigned long calls_signed(unsigned long n) {
    return unknown_signed(n) + n;
}

PROBE(calls_garbage_frame) unsigned long calls_garbage_frame(unsigned long n) {
    return garbage_frame(n) + n;
}

PROBE(calls_garbage_leaf) unsigned long calls_garbage_leaf(unsigned long n) {
    return garbage_leaf(n) + n;
}

PROBE(calls_garbage_unknown) unsigned long calls_garbage_unknown(unsigned long n) {
    return garbage_unknown(n) + n;
}
