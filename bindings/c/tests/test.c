// The interface for C: answers against a search rule by rule, faults, changes beside readers, and no allocation in lookups.
#define _GNU_SOURCE
#include <flowlane.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                                       \
  do {                                                                                    \
    if (!(what)) {                                                                        \
      fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #what, fl_error());          \
      exit(1);                                                                            \
    }                                                                                     \
  } while (0)

// Allocations of this thread. Sanitizers have their own.
static _Thread_local size_t allocations;
#ifdef COUNT_ALLOCATIONS
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
void *malloc(size_t size) { return allocations++, __libc_malloc(size); }
void *calloc(size_t n, size_t size) { return allocations++, __libc_calloc(n, size); }
void *realloc(void *at, size_t size) { return allocations++, __libc_realloc(at, size); }
void *aligned_alloc(size_t align, size_t size) { return allocations++, __libc_memalign(align, size); }
int posix_memalign(void **at, size_t align, size_t size) {
  allocations++;
  return (*at = __libc_memalign(align, size)) ? 0 : 12;
}
#endif

static uint64_t state = 1;
static uint32_t draw(uint32_t below) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(state >> 33) % below;
}

// A rule as it is written, and as it is compared.
struct rule {
  uint32_t from, from_mask, to, to_mask;
  uint16_t low, high;
  uint8_t protocol;
  uint16_t priority;
};

enum { RULES = 300, PACKETS = 3000 };
static struct rule rules[RULES];
static char text[RULES * 160];
static size_t lines[RULES + 1];
static fl_ipv4 packets[PACKETS];

static void make(void) {
  size_t at = 0;
  for (int i = 0; i < RULES; i++) {
    struct rule *r = &rules[i];
    int from = draw(4) * 8, to = draw(4) * 8;
    r->from_mask = from ? ~0u << (32 - from) : 0;
    r->to_mask = to ? ~0u << (32 - to) : 0;
    r->from = (draw(3) << 24 | draw(3) << 16 | draw(3) << 8) & r->from_mask;
    r->to = (draw(3) << 24 | draw(3) << 16 | draw(3) << 8) & r->to_mask;
    r->protocol = draw(2) ? 6 : 17;
    r->low = r->high = draw(5);
    r->priority = draw(4);
    // A flow with the priority and match of an earlier one would take its place.
    int there = 0;
    for (int j = 0; j < i; j++) there |= memcmp(&rules[j], r, sizeof *r) == 0;
    if (there) {
      i--;
      continue;
    }
    lines[i] = at;
    at += sprintf(text + at, "priority=%u,%s,nw_src=%u.%u.%u.0/%d,nw_dst=%u.%u.%u.0/%d,tp_dst=%u actions=drop\n",
                  r->priority, r->protocol == 6 ? "tcp" : "udp", r->from >> 24, r->from >> 16 & 255, r->from >> 8 & 255,
                  from, r->to >> 24, r->to >> 16 & 255, r->to >> 8 & 255, to, r->low);
  }
  lines[RULES] = at;
  for (int i = 0; i < PACKETS; i++) {
    fl_ipv4 *p = &packets[i];
    p->source = draw(3) << 24 | draw(3) << 16 | draw(3) << 8 | draw(2);
    p->destination = draw(3) << 24 | draw(3) << 16 | draw(3) << 8 | draw(2);
    p->source_port = draw(65536);
    p->destination_port = draw(6);
    p->protocol = draw(8) ? (draw(2) ? 6 : 17) : 1;
  }
}

// The best of some rules.
static uint32_t best_of(const fl_ipv4 *p, const char *gone, uint32_t first, uint32_t end) {
  uint32_t won = FL_NONE;
  for (uint32_t i = first; i < end; i++) {
    const struct rule *r = &rules[i];
    if (gone[i] || (p->source & r->from_mask) != r->from || (p->destination & r->to_mask) != r->to) continue;
    if (p->protocol != r->protocol || p->destination_port < r->low || p->destination_port > r->high) continue;
    if (won == FL_NONE || r->priority > rules[won].priority) won = i;
  }
  return won;
}

static uint32_t best(const fl_ipv4 *p, const char *gone) { return best_of(p, gone, 0, RULES); }

// A frame of Ethernet, IPv4 and UDP, TCP or ICMP.
static uint32_t frame(const fl_ipv4 *p, uint8_t *out) {
  memset(out, 0, 64);
  out[12] = 8;
  uint8_t *ip = out + 14, *l4 = ip + 20;
  ip[0] = 0x45, ip[3] = 50, ip[8] = 64, ip[9] = p->protocol;
  for (int i = 0; i < 4; i++) ip[12 + i] = p->source >> (24 - 8 * i), ip[16 + i] = p->destination >> (24 - 8 * i);
  l4[0] = p->source_port >> 8, l4[1] = p->source_port, l4[2] = p->destination_port >> 8, l4[3] = p->destination_port;
  if (p->protocol == 17) l4[5] = 30;
  if (p->protocol == 6) l4[12] = 0x50;
  return 64;
}

static void check_all(fl_reader *reader, const char *gone) {
  static uint32_t found[PACKETS];
  static uint8_t bytes[PACKETS][64];
  static const uint8_t *frames[PACKETS];
  static uint32_t lengths[PACKETS], cut[PACKETS], from[PACKETS], to[PACKETS];
  static uint16_t sources[PACKETS], destinations[PACKETS];
  static uint64_t protocols[PACKETS];
  static const void *records[PACKETS];
  for (int i = 0; i < PACKETS; i++) {
    lengths[i] = frame(&packets[i], bytes[i]), frames[i] = bytes[i], records[i] = &packets[i], cut[i] = 54;
    from[i] = packets[i].source, to[i] = packets[i].destination, protocols[i] = packets[i].protocol;
    sources[i] = packets[i].source_port, destinations[i] = packets[i].destination_port;
  }
#define SAME(call, n)                                                                     \
  do {                                                                                    \
    memset(found, 7, sizeof found);                                                       \
    size_t before = allocations;                                                          \
    CHECK((call) == FL_OK);                                                               \
    CHECK(allocations == before);                                                         \
    for (size_t i = 0; i < (n); i++) CHECK(found[i] == best(&packets[i], gone));          \
    if ((n) < PACKETS) CHECK(found[n] == 0x07070707);                                     \
  } while (0)
  const size_t counts[] = {PACKETS, 0, 1, 31, 32, 33, 128, 129};
  const uint8_t ipv4[2] = {8, 0};
  const fl_column columns[] = {
      {fl_field("dl_type"), FL_ONE, ipv4, 2},        {fl_field("nw_src"), FL_U32, from, 0},
      {fl_field("nw_dst"), FL_U32, to, 0},           {fl_field("nw_proto"), FL_U64, protocols, 0},
      {fl_field("tp_src"), FL_U16, sources, 0},      {fl_field("tp_dst"), FL_U16, destinations, 0},
  };
  const fl_record_field fields[] = {
      {fl_field("nw_src"), FL_U32, offsetof(fl_ipv4, source), 0},
      {fl_field("nw_dst"), FL_U32, offsetof(fl_ipv4, destination), 0},
      {fl_field("nw_proto"), FL_BYTES, offsetof(fl_ipv4, protocol), 1},
      {fl_field("tp_dst"), FL_U16, offsetof(fl_ipv4, destination_port), 0},
  };
  for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
    size_t n = counts[c];
    SAME(fl_classify_ipv4(reader, packets, n, found), n);
    SAME(fl_classify_frames(reader, frames, lengths, NULL, n, 1, found), n);
    SAME(fl_classify_frames(reader, frames, cut, lengths, n, 1, found), n);
    SAME(fl_classify_records(reader, fields, 4, records, n, found), n);
    if (n == PACKETS) SAME(fl_classify_columns(reader, columns, 6, n, found), n);
  }
}

static void answers(const char *engine) {
  fl_acl_config config = {.size = sizeof config, .engine = engine, .threads = 1};
  fl_acl *acl;
  fl_reader *reader;
  char gone[RULES] = {0};
  size_t before = allocations;
  CHECK(fl_acl_from_text(text, &config, &acl) == FL_OK);
#ifdef COUNT_ALLOCATIONS
  CHECK(allocations > before);
#endif
  (void)before;
  CHECK(fl_acl_len(acl) == RULES && fl_acl_bytes(acl) > 1000);
  CHECK(fl_reader_new(acl, &reader) == FL_OK);
  check_all(reader, gone);
  char after[RULES] = {0};
  for (int i = 0; i < 50; i++) {
    uint32_t rule = draw(RULES);
    CHECK(fl_acl_remove(acl, rule) == (after[rule] ? FL_INPUT : FL_OK));
    after[rule] = 1;
  }
  // Not before they are committed.
  check_all(reader, gone);
  CHECK(fl_acl_commit(acl) == FL_OK);
  uint32_t one;
  CHECK(fl_classify_ipv4(reader, packets, 1, &one) == FL_OK);
  check_all(reader, after);
  uint32_t first = 7;
  CHECK(fl_acl_insert(acl, "priority=9,ip actions=drop\npriority=8,ip actions=drop\n", &first) == FL_OK && first == RULES);
  CHECK(fl_acl_commit(acl) == FL_OK);
  CHECK(fl_classify_ipv4(reader, packets, 1, &one) == FL_OK && one == RULES);
  // A reader outlives its list.
  fl_acl_free(acl);
  CHECK(fl_classify_ipv4(reader, packets, 1, &one) == FL_OK && one == RULES);
  fl_reader_free(reader);
}

// Columns without memory allocation.
static void gates(void) {
  fl_acl *acl;
  fl_reader *reader;
  CHECK(fl_acl_from_text("udp,tp_dst=1 actions=drop\nudp,tp_dst=2 actions=drop", NULL, &acl) == FL_OK);
  CHECK(fl_reader_new(acl, &reader) == FL_OK);
  const uint8_t protocols[3] = {17, 6, 17};
  const uint16_t kinds[3] = {0x0800, 0x0800, 0x86dd}, ports[3] = {1, 1, 2};
  const fl_column columns[] = {
      {fl_field("dl_type"), FL_U16, kinds, 0}, {fl_field("nw_proto"), FL_U8, protocols, 0}, {fl_field("tp_dst"), FL_U16, ports, 0}};
  uint32_t found[3];
  size_t before = allocations;
  CHECK(fl_classify_columns(reader, columns, 3, 3, found) == FL_OK && allocations == before);
  CHECK(found[0] == 0 && found[1] == FL_NONE && found[2] == FL_NONE);
  fl_reader_free(reader);
  fl_acl_free(acl);
}

enum { LISTS = 3, EACH = RULES / LISTS };

static void check_lists(fl_reader *reader, const char *gone) {
  static uint32_t found[PACKETS * LISTS + 1];
  static uint8_t bytes[PACKETS][64];
  static const uint8_t *frames[PACKETS];
  static uint32_t lengths[PACKETS], from[PACKETS], to[PACKETS];
  static uint16_t ports[PACKETS];
  static uint8_t protocols[PACKETS];
  static const void *records[PACKETS];
  for (int i = 0; i < PACKETS; i++) {
    lengths[i] = frame(&packets[i], bytes[i]), frames[i] = bytes[i], records[i] = &packets[i];
    from[i] = packets[i].source, to[i] = packets[i].destination, protocols[i] = packets[i].protocol;
    ports[i] = packets[i].destination_port;
  }
  const uint8_t ipv4[2] = {8, 0};
  const fl_column columns[] = {
      {fl_field("dl_type"), FL_ONE, ipv4, 2},       {fl_field("nw_src"), FL_U32, from, 0}, {fl_field("nw_dst"), FL_U32, to, 0},
      {fl_field("nw_proto"), FL_U8, protocols, 0}, {fl_field("tp_dst"), FL_U16, ports, 0},
  };
  const fl_record_field fields[] = {
      {fl_field("nw_src"), FL_U32, offsetof(fl_ipv4, source), 0},
      {fl_field("nw_dst"), FL_U32, offsetof(fl_ipv4, destination), 0},
      {fl_field("nw_proto"), FL_BYTES, offsetof(fl_ipv4, protocol), 1},
      {fl_field("tp_dst"), FL_U16, offsetof(fl_ipv4, destination_port), 0},
  };
#define SAME_LISTS(call)                                                                                              \
  do {                                                                                                                \
    memset(found, 7, sizeof found);                                                                                   \
    size_t before = allocations;                                                                                      \
    CHECK((call) == FL_OK);                                                                                           \
    CHECK(allocations == before);                                                                                     \
    for (size_t i = 0; i < n * lists; i++) {                                                                          \
      uint32_t first = i % lists * EACH;                                                                              \
      CHECK(found[i] == best_of(&packets[i / lists], gone, first, first + EACH));                                     \
    }                                                                                                                 \
    CHECK(found[n * lists] == 0x07070707);                                                                            \
  } while (0)
  const size_t counts[] = {PACKETS, 0, 1, 31, 33, 129};
  for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
    for (size_t lists = 1; lists <= LISTS; lists++) {
      size_t n = counts[c];
      SAME_LISTS(fl_classify_ipv4_lists(reader, packets, n, lists, found));
      SAME_LISTS(fl_classify_frames_lists(reader, frames, lengths, NULL, n, 1, lists, found));
      SAME_LISTS(fl_classify_records_lists(reader, fields, 4, records, n, lists, found));
      if (n == PACKETS) SAME_LISTS(fl_classify_columns_lists(reader, columns, 5, n, lists, found));
    }
  }
}

static void several_lists(const char *engine) {
  static char copy[sizeof text];
  memcpy(copy, text, sizeof text);
  const char *texts[LISTS];
  for (int l = 0; l < LISTS; l++) {
    texts[l] = copy + lines[l * EACH];
    copy[lines[(l + 1) * EACH] - 1] = 0;
  }
  fl_acl_config config = {.size = sizeof config, .engine = engine, .threads = 1};
  fl_acl *acl;
  fl_reader *reader;
  uint32_t firsts[LISTS], first;
  CHECK(fl_acl_from_texts(texts, LISTS, &config, firsts, &acl) == FL_OK);
  for (int l = 0; l < LISTS; l++) CHECK(firsts[l] == (uint32_t)l * EACH);
  CHECK(fl_acl_len(acl) == RULES && fl_reader_new(acl, &reader) == FL_OK);
  char gone[RULES] = {0};
  check_lists(reader, gone);
  for (int i = 0; i < 50; i++) {
    uint32_t rule = draw(RULES);
    CHECK(fl_acl_remove(acl, rule) == (gone[rule] ? FL_INPUT : FL_OK));
    gone[rule] = 1;
  }
  CHECK(fl_acl_commit(acl) == FL_OK && fl_classify_ipv4(reader, packets, 1, &first) == FL_OK);
  check_lists(reader, gone);
  CHECK(fl_acl_insert_into(acl, 1, "priority=9,ip actions=drop", &first) == FL_OK && first == RULES);
  CHECK(fl_acl_commit(acl) == FL_OK);
  uint32_t found[LISTS];
  CHECK(fl_classify_ipv4_lists(reader, packets, 1, LISTS, found) == FL_OK);
  CHECK(found[0] == best_of(packets, gone, 0, EACH) && found[1] == RULES && found[2] == best_of(packets, gone, 2 * EACH, RULES));
  fl_reader_free(reader);
  fl_acl_free(acl);
}

static void ipv6(void) {
  fl_acl *acl;
  fl_reader *reader;
  CHECK(fl_acl_from_text("udp6,ipv6_dst=2001:db8::/32,tp_dst=53 actions=drop", NULL, &acl) == FL_OK);
  CHECK(fl_reader_new(acl, &reader) == FL_OK);
  fl_ipv6 p[3] = {{.destination = {0x20, 1, 0x0d, 0xb8}, .destination_port = 53, .protocol = 17}};
  p[1] = p[2] = p[0];
  p[1].destination_port = 54, p[2].destination[1] = 2;
  uint32_t found[3];
  CHECK(fl_classify_ipv6(reader, p, 3, found) == FL_OK);
  CHECK(found[0] == 0 && found[1] == FL_NONE && found[2] == FL_NONE);
  CHECK(fl_acl_insert_into(acl, 1, "udp6,tp_dst=54 actions=drop", NULL) == FL_OK && fl_acl_commit(acl) == FL_OK);
  uint32_t both[6];
  CHECK(fl_classify_ipv6(reader, p, 3, found) == FL_OK && found[0] == 0 && found[1] == FL_NONE);
  size_t before = allocations;
  CHECK(fl_classify_ipv6_lists(reader, p, 3, 2, both) == FL_OK && allocations == before);
  CHECK(both[0] == 0 && both[1] == FL_NONE && both[2] == FL_NONE && both[3] == 1 && both[4] == FL_NONE && both[5] == FL_NONE);
  fl_reader_free(reader);
  fl_acl_free(acl);
}

static void expect_error(int code, int wanted, const char *part) {
  if (code != wanted || !strstr(fl_error(), part)) {
    fprintf(stderr, "%d instead of %d: %s\n", code, wanted, fl_error());
    exit(1);
  }
}

static void faults(void) {
  fl_acl *acl;
  expect_error(fl_acl_from_text("ip actions=drop\ntcp,tp_dts=80 actions=drop", NULL, &acl), FL_INPUT, "rules:2:5: `tp_dts`");
  expect_error(fl_acl_from_file("/no/such.rules", NULL, &acl), FL_FILE, "/no/such.rules cannot be read: ");
  expect_error(fl_acl_from_text(NULL, NULL, &acl), FL_INPUT, "rules is NULL");
  expect_error(fl_acl_from_text("\xff", NULL, &acl), FL_INPUT, "not UTF-8");
  expect_error(fl_acl_from_text(text, NULL, NULL), FL_INPUT, "NULL");
  fl_acl_config config = {.size = 3};
  expect_error(fl_acl_from_text(text, &config, &acl), FL_INPUT, "set it to sizeof(fl_acl_config)");
  config.size = sizeof config, config.engine = "treee";
  expect_error(fl_acl_from_text(text, &config, &acl), FL_INPUT, "treee");
  config.engine = NULL, config.rules_max = 10;
  expect_error(fl_acl_from_text(text, &config, &acl), FL_LIMIT, "10");
  // A program that knows less of the structure, and one that knows more.
  struct { size_t size; const char *engine; } older = {sizeof older, "brute"};
  CHECK(fl_acl_from_text(text, (fl_acl_config *)&older, &acl) == FL_OK);
  fl_acl_free(acl);
  struct { fl_acl_config known; uint64_t more[4]; } newer = {.known = {.size = sizeof newer}};
  CHECK(fl_acl_from_text(text, &newer.known, &acl) == FL_OK);
  expect_error(fl_acl_insert(acl, "ip actions=drop\nnonsense", NULL), FL_INPUT, "rules:2:");
  CHECK(fl_acl_len(acl) == RULES);
  expect_error(fl_acl_remove(acl, 4000), FL_INPUT, "no rule 4000");
  fl_reader *reader;
  CHECK(fl_reader_new(acl, &reader) == FL_OK);
  uint32_t found[4], ports[4] = {1, 2, 70000, 3};
  expect_error(fl_classify_ipv4(reader, NULL, 4, found), FL_INPUT, "packets is NULL");
  expect_error(fl_classify_ipv4(NULL, packets, 4, found), FL_INPUT, "reader is NULL");
  expect_error(fl_classify_ipv4(reader, packets, 4, NULL), FL_INPUT, "rules is NULL");
  fl_column column = {fl_field("tp_dst"), FL_U32, ports, 0};
  expect_error(fl_classify_columns(reader, &column, 1, 4, found), FL_INPUT, "column `tp_dst`, row 2: 0x11170 does not fit");
  column.kind = 99;
  expect_error(fl_classify_columns(reader, &column, 1, 4, found), FL_INPUT, "kind 99");
  column.kind = FL_U32, column.values = (char *)ports + 1;
  expect_error(fl_classify_columns(reader, &column, 1, 2, found), FL_INPUT, "not aligned");
  column.field = 4000;
  expect_error(fl_classify_columns(reader, &column, 1, 2, found), FL_INPUT, "not aligned");
  fl_record_field field = {fl_field("nw_src"), FL_BYTES, 0, 17};
  const void *record = packets;
  expect_error(fl_classify_records(reader, &field, 1, &record, 1, found), FL_INPUT, "17 bytes");
  CHECK(fl_field("nw_scr") == -1 && fl_field(NULL) == -1 && fl_field("tcp_dst") == fl_field("tp_dst"));
  CHECK(fl_set_max_simd(7) == FL_INPUT && fl_abi() == FL_ABI);
  fl_acl_free(NULL), fl_reader_free(NULL), fl_routes_free(NULL), fl_routes_reader_free(NULL);
  fl_reader_free(reader);
  fl_acl_free(acl);
}

static atomic_bool stop;

// Two rules that come and go together: a packet never meets one of them alone.
static void *look(void *shared) {
  fl_reader *reader = shared;
  uint32_t found[2];
  const fl_ipv4 two[2] = {{.source = 1, .protocol = 17}, {.source = 2, .protocol = 17}};
  while (!atomic_load(&stop)) {
    CHECK(fl_classify_ipv4(reader, two, 2, found) == FL_OK);
    CHECK((found[0] == FL_NONE) == (found[1] == FL_NONE));
  }
  fl_reader_free(reader);
  return NULL;
}

static void changes(void) {
  fl_acl *acl;
  CHECK(fl_acl_from_text("tcp actions=drop", NULL, &acl) == FL_OK);
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) {
    fl_reader *reader;
    CHECK(fl_reader_new(acl, &reader) == FL_OK);
    CHECK(pthread_create(&threads[i], NULL, look, reader) == 0);
  }
  for (int i = 0; i < 300; i++) {
    uint32_t first;
    CHECK(fl_acl_insert(acl, "udp,nw_src=0.0.0.1 actions=drop\nudp,nw_src=0.0.0.2 actions=drop", &first) == FL_OK);
    CHECK(fl_acl_commit(acl) == FL_OK);
    CHECK(fl_acl_remove(acl, first) == FL_OK && fl_acl_remove(acl, first + 1) == FL_OK);
    CHECK(fl_acl_commit(acl) == FL_OK);
  }
  fl_acl_free(acl);
  atomic_store(&stop, true);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}

static void routes(void) {
  fl_routes *table;
  fl_routes_reader *reader;
  CHECK(fl_routes_from_text("10.0.0.0/8 1\n10.1.0.0/16 2\n2001:db8::/32 7\n", &table) == FL_OK && fl_routes_len(table) == 3);
  CHECK(fl_routes_reader_new(table, &reader) == FL_OK);
  const uint32_t asked[4] = {0x0a010001, 0x0a020001, 0x0b000001, 0x0a010203};
  uint32_t hops[4];
  size_t before = allocations;
  CHECK(fl_routes_lookup_ipv4(reader, asked, 4, hops) == FL_OK && allocations == before);
  CHECK(hops[0] == 2 && hops[1] == 1 && hops[2] == FL_NONE && hops[3] == 2);
  const uint8_t six[2][16] = {{0x20, 1, 0x0d, 0xb8}, {0x20, 2}};
  CHECK(fl_routes_lookup_ipv6(reader, six, 2, hops) == FL_OK && hops[0] == 7 && hops[1] == FL_NONE);
  CHECK(fl_routes_insert(table, "10.1.2.0/24", 300) == FL_OK && fl_routes_remove(table, "10.1.0.0/16") == FL_OK);
  CHECK(fl_routes_lookup_ipv4(reader, asked, 4, hops) == FL_OK && hops[0] == 1 && hops[3] == 300);
  expect_error(fl_routes_remove(table, "10.1.0.0/16"), FL_INPUT, "there is no route 10.1.0.0/16");
  expect_error(fl_routes_insert(table, "10.0.0.0/33", 1), FL_INPUT, "10.0.0.0/33");
  expect_error(fl_routes_insert(table, "10.0.0.0/8", FL_NONE), FL_INPUT, "FL_NONE");
  expect_error(fl_routes_from_text("10.0.0.0/8 x", &table), FL_INPUT, "routes:1:");
  fl_routes_free(table);
  CHECK(fl_routes_lookup_ipv4(reader, asked, 4, hops) == FL_OK && hops[3] == 300);
  fl_routes_reader_free(reader);
}

enum { KEYS = 3000 };

// The key of a number: few bytes differ, the last of all.
static void key_of(uint32_t number, size_t bytes, uint8_t *key) {
  memset(key, 5, bytes);
  for (size_t i = 0; i < 2 && i < bytes; i++) key[i] = number >> 8 * i;
  if (bytes > 2) key[bytes - 1] ^= number;
}

static void exact_match(size_t key_bytes) {
  static uint8_t keys[KEYS * 64];
  static uint64_t values[KEYS], wanted[65536];
  static bool found[KEYS], there[65536];
  // Keys of one byte are 256.
  const uint32_t all = key_bytes == 1 ? 128 : 5000;
  memset(there, 0, sizeof there);
  fl_map *map;
  CHECK(fl_map_new(key_bytes, 8000, &map) == FL_OK && fl_map_bytes(map) > 1000);
  static uint32_t numbers[KEYS];
  size_t len = 0;
  const size_t counts[] = {KEYS, 0, 1, 63, 64, 65, 255, 257};
  for (size_t round = 0; round < 8; round++) {
    size_t n = counts[round], done = 7;
    for (size_t i = 0; i < n; i++) {
      numbers[i] = draw(all);
      key_of(numbers[i], key_bytes, keys + i * key_bytes);
      values[i] = draw(2) ? draw(1000) : (uint64_t)draw(~0u) << 30;
    }
    CHECK(fl_map_insert(map, keys, values, n, &done) == FL_OK && done == n);
    for (size_t i = 0; i < n; i++) len += !there[numbers[i]], there[numbers[i]] = true, wanted[numbers[i]] = values[i];
    CHECK(fl_map_len(map) == len);
    for (size_t i = 0; i < n; i++) {
      numbers[i] = draw(all);
      key_of(numbers[i], key_bytes, keys + i * key_bytes);
      values[i] = 4711;
    }
    memset(found, 7, sizeof found);
    size_t before = allocations;
    CHECK(fl_map_lookup(map, keys, n, values, found) == FL_OK && allocations == before);
    for (size_t i = 0; i < n; i++) {
      CHECK(found[i] == there[numbers[i]] && values[i] == (there[numbers[i]] ? wanted[numbers[i]] : 4711));
      values[i] = 4712;
    }
    CHECK(fl_map_lookup(map, keys, n, values, NULL) == FL_OK);
    for (size_t i = 0; i < n; i++) CHECK(values[i] == (there[numbers[i]] ? wanted[numbers[i]] : 4712));
    CHECK(fl_map_remove(map, keys, n / 2, round % 2 ? NULL : found) == FL_OK);
    for (size_t i = 0; i < n / 2; i++) {
      CHECK(round % 2 || found[i] == there[numbers[i]]);
      len -= there[numbers[i]], there[numbers[i]] = false;
    }
    CHECK(fl_map_len(map) == len);
  }
  fl_map_free(map);
}

static void *ask(void *shared) {
  const fl_map *map = shared;
  const uint32_t keys[2] = {1, 2};
  while (!atomic_load(&stop)) {
    uint64_t values[2] = {0, 0};
    CHECK(fl_map_lookup(map, keys, 2, values, NULL) == FL_OK && values[0] == values[1]);
  }
  return NULL;
}

static void map_beside_a_writer(void) {
  fl_map *map;
  CHECK(fl_map_new(4, 100, &map) == FL_OK);
  atomic_store(&stop, false);
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, ask, map) == 0);
  const uint32_t keys[2] = {1, 2};
  for (uint64_t i = 0; i < 300; i++) {
    const uint64_t values[2] = {i << 31, i << 31};
    CHECK(fl_map_insert(map, keys, values, 2, NULL) == FL_OK && fl_map_remove(map, keys, 2, NULL) == FL_OK);
  }
  atomic_store(&stop, true);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  fl_map_free(map);
}

static void map_faults(void) {
  fl_map *map;
  static uint32_t keys[500];
  static uint64_t values[500];
  for (uint32_t i = 0; i < 500; i++) keys[i] = i, values[i] = i;
  expect_error(fl_map_new(0, 1, &map), FL_INPUT, "keys of 0 bytes; 1 to 64");
  expect_error(fl_map_new(65, 1, &map), FL_INPUT, "keys of 65 bytes; 1 to 64");
  expect_error(fl_map_new(4, 0, &map), FL_INPUT, "a capacity of 0");
  CHECK(fl_map_new(4, 100, &map) == FL_OK);
  size_t done = 0;
  expect_error(fl_map_insert(map, keys, values, 500, &done), FL_LIMIT, "the map is full: ");
  CHECK(done >= 100 && done < 500 && fl_map_len(map) == done);
  uint64_t value;
  bool found;
  CHECK(fl_map_lookup(map, &keys[done - 1], 1, &value, &found) == FL_OK && found && value == done - 1);
  CHECK(fl_map_lookup(map, &keys[done], 1, &value, &found) == FL_OK && !found);
  expect_error(fl_map_lookup(map, NULL, 1, &value, NULL), FL_INPUT, "keys is NULL");
  expect_error(fl_map_lookup(map, keys, 1, NULL, NULL), FL_INPUT, "values is NULL");
  expect_error(fl_map_lookup(NULL, keys, 1, &value, NULL), FL_INPUT, "map is NULL");
  expect_error(fl_map_lookup(map, keys, SIZE_MAX / 2, &value, NULL), FL_INPUT, "exceed the address space");
  CHECK(fl_map_len(NULL) == 0 && fl_map_bytes(NULL) == 0);
  fl_map_free(NULL);
  fl_map_free(map);
}

static void membership(void) {
  static uint64_t numbers[KEYS];
  static uint8_t rows[KEYS][13];
  static bool found[KEYS];
  fl_bloom *bloom;
  CHECK(fl_bloom_new(2 * KEYS, 0.001, &bloom) == FL_OK && fl_bloom_bytes(bloom) > KEYS);
  for (int i = 0; i < KEYS; i++) {
    numbers[i] = (uint64_t)draw(~0u) << 32 | i;
    for (int b = 0; b < 13; b++) rows[i][b] = draw(256);
  }
  CHECK(fl_bloom_insert_u64(bloom, numbers, KEYS) == FL_OK && fl_bloom_insert(bloom, rows, 13, KEYS) == FL_OK);
  const size_t counts[] = {KEYS, 0, 1, 255, 257};
  for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
    size_t n = counts[c], before = allocations;
    memset(found, 0, sizeof found);
    CHECK(fl_bloom_contains_u64(bloom, numbers, n, found) == FL_OK);
    for (size_t i = 0; i < n; i++) CHECK(found[i]);
    memset(found, 0, sizeof found);
    CHECK(fl_bloom_contains(bloom, rows, 13, n, found) == FL_OK && allocations == before);
    for (size_t i = 0; i < KEYS; i++) CHECK(found[i] == (i < n));
  }
  size_t wrong = 0;
  for (int round = 0; round < 10; round++) {
    for (int i = 0; i < KEYS; i++) numbers[i] = (uint64_t)draw(~0u) << 32 | (KEYS + i);
    CHECK(fl_bloom_contains_u64(bloom, numbers, KEYS, found) == FL_OK);
    for (size_t i = 0; i < KEYS; i++) wrong += found[i];
  }
  CHECK(wrong < 10 * KEYS * 3 / 1000);
  expect_error(fl_bloom_new(10, 2.0, &bloom), FL_INPUT, "a false-positive rate of 2");
  expect_error(fl_bloom_new(UINT64_MAX, 0.001, &bloom), FL_LIMIT, "no filter holds");
  expect_error(fl_bloom_insert(bloom, rows, 0, 1), FL_INPUT, "keys of 0 bytes");
  expect_error(fl_bloom_contains_u64(bloom, numbers, 1, NULL), FL_INPUT, "found is NULL");
  CHECK(fl_bloom_bytes(NULL) == 0);
  fl_bloom_free(NULL);
  fl_bloom_free(bloom);
}

static void list_faults(void) {
  fl_acl *acl;
  const char *texts[17] = {"tcp actions=drop", "udp actions=drp"};
  expect_error(fl_acl_from_texts(texts, 2, NULL, NULL, &acl), FL_INPUT, "lists[1]:1:");
  expect_error(fl_acl_from_texts(texts, 0, NULL, NULL, &acl), FL_INPUT, "0 lists; expected 1 to 16");
  expect_error(fl_acl_from_texts(texts, 17, NULL, NULL, &acl), FL_INPUT, "17 lists; expected 1 to 16");
  expect_error(fl_acl_from_texts(texts + 2, 1, NULL, NULL, &acl), FL_INPUT, "lists[0] is NULL");
  texts[0] = "/no/such.rules";
  expect_error(fl_acl_from_files(texts, 1, NULL, NULL, &acl), FL_FILE, "/no/such.rules cannot be read: ");
  CHECK(fl_acl_from_text("tcp actions=drop", NULL, &acl) == FL_OK);
  expect_error(fl_acl_insert_into(acl, FL_LISTS_MAX, "tcp actions=drop", NULL), FL_INPUT, "list 16");
  fl_reader *reader;
  uint32_t found[4] = {7, 7, 7, 7};
  CHECK(fl_reader_new(acl, &reader) == FL_OK);
  expect_error(fl_classify_ipv4_lists(reader, packets, 2, 0, found), FL_INPUT, "0 lists");
  expect_error(fl_classify_ipv4_lists(reader, packets, 2, 17, found), FL_INPUT, "17 lists");
  // A list without rules answers for none.
  CHECK(fl_classify_ipv4_lists(reader, packets, 2, 2, found) == FL_OK && found[1] == FL_NONE && found[3] == FL_NONE);
  fl_reader_free(reader);
  fl_acl_free(acl);
}

int main(void) {
  make();
  const char *engines[] = {"auto", "tree", "dynamic", "brute"};
  for (int i = 0; i < 4; i++) answers(engines[i]), several_lists(engines[i]);
  gates();
  ipv6();
  list_faults();
  const size_t key_bytes[] = {1, 3, 4, 8, 13, 16, 37, 40, 64};
  for (size_t i = 0; i < sizeof key_bytes / sizeof *key_bytes; i++) exact_match(key_bytes[i]);
  map_beside_a_writer();
  map_faults();
  membership();
  faults();
  changes();
  routes();
  puts("the interface for C: all as it should be");
  return 0;
}
