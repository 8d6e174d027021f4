/* SPDX-License-Identifier: MIT */
/*
 * Histories of the cluster allocator for libFuzzer (see cluster_history.h):
 *   clang: build-clang/tests/fuzz/fuzz_cluster NEW_DIR tests/fuzz/corpus_cluster
 * Built without libFuzzer it replays the files and folders that it is given.
 */
#include "cluster_history.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	cluster_history_run(bytes, len);
	return 0;
}

#ifdef FUZZ_REPLAY
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILE (1u << 20)

static int replay_file(const char *path)
{
	static uint8_t bytes[MAX_FILE];
	FILE *f = fopen(path, "rb");
	size_t len;

	if (!f) {
		perror(path);
		return 0;
	}
	len = fread(bytes, 1, sizeof(bytes), f);
	fclose(f);
	LLVMFuzzerTestOneInput(bytes, len);
	return 1;
}

static int replay(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *d;
	char file[4096];
	int n = 0;

	if (!dir)
		return replay_file(path);
	while ((d = readdir(dir))) {
		if (d->d_name[0] == '.')
			continue;
		snprintf(file, sizeof(file), "%s/%s", path, d->d_name);
		n += replay_file(file);
	}
	closedir(dir);
	return n;
}

int main(int argc, char **argv)
{
	const struct cluster_history_stats *s = &cluster_history_stats;
	int n = 0;

	for (int i = 1; i < argc; i++)
		n += replay(argv[i]);
	printf("%d inputs: %llu allocations, %llu refused, %llu frees, %llu windows\n", n,
	       (unsigned long long)s->allocs, (unsigned long long)s->refused,
	       (unsigned long long)s->frees, (unsigned long long)s->windows);
	return n && s->allocs && s->refused && s->windows ? 0 : 1;
}
#endif
