/*
 * entry_x86_64.S: where the kernel enters when our signal comes, and where it leaves.
 *
 * The stack is the program's: 48 bytes are taken here, what handler_enter takes, and no more. The work is done on
 * another stack; the CFA is kept in rbp, so that a debugger finds its way back.
 */
#if defined(__CET__)
#include <cet.h> /* marks the object as fit for shadow stacks */
#endif
    .text
    .hidden agent_signal_entry, __restore_rt, handler_enter, handler_main, handler_leave
    .hidden agent_foreign_signal

    .macro give_back_registers /* and the frame */
    movq -8(%rbp), %rbx
    movq -16(%rbp), %r12
    movq -24(%rbp), %r13
    leave
    .cfi_restore rbp
    .cfi_restore rbx
    .cfi_restore r12
    .cfi_restore r13
    .cfi_def_cfa rsp, 8
    .endm

    .globl agent_signal_entry
    .type agent_signal_entry, @function
agent_signal_entry: /* (signal, info, context) */
    .cfi_startproc
    .cfi_signal_frame /* sp may go down to the caller's: debuggers take that from signal frames only */
    endbr64
    pushq %rbp
    .cfi_def_cfa_offset 16
    .cfi_offset rbp, -16
    movq %rsp, %rbp
    .cfi_def_cfa_register rbp
    pushq %rbx
    .cfi_offset rbx, -24
    pushq %r12
    .cfi_offset r12, -32
    pushq %r13
    .cfi_offset r13, -40
    subq $8, %rsp
    movl %edi, %ebx
    movq %rsi, %r12
    movq %rdx, %r13
    call handler_enter
    cmpq $1, %rax
    jb .Lleave
    je .Lforeign
    movq %rax, %rbx
    movq %rax, %rdi
    movq %rax, %rsp
    andq $-16, %rsp
    call handler_main
    leaq -32(%rbp), %rsp
    movq %rbx, %rdi
    call handler_leave
.Lleave:
    .cfi_remember_state
    give_back_registers
    ret
.Lforeign:
    .cfi_restore_state
    movl %ebx, %edi
    movq %r12, %rsi
    movq %r13, %rdx
    give_back_registers
    jmp agent_foreign_signal
    .cfi_endproc
    .size agent_signal_entry, . - agent_signal_entry

/* The kernel asks for a restorer. Debuggers know it by this name, unwinders by these bytes; a rule would say less. */
    .globl __restore_rt
    .type __restore_rt, @function
    .balign 16
    nop /* what looks one byte before a return address still finds no other function's rule */
__restore_rt:
    movq $15, %rax /* rt_sigreturn */
    syscall
    .size __restore_rt, . - __restore_rt

    .section .note.GNU-stack, "", @progbits
