#pragma once
// What every communicator that exchanges data knows of its group: which member this rank is, of how many, and the numbers of the
// next collective and of the next message between each two members (Communicator::take_sequence).
#include <cstddef>
#include <vector>

#include "comm/communicator.h"

namespace moesaic {

class NumberedCommunicator : public Communicator {
 public:
  NumberedCommunicator(int64_t rank, int64_t size)
      : rank_(rank), size_(size), pairs_(static_cast<size_t>(size * size), 0) {}
  int64_t rank() const final { return rank_; }
  int64_t size() const final { return size_; }
  uint64_t take_sequence() final { return ++sequence_; }
  uint64_t take_pair_sequence(int64_t source, int64_t destination) final {
    return ++pairs_[static_cast<size_t>(source * size_ + destination)];
  }

 private:
  int64_t rank_, size_;
  uint64_t sequence_ = 0;
  std::vector<uint64_t> pairs_;  // [source, destination]
};

}  // namespace moesaic
