// Prints the matching rule of each frame of a capture: captures RULES FILE.pcap. Contains a minimal reader for Ethernet pcap files in
// host byte order; looks up 64 frames at a time.
#include <flowlane.h>
#include <stdio.h>
#include <stdlib.h>

enum { BURST = 64, LONGEST = 1 << 18 };

static int fail(const char *what) {
  fprintf(stderr, "captures: %s\n", what);
  return 1;
}

int main(int count, char **arguments) {
  if (count != 3) return fail("usage: captures RULES FILE.pcap");
  fl_acl *acl;
  fl_reader *reader;
  if (fl_acl_from_file(arguments[1], NULL, &acl) || fl_reader_new(acl, &reader)) return fail(fl_error());
  FILE *file = fopen(arguments[2], "rb");
  if (!file) return fail("cannot open the capture");
  uint32_t header[6];
  if (fread(header, sizeof header, 1, file) != 1) return fail("not a capture");
  if ((header[0] != 0xa1b2c3d4 && header[0] != 0xa1b23c4d) || (header[5] & 0xffff) != 1) return fail("not an Ethernet pcap file");
  uint8_t *bytes = malloc((size_t)BURST * LONGEST);
  if (!bytes) return fail("out of memory");
  const uint8_t *frames[BURST];
  uint32_t captured[BURST], lengths[BURST], rules[BURST];
  unsigned long packet = 0, hits = 0;
  size_t burst;
  do {
    uint32_t record[4];
    for (burst = 0; burst < BURST && fread(record, sizeof record, 1, file) == 1; burst++) {
      if (record[2] > LONGEST) return fail("record too long");
      frames[burst] = bytes + burst * LONGEST;
      if (fread(bytes + burst * LONGEST, 1, record[2], file) != record[2]) break;
      captured[burst] = record[2], lengths[burst] = record[3];
    }
    if (fl_classify_frames(reader, frames, captured, lengths, burst, 1, rules)) return fail(fl_error());
    for (size_t i = 0; i < burst; i++, packet++) {
      if (rules[i] == FL_NONE) {
        printf("%lu,\n", packet);
      } else {
        printf("%lu,%u\n", packet, rules[i]), hits++;
      }
    }
  } while (burst == BURST);
  fprintf(stderr, "%lu packets, %lu matched\n", packet, hits);
  free(bytes);
  fclose(file);
  fl_reader_free(reader);
  fl_acl_free(acl);
  return 0;
}
