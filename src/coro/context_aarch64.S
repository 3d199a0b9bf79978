/* SPDX-License-Identifier: MIT */
/* The switch for 64-bit ARM: see context.h. */

#if defined(__aarch64__) && !defined(__ILP32__) && !defined(FL__CONTEXT_PORTABLE)

    .text
    .hidden fl__coro_context_switch
    .globl  fl__coro_context_switch
    .type   fl__coro_context_switch, %function
    .p2align 4
fl__coro_context_switch:
    .cfi_startproc
    sub     sp, sp, #160
    .cfi_adjust_cfa_offset 160
    stp     x19, x20, [sp, #0]
    stp     x21, x22, [sp, #16]
    stp     x23, x24, [sp, #32]
    stp     x25, x26, [sp, #48]
    stp     x27, x28, [sp, #64]
    stp     x29, x30, [sp, #80]
    stp     d8,  d9,  [sp, #96]
    stp     d10, d11, [sp, #112]
    stp     d12, d13, [sp, #128]
    stp     d14, d15, [sp, #144]
    mov     x9, sp
    str     x9, [x0]
    mov     sp, x1
    ldp     x19, x20, [sp, #0]
    ldp     x21, x22, [sp, #16]
    ldp     x23, x24, [sp, #32]
    ldp     x25, x26, [sp, #48]
    ldp     x27, x28, [sp, #64]
    ldp     x29, x30, [sp, #80]
    ldp     d8,  d9,  [sp, #96]
    ldp     d10, d11, [sp, #112]
    ldp     d12, d13, [sp, #128]
    ldp     d14, d15, [sp, #144]
    add     sp, sp, #160
    .cfi_adjust_cfa_offset -160
    mov     x16, x30
    br      x16
    .cfi_endproc
    .size   fl__coro_context_switch, . - fl__coro_context_switch

/* x19 is the entry, x20 its argument. There is no caller: an unwinder stops here. */
    .hidden fl__coro_context_start
    .globl  fl__coro_context_start
    .type   fl__coro_context_start, %function
    .p2align 4
fl__coro_context_start:
    .cfi_startproc
    .cfi_undefined x30
    mov     x0, x20
    blr     x19
    brk     #1
    .cfi_endproc
    .size   fl__coro_context_start, . - fl__coro_context_start

#endif

    .section .note.GNU-stack, "", %progbits
