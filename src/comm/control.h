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

  /// An agreement: everybody's `mine`, in rank order. Throws CommError when the job was aborted, which also happens when
  /// ranks call it at different places of the program.
  std::vector<std::string> all_gather(const std::string& mine, const char* file = __builtin_FILE(),
                                      int line = __builtin_LINE()) {
    return all_gather_at(place(file, line), mine);
  }

  /// What this rank is doing, for messages about ranks that do not answer.
  virtual void set_step(int64_t step) = 0;
  virtual void set_operation(const std::string& operation) = 0;
  /// Seconds that this rank may stand still from now on, which is begin no other operation, while others wait for it; then
  /// the job ends. At first the job's time limit.
  virtual void set_time_limit(double seconds) = 0;
  /// Whom this rank waits for, to do what: "rank 1 to join all_gather number 5"; said again and again while it waits, and ended
  /// by "" or by the next operation. May throw CommError, as check() does.
  virtual void set_waiting(const std::string& waits_for) = 0;

  /// A rank for messages: "rank 2 (step 5, last operation: all_gather tokens)", as far as it is known here.
  virtual std::string describe(int64_t rank) { return "rank " + std::to_string(rank); }

  /// Ends the job: every waiting or later call of any rank throws CommError with this message. First message
  /// wins.
  virtual void abort(const std::string& message) = 0;
  /// Throws CommError if the job was aborted.
  virtual void check() const = 0;

  void barrier(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    all_gather("", file, line);
  }
  /// True when any rank says true.
  bool any(bool mine, const char* file = __builtin_FILE(), int line = __builtin_LINE());
  /// Sum over the ranks.
  int64_t sum(int64_t mine, const char* file = __builtin_FILE(), int line = __builtin_LINE());
  /// True when all ranks gave the same value.
  bool same(const std::string& mine, const char* file = __builtin_FILE(), int line = __builtin_LINE());
  /// rank 0's value.
  std::string broadcast(const std::string& mine, const char* file = __builtin_FILE(),
                        int line = __builtin_LINE()) {
    return all_gather(rank() == 0 ? mine : "", file, line).front();
  }

 protected:
  /// `where`: what makes it this agreement and no other.
  virtual std::vector<std::string> all_gather_at(const std::string& where, const std::string& mine) = 0;

 private:
  /// "trainer.cpp:120"
  static std::string place(const std::string& file, int line);
};

}  // namespace moesaic
