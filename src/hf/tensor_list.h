#pragma once
// The tensors of a model by both names, in the order of the parameter table.
#include <cstdint>
#include <string>
#include <vector>

#include "hf/family.h"

namespace moesaic {

struct NamedTensor {
  std::string ours, theirs;
  std::vector<int64_t> shape;
  bool has_vocab() const {
    return ours == "embedding" || ours == "head" || ours == "head_bias";
  }  // first dim V
};

/// Requires a validated model.
std::vector<NamedTensor> list_tensors(const Family& family, const ModelConfig& model);

/// A folder that does not exist yet: work goes to "<path>.tmp", which commit() renames and the destructor removes.
class NewFolder {
 public:
  /// ConfigError if something of that name is there.
  explicit NewFolder(std::string path);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  const std::string& unfinished() const { return unfinished_; }
  void commit();

 private:
  std::string path_, unfinished_;
  bool committed_ = false;
};

/// "a, b, c and 12 more"
std::string first_few(const std::vector<std::string>& names);

}  // namespace moesaic
