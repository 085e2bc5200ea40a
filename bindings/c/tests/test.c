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
    at += sprintf(text + at, "priority=%u,%s,nw_src=%u.%u.%u.0/%d,nw_dst=%u.%u.%u.0/%d,tp_dst=%u actions=drop\n",
                  r->priority, r->protocol == 6 ? "tcp" : "udp", r->from >> 24, r->from >> 16 & 255, r->from >> 8 & 255,
                  from, r->to >> 24, r->to >> 16 & 255, r->to >> 8 & 255, to, r->low);
  }
  for (int i = 0; i < PACKETS; i++) {
    fl_ipv4 *p = &packets[i];
    p->source = draw(3) << 24 | draw(3) << 16 | draw(3) << 8 | draw(2);
    p->destination = draw(3) << 24 | draw(3) << 16 | draw(3) << 8 | draw(2);
    p->source_port = draw(65536);
    p->destination_port = draw(6);
    p->protocol = draw(8) ? (draw(2) ? 6 : 17) : 1;
  }
}

static uint32_t best(const fl_ipv4 *p, const char *gone) {
  uint32_t won = FL_NONE;
  for (uint32_t i = 0; i < RULES; i++) {
    const struct rule *r = &rules[i];
    if (gone[i] || (p->source & r->from_mask) != r->from || (p->destination & r->to_mask) != r->to) continue;
    if (p->protocol != r->protocol || p->destination_port < r->low || p->destination_port > r->high) continue;
    if (won == FL_NONE || r->priority > rules[won].priority) won = i;
  }
  return won;
}

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
  fl_reader_free(reader);
  fl_acl_free(acl);
}

static void said(int code, int wanted, const char *part) {
  if (code != wanted || !strstr(fl_error(), part)) {
    fprintf(stderr, "%d instead of %d: %s\n", code, wanted, fl_error());
    exit(1);
  }
}

static void faults(void) {
  fl_acl *acl;
  said(fl_acl_from_text("ip actions=drop\ntcp,tp_dts=80 actions=drop", NULL, &acl), FL_INPUT, "rules:2:5: `tp_dts`");
  said(fl_acl_from_file("/no/such.rules", NULL, &acl), FL_FILE, "/no/such.rules: ");
  said(fl_acl_from_text(NULL, NULL, &acl), FL_INPUT, "rules is NULL");
  said(fl_acl_from_text("\xff", NULL, &acl), FL_INPUT, "not UTF-8");
  said(fl_acl_from_text(text, NULL, NULL), FL_INPUT, "NULL");
  fl_acl_config config = {.size = 3};
  said(fl_acl_from_text(text, &config, &acl), FL_INPUT, "set it to sizeof(fl_acl_config)");
  config.size = sizeof config, config.engine = "treee";
  said(fl_acl_from_text(text, &config, &acl), FL_INPUT, "treee");
  config.engine = NULL, config.rules_max = 10;
  said(fl_acl_from_text(text, &config, &acl), FL_LIMIT, "10");
  // A program that knows less of the structure, and one that knows more.
  struct { size_t size; const char *engine; } older = {sizeof older, "brute"};
  CHECK(fl_acl_from_text(text, (fl_acl_config *)&older, &acl) == FL_OK);
  fl_acl_free(acl);
  struct { fl_acl_config known; uint64_t more[4]; } newer = {.known = {.size = sizeof newer}};
  CHECK(fl_acl_from_text(text, &newer.known, &acl) == FL_OK);
  said(fl_acl_insert(acl, "ip actions=drop\nnonsense", NULL), FL_INPUT, "rules:2:");
  CHECK(fl_acl_len(acl) == RULES);
  said(fl_acl_remove(acl, 4000), FL_INPUT, "no rule 4000");
  fl_reader *reader;
  CHECK(fl_reader_new(acl, &reader) == FL_OK);
  uint32_t found[4], ports[4] = {1, 2, 70000, 3};
  said(fl_classify_ipv4(reader, NULL, 4, found), FL_INPUT, "packets is NULL");
  said(fl_classify_ipv4(NULL, packets, 4, found), FL_INPUT, "reader is NULL");
  said(fl_classify_ipv4(reader, packets, 4, NULL), FL_INPUT, "rules is NULL");
  fl_column column = {fl_field("tp_dst"), FL_U32, ports, 0};
  said(fl_classify_columns(reader, &column, 1, 4, found), FL_INPUT, "column `tp_dst`, row 2: 0x11170 does not fit");
  column.kind = 99;
  said(fl_classify_columns(reader, &column, 1, 4, found), FL_INPUT, "kind 99");
  column.kind = FL_U32, column.values = (char *)ports + 1;
  said(fl_classify_columns(reader, &column, 1, 2, found), FL_INPUT, "not aligned");
  column.field = 4000;
  said(fl_classify_columns(reader, &column, 1, 2, found), FL_INPUT, "not aligned");
  fl_record_field field = {fl_field("nw_src"), FL_BYTES, 0, 17};
  const void *record = packets;
  said(fl_classify_records(reader, &field, 1, &record, 1, found), FL_INPUT, "17 bytes");
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
  said(fl_routes_remove(table, "10.1.0.0/16"), FL_INPUT, "no such route");
  said(fl_routes_insert(table, "10.0.0.0/33", 1), FL_INPUT, "10.0.0.0/33");
  said(fl_routes_insert(table, "10.0.0.0/8", FL_NONE), FL_INPUT, "FL_NONE");
  said(fl_routes_from_text("10.0.0.0/8 x", &table), FL_INPUT, "routes:1:");
  fl_routes_free(table);
  CHECK(fl_routes_lookup_ipv4(reader, asked, 4, hops) == FL_OK && hops[3] == 300);
  fl_routes_reader_free(reader);
}

int main(void) {
  make();
  const char *engines[] = {"auto", "tree", "dynamic", "brute"};
  for (int i = 0; i < 4; i++) answers(engines[i]);
  ipv6();
  faults();
  changes();
  routes();
  puts("the interface for C: all as it should be");
  return 0;
}
