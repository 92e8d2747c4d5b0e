// HazardMap against a map of single bytes.
#include <gtest/gtest.h>

#include "device/hazard.h"
#include "support/random_program.h"

namespace moesaic::test {
namespace {

constexpr uint64_t kBytes = 40;

/// What every single byte knows.
struct Bytewise {
  struct Byte {
    Point write;
    Clock reads{};
  };
  std::array<Byte, kBytes> bytes;

  Clock look(uint64_t begin, uint64_t end, bool write, Stream stream) const {
    Clock found{};
    for (uint64_t i = begin; i < end; ++i) {
      if (bytes[i].write.stream != stream)
        found[index_of(bytes[i].write.stream)] =
            std::max(found[index_of(bytes[i].write.stream)], bytes[i].write.sequence);
      for (size_t s = 0; write && s < kNumStreams; ++s)
        if (s != index_of(stream)) found[s] = std::max(found[s], bytes[i].reads[s]);
    }
    return found;
  }
  void note(uint64_t begin, uint64_t end, bool write, Point at) {
    for (uint64_t i = begin; i < end; ++i)
      if (write)
        bytes[i] = {at, {}};
      else
        bytes[i].reads[index_of(at.stream)] = at.sequence;
  }
};

Clock look(const HazardMap& map, uint64_t begin, uint64_t end, bool write, Stream stream) {
  std::vector<Hazard> hazards;
  map.look(begin, end, write, stream, hazards);
  Clock found{};
  for (const Hazard& h : hazards) {
    EXPECT_NE(h.before.stream, stream);
    auto& latest = found[index_of(h.before.stream)];
    latest = std::max(latest, h.before.sequence);
  }
  return found;
}

TEST(HazardMap, KnowsWhatEveryByteKnows) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Dice dice(seed);
    HazardMap map;
    Bytewise bytes;
    Clock sequence{};
    for (int step = 0; step < 60; ++step) {
      const auto begin = static_cast<uint64_t>(dice.below(kBytes - 1));
      const uint64_t end =
          begin + 1 + static_cast<uint64_t>(dice.below(static_cast<int64_t>(kBytes - begin)));
      const bool write = dice.chance(50);
      const auto stream = static_cast<Stream>(dice.below(kNumStreams));
      ASSERT_EQ(look(map, begin, end, write, stream), bytes.look(begin, end, write, stream))
          << "seed " << seed;
      const Point at{stream, ++sequence[index_of(stream)]};
      map.note(begin, end, write, at, step);
      bytes.note(begin, end, write, at);
    }
    uint64_t last = 0;
    for (const auto& [begin, interval] : map.space()) {
      EXPECT_GE(begin, last);
      EXPECT_GT(interval.first, begin);
      last = interval.first;
    }
  }
}

TEST(HazardMap, MergingAWriteReplacesAndMergingReadsAdds) {
  HazardMap map;
  map.note(0, 8, true, {Stream::compute, 1}, 0);
  map.note(0, 8, false, {Stream::comm, 1}, 0);
  HazardMap::Record reads;
  reads.reads[index_of(Stream::reduce)] = 5;
  map.merge(0, 4, reads);
  EXPECT_EQ(look(map, 0, 4, true, Stream::copy), (Clock{1, 1, 5, 0}));
  EXPECT_EQ(look(map, 4, 8, true, Stream::copy), (Clock{1, 1, 0, 0}));
  HazardMap::Record write;
  write.write = {Stream::comm, 9};
  map.merge(2, 6, write);
  EXPECT_EQ(look(map, 2, 6, true, Stream::copy), (Clock{0, 9, 0, 0}));
  EXPECT_EQ(look(map, 0, 8, true, Stream::copy), (Clock{1, 9, 5, 0}));
  map.clear();
  EXPECT_EQ(look(map, 0, 8, true, Stream::copy), Clock{});
}

TEST(HazardMap, GivesTheTensorsThatWereTouched) {
  HazardMap map;
  map.note(0, 4, true, {Stream::compute, 1}, 7);
  map.note(0, 4, false, {Stream::comm, 1}, 8);
  std::vector<Hazard> found;
  map.look(0, 4, true, Stream::reduce, found);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].tensor, 7);
  EXPECT_EQ(found[1].tensor, 8);
}

}  // namespace
}  // namespace moesaic::test
