/* SPDX-License-Identifier: MIT */
/*
 * Why a program does not load the agent, in words: from its file, and where that says nothing from
 * its environment and state.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "super/job.h"
#include "sys/proc.h"

#define OUR_LOADER "ld-linux-x86-64.so.2"
#define MAX_PHDRS 64

/* The program interpreter of an ELF file into buf; 0, or -ENOENT for a static one. */
static int elf_interpreter(int fd, const Elf64_Ehdr *eh, char *buf, size_t len)
{
	for (int i = 0; i < eh->e_phnum && i < MAX_PHDRS; i++) {
		Elf64_Phdr ph;
		ssize_t n;

		if (pread(fd, &ph, sizeof(ph), (off_t)(eh->e_phoff + (uint64_t)i * sizeof(ph))) !=
		    sizeof(ph))
			return -ENOENT;
		if (ph.p_type != PT_INTERP)
			continue;
		n = pread(fd, buf, MIN(len - 1, (size_t)ph.p_filesz), (off_t)ph.p_offset);
		if (n <= 0)
			return -ENOENT;
		buf[n] = 0;
		return 0;
	}
	return -ENOENT;
}

static int reason_of_elf(int fd, char *reason, size_t len)
{
	char interp[256];
	const char *base;
	struct stat st;
	Elf64_Ehdr eh;

	if (pread(fd, &eh, sizeof(eh), 0) != sizeof(eh) || memcmp(eh.e_ident, ELFMAG, SELFMAG))
		return 0;
	if (eh.e_ident[EI_CLASS] != ELFCLASS64 || eh.e_machine != EM_X86_64) {
		snprintf(reason, len, "it is a 32-bit program");
		return 1;
	}
	/* Only what really changes identity: su run by root preloads like any program. */
	if (fstat(fd, &st) == 0 &&
	    (((st.st_mode & S_ISUID) && st.st_uid != getuid()) ||
	     ((st.st_mode & S_ISGID) && st.st_gid != getgid()) ||
	     (getuid() != 0 && fgetxattr(fd, "security.capability", NULL, 0) > 0))) {
		snprintf(reason, len, "it is a set-id program, which preloads nothing");
		return 1;
	}
	if (elf_interpreter(fd, &eh, interp, sizeof(interp)) != 0) {
		snprintf(reason, len, "it is a static program");
		return 1;
	}
	base = strrchr(interp, '/');
	base = base ? base + 1 : interp;
	if (strcmp(base, OUR_LOADER) != 0) {
		snprintf(reason, len, "its loader is %.60s, not glibc's", base);
		return 1;
	}
	return 0;
}

/* The interpreter of a script ("#!"), or the file itself. */
static int open_program(const char *path)
{
	char head[PATH_MAX], *p, *end;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return fd;
	n = pread(fd, head, sizeof(head) - 1, 0);
	if (n < 3 || head[0] != '#' || head[1] != '!')
		return fd;
	close(fd);
	head[n] = 0;
	for (p = head + 2; *p == ' ' || *p == '\t'; p++)
		;
	end = p + strcspn(p, " \t\n");
	*end = 0;
	return open(p, O_RDONLY | O_CLOEXEC);
}

/* As execvp(3) finds it. */
static int find_in_path(const char *name, char *buf, size_t len)
{
	const char *path = getenv("PATH"), *s;

	if (strchr(name, '/')) {
		snprintf(buf, len, "%s", name);
		return 0;
	}
	for (s = path ? path : "/bin:/usr/bin"; *s;) {
		size_t n = strcspn(s, ":");

		snprintf(buf, len, "%.*s/%s", n ? (int)n : 1, n ? s : ".", name);
		if (access(buf, X_OK) == 0)
			return 0;
		s += n;
		if (*s)
			s++;
	}
	return -ENOENT;
}

int unmanaged_reason_file(const char *name, char *reason, size_t len)
{
	char path[PATH_MAX];
	int fd, r;

	if (find_in_path(name, path, sizeof(path)) != 0)
		return 0;
	fd = open_program(path);
	if (fd < 0)
		return 0;
	r = reason_of_elf(fd, reason, len);
	close(fd);
	return r;
}

static bool environment_has_agent(struct job *j, pid_t pid)
{
	static char buf[1 << 18];
	int fd = proc_open(pid, "environ");
	ssize_t n;
	bool found = false;

	if (fd < 0)
		return true; /* cannot tell */
	n = read(fd, buf, sizeof(buf) - 1);
	close(fd);
	if (n <= 0)
		return n < 0;
	buf[n] = 0;
	for (char *s = buf; s < buf + n && !found; s += strlen(s) + 1)
		found = strncmp(s, "LD_PRELOAD=", 11) == 0 && strstr(s, j->agent_path);
	return found;
}

bool unmanaged_reason_pid(struct job *j, pid_t pid, char *reason, size_t len)
{
	int fd = proc_open(pid, "exe"), r = 0;

	if (fd >= 0) {
		r = reason_of_elf(fd, reason, len);
		close(fd);
	}
	if (r)
		return true;
	if (!environment_has_agent(j, pid)) {
		snprintf(reason, len, "its environment lacks LD_PRELOAD (env -i?)");
		return true;
	}
	if (proc_has_seccomp(pid) == 1) {
		snprintf(reason, len, "it inherited a seccomp filter");
		return true;
	}
	snprintf(reason, len, "its helper could not be started");
	return false;
}
