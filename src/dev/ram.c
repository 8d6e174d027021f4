/* SPDX-License-Identifier: MIT */
#include "dev/dev_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

struct ram {
	struct dev d;
	char *data;
	struct dev_slot_map map;
};

static struct ram *to_ram(struct dev *d)
{
	return container_of(d, struct ram, d);
}

static void ram_submit(struct dev *d, struct dev_io *io)
{
	struct ram *r = to_ram(d);
	size_t bytes = (size_t)io->nr_pages << PAGE_SHIFT;
	char *at = r->data + ((size_t)io->slot << PAGE_SHIFT);

	if (!dev_io_valid(d, io)) {
		dev_io_end(d, io, -EINVAL);
		return;
	}
	if (io->op == DEV_READ) {
		if (!dev_slot_map_all(&r->map, io->slot, io->nr_pages)) {
			dev_io_end(d, io, -EIO);
			return;
		}
		memcpy(io->buf, at, bytes);
	} else {
		memcpy(at, io->buf, bytes);
		dev_mark(d, &r->map, io->slot, io->nr_pages, true);
		io->stored_bytes = (uint32_t)bytes;
	}
	dev_io_end(d, io, 0);
}

static void ram_free_slots(struct dev *d, uint32_t slot, uint32_t nr)
{
	dev_mark(d, &to_ram(d)->map, slot, nr, false);
}

static void ram_destroy(struct dev *d)
{
	struct ram *r = to_ram(d);

	mem_release(r->data, (size_t)d->max_slots << PAGE_SHIFT);
	dev_slot_map_deinit(&r->map);
	free(r);
}

static const struct dev_ops ram_ops = {
	.type = "ram",
	.submit = ram_submit,
	.free_slots = ram_free_slots,
	.destroy = ram_destroy,
};

struct dev *dev_ram_create(uint32_t nr_slots, int *err)
{
	struct ram *r = calloc(1, sizeof(*r));

	*err = -ENOMEM;
	if (!r)
		return NULL;
	r->d.ops = &ram_ops;
	r->d.max_slots = nr_slots;
	atomic_init(&r->d.nr_slots, nr_slots);
	snprintf(r->d.name, sizeof(r->d.name), "ram");
	r->data = mem_reserve((size_t)nr_slots << PAGE_SHIFT);
	if (!r->data || dev_slot_map_init(&r->map, nr_slots) != 0) {
		ram_destroy(&r->d);
		return NULL;
	}
	*err = 0;
	return &r->d;
}
