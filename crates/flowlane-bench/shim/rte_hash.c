/* rte_hash behind plain functions: what the measurements need, and no more. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_hash.h>

/* Starts DPDK's environment without devices, on huge pages where `huge`; negative: minus an errno. The thread
 * stays as free to move between cores as it was, as do those that it starts. */
int flowlane_peers_start(int huge)
{
	/* DPDK uses registers of 512 bits only where it is told to. */
	char *wide = "--force-max-simd-bitwidth=512";
	char *on_huge[] = {"flowlane", "--in-memory", "--no-pci", "-l", "0", "-m", "64", "--log-level=1", wide, NULL};
	char *without[] = {"flowlane", "--no-huge", "--no-pci", "-l", "0", "-m", "2048", "--log-level=1", wide, NULL};
	cpu_set_t cores;
	int known = sched_getaffinity(0, sizeof(cores), &cores) == 0;
	int started = rte_eal_init(9, huge ? on_huge : without);

	if (known)
		sched_setaffinity(0, sizeof(cores), &cores);
	if (started >= 0)
		return 0;
	return rte_errno > 0 ? -rte_errno : -1;
}

/* A table for this many keys. NULL: no memory. */
void *flowlane_peers_create(uint32_t entries, uint32_t key_bytes)
{
	static int number;
	char name[32];
	struct rte_hash_parameters parameters;

	memset(&parameters, 0, sizeof(parameters));
	snprintf(name, sizeof(name), "peer-%d", number++);
	parameters.name = name;
	parameters.entries = entries;
	parameters.key_len = key_bytes;
	return rte_hash_create(&parameters);
}

void flowlane_peers_free(void *hash)
{
	rte_hash_free(hash);
}

void flowlane_peers_reset(void *hash)
{
	rte_hash_reset(hash);
}

int flowlane_peers_add(void *hash, const void *key, uint64_t value)
{
	return rte_hash_add_key_data(hash, key, (void *)(uintptr_t)value);
}

/* `n` adjacent keys: positions, negative for misses. */
void flowlane_peers_lookup_bulk(void *hash, const uint8_t *keys, uint32_t key_bytes, uint32_t n,
				int32_t *positions)
{
	const void *pointers[RTE_HASH_LOOKUP_BULK_MAX];
	uint32_t i;

	for (i = 0; i < n; i++)
		pointers[i] = keys + (size_t)i * key_bytes;
	rte_hash_lookup_bulk(hash, pointers, n, positions);
}
