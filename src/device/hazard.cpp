#include "device/hazard.h"

#include <algorithm>

#include "base/check.h"

namespace moesaic {

void HazardMap::look(uint64_t begin, uint64_t end, bool write, Stream stream,
                     std::vector<Hazard>& found) const {
  auto it = space_.upper_bound(begin);
  if (it != space_.begin()) --it;
  for (; it != space_.end() && it->first < end; ++it) {
    if (it->second.first <= begin) continue;
    const Record& record = it->second.second;
    if (record.write.sequence != 0 && record.write.stream != stream)
      found.push_back({record.write, record.write_tensor});
    if (!write) continue;
    for (size_t s = 0; s < kNumStreams; ++s)
      if (record.reads[s] != 0 && s != index_of(stream))
        found.push_back({{static_cast<Stream>(s), record.reads[s]}, record.read_tensors[s]});
  }
}

HazardMap::Space::iterator HazardMap::cut(uint64_t begin, uint64_t end) {
  MOESAIC_CHECK(begin < end);
  const auto split = [&](uint64_t at) {
    auto it = space_.upper_bound(at);
    if (it == space_.begin()) return;
    --it;
    if (it->first == at || it->second.first <= at) return;
    const auto old = it->second;
    it->second.first = at;
    space_.emplace(at, old);
  };
  split(begin);
  split(end);
  uint64_t at = begin;
  while (at < end) {
    auto it = space_.lower_bound(at);
    if (it == space_.end() || it->first > at) {
      const uint64_t stop = it == space_.end() ? end : std::min(end, it->first);
      it = space_.emplace(at, std::pair{stop, Record{}}).first;
    }
    at = it->second.first;
  }
  return space_.find(begin);
}

void HazardMap::note(uint64_t begin, uint64_t end, bool write, Point at, int32_t tensor) {
  for (auto it = cut(begin, end); it != space_.end() && it->first < end; ++it) {
    Record& record = it->second.second;
    if (write) record = {.write = at, .write_tensor = tensor, .reads = {}, .read_tensors = {}};
    if (!write)
      record.reads[index_of(at.stream)] = at.sequence, record.read_tensors[index_of(at.stream)] = tensor;
  }
}

void HazardMap::merge(uint64_t begin, uint64_t end, const Record& record) {
  for (auto it = cut(begin, end); it != space_.end() && it->first < end; ++it) {
    Record& mine = it->second.second;
    if (record.write.sequence != 0) {
      mine = record;
      continue;
    }
    for (size_t s = 0; s < kNumStreams; ++s)
      if (record.reads[s] != 0)
        mine.reads[s] = record.reads[s], mine.read_tensors[s] = record.read_tensors[s];
  }
}

}  // namespace moesaic
