/* SPDX-License-Identifier: MIT */
/*
 * void fiber_swap(void **save_sp, void *load_sp)
 *
 * Saves what a call must preserve on the present stack, and goes on where the other stack was
 * left. Floating-point control words are not switched: nobody here changes them. No system call:
 * swapcontext(3) makes two a switch, for signal masks that never differ here.
 */
	.text
	.globl	fiber_swap
	.hidden	fiber_swap
	.type	fiber_swap, @function
fiber_swap:
	.cfi_startproc
	endbr64
	push	%rbp
	.cfi_adjust_cfa_offset 8
	push	%rbx
	.cfi_adjust_cfa_offset 8
	push	%r12
	.cfi_adjust_cfa_offset 8
	push	%r13
	.cfi_adjust_cfa_offset 8
	push	%r14
	.cfi_adjust_cfa_offset 8
	push	%r15
	.cfi_adjust_cfa_offset 8
	mov	%rsp, (%rdi)
	mov	%rsi, %rsp
	pop	%r15
	.cfi_adjust_cfa_offset -8
	pop	%r14
	.cfi_adjust_cfa_offset -8
	pop	%r13
	.cfi_adjust_cfa_offset -8
	pop	%r12
	.cfi_adjust_cfa_offset -8
	pop	%rbx
	.cfi_adjust_cfa_offset -8
	pop	%rbp
	.cfi_adjust_cfa_offset -8
	ret
	.cfi_endproc
	.size	fiber_swap, .-fiber_swap

	/* Where a new fiber begins: rbx holds the function that never returns. */
	.globl	fiber_entry
	.hidden	fiber_entry
	.type	fiber_entry, @function
fiber_entry:
	.cfi_startproc
	.cfi_undefined rip
	endbr64
	xor	%ebp, %ebp
	call	*%rbx
	hlt
	.cfi_endproc
	.size	fiber_entry, .-fiber_entry
	.section .note.GNU-stack,"",@progbits
