/* SPDX-License-Identifier: MIT */
/*
 * Argument: io_uring or threads, the engine that all tests here use. Exits with 77 if it, or a
 * directory on a disk, is not to be had.
 */
#include "test_dev_util.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/magic.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

static bool no_io_uring;
static char dir[128], path[192];
static char *buf, *out; /* MAX_FOLIO_PAGES each */

/* ---- helpers ---- */

static struct dev *make(const void *cfg, int *err, char *text, size_t len)
{
	struct file_config c = *(const struct file_config *)cfg;

	if (!c.path)
		c.path = path;
	c.no_io_uring = no_io_uring;
	return dev_file_create(&c, err, text, len);
}

static struct dev *create(const struct file_config *cfg)
{
	return dev_made(make, cfg);
}

static void refused(const struct file_config *cfg, int want_err, const char *words)
{
	dev_refused(make, cfg, want_err, "file", cfg->path ? cfg->path : path, words);
}

static bool exists(const char *p)
{
	struct stat st;

	return lstat(p, &st) == 0;
}

static void write_file(const char *p, const char *text)
{
	int fd = open(p, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static void assert_content(const char *p, const char *text)
{
	char got[64] = {0};
	int fd = open(p, O_RDONLY);

	assert_true(fd >= 0);
	assert_int_equal(read(fd, got, sizeof(got) - 1), strlen(text));
	assert_string_equal(got, text);
	close(fd);
}

static void round_trip(struct dev *d, uint32_t slot, uint32_t nr, uint64_t seed)
{
	dev_round_trip(d, slot, nr, seed, buf, out);
}

static int setup(void **state)
{
	snprintf(dir, sizeof(dir), "/var/tmp/uswap-test-XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/swap", dir);
	return 0;
}

/* Each test leaves the directory empty: nothing is left behind, whatever happened. */
static int teardown(void **state)
{
	return rmdir(dir);
}

/* ---- I/O ---- */

static void check_orders(bool no_direct)
{
	struct file_config cfg = {.bytes = MIB(8), .no_direct = no_direct};
	struct dev *d = create(&cfg);
	bool direct = no_direct;
	uint64_t pages = 0;

	assert_string_equal(d->ops->type, "file");
	assert_string_equal(d->name, path);
	assert_string_equal(dev_file_engine(d, &direct), no_io_uring ? "threads" : "io_uring");
	if (no_direct)
		assert_false(direct);
	assert_false(dev_in_memory(d));
	assert_null(d->ops->grow);
	assert_int_equal(d->max_slots, MIB(8) / PAGE_SIZE);
	assert_int_equal(d->nr_slots, d->max_slots);
	for (uint32_t o = 0; o <= MAX_ORDER; o++) {
		round_trip(d, 1u << o, 1u << o, o);
		pages += 1u << o;
	}
	assert_int_equal(dev_pages(d), pages);
	assert_int_equal(dev_bytes(d), pages * PAGE_SIZE);
	for (uint32_t o = 0; o <= MAX_ORDER; o++) {
		assert_int_equal(dev_io_sync(d, DEV_READ, 1u << o, 1u << o, out), 0);
		assert_true(pages_are(out, 1u << o, o));
	}
	assert_int_equal(dev_errors(d), 0);
	dev_destroy(d);
}

static void test_every_order_comes_back(void **state)
{
	check_orders(false);
}

static void test_every_order_comes_back_buffered(void **state)
{
	check_orders(true);
}

/* More at once than the ring has places; each ends exactly once. */
static void test_many_ios_at_once(void **state)
{
	enum { N = 700 };
	static struct dev_io io[N];
	struct file_config cfg = {.bytes = MIB(8)};
	struct dev *d = create(&cfg);
	char *pages = pages_new(N);

	for (int pass = 0; pass < 2; pass++) {
		struct gather g = {.left = N};

		for (uint32_t i = 0; i < N; i++) {
			char *p = pages + i * PAGE_SIZE;

			if (pass == 0)
				pages_fill(p, 1, i);
			else
				memset(p, 0, PAGE_SIZE);
			io[i] = (struct dev_io){.op = pass ? DEV_READ : DEV_WRITE, .slot = i + 1,
						.nr_pages = 1, .buf = p, .done = gather_done,
						.priv = &g};
			dev_submit(d, &io[i]);
		}
		gather_wait(&g);
		assert_int_equal(g.failed, 0);
	}
	for (uint32_t i = 0; i < N; i++) {
		assert_true(pages_are(pages + i * PAGE_SIZE, 1, i));
		assert_int_equal(io[i].result, 0);
	}
	assert_int_equal(dev_pages(d), N);
	dev_destroy(d);
	pages_free(pages, N);
}

/* Callbacks that submit, with the ring full: the thread that makes room must not wait for it. */
struct chain {
	struct gather *g;
	struct dev *d;
	struct dev_io io;
	int steps;
};

static void chain_done(struct dev_io *io)
{
	struct chain *c = io->priv;

	if (io->result == 0 && --c->steps > 0) {
		io->op = c->steps % 2 ? DEV_READ : DEV_WRITE;
		dev_submit(c->d, io);
		return;
	}
	if (io->result)
		atomic_fetch_add(&c->g->failed, 1);
	atomic_fetch_sub(&c->g->left, 1);
}

static void test_callbacks_may_submit(void **state)
{
	enum { N = 600 };
	static struct chain c[N];
	struct file_config cfg = {.bytes = MIB(8)};
	struct dev *d = create(&cfg);
	struct gather g = {.left = N};
	char *pages = pages_new(N);

	for (uint32_t i = 0; i < N; i++) {
		pages_fill(pages + i * PAGE_SIZE, 1, i);
		c[i] = (struct chain){.g = &g, .d = d, .steps = 5};
		c[i].io = (struct dev_io){.op = DEV_WRITE, .slot = i + 1, .nr_pages = 1,
					  .buf = pages + i * PAGE_SIZE, .done = chain_done,
					  .priv = &c[i]};
		dev_submit(d, &c[i].io);
	}
	gather_wait(&g);
	assert_int_equal(g.failed, 0);
	for (uint32_t i = 0; i < N; i++)
		assert_true(pages_are(pages + i * PAGE_SIZE, 1, i));
	dev_destroy(d);
	pages_free(pages, N);
}

static void test_counters_follow_the_slots(void **state)
{
	struct file_config cfg = {.bytes = MIB(1)};
	struct dev *d = create(&cfg);

	round_trip(d, 10, 8, 1);
	round_trip(d, 12, 8, 2); /* overlaps: 10 pages in all */
	assert_int_equal(dev_pages(d), 10);
	d->ops->free_slots(d, 1, 12); /* of these three held something */
	assert_int_equal(dev_pages(d), 7);
	assert_int_equal(dev_bytes(d), 7 * PAGE_SIZE);
	assert_int_equal(dev_io_sync(d, DEV_READ, 12, 1, out), -EIO);
	assert_int_equal(dev_errors(d), 1);
	assert_int_equal(dev_io_sync(d, DEV_READ, 13, 7, out), 0);
	assert_int_equal(dev_io_sync(d, DEV_WRITE, 0, 1, buf), -EINVAL);
	assert_int_equal(dev_io_sync(d, DEV_WRITE, 256, 1, buf), -EINVAL);
	assert_int_equal(dev_io_sync(d, DEV_WRITE, 255, 2, buf), -EINVAL);
	assert_true(d->ops->metadata_bytes(d) <= PAGE_SIZE);
	dev_destroy(d);
}

static void check_truncated(bool no_direct)
{
	struct file_config cfg = {.bytes = MIB(1), .keep = true, .no_direct = no_direct};
	struct dev *d = create(&cfg);

	round_trip(d, 100, 8, 1);
	assert_int_equal(truncate(path, 104 * PAGE_SIZE), 0);
	assert_int_equal(dev_io_sync(d, DEV_READ, 100, 8, out), -EIO);
	assert_int_equal(dev_errors(d), 1);
	assert_int_equal(dev_io_sync(d, DEV_READ, 100, 4, out), 0);
	dev_destroy(d);
	assert_int_equal(unlink(path), 0);
}

static void test_truncation_gives_an_error(void **state)
{
	check_truncated(false);
	check_truncated(true);
}

static unsigned int nr_fds(void)
{
	unsigned int n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void test_destroy_leaves_no_descriptors(void **state)
{
	struct file_config cfg = {.bytes = MIB(1)};
	unsigned int before = nr_fds();

	for (int i = 0; i < 10; i++) {
		struct dev *d = create(&cfg);

		round_trip(d, 1, 1, 1);
		dev_destroy(d);
	}
	assert_int_equal(nr_fds(), before);
}

/* ---- the file ---- */

static void test_file_is_private_and_unlinked(void **state)
{
	struct file_config cfg = {.bytes = MIB(1)};
	struct dev *d = create(&cfg);

	assert_false(exists(path));
	dev_destroy(d);
}

static void test_keep_leaves_a_reserved_file(void **state)
{
	struct file_config cfg = {.bytes = MIB(2), .keep = true};
	mode_t mask = umask(0);
	struct dev *d = create(&cfg);
	struct stat st;

	umask(mask);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(st.st_size, MIB(2));
	assert_true((uint64_t)st.st_blocks * 512 >= MIB(2));
	dev_destroy(d);
	assert_true(exists(path));
	unlink(path);
}

static void test_existing_file_is_refused_untouched(void **state)
{
	struct file_config cfg = {.bytes = MIB(1)};

	write_file(path, "precious");
	refused(&cfg, EEXIST, ",force");
	assert_content(path, "precious");
	unlink(path);
}

static void test_force_takes_an_existing_file(void **state)
{
	struct file_config cfg = {.bytes = MIB(1), .force = true, .keep = true};
	struct stat st;
	struct dev *d;

	write_file(path, "old");
	assert_int_equal(truncate(path, MIB(3)), 0); /* larger than wanted */
	d = create(&cfg);
	round_trip(d, 1, 16, 1);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, MIB(1));
	dev_destroy(d);
	/* Without keep it is unlinked as one of our own would be. */
	cfg.keep = false;
	d = create(&cfg);
	assert_false(exists(path));
	dev_destroy(d);
	/* force does not demand that there is one. */
	d = create(&cfg);
	dev_destroy(d);
}

static void test_second_user_is_refused(void **state)
{
	struct file_config cfg = {.bytes = MIB(1), .force = true, .keep = true};
	struct dev *d = create(&cfg);
	struct stat st;

	round_trip(d, 9, 4, 7);
	refused(&cfg, EBUSY, "in use by another job");
	/* It was not truncated, nor removed. */
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, MIB(1));
	assert_int_equal(dev_io_sync(d, DEV_READ, 9, 4, out), 0);
	assert_true(pages_are(out, 4, 7));
	dev_destroy(d);
	d = create(&cfg);
	dev_destroy(d);
	unlink(path);
}

static void test_links_and_other_kinds_are_refused(void **state)
{
	struct file_config cfg = {.bytes = MIB(1), .force = true};
	struct file_config a_dir = {.bytes = MIB(1), .force = true, .path = dir};
	struct file_config a_dev = {.bytes = MIB(1), .force = true, .path = "/dev/null"};
	char target[192];

	snprintf(target, sizeof(target), "%s/target", dir);
	assert_int_equal(symlink(target, path), 0);
	refused(&cfg, ELOOP, "symbolic link"); /* it dangles: the target must not be made */
	assert_false(exists(target));
	write_file(target, "precious");
	refused(&cfg, ELOOP, "symbolic link");
	assert_content(target, "precious");
	unlink(target);
	unlink(path);
	refused(&a_dir, EISDIR, "directory");
	refused(&a_dev, EINVAL, "not a regular file");
	assert_int_equal(mkfifo(path, 0600), 0);
	refused(&cfg, EINVAL, "not a regular file");
	assert_true(exists(path));
	unlink(path);
}

static void test_missing_directory_is_named(void **state)
{
	struct file_config cfg = {.bytes = MIB(1), .path = "/var/tmp/uswap-no-such-dir/x"};

	refused(&cfg, ENOENT, "directory /var/tmp/uswap-no-such-dir does not exist");
}

static void test_no_permission_is_named(void **state)
{
	struct file_config cfg = {.bytes = MIB(1)};
	uid_t uid = geteuid();

	assert_int_equal(chmod(dir, 0500), 0);
	if (uid == 0)
		assert_int_equal(seteuid(65534), 0);
	refused(&cfg, EACCES, "no permission");
	if (uid == 0)
		assert_int_equal(seteuid(0), 0);
	chmod(dir, 0700);
}

static void test_file_in_memory_is_refused(void **state)
{
	char shm[64];
	struct file_config cfg = {.bytes = MIB(1), .path = shm, .keep = true};
	struct statfs fs;

	if (statfs("/dev/shm", &fs) != 0 || fs.f_type != TMPFS_MAGIC)
		skip();
	snprintf(shm, sizeof(shm), "/dev/shm/uswap-test-%d", getpid());
	refused(&cfg, EINVAL, "lies in memory");
	assert_false(exists(shm));
	/* A file of somebody else is refused before it is emptied. */
	write_file(shm, "precious");
	cfg.force = true;
	refused(&cfg, EINVAL, "lies in memory");
	assert_content(shm, "precious");
	unlink(shm);
}

/* ---- space ---- */

static void test_full_disk_fails_at_creation(void **state)
{
	struct file_config cfg = {.keep = true};
	struct statvfs vfs;
	char bytes[64];

	assert_int_equal(statvfs(dir, &vfs), 0);
	cfg.bytes = 2 * (uint64_t)vfs.f_bfree * vfs.f_frsize + GIB(1);
	if (cfg.bytes > (uint64_t)UINT32_MAX * PAGE_SIZE)
		skip();
	snprintf(bytes, sizeof(bytes), "%llu bytes wanted",
		 (unsigned long long)align_down(cfg.bytes, PAGE_SIZE));
	refused(&cfg, ENOSPC, bytes);
	assert_non_null(strstr(dev_sentence, "available"));
	assert_false(exists(path));
	/* A file that we did not make stays, also when it cannot be used. */
	cfg.force = true;
	cfg.keep = false;
	write_file(path, "old");
	refused(&cfg, ENOSPC, bytes);
	assert_true(exists(path));
	unlink(path);
}

static void with_size_limit(rlim_t bytes, void (*fn)(void))
{
	struct rlimit old, rl;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	rl = (struct rlimit){.rlim_cur = bytes, .rlim_max = old.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &rl), 0);
	fn();
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
}

/* SIGXFSZ keeps its default action here: it would end the test. */
static void over_the_limit(void)
{
	struct file_config cfg = {.bytes = MIB(2), .keep = true}, growing = {.bytes = 0};
	struct dev *d;

	refused(&cfg, EFBIG, "ulimit -f");
	assert_false(exists(path));
	d = create(&growing);
	assert_int_equal(d->max_slots, 256);
	assert_int_equal(d->ops->grow(d, 100000), 256);
	round_trip(d, 240, 16, 3);
	dev_destroy(d);
}

static void test_file_size_limit_is_respected(void **state)
{
	with_size_limit(MIB(1), over_the_limit);
}

static void test_size_too_small_is_refused(void **state)
{
	struct file_config cfg = {.bytes = 4096};

	refused(&cfg, EINVAL, "SIZE");
}

static void skip_without_space(uint64_t bytes)
{
	struct statvfs vfs;

	if (statvfs("/var/tmp", &vfs) == 0 && (uint64_t)vfs.f_bavail * vfs.f_frsize < bytes)
		skip();
}

static void test_growing_file_grows(void **state)
{
	struct file_config cfg = {.bytes = 0, .keep = true};
	struct statvfs vfs;
	struct stat st;
	struct dev *d;
	uint32_t start, now;

	skip_without_space(MIB(600));
	assert_int_equal(statvfs(dir, &vfs), 0);
	d = create(&cfg);
	start = d->nr_slots;
	assert_non_null(d->ops->grow);
	assert_true(start >= 1 && start < d->max_slots);
	/* Half of what is free, give or take what others do to the disk. */
	assert_in_range(d->max_slots, vfs.f_bavail * vfs.f_frsize / PAGE_SIZE * 2 / 5,
			vfs.f_bavail * vfs.f_frsize / PAGE_SIZE * 3 / 5);
	assert_int_equal(dev_io_sync(d, DEV_WRITE, start, 1, buf), -EINVAL);
	assert_int_equal(d->ops->grow(d, start), start);
	now = d->ops->grow(d, start + 1);
	assert_true(now > start);
	assert_int_equal(d->nr_slots, now);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, (uint64_t)now * PAGE_SIZE);
	assert_true((uint64_t)st.st_blocks * 512 >= (uint64_t)now * PAGE_SIZE);
	round_trip(d, start - 8, 16, 2);
	round_trip(d, now - 8, 8, 2);
	assert_int_equal(d->ops->grow(d, 1), now);
	dev_destroy(d);
	unlink(path);
}

static struct dev *limited;

static void grow_limited(void)
{
	uint32_t have = limited->nr_slots;

	assert_int_equal(limited->ops->grow(limited, have * 2), have);
	assert_int_equal(limited->nr_slots, have);
}

static void test_refused_growth_keeps_what_there_is(void **state)
{
	struct file_config cfg = {.bytes = 0, .keep = true};
	struct stat st;

	skip_without_space(MIB(600));
	limited = create(&cfg);
	round_trip(limited, 1, 4, 5);
	/* Stands for a disk that filled up since: fallocate(2) fails. */
	signal(SIGXFSZ, SIG_IGN);
	with_size_limit((rlim_t)limited->nr_slots << PAGE_SHIFT, grow_limited);
	signal(SIGXFSZ, SIG_DFL);
	grow_limited(); /* it does not ask again */
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, (uint64_t)limited->nr_slots << PAGE_SHIFT);
	assert_int_equal(dev_io_sync(limited, DEV_READ, 1, 4, out), 0);
	assert_true(pages_are(out, 4, 5));
	dev_destroy(limited);
	unlink(path);
}

/* ---- where io_uring is forbidden ---- */

static int forbid_io_uring(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {.len = ARRAY_SIZE(code), .filter = code};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		return -errno;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) == 0 ? 0 : -errno;
}

/* In a child, since a filter stays: 0 as it should be, 77 no seccomp, else wrong. */
static int fall_back(void)
{
	struct file_config cfg = {.bytes = MIB(1), .path = path};
	struct dev *d;
	int err, bad;

	if (forbid_io_uring() != 0)
		return 77;
	d = dev_file_create(&cfg, &err, dev_sentence, sizeof(dev_sentence));
	if (!d)
		return 1;
	pages_fill(buf, 16, 1);
	bad = strcmp(dev_file_engine(d, NULL), "threads") != 0 ||
	      dev_io_sync(d, DEV_WRITE, 16, 16, buf) != 0 ||
	      dev_io_sync(d, DEV_READ, 16, 16, out) != 0 || !pages_are(out, 16, 1);
	dev_destroy(d);
	return bad ? 2 : 0;
}

static void test_falls_back_to_threads(void **state)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(fall_back());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- main ---- */

static int skip_all(const char *why)
{
	fprintf(stderr, "skipped: %s\n", why);
	return 77;
}

/* 0, or 77 with the reason printed. */
/* ---- discard ---- */

static uint64_t file_bytes(const struct dev *d)
{
	struct stat st;

	assert_int_equal(stat(d->name, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

static void test_discard_punches_what_is_free(void **state)
{
	struct file_config cfg = {.bytes = MIB(8), .discard = DISCARD_PAGES, .keep = true};
	struct dev *d = create(&cfg);

	if (!d->discard_pages) {
		dev_destroy(d);
		unlink(path);
		skip();
	}
	round_trip(d, 511, 1, 1);
	round_trip(d, 512, 512, 2);
	round_trip(d, 1024, 1, 3);
	assert_true(file_bytes(d) >= MIB(8) - PAGE_SIZE);
	assert_int_equal(d->ops->discard(d, 512, 512), -EINVAL); /* holds content */
	assert_int_equal(d->ops->discard(d, 2047, 2), -EINVAL);
	assert_int_equal(d->ops->discard(d, 0, 1), -EINVAL);
	assert_true(file_bytes(d) >= MIB(8) - PAGE_SIZE);
	d->ops->free_slots(d, 512, 512);
	assert_int_equal(d->ops->discard(d, 512, 512), 0);
	assert_in_range(file_bytes(d), MIB(6) - KIB(64), MIB(6) + KIB(64));
	assert_int_equal(dev_io_sync(d, DEV_READ, 512, 1, out), -EIO);
	assert_int_equal(dev_io_sync(d, DEV_READ, 511, 1, out), 0);
	assert_true(pages_are(out, 1, 1));
	assert_int_equal(dev_io_sync(d, DEV_READ, 1024, 1, out), 0);
	assert_true(pages_are(out, 1, 3));
	round_trip(d, 512, 512, 4);
	dev_destroy(d);
	assert_int_equal(unlink(path), 0);
}

/* What was reserved at the start stays so, unless the user asked for discards. */
static void test_reserved_space_is_not_punched_unasked(void **state)
{
	struct file_config cfg = {.bytes = MIB(8), .keep = true};
	struct dev *d = create(&cfg);

	assert_false(d->discard_pages);
	assert_int_equal(d->ops->discard(d, 512, 512), -EOPNOTSUPP);
	assert_true(file_bytes(d) >= MIB(8));
	dev_destroy(d);
	assert_int_equal(unlink(path), 0);
}

static void test_discard_once_keeps_the_reservation(void **state)
{
	struct file_config cfg = {.bytes = MIB(8), .discard = DISCARD_ONCE, .keep = true};
	struct dev *d = create(&cfg);

	assert_false(d->discard_pages);
	assert_true(file_bytes(d) >= MIB(8));
	round_trip(d, 1, 512, 1);
	dev_destroy(d);
	assert_int_equal(unlink(path), 0);
}

static void fill_disk(const char *name)
{
	static const char zeros[KIB(64)];
	int fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	size_t len = sizeof(zeros);

	assert_true(fd >= 0);
	while (len >= 512)
		if (write(fd, zeros, len) <= 0)
			len /= 2;
	fsync(fd);
	close(fd);
}

/*
 * A hole is the file system's again: somebody else takes it, and the write fails with -ENOSPC. What
 * is stored elsewhere stays, and when there is room again, it works again.
 */
static void test_disk_that_fills_up_after_a_discard_loses_nothing(void **state)
{
	struct file_config cfg = {.bytes = MIB(8), .discard = DISCARD_PAGES};
	char image[192], place[192], file[256], filler[256], command[512];
	struct dev *d;

	snprintf(image, sizeof(image), "%s/image", dir);
	snprintf(place, sizeof(place), "%s/mnt", dir);
	snprintf(file, sizeof(file), "%s/swap", place);
	snprintf(filler, sizeof(filler), "%s/filler", place);
	snprintf(command, sizeof(command),
		 "cd %s && mkdir mnt && truncate -s 24M image && "
		 "mkfs.ext4 -qF -m 0 image 2>/dev/null >&2 && "
		 "mount -o loop image mnt 2>/dev/null", dir);
	if (system(command) != 0) {
		unlink(image);
		rmdir(place);
		skip();
	}
	cfg.path = file;
	d = create(&cfg);
	assert_true(d->discard_pages);
	round_trip(d, 100, 100, 1);
	round_trip(d, 512, 512, 2);
	d->ops->free_slots(d, 512, 512);
	assert_int_equal(d->ops->discard(d, 512, 512), 0);
	fill_disk(filler);
	pages_fill(buf, 512, 3);
	assert_int_equal(dev_io_sync(d, DEV_WRITE, 512, 512, buf), -ENOSPC);
	assert_true(pages_are(buf, 512, 3)); /* the page stays */
	assert_int_equal(dev_io_sync(d, DEV_READ, 512, 1, out), -EIO);
	assert_int_equal(dev_io_sync(d, DEV_READ, 100, 100, out), 0);
	assert_true(pages_are(out, 100, 1));
	round_trip(d, 1024, 200, 4); /* still reserved */
	assert_int_equal(unlink(filler), 0);
	sync();
	round_trip(d, 512, 512, 5);
	dev_destroy(d);
	snprintf(command, sizeof(command), "umount %s", place);
	assert_int_equal(system(command), 0);
	assert_int_equal(unlink(image), 0);
	assert_int_equal(rmdir(place), 0);
}

static void test_rotational_can_be_said(void **state)
{
	struct file_config cfg = {.bytes = MIB(1), .rotational = ROTATIONAL_YES};
	struct dev *d = create(&cfg);

	assert_true(d->rotational);
	dev_destroy(d);
	cfg.rotational = ROTATIONAL_NO;
	d = create(&cfg);
	assert_false(d->rotational);
	dev_destroy(d);
}

static int can_run(void)
{
	struct file_config cfg = {.bytes = MIB(1), .path = path, .no_io_uring = no_io_uring};
	bool wrong_engine;
	struct statfs fs;
	struct dev *d;
	int err;

	if (statfs("/var/tmp", &fs) != 0 || fs.f_type == TMPFS_MAGIC)
		return skip_all("/var/tmp is not on a disk");
	if (setup(NULL) != 0)
		return skip_all("/var/tmp is not writable");
	d = dev_file_create(&cfg, &err, dev_sentence, sizeof(dev_sentence));
	wrong_engine = d && strcmp(dev_file_engine(d, NULL), no_io_uring ? "threads" : "io_uring");
	dev_destroy(d);
	(void)rmdir(dir);
	if (wrong_engine)
		return skip_all("io_uring is not available here");
	return 0;
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(test_every_order_comes_back),
		T(test_every_order_comes_back_buffered),
		T(test_many_ios_at_once),
		T(test_callbacks_may_submit),
		T(test_counters_follow_the_slots),
		T(test_truncation_gives_an_error),
		T(test_destroy_leaves_no_descriptors),
		T(test_file_is_private_and_unlinked),
		T(test_keep_leaves_a_reserved_file),
		T(test_existing_file_is_refused_untouched),
		T(test_force_takes_an_existing_file),
		T(test_second_user_is_refused),
		T(test_links_and_other_kinds_are_refused),
		T(test_missing_directory_is_named),
		T(test_no_permission_is_named),
		T(test_file_in_memory_is_refused),
		T(test_full_disk_fails_at_creation),
		T(test_file_size_limit_is_respected),
		T(test_size_too_small_is_refused),
		T(test_growing_file_grows),
		T(test_refused_growth_keeps_what_there_is),
		T(test_falls_back_to_threads),
		T(test_discard_punches_what_is_free),
		T(test_reserved_space_is_not_punched_unasked),
		T(test_discard_once_keeps_the_reservation),
		T(test_disk_that_fills_up_after_a_discard_loses_nothing),
		T(test_rotational_can_be_said),
	};
	int r;

	no_io_uring = argc > 1 && strcmp(argv[1], "threads") == 0;
	r = can_run();
	if (r)
		return r;
	buf = pages_new(MAX_FOLIO_PAGES);
	out = pages_new(MAX_FOLIO_PAGES);
	return cmocka_run_group_tests_name(no_io_uring ? "file, threads" : "file, io_uring", tests,
					   NULL, NULL);
}
