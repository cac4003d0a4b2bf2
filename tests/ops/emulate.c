#include "emulate_order.h"

emulate_order kn_emulate_order = {.blocks_max = 1 << 20, .index_max = UINT32_MAX};

/* The one thing that C can't say: leaving one stack for another. x86-64, System V. */
__asm__(
    ".text\n"
    ".globl kn_emulate_switch\n"
    ".type kn_emulate_switch, @function\n"
    "kn_emulate_switch:\n"
    "  push %rbp\n  push %rbx\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
    "  mov %rsp, (%rdi)\n"
    "  mov %rsi, %rsp\n"
    "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbx\n  pop %rbp\n"
    "  ret\n"
    ".size kn_emulate_switch, . - kn_emulate_switch\n"
    ".section .note.GNU-stack, \"\", @progbits\n"
    ".text\n");
