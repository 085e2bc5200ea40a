/* rte_acl behind plain functions, for IPv4 5-tuples: what the measurements need, and no more. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_acl.h>
#include <rte_malloc.h>

/* A rule; earlier ones win. */
struct flowlane_acl_rule {
	uint32_t src, dst;
	uint8_t src_length, dst_length, protocol, protocol_mask;
	uint16_t src_port[2], dst_port[2];
};

/* A record: protocol and three bytes unused, source, destination, ports; network byte order. */
enum { PROTOCOL, SRC, DST, SRC_PORT, DST_PORT, FIELDS };
#define RECORD_BYTES 16
#define CALL_MAX 256

RTE_ACL_RULE_DEF(five_tuple, FIELDS);

static const struct rte_acl_field_def fields[FIELDS] = {
	{ .type = RTE_ACL_FIELD_TYPE_BITMASK, .size = 1, .field_index = PROTOCOL, .input_index = 0, .offset = 0 },
	{ .type = RTE_ACL_FIELD_TYPE_MASK, .size = 4, .field_index = SRC, .input_index = 1, .offset = 4 },
	{ .type = RTE_ACL_FIELD_TYPE_MASK, .size = 4, .field_index = DST, .input_index = 2, .offset = 8 },
	{ .type = RTE_ACL_FIELD_TYPE_RANGE, .size = 2, .field_index = SRC_PORT, .input_index = 3, .offset = 12 },
	{ .type = RTE_ACL_FIELD_TYPE_RANGE, .size = 2, .field_index = DST_PORT, .input_index = 3, .offset = 14 },
};

/* Bytes that DPDK's heap has handed out. */
static uint64_t heap_bytes(void)
{
	struct rte_malloc_socket_stats stats;

	if (rte_malloc_get_socket_stats(0, &stats) != 0)
		return 0;
	return stats.heap_allocsz_bytes;
}

static int add(struct rte_acl_ctx *context, const struct flowlane_acl_rule *rules, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		const struct flowlane_acl_rule *from = &rules[i];
		struct five_tuple rule;
		int failed;

		memset(&rule, 0, sizeof(rule));
		rule.data.category_mask = 1;
		rule.data.priority = (int32_t)(count - i);
		rule.data.userdata = i + 1;
		rule.field[PROTOCOL].value.u8 = from->protocol;
		rule.field[PROTOCOL].mask_range.u8 = from->protocol_mask;
		rule.field[SRC].value.u32 = from->src;
		rule.field[SRC].mask_range.u32 = from->src_length;
		rule.field[DST].value.u32 = from->dst;
		rule.field[DST].mask_range.u32 = from->dst_length;
		rule.field[SRC_PORT].value.u16 = from->src_port[0];
		rule.field[SRC_PORT].mask_range.u16 = from->src_port[1];
		rule.field[DST_PORT].value.u16 = from->dst_port[0];
		rule.field[DST_PORT].mask_range.u16 = from->dst_port[1];
		failed = rte_acl_add_rules(context, (const struct rte_acl_rule *)&rule, 1);
		if (failed)
			return failed;
	}
	return 0;
}

/* A context of these rules, without a limit of memory, and the bytes that it takes. NULL: no memory. */
void *flowlane_peers_acl_build(const struct flowlane_acl_rule *rules, uint32_t count, uint64_t *bytes)
{
	static int number;
	char name[32];
	uint64_t before = heap_bytes();
	struct rte_acl_config config;
	struct rte_acl_param parameters;
	struct rte_acl_ctx *context;

	snprintf(name, sizeof(name), "peer-acl-%d", number++);
	memset(&parameters, 0, sizeof(parameters));
	parameters.name = name;
	parameters.socket_id = 0;
	parameters.rule_size = RTE_ACL_RULE_SZ(FIELDS);
	parameters.max_rule_num = count;
	context = rte_acl_create(&parameters);
	if (context == NULL)
		return NULL;
	memset(&config, 0, sizeof(config));
	config.num_categories = 1;
	config.num_fields = FIELDS;
	memcpy(config.defs, fields, sizeof(fields));
	if (add(context, rules, count) != 0 || rte_acl_build(context, &config) != 0) {
		rte_acl_free(context);
		return NULL;
	}
	*bytes = heap_bytes() - before;
	return context;
}

void flowlane_peers_acl_free(void *context)
{
	rte_acl_free(context);
}

/* At most 256 adjacent records: 1 and the number of the best rule, 0 for none. Negative: this CPU cannot. */
int flowlane_peers_acl_classify(const void *context, const uint8_t *records, uint32_t count, uint32_t *results,
				int algorithm)
{
	const uint8_t *pointers[CALL_MAX];

	if (count > CALL_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < count; i++)
		pointers[i] = records + (size_t)i * RECORD_BYTES;
	return rte_acl_classify_alg(context, pointers, results, count, 1, (enum rte_acl_classify_alg)algorithm);
}
