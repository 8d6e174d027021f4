/* SPDX-License-Identifier: MIT */
/*
 * process_vm_readv and process_vm_writev of a child's evicted memory, and into the caller's own;
 * then the child's words by ptrace.
 */
#include "behave.h"

#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

#define NR 128
#define BYTES (NR * PAGE_BYTES)

int main(void)
{
	char *p = map_pages(NR), *to = map_pages(NR), byte;
	struct iovec here = {to, BYTES}, there = {p, BYTES};
	int ready[2], go[2], status;
	long word;
	pid_t pid;

	must(pipe(ready) == 0 && pipe(go) == 0);
	pid = fork();
	must(pid >= 0);
	if (pid == 0) {
		fill_pages(p, NR, 1);
		await_eviction(p, NR);
		must(write(ready[1], "r", 1) == 1);
		must(read(go[0], &byte, 1) == 1);
		check_pages(p, NR, 2, "what the parent wrote into the child");
		fill_pages(p, NR, 3);
		await_eviction(p, NR);
		must(ptrace(PTRACE_TRACEME, 0, 0, 0) == 0);
		raise(SIGSTOP);
		check_pages(p, NR, 3, "after the tracer has looked");
		_exit(5);
	}
	fill_pages(to, NR, 9);
	await_eviction(to, NR);
	must(read(ready[0], &byte, 1) == 1);
	must(process_vm_readv(pid, &here, 1, &there, 1, 0) == BYTES);
	check_pages(to, NR, 1, "read from the child");
	fill_pages(to, NR, 2);
	await_eviction(to, NR);
	must(process_vm_writev(pid, &here, 1, &there, 1, 0) == BYTES);
	check_pages(to, NR, 2, "still here");
	must(write(go[1], "g", 1) == 1);
	must(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status));
	/* A page that is out is an error, at once; what is read is never wrong. */
	for (int i = 0; i < NR; i++) {
		errno = 0;
		word = ptrace(PTRACE_PEEKDATA, pid, p + i * PAGE_BYTES, 0);
		if (errno == 0)
			must(word == (long)page_tag_linear(3, i));
		else
			must(errno == EIO && under_uswap());
	}
	must(ptrace(PTRACE_DETACH, pid, 0, 0) == 0);
	must(reap(pid) == 5);
	return 0;
}
