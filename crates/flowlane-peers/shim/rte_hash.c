/* rte_hash behind plain functions: what the benchmark needs, and no more. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_hash.h>

/* Starts DPDK's environment on core 0 without devices; on huge pages where `huge`. */
int flowlane_peers_start(int huge)
{
	char *on_huge[] = {"peers", "--in-memory", "--no-pci", "-l", "0", "-m", "512", "--log-level=1", NULL};
	char *without[] = {"peers", "--no-huge", "--no-pci", "-l", "0", "-m", "512", "--log-level=1", NULL};

	return rte_eal_init(8, huge ? on_huge : without);
}

/* A table for this many keys; `lock_free`: with readers beside a writer. NULL: no memory. */
void *flowlane_peers_create(uint32_t entries, uint32_t key_bytes, int lock_free)
{
	static int number;
	char name[32];
	struct rte_hash_parameters parameters;

	memset(&parameters, 0, sizeof(parameters));
	snprintf(name, sizeof(name), "peer-%d", number++);
	parameters.name = name;
	parameters.entries = entries;
	parameters.key_len = key_bytes;
	parameters.extra_flag = lock_free ? RTE_HASH_EXTRA_FLAGS_RW_CONCURRENCY_LF : 0;
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

int flowlane_peers_lookup(void *hash, const void *key)
{
	return rte_hash_lookup(hash, key);
}

/* `n` adjacent keys: values and the mask of hits. */
uint64_t flowlane_peers_lookup_bulk_data(void *hash, const uint8_t *keys, uint32_t key_bytes, uint32_t n,
					 uint64_t *values)
{
	const void *pointers[RTE_HASH_LOOKUP_BULK_MAX];
	void *data[RTE_HASH_LOOKUP_BULK_MAX];
	uint64_t hits = 0;
	uint32_t i;

	for (i = 0; i < n; i++)
		pointers[i] = keys + (size_t)i * key_bytes;
	rte_hash_lookup_bulk_data(hash, pointers, n, &hits, data);
	for (i = 0; i < n; i++)
		values[i] = (uint64_t)(uintptr_t)data[i];
	return hits;
}

/* `n` adjacent keys: positions only, negative for misses. */
void flowlane_peers_lookup_bulk(void *hash, const uint8_t *keys, uint32_t key_bytes, uint32_t n,
				int32_t *positions)
{
	const void *pointers[RTE_HASH_LOOKUP_BULK_MAX];
	uint32_t i;

	for (i = 0; i < n; i++)
		pointers[i] = keys + (size_t)i * key_bytes;
	rte_hash_lookup_bulk(hash, pointers, n, positions);
}
