#pragma once
// How the ranks of a job speak on the host: agreement, status and abort. Small, rare messages; never tensors.
// launch/ implements it. All calls of one kind are made by every rank in the same order; they block, with the
// job's time limit.
#include <cstdint>
#include <string>
#include <vector>

namespace moesaic {

class Control {
 public:
  virtual ~Control() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;

  /// Everybody's `mine`, in rank order. Throws CommError when the job was aborted or a rank did not come in
  /// time.
  virtual std::vector<std::string> all_gather(const std::string& mine) = 0;

  /// What this rank is doing, for messages about ranks that do not answer.
  virtual void set_step(int64_t step) = 0;
  virtual void set_operation(const std::string& operation) = 0;

  /// Ends the job: every waiting or later call of any rank throws CommError with this message. First message
  /// wins.
  virtual void abort(const std::string& message) = 0;
  /// Throws CommError if the job was aborted.
  virtual void check() const = 0;

  void barrier() { all_gather(""); }
  /// True when any rank says true.
  bool any(bool mine);
  /// Sum over the ranks.
  int64_t sum(int64_t mine);
  /// True when all ranks gave the same value.
  bool same(const std::string& mine);
  /// rank 0's value.
  std::string broadcast(const std::string& mine) { return all_gather(rank() == 0 ? mine : "").front(); }
};

}  // namespace moesaic
