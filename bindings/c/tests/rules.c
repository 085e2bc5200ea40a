// Rules as structures, with data of the caller's, and as text.
#include <flowlane.h>
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

static void expect_error(int code, int wanted, const char *part) {
  if (code != wanted || !strstr(fl_error(), part)) {
    fprintf(stderr, "%d instead of %d: %s, not %s\n", code, wanted, fl_error(), part);
    exit(1);
  }
}

static void expect_text(const fl_acl *acl, uint32_t rule, const char *wanted) {
  char text[256];
  size_t length;
  CHECK(fl_acl_rule_text(acl, rule, text, sizeof text, &length) == FL_OK);
  if (strcmp(text, wanted) || length != strlen(wanted)) {
    fprintf(stderr, "rule %u: %s, not %s\n", rule, text, wanted);
    exit(1);
  }
}

static fl_condition is(const char *name, uint64_t value) {
  return (fl_condition){.field = (uint32_t)fl_field(name), .kind = FL_IS, .value = value};
}

static int web_data, any_data;

static void structures_are_the_rules_of_texts(void) {
  const fl_condition web[] = {
      is("dl_type", 0x0800), is("nw_proto", 6),
      {.field = (uint32_t)fl_field("nw_dst"), .kind = FL_PREFIX, .value = 0x0a0000ff, .mask_range = 8},
      {.field = (uint32_t)fl_field("tp_dst"), .kind = FL_RANGE, .value = 80, .mask_range = 90},
      {.field = (uint32_t)fl_field("nw_src"), .kind = FL_MASKED, .value = 1, .mask_range = 0xff},
  };
  const fl_condition six[] = {
      is("dl_type", 0x86dd),
      {.field = (uint32_t)fl_field("ipv6_dst"), .kind = FL_PREFIX, .value_high = 0x20010db800000000, .mask_range = 32},
      {.field = (uint32_t)fl_field("ipv6_src"), .kind = FL_MASKED, .value = 7, .mask_range = 15, .mask_high = 0},
  };
  const fl_rule rules[] = {
      {.size = sizeof(fl_rule), .conditions = web, .conditions_count = 5, .priority = 9, .user = (uintptr_t)&web_data},
      {.size = sizeof(fl_rule), .conditions = six, .conditions_count = 3, .priority = 5, .user = 42},
      {.size = sizeof(fl_rule), .priority = 1, .user = (uintptr_t)&any_data},
      {.size = sizeof(fl_rule), .priority = 1},
  };
  fl_acl *acl;
  fl_reader *reader;
  CHECK(fl_acl_from_rules(rules, 4, NULL, &acl) == FL_OK && fl_acl_len(acl) == 4 && fl_reader_new(acl, &reader) == FL_OK);
  char text[256];
  CHECK(fl_acl_rule_text(acl, 0, text, sizeof text, NULL) == FL_OK);
  CHECK(strstr(text, "tcp") && strstr(text, "nw_dst=10.0.0.0/8") && strstr(text, "nw_src=0.0.0.1/0.0.0.255") && strstr(text, "80-90"));
  expect_text(acl, 1, "table=0,priority=5,cookie=0x2a,ipv6,ipv6_src=::7/::f,ipv6_dst=2001:db8::/32 actions=drop");
  expect_text(acl, 3, "table=0,priority=1 actions=drop");

  const fl_ipv4 packets[3] = {
      {.source = 0xc0000201, .destination = 0x0a000001, .destination_port = 85, .protocol = 6},
      {.source = 0xc0000201, .destination = 0x0a000001, .destination_port = 91, .protocol = 6},
      {.source = 0xc0000202, .destination = 0x0a000001, .destination_port = 85, .protocol = 6},
  };
  uint32_t found[4];
  uint64_t users[4] = {9, 9, 9, 9};
  CHECK(fl_classify_ipv4(reader, packets, 3, found) == FL_OK);
  CHECK(found[0] == 0 && found[1] == 2 && found[2] == 2);
  CHECK(fl_reader_users(reader, found, 3, users) == FL_OK);
  CHECK(users[0] == (uintptr_t)&web_data && users[1] == (uintptr_t)&any_data && users[2] == users[1] && users[3] == 9);
  const uint32_t others[4] = {1, 3, FL_NONE, 4000};
  CHECK(fl_reader_users(reader, others, 4, users) == FL_OK);
  CHECK(users[0] == 42 && users[1] == 0 && users[2] == 0 && users[3] == 0);
  // The text of a rule makes the same rule.
  uint32_t first;
  CHECK(fl_acl_insert(acl, text, &first) == FL_OK && first == 4 && fl_acl_remove(acl, 0) == FL_OK);
  CHECK(fl_reader_users(reader, &first, 1, users) == FL_OK && users[0] == 0);
  CHECK(fl_acl_commit(acl) == FL_OK && fl_classify_ipv4(reader, packets, 1, found) == FL_OK && found[0] == 4);
  CHECK(fl_reader_users(reader, found, 1, users) == FL_OK && users[0] == (uintptr_t)&web_data);
  expect_error(fl_acl_rule_text(acl, 0, text, sizeof text, NULL), FL_INPUT, "there is no rule 0");
  // A reader keeps rules and data of a list that is freed.
  fl_acl_free(acl);
  CHECK(fl_reader_users(reader, found, 1, users) == FL_OK && users[0] == (uintptr_t)&web_data);
  fl_reader_free(reader);
}

static void texts_are_cut_to_their_room(void) {
  fl_acl *acl;
  CHECK(fl_acl_from_text("udp,tp_dst=53 actions=drop", NULL, &acl) == FL_OK);
  const char *wanted = "table=0,priority=32768,udp,tp_dst=53 actions=drop";
  expect_text(acl, 0, wanted);
  char text[8];
  memset(text, 'x', sizeof text);
  size_t length = 0;
  CHECK(fl_acl_rule_text(acl, 0, text, 6, &length) == FL_OK && length == strlen(wanted));
  CHECK(memcmp(text, "table\0xx", 8) == 0);
  CHECK(fl_acl_rule_text(acl, 0, NULL, 0, &length) == FL_OK && length == strlen(wanted));
  expect_error(fl_acl_rule_text(acl, 0, NULL, 6, &length), FL_INPUT, "text is NULL");
  fl_acl_free(acl);
}

static void rules_go_to_their_lists_all_or_none(void) {
  fl_acl *acl;
  fl_reader *reader;
  fl_acl_config config = {.size = sizeof config, .engine = "dynamic", .rules_max = 4};
  const fl_rule both = {.size = sizeof(fl_rule), .lists = 3, .user = 1}, second = {.size = sizeof(fl_rule), .lists = 2, .priority = 9};
  CHECK(fl_acl_from_rules(&both, 1, &config, &acl) == FL_OK && fl_reader_new(acl, &reader) == FL_OK);
  uint32_t first, found[2];
  CHECK(fl_acl_insert_rules(acl, &second, 1, &first) == FL_OK && first == 1 && fl_acl_commit(acl) == FL_OK);
  const fl_ipv4 packet = {.protocol = 6};
  CHECK(fl_classify_ipv4_lists(reader, &packet, 1, 2, found) == FL_OK && found[0] == 0 && found[1] == 1);
  const fl_rule many[3] = {second, second, second};
  expect_error(fl_acl_insert_rules(acl, many, 3, NULL), FL_LIMIT, "4");
  CHECK(fl_acl_len(acl) == 2 && fl_acl_insert_rules(acl, many, 0, &first) == FL_OK && fl_acl_len(acl) == 2);
  fl_reader_free(reader);
  fl_acl_free(acl);
}

static void wrong_rules_are_named(void) {
  fl_acl *acl;
  CHECK(fl_acl_from_rules(NULL, 0, NULL, &acl) == FL_OK && fl_acl_len(acl) == 0);
  fl_condition conditions[] = {is("dl_type", 0x0800), is("nw_proto", 6), is("tp_dst", 70000)};
  fl_rule rules[] = {{.size = sizeof(fl_rule)}, {.size = sizeof(fl_rule), .conditions = conditions, .conditions_count = 3}};
#define REFUSED(part) expect_error(fl_acl_insert_rules(acl, rules, 2, NULL), FL_INPUT, part)
  REFUSED("rules[1]: condition 2: 70000 does not fit into the 16 bits of tp_dst; the largest value is 65535");
  conditions[2].kind = FL_MASKED, conditions[2].value = 1, conditions[2].mask_range = 0x1ffff;
  REFUSED("rules[1]: condition 2: the mask 0x1ffff does not fit into the 16 bits of tp_dst");
  conditions[2].kind = FL_PREFIX, conditions[2].mask_range = 17;
  REFUSED("rules[1]: condition 2: a prefix of 17 bits; tp_dst has 16");
  conditions[2].kind = FL_RANGE, conditions[2].value = 90, conditions[2].mask_range = 80;
  REFUSED("rules[1]: condition 2: tp_dst: port range 90-80 is empty");
  conditions[2].mask_range = 70000;
  REFUSED("rules[1]: condition 2: range 90-70000 of tp_dst; ports are 0 to 65535");
  conditions[2].kind = 9;
  REFUSED("rules[1]: condition 2: there is no kind 9");
  conditions[2] = is("tp_dst", 80);
  conditions[2].field = 4000;
  REFUSED("there is no field number 4000");
  conditions[2] = is("tp_dst", 80), conditions[0] = conditions[1];
  REFUSED("rules[1]: tp_dst needs `tcp`, `udp` or `sctp` (or `ip`, for any of them) in the match");
  rules[1].conditions = NULL;
  REFUSED("rules[1]: conditions is NULL");
  rules[1].conditions_count = 0, rules[1].lists = 1 << 16;
  REFUSED("rules[1]: lists are 0x10000; there are 16, a bit each");
  rules[0].size = 8;
  REFUSED("fl_rule: its size is 8; set it to sizeof(fl_rule)");
  expect_error(fl_acl_insert_rules(acl, NULL, 1, NULL), FL_INPUT, "rules is NULL");
  CHECK(fl_acl_len(acl) == 0);
  fl_acl_free(acl);
  // A program that knows more of the structure.
  struct { fl_rule known; uint64_t more[2]; } newer[2] = {
      {.known = {.size = sizeof newer[0], .user = 5}}, {.known = {.size = sizeof newer[0], .user = 6}}};
  fl_reader *reader;
  uint64_t users[2];
  CHECK(fl_acl_from_rules(&newer[0].known, 2, NULL, &acl) == FL_OK && fl_reader_new(acl, &reader) == FL_OK);
  CHECK(fl_reader_users(reader, (const uint32_t[]){0, 1}, 2, users) == FL_OK && users[0] == 5 && users[1] == 6);
  fl_reader_free(reader);
  fl_acl_free(acl);
}

int main(void) {
  structures_are_the_rules_of_texts();
  texts_are_cut_to_their_room();
  rules_go_to_their_lists_all_or_none();
  wrong_rules_are_named();
  puts("rules passed");
}
