/* rte_fib and rte_fib6 behind plain functions: what the measurements need, and no more. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <rte_fib.h>
#include <rte_fib6.h>

/* Distinct names for tables, which DPDK keeps in a register. */
static const char *next_name(void)
{
	static int number;
	static char name[32];

	snprintf(name, sizeof(name), "fib-%d", number++);
	return name;
}

/* A DIR-24-8 table with next hops of 2^size bytes. NULL: no memory, or more groups than its entries can number. */
void *flowlane_peers_fib_create(uint32_t routes, uint32_t size, uint32_t groups)
{
	struct rte_fib_conf conf;

	memset(&conf, 0, sizeof(conf));
	conf.type = RTE_FIB_DIR24_8;
	conf.max_routes = routes;
	conf.dir24_8.nh_sz = (enum rte_fib_dir24_8_nh_sz)size;
	conf.dir24_8.num_tbl8 = groups;
	return rte_fib_create(next_name(), -1, &conf);
}

void flowlane_peers_fib_free(void *fib)
{
	rte_fib_free(fib);
}

int flowlane_peers_fib_add(void *fib, uint32_t address, uint8_t length, uint64_t next_hop)
{
	return rte_fib_add(fib, address, length, next_hop);
}

int flowlane_peers_fib_delete(void *fib, uint32_t address, uint8_t length)
{
	return rte_fib_delete(fib, address, length);
}

/* The lookup function: 0 to 2 the scalar ones, 3 AVX-512. Negative: not here. */
int flowlane_peers_fib_select(void *fib, uint32_t which)
{
	static const enum rte_fib_lookup_type types[] = {
		RTE_FIB_LOOKUP_DIR24_8_SCALAR_MACRO,
		RTE_FIB_LOOKUP_DIR24_8_SCALAR_INLINE,
		RTE_FIB_LOOKUP_DIR24_8_SCALAR_UNI,
		RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512,
	};

	return rte_fib_select_lookup(fib, types[which]);
}

void flowlane_peers_fib_lookup(void *fib, const uint32_t *addresses, uint64_t *next_hops, uint32_t n)
{
	rte_fib_lookup_bulk(fib, (uint32_t *)(uintptr_t)addresses, next_hops, (int)n);
}

/* A trie with next hops of 2^size bytes; 1 is the least size. NULL as above. */
void *flowlane_peers_fib6_create(uint32_t routes, uint32_t size, uint32_t groups)
{
	struct rte_fib6_conf conf;

	memset(&conf, 0, sizeof(conf));
	conf.type = RTE_FIB6_TRIE;
	conf.max_routes = routes;
	conf.trie.nh_sz = (enum rte_fib_trie_nh_sz)size;
	conf.trie.num_tbl8 = groups;
	return rte_fib6_create(next_name(), -1, &conf);
}

void flowlane_peers_fib6_free(void *fib)
{
	rte_fib6_free(fib);
}

int flowlane_peers_fib6_add(void *fib, const uint8_t *address, uint8_t length, uint64_t next_hop)
{
	return rte_fib6_add(fib, address, length, next_hop);
}

int flowlane_peers_fib6_delete(void *fib, const uint8_t *address, uint8_t length)
{
	return rte_fib6_delete(fib, address, length);
}

/* The lookup function: 0 scalar, 1 AVX-512. Negative: not here. */
int flowlane_peers_fib6_select(void *fib, uint32_t which)
{
	static const enum rte_fib6_lookup_type types[] = {
		RTE_FIB6_LOOKUP_TRIE_SCALAR,
		RTE_FIB6_LOOKUP_TRIE_VECTOR_AVX512,
	};

	return rte_fib6_select_lookup(fib, types[which]);
}

/* `addresses` are `n` times 16 bytes, in network order. */
void flowlane_peers_fib6_lookup(void *fib, const uint8_t *addresses, uint64_t *next_hops, uint32_t n)
{
	rte_fib6_lookup_bulk(fib, (uint8_t(*)[RTE_FIB6_IPV6_ADDR_SIZE])(uintptr_t)addresses, next_hops,
			     (int)n);
}
