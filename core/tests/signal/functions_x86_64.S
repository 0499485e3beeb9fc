# functions_x86_64.S: probes in assembly (probes.h).

.macro probe name
    .section probe_\name, "ax", @progbits
    .globl \name
    .type \name, @function
\name:
.endm

.macro end name
    .size \name, . - \name
.endm

.macro label name
    .globl \name
\name:
.endm

    .text
    .globl set_trap_flag
set_trap_flag:
    .cfi_startproc
    pushfq
    .cfi_def_cfa_offset 16
    orq $0x100, (%rsp)
    popfq
    .cfi_def_cfa_offset 8
    ret
    .cfi_endproc

# ------------------------------------------------------------------ with CFI

probe call_probe
    .cfi_startproc
    push %rbp
    .cfi_def_cfa_offset 16
    .cfi_offset %rbp, -16
    mov %rsp, %rbp
    mov %rdi, %rax
    mov %rsi, %rdi
    call *%rax
label call_probe_return
    pop %rbp
    .cfi_restore %rbp
    .cfi_def_cfa_offset 8
    ret
    .cfi_endproc
end call_probe

probe send_signal
    .cfi_startproc
    mov $234, %eax
    syscall
label send_signal_return
    ret
    .cfi_endproc
end send_signal

# The return address is in rdx for a while.
probe return_in_register
    .cfi_startproc
    mov %rdi, %rax
    pop %rdx
    .cfi_def_cfa_offset 0
    .cfi_register %rip, %rdx
    inc %rax
    lea (%rax,%rax,4), %rax
    push %rdx
    .cfi_def_cfa_offset 8
    .cfi_offset %rip, -8
    inc %rax
    ret
    .cfi_endproc
end return_in_register

# rsp moves in steps; rbp is used for something else.
probe frame_in_steps
    .cfi_startproc
    sub $24, %rsp
    .cfi_def_cfa_offset 32
    push %rbx
    .cfi_def_cfa_offset 40
    .cfi_offset %rbx, -40
    push %rbp
    .cfi_def_cfa_offset 48
    .cfi_offset %rbp, -48
    sub $8, %rsp
    .cfi_def_cfa_offset 56
    mov $0x4cd, %ebp
    mov %rdi, %rbx
    call return_in_register
    add %rbx, %rax
    add $8, %rsp
    .cfi_def_cfa_offset 48
    pop %rbp
    .cfi_restore %rbp
    .cfi_def_cfa_offset 40
    pop %rbx
    .cfi_restore %rbx
    .cfi_def_cfa_offset 32
    add $24, %rsp
    .cfi_def_cfa_offset 8
    ret
    .cfi_endproc
end frame_in_steps

# The CFA is in a register that only a walk with all registers knows.
probe cfa_in_saved_register
    .cfi_startproc
    push %rbx
    .cfi_def_cfa_offset 16
    .cfi_offset %rbx, -16
    mov %rsp, %rbx
    .cfi_def_cfa %rbx, 16
    sub $272, %rsp
    and $-64, %rsp
    call middle
    mov %rbx, %rsp
    .cfi_def_cfa %rsp, 16
    pop %rbx
    .cfi_restore %rbx
    .cfi_def_cfa_offset 8
    ret
    .cfi_endproc
end cfa_in_saved_register

# For a while the return address is 0x4cd.
probe garbage_frame
    .cfi_startproc
    mov %rdi, %rax
    pop %rdx
    .cfi_def_cfa_offset 0
    .cfi_register %rip, %rdx
    push $0x4cd
    .cfi_def_cfa_offset 8
    .cfi_offset %rip, -8
label garbage_frame_begin
    inc %rax
    lea (%rax,%rax,4), %rax
    pop %rcx
label garbage_frame_end
    .cfi_def_cfa_offset 0
    .cfi_register %rip, %rdx
    push %rdx
    .cfi_def_cfa_offset 8
    .cfi_offset %rip, -8
    ret
    .cfi_endproc
end garbage_frame

probe garbage_leaf
    .cfi_startproc
    mov %rdi, %rax
    mov (%rsp), %rdx
    movq $0x4cd, (%rsp)
label garbage_leaf_begin
    inc %rax
    lea (%rax,%rax,4), %rax
    mov %rdx, (%rsp)
label garbage_leaf_end
    ret
    .cfi_endproc
end garbage_leaf

# ------------------------------------------------------------------ without CFI

probe unknown_leaf
    mov %rdi, %rax
    test %rax, %rax
    js 1f
    lea (%rax,%rax,4), %rax
1:  ret
end unknown_leaf

probe unknown_middle
    sub $24, %rsp
    mov %rdi, 8(%rsp)
    call unknown_leaf
    add 8(%rsp), %rax
    add $24, %rsp
    ret
end unknown_middle

probe unknown_outer
    push %rbp
    mov %rsp, %rbp
    push %rbx
    sub $8, %rsp
    mov %rdi, %rbx
    call unknown_middle
    add %rbx, %rax
    add $8, %rsp
    pop %rbx
    pop %rbp
    ret
end unknown_outer

probe unknown_signed
    endbr64
    push %rbp
    mov %rsp, %rbp
    sub $32, %rsp
    call unknown_leaf
    leave
    ret
end unknown_signed

probe garbage_unknown
    mov %rdi, %rax
    mov (%rsp), %rdx
    movq $0x4cd, (%rsp)
label garbage_unknown_begin
    inc %rax
    lea (%rax,%rax,4), %rax
    mov %rdx, (%rsp)
label garbage_unknown_end
    ret
end garbage_unknown

    .section .note.GNU-stack, "", @progbits
