/*
 * system.h: raw system calls, for code that may run in a signal handler or without a libc.
 *
 * A result of -4095 .. -1 is a negated errno; errno itself is never touched.
 */
#ifndef UNSPOOL_SYSTEM_H
#define UNSPOOL_SYSTEM_H

#if defined(__x86_64__)
#define SYSTEM_process_vm_readv 310
#define SYSTEM_futex 202
#define SYSTEM_madvise 28
#define SYSTEM_rt_tgsigqueueinfo 297
static inline long system_call(long number, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
#define SYSTEM_process_vm_readv 270
#define SYSTEM_futex 98
#define SYSTEM_madvise 233
#define SYSTEM_rt_tgsigqueueinfo 240
static inline long system_call(long number, long a, long b, long c, long d, long e, long f) {
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
}
#else
#error "unspool runs on x86_64 and aarch64"
#endif

#endif
