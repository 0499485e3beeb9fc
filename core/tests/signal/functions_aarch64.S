// functions_aarch64.S: probes in assembly (probes.h).

.macro probe name
    .section probe_\name, "ax", %progbits
    .balign 4
    .globl \name
    .type \name, %function
\name:
.endm

.macro end name
    .size \name, . - \name
.endm

.macro label name
    .globl \name
\name:
.endm

// ------------------------------------------------------------------ with CFI

probe call_probe
    .cfi_startproc
    stp x29, x30, [sp, #-16]!
    .cfi_def_cfa_offset 16
    .cfi_offset x29, -16
    .cfi_offset x30, -8
    mov x29, sp
    mov x2, x0
    mov x0, x1
    blr x2
label call_probe_return
    ldp x29, x30, [sp], #16
    .cfi_restore x29
    .cfi_restore x30
    .cfi_def_cfa_offset 0
    ret
    .cfi_endproc
end call_probe

probe send_signal
    .cfi_startproc
    mov x8, #131
    svc #0
label send_signal_return
    ret
    .cfi_endproc
end send_signal

// The return address is in x9 for a while, and lr holds garbage.
probe return_in_register
    .cfi_startproc
    mov x9, x30
    .cfi_register x30, x9
    mov x30, #0x4cd
    add x0, x0, #1
    eor x0, x0, x0, lsl #3
    mov x30, x9
    .cfi_restore x30
    add x0, x0, #1
    ret
    .cfi_endproc
end return_in_register

// sp moves in steps, one of them to no multiple of 16; fp is used for something else.
probe frame_in_steps
    .cfi_startproc
    sub sp, sp, #16
    .cfi_def_cfa_offset 16
    str x30, [sp, #8]
    .cfi_offset x30, -8
    sub sp, sp, #24
    .cfi_def_cfa_offset 40
    mov x30, #0x4cd
    sub sp, sp, #24
    .cfi_def_cfa_offset 64
    stp x29, x19, [sp]
    .cfi_offset x29, -64
    .cfi_offset x19, -56
    mov x29, #0x4cd
    mov x19, x0
    bl return_in_register
    add x0, x0, x19
    ldp x29, x19, [sp]
    .cfi_restore x29
    .cfi_restore x19
    add sp, sp, #24
    .cfi_def_cfa_offset 40
    add sp, sp, #24
    .cfi_def_cfa_offset 16
    ldr x30, [sp, #8]
    .cfi_restore x30
    add sp, sp, #16
    .cfi_def_cfa_offset 0
    ret
    .cfi_endproc
end frame_in_steps

// The CFA is in a register that only a walk with all registers knows.
probe cfa_in_saved_register
    .cfi_startproc
    stp x19, x30, [sp, #-16]!
    .cfi_def_cfa_offset 16
    .cfi_offset x19, -16
    .cfi_offset x30, -8
    mov x19, sp
    .cfi_def_cfa x19, 16
    sub sp, sp, #272
    bl middle
    mov sp, x19
    .cfi_def_cfa sp, 16
    ldp x19, x30, [sp], #16
    .cfi_restore x19
    .cfi_restore x30
    .cfi_def_cfa_offset 0
    ret
    .cfi_endproc
end cfa_in_saved_register

// For a while the frame record names a caller at 0x4cd.
probe garbage_frame
    .cfi_startproc
    stp x29, x30, [sp, #-16]!
    .cfi_def_cfa_offset 16
    .cfi_offset x29, -16
    .cfi_offset x30, -8
    mov x29, sp
    mov x9, x30
    mov x10, #0x4cd
    str x10, [sp, #8]
label garbage_frame_begin
    add x0, x0, #1
    eor x0, x0, x0, lsl #3
    str x9, [sp, #8]
label garbage_frame_end
    ldp x29, x30, [sp], #16
    .cfi_restore x29
    .cfi_restore x30
    .cfi_def_cfa_offset 0
    ret
    .cfi_endproc
end garbage_frame

// For a while lr is 0x4cd, and nothing says so.
probe garbage_leaf
    .cfi_startproc
    mov x9, x30
    mov x30, #0x4cd
label garbage_leaf_begin
    add x0, x0, #1
    eor x0, x0, x0, lsl #3
    mov x30, x9
label garbage_leaf_end
    ret
    .cfi_endproc
end garbage_leaf

// ------------------------------------------------------------------ without CFI

probe unknown_leaf
    add x0, x0, #1
    cbz x0, 1f
    eor x0, x0, x0, lsl #3
1:  ret
end unknown_leaf

// No frame record, so that fp says nothing about it.
probe unknown_middle
    str x30, [sp, #-32]!
    str x0, [sp, #8]
    bl unknown_leaf
    ldr x1, [sp, #8]
    add x0, x0, x1
    ldr x30, [sp], #32
    ret
end unknown_middle

probe unknown_outer
    sub sp, sp, #48
    stp x29, x30, [sp, #32]
    add x29, sp, #32
    str x19, [sp, #8]
    mov x19, x0
    bl unknown_middle
    add x0, x0, x19
    ldr x19, [sp, #8]
    ldp x29, x30, [sp, #32]
    add sp, sp, #48
    ret
end unknown_outer

probe unknown_signed
    paciasp
    stp x29, x30, [sp, #-16]!
    mov x29, sp
    bl unknown_leaf
    ldp x29, x30, [sp], #16
    autiasp
    ret
end unknown_signed

probe garbage_unknown
    mov x9, x30
    mov x30, #0x4cd
label garbage_unknown_begin
    add x0, x0, #1
    eor x0, x0, x0, lsl #3
    mov x30, x9
label garbage_unknown_end
    ret
end garbage_unknown

    .section .note.GNU-stack, "", %progbits
