/*
 * entry_aarch64.S: where the kernel enters when our signal comes, and where it leaves.
 *
 * The stack is the program's: 48 bytes are taken here, what handler_enter takes, and no more. The work is done on
 * another stack; the CFA is kept in x29, so that a debugger finds its way back. lr leads to the kernel's own code
 * for the return from a signal.
 */
    .text
    .hidden agent_signal_entry, handler_enter, handler_main, handler_leave, agent_foreign_signal

    .macro give_back_registers /* and the frame */
    ldp x19, x20, [sp, #16]
    ldr x21, [sp, #32]
    ldp x29, x30, [sp], #48
    .cfi_restore x29
    .cfi_restore x30
    .cfi_restore x19
    .cfi_restore x20
    .cfi_restore x21
    .cfi_def_cfa sp, 0
    .endm

    .globl agent_signal_entry
    .type agent_signal_entry, %function
agent_signal_entry: /* (signal, info, context) */
    .cfi_startproc
    .cfi_signal_frame /* sp may go down to the caller's: debuggers take that from signal frames only */
    hint #34 /* bti c */
    stp x29, x30, [sp, #-48]!
    .cfi_def_cfa_offset 48
    .cfi_offset x29, -48
    .cfi_offset x30, -40
    mov x29, sp
    .cfi_def_cfa_register x29
    stp x19, x20, [sp, #16]
    .cfi_offset x19, -32
    .cfi_offset x20, -24
    str x21, [sp, #32]
    .cfi_offset x21, -16
    mov w19, w0
    mov x20, x1
    mov x21, x2
    bl handler_enter
    cmp x0, #1
    b.lo .Lleave
    b.eq .Lforeign
    mov x19, x0
    and x9, x0, #-16
    mov sp, x9
    bl handler_main
    mov sp, x29
    mov x0, x19
    bl handler_leave
.Lleave:
    .cfi_remember_state
    give_back_registers
    ret
.Lforeign:
    .cfi_restore_state
    mov w0, w19
    mov x1, x20
    mov x2, x21
    give_back_registers
    b agent_foreign_signal
    .cfi_endproc
    .size agent_signal_entry, . - agent_signal_entry

    .section .note.GNU-stack, "", %progbits
