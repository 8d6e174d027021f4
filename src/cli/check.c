/* SPDX-License-Identifier: MIT */
/*
 * `uswap check`: prints what sys/check.h found.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "sys/check.h"

static const char usage[] = "usage: uswap check [--json]\n"
			    "Tries every feature that uswap needs; for a missing one it prints the\n"
			    "command that mends it. Exit status: 0, or 125 if a required one is missing.\n";

static const char *const state_names[] = {
	[CHECK_OK] = "ok",
	[CHECK_MISSING] = "missing",
	[CHECK_NOTE] = "note",
};

static int print_json(const struct check_report *r)
{
	json_t *features = json_array(), *doc;
	char *text;
	int rc;

	for (unsigned int i = 0; i < r->nr; i++) {
		const struct check_item *it = &r->item[i];

		json_array_append_new(features,
				      json_pack("{s:s, s:s, s:b, s:s, s:s, s:o}", "name", it->name,
						"state", state_names[it->state], "required",
						(int)it->required, "purpose", it->purpose, "detail",
						it->detail, "remedy",
						it->remedy[0] ? json_string(it->remedy)
							      : json_null()));
	}
	doc = json_pack("{s:i, s:b, s:b, s:o}", "version", 1, "ok", !r->nr_required_missing, "container",
			(int)r->container, "features", features);
	text = doc ? json_dumps(doc, JSON_INDENT(2)) : NULL;
	json_decref(doc);
	if (!text)
		return cli_fail("check: out of memory");
	rc = cli_print(text, strlen(text));
	free(text);
	return rc;
}

static int print_table(const struct check_report *r)
{
	for (unsigned int i = 0; i < r->nr; i++) {
		const struct check_item *it = &r->item[i];

		printf("%-8s %-21s %s%s%s%s\n", state_names[it->state], it->name, it->purpose,
		       it->required ? "" : " (optional)", it->detail[0] ? ": " : "", it->detail);
		if (it->remedy[0])
			printf("%8s %s\n", "->", it->remedy);
	}
	if (r->nr_required_missing)
		printf("\nuswap cannot run here: %u required feature%s missing.\n",
		       r->nr_required_missing, r->nr_required_missing == 1 ? " is" : "s are");
	else
		printf("\nuswap can run here.\n");
	return fflush(stdout) ? cli_fail("standard output cannot be written") : 0;
}

int verb_check(int argc, char **argv)
{
	static struct check_report report;
	bool json = false;
	int rc = cli_parse_simple(argc, argv, usage, NULL, &json);

	if (rc >= 0)
		return rc;
	check_probe(&report);
	rc = json ? print_json(&report) : print_table(&report);
	return rc ? rc : report.nr_required_missing ? CLI_EXIT_FAILURE : 0;
}
