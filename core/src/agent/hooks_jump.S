/*
 * hooks_jump.S: hooks that must not have a frame of their own: syscall(), which may return twice, and dlopen(), which
 * searches for libraries where the file of its return address says.
 */
#include <sys/syscall.h>

#if defined(__x86_64__)

        .text
        .globl  syscall
        .type   syscall, @function
        .p2align 4
syscall:
        .cfi_startproc
        endbr64
        cmpq    $SYS_seccomp, %rdi
        je      hook_system_call
        cmpq    $SYS_prctl, %rdi
        je      hook_system_call
        cmpq    $SYS_rt_sigaction, %rdi
        je      hook_system_call
        cmpq    $SYS_execve, %rdi
        je      hook_system_call
        cmpq    $SYS_execveat, %rdi
        je      hook_system_call
        movq    %rdi, %rax
        movq    %rsi, %rdi
        movq    %rdx, %rsi
        movq    %rcx, %rdx
        movq    %r8, %r10
        movq    %r9, %r8
        movq    8(%rsp), %r9
        syscall
        cmpq    $-4095, %rax
        jae     1f
        ret
1:      movq    %rax, %rdi
        jmp     hook_failed_call
        .cfi_endproc
        .size   syscall, . - syscall

        .globl  dlopen
        .type   dlopen, @function
        .p2align 4
dlopen:
        .cfi_startproc
        endbr64
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        subq    $8, %rsp
        .cfi_adjust_cfa_offset 8
        call    hook_before_dlopen
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        testq   %rax, %rax
        je      1f
        jmp     *%rax
1:      ret
        .cfi_endproc
        .size   dlopen, . - dlopen

#elif defined(__aarch64__)

        .text
        .globl  syscall
        .type   syscall, %function
        .p2align 4
syscall:
        .cfi_startproc
        hint    #34 /* bti c */
        cmp     x0, #SYS_seccomp
        b.eq    hook_system_call
        cmp     x0, #SYS_prctl
        b.eq    hook_system_call
        cmp     x0, #SYS_rt_sigaction
        b.eq    hook_system_call
        cmp     x0, #SYS_execve
        b.eq    hook_system_call
        cmp     x0, #SYS_execveat
        b.eq    hook_system_call
        mov     x8, x0
        mov     x0, x1
        mov     x1, x2
        mov     x2, x3
        mov     x3, x4
        mov     x4, x5
        mov     x5, x6
        svc     #0
        cmn     x0, #4095
        b.hs    hook_failed_call
        ret
        .cfi_endproc
        .size   syscall, . - syscall

        .globl  dlopen
        .type   dlopen, %function
        .p2align 4
dlopen:
        .cfi_startproc
        hint    #34
        stp     x29, x30, [sp, #-32]!
        .cfi_adjust_cfa_offset 32
        .cfi_rel_offset x29, 0
        .cfi_rel_offset x30, 8
        stp     x0, x1, [sp, #16]
        bl      hook_before_dlopen
        mov     x16, x0
        ldp     x0, x1, [sp, #16]
        ldp     x29, x30, [sp], #32
        .cfi_adjust_cfa_offset -32
        .cfi_restore x29
        .cfi_restore x30
        cbz     x16, 1f
        br      x16
1:      mov     x0, xzr
        ret
        .cfi_endproc
        .size   dlopen, . - dlopen

#endif

        .section .note.GNU-stack, "", %progbits
