// Flowlane: packet classification on every lane of a machine.
//
// Made by cbindgen from bindings/c/src: do not edit.
//
// Every function that can fail says 0 (FL_OK) or what is wrong, and fl_error() says it in words, for this thread. Handles are
// opaque; what is made by a function of a kind is freed by that kind's _free, which takes NULL. A list is changed by one thread at
// a time; readers, one a thread, look up meanwhile, and see changes from the next call on after fl_acl_commit. Calls that look up
// allocate nothing, unless a change has come.

#ifndef FLOWLANE_H
#define FLOWLANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The version of this interface: grows by one where a program that was compiled with an older header would not work. A
// structure that grows at its end does not: its size says what the program knows.
#define FL_ABI 1

// No rule matches.
#define FL_NONE UINT32_MAX

// Most lists that are asked in one pass.
#define FL_LISTS_MAX 16

// Done.
#define FL_OK 0

// What was given is not right: see fl_error().
#define FL_INPUT 1

// A file cannot be read.
#define FL_FILE 2

// A limit does not allow it: rules, memory.
#define FL_LIMIT 3

// A fault of the library: please report it.
#define FL_BUG 4

// Integers of one byte.
#define FL_U8 1

// Of two, in this machine's order.
#define FL_U16 2

// Of four.
#define FL_U32 4

// Of eight.
#define FL_U64 8

// `bytes` bytes each, 1 to 16, in network order.
#define FL_BYTES 16

// One value for all packets, of `bytes` bytes in network order.
#define FL_ONE 17

// Rules, which one thread changes.
typedef struct fl_acl fl_acl;

// A set that forgets what it holds: no key that was inserted is denied, others are confirmed at a rate. Any number of threads may
// insert and ask at a time.
typedef struct fl_bloom fl_bloom;

// Numbers of 64 bits by keys of one length. Any number of threads may look up, and change it: a change waits until calls that are
// under way have come back, and the next wait for it.
typedef struct fl_map fl_map;

// Looks packets up, for one thread.
typedef struct fl_reader fl_reader;

// Routes, which one thread changes: readers see each change as it is made.
typedef struct fl_routes fl_routes;

// Looks addresses up, for one thread.
typedef struct fl_routes_reader fl_routes_reader;

// How a list is made. Set `size` to its size, and what is not asked for to 0.
typedef struct {
  // sizeof(fl_acl_config).
  size_t size;
  // "auto", "tree", "dynamic" or "brute"; NULL: auto.
  const char *engine;
  // Most rules; 0: 33 million.
  uint64_t rules_max;
  // Most bytes of tables; 0: 16 GiB.
  uint64_t memory_max;
  // Threads that build; 0: all cores.
  uint32_t threads;
  // The table of the rules that is meant, where flows have several.
  uint8_t table;
} fl_acl_config;

// An IPv4 packet, all of it in this machine's order.
typedef struct {
  uint32_t source;
  uint32_t destination;
  uint16_t source_port;
  uint16_t destination_port;
  uint8_t protocol;
  // 0.
  uint8_t reserved[3];
} fl_ipv4;

// An IPv6 packet: addresses in network order, ports in this machine's.
typedef struct {
  uint8_t source[16];
  uint8_t destination[16];
  uint16_t source_port;
  uint16_t destination_port;
  uint8_t protocol;
  // 0.
  uint8_t reserved[3];
} fl_ipv6;

// A field of many packets, one behind the other.
typedef struct {
  // Which one: fl_field().
  uint32_t field;
  // FL_U8, FL_U16, FL_U32, FL_U64, FL_BYTES or FL_ONE.
  uint32_t kind;
  // The values, aligned as their kind is.
  const void *values;
  // Of FL_BYTES and FL_ONE: bytes of a value.
  uint32_t bytes;
} fl_column;

// Where a field is in the caller's records.
typedef struct {
  // Which one: fl_field().
  uint32_t field;
  // FL_U8, FL_U16, FL_U32 or FL_U64, which need no alignment, or FL_BYTES.
  uint32_t kind;
  // Bytes from the beginning of a record.
  uint32_t offset;
  // Of FL_BYTES: how many.
  uint32_t bytes;
} fl_record_field;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the interface that the library has.
uint32_t fl_abi(void);

// Uses SIMD registers of so many bits at most: 64 (none), 128, 256 or 512. For what is made from then on.
int32_t fl_set_max_simd(uint32_t bits);

// A list of the rules in a file: flows as ovs-ofctl reads them, or ClassBench filters, packed by gzip or zstd or not. A rule's number
// is its position in the file, from 0. `config` may be NULL.
//
// FL_INPUT with file, line and column of all lines that are wrong; FL_FILE; FL_LIMIT.
int32_t fl_acl_from_file(const char *path,
                         const fl_acl_config *config,
                         fl_acl **acl);

// The same of a text; its lines are those of `rules` in errors.
int32_t fl_acl_from_text(const char *rules, const fl_acl_config *config, fl_acl **acl);

// Up to FL_LISTS_MAX lists that are asked in one pass, by fl_classify_ipv4_lists and its like: the texts of `count`. Rules are
// numbered one after the other through all lists; `firsts` (may be NULL) gets the number of each list's first. Other calls that look
// up answer for the first list.
//
// FL_INPUT as for one text: lines are those of `lists[1]`, say; FL_LIMIT.
int32_t fl_acl_from_texts(const char *const *lists,
                          size_t count,
                          const fl_acl_config *config,
                          uint32_t *firsts,
                          fl_acl **acl);

// The same of files.
int32_t fl_acl_from_files(const char *const *paths,
                          size_t count,
                          const fl_acl_config *config,
                          uint32_t *firsts,
                          fl_acl **acl);

// Frees a list. Readers go on with what was committed.
void fl_acl_free(fl_acl *acl);

// Number of rules; 0 for NULL.
size_t fl_acl_len(const fl_acl *acl);

// Bytes of tables; 0 for NULL.
size_t fl_acl_bytes(const fl_acl *acl);

// Adds the rules of a text, all or none of them. They are numbered one after the other from `*first` on; readers see them after
// fl_acl_commit.
int32_t fl_acl_insert(fl_acl *acl,
                      const char *rules,
                      uint32_t *first);

// The same, into one of several lists: the first is 0.
int32_t fl_acl_insert_into(fl_acl *acl, uint32_t list, const char *rules, uint32_t *first);

// Removes a rule; FL_INPUT where there is none of this number. Readers see it after fl_acl_commit.
int32_t fl_acl_remove(fl_acl *acl, uint32_t rule);

// Shows readers the list as it is now, all changes at once: those since the latest time.
int32_t fl_acl_commit(fl_acl *acl);

// A reader, for one thread: the list may be changed, and even freed, while it looks up.
int32_t fl_reader_new(const fl_acl *acl, fl_reader **reader);

// Frees a reader.
void fl_reader_free(fl_reader *reader);

// An empty filter that, holding `items` keys, confirms a key that it does not hold with the probability `rate` at most (above 0, below
// 1).
//
// FL_INPUT: the rate; FL_LIMIT: it would be larger than 4 GiB.
int32_t fl_bloom_new(uint64_t items,
                     double rate,
                     fl_bloom **bloom);

// Frees a filter.
void fl_bloom_free(fl_bloom *bloom);

// Bytes of the filter; 0 for NULL.
size_t fl_bloom_bytes(const fl_bloom *bloom);

// Inserts `count` keys of `key_bytes` each, one behind the other.
int32_t fl_bloom_insert(fl_bloom *bloom, const void *keys, size_t key_bytes, size_t count);

// Inserts numbers. The same key as a number and as bytes is two.
int32_t fl_bloom_insert_u64(fl_bloom *bloom, const uint64_t *keys, size_t count);

// For each of `count` keys of `key_bytes` whether it may be in.
int32_t fl_bloom_contains(const fl_bloom *bloom,
                          const void *keys,
                          size_t key_bytes,
                          size_t count,
                          bool *found);

// For each number whether it may be in.
int32_t fl_bloom_contains_u64(const fl_bloom *bloom,
                              const uint64_t *keys,
                              size_t count,
                              bool *found);

// What was wrong with the latest call of this thread that failed, with file, line and column where it is a file's. It is there
// until the next that fails.
const char *fl_error(void);

// The number of a field, named as in rules ("nw_src", "tp_dst", "ipv6_dst", ..); -1 where there is none of this name.
int32_t fl_field(const char *name);

// The rule of each frame, or FL_NONE. `captured` says how many bytes there are of each, and `lengths` how many it had, where a
// snap length cut it; NULL: as many. What is malformed is looked up as far as it could be read.
int32_t fl_classify_frames(fl_reader *reader,
                           const uint8_t *const *frames,
                           const uint32_t *captured,
                           const uint32_t *lengths,
                           size_t count,
                           uint32_t in_port,
                           uint32_t *rules);

// The same in each of the first `lists` lists, in one pass: the rule of packet p in list l is `rules[p * lists + l]`.
int32_t fl_classify_frames_lists(fl_reader *reader,
                                 const uint8_t *const *frames,
                                 const uint32_t *captured,
                                 const uint32_t *lengths,
                                 size_t count,
                                 uint32_t in_port,
                                 size_t lists,
                                 uint32_t *rules);

// The rule of each packet, or FL_NONE.
int32_t fl_classify_ipv4(fl_reader *reader, const fl_ipv4 *packets, size_t count, uint32_t *rules);

// The same in each of the first `lists` lists, in one pass: the rule of packet p in list l is `rules[p * lists + l]`.
int32_t fl_classify_ipv4_lists(fl_reader *reader,
                               const fl_ipv4 *packets,
                               size_t count,
                               size_t lists,
                               uint32_t *rules);

// The rule of each packet, or FL_NONE.
int32_t fl_classify_ipv6(fl_reader *reader, const fl_ipv6 *packets, size_t count, uint32_t *rules);

// The same in each of the first `lists` lists, in one pass: the rule of packet p in list l is `rules[p * lists + l]`.
int32_t fl_classify_ipv6_lists(fl_reader *reader,
                               const fl_ipv6 *packets,
                               size_t count,
                               size_t lists,
                               uint32_t *rules);

// The rule of each packet, or FL_NONE. Fields without a column are 0, dl_type with them.
//
// FL_INPUT where a column does not suit its field, with its name and row: no rule has been written then.
int32_t fl_classify_columns(fl_reader *reader,
                            const fl_column *columns,
                            size_t columns_count,
                            size_t count,
                            uint32_t *rules);

// The same in each of the first `lists` lists, in one pass: the rule of packet p in list l is `rules[p * lists + l]`.
int32_t fl_classify_columns_lists(fl_reader *reader,
                                  const fl_column *columns,
                                  size_t columns_count,
                                  size_t count,
                                  size_t lists,
                                  uint32_t *rules);

// The rule of each record, or FL_NONE: `fields` say where up to 16 fields are in one. Fields that are not in records are 0, but for
// dl_type, which is that of the addresses that are there.
int32_t fl_classify_records(fl_reader *reader,
                            const fl_record_field *fields,
                            size_t fields_count,
                            const void *const *records,
                            size_t count,
                            uint32_t *rules);

// The same in each of the first `lists` lists, in one pass: the rule of packet p in list l is `rules[p * lists + l]`.
int32_t fl_classify_records_lists(fl_reader *reader,
                                  const fl_record_field *fields,
                                  size_t fields_count,
                                  const void *const *records,
                                  size_t count,
                                  size_t lists,
                                  uint32_t *rules);

// An empty map for up to `keys_max` keys (2^30 at most) of `key_bytes` each, 1 to 64. Memory is reserved for all, and taken as it
// grows.
int32_t fl_map_new(size_t key_bytes,
                   size_t keys_max,
                   fl_map **map);

// Frees a map.
void fl_map_free(fl_map *map);

// Number of keys; 0 for NULL.
size_t fl_map_len(const fl_map *map);

// Bytes of the map, as reserved; 0 for NULL.
size_t fl_map_bytes(const fl_map *map);

// Gives `count` keys, one behind the other, these values, in their order; keys that are there get the new ones. `inserted` (may be
// NULL) gets how many that were: all, or, with FL_LIMIT, those before the first that found no room.
int32_t fl_map_insert(fl_map *map,
                      const void *keys,
                      const uint64_t *values,
                      size_t count,
                      size_t *inserted);

// The value of each key, and whether it is there; values of those that are not stay as they are. `found` may be NULL.
int32_t fl_map_lookup(const fl_map *map,
                      const void *keys,
                      size_t count,
                      uint64_t *values,
                      bool *found);

// Removes keys; for each whether it was there. `found` may be NULL.
int32_t fl_map_remove(fl_map *map, const void *keys, size_t count, bool *found);

// The routes of a file: prefix and next hop, a line each, or the output of `ip route`; packed by gzip or zstd or not.
int32_t fl_routes_from_file(const char *path,
                            fl_routes **routes);

// The same of a text, which may be empty.
int32_t fl_routes_from_text(const char *lines, fl_routes **routes);

// Frees routes. Readers go on with them as they are.
void fl_routes_free(fl_routes *routes);

// Number of routes; 0 for NULL.
size_t fl_routes_len(const fl_routes *routes);

// Adds a route ("10.0.0.0/8", "2001:db8::/32"), or replaces its next hop, a number below FL_NONE.
int32_t fl_routes_insert(fl_routes *routes, const char *to, uint32_t next_hop);

// Removes the route of exactly this prefix; FL_INPUT where there is none.
int32_t fl_routes_remove(fl_routes *routes, const char *to);

// A reader, for one thread: routes may be changed, and even freed, while it looks up.
int32_t fl_routes_reader_new(const fl_routes *routes, fl_routes_reader **reader);

// Frees a reader.
void fl_routes_reader_free(fl_routes_reader *reader);

// The next hop of each address of IPv4, in this machine's order; FL_NONE where there is no route.
int32_t fl_routes_lookup_ipv4(fl_routes_reader *reader,
                              const uint32_t *addresses,
                              size_t count,
                              uint32_t *next_hops);

// The next hop of each address of IPv6, 16 bytes in network order; FL_NONE where there is no route.
int32_t fl_routes_lookup_ipv6(fl_routes_reader *reader,
                              const uint8_t (*addresses)[16],
                              size_t count,
                              uint32_t *next_hops);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FLOWLANE_H */
