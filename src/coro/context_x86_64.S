/* SPDX-License-Identifier: MIT */
/* The switch for x86-64: see context.h. */

#if defined(__x86_64__) && !defined(__ILP32__) && !defined(FL__CONTEXT_PORTABLE)

    .text
    .hidden fl__coro_context_switch
    .globl  fl__coro_context_switch
    .type   fl__coro_context_switch, @function
    .p2align 4
fl__coro_context_switch:
    .cfi_startproc
    pushq   %rbp
    .cfi_adjust_cfa_offset 8
    pushq   %rbx
    .cfi_adjust_cfa_offset 8
    pushq   %r12
    .cfi_adjust_cfa_offset 8
    pushq   %r13
    .cfi_adjust_cfa_offset 8
    pushq   %r14
    .cfi_adjust_cfa_offset 8
    pushq   %r15
    .cfi_adjust_cfa_offset 8
    movq    %rsp, (%rdi)
    movq    %rsi, %rsp
    popq    %r15
    popq    %r14
    popq    %r13
    popq    %r12
    popq    %rbx
    popq    %rbp
    .cfi_adjust_cfa_offset -48
    popq    %rcx
    .cfi_adjust_cfa_offset -8
    jmpq    *%rcx
    .cfi_endproc
    .size   fl__coro_context_switch, . - fl__coro_context_switch

/* r12 is the entry, rbx its argument. There is no caller: an unwinder stops here. */
    .hidden fl__coro_context_start
    .globl  fl__coro_context_start
    .type   fl__coro_context_start, @function
    .p2align 4
fl__coro_context_start:
    .cfi_startproc
    .cfi_undefined rip
    movq    %rbx, %rdi
    callq   *%r12
    ud2
    .cfi_endproc
    .size   fl__coro_context_start, . - fl__coro_context_start

#endif

    .section .note.GNU-stack, "", %progbits
