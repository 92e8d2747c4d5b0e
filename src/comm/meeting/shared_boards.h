#pragma once
// Boards of meeting places (meeting_place.h) for ranks that are processes of one machine. Each process has one anonymous piece of
// shared memory, which the others open through /proc: it has no name, so nothing of a job can be left over.
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "comm/control.h"
#include "comm/meeting/meeting_place.h"

namespace moesaic {

class SharedBoards {
 public:
  /// Called by all ranks together. `machine`: what ranks have in common that run on one machine. Throws CommError, on the rank
  /// concerned, when memory of a rank of this machine cannot be opened.
  SharedBoards(Control& control, const std::string& machine);
  ~SharedBoards();
  SharedBoards(const SharedBoards&) = delete;
  SharedBoards& operator=(const SharedBoards&) = delete;

  /// The ranks of this machine, this one included.
  const std::vector<int64_t>& neighbours() const { return neighbours_; }
  bool reaches(const std::vector<int64_t>& ranks) const;
  /// The members' boards of a new group of these global ranks, all of this machine, this one among them. Every member calls it;
  /// waits for the others. A second call with the same ranks makes a second group.
  std::vector<MemberBoard> group(const std::vector<int64_t>& ranks);

 private:
  struct Header;
  Header& header(int64_t rank) const;
  std::byte* find(int64_t rank, uint64_t name, int64_t size);

  Control& control_;
  std::vector<int64_t> neighbours_;
  std::vector<std::byte*> regions_;                      // [global rank]; null where out of reach
  std::map<std::vector<int64_t>, uint64_t> num_groups_;  // of these ranks, made so far
};

}  // namespace moesaic
