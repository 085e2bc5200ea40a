// Replacing rte_acl_classify: classifies the same 5-tuples with both libraries and compares the verdicts. Usage: dpdk_acl [FILE ..] with
// ClassBench filters; without files, generated ones. Changes in a program: rte_acl_build and its field definitions become
// fl_acl_from_file, rte_acl_classify becomes a call on a burst of structs instead of pointers to bytes, and rules can be inserted and
// removed.
#define _GNU_SOURCE
#include <flowlane.h>
#include <rte_acl.h>
#include <rte_cycles.h>
#include <rte_eal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RULES_MAX = 20000, PACKETS = 1 << 16, BURST = 32 };

// Layout for rte_acl: network byte order, protocol first.
struct tuple {
  uint8_t protocol;
  uint32_t source, destination;
  uint16_t source_port, destination_port;
} __attribute__((packed));

static struct rte_acl_field_def fields[5] = {
    {.type = RTE_ACL_FIELD_TYPE_BITMASK, .size = 1, .field_index = 0, .input_index = 0, .offset = 0},
    {.type = RTE_ACL_FIELD_TYPE_MASK, .size = 4, .field_index = 1, .input_index = 1, .offset = 1},
    {.type = RTE_ACL_FIELD_TYPE_MASK, .size = 4, .field_index = 2, .input_index = 2, .offset = 5},
    {.type = RTE_ACL_FIELD_TYPE_RANGE, .size = 2, .field_index = 3, .input_index = 3, .offset = 9},
    {.type = RTE_ACL_FIELD_TYPE_RANGE, .size = 2, .field_index = 4, .input_index = 3, .offset = 11},
};

RTE_ACL_RULE_DEF(rule, 5);
static struct rule rules[RULES_MAX];
static fl_ipv4 packets[PACKETS];
static struct tuple tuples[PACKETS];

static uint64_t state = 1;
static uint32_t draw(uint32_t below) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(state >> 33) % below;
}

static void fail(const char *what) {
  fprintf(stderr, "dpdk_acl: %s\n", what);
  exit(1);
}

static void generate(FILE *file) {
  for (int i = 0; i < 1000; i++) {
    uint32_t low = draw(2) ? draw(1024) : 0, high = low ? low + draw(8) : 65535;
    fprintf(file, "@%u.%u.0.0/%u\t%u.%u.%u.0/%u\t0 : 65535\t%u : %u\t0x%02x/0xFF\t0x0000/0x0000\n", draw(4), draw(8),
            8 + 8 * draw(2), draw(4), draw(8), draw(8), 8 * (1 + draw(3)), low, high, draw(2) ? 6 : 17);
  }
}

// Reads filters as rte_acl rules, the first with the highest priority.
static uint32_t load(FILE *file) {
  uint32_t count = 0, a[4], b[4], from, to, low[2], high[2], protocol, mask;
  char line[512];
  while (count < RULES_MAX && fgets(line, sizeof line, file)) {
    if (sscanf(line, "@%u.%u.%u.%u/%u %u.%u.%u.%u/%u %u : %u %u : %u %x/%x", &a[0], &a[1], &a[2], &a[3], &from, &b[0], &b[1],
               &b[2], &b[3], &to, &low[0], &high[0], &low[1], &high[1], &protocol, &mask) != 16)
      continue;
    struct rule *r = &rules[count];
    memset(r, 0, sizeof *r);
    r->data.userdata = count + 1, r->data.category_mask = 1, r->data.priority = RTE_ACL_MAX_PRIORITY - count;
    r->field[0].value.u8 = protocol, r->field[0].mask_range.u8 = mask;
    r->field[1].value.u32 = a[0] << 24 | a[1] << 16 | a[2] << 8 | a[3], r->field[1].mask_range.u32 = from;
    r->field[2].value.u32 = b[0] << 24 | b[1] << 16 | b[2] << 8 | b[3], r->field[2].mask_range.u32 = to;
    for (int i = 0; i < 2; i++) r->field[3 + i].value.u16 = low[i], r->field[3 + i].mask_range.u16 = high[i];
    count++;
  }
  return count;
}

static uint32_t within(uint32_t value, uint32_t len) { return len < 32 ? value | (draw(1u << 31) >> (len ? len - 1 : 0)) : value; }

// Generates packets that match the rules, and a tenth of random ones.
static void packets_for(uint32_t count) {
  for (uint32_t i = 0; i < PACKETS; i++) {
    const struct rule *r = &rules[draw(count)];
    fl_ipv4 *p = &packets[i];
    p->source = within(r->field[1].value.u32, r->field[1].mask_range.u32);
    p->destination = within(r->field[2].value.u32, r->field[2].mask_range.u32);
    p->source_port = r->field[3].value.u16 + draw(r->field[3].mask_range.u16 - r->field[3].value.u16 + 1);
    p->destination_port = r->field[4].value.u16 + draw(r->field[4].mask_range.u16 - r->field[4].value.u16 + 1);
    p->protocol = r->field[0].mask_range.u8 ? r->field[0].value.u8 : draw(256);
    if (draw(10) == 0) p->destination = draw(1u << 31), p->destination_port = draw(65536);
    tuples[i] = (struct tuple){p->protocol, __builtin_bswap32(p->source), __builtin_bswap32(p->destination),
                               __builtin_bswap16(p->source_port), __builtin_bswap16(p->destination_port)};
  }
}

static void compare(const char *path) {
  FILE *file = fopen(path, "r");
  if (!file) fail("cannot read a file");
  uint32_t count = load(file);
  fclose(file);
  if (count == 0) fail("no filters");
  struct rte_acl_param param = {"acl", SOCKET_ID_ANY, sizeof(struct rule), RULES_MAX};
  struct rte_acl_ctx *theirs = rte_acl_create(&param);
  struct rte_acl_config config = {.num_categories = 1, .num_fields = 5};
  memcpy(config.defs, fields, sizeof fields);
  if (!theirs || rte_acl_add_rules(theirs, (struct rte_acl_rule *)rules, count) || rte_acl_build(theirs, &config)) fail("rte_acl");
  fl_acl *ours;
  fl_reader *reader;
  if (fl_acl_from_file(path, NULL, &ours) || fl_reader_new(ours, &reader)) fail(fl_error());
  packets_for(count);
  const uint8_t *data[BURST];
  uint32_t expected[BURST], found[BURST], hits = 0;
  uint64_t cycles[2] = {~0ull, ~0ull};
  for (int pass = 0; pass < 5; pass++) {
    uint64_t spent[2] = {0, 0};
    for (uint32_t first = 0; first < PACKETS; first += BURST) {
      for (int i = 0; i < BURST; i++) data[i] = (const uint8_t *)&tuples[first + i];
      uint64_t begun = rte_rdtsc();
      rte_acl_classify(theirs, data, expected, BURST, 1);
      spent[0] += rte_rdtsc() - begun;
      begun = rte_rdtsc();
      if (fl_classify_ipv4(reader, &packets[first], BURST, found)) fail(fl_error());
      spent[1] += rte_rdtsc() - begun;
      for (int i = 0; i < BURST; i++) {
        // rte_acl: position of the rule from 1, 0 for none.
        if (found[i] + 1 != expected[i]) {
          fprintf(stderr, "%s: packet %u: rule %d by rte_acl, %d by flowlane\n", path, first + i, (int)expected[i] - 1, (int)found[i]);
          exit(1);
        }
        hits += pass == 0 && expected[i] != 0;
      }
    }
    for (int i = 0; i < 2; i++) cycles[i] = spent[i] < cycles[i] ? spent[i] : cycles[i];
  }
  printf("%s: %u rules, %u of %u packets match, all verdicts equal; cycles per packet in bursts of %d: rte_acl %.1f, flowlane %.1f\n", path,
         count, hits, PACKETS, BURST, cycles[0] / (double)PACKETS, cycles[1] / (double)PACKETS);
  fl_reader_free(reader);
  fl_acl_free(ours);
  rte_acl_free(theirs);
}

int main(int count, char **arguments) {
  char *eal[] = {arguments[0], "--no-huge", "-m512", "--no-pci", "--no-shconf", "--no-telemetry", "--log-level=1", "--force-max-simd-bitwidth=512"};
  if (rte_eal_init(8, eal) < 0) fail("rte_eal_init");
  for (int i = 1; i < count; i++) compare(arguments[i]);
  if (count == 1) {
    char path[] = "/tmp/flowlane-acl-XXXXXX";
    int made = mkstemp(path);
    FILE *file = made < 0 ? NULL : fdopen(made, "w");
    if (!file) fail("cannot create a file in /tmp");
    generate(file);
    fclose(file);
    compare(path);
    remove(path);
  }
  rte_eal_cleanup();
  return 0;
}
